"""The Python API: load a trained model, rank your candidates, get scores."""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch

from polyagents.backends.loading import TORCH, refuse_precision, use_backend
from polyagents.errors import InputError
from polyagents.index.approximate import search_shortlist
from polyagents.index.builder import ALONE, CandidateEncoder, Cluster, Worker
from polyagents.index.engines.candidates import BestCandidates, EngineCandidates
from polyagents.index.engines.urls import open_engine
from polyagents.index.exact import search
from polyagents.index.faiss_index import Description, build_shortlist, open_shortlist, sample_of
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.store import CandidateStore
from polyagents.index.texts import FileTexts, ListedTexts, Texts
from polyagents.index.top_k import top_k as best
from polyagents.models.query import Query, stack_queries
from polyagents.options import fields_of
from polyagents.ranking.candidate_set import columns_of, shared_set
from polyagents.ranking.loading import architecture_of, load_model
from polyagents.ranking.option_groups import option_groups
from polyagents.ranking.ranking_model import RankingModel
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.zoo.resolve import zoo_file

Encoded = CandidateStore | InMemoryCandidates | EngineCandidates
"""Candidates that were encoded before: what `index`, `open_index`, `open_engine` and `prepare` return."""

Candidates = Sequence[str] | Encoded
"""What can be ranked: texts, or encoded candidates."""

# Options that decide how a model is trained or which weights it has: another value afterwards would change nothing, or
# put one encoder's weights in the place of the other's.
ONLY_IN_TRAINING = {"backbone", "vocabulary", "train_layers", "codes_init", "share_encoders"}
CONTEXTS_AT_ONCE = 64  # chosen here: enough to fill the encoder, little enough to keep [B, C] scores small


@dataclass(frozen=True)
class Match:
    """One ranked candidate.

    Attributes:
        index: its place in the list or index that was ranked; its id, where an engine was.
        text: the candidate.
        score: fp32; an unbounded dot product, or a cosine where the model was trained with `--similarity cosine`.
    """

    index: int
    text: str
    score: float


