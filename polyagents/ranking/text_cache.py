"""What an encoder made of candidates, kept for the next time."""

from collections.abc import Callable, Sequence

from torch import Tensor


class TextCache:
    """Results of candidates that were encoded before, valid until the weights change.

    In an evaluation the same replies occur as distractors many times (each about 20 times on ConvAI2).

    Several threads may use it. There is no lock: a candidate that is new to two of them is encoded twice, and a thread
    keeps the dictionary that it began with when another one clears it.
    """

    # Bytes after which the cache is cleared: 150,000 vectors of width 384, several times the distinct replies of
    # ParlAI's tasks, or the states of 12,000 replies. Without a limit, the candidates of requests to a server would
    # fill the memory.
    LIMIT = 300_000_000

    def __init__(
        self, encode: Callable[[Sequence[tuple[int, ...]]], Sequence[Tensor] | Tensor], version: Callable[[], object]
    ):
        """Start empty; `version` returns another value as soon as `encode` would return other results."""
        self.encode, self.version = encode, version
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.size = 0
        self.encoded_by: object = None

    def of(self, candidates: Sequence[tuple[int, ...]]) -> list[Tensor]:
        """Return the results of token ids of U candidates, and encode those that are new."""
        if (version := self.version()) != self.encoded_by:
            self.clear()
            self.encoded_by = version
        known = self.known
        new = [ids for ids in dict.fromkeys(candidates) if ids not in known]
        if new and self.size > self.LIMIT:
            self.clear()
            known, new = self.known, list(dict.fromkeys(candidates))
        if new:
            for ids, encoded in zip(new, self.encode(new), strict=True):
                known[ids] = encoded
                self.size += encoded.nbytes + 100 + 36 * len(ids)  # an object and a pointer for each id
        return [known[ids] for ids in candidates]

    def clear(self) -> None:
        """Discard all results."""
        self.known, self.size = {}, 0
