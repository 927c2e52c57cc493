"""Candidates in memory: with vectors, searched like a store's, or texts that a model reads with each context."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyagents.files.given_texts import texts_of
from polyagents.files.hashing import fingerprint, utf8
from polyagents.index.builder import Encode, encoded
from polyagents.index.exact import ScannedIndex
from polyagents.index.interface import DIGITS, Contexts, Hits, Index
from polyagents.index.shard import SHARD
from polyagents.index.stored_vectors import Coarse, VectorBlock, packed
from polyagents.index.texts import Texts
from polyagents.index.top_k import TopCandidates
from polyagents.ranking.candidate_set import CandidateSet, columns_in, shared_set
from polyagents.ranking.option_texts import OptionTexts
from polyagents.ranking.pieces import Steps
from polyagents.ranking.ranking_model import RankingModel
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.surroundings import undisturbed

Listed = Iterable[str] | Mapping[str, str | Iterable[str]]
"""Texts; or options, each name with its text or its texts."""
Candidates = Listed | Index
"""What can be ranked: these, or what `Ranker.index`, `open_index`, `open_engine` and `prepare` return."""

MANY = 512  # texts that a slow core encodes in two seconds, with a small backbone: from here on progress is shown


class InMemoryVectors:
    """Vectors [C, D] fp32 in memory, in two halves (stored_vectors.packed), and a coarse copy."""

    def __init__(self, vectors: Tensor, alive: Tensor | None = None):
        stored, norms = packed(vectors, "fp32"), torch.linalg.vector_norm(vectors, dim=1)
        self.all = VectorBlock(0, stored.vectors, norms, rest=stored.rest, alive=alive, coarse=Coarse.of(stored))

    def __len__(self) -> int:
        return len(self.all.vectors) if self.all.alive is None else int(self.all.alive.sum())

    def blocks(self) -> Iterator[VectorBlock]:
        """Yield all of them as one block."""
        return self.all.split(SHARD)


class InMemoryCandidates(InMemoryVectors, ScannedIndex):
    """Candidates and their vectors [C, D] in memory; a change makes another one."""

    def __init__(self, texts: Sequence[str], vectors: Tensor, encoded_by: object = None, alive: Tensor | None = None):
        super().__init__(vectors, alive)
        self.encoded_by = encoded_by
        self.listed = list(texts)
        there = range(len(self.listed)) if alive is None else alive.nonzero().flatten().tolist()
        self.places = {self.listed[place]: place for place in reversed(there)}

    @classmethod
    @undisturbed()
    def encode(cls, texts: Sequence[str], model: TwoTowerModel) -> "InMemoryCandidates":
        """Encode one text or more, with a progress bar if there are many."""
        vectors = encoded(texts, model.encode_texts, show_progress=len(texts) >= MANY)
        return cls(texts, vectors, model.version())

    def texts_of(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """Return the texts of some candidates, in the order of the indices."""
        return [self.listed[index] for index in indices]

    @property
    def generation(self) -> str:
        """A digest of the texts, and of which were removed."""
        removed = [] if self.all.alive is None else [self.all.alive.numpy().tobytes()]
        return fingerprint([*map(utf8, self.listed), *removed])[:DIGITS]

    def find(self, text: str) -> int | None:
        """Return the index of a candidate; None if it is not among them."""
        return self.places.get(text)

    def add(self, texts: Texts, encode: Encode) -> "InMemoryCandidates":
        """Return these candidates followed by the texts that are not among them."""
        fresh = [text for text in texts.part(0, len(texts)) if text not in self.places]
        if not fresh:
            return self
        vectors = torch.cat([self.all.exact(slice(None)), encode(fresh)])
        alive = None if self.all.alive is None else torch.cat([self.all.alive, torch.ones(len(fresh)).bool()])
        return InMemoryCandidates(self.listed + fresh, vectors, self.encoded_by, alive)

    def remove(self, texts: Sequence[str]) -> "InMemoryCandidates":
        """Return these candidates without some; the others keep their index."""
        gone = set(texts)
        alive = torch.tensor([text not in gone for text in self.listed])
        alive = alive if self.all.alive is None else self.all.alive & alive
        return InMemoryCandidates(self.listed, self.all.exact(slice(None)), self.encoded_by, alive)


class ListedCandidates(Index):
    """Texts that a model reads when it is asked: with each context, or (two towers) into its cache of vectors."""

    def __init__(self, texts: Iterable[str], model: RankingModel):
        self.listed, self.model = list(texts), model

    @functools.cached_property
    def distinct(self) -> tuple[CandidateSet, list[int]]:
        """Candidates with the same token ids once, and the column of each text among them."""
        candidates = self.model.candidates(self.all_texts())
        shared = shared_set(candidates, None)
        return shared, columns_in(candidates, shared)

    def __len__(self) -> int:
        return len(self.listed)

    def all_texts(self) -> list[str]:
        """Return what the model reads."""
        return self.listed

    @property
    def generation(self) -> str:
        """A digest of the texts."""
        return fingerprint(map(utf8, self.all_texts()))[:DIGITS]

    @property
    def reads(self) -> int:
        """All of them."""
        return len(self.all_texts())

    def query(self, model: RankingModel, contexts: Contexts) -> Contexts:
        """Return the contexts as they are."""
        return contexts

    def scores(self, query: Any) -> Tensor:
        """Score every candidate for every context: [B, C] fp32."""
        shared, columns = self.distinct
        return self.spread(self.model.scores(query, shared)) if columns else torch.zeros(len(query), 0)

    def spread(self, scores: Tensor) -> Tensor:
        """Return the scores [B, C] of all candidates from those of the distinct ones."""
        return scores[:, self.distinct[1]]

    def search(self, query: Any, k: int) -> list[Hits]:
        """Find the k best candidates of each of B contexts."""
        return self.hits(TopCandidates.of(self.scores(query).cpu().numpy(), k))

    def search_in_pieces(self, model: RankingModel, contexts: Contexts, k: int, tokens: int) -> Steps[list[Hits]]:
        """Search as `search` does; the model reads at most `tokens` tokens between two steps."""
        scores = yield from self.model.scores_in_pieces(contexts, self.distinct[0], tokens)
        return self.hits(TopCandidates.of(self.spread(scores).cpu().numpy(), k))

    def texts_of(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """Return the texts of some candidates, in the order of the indices."""
        return [self.listed[index] for index in indices]

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """The index of each text, the first one of repeated texts."""
        return {text: place for place, text in reversed(list(enumerate(self.listed)))}

    def find(self, text: str) -> int | None:
        """Return the index of a candidate; None if it is not among them."""
        return self.places.get(text)

    def add(self, texts: Texts, encode: Encode) -> "ListedCandidates":
        """Return these candidates followed by the texts that are not among them; nothing is encoded."""
        fresh = (text for text in texts.part(0, len(texts)) if text not in self.places)
        return ListedCandidates([*self.listed, *fresh], self.model)

    def remove(self, texts: Sequence[str]) -> "ListedCandidates":
        """Return the list without some texts; those after them move up."""
        gone = set(texts)
        return ListedCandidates((text for text in self.listed if text not in gone), self.model)


class ListedOptions(ListedCandidates):
    """Options of several texts each, which a model reads when it is asked; a search finds their names."""

    def __init__(self, options: OptionTexts, model: RankingModel):
        super().__init__(options.names, model)
        self.options = options

    def all_texts(self) -> list[str]:
        """Return the texts of all options."""
        return self.options.texts

    def spread(self, scores: Tensor) -> Tensor:
        """Return the scores [B, O] of the options."""
        return self.options.scores(super().spread(scores), self.model.module.logit_scale)


def as_listed(candidates: Listed, model: RankingModel) -> ListedCandidates:
    """Return texts, or options of several, as a list that the model reads."""
    if isinstance(candidates, Mapping):
        return ListedOptions(OptionTexts.of(candidates, "candidates"), model)
    return ListedCandidates(texts_of(candidates, "candidates"), model)


def as_index(candidates: Candidates, model: RankingModel) -> Index:
    """Return an index unchanged, and texts or options as a list that the model reads."""
    return candidates if isinstance(candidates, Index) else as_listed(candidates, model)
