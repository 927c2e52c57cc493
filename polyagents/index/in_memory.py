"""Candidates in memory: with vectors, searched like a store's, or texts that a model reads with each context."""

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint, utf8
from polyagents.files.python_arguments import texts_of
from polyagents.index.builder import Encode, encoded
from polyagents.index.columns import Columns
from polyagents.index.exact import ScannedIndex
from polyagents.index.filters import Filter
from polyagents.index.interface import DIGITS, Contexts, Hits, Index
from polyagents.index.shard import SHARD
from polyagents.index.stored_vectors import Coarse, VectorBlock, packed
from polyagents.index.texts import Texts
from polyagents.index.top_k import TopCandidates
from polyagents.properties import cached_property
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


class Listing(Index):
    """Candidates whose texts are in memory, with `columns` if they have ids."""

    def __init__(self, texts: Iterable[str], columns: Columns | None):
        self.listed, self.columns = list(texts), columns
        self.fields = None if columns is None else columns.fields

    @cached_property
    def names(self) -> list[str]:
        """Their ids; plain lines are their own."""
        return self.listed if self.columns is None else self.columns.ids_of(range(len(self.columns)))

    @property
    def there(self) -> Sequence[int]:
        """The places of those that are not removed."""
        return range(len(self.listed))

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each id that is not removed, a plain line's of its text, the first one of repeated texts."""
        return {self.names[place]: place for place in reversed(self.there)}

    def texts_of(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """Return the texts of some candidates, in the order of the indices."""
        return [self.listed[index] for index in indices]

    def ids_of(self, indices: Sequence[int] | np.ndarray) -> list[str] | None:
        """Return the ids of some candidates, in the order of the indices; None for plain lines."""
        return None if self.columns is None else self.columns.ids_of(indices)

    def find(self, name: str) -> int | None:
        """Return the index of a candidate by its id, a plain line's by its text; None if it is not among them."""
        return self.places.get(name)

    def meeting(self, where: Filter) -> np.ndarray:
        """Tell which candidates meet the conditions: [C] boolean."""
        assert self.columns is not None  # otherwise `Index.filter` has refused
        return self.columns.mask(where)

    def added(self, texts: Texts) -> tuple[list[str], Columns | None, list[int]]:
        """Return the texts that a change adds, the columns of all, and the places of those that it replaces."""
        records = texts.records(0, len(texts))
        if records is None or self.columns is None:
            return [text for text in texts.part(0, len(texts)) if text not in self.places], self.columns, []
        before = self.columns.records(self.listed)
        fresh = [one for one in records if one.id not in self.places or before[self.places[one.id]] != one]
        replaced = [self.places[one.id] for one in fresh if one.id in self.places]
        return [one.text for one in fresh], Columns.of([*before, *fresh], self.columns.fields), replaced


class InMemoryCandidates(Listing, ScannedIndex):
    """Candidates and their vectors [C, D] fp32 in memory; a change makes another one.

    Vectors are in two halves (stored_vectors.packed), with a coarse copy.
    """

    def __init__(
        self,
        texts: Sequence[str],
        vectors: Tensor,
        encoded_by: object = None,
        alive: Tensor | None = None,
        columns: Columns | None = None,
        model: "weakref.ref[TwoTowerModel] | None" = None,
    ):
        super().__init__(texts, columns)
        self.encoded_by = encoded_by
        self.model = model  # weak: its memory is the caller's to free
        self.alive = torch.ones(len(vectors)).bool() if alive is None else alive
        stored, norms = packed(vectors, "fp32"), torch.linalg.vector_norm(vectors, dim=1)
        some = None if self.alive.all() else self.alive
        self.all = VectorBlock(0, stored.vectors, norms, rest=stored.rest, alive=some, coarse=Coarse.of(stored))

    @classmethod
    @undisturbed()
    def encode(cls, texts: Sequence[str], model: TwoTowerModel, columns: Columns | None = None) -> "InMemoryCandidates":
        """Encode one text or more, with a progress bar if there are many; `columns` has their ids, if they have any."""
        vectors = encoded(texts, model.encode_texts, show_progress=len(texts) >= MANY)
        return cls(texts, vectors, model.version(), columns=columns, model=weakref.ref(model))

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in this process or another, belongs to every model with the same fingerprint."""
        state, model = vars(self) | {"model": None}, None if self.model is None else self.model()
        if model is not None and self.encoded_by == model.version():
            state["encoded_by"] = model.known_fingerprint()
        return state

    def __len__(self) -> int:
        return len(self.alive) if self.all.alive is None else int(self.alive.sum())

    def blocks(self) -> Iterator[VectorBlock]:
        """Yield all vectors, some thousands at a time."""
        return self.all.split(SHARD)

    @property
    def there(self) -> Sequence[int]:
        """The places of those that are not removed."""
        return self.alive.nonzero().flatten().tolist()

    def rows(self, indices: Sequence[int] | np.ndarray) -> Tensor:
        """Return some of the vectors, [r, D] fp32, in the order of the indices."""
        return self.all.exact(torch.as_tensor(np.asarray(indices, np.int64)))

    def mask(self, where: Filter) -> np.ndarray:
        """Tell which candidates are not removed and meet the conditions: [C] boolean."""
        found = self.meeting(where)
        found[~self.alive.numpy()] = False
        return found

    @property
    def generation(self) -> str:
        """A digest of the texts, of their ids and fields, and of which were removed."""
        tensors = [] if self.columns is None else [*self.columns.tensors.values()]
        tensors += [] if self.all.alive is None else [self.all.alive]
        return fingerprint([*map(utf8, self.listed), *(tensor.numpy().tobytes() for tensor in tensors)])[:DIGITS]

    def add(self, texts: Texts, encode: Encode) -> "InMemoryCandidates":
        """Return these candidates, without those that are replaced, followed by those that are not among them."""
        fresh, columns, replaced = self.added(texts)
        if not fresh:
            return self
        alive = torch.cat([self.alive, torch.ones(len(fresh)).bool()])
        alive[replaced] = False
        vectors = torch.cat([self.all.exact(slice(None)), encode(fresh)])
        return InMemoryCandidates(self.listed + fresh, vectors, self.encoded_by, alive, columns, self.model)

    def remove(self, names: Sequence[str]) -> "InMemoryCandidates":
        """Return these candidates without some; the others keep their index."""
        gone = set(texts_of(names, "names"))
        alive = self.alive & torch.tensor([name not in gone for name in self.names])
        vectors = self.all.exact(slice(None))
        return InMemoryCandidates(self.listed, vectors, self.encoded_by, alive, self.columns, self.model)


class ListedCandidates(Listing):
    """Texts, `read` by a model when it is asked: with each context, or (two towers) once."""

    def __init__(self, texts: Iterable[str], model: RankingModel, columns: Columns | None = None):
        super().__init__(texts, columns)
        self.model, self.read = model, self.listed

    @cached_property
    def distinct(self) -> tuple[CandidateSet, list[int]]:
        """Candidates with the same token ids once, and the column of each text among them."""
        candidates = self.model.candidates(self.read)
        shared = shared_set(candidates, None)
        return shared, columns_in(candidates, shared)

    def __len__(self) -> int:
        return len(self.listed)

    @property
    def generation(self) -> str:
        """A digest of the texts."""
        return fingerprint(map(utf8, self.read))[:DIGITS]

    @property
    def reads(self) -> int:
        """All of them."""
        return len(self.read)

    def check_model(self, model: RankingModel) -> None:
        """Refuse, with an InputError, another model than the one that reads the candidates."""
        if model is not self.model:
            raise InputError("Another model was to read these candidates: prepare them again, with this one.")

    def query(self, model: RankingModel, contexts: Contexts) -> Contexts:
        """Return the contexts as they are."""
        return contexts

    def scores(self, query: Any) -> Tensor:
        """Score every candidate for every context: [B, C] fp32."""
        shared, columns = self.distinct
        return self.spread(self.model.scores(query, shared)) if columns else torch.zeros(len(query), 0)

    def spread(self, scores: Tensor) -> Tensor:
        """Return the scores [B, C] of all candidates from the scores of the distinct ones."""
        return scores[:, self.distinct[1]]

    def search(self, query: Any, k: int, where: Filter | None = None) -> list[Hits]:
        """Find the k best candidates of each of B contexts; the model reads only those that meet the conditions."""
        if where is not None:
            places, some = self._those(where)
            return self._among(places, some.search(query, k))
        return self.hits(TopCandidates.of(self.scores(query).cpu().numpy(), k))

    def _those(self, where: Filter) -> tuple[np.ndarray, "ListedCandidates"]:
        """Return the places of the candidates that meet the conditions, and a list of these alone."""
        places = np.flatnonzero(self.meeting(where))
        return places, ListedCandidates(self.texts_of(places), self.model)

    def _among(self, places: np.ndarray, found: list[Hits]) -> list[Hits]:
        """Return what was found among the candidates at some places as found among all."""
        return [Hits(places[one.indices], one.scores, self.texts_of, one.complete, self.ids_of) for one in found]

    def search_in_pieces(
        self, model: RankingModel, contexts: Contexts, k: int, tokens: int, where: Filter | None = None
    ) -> Steps[list[Hits]]:
        """Search as `search` does; the model reads at most `tokens` tokens between two steps."""
        if where is not None:
            places, some = self._those(where)
            if not len(places):
                yield
                return self._among(places, some.search(contexts, k))
            found = yield from some.search_in_pieces(model, contexts, k, tokens)
            return self._among(places, found)
        scores = yield from self.model.scores_in_pieces(contexts, self.distinct[0], tokens)
        return self.hits(TopCandidates.of(self.spread(scores).cpu().numpy(), k))

    def add(self, texts: Texts, encode: Encode) -> "ListedCandidates":
        """Return these candidates, without those that are replaced, followed by those that are not among them."""
        fresh, columns, replaced = self.added(texts)
        return ListedCandidates([*self.listed, *fresh], self.model, columns)._without(set(replaced))

    def remove(self, names: Sequence[str]) -> "ListedCandidates":
        """Return the list without some candidates; those after them move up."""
        gone = set(texts_of(names, "names"))
        return self._without({place for place, name in enumerate(self.names) if name in gone})

    def _without(self, gone: set[int]) -> "ListedCandidates":
        left, columns = [place for place in range(len(self.listed)) if place not in gone], self.columns
        if columns is not None:
            every = columns.records(self.listed)
            columns = Columns.of([every[place] for place in left], columns.fields)
        return ListedCandidates(self.texts_of(left), self.model, columns)


class ListedOptions(ListedCandidates):
    """Options of several texts each, which a model reads when it is asked; a search finds their names."""

    def __init__(self, options: OptionTexts, model: RankingModel):
        super().__init__(options.names, model)
        self.options, self.read = options, options.texts

    def spread(self, scores: Tensor) -> Tensor:
        """Return the scores [B, O] of the options."""
        return self.options.scores(super().spread(scores), self.model.module.logit_scale)


def as_index(candidates: Candidates, model: RankingModel) -> Index:
    """Return an index unchanged, and texts or options as a list that the model reads."""
    if isinstance(candidates, Index):
        return candidates
    if isinstance(candidates, Mapping):
        return ListedOptions(OptionTexts.of(candidates, "candidates"), model)
    return ListedCandidates(texts_of(candidates, "candidates"), model)
