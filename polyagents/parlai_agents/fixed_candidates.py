"""The candidates of `--fixed-candidates-path`: one set for every example, from a handful to millions."""

import os
from collections.abc import Callable, Sequence
from typing import overload

import numpy as np
from parlai.core.build_data import modelzoo_path

from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.store import CandidateStore
from polyagents.index.texts import read_candidates
from polyagents.ranking.candidate_set import normalised


def located(path: str, datapath: str | None) -> str:
    """A candidates file: of the zoo, or in the working folder, or else below `--datapath`, where tasks have theirs."""
    path = modelzoo_path(datapath, path)
    below = os.path.join(datapath or "", path)
    return below if os.path.exists(below) and not os.path.exists(path) else path


class FixedCandidates:
    """A candidates file, read or encoded when that is first needed.

    A cross-encoder and a training run need the texts, in memory; bi- and poly-encoder rank by vectors, whose store
    looks texts up one by one.
    """

    def __init__(self, path: str, encode_all: Callable[[str], CandidateStore | InMemoryCandidates] | None):
        self.path = path
        self.encode_all = encode_all
        self._listed: list[str] | None = None
        self._places: dict[str, int] | None = None
        self._encoded: CandidateStore | InMemoryCandidates | None = None
        self._normalised: np.ndarray | None = None

    @property
    def listed(self) -> list[str]:
        """The texts, in memory."""
        if self._listed is None:
            self._listed = read_candidates(self.path)
        return self._listed

    @property
    def encoded(self) -> CandidateStore | InMemoryCandidates:
        """Their vectors."""
        if self._encoded is None:
            assert self.encode_all is not None
            self._encoded = self.encode_all(self.path)
        return self._encoded

    def forget_vectors(self) -> None:
        """The weights have changed."""
        self._encoded = None

    @property
    def texts(self) -> "Sequence[str] | CandidateStore | InMemoryCandidates":
        """What has the text at [index]."""
        return self.listed if self.encode_all is None else self.encoded

    def find(self, text: str) -> int | None:
        """The index of a candidate; None where it is not among them."""
        if self.encode_all is not None:
            return self.encoded.find(text)
        if self._places is None:
            self._places = {candidate: place for place, candidate in enumerate(self.listed)}
        return self._places.get(text)

    def reading_as(self, label: str) -> np.ndarray:
        """Indices of the candidates that read as a label does (candidate_set.equal_to_label)."""
        if self._normalised is None:  # of a million texts: ten seconds once, and 8 MB
            every = (self.texts[index] for index in range(len(self.texts)))
            self._normalised = np.fromiter((hash(normalised(text)) for text in every), np.int64)
        places = np.flatnonzero(self._normalised == hash(normalised(label))).tolist()
        return np.array([place for place in places if normalised(self.texts[place]) == normalised(label)], np.int64)


class WithLabel(Sequence[str]):
    """The fixed texts and, after them, a label that they lack."""

    def __init__(self, texts: "Sequence[str] | CandidateStore | InMemoryCandidates", label: str):
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
