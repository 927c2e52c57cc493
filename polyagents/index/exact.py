"""An exact search for the candidates of the highest scores, which scans in low precision and decides in fp32.

The architecture bounds a score by the largest dot product of a candidate with the context vectors: a poly-encoder's
score is a weighted mean of them (formulas.py), a bi-encoder's the only one. A scan needs only that product, and it may
be a rounded one, as long as the largest possible rounding error is added. Candidates whose bound reaches the k-th best
score so far are scored in fp32; all others are provably worse. If an architecture has no bound, every candidate is
scored.

Nothing here knows files: what is searched gives `blocks` of vectors.
"""

import weakref
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from polyagents.index.filters import Filter
from polyagents.index.interface import Hits, Index
from polyagents.index.resident import joined_blocks, search_resident
from polyagents.index.scan import Scan
from polyagents.index.stored_vectors import VectorBlock
from polyagents.index.top_k import TopCandidates
from polyagents.models.two_towers import PRODUCTS, Query
from polyagents.surroundings import undisturbed

# Dot products held at once, B x M x C. Measured on two cores over a million candidates: 1 million takes 111 ms for one
# context, 2 to 8 million 100 to 107 ms.
SCAN_PRODUCTS = 4_000_000
# The share of candidates below which those that a filter leaves are gathered, not scanned with all others.
FEW = 0.05
SCORED_AT_ONCE = 256  # candidates that are scored in fp32 before the bar is looked at again


class Vectors(Protocol):
    """Candidate vectors that can be searched, as a `ScannedIndex` has them."""

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[VectorBlock]:
        """Yield all vectors, some thousands at a time."""
        ...

    def rows(self, indices: Sequence[int] | np.ndarray) -> Tensor:
        """Return some of the vectors, [r, D] fp32, in the order of the indices."""
        ...


