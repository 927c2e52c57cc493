"""ParlAI's metrics of values that are still on a device: they are read when ParlAI reports, and not at every step."""

from typing import Any, NamedTuple

from parlai.core.metrics import AverageMetric
from parlai.core.torch_generator_agent import PPLMetric

from polyagents.training.late_values import LateValues, read_all

UNREAD = 50_000  # terms of a sum that nobody asks for; then it is computed all the same, so that memory does not grow


class Term(NamedTuple):
    """A value of a batch."""

    values: LateValues
    name: str
    row: int


class LateAverage(AverageMetric):
    """An AverageMetric whose values are read when somebody asks for the average.

    A sum has a list of its terms, of which it owns the first ones; the next sum appends to that list, so adding costs
    the same however long the list is.
    """

    plain: type[AverageMetric] = AverageMetric

    def __init__(self, term: Term, denom: float = 1):
        self._terms, self._count, self._known, self._denom = [term], 1, 0.0, denom

    def __add__(self, other: AverageMetric | None) -> AverageMetric:
        if other is None:
            return self
        is_one = isinstance(other, LateAverage) and other._count == 1 and other._known == 0
        if not is_one or self._count >= UNREAD:
            return self.plain(self._numer + other._numer, self._denom + other._denom)
        total = type(self).__new__(type(self))
        total._terms = self._terms if len(self._terms) == self._count else self._terms[: self._count]
        total._terms.append(other._terms[0])
        total._count, total._known, total._denom = self._count + 1, self._known, self._denom + other._denom
        return total

    @property
    def _numer(self) -> float:  # AverageMetric's, which value() divides by _denom
        if self._count:
            terms = self._terms[: self._count]
            read_all(term.values for term in terms)
            self._known += sum(values[name][row] for values, name, row in terms)
            self._terms, self._count = [], 0
        return self._known

    def __reduce__(self) -> Any:  # how processes send their reports to each other
        return self.plain, (self._numer, self._denom)


class LatePerplexity(LateAverage, PPLMetric):
    """A PPLMetric, e to the power of an average, of the same kind."""

    plain = PPLMetric


def each_of(values: LateValues, count: int) -> dict[str, list[AverageMetric | None]]:
    """Return a metric for each of a batch's `count` examples, by name."""
    return {name: [LateAverage(Term(values, name, row)) for row in range(count)] for name in values}
