"""Long computations in pieces, between which the caller may do something else."""

from collections.abc import Generator, Sequence
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""A computation: it yields after each piece but the last, and returns its result."""


def finished(steps: Steps[Result]) -> Result:
    """Compute all pieces, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def pieces(lengths: Sequence[int], tokens: int) -> list[Sequence[int]]:
    """Return the places of texts in pieces of similar length, with little padding; few texts stay in their order.

    Args:
        lengths: the tokens of each text.
        tokens: how many a piece may have; it has one text at least.
    """
    if sum(lengths) <= tokens:
        return [range(len(lengths))] if lengths else []
    found: list[list[int]] = []
    left = 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        left -= lengths[place]
        if left < 0 or not found:
            found.append([])
            left = tokens - lengths[place]
        found[-1].append(place)
    return list(found)
