"""Computes what an index of some candidates takes: disk, memory, and the times of a build, a start and a query.

Bytes are counted as the files have them. Times are laws that were fitted to measured indexes on one machine.
"""

from dataclasses import dataclass
from typing import NamedTuple

from polyagents.index.faiss_index import HNSW_LINKS, PQ_NUMBERS, clusters

# In the place of texts that are not given: 60 bytes.
TEXT = "yes , i like to walk by the sea with my two dogs every day ."


class Law(NamedTuple):
    """A time as a product of powers: at a million candidates of width 384, and how it grows with both."""

    at_a_million: float
    by_candidates: float
    by_width: float

    def __call__(self, candidates: int, width: int) -> float:
        """Compute the time for a size."""
        return float(self.at_a_million * (candidates / 1e6) ** self.by_candidates * (width / 384) ** self.by_width)


class Rates(NamedTuple):
    """The times of a kind of index, without encoding and without the model.

    Attributes:
        build: seconds to write vectors and texts, and to make the approximate index.
        start: seconds to open it, from files that are in the system's cache.
        query: ms to find the best 10 for a context of one vector.
        recall: the share of the exact search's best 10 that it finds, over a million drawn vectors.
    """

    build: Law
    start: Law
    query: Law
    recall: float


# Measured by python -m polyagents.benchmarks.sizes with one thread of an AMD EPYC with VNNI (docs/scale.md).
RATES = {
    "exact": Rates(Law(12.8, 1.04, 1.48), Law(0.036, 0.90, 0.31), Law(140, 1.04, 1.19), 1.0),
    "hnsw": Rates(Law(937, 1.29, 1.17), Law(2.14, 1.26, 0.47), Law(9.30, 0.18, 0.35), 0.941),
    "ivfpq": Rates(Law(134, 0.97, 1.22), Law(0.149, 0.62, 1.10), Law(6.44, 0.38, 0.43), 0.827),
}
SOURCE = (
    "Bytes are computed from the format. Times are computed for one thread of an AMD EPYC, from indexes of 100,000 to "
    "5 million drawn vectors in bf16 that were measured there (docs/scale.md): ms for a context of one vector, builds "
    "without encoding, starts without the model. Recall is that over a million."
)
PROCESS = 204e6  # bytes of a process with torch, but without a model or candidates; measured as the laws were


@dataclass(frozen=True)
class Plan:
    """An index that is not there yet.

    Attributes:
        index_type: exact, hnsw or ivfpq.
        row_bytes: of a candidate in a shard (shard.py: `row_bytes`).
        model_bytes: of the weights that a process holds.
    """

    candidates: int
    width: int
    index_type: str
    row_bytes: float
    model_bytes: int = 0

    @property
    def faiss_bytes(self) -> float:
        """The size of the approximate index, which is the same in a file and in memory."""
        if self.index_type == "hnsw":
            # Links of the lowest layer, of all above it, the layer and the place of the links; a vector in fp16.
            above = 4 * HNSW_LINKS / (HNSW_LINKS - 1)
            return self.candidates * (2 * self.width + 2 * 4 * HNSW_LINKS + above + 4 + 8)
        if self.index_type == "ivfpq":
            codes, lists = self.width / PQ_NUMBERS / 2, clusters(self.candidates)
            # Codes and places, lists that are filled up to a multiple of 32, centres of clusters, and the code book.
            filled = 32 / 2 * codes + 8
            return self.candidates * (codes + 8) + lists * (4 * self.width + filled) + 16 * 4 * self.width
        return 0

    def figures(self) -> dict[str, float]:
        """Compute the figures of a table, by name."""
        rates, shards = RATES[self.index_type], self.candidates * self.row_bytes
        return {
            "disk MB": (shards + self.faiss_bytes) / 1e6,
            "own MB": (PROCESS + self.model_bytes + self.faiss_bytes) / 1e6,
            "shared MB": shards / 1e6,
            "start s": rates.start(self.candidates, self.width),
            "build s": rates.build(self.candidates, self.width),
            "ms": rates.query(self.candidates, self.width),
            "recall@10": rates.recall,
        }
