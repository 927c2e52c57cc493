"""The candidates of `--fixed-candidates-path`: one set for every example, from a handful to millions."""

import functools
import os
from collections.abc import Callable, Collection, Sequence
from typing import overload

import numpy as np
import torch
from parlai.core.build_data import modelzoo_path
from parlai.utils.misc import warn_once
from torch import Tensor

from polyagents.errors import InputError
from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.engines.urls import open_engine
from polyagents.index.exact import score_all, search
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.store import CandidateStore
from polyagents.index.texts import read_candidates
from polyagents.index.top_k import TopCandidates
from polyagents.ranking.candidate_set import Candidate, CandidateSet, Label, columns_of, inline_set, shared_set
from polyagents.ranking.ranking_model import RankingModel
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.text.normalize import normalized

EncodedCandidates = CandidateStore | InMemoryCandidates
"""Candidates with their vectors."""

Ranked = tuple[list[str], list[float]]
"""Texts and their scores, highest first."""


def located(path: str, datapath: str | None) -> str:
    """Return the path of a candidates file: in the zoo, in the working folder, or else below `--datapath`.

    Args:
        path: the path that was given.
        datapath: ParlAI's data folder; None for the default.
    """
    path = modelzoo_path(datapath, path)
    below = os.path.join(datapath or "", path)
    return below if os.path.exists(below) and not os.path.exists(path) else path


class FixedCandidates:
    """A candidates file, read or encoded when that is first needed.

    A uni- or cross-encoder and a training run need the texts, in memory; bi- and poly-encoder rank by vectors, whose
    store looks texts up one by one.
    """

    def __init__(self, path: str, model: RankingModel, encode_file: Callable[[str], EncodedCandidates]):
        """Note where the candidates are.

        Args:
            path: of the file, one candidate per line.
            encode_file: encodes a file, or finds its index, where candidates can be encoded ahead.
        """
        self.path, self.model, self.encode_file = path, model, encode_file
        self._encoded: EncodedCandidates | None = None
        self._encoded_by: object = None
        self._reads_as: np.ndarray | None = None

    @functools.cached_property
    def listed(self) -> list[str]:
        """The texts, in memory."""
        return read_candidates(self.path)

    @functools.cached_property
    def candidates(self) -> list[Candidate]:
        """The texts with their token ids, in memory."""
        return self.model.candidates(self.listed)

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """The index of each text."""
        return {text: place for place, text in enumerate(self.listed)}

    @property
    def encoded(self) -> EncodedCandidates:
        """The vectors of the candidates, by the weights that there are now."""
        assert isinstance(self.model, TwoTowerModel)
        if self._encoded is None or self._encoded_by is not self.model.version():
            self._encoded, self._encoded_by = self.encode_file(self.path), self.model.version()
        return self._encoded

    @property
    def texts(self) -> "Sequence[str] | EncodedCandidates":
        """The texts by index."""
        return self.encoded if isinstance(self.model, TwoTowerModel) else self.listed

    def find(self, text: str) -> int | None:
        """Return the index of a candidate; None if it is not among them."""
        return self.encoded.find(text) if isinstance(self.model, TwoTowerModel) else self.places.get(text)

    def scores(self, contexts: Sequence[Sequence[int]]) -> Tensor:
        """Compute scores [B, C] of token ids of B contexts over all candidates."""
        if isinstance(self.model, TwoTowerModel):
            return score_all(self.model.query(contexts), self.encoded)
        shared = shared_set(
            self.candidates, None
        )  # candidates with the same token ids are scored once, and keep their indices
        return self.model.scores(contexts, shared)[:, columns_of(self.candidates, shared)]

    def unsaid(self, contexts: Sequence[Sequence[int]], k: int, said: Collection[str]) -> list[Ranked]:
        """Return the k best candidates of every context that were not said, unless nothing else remains.

        Args:
            contexts: token ids of B contexts.
        """
        spoken = {place for line in said if (place := self.find(line)) is not None}
        found = self._best(contexts, k + len(spoken))
        return [
            first_unsaid([self.texts[int(index)] for index in indices], scores, said, k)
            for indices, scores in zip(found.indices, found.scores, strict=True)
        ]

    def _best(self, contexts: Sequence[Sequence[int]], k: int) -> TopCandidates:
        """Return the k best candidates of every context, if possible without scoring all of them."""
        if isinstance(self.model, TwoTowerModel):
            return search(self.model.query(contexts), self.encoded, k)
        return TopCandidates.of(self.scores(contexts).cpu().numpy(), k)

    def scores_with_labels(
        self, contexts: Sequence[Sequence[int]], labels: Sequence[Label | None]
    ) -> tuple[Tensor, CandidateSet]:
        """Compute scores over all candidates, and say which are the labels.

        A label that is not among the candidates gets the last column, for its own example alone.

        Args:
            contexts: token ids of B contexts.
            labels: the label of each; None if it has none.

        Returns:
            Scores [B, C] or [B, C + 1], and the set that says what they are of.
        """
        scores = self.scores(contexts).cpu()
        size = scores.size(1)
        places = [None if label is None else self.place_of(label) for label in labels]
        missing = [label is not None and place is None for label, place in zip(labels, places, strict=True)]
        columns = torch.tensor([-1 if label is None else size for label in labels])
        right = torch.zeros(len(labels), size + 1).bool()
        for example, (label, place) in enumerate(zip(labels, places, strict=True)):
            if label is not None:
                right[example, self.reading_as(label)] = True
                columns[example] = size if place is None else place
                right[example, columns[example]] = True
        real = torch.cat([torch.ones(scores.shape).bool(), torch.tensor(missing).unsqueeze(1)], dim=1)
        if not any(missing):
            return scores, CandidateSet([], None, real[:, :size], right[:, :size], self.texts, columns)
        # ParlAI says each text once, so it names no label: with articles as labels every batch would print one.
        warn_once("Labels that are not in the fixed candidates are ranked with them, each for its own example.")
        alone = [[label.candidate] if label is not None else [self.model.candidates([""])[0]] for label in labels]
        own = self.model.scores(contexts, inline_set(alone, None)).cpu()
        lists = [
            WithLabel(self.texts, label.candidate.text) if lacks and label is not None else self.texts
            for label, lacks in zip(labels, missing, strict=True)
        ]
        return torch.cat([scores, own], dim=1), CandidateSet([], real, real, right, lists, columns)

    def place_of(self, label: Label) -> int | None:
        """Return the index of a label: the one that was drawn, or else another right one; None if there is none."""
        found = (self.find(text) for text in (label.candidate.text, *label.right))
        return next((place for place in found if place is not None), None)

    def reading_as(self, label: Label) -> list[int]:
        """Return the indices of the candidates that read like one of the right labels."""
        if self._reads_as is None:  # of a million texts: ten seconds once, and 8 MB
            every = (self.texts[index] for index in range(len(self.texts)))
            self._reads_as = np.fromiter((hash(normalized(text)) for text in every), np.int64)
        wanted = {normalized(text) for text in (label.candidate.text, *label.right)}
        near = np.flatnonzero(np.isin(self._reads_as, [hash(text) for text in wanted])).tolist()
        return [place for place in near if normalized(self.texts[place]) in wanted]