@undisturbed()
def score_all(query: Query, vectors: Vectors) -> Tensor:
    """Score every candidate for every context: [B, C] fp32; a deleted candidate has -inf."""
    rows = max(PRODUCTS // query.products, 1)
    parts = []
    for block in blocks_on(vectors, query.device):
        for part in block.split(rows):
            scores = query.scores(part.exact(slice(None)))
            parts.append(scores if part.alive is None else scores.masked_fill(~part.alive, -torch.inf))
    return torch.cat(parts, dim=1)


@undisturbed()
def search(query: Query, vectors: Vectors, k: int, allowed: np.ndarray | None = None) -> TopCandidates:
    """Find the k best candidates of every context, exactly those that `score_all` and a sort would find.

    If only a few are allowed, they are gathered and scored; more are scanned with the others, as if those were deleted.

    Args:
        allowed: [C], False for a candidate that must not be found, deleted or not; None for all that are not deleted.
    """
    count = len(vectors) if allowed is None else int(allowed.sum())
    k = min(k, count)
    if k == 0:
        return TopCandidates(np.empty((len(query), 0), np.int64), np.empty((len(query), 0), np.float32))
    if allowed is not None and count < FEW * len(allowed):
        return search_few(query, vectors, k, np.flatnonzero(allowed))
    # A GPU holds all vectors and ranks them in one go. Its rounding may hide one of the best: a context for which that
    # cannot be ruled out is searched again, with bounds.
    there = resident(vectors, query.device)
    if there is not None and allowed is not None:
        there = with_alive(there, allowed)
    found = None if there is None else search_resident(query, there, k)
    if found is None:
        return search_blocks(query, vectors, k, allowed)
    for example in np.flatnonzero(~found.is_proven).tolist():
        one = search_blocks(query.one(example), vectors, k, allowed)
        found.indices[example], found.scores[example] = one.indices[0], one.scores[0]
    return found


def search_few(query: Query, vectors: Vectors, k: int, places: np.ndarray) -> TopCandidates:
    """Find the k best candidates of every context among those at some places, which are gathered and scored."""
    rows = max(PRODUCTS // query.products, 1)
    best = [Best(k) for _ in range(len(query))]
    for start in range(0, len(places), rows):
        some = places[start : start + rows]
        scores = query.scores(vectors.rows(some).to(query.device)).cpu().numpy()
        for one, row in zip(best, scores, strict=True):
            one.merge(some, row)
    return TopCandidates(np.stack([one.indices for one in best]), np.stack([one.scores for one in best]))


def search_blocks(query: Query, vectors: Vectors, k: int, allowed: np.ndarray | None = None) -> TopCandidates:
    """Find the k best (1 to C) candidates of every context, one block after the other, with a bar that rises."""
    scan = Scan(query.context)
    best = [Best(k) for _ in range(len(query))]
    bars = torch.full((len(query),), -torch.inf, device=query.device)
    rows = max(SCAN_PRODUCTS // query.products, 512)  # fewer would leave the time to Python
    for block in blocks_on(vectors, query.device, allowed):
        for part in block.split(rows):
            bounds = query.scorer.upper_bound(scan.largest_products(part))  # [n, B], of scores
            if bounds is None:  # of no block: the architecture has none, and every candidate may be among the best
                scores = score_all(query, vectors).cpu().numpy()
                if allowed is not None:
                    scores[:, ~allowed] = -np.inf
                return TopCandidates.of(scores, k)
            # Not `bounds >= bars`: a bound that is not a number says nothing, so its candidate is scored. A candidate
            # that could only tie is scored as well, since among equal scores the lower index wins.
            hopeful = ~(bounds < bars)
            if part.alive is not None:
                hopeful &= part.alive.unsqueeze(1)
            # The bar rises with what is scored here, so that the next part has fewer hopeful candidates.
            for example in hopeful.any(0).nonzero().flatten().tolist():
                rest = hopeful[:, example].nonzero().flatten()
                bars[example] = best[example].take(part, rest, bounds[rest, example], query.one(example))
    return TopCandidates(np.stack([one.indices for one in best]), np.stack([one.scores for one in best]))


# By index, weakly: an index that nobody uses any more does not keep a GPU's memory.
ON_DEVICE: weakref.WeakKeyDictionary[Vectors, dict[torch.device, VectorBlock]] = weakref.WeakKeyDictionary()


def resident(vectors: Vectors, device: torch.device) -> VectorBlock | None:
    """Return all vectors as one block, kept on a GPU from the first search on; None on a CPU, or if they do not fit."""
    if device.type != "cuda":
        return None
    kept = ON_DEVICE.setdefault(vectors, {})
    if device not in kept:
        blocks = list(vectors.blocks())
        size = sum(part.nbytes for block in blocks for part in block.columns if part is not None)
        # The rest is for the products and scores of searches.
        if size > 0.8 * torch.cuda.mem_get_info(device)[0]:
            return None
        kept[device] = joined_blocks(blocks, device)
    return kept[device]


def blocks_on(vectors: Vectors, device: torch.device, allowed: np.ndarray | None = None) -> Iterator[VectorBlock]:
    """Yield the blocks on a device; those in which no candidate is allowed are left out."""
    there = resident(vectors, device)
    for block in vectors.blocks() if there is None else [there]:
        if allowed is None or allowed[block.start : block.start + len(block.vectors)].any():
            block = block if device.type == "cpu" else block.to(device)
            yield block if allowed is None else with_alive(block, allowed)


def with_alive(block: VectorBlock, allowed: np.ndarray) -> VectorBlock:
    """Return a block in which those are alive that are allowed [C]."""
    alive = torch.from_numpy(allowed[block.start : block.start + len(block.vectors)])
    return block._replace(alive=alive.to(block.vectors.device))


class Best:
    """The k best candidates of one context among those scored so far."""

    def __init__(self, k: int):
        self.k = k
        self.indices, self.scores = np.empty(0, np.int64), np.empty(0, np.float32)

    def take(self, block: VectorBlock, rows: Tensor, bounds: Tensor, query: Query) -> float:
        """Score candidates in fp32, the highest bounds first, until no other can be among the best, and return the bar.

        Args:
            rows: [r], their places in the block.
            bounds: [r], an upper bound of the score of each.
        """
        while len(rows):
            # The most promising first: they raise the bar, which most of the others then do not reach.
            first = bounds.topk(SCORED_AT_ONCE).indices if len(rows) > SCORED_AT_ONCE else slice(None)
            some = rows[first]
            self.merge(some.cpu().numpy() + block.start, query.scores(block.exact(some))[0].cpu().numpy())
            if len(some) == len(rows):
                break
            left = ~(bounds < self.bar)  # NaN stays, as above
            left[first] = False
            rows, bounds = rows[left], bounds[left]
        return self.bar

    @property
    def bar(self) -> float:
        """Return the k-th best score; -inf as long as there are fewer."""
        return float(self.scores[-1]) if len(self.scores) == self.k else -np.inf

    def merge(self, indices: np.ndarray, scores: np.ndarray) -> None:
        """Add n candidates, as far as they are among the best."""
        indices = np.concatenate([self.indices, indices])
        scores = np.concatenate([self.scores, np.where(np.isnan(scores), -np.inf, scores)])  # a diverged model's
        order = np.lexsort((indices, -scores))[: self.k]  # lexsort's last key decides first
        self.indices, self.scores = indices[order], scores[order]


class ScannedIndex(Index):
    """An index whose vectors can be scanned, so that a search is exact."""

    @abstractmethod
    def blocks(self) -> Iterator[VectorBlock]:
        """Yield all vectors, some thousands at a time."""

    @abstractmethod
    def rows(self, indices: Sequence[int] | np.ndarray) -> Tensor:
        """Return some of the vectors, [r, D] fp32, in the order of the indices."""

    @abstractmethod
    def mask(self, where: Filter) -> np.ndarray:
        """Tell which candidates are not deleted and meet the conditions: [C] boolean."""

    def search(self, query: Query, k: int, where: Filter | None = None) -> list[Hits]:
        """Find the k best candidates of each of B contexts."""
        return self.hits(search(query, self, k, None if where is None else self.mask(where)))

    def scores(self, query: Query) -> Tensor:
        """Score every candidate for every context: [B, C] fp32, -inf for a removed one."""
        return score_all(query, self)

    def close(self) -> None:
        """Release files and memory, a GPU's as well."""
        ON_DEVICE.pop(self, None)
        super().close()
