"""The three agents on ParlAI's TorchRankerAgent: the only file that knows ParlAI's call chain.

observe -> vectorize (text.py) -> batchify -> train_step / eval_step -> CandidateSet -> scores [B, C] -> reply.
"""

import abc
import contextlib
import copy
import functools
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from parlai.core import torch_ranker_agent
from parlai.core.metrics import AverageMetric
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.torch_agent import Batch, Output
from parlai.core.torch_ranker_agent import TorchRankerAgent
from parlai.scripts.build_candidates import build_cands
from parlai.utils import logging
from parlai.utils.distributed import is_primary_worker, num_workers
from parlai.utils.misc import warn_once
from torch import Tensor, nn

from polyagents.arguments import AUTO
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint
from polyagents.index.builder import CandidateEncoder
from polyagents.index.exact import score_all, search
from polyagents.index.in_memory import InMemoryCandidates, InMemoryVectors
from polyagents.index.manifest import Manifest
from polyagents.index.scan import has_bf16
from polyagents.index.store import CandidateStore
from polyagents.index.texts import read_candidates
from polyagents.index.top_k import TopCandidates, top_k
from polyagents.models import output_scaling
from polyagents.models.backbone import load_backbone
from polyagents.models.bi import BiEncoder
from polyagents.models.cross import CrossEncoder
from polyagents.models.encoder import Encoder, in_order
from polyagents.models.poly import PolyEncoder
from polyagents.models.query import Query
from polyagents.models.tokens import Tokens, pad_pairs
from polyagents.parlai_agents import flags, initial_weights
from polyagents.parlai_agents.base_agent import BaseAgent, is_training_command
from polyagents.parlai_agents.fixed_candidates import FixedCandidates, WithLabel, located
from polyagents.parlai_files.model_weights import ParlaiModel
from polyagents.pretraining.reading import Reader
from polyagents.ranking.candidate_set import (
    Candidate,
    CandidateSet,
    columns_of,
    equal_to_label,
    inline_set,
    label_ranks,
    shared_set,
    shared_set_with_own,
)
from polyagents.ranking.vector_cache import VectorCache
from polyagents.training import distributed
from polyagents.training.distillation import distillation_loss, hardest, load_teacher, teacher_scores
from polyagents.training.gradient_cache import GradientCache
from polyagents.training.losses import ranking_loss

TEACHER_RECALL_AT = (1, 5, 10, 100)  # the hits@k that ParlAI's teachers count themselves
PAIRS_AT_ONCE = 4_096  # pairs that a cross-encoder pads together: 30 MB of ids; the encoder takes them in chunks
POOL_LIMIT = 100_000  # labels remembered as random negatives, a training set's worth in the paper's tasks


