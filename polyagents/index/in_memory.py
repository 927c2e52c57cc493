"""Candidates and vectors in memory, searched like those of a store."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from polyagents.index.builder import encoded
from polyagents.index.shard import SHARD
from polyagents.index.stored_vectors import Block, Coarse, packed
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.surroundings import undisturbed

MANY = 512  # texts that a slow core encodes in two seconds, with a small backbone: from here on progress is shown


class InMemoryVectors:
    """Vectors [C, D] fp32 in memory, in two halves (stored_vectors.packed), and a coarse copy."""

    def __init__(self, vectors: Tensor):
        stored, norms = packed(vectors, "fp32"), torch.linalg.vector_norm(vectors, dim=1)
        self.all = Block(0, stored.vectors, norms, rest=stored.rest, coarse=Coarse.of(stored))

    def __len__(self) -> int:
        return len(self.all.vectors)

    def blocks(self) -> Iterator[Block]:
        """Yield all of them as one block."""
        return self.all.split(SHARD)


class InMemoryCandidates(InMemoryVectors):
    """Candidates and their vectors [C, D] in memory.

    Attributes:
        encoded_by: the `version` of the model that encoded them.
    """

    def __init__(self, texts: Sequence[str], vectors: Tensor, encoded_by: object = None):
        super().__init__(vectors)
        self.encoded_by = encoded_by
        self.listed = list(texts)
        self.places = {text: place for place, text in reversed(list(enumerate(self.listed)))}

    @classmethod
    @undisturbed()
    def encode(cls, texts: Sequence[str], model: TwoTowerModel) -> "InMemoryCandidates":
        """Encode all texts, with a progress bar where there are many.

        Args:
            texts: the candidates, one at least.

        Returns:
            The candidates with their vectors.
        """
        vectors = encoded(texts, model.encode_texts, show_progress=len(texts) >= MANY)
        return cls(texts, vectors, model.version())

    def __getitem__(self, index: int) -> str:
        """Return the text of one candidate."""
        return self.listed[index]

    def texts_of(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """Return the texts of some candidates, in the order of the indices."""
        return [self.listed[index] for index in indices]

    def find(self, text: str) -> int | None:
        """Return the index of a candidate; None if it is not among them."""
        return self.places.get(text)
