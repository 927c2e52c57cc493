"""Batches of token ids from ParlAI's observations: context and candidates, each with [S] before and after it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from parlai.core.message import Message
from parlai.core.torch_agent import Batch
from parlai.core.torch_ranker_agent import TorchRankerAgent
from torch import Tensor

from polyagents.errors import InputError
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.ranking.candidate_set import Candidate, Label
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training.candidate_sources import EncodedExamples

Phase = dict[str, bool]
OWN_CANDIDATES = ("inline", "batch-all-cands", "batch+inline")  # sources that read the candidates of an example

NOTHING = Message({"batch_padding": True})


def real_labels(obs: Any) -> tuple[str, ...]:
    """Return the labels of an observation, in training or evaluation, without blank ones."""
    return tuple(label for label in obs.get("labels", obs.get("eval_labels")) or () if label.strip())


def with_lists_of_texts(message: Message) -> Message:
    """Return a message whose lists can be read more than once; refuse values that are not texts.

    ParlAI would read a text that is given for a list letter by letter.
    """
    if not isinstance(message.get("text"), str | None):
        raise InputError(f"The text of a message is {message['text']!r:.80}; give a text.")
    for field in ("labels", "eval_labels", "label_candidates"):
        if isinstance(message.get(field), Iterator):
            message.force_set(field, list(message[field]))
        given = message.get(field)
        is_list = isinstance(given, Collection) and not isinstance(given, str)
        if given is not None and not (is_list and all(isinstance(one, str) for one in given)):
            raise InputError(
                f"The {field} of a message are {given!r:.80}; give a list of texts, such as ['yes', 'no']."
            )
    return message


def has_label(obs: Any) -> bool:
    """Return whether an observation has a label."""
    return obs.get("labels_vec") is not None or obs.get("eval_labels_vec") is not None


class ObservingAgent(TorchRankerAgent):
    """Turns observations into batches for a ranker.

    Attributes:
        phase: whether the previous batch was trained on, under "training"; all clones share it.
    """

    ranking: RankingModel
    dict: TextDictionary
    phase: Phase

    def observe(self, observation: Any) -> Any:
        """Do as TorchAgent; refuse a message whose texts are something else."""
        return super().observe(with_lists_of_texts(Message(observation)))

    def _set_text_vec(self, obs: Any, history: Any, truncate: int | None) -> Any:
        """TorchAgent: set the context's ids, between its [S], from the history, whose turns are tokenised once."""
        ids = history.get_history_vec()
        if obs.get("text") is None or ids is None:
            return obs
        tokenizer = self.dict.ready
        context, length = tokenizer.context(ids, truncate), len(tokenizer.context(ids, None))
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
        candidate, length = tokenizer.candidate(ids, truncate), len(tokenizer.candidate(ids, None))
        return torch.tensor(candidate), length, length > len(candidate)

    def _set_label_vec(self, obs: Any, add_start: bool, add_end: bool, truncate: int | None) -> None:
        """Do as TorchAgent, which fails on an empty list of labels, and takes an empty label for one."""
        for field in ("labels", "eval_labels"):
            if field in obs:
                labels = real_labels(obs)
                if not labels:
                    return
                obs.force_set(field, labels)
        super()._set_label_vec(obs, add_start, add_end, truncate)

    def _set_label_cands_vec(self, obs: Any, add_start: bool, add_end: bool, truncate: int | None) -> Any:
        """TorchRankerAgent: set the candidates' ids, in one call of the tokenizer, and only if they are used."""
        source = self.candidates if "labels" in obs else self.eval_candidates
        texts = list(obs.get("label_candidates") or ())
        if source in OWN_CANDIDATES and any(text.strip() for text in texts):
            obs.force_set("label_candidates", texts)
            obs.force_set("label_candidates_vecs", [torch.tensor(c.ids) for c in self.ranking.candidates(texts)])
        return obs

    def hears_itself(self, message: Message) -> bool:
        """Return whether the rest of a dialogue has this agent's reply to a message in its context, not the label."""
        heard = self.opt.get("use_reply", "label")
        return bool(heard == "model" or (heard == "label" and not real_labels(message)))

    def self_observe(self, self_message: Message) -> None:
        """Do as TorchAgent does, which fails in the middle of an episode if nothing was said, as intended."""
        if (
            self_message.get("text") is None
            and not self.observation["episode_done"]
            and not real_labels(self.observation)
        ):
            self._TorchAgent__expecting_to_reply = False  # it expects a reply to any labels, empty ones too
        else:
            super().self_observe(self_message)

    def is_valid(self, obs: Any) -> bool:
        """Do as TorchRankerAgent, but an example needs a context, and a label; without one a chat is answered.

        ParlAI's teachers count an answer if the label is empty.
        """
        is_chat = not self.phase["training"] and not {"labels", "eval_labels"} & obs.keys()
        return bool(super().is_valid(obs)) and obs.get("text_vec") is not None and (is_chat or has_label(obs))

    def batchify(self, obs_batch: Sequence[Any], sort: bool = False) -> Batch:
        """Do as TorchAgent, with our own view of the examples; an empty batch, too, is one of training or not."""
        # ParlAI decides by the labels. A batch without any label is what the previous batch was: other processes train
        # on theirs, and wait for this one.
        if any("labels" in obs for obs in obs_batch):
            self.phase["training"] = True
        elif any("eval_labels" in obs for obs in obs_batch):
            self.phase["training"] = False
        unlabelled = sum(obs.get("text_vec") is not None and not has_label(obs) for obs in obs_batch)
        if unlabelled and not self.opt.get("interactive_mode") and not any(map(has_label, obs_batch)):
            fixed = self.eval_candidates == "fixed"  # without a label, only what has candidates can be answered
            obs_batch = [obs if fixed or obs.get("label_candidates_vecs") is not None else NOTHING for obs in obs_batch]
        batch: Batch = super().batchify(obs_batch, sort=sort)
        batch.is_training, batch.unlabelled = self.phase["training"], unlabelled
        valid = [] if batch.valid_indices is None else batch.valid_indices.tolist()
        batch.examples = encoded_examples([obs_batch[i] for i in valid])
        if batch.valid_indices is None:  # batch_act calls this even for an empty batch
            batch.valid_indices = torch.tensor([], dtype=torch.long)
        return batch

    def batch_act(self, observations: Any) -> Any:
        """Do as TorchAgent, which fails on a batch of `--num-workers` that has no example."""
        if isinstance(observations, Batch) and not len(observations.valid_indices):
            self._local_metrics.clear()
            (self.train_step if observations.is_training else self.eval_step)(observations)
            return []
        return super().batch_act(observations)

    def share(self) -> Any:
        """Return TorchRankerAgent's shared state, and our own."""
        return super().share() | {"phase": self.phase, "ranking": self.ranking}


def encoded_examples(observations: Sequence[Mapping[str, Any]]) -> EncodedExamples:
    """Return the examples of observations that have a context."""
    given = [encoded_candidates(one) for one in observations]
    return EncodedExamples(
        [one["text_vec"].tolist() for one in observations],
        [one["full_text"] for one in observations],
        [label_of(one) for one in observations],
        given if any(given) else None,
    )


def label_of(observation: Mapping[str, Any]) -> Label | None:
    """Return the label that ParlAI drew from an observation's labels, and all of them; None if it has none."""
    for field in ("labels", "eval_labels"):
        if observation.get(f"{field}_choice"):
            text, ids = observation[f"{field}_choice"], observation[f"{field}_vec"].tolist()
            return Label(Candidate(text, tuple(ids)), tuple(observation[field]))
    return None


def encoded_candidates(observation: Mapping[str, Any]) -> list[Candidate]:
    """Return the candidates of an observation; none if they are not used."""
    if (vectors := observation.get("label_candidates_vecs")) is None:
        return []
    pairs = zip(observation["label_candidates"], vectors, strict=True)
    return [Candidate(text, tuple(ids.tolist())) for text, ids in pairs]