class Ranker:
    """A trained bi-, poly-, uni- or cross-encoder.

    >>> ranker = Ranker.load("M")
    >>> ranker.rank("where is canada", ["i am here", "canada is in north america"], top_k=1)
    [Match(index=1, text='canada is in north america', score=...)]

    A context is one string; its turns (persona lines first) are divided by line ends, as in ParlAI. The class is long
    because it is the whole public interface: a few lines of code for each call, and what a user must know of it.

    Attributes:
        model: the model, with its tokenizer and its options.
    """

    def __init__(self, model: RankingModel):
        self.model = model
        model.module.eval()

    @classmethod
    def load(
        cls,
        model_file: str | os.PathLike[str],
        no_cuda: bool = False,
        gpu: int = -1,
        datapath: str | None = None,
        backend: str = TORCH,
        **overrides: Any,
    ) -> "Ranker":
        """Load a model file that `parlai train_model` wrote, with our agents or with ParlAI's own.

        Args:
            model_file: its path; `model_file.opt` and `model_file.dict` lie beside it. Or its name in the zoo, such as
                "zoo:pretrained_transformers/model_poly/model", which is downloaded at first use.
            no_cuda: use the CPU, also where there is a GPU.
            gpu: which GPU; -1 is the current one.
            datapath: where downloads are kept; by default where ParlAI keeps them.
            backend: what computes the encoders: "torch"; or "onnx" or "openvino", on the CPU, from what `polyagents
                export` has written beside the model file.
            overrides: the model's options with other values, such as precision="bf16" or text_truncate=128.

        Raises:
            InputError: there is no such file, or it was not trained with polyagents; nothing was exported for the
                backend, or other weights.
        """
        file = zoo_file(os.fspath(model_file), datapath)
        possible = {field.name for group in option_groups(architecture_of(file)) for field in fields_of(group)}
        possible -= ONLY_IN_TRAINING
        if unknown := overrides.keys() - possible:
            raise InputError(
                f"{', '.join(sorted(unknown))}: no option of this model; there are {', '.join(sorted(possible))}."
            )
        refuse_precision(backend, overrides.get("precision", "fp32"))
        model = load_model(file, device(no_cuda or backend != TORCH, gpu), overrides)
        use_backend(model, file, backend)
        return cls(model)

    # ---- scores ----------------------------------------------------------------------------------------------------

    def score(self, contexts: str | Sequence[str], candidates: Sequence[str]) -> np.ndarray:
        """Scores of every context with every candidate.

        Args:
            contexts: B contexts, or one.
            candidates: C texts.

        Returns:
            fp32 [B, C], or [C] for one context.
        """
        single = isinstance(contexts, str)
        texts = [contexts] if isinstance(contexts, str) else list(contexts)
        candidates = list(candidates)
        if not texts or not candidates:
            empty = np.zeros((len(texts), len(candidates)), np.float32)
            return empty[0] if single else empty
        scores = np.concatenate(list(self._score_blocks(texts, candidates)))
        return scores[0] if single else scores

    def _score_blocks(self, contexts: Sequence[str], candidates: Sequence[str]) -> Iterator[np.ndarray]:
        """Scores [b, C] of some contexts after the other; the candidates are read and encoded once."""
        given = self.model.candidates(candidates)
        shared = shared_set(given, None)  # equal texts are encoded once and keep their place each
        columns = columns_of(given, shared)
        for block in in_blocks(contexts):
            yield self.model.scores([self.model.context_ids(text) for text in block], shared).cpu().numpy()[:, columns]

    @overload  # a str is a Sequence[str], too; the first that fits is meant
    def rank(  # type: ignore[overload-overlap]
        self, contexts: str, candidates: Candidates, top_k: int = 10
    ) -> list[Match]: ...

    @overload
    def rank(self, contexts: Sequence[str], candidates: Candidates, top_k: int = 10) -> list[list[Match]]: ...

    def rank(
        self, contexts: str | Sequence[str], candidates: Candidates, top_k: int = 10
    ) -> list[Match] | list[list[Match]]:
        """The best candidates, highest score first; among equals the lower index.

        Args:
            contexts: one context, or several.
            candidates: texts, or what `index`, `open_index`, `open_engine` or `prepare` returned.
            top_k: how many, at most.

        Returns:
            A list of matches for one context, a list of such lists for several.
        """
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be 1 or more.")
        if isinstance(contexts, str):
            return self.rank([contexts], candidates, top_k)[0]
        if isinstance(candidates, Encoded):
            blocks = in_blocks(contexts)
            return [matches for block in blocks for matches in self.search(block, candidates, top_k)[0]]
        texts = list(candidates)
        ranked: list[list[Match]] = [[] for _ in contexts]
        if not texts:
            return ranked
        return [
            [Match(int(i), texts[i], float(row[i])) for i in best(row, top_k)]
            for scores in self._score_blocks(contexts, texts)
            for row in scores
        ]

    def search(self, contexts: Sequence[str], index: Encoded, top_k: int = 10) -> tuple[list[list[Match]], list[bool]]:
        """`rank` over encoded candidates, and how sure the answers are.

        Returns:
            The matches of each context, and whether they are complete: always so for exact search; for an approximate
            one, whether its stop rule held (index/approximate.py).

        Raises:
            EngineError: an engine does not answer.
        """
        query = self.query(contexts)
        if isinstance(index, EngineCandidates):
            rows, complete = index.search(query, top_k)
        else:
            if isinstance(index, CandidateStore) and index.shortlist is not None:
                found, complete = search_shortlist(query, index.shortlist, index, top_k)
            else:
                found, complete = search(query, index, top_k), [True] * len(contexts)
            best = zip(found.indices, found.scores, strict=True)
            rows = [BestCandidates(indices, scores, index.texts_of(indices)) for indices, scores in best]
        matches = [
            [
                Match(int(i), text, float(score))
                for i, score, text in zip(*row, strict=True)
                if text  # none, of a candidate that was removed from an engine in the meantime
            ]
            for row in rows
        ]
        return matches, complete

    def query(self, contexts: Sequence[str]) -> Query:
        """B contexts, encoded, as a search takes them."""
        model = self._two_towers()
        return model.query([model.context_ids(text) for text in contexts])

    def rerank(self, context: str, matches: Sequence[Match], top_k: int = 10) -> list[Match]:
        """Matches of another ranker, in the order of this one: a uni- or cross-encoder after a fast one's shortlist.

        Args:
            context: what they were ranked for.
            matches: the shortlist; places and texts are kept, scores are this ranker's.
            top_k: how many to return, at most.
        """
        ranked = self.rank(context, [match.text for match in matches], top_k)
        return [Match(matches[match.index].index, match.text, match.score) for match in ranked]

    # ---- fixed candidates ------------------------------------------------------------------------------------------

    def prepare(self, candidates: Sequence[str]) -> InMemoryCandidates | list[str]:
        """Candidates to rank for many contexts: encoded once, in memory; as they are for a uni- or cross-encoder."""
        if not candidates:
            raise InputError("There are no candidates to prepare; give at least one text.")
        if not isinstance(self.model, TwoTowerModel):
            return list(candidates)
        return InMemoryCandidates.encode(list(candidates), self.model.encode_texts)

    def index(
        self,
        candidates_file: str | os.PathLike[str],
        index_dir: str | os.PathLike[str],
        stored_as: str = "bf16",
        worker: Worker = ALONE,
        cluster: Cluster | None = None,
    ) -> CandidateStore:
        """The candidates of a text file, one per line, encoded once.

        The index in `index_dir` is reused if this model made it from the same file, else built and written there; a
        build that was stopped is resumed.

        Args:
            candidates_file: UTF-8, one candidate per line; blank lines and repetitions are left out.
            index_dir: a folder, made where it is missing.
            stored_as: bf16; fp32, twice as large; or int8, half as large, with scores that are off by about 1 %.
            worker: this process's part, where several build together.
            cluster: machines that encode in place of this one (ray_cluster.py); they see the same files.
        """
        file, folder = os.fspath(candidates_file), os.fspath(index_dir)
        store = CandidateStore.build(file, folder, CandidateEncoder.of(self._two_towers(), stored_as), worker, cluster)
        with contextlib.suppress(InputError):  # a damaged one is named by open_index, and patched by approximate
            store.shortlist = open_shortlist(store)
        return store

    def open_index(self, index_dir: str | os.PathLike[str], exact: bool = False) -> CandidateStore:
        """An index that `index` wrote, without its text file.

        Args:
            index_dir: its folder.
            exact: search exactly, also where an approximate index is there.
        """
        store = CandidateStore.open(os.fspath(index_dir), self._two_towers().fingerprint())
        store.shortlist = None if exact else open_shortlist(store)
        return store

    @overload
    def append(self, index: CandidateStore, candidates: Sequence[str] | FileTexts) -> CandidateStore: ...

    @overload
    def append(self, index: EngineCandidates, candidates: Sequence[str] | FileTexts) -> EngineCandidates: ...

    def append(
        self, index: CandidateStore | EngineCandidates, candidates: Sequence[str] | FileTexts
    ) -> CandidateStore | EngineCandidates:
        """The index with more candidates, at its end or in its engine; those that it has already are left out."""
        texts = distinct(candidates)
        if isinstance(index, EngineCandidates):
            index.add(texts, self._two_towers().encode_texts)
            return index
        return index.append(texts, CandidateEncoder.of(self._two_towers(), index.manifest.stored_as).encode)

    # ---- candidates in an engine -----------------------------------------------------------------------------------

    def open_engine(self, url: str) -> EngineCandidates:
        """The candidates that a name in a vector database stands for.

        Args:
            url: such as "milvus://host:19530/replies" or "postgresql://host/database/replies"; docs/scale.md has all.

        Raises:
            InputError: there are none, another model encoded them, or nobody answers.
        """
        model = self._two_towers()
        return EngineCandidates.open(open_engine(url), model.fingerprint())

    def index_in_engine(
        self,
        candidates: Sequence[str] | FileTexts,
        url: str,
        index_type: str = "hnsw",
        worker: Worker = ALONE,
        cluster: Cluster | None = None,
    ) -> EngineCandidates:
        """Candidates, encoded into a vector database under a name, beside those that are there.

        A build that was stopped is resumed, and another model's candidates of the same name are searched until its end.

        Args:
            candidates: texts.
            url: as for `open_engine`.
            index_type: hnsw, or exact where the engine is to compare with every vector.
            worker: this process's part, where several build together.
            cluster: machines that encode in place of this one (ray_cluster.py).

        Raises:
            InputError: the engine refuses, or does not answer.
        """
        texts = distinct(candidates)
        model, engine = self._two_towers(), open_engine(url, make=True)
        width = model.encode_texts(texts.part(0, 1)).size(1)
        made_by = model.fingerprint()
        return EngineCandidates.build(engine, made_by, width, texts, model.encode_texts, index_type, worker, cluster)

    def approximate(self, index: CandidateStore, index_type: str, contexts: Sequence[str] | None = None) -> Description:
        """Build a FAISS index over a candidate index, which `rank` uses from then on; what it finds is told.

        Args:
            index: all of its candidates are indexed; it stays as it is, for exact search.
            index_type: hnsw or ivfpq.
            contexts: what recall is measured with; by default candidates stand in for them.
        """
        asked = list(contexts or sample_of(index, 200))
        parts = [self.query(block) for block in in_blocks(asked)]
        return build_shortlist(index, index_type, stack_queries(parts))

    def _two_towers(self) -> TwoTowerModel:
        """The model, if candidates can be encoded ahead of the context.

        Raises:
            InputError: they cannot.
        """
        if not isinstance(self.model, TwoTowerModel):
            raise InputError(
                f"A {self.model.label} cannot encode candidates ahead of the context; index them with a bi- or "
                f"poly-encoder."
            )
        return self.model


def device(no_cuda: bool, gpu: int) -> torch.device:
    """The GPU, if there is one and it is wanted; else the CPU."""
    if no_cuda or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", gpu) if gpu >= 0 else torch.device("cuda")


def distinct(candidates: Sequence[str] | FileTexts) -> Texts:
    """Candidates, each once: those of a file are already."""
    return candidates if isinstance(candidates, FileTexts) else ListedTexts(candidates)


def in_blocks(contexts: Sequence[str]) -> Iterator[Sequence[str]]:
    """A long list in blocks that fit the memory."""
    for start in range(0, len(contexts), CONTEXTS_AT_ONCE):
        yield contexts[start : start + CONTEXTS_AT_ONCE]


def reply_seconds(ranker: Ranker, contexts: Sequence[str], candidates: Candidates) -> float:
    """The median time of a reply: one context after the other, their best candidate."""
    return median_seconds(lambda context: ranker.rank(context, candidates, top_k=1), contexts)


def median_seconds(reply: Callable[[str], Any], contexts: Sequence[str]) -> float:
    """The median time of what is done for one context after the other."""
    seconds = []
    for context in contexts:
        begin = time.perf_counter()
        reply(context)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