class RankerAgent(BaseAgent, TorchRankerAgent):
    """What the three agents share: text, candidates, training, metrics, replies."""

    fixed_candidates_path: str
    fixed: FixedCandidates | None

    # ---- options ---------------------------------------------------------------------------------------------------

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """TorchRankerAgent's flags, ours, and the paper's training settings as defaults (5.1)."""
        super().add_cmdline_args(parser, partial_opt=partial_opt)
        flags.add_backbone_flags(parser)
        flags.add_ranking_flags(parser)
        flags.add_training_flags(parser)
        parser.set_defaults(
            optimizer="adamw",
            learningrate=5e-5,
            weight_decay=0.01,
            lr_scheduler="reduceonplateau",
            lr_scheduler_decay=0.4,
            lr_scheduler_patience=0,
        )
        if is_training_command(partial_opt):
            # A killed run goes on from its last checkpoint, so there is one.
            parser.set_defaults(validation_every_n_epochs=0.5, save_after_valid=True, save_every_n_secs=600)
        return parser

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        self.parlai_model = self._adopt_start(opt) if shared is None else None
        self.recall_at = flags.read_recall_at(opt)
        self.label_pool: list[str] = []
        self.labels_seen = 0
        self.teacher: RankerAgent | None = None
        # ParlAI would wrap the model in DistributedDataParallel; the gradients are averaged here (distributed.py).
        with mock.patch.object(torch_ranker_agent, "is_distributed", lambda: False):
            super().__init__(opt, shared)
        self.cache = VectorCache(self._encode_ids) if shared is None else shared["cache"]
        if shared is None and self._is_training_run(opt):
            distributed.same_weights(self.model)
            if self.opt["compile"]:
                for encoder in {module for module in self.model.modules() if isinstance(module, Encoder)}:
                    encoder.compile_backbone()
            if self.opt.get("teacher_model_file"):
                self.teacher = load_teacher(self.opt)
            self.begin_run()

    def _adopt_start(self, opt: Opt) -> ParlaiModel | None:
        """Check what is to be loaded, before anything is built, and let it decide its flags."""
        file = self._checked_start(opt)
        model = initial_weights.adopt(file, opt, self.architecture)
        flags.check_not_reserved(opt)
        self._check_training(opt)
        return model

    def _check_training(self, opt: Opt) -> None:
        """Refuse a training run that could not learn, before anything is built."""
        alone = opt.get("batchsize", 1) == 1 and num_workers() == 1
        if self._is_training_run(opt) and alone and opt["candidates"] == "batch":
            raise InputError(
                "--candidates batch takes the other labels of the batch as negatives, and --batchsize 1 has none; give "
                "--batchsize (the paper: 512 on ConvAI2, 256 elsewhere), or --candidates inline."
            )

    # ---- model -----------------------------------------------------------------------------------------------------

    @property
    def context_encoder(self) -> Encoder:
        """What reads contexts: a cross-encoder's only encoder."""
        encoder: Encoder = getattr(self.module, "encoder", None) or self.module.context_encoder
        return encoder

    def build_model(self) -> nn.Module:
        """TorchRankerAgent: the architecture, with pretrained weights unless a model file brings its own."""
        file, _ = self._get_init_model(self.opt, None)
        if self.opt.get("seed") is not None:  # ParlAI seeds only after the model is made
            torch.manual_seed(self.opt["seed"])
        if self.parlai_model is not None:
            config = self.parlai_model.config()
            self.dict.backbone_config = config.to_diff_dict() | {"model_type": config.model_type}
        encoder = Encoder(
            load_backbone(self.backbone_options, self.dict, file is None, self._is_training_run(self.opt)),
            self.backbone_options,
        )
        self._check_lengths(encoder)
        if self.opt["output_scaling"] == AUTO:
            self._scale_outputs(encoder)
        return self.build_architecture(encoder)

    def _scale_outputs(self, encoder: Encoder) -> None:
        """Measure the factor on what the task brings for training; M.opt keeps it."""
        if self.opt.get("interactive_mode") or not self.opt.get("task"):
            raise InputError("--output-scaling auto measures what a task trains on, and here is none; give a number.")
        pairs = Reader(Opt(self.opt | {"datatype": "train"}), seed=0).read(output_scaling.EXAMPLES)
        texts = [self.context_ids(pair.context) for pair in pairs]
        texts += [list(candidate.ids) for candidate in self.as_candidates([p.label for p in pairs if p.label])]
        if not texts:
            raise InputError(f"--output-scaling auto finds no texts in --task {self.opt['task']}; give a number.")
        # One factor for all processes: machines round differently.
        factor = distributed.gathered(output_scaling.factor(encoder, texts, self.dict.pad_id))[0]
        logging.info(f"--output-scaling auto: {factor}, for a deviation of {output_scaling.BERT_DEVIATION}")
        encoder.output_scaling = self.opt["output_scaling"] = factor

    @abc.abstractmethod
    def build_architecture(self, encoder: Encoder) -> nn.Module:
        """The module of this agent around an encoder."""

    def build_criterion(self) -> nn.Module:
        """TorchRankerAgent wants a module; the loss is `losses.ranking_loss`."""
        return nn.Identity()

    def _report_failure(self, losses: Tensor, batch: Batch) -> None:
        """Name the examples whose loss is no number; `update_params` will not train on them."""
        wrong = (~torch.isfinite(losses)).nonzero().flatten().tolist()
        if not wrong:
            return
        report = logging.error if is_primary_worker() else say  # ParlAI silences the log of the others
        report(
            f"Update {self._number_training_updates + 1}: the loss of {len(wrong)} of {len(losses)} examples is not "
            f"finite, and the batch is not trained on. The first: {batch.contexts[wrong[0]]!r} -> "
            f"{batch.labels[wrong[0]]!r}"
        )

    def _read(self, path: str) -> dict[str, Any]:
        if self.parlai_model is not None:
            state, self.parlai_model = self.parlai_model.state(), None
            if getattr(self.module, "codes", None) is not None:  # ParlAI's pretrained poly-encoders have none
                state.setdefault("codes", self.module.codes.data)
            return {"model": state}
        return super()._read(path)

    # ---- text to ids -----------------------------------------------------------------------------------------------

    def _set_text_vec(self, obs: Any, history: Any, truncate: int | None) -> Any:
        """TorchAgent: the context's ids, between its [S], from the history, whose turns are tokenised once."""
        ids = history.get_history_vec()
        if obs.get("text") is None or ids is None:
            return obs
        context = self.dict.context(ids, truncate)
        obs.force_set("full_text", history.get_history_str())
        obs.force_set("text_vec", torch.tensor(context))
        obs.force_set("context_original_length", len(ids) + 2)
        obs.force_set("context_truncate_rate", len(ids) + 2 > len(context))
        obs.force_set("context_truncated_length", len(ids) + 2 - len(context))
        return obs

    def _vectorize_text_with_truncate_stats(
        self,
        text: str,
        add_start: bool = False,
        add_end: bool = False,
        truncate: int | None = None,
        truncate_left: bool = True,
    ) -> tuple[Tensor, int, bool]:
        """TorchAgent's way to a label's ids. Every candidate is between its [S], whatever the caller says."""
        ids = self.dict.txt2vec(text)
        candidate = self.dict.candidate(ids, truncate)
        return torch.tensor(candidate), len(ids) + 2, len(ids) + 2 > len(candidate)

    def _set_label_cands_vec(self, obs: Any, add_start: bool, add_end: bool, truncate: int | None) -> Any:
        """TorchRankerAgent: the candidates' ids, in one call of the tokenizer, and only where they are used."""
        source = self.candidates if "labels" in obs else self.eval_candidates
        if source in ("inline", "batch-all-cands", "batch+inline") and obs.get("label_candidates"):
            texts = list(obs["label_candidates"])
            obs.force_set("label_candidates", texts)
            obs.force_set("label_candidates_vecs", [torch.tensor(c.ids) for c in self.as_candidates(texts)])
        return obs

    def as_candidates(self, texts: Sequence[str]) -> list[Candidate]:
        """Texts -> candidates with token ids between their [S], truncated."""
        encoded = self.dict.encode(texts)
        limit = self.label_truncate
        return [
            Candidate(text, tuple(self.dict.candidate(ids, limit))) for text, ids in zip(texts, encoded, strict=True)
        ]

    def context_ids(self, text: str) -> list[int]:
        """One context, its turns divided by line ends -> token ids between their [S], truncated."""
        return self.dict.context(self.dict.txt2vec(text), self.text_truncate)

    def batchify(self, obs_batch: Sequence[Any], sort: bool = False) -> Batch:
        """TorchAgent's, with the contexts as texts."""
        batch: Batch = super().batchify(obs_batch, sort=sort)
        if batch.text_vec is not None:
            batch.contexts = [obs_batch[i]["full_text"] for i in batch.valid_indices]
        return batch

    def _batch_contexts(self, batch: Batch) -> list[list[int]]:
        return [row[row != self.NULL_IDX].tolist() for row in batch.text_vec.cpu()]

    # ---- candidates ------------------------------------------------------------------------------------------------

    def candidate_set(self, batch: Batch, source: str) -> CandidateSet:
        """What a batch ranks, by source; TorchRankerAgent._build_candidates explains them."""
        labels = self._labels(batch)
        if source == "batch":
            if labels is None:
                raise InputError("Candidate source 'batch' ranks the batch's labels, and these examples have none.")
            return shared_set(labels, labels)
        if labels is not None and batch.candidate_vecs is None and not self.is_training:
            # The default source of an evaluation; a training run must not end at its first validation.
            warn_once(
                f"--task {self.opt.get('task')} brings no candidates: the labels of each batch are ranked instead."
            )
            return shared_set(labels, labels)
        given = self._given_candidates(batch, source)
        if source == "batch-all-cands":
            return shared_set([candidate for own in given for candidate in own], labels)
        return inline_set(given, labels)

    def _labels(self, batch: Batch) -> list[Candidate] | None:
        """The label of every example."""
        if batch.labels is None:
            return None
        ids = [tuple(row[row != self.NULL_IDX].tolist()) for row in batch.label_vec.cpu()]
        return [Candidate(*pair) for pair in zip(batch.labels, ids, strict=True)]

    def _given_candidates(self, batch: Batch, source: str) -> list[list[Candidate]]:
        """The candidates that came with each example."""
        if batch.candidate_vecs is None:
            flag = "interactive-candidates" if self.opt.get("interactive_mode") else "eval-candidates"
            flag = "candidates" if self.is_training else flag
            raise InputError(
                f"--{flag} {source} takes the candidates of the task, and --task {self.opt.get('task')} brings none; "
                f"use --{flag} batch, or fixed with --fixed-candidates-path."
            )
        return [
            [Candidate(text, tuple(ids.tolist())) for text, ids in zip(texts or (), vecs or (), strict=True)]
            for texts, vecs in zip(batch.candidates, batch.candidate_vecs, strict=True)
        ]

    def set_vocab_candidates(self, shared: dict[str, Any] | None) -> None:
        """TorchRankerAgent's word candidates: refused in options.py; its share() wants the names."""
        self.vocab_candidates = self.vocab_candidate_vecs = self.vocab_candidate_encs = None

    def set_fixed_candidates(self, shared: dict[str, Any] | None) -> None:
        """TorchRankerAgent: the candidates of `--fixed-candidates-path`, or all of the task."""
        # Its share() wants these names; nothing is kept under them.
        self.fixed_candidates = self.fixed_candidate_vecs = self.fixed_candidate_encs = None
        self.num_fixed_candidates = 0
        self.fixed = None if shared is None else shared["fixed"]
        if shared is None and "fixed" in (self.candidates, self.eval_candidates):
            path = self.fixed_candidates_path or self.get_task_candidates_path()
            self.fixed_candidates_path = located(path, self.opt.get("datapath"))
            self.fixed = FixedCandidates(self.fixed_candidates_path, self.encode_fixed())
            # What is wrong with the file is said now, and the first message of a chat need not wait.
            _ = self.fixed.listed if self._is_training_run(self.opt) else self.fixed.texts

    @functools.cached_property
    def fixed_listed(self) -> list[Candidate]:
        """The fixed candidates with their token ids."""
        assert self.fixed is not None
        return self.as_candidates(self.fixed.listed)

    def encode_fixed(self) -> Callable[[str], CandidateStore | InMemoryCandidates] | None:
        """What encodes a candidates file; None where candidates cannot be encoded apart."""
        return self._encode_file

    def _encode_file(self, path: str) -> CandidateStore | InMemoryCandidates:
        """Kept beside the model file while the weights do not change any more."""
        file = self.opt.get("model_file")
        if (
            self._is_training_run(self.opt)
            or not file
            or not os.access(os.path.dirname(os.path.abspath(file)), os.W_OK)
        ):
            return InMemoryCandidates.encode(read_candidates(path), self.encode_texts)
        folder = f"{file}.{os.path.splitext(os.path.basename(path))[0]}.index"
        before = Manifest.read(folder)  # build_index may have been there, and asked for less
        return CandidateStore.build(path, folder, self.maker("fp32" if before is None else before.stored_as))

    def get_task_candidates_path(self) -> str:
        """TorchRankerAgent's list of all candidates of the task, beside the model file; written whole or not at all."""
        if not self.opt.get("model_file"):
            raise InputError("Fixed candidates need --fixed-candidates-path, a text file with one candidate per line.")
        task = re.sub(r"[^\w.,:-]", "_", self.opt["task"])
        path = f"{self.opt['model_file']}.cands-{task}.cands"
        if not os.path.exists(path):
            opt = copy.deepcopy(self.opt)
            opt |= {"outfile": f"{path}.tmp", "datatype": "train:evalmode", "interactive_task": False, "batchsize": 1}
            opt["num_examples"] = -1  # an evaluation of a few examples wants all candidates, too
            build_cands(opt)
            texts = sorted(read_candidates(f"{path}.tmp"))  # ParlAI writes them in the order of a hash table
            with open(f"{path}.tmp", "w", encoding="utf-8") as file:
                file.write("\n".join(texts))
            os.replace(f"{path}.tmp", path)
        return path

    def share(self) -> dict[str, Any]:
        """TorchRankerAgent's, and the cache: clones share the weights, so what goes stale for one does for all."""
        return super().share() | {"cache": self.cache, "fixed": self.fixed}

    # ---- training --------------------------------------------------------------------------------------------------

    def train_step(self, batch: Batch) -> Output | None:
        """TorchRankerAgent: one update (or one part of an accumulated one)."""
        if batch.text_vec is None:
            return None
        examples = distributed.gathered(len(batch.labels))
        self.model.train()
        self.cache.clear()  # these weights are about to change
        if self.fixed is not None:
            self.fixed.forget_vectors()
        self.zero_grad()
        candidates = self.training_candidates(batch)
        assert candidates.labels is not None
        labels, mask = candidates.labels.to(self.device), candidates.mask.to(self.device)
        scores, sides = self.training_scores(batch, candidates)
        losses = ranking_loss(scores * self.module.logit_scale, labels, mask)
        self._record("mean_loss", losses)
        if self.teacher is not None:
            losses = losses + self._distillation(batch, candidates, scores, labels, mask)
        self._report_failure(losses.detach(), batch)
        # The mean over all processes' examples, once their gradients are averaged.
        self.backward(losses.sum() * len(examples) / sum(examples))
        for side in sides:
            side.backward()
        self.update_params()
        is_label = torch.zeros_like(mask).scatter(1, labels.unsqueeze(1), True)
        ranks = label_ranks(scores.detach(), is_label, mask)
        self._record("train_accuracy", (ranks == 1).float())
        self._record("rank", ranks)
        self._record("mrr", ranks.float().reciprocal())
        return Output()

    def _distillation(
        self, batch: Batch, candidates: CandidateSet, scores: Tensor, labels: Tensor, mask: Tensor
    ) -> Tensor:
        """How far each example is from its teacher, [B]."""
        columns, counted = hardest(scores.detach(), labels, mask, self.opt["teacher_negatives"])
        given = []
        for example, row in enumerate(columns.tolist()):
            texts = candidates.of(example)
            given.append([texts[column] if column < len(texts) else "" for column in row])  # padding is not counted
        taught = teacher_scores(self.teacher, batch.contexts, given).to(scores.device)
        student = scores.gather(1, columns) * self.module.logit_scale
        losses = distillation_loss(student, taught, counted, self.opt["distillation_loss"])
        self._record("distillation_loss", losses)
        return losses

    def training_candidates(self, batch: Batch) -> CandidateSet:
        """What a training batch ranks. A list that a batch shares is shared by all processes."""
        source = self.candidates
        labels = self._labels(batch)
        assert labels is not None
        if source == "inline":
            return self.candidate_set(batch, source)
        if source == "fixed":
            assert self.fixed is not None
            return shared_set([*self.fixed_listed, *chain(distributed.gathered(labels))], labels)
        own = [] if source == "batch" else self._given_candidates(batch, source)
        all_labels, given = chain(distributed.gathered(labels)), chain(distributed.gathered(chain(own)))
        if source == "batch+inline":
            return shared_set_with_own(all_labels, own, given, labels)
        return shared_set([*given, *all_labels], labels)

    def training_scores(self, batch: Batch, candidates: CandidateSet) -> tuple[Tensor, list[GradientCache]]:
        """Scores [B, C], and what their backward pass goes on with."""
        contexts = self._batch_contexts(batch)
        module, distinct = self.module, list(dict.fromkeys(map(tuple, contexts)))
        context = self._deferred(
            module.context_part, module.join_context, module.context_encoder, self.tokens(distinct)
        )
        lengths = [len(ids) for ids in candidates.ids]
        # Inline lists differ between processes; a shared list is encoded by all together.
        mine = range(len(lengths)) if candidates.rows is not None else distributed.own_share(lengths)
        texts = self.tokens([candidates.ids[row] for row in mine])
        side = self._deferred(module.candidate_part, in_order, module.candidate_encoder, texts)
        if candidates.rows is not None:
            vectors = side.encoded[candidates.rows.to(self.device)]
        else:
            vectors = distributed.gathered_rows(side.encoded, lengths)
        encoded = context.encoded
        if len(distinct) < len(contexts):
            place = {ids: row for row, ids in enumerate(distinct)}
            encoded = module.rows_of(encoded, [place[tuple(ids)] for ids in contexts])
        return module.score(encoded, vectors), [side, context]

    def _deferred(self, encode: Any, join: Any, encoder: Encoder, tokens: Tokens) -> GradientCache:
        """Texts or pairs of a training batch, encoded."""
        size = self.opt.get("chunk_tokens")
        return GradientCache(encode, join, encoder.chunks(tokens, size), keep_graph=size is None)

    # ---- evaluation and chat ---------------------------------------------------------------------------------------

    def eval_step(self, batch: Batch) -> Output | None:
        """TorchRankerAgent: rank, reply, and measure where there are labels."""
        if batch.text_vec is None:
            return None
        self.model.eval()
        contexts = self._batch_contexts(batch)
        if self.eval_candidates == "fixed" and batch.labels is None:
            return self._fixed_reply(contexts)
        if self.eval_candidates == "fixed":
            scores, candidates, equal = self._fixed_scores(batch.labels, contexts)
        else:
            candidates = self.candidate_set(batch, self.eval_candidates)
            scores = self.candidate_scores(contexts, candidates).cpu()
            if candidates.labels is None:
                return self._reply(scores.numpy(), candidates, None)
            equal = equal_to_label(candidates, batch.labels, scores.size(1))
        self._record_metrics(scores, candidates, equal)
        return self._reply(scores.numpy(), candidates, equal.numpy())

    def candidate_scores(self, contexts: list[list[int]], candidates: CandidateSet) -> Tensor:
        """Scores [B, C] of a batch's own candidates, without gradient."""
        vectors = self.cache.vectors(candidates.ids)
        context = self.module.encode_context(self.tokens(contexts))
        if candidates.rows is None:
            return score_all(self.module.query(context), InMemoryVectors(vectors))
        scores: Tensor = self.module.score(context, vectors[candidates.rows.to(self.device)])
        return scores

    def _fixed_scores(self, labels: list[str], contexts: list[list[int]]) -> tuple[Tensor, CandidateSet, Tensor]:
        """Scores over the fixed set, and which candidates read as the label.

        A label that the set lacks is scored after it, for its own example alone.
        """
        assert self.fixed is not None
        scores, texts = self.fixed_scores(contexts).cpu(), self.fixed.texts
        size = scores.size(1)
        found = [self.fixed.find(label) for label in labels]
        columns = torch.tensor([size if place is None else place for place in found])
        missing = columns == size
        mask = torch.cat([torch.ones(scores.shape).bool(), missing.unsqueeze(1)], dim=1)
        equal = torch.zeros(mask.shape).bool()
        for example, label in enumerate(labels):
            equal[example, torch.from_numpy(self.fixed.reading_as(label))] = True
            equal[example, columns[example]] = True
        if not missing.any():
            return scores, CandidateSet([], None, mask[:, :size], texts, columns), equal[:, :size]
        # ParlAI says each text once, so it names no label: with articles as labels every batch would print one.
        warn_once("Labels that are not in the fixed candidates are ranked with them, each for its own example.")
        own = inline_set([[label] for label in self.as_candidates(labels)], None)
        scores = torch.cat([scores, self.candidate_scores(contexts, own).cpu()], dim=1)
        pairs = zip(labels, found, strict=True)
        lists = [WithLabel(texts, label) if place is None else texts for label, place in pairs]
        return scores, CandidateSet([], mask, mask, lists, columns), equal

    def fixed_scores(self, contexts: list[list[int]]) -> Tensor:
        """Scores [B, C] over the fixed candidates."""
        assert self.fixed is not None
        return score_all(self.query(contexts), self.fixed.encoded)

    def _fixed_reply(self, contexts: list[list[int]]) -> Output:
        """The best of the fixed candidates, without scoring all of them where that can be had.

        What was said in the conversation is left out, unless nothing else remains.
        """
        assert self.fixed is not None
        said = {place for line in self._said() if (place := self.fixed.find(line)) is not None}
        k = max(self._predictions(), 1)
        found, ranked, values = self.fixed_best(contexts, k + len(said)), [], []
        for indices, scores in zip(found.indices, found.scores, strict=True):
            fresh = [place for place, index in enumerate(indices) if index not in said] or range(len(indices))
            ranked.append([self.fixed.texts[int(indices[place])] for place in fresh[:k]])
            values.append([float(scores[place]) for place in fresh[:k]])
        return self._output(ranked, values)

    def fixed_best(self, contexts: list[list[int]], k: int) -> TopCandidates:
        """The k best fixed candidates of every context."""
        assert self.fixed is not None
        return search(self.query(contexts), self.fixed.encoded, k)

    def query(self, contexts: list[list[int]]) -> Query:
        """Token ids of B contexts -> what a large set of candidates is searched for."""
        query: Query = self.module.query(self.module.encode_context(self.tokens(contexts)))
        return query

    def maker(self, stored_as: str = "bf16") -> CandidateEncoder:
        """What the vectors of a candidate store are made with."""
        encode = functools.partial(self.encode_texts, low_precision=stored_as != "fp32")
        return CandidateEncoder(self.fingerprint(), encode, stored_as)

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str], low_precision: bool = False) -> Tensor:
        """Candidate texts -> vectors [C, D] fp32 on the CPU.

        Args:
            texts: C of them.
            low_precision: encode in bf16 where the machine is fast in it, whatever `--precision` says: right for
                vectors that are rounded to 8 bits anyway.
        """
        self.model.eval()
        low = low_precision and self.backbone_options.precision == "fp32" and (self.device.type != "cpu" or has_bf16())
        with torch.autocast(self.device.type, torch.bfloat16) if low else contextlib.nullcontext():
            return self._encode_ids([candidate.ids for candidate in self.as_candidates(texts)]).cpu()

    @torch.no_grad()
    def _encode_ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        vectors: Tensor = self.module.encode_candidates(self.tokens(ids))
        return vectors

    def fingerprint(self) -> str:
        """Of everything but the texts that decides a candidate's vector; not the precision, which only rounds it."""
        settings = [self.opt[key] for key in ("reduction_type", "similarity", "output_scaling")]
        settings += [self.opt["poly_n_codes"]] if self.opt["reduction_type"] == "first_m" else []
        settings.append(self.label_truncate)
        weights = self.module.candidate_encoder.state_dict()
        parts: list[Any] = [json.dumps(settings), self.dict.tokenizer.to_str()]
        return fingerprint(parts + [part for name in sorted(weights) for part in (name, weights[name])])

    def _record_metrics(self, scores: Tensor, candidates: CandidateSet, equal: Tensor) -> None:
        """ParlAI's report: loss, rank, mrr, and the hits@k that its teachers do not count already."""
        assert candidates.labels is not None
        real = candidates.real(scores.size(1))
        counted = (real & ~equal).scatter(1, candidates.labels.unsqueeze(1), True)
        loss = ranking_loss(scores * self.module.logit_scale, candidates.labels, counted)
        ranks = label_ranks(scores, equal, real)
        self._record("loss", loss)
        self._record("rank", ranks)
        self._record("mrr", ranks.float().reciprocal())
        for k in self.recall_at:
            if k not in TEACHER_RECALL_AT:
                self._record(f"hits@{k}", (ranks <= k).float())

    def _record(self, name: str, values: Tensor) -> None:
        self.record_local_metric(name, AverageMetric.many(values.tolist()))

    def _predictions(self) -> int:
        """How many ranked texts a reply brings along."""
        return int(self.rank_top_k if self.rank_top_k > 0 else self.opt["cap_num_predictions"])

    def _reply(self, scores: np.ndarray, candidates: CandidateSet, equal: np.ndarray | None) -> Output:
        """The best texts of every example, highest score first; a label comes after what ties with it."""
        k = self._predictions()
        if equal is not None:
            k = max(k, max(TEACHER_RECALL_AT))  # ParlAI's teachers count their hits in this list
        ranked, values = [], []
        for example, row in enumerate(scores):
            texts = candidates.of(example)
            row = row[: len(texts)]
            wanted = None if equal is None else equal[example, : len(texts)]
            index = top_k(row, max(k, 1), wanted)
            ranked.append([texts[i] for i in index])
            values.append([float(row[i]) for i in index])
        return self._output(ranked, values)

    def _output(self, ranked: list[list[str]], values: list[list[float]]) -> Output:
        """Ranked texts and their scores -> ParlAI's reply."""
        if self.opt.get("inference", "max") == "topk":
            chosen = [random.choice(texts[: self.opt["topk"]]) for texts in ranked]
        else:
            chosen = [texts[0] for texts in ranked]
        if not self.opt.get("return_cand_scores"):
            return Output(chosen, ranked)
        # The second field is for people: `interactive --return-cand-scores true --display-add-fields top_replies`.
        lines = [
            [f"{score:9.4f}  {text}" for text, score in zip(texts, row, strict=True)]
            for texts, row in zip(ranked, values, strict=True)
        ]
        return Output(chosen, ranked, sorted_scores=values, top_replies=lines)

    def _said(self) -> set[str]:
        """Lines of the conversation so far, which a chat leaves out unless nothing else remains."""
        if not self.opt.get("repeat_blocking_heuristic", True):
            return set()
        return {line for text in self.history.history_raw_strings for line in text.split("\n")}

    # TorchRankerAgent is abstract here; its train_step and eval_step, which call it, are replaced above.
    def score_candidates(self, batch: Batch, cand_vecs: Any, cand_encs: Any = None) -> Any:
        """Not used: see `training_scores` and `candidate_scores`."""
        raise AssertionError("train_step and eval_step score for themselves")


