"""The candidates of `--fixed-candidates-path`: one set for every example, from a handful to millions."""

import os
from collections.abc import Callable, Sequence

import numpy as np
import torch
from parlai.core.build_data import modelzoo_path
from parlai.utils.misc import warn_once
from torch import Tensor

from polyagents.index.candidate_records import read_candidates
from polyagents.index.interface import Index
from polyagents.properties import cached_property
from polyagents.ranking.candidate_set import Candidate, CandidateSet, Label, TextLookup, inline_set
from polyagents.ranking.ranking_model import RankingModel
from polyagents.text.normalize import normalized


def located(path: str, datapath: str | None) -> str:
    """Return the path of a candidates file: in the zoo, in the working folder, or else below `--datapath`."""
    path = modelzoo_path(datapath, path)
    below = os.path.join(datapath or "", path)
    return below if os.path.exists(below) and not os.path.exists(path) else path


class FixedCandidates:
    """The candidates of a file or, for a chat, of an engine; read or encoded at the first use."""

    def __init__(self, place: str, model: RankingModel, open_index: Callable[[str], Index]):
        """Note where the candidates are.

        Args:
            place: the path of a file, one candidate per line, or the URL of an engine.
            open_index: opens what is there for the weights as they are.
        """
        self.place, self.model, self.open_index = place, model, open_index
        self._index: Index | None = None
        self._version: object = None
        self._reads_as: np.ndarray | None = None

    @cached_property
    def listed(self) -> list[str]:
        """The texts of a file, in memory: for a training run."""
        return read_candidates(self.place)

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The same with their token ids."""
        return self.model.candidates(self.listed)

    @property
    def index(self) -> Index:
        """The candidates, encoded by the present weights."""
        if self._index is None or self._version is not self.model.version():
            self._index, self._version = self.open_index(self.place), self.model.version()
        return self._index

    def scores_with_labels(
        self, contexts: Sequence[Sequence[int]], labels: Sequence[Label | None]
    ) -> tuple[Tensor, CandidateSet]:
        """Compute scores of token ids of B contexts over all candidates, and say which are the labels.

        A label that is not among the candidates gets the last column, for its own example alone.

        Returns:
            Scores [B, C] or [B, C + 1], and the set that says what they are of.
        """
        texts = self.index
        scores = texts.scores(texts.query(self.model, contexts)).cpu()
        size = scores.size(1)
        columns = torch.full((len(labels),), -1)
        right = torch.zeros(len(labels), size + 1).bool()
        for example, label in enumerate(labels):
            if label is not None:
                place = self.place_of(label)
                columns[example] = size if place is None else place
                right[example, [*self.reading_as(label), int(columns[example])]] = True
        missing = columns == size
        real = torch.cat([torch.ones(scores.shape).bool(), missing.unsqueeze(1)], dim=1)
        if not missing.any():
            return scores, CandidateSet([], None, real[:, :size], right[:, :size], texts, columns)
        # ParlAI says each text once, so it names no label: with articles as labels every batch would print one.
        warn_once("Labels that are not in the fixed candidates are ranked with them, each for its own example.")
        alone = [[label.candidate] if label is not None else [self.model.candidates([""])[0]] for label in labels]
        own = self.model.scores(contexts, inline_set(alone, None)).cpu()
        lists = [
            WithLabel(texts, label.candidate.text) if lacks and label is not None else texts
            for label, lacks in zip(labels, missing.tolist(), strict=True)
        ]
        return torch.cat([scores, own], dim=1), CandidateSet([], real, real, right, lists, columns)

    def place_of(self, label: Label) -> int | None:
        """Return the index of a label: the one that was drawn, or else another right one; None if there is none."""
        index = self.index
        found = (index.find(text) for text in (label.candidate.text, *label.right))
        return next((place for place in found if place is not None), None)

    def reading_as(self, label: Label) -> list[int]:
        """Return the indices of the candidates that read like one of the right labels."""
        texts = self.index
        if self._reads_as is None:  # of a million texts: ten seconds once, and 8 MB
            every = (texts[place] for place in range(len(texts)))
            self._reads_as = np.fromiter((hash(normalized(text)) for text in every), np.int64)
        wanted = {normalized(text) for text in (label.candidate.text, *label.right)}
        near = np.flatnonzero(np.isin(self._reads_as, [hash(text) for text in wanted])).tolist()
        return [place for place in near if normalized(texts[place]) in wanted]


class WithLabel:
    """The fixed texts, followed by a label that they lack."""

    def __init__(self, texts: TextLookup, label: str):
        self.texts, self.label = texts, label

    def __len__(self) -> int:
        return len(self.texts) + 1

    def __getitem__(self, index: int) -> str:
        return self.label if index == len(self.texts) else str(self.texts[index])
