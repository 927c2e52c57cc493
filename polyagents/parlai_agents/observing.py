"""Batches of token ids from ParlAI's observations: [S] context [S], and every candidate between its [S]."""

from collections.abc import Sequence
from typing import Any

import torch
from parlai.core.torch_agent import Batch
from parlai.core.torch_ranker_agent import TorchRankerAgent
from torch import Tensor

from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.parlai_agents.ranking_examples import examples_of
from polyagents.ranking.ranking_model import RankingModel

Phase = dict[str, bool]
OWN_CANDIDATES = ("inline", "batch-all-cands", "batch+inline")  # sources that read the candidates of an example


class ObservingAgent(TorchRankerAgent):
    """Turns observations into batches for a ranker.

    Attributes:
        ranking: the model, with its tokenizer and its options.
        dict: its tokenizer, as ParlAI asks for it.
        phase: whether the previous batch was trained on, under "training"; all clones share it.
    """

    ranking: RankingModel
    dict: TextDictionary
    phase: Phase

    def _set_text_vec(self, obs: Any, history: Any, truncate: int | None) -> Any:
        """TorchAgent: set the context's ids, between its [S], from the history, whose turns are tokenised once."""
        ids = history.get_history_vec()
        if obs.get("text") is None or ids is None:
            return obs
        tokenizer = self.dict.ready
        context, length = tokenizer.context(ids, truncate), tokenizer.full_context(ids)
        obs.force_set("full_text", history.get_history_str())
        obs.force_set("text_vec", torch.tensor(context))
        obs.force_set("context_original_length", length)
        obs.force_set("context_truncate_rate", length > len(context))
        obs.force_set("context_truncated_length", length - len(context))
        return obs

    def _vectorize_text_with_truncate_stats(
        self,
        text: str,
        add_start: bool = False,
        add_end: bool = False,
        truncate: int | None = None,
        truncate_left: bool = True,
    ) -> tuple[Tensor, int, bool]:
        """TorchAgent: return a label's ids. Every candidate is between its [S], whatever the caller says."""
        ids, tokenizer = self.dict.txt2vec(text), self.dict.ready
        candidate, length = tokenizer.candidate(ids, truncate), tokenizer.full_candidate(ids)
        return torch.tensor(candidate), length, length > len(candidate)

    def _set_label_vec(self, obs: Any, add_start: bool, add_end: bool, truncate: int | None) -> None:
        """Do as TorchAgent, which fails on an empty list of labels, and takes an empty label for one."""
        for field in ("labels", "eval_labels"):
            if field in obs and not any(obs[field] or ()):
                return
        super()._set_label_vec(obs, add_start, add_end, truncate)

    def _set_label_cands_vec(self, obs: Any, add_start: bool, add_end: bool, truncate: int | None) -> Any:
        """TorchRankerAgent: set the candidates' ids, in one call of the tokenizer, and only if they are used."""
        source = self.candidates if "labels" in obs else self.eval_candidates
        if source in OWN_CANDIDATES and obs.get("label_candidates"):
            texts = list(obs["label_candidates"])
            obs.force_set("label_candidates", texts)
            obs.force_set("label_candidates_vecs", [torch.tensor(c.ids) for c in self.ranking.candidates(texts)])
        return obs

    def is_valid(self, obs: Any) -> bool:
        """Do as TorchRankerAgent, but an example needs a context; in training it needs a label, too."""
        learns = "labels" in obs or (self.phase["training"] and "eval_labels" not in obs)
        has_label = obs.get("labels_vec") is not None
        return bool(super().is_valid(obs)) and obs.get("text_vec") is not None and (has_label or not learns)

    def batchify(self, obs_batch: Sequence[Any], sort: bool = False) -> Batch:
        """Do as TorchAgent, with our own view of the examples; an empty batch is still one of training, or not.

        Args:
            obs_batch: the observations.
            sort: as in TorchAgent.
        """
        training = self._is_training_batch(obs_batch)
        batch: Batch = super().batchify(obs_batch, sort=sort)
        batch.is_training = training
        valid = [] if batch.valid_indices is None else batch.valid_indices.tolist()
        batch.examples = examples_of([obs_batch[i] for i in valid])
        if batch.valid_indices is None:  # batch_act calls this even for an empty batch
            batch.valid_indices = torch.tensor([], dtype=torch.long)
        return batch

    def _is_training_batch(self, obs_batch: Sequence[Any]) -> bool:
        """Return whether a batch is trained on.

        ParlAI decides by the labels. A batch without any label is what the previous batch was: other processes train on
        theirs, and wait for this one.
        """
        if any("labels" in obs for obs in obs_batch):
            self.phase["training"] = True
        elif any("eval_labels" in obs for obs in obs_batch):
            self.phase["training"] = False
        return self.phase["training"]

    def share(self) -> Any:
        """Return what TorchRankerAgent shares, and what all our clones have in common."""
        return super().share() | {"phase": self.phase, "ranking": self.ranking}