class EngineReplies:
    """The candidates of `--index-url`, in a vector database, for replies in a chat.

    Such a database finds only the best ones, so nothing can be evaluated over it.
    """

    def __init__(self, url: str, model: RankingModel):
        """Connect.

        Raises:
            InputError: the model's candidates are not there, or cannot be.
        """
        if not isinstance(model, TwoTowerModel):
            raise InputError(f"--index-url holds vectors, and a {model.label} has none; give --fixed-candidates-path.")
        self.model, self.candidates = model, EngineCandidates.open(open_engine(url), model.fingerprint())

    def unsaid(self, contexts: Sequence[Sequence[int]], k: int, said: Collection[str]) -> list[Ranked]:
        """Return the k best candidates of every context that were not said, unless nothing else remains.

        Args:
            contexts: token ids of B contexts.
        """
        best, _ = self.candidates.search(self.model.query(contexts), k + len(said))
        return [first_unsaid(one.texts, one.scores, said, k) for one in best]


def first_unsaid(texts: Sequence[str], scores: np.ndarray, said: Collection[str], k: int) -> Ranked:
    """Return the first k of ranked texts that were not said; the first k of all if each was.

    Args:
        texts: the texts, best first.
    """
    ranked = list(zip(texts, map(float, scores), strict=True))
    fresh = ([one for one in ranked if one[0] not in said] or ranked)[:k]
    return [text for text, _ in fresh], [score for _, score in fresh]


class WithLabel(Sequence[str]):
    """The fixed texts, followed by a label that they lack."""

    def __init__(self, texts: "Sequence[str] | EncodedCandidates", label: str):
        self.texts, self.label = texts, label

    def __len__(self) -> int:
        return len(self.texts) + 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        assert not isinstance(index, slice)
        return self.label if index == len(self.texts) else self.texts[index]
