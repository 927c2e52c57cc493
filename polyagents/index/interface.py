"""The index: candidates that are searched and changed by the same calls, on disk, in memory and in an engine."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor

from polyagents.errors import InputError
from polyagents.index.builder import Encode
from polyagents.index.filters import Fields, Filter, parse_filter
from polyagents.index.texts import Texts
from polyagents.index.top_k import TopCandidates
from polyagents.models.two_towers import Query
from polyagents.ranking.pieces import Steps
from polyagents.ranking.ranking_model import RankingModel
from polyagents.ranking.two_tower_model import two_towers

Contexts = Sequence[Sequence[int]]
"""Token ids of B contexts."""

Self = TypeVar("Self", bound="Index")

DIGITS = 12  # of a digest that people compare by eye: two of a thousand states agree by chance once in 10^8 servers


@dataclass(frozen=True)
class Hits:
    """The best candidates of one context, highest score first; among equal scores the lower index comes first.

    Attributes:
        indices: [n], at most as many as were asked for.
        scores: [n] fp32.
        read: returns the texts of indices.
        read_ids: returns their ids; None for plain lines, whose id is the line.
        complete: whether no other candidate can be among the best; always of an exact search.
    """

    indices: np.ndarray
    scores: np.ndarray
    read: Callable[[np.ndarray], list[str]]
    complete: bool = True
    read_ids: Callable[[np.ndarray], list[str] | None] = lambda _: None

    @property
    def texts(self) -> list[str]:
        """Their texts; a store reads them only now."""
        return self.read(self.indices)

    @property
    def ids(self) -> list[str] | None:
        """Their ids, read only now; None for plain lines."""
        return self.read_ids(self.indices)


class Index(ABC):
    """Candidates of one model; `add` and `remove` return the index as it is then.

    Attributes:
        encoded_by: the fingerprint of the model that encoded the candidates, or the `version` of its weights; None if
            they are not encoded.
        stored_as: bf16, fp32 or int8.
        fields: name and kind of each declared field, by which a search can be filtered; None for plain lines, whose id
            is the line itself.
        scores_all: whether `scores` is possible; an engine finds the best candidates only.
    """

    encoded_by: object = None
    stored_as: str = "fp32"
    fields: Fields | None = None
    scores_all: bool = True

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of candidates."""

    def check_model(self, model: RankingModel) -> None:
        """Refuse, with an InputError, a model whose weights have not encoded the candidates."""
        two_towers(model).check(self.encoded_by)

    def query(self, model: RankingModel, contexts: Contexts) -> Any:
        """Return what `search` takes: encoded contexts, or their token ids if no candidate is encoded.

        Raises:
            InputError: other weights encoded the candidates.
        """
        self.check_model(model)
        return two_towers(model).query(contexts)

    def filter(self, given: Any) -> Filter | None:
        """Check a filter (filters.py), so that `search` takes it; a FilterError says what is wrong with it.

        Args:
            given: as of JSON; None or {} for none.
        """
        return parse_filter(given, self.fields)

    @abstractmethod
    def search(self, query: Query, k: int, where: Filter | None = None) -> list[Hits]:
        """Find the k best candidates of each of B contexts; fewer if there are fewer.

        Args:
            where: conditions that they meet; the result of `filter`.

        Raises:
            EngineError: an engine does not answer.
        """

    @abstractmethod
    def scores(self, query: Query) -> Tensor:
        """Score every candidate for every context: [B, C] fp32, -inf for a removed one.

        Raises:
            InputError: not `scores_all`.
        """

    @abstractmethod
    def texts_of(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """Return the texts of some candidates, in the order of the indices."""

    def ids_of(self, indices: Sequence[int] | np.ndarray) -> list[str] | None:
        """Return the ids of some candidates, in the order of the indices; None for plain lines."""
        return None

    def __getitem__(self, index: int) -> str:
        return self.texts_of([index])[0]

    __iter__ = None  # Python's loop over the places would find removed candidates, too

    @abstractmethod
    def find(self, name: str) -> int | None:
        """Return the index of a candidate by its id, a plain line's by its text; None if it is not among them."""

    @abstractmethod
    def add(self: Self, texts: Texts, encode: Encode) -> Self:
        """Add candidates; those that are there already are skipped, and one with another text or field is replaced.

        Args:
            encode: the model that encoded the others.

        Raises:
            InputError: the disk is full, the folder may not be written, or an engine refuses.
        """

    @abstractmethod
    def remove(self: Self, names: Sequence[str]) -> Self:
        """Remove candidates by their ids, plain lines by their texts; missing ones are skipped, and the others stay.

        Raises:
            InputError: the folder may not be written, none would remain in it, or an engine refuses.
        """

    def close(self) -> None:
        """Release files, memory and connection; later calls are refused."""
        vars(self).clear()

    if not TYPE_CHECKING:  # a type checker would believe in every attribute

        def __getattr__(self, name: str) -> Any:
            if vars(self) or name.startswith("__"):
                raise AttributeError(name)
            raise InputError("This index was closed; open it again.")

    @property
    def generation(self) -> str:
        """A name of its present state, without white space; `live` if a change is seen at once, as in an engine."""
        return "live"

    @property
    def is_approximate(self) -> bool:
        """Whether a search may miss some of the best candidates."""
        return False

    @property
    def reads(self) -> int:
        """How many texts the model encodes to search for one context."""
        return 1

    def check(self) -> None:  # noqa: B027  most cannot be away
        """Raise an EngineError if the candidates cannot be reached."""

    def search_in_pieces(
        self, model: RankingModel, contexts: Contexts, k: int, tokens: int, where: Filter | None = None
    ) -> Steps[list[Hits]]:
        """Search as `search` does, and encode at most `tokens` tokens between two steps, if candidates are encoded."""
        yield
        return self.search(self.query(model, contexts), k, where)

    def hits(self, found: TopCandidates, complete: Sequence[bool] | None = None) -> list[Hits]:
        """Return the rows of [B, k] candidates, complete unless it is said."""
        rows = zip(found.indices, found.scores, complete or [True] * len(found.indices), strict=True)
        return [Hits(indices, scores, self.texts_of, done, self.ids_of) for indices, scores, done in rows]