class BiEncoderAgent(RankerAgent):
    """`-m polyagents:BiEncoder`."""

    architecture = "BiEncoder"

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """The flags of two encoders; negatives are the other labels of the batch (paper 4.2)."""
        super().add_cmdline_args(parser, partial_opt=partial_opt)
        flags.add_tower_flags(parser)
        parser.set_defaults(candidates="batch", warmup_updates=100)
        if is_training_command(partial_opt):  # ParlAI's own default is 1, and a chat needs that
            parser.set_defaults(batchsize=64)
        return parser

    def build_architecture(self, encoder: Encoder) -> nn.Module:
        """A bi-encoder."""
        return BiEncoder(encoder, flags.read_reduction(self.opt), flags.read_towers(self.opt))


class PolyEncoderAgent(BiEncoderAgent):
    """`-m polyagents:PolyEncoder`."""

    architecture = "PolyEncoder"

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """The bi-encoder's flags and those of the context vectors."""
        super().add_cmdline_args(parser, partial_opt=partial_opt)
        flags.add_poly_flags(parser)
        return parser

    def build_architecture(self, encoder: Encoder) -> nn.Module:
        """A poly-encoder."""
        poly = flags.read_poly(self.opt)
        return PolyEncoder(encoder, flags.read_reduction(self.opt), flags.read_towers(self.opt), poly)


