"""The rankers on ParlAI's TorchRankerAgent: ParlAI's messages in, the model's ranking out.

observe -> token ids, examples (observing_agent.py) -> candidates (training/candidate_sources.py, fixed_candidates.py)
-> scores of the model (ranking/) -> a reply and its metrics (replies.py).
"""

import functools
from typing import Any
from unittest import mock

import torch
from parlai.core import torch_ranker_agent
from parlai.core.metrics import SumMetric
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.torch_agent import Batch, Output
from parlai.utils.misc import warn_once

from polyagents.errors import InputError
from polyagents.evaluation.judged import judge
from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.engines.urls import open_engine
from polyagents.index.interface import Index
from polyagents.index.store import candidates_of_file
from polyagents.models.architecture import find
from polyagents.parlai_agents import flags
from polyagents.parlai_agents.base_agent import is_training_command
from polyagents.parlai_agents.fixed_candidates import FixedCandidates, located
from polyagents.parlai_agents.model_agent import ModelAgent
from polyagents.parlai_agents.observing_agent import ObservingAgent
from polyagents.parlai_agents.replies import Metrics, Replies, evaluation_metrics
from polyagents.parlai_patches.late_metrics import each_of
from polyagents.parlai_patches.task_messages import task_messages, write_task_candidates
from polyagents.parlai_patches.train_loop import is_training_run
from polyagents.ranking.two_tower_model import two_towers
from polyagents.surroundings import learning
from polyagents.training import distributed
from polyagents.training.candidate_sources import EncodedExamples, TrainingCandidates, evaluation_candidates
from polyagents.training.late_values import LateValues
from polyagents.training.objective import BatchLoss, Objective, training_scores
from polyagents.training.optimising import refused_where_damaged
from polyagents.training_loop.starting_model import begin
from polyagents.training_loop.training_files import drawing_state, restore_draws

EMPTY_BATCHES = 1000  # in a row, of all processes: a training set without labels would never end with `--num-workers`


