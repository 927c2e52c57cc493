"""A pipeline: a fast ranker finds a shortlist, and a slow, better one orders it anew."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, overload

from polyagents.decisions.calibration import Calibration
from polyagents.decisions.deciding import Decision
from polyagents.errors import InputError
from polyagents.files.python_arguments import count_of, texts_of
from polyagents.index.in_memory import Candidates, Listed
from polyagents.ranker import Match, Ranker, check_rankers

RERANK_TOP = 50  # candidates of the shortlist, if nobody says how many


class Reranked(NamedTuple):
    """The matches of B contexts.

    Attributes:
        matches: of each context, best first.
        complete: whether the shortlist of each is what an exact search finds (`Ranker.search`).
        seconds: what each stage took for all contexts: `search` and, with a second model, `rerank`.
    """

    matches: list[list[Match]]
    complete: list[bool]
    seconds: dict[str, float]


class Pipeline:
    """Two rankers as one, as `rank --rerank` and `serve --rerank` use them.

    >>> from polyagents import Pipeline
    >>> pipeline = Pipeline(ranker, cross, rerank_top=4)
    >>> index = ranker.open_index("replies.index")
    >>> [match.score for match in pipeline.rank("hi", index, top_k=2)]
    [..., ...]
    >>> pipeline.search("hi", index).seconds.keys()
    dict_keys(['search', 'rerank'])

    Attributes:
        first: finds the shortlist.
        second: orders it, such as a uni- or cross-encoder; None leaves the order of the first.
        rerank_top: the length of the shortlist; no more are returned.
    """

    def __init__(self, first: Ranker, second: Ranker | None, rerank_top: int = RERANK_TOP):
        self.rerank_top = count_of(rerank_top, "rerank_top")
        check_rankers(first=first, second=first if second is None else second)
        self.first, self.second = first, second

    @overload
    def rank(  # type: ignore[overload-overlap]
        self, contexts: str, candidates: Candidates, top_k: int = 10, filter: Mapping[str, Any] | None = None
    ) -> list[Match]: ...

    @overload
    def rank(
        self, contexts: Iterable[str], candidates: Candidates, top_k: int = 10, filter: Mapping[str, Any] | None = None
    ) -> list[list[Match]]: ...

    def rank(
        self,
        contexts: str | Iterable[str],
        candidates: Candidates,
        top_k: int = 10,
        filter: Mapping[str, Any] | None = None,
    ) -> list[Match] | list[list[Match]]:
        """Return the best candidates, as `Ranker.rank` does, with the second model's scores.

        >>> len(Pipeline(ranker, cross).rank("hi", ["hello", "bye", "i ski"], top_k=2))
        2
        """
        matches = self.search(contexts, candidates, top_k, filter).matches
        return matches[0] if isinstance(contexts, str) else matches

    def search(
        self,
        contexts: str | Iterable[str],
        candidates: Candidates,
        top_k: int = 10,
        filter: Mapping[str, Any] | None = None,
    ) -> Reranked:
        """Rank as `rank` does, and say what each stage took.

        >>> found = Pipeline(ranker, cross).search(["hi", "how are you"], ["hello", "bye", "i ski"], top_k=1)
        >>> [len(matches) for matches in found.matches], found.complete
        ([1, 1], [True, True])

        Args:
            contexts: B contexts; one string is one context.
            candidates: of the first model, as for `Ranker.rank`; texts, not options of several texts.
            filter: as for `Ranker.rank`.
        """
        if self.second is not None and isinstance(candidates, Mapping):
            raise InputError("Options of several texts are not re-ranked by rank; give texts, or use decide.")
        top_k = count_of(top_k, "top_k")
        asked = texts_of(contexts, "contexts", one=True)
        begin = time.perf_counter()
        wanted = top_k if self.second is None else self.rerank_top
        matches, complete = self.first.search(asked, candidates, wanted, filter)
        seconds = {"search": time.perf_counter() - begin}
        if self.second is not None:
            begin = time.perf_counter()
            matches = [self.second.rerank(*each, top_k) for each in zip(asked, matches, strict=True)]
            seconds["rerank"] = time.perf_counter() - begin
        return Reranked(matches, complete, seconds)

    def decide(
        self, contexts: str | Iterable[str], options: Candidates, none: bool | float | None = None
    ) -> Decision | list[Decision]:
        """Choose an option, or none, as `Ranker.decide` does with these models.

        >>> Pipeline(ranker, cross, rerank_top=2).decide("hi", ["hello", "bye", "i ski"]).calibrated
        False
        """
        return self.first.decide(contexts, options, none, self.second, self.rerank_top)

    def calibrate(self, examples: Iterable[Mapping[str, Any]], candidates: Listed | None = None) -> Calibration:
        """Fit the probabilities of `decide`, as `Ranker.calibrate` does with these models.

        >>> examples = [{"context": f"{n} plus 1", "label": "more" if n % 3 else "less"} for n in range(100)]
        >>> Pipeline(ranker, cross, rerank_top=2).calibrate(examples).after.examples
        100
        """
        return self.first.calibrate(examples, candidates, self.second, self.rerank_top)