class CrossEncoderAgent(RankerAgent):
    """`-m polyagents:CrossEncoder`."""

    architecture = "CrossEncoder"

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """Negatives are the task's own, or random training labels (paper 5.1)."""
        super().add_cmdline_args(parser, partial_opt=partial_opt)
        flags.add_cross_flags(parser)
        parser.set_defaults(candidates="inline", warmup_updates=1000)
        if is_training_command(partial_opt):
            parser.set_defaults(batchsize=16)
        return parser

    def build_architecture(self, encoder: Encoder) -> nn.Module:
        """A cross-encoder."""
        return CrossEncoder(encoder, flags.read_reduction(self.opt))

    def longest_input(self) -> int:
        """A pair holds both texts."""
        return (self.text_truncate or 0) + (self.label_truncate or 0)

    def training_candidates(self, batch: Batch) -> CandidateSet:
        """The task's candidates; without any, random labels of the training set (those seen so far)."""
        if self.candidates != "inline" or batch.candidate_vecs is not None:
            return super().training_candidates(batch)
        self._remember_labels(batch.labels)
        given = []
        for label in batch.labels:
            # Twice as many as needed: the pool holds repeated labels, and this one.
            drawn = self.random.sample(self.label_pool, min(len(self.label_pool), 2 * self.negatives))
            others = [text for text in dict.fromkeys(drawn) if text != label]
            given.append(self.as_candidates(others[: self.negatives]))
        return inline_set(given, self.as_candidates(batch.labels))

    @property
    def negatives(self) -> int:
        """How many random negatives an example gets."""
        return int(self.opt["cross_negatives"])

    def _remember_labels(self, labels: list[str]) -> None:
        """An even sample of all labels seen (Vitter's algorithm R): a streamed task needs no pass of its own."""
        for label in labels:
            self.labels_seen += 1
            if len(self.label_pool) < POOL_LIMIT:
                self.label_pool.append(label)
            elif (slot := self.random.randrange(self.labels_seen)) < POOL_LIMIT:
                self.label_pool[slot] = label

    def training_scores(self, batch: Batch, candidates: CandidateSet) -> tuple[Tensor, list[GradientCache]]:
        """Scores [B, C], and what their backward pass goes on with; what does not count is not scored."""
        pairs = self._pairs(self._batch_contexts(batch), candidates, candidates.mask)
        tokens = pad_pairs(pairs, self.dict.pad_id).to(self.device)
        scored = self._deferred(self.module.score_part, in_order, self.module.encoder, tokens)
        return self._in_place(scored.encoded, candidates.mask), [scored]

    def candidate_scores(self, contexts: list[list[int]], candidates: CandidateSet) -> Tensor:
        """Scores [B, C] of a batch's own candidates, without gradient."""
        return self._pair_scores(contexts, candidates)

    def _pair_scores(self, contexts: list[list[int]], candidates: CandidateSet) -> Tensor:
        width = candidates.mask.size(1)
        real = candidates.real(width).expand(len(contexts), width)  # a shared list without labels has one row
        pairs = self._pairs(contexts, candidates, real)
        parts = [
            self.module.score(pad_pairs(pairs[start : start + PAIRS_AT_ONCE], self.dict.pad_id).to(self.device))
            for start in range(0, len(pairs), PAIRS_AT_ONCE)
        ]
        return self._in_place(torch.cat(parts), real)

    @staticmethod
    def _pairs(contexts: list[list[int]], candidates: CandidateSet, wanted: Tensor) -> list[tuple[Any, Any]]:
        """Token ids of the pairs that `wanted` [B, C] names, row by row."""
        rows = candidates.rows
        return [(contexts[b], candidates.ids[c if rows is None else rows[b, c]]) for b, c in wanted.nonzero().tolist()]

    def _in_place(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Scores of the pairs that were wanted -> [B, C], 0 elsewhere."""
        return torch.zeros(wanted.shape, device=self.device).masked_scatter(wanted.to(self.device), scores)

    def encode_fixed(self) -> None:
        """Nothing can be kept: every candidate goes through the encoder with every context (paper 4.3)."""

    def fixed_scores(self, contexts: list[list[int]]) -> Tensor:
        """Scores [B, C] over the fixed candidates."""
        assert self.fixed is not None
        given = self.fixed_listed
        shared = shared_set(given, None)  # what has the same token ids is scored once, and keeps its place each
        return self._pair_scores(contexts, shared)[:, columns_of(given, shared)]

    def fixed_best(self, contexts: list[list[int]], k: int) -> TopCandidates:
        """The k best fixed candidates of every context."""
        return TopCandidates.of(self.fixed_scores(contexts).cpu().numpy(), k)


def chain(parts: Iterable[Iterable[Any]]) -> list[Any]:
    """Several lists, one after the other."""
    return list(itertools.chain.from_iterable(parts))