class RankerAgent(ModelAgent, ObservingAgent):
    """A ranker of any architecture, which a subclass names.

    Attributes:
        empty_batches: training batches since the last one with an example.
        last_values: of the last training batch, for a progress bar.
        fixed: the candidates of `--fixed-candidates-path` or `--index-url`; None if there are none.
        judges: whether a reply to an example with labels brings its ranked candidates, a `Judged`, as `judged`.
    """

    fixed_candidates_path: str
    fixed: FixedCandidates | None
    judges: bool = False
    empty_batches: int = 0
    last_values = LateValues({})  # replaced, never changed

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """Add the flags of TorchRankerAgent and of the architecture, with the paper's settings as defaults (5.1)."""
        super().add_cmdline_args(parser, partial_opt=partial_opt)
        flags.add_ranker_flags(parser, find(cls.architecture), is_training_command(partial_opt))
        return parser

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        self.parlai_model = self._decide_start(opt) if shared is None else None
        self.recall_at = flags.read_recall_at(opt)
        training = is_training_run(opt)
        self.phase = {"training": training} if shared is None else shared["phase"]
        if shared is not None:
            self.ranking = shared["ranking"]
        # ParlAI would wrap the model in DistributedDataParallel; the gradients are averaged by us (distributed.py).
        with mock.patch.object(torch_ranker_agent, "is_distributed", lambda: False):
            super().__init__(opt, shared)
        self.replies = Replies(self.opt, self.rank_top_k)
        if shared is None:
            taught = begin(self.ranking, self.opt, self.opt.get("datapath")) if training else None
            self.objective = Objective(self.ranking, taught)
            self.training_candidates = TrainingCandidates(
                self.ranking, self.random, self.opt.get("cross_negatives"), origin(self.opt), self._task_has_candidates
            )
            if training:
                self.begin_run()
                if self.resumed is not None:
                    with refused_where_damaged("What the checkpoint draws from"):
                        restore_draws(self.resumed, self.training_candidates, distributed.process_number())

    def state_dict(self) -> dict[str, Any]:
        """Return BaseAgent's state, and the random states for a resumed run."""
        return super().state_dict() | {"draws": drawing_state(self.training_candidates)}

    # ---- fixed candidates ------------------------------------------------------------------------------------------

    def set_vocab_candidates(self, shared: dict[str, Any] | None) -> None:
        """Set TorchRankerAgent's word candidates to None: flags.py refuses them, but share() needs the names."""
        self.vocab_candidates = self.vocab_candidate_vecs = self.vocab_candidate_encs = None

    def set_fixed_candidates(self, shared: dict[str, Any] | None) -> None:
        """TorchRankerAgent: set the candidates of `--fixed-candidates-path`, or all of the task."""
        # TorchRankerAgent.share() needs these names; they hold nothing.
        self.fixed_candidates = self.fixed_candidate_vecs = self.fixed_candidate_encs = None
        self.num_fixed_candidates = 0
        self.fixed = None if shared is None else shared["fixed"]
        # Only from the command line: a stranger's model file could make us contact the stranger's server.
        index_url = self.opt.get("override", {}).get("index_url")
        if shared is None and index_url is not None:
            if is_training_run(self.opt) or self.eval_candidates != "fixed" or self.opt.get("fixed_candidates_path"):
                raise InputError("--index-url is for a chat, without --fixed-candidates-path.")
            self.fixed = FixedCandidates(index_url, self.ranking, self._open_engine)
            _ = self.fixed.index  # errors are reported now
        elif shared is None and "fixed" in (self.candidates, self.eval_candidates):
            path = self.fixed_candidates_path or self.get_task_candidates_path()
            self.fixed_candidates_path = located(path, self.opt.get("datapath"))
            self.fixed = FixedCandidates(self.fixed_candidates_path, self.ranking, self._index_file)
            # Errors in the file are reported now, and the first message of a chat does not have to wait.
            _ = self.fixed.listed if is_training_run(self.opt) else self.fixed.index

    def _index_file(self, path: str) -> Index:
        """Encode a file's candidates; the vectors are stored next to the model file if the weights no longer change."""
        model_file = None if is_training_run(self.opt) else self.opt.get("model_file")
        return candidates_of_file(path, self.ranking, model_file)

    def _open_engine(self, url: str) -> Index:
        """Open the candidates of --index-url."""
        joint = f"--index-url holds vectors, and a {self.ranking.label} has none; give --fixed-candidates-path."
        model = two_towers(self.ranking, joint)
        return EngineCandidates.open(open_engine(url), model.fingerprint())

    def get_task_candidates_path(self) -> str:
        """TorchRankerAgent: return the list of all candidates of the task, next to the model file."""
        if not self.opt.get("model_file"):
            raise InputError("Fixed candidates need --fixed-candidates-path, a text file with one candidate per line.")
        return write_task_candidates(self.opt)

    def share(self) -> dict[str, Any]:
        """Return ObservingAgent's shared state, and the fixed candidates: they become stale for all clones together."""
        return dict(super().share()) | {"fixed": self.fixed}

    # ---- training --------------------------------------------------------------------------------------------------

    @learning()
    def train_step(self, batch: Batch) -> Output | None:
        """TorchRankerAgent: do one update (or one part of an accumulated one).

        A process whose own batch is empty takes part all the same: the others wait for its share of the work.
        """
        examples: EncodedExamples = batch.examples
        self._count_missing(batch, examples.without_own if self.candidates == "inline" else 0)
        counts = distributed.gathered(len(examples))
        self.empty_batches = 0 if sum(counts) else self.empty_batches + 1
        if self.empty_batches == EMPTY_BATCHES:
            raise InputError(f"{self.empty_batches:,} batches of {origin(self.opt)} have no example with a label.")
        if not sum(counts):
            return None
        self.model.train()
        self.zero_grad()
        loss = self._training_losses(examples)
        accumulated = self.opt.get("update_freq", 1)
        self._number_grad_accum = (self._number_grad_accum + 1) % accumulated
        loss.backward(counts, self.scaler, accumulated)
        self.update_params()
        return Output()

    def _task_has_candidates(self) -> bool:
        """Return whether any training example of the task has candidates."""
        opt = Opt(self.opt | {"datatype": "train:ordered", "num_workers": 0})
        return any(message.get("label_candidates") for message in task_messages(opt))

    def _count_missing(self, batch: Batch, without_own: int) -> None:
        """Count examples without a label, and those that lack candidates of their own, in ParlAI's report."""
        for name, count in (("no_label", batch.unlabelled), ("no_candidates", without_own)):
            if count:
                self.global_metrics.add(name, SumMetric(count))
        if batch.unlabelled and not self.opt.get("interactive_mode"):
            warn_once(f"{origin(self.opt)} has examples without a label: they are skipped.")

    def _training_losses(self, examples: EncodedExamples) -> BatchLoss:
        """Compute the losses of this process's examples."""
        if not len(examples) and self.candidates == "inline":  # nothing is shared with other processes
            return BatchLoss(torch.zeros(0, device=self.device), [], LateValues({}))
        fixed = self.fixed.candidates if self.fixed is not None and self.candidates == "fixed" else None
        candidates = self.training_candidates.of(self.candidates, examples, fixed)
        scored = training_scores(self.ranking, examples.contexts, candidates, self.opt.get("chunk_tokens"))
        loss = self.objective.of(scored, examples, candidates)
        self._record(each_of(loss.values, len(examples)))
        self.last_values = loss.values
        self.watch.saw_batch(self._number_training_updates + 1, loss.losses, examples)
        return loss

    # ---- evaluation and chat ---------------------------------------------------------------------------------------

    def eval_step(self, batch: Batch) -> Output | None:
        """TorchRankerAgent: rank, reply, and measure if there are labels."""
        examples: EncodedExamples = batch.examples
        without_own = examples.without_own if self.eval_candidates == "inline" else 0
        self._count_missing(batch, without_own)
        if without_own:
            warn_once(f"{origin(self.opt)} has examples without candidates: they rank the labels of their batch.")
        if not len(examples):
            return None
        self.model.eval()
        if self.eval_candidates != "fixed":
            flag = "interactive-candidates" if self.opt.get("interactive_mode") else "eval-candidates"
            candidates = evaluation_candidates(self.eval_candidates, examples, flag, origin(self.opt))
            scores = self.ranking.scores(examples.contexts, candidates).cpu()
        else:
            assert self.fixed is not None
            if not examples.labelled:
                return self.replies.of_fixed(self.fixed, examples.contexts, self._said())
            scores, candidates = self.fixed.scores_with_labels(examples.contexts, examples.labels)
        if candidates.labels is not None:
            self._record(evaluation_metrics(scores, candidates, self.ranking.module.logit_scale, self.recall_at))
        output = self.replies.of_scores(scores.numpy(), candidates)
        if self.judges and candidates.labels is not None:
            output["judged"] = judge(scores.numpy(), candidates, examples.labels)
        return output

    def receive_metrics(self, metrics_dict: dict[str, Any]) -> None:
        """TorchAgent: let the learning rate follow a validation; refuse one without any label."""
        if "loss" not in metrics_dict:
            raise InputError(f"The validation examples of {origin(self.opt)} have no label; give others, or -veps -1.")
        super().receive_metrics(metrics_dict)

    def _record(self, metrics: Metrics) -> None:
        for name, values in metrics.items():
            self.record_local_metric(name, values)

    def _said(self) -> set[str]:
        """Return the lines of the conversation so far, which a chat does not repeat unless nothing else remains."""
        if not self.opt.get("repeat_blocking_heuristic", True):
            return set()
        return {line for text in self.history.history_raw_strings for line in text.split("\n")}

    # TorchRankerAgent is abstract here; its train_step and eval_step, which call it, are replaced above.
    def score_candidates(self, batch: Batch, cand_vecs: Any, cand_encs: Any = None) -> Any:
        """Not used: the model scores in `train_step` and `eval_step`."""
        raise AssertionError("train_step and eval_step score for themselves")


def origin(opt: Opt) -> str:
    """Describe where an agent's examples come from, for messages."""
    return f"--task {opt.get('task')}"


@functools.cache
def agent_class(architecture: str) -> type[RankerAgent]:
    """Return the agent of an architecture: `polyagents:<architecture>` in ParlAI's commands."""
    return type(
        architecture,
        (RankerAgent,),
        {"architecture": architecture, "__module__": __name__, "__doc__": f"`-m polyagents:{architecture}`."},
    )
