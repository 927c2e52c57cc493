"""Which candidates score highest: an exact search that scans in low precision and decides in fp32.

The score of a poly-encoder is a weighted mean of the dot products d_i between a candidate and the m context vectors
(attention.py), so the largest d_i bounds it from above. A scan needs only that maximum, and it may be a rounded one, as
long as what rounding can have taken away is added again. Candidates whose bound reaches the k-th best score so far are
scored in fp32; all others are out, proven. A bi-encoder is the case m = 1, where the bound is the score.

Nothing here knows files: what is searched gives `blocks` of vectors, or, as a shortlist, the nearest to a vector.
"""

import functools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from polyagents.attention import bi_scores, poly_scores
from polyagents.shards import SHARD, Block, encoded

# Dot products held at once, B x M x C. Measured on two cores over a million candidates: 1 million takes 111 ms for one
# context, 2 to 8 million 100 to 107 ms. In fp32, 16 million are 64 MB.
SCAN_PRODUCTS = 4_000_000
BLOCK_PRODUCTS = 16_000_000
NARROWEST = 16  # context vectors; measured: one takes 11.1 ms over 100,000 x 768 in bf16, sixteen 6.5 ms
SCORED_AT_ONCE = 256  # candidates that are scored in fp32 before the bar is looked at again

# What may be lost, as a part of the whole: by rounding a product to bf16 (8 bits), by scanning only the upper half of
# a vector stored in fp32, and by sums of some thousand terms in fp32.
BF16_ROUNDING = 2.0**-7.9
BF16_STORED = 2.0**-8
FP32_SUMS = 2.0**-13


@dataclass(frozen=True)
class Query:
    """What is searched for: the encoded contexts.

    Attributes:
        vectors: [B, M, D] fp32; M is 1 for a bi-encoder.
        mask: [B, M], False for context vectors that a short text does not have.
        sharpness: multiplies the dot products inside the softmax.
    """

    vectors: Tensor
    mask: Tensor
    sharpness: float = 1.0

    def __len__(self) -> int:
        return self.vectors.size(0)

    def scores(self, candidates: Tensor) -> Tensor:
        """Candidates [C, D] -> [B, C] fp32."""
        if self.vectors.size(1) == 1:
            return bi_scores(self.vectors.squeeze(1), candidates)
        return poly_scores(self.vectors, self.mask, candidates, self.sharpness)

    def one(self, example: int) -> "Query":
        """The query of one context."""
        return Query(self.vectors[example : example + 1], self.mask[example : example + 1], self.sharpness)


def joined(queries: Sequence[Query]) -> Query:
    """Several, as one; what has fewer context vectors is filled up."""
    m = max(query.vectors.size(1) for query in queries)
    missing = [m - query.vectors.size(1) for query in queries]
    vectors = [functional.pad(query.vectors, (0, 0, 0, n)) for query, n in zip(queries, missing, strict=True)]
    masks = [functional.pad(query.mask, (0, n)) for query, n in zip(queries, missing, strict=True)]
    return Query(torch.cat(vectors), torch.cat(masks), queries[0].sharpness)


class Vectors(Protocol):
    """Candidate vectors that can be searched: a `CandidateStore`, or `HeldVectors`."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def blocks(self) -> Iterator[Block]:
        """All of them, some thousands at a time."""
        ...


class HeldVectors:
    """Vectors [C, D] fp32 in memory, in two halves (shards.encoded)."""

    def __init__(self, vectors: Tensor):
        upper, _, rest = encoded(vectors, "fp32")
        self.all = Block(0, upper, torch.linalg.vector_norm(vectors, dim=1), rest=rest)

    def __len__(self) -> int:
        return len(self.all.vectors)

    def blocks(self) -> Iterator[Block]:
        """All of them."""
        return self.all.split(SHARD)


@dataclass(frozen=True)
class Found:
    """The best candidates of each context, highest score first; among equals the lower index.

    Attributes:
        indices: [B, K].
        scores: [B, K] fp32.
    """

    indices: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, k: int) -> "Found":
        """All scores [B, C] -> the k best."""
        indices = np.stack([top_k(row, k) for row in scores])
        return cls(indices, np.take_along_axis(scores, indices, 1))


def score_all(query: Query, vectors: Vectors) -> Tensor:
    """Scores of every context with every candidate, [B, C] fp32; a deleted one has -inf."""
    rows = max(BLOCK_PRODUCTS // query.vectors[..., 0].numel(), 1)
    parts = []
    for block in blocks_on(vectors, query.vectors.device):
        for part in block.split(rows):
            scores = query.scores(part.exact(slice(None)))
            parts.append(scores if part.alive is None else scores.masked_fill(~part.alive, -torch.inf))
    return torch.cat(parts, dim=1)


def search(query: Query, vectors: Vectors, k: int) -> Found:
    """The k best candidates of every context, exactly those that `score_all` and a sort would find.

    Args:
        query: B contexts.
        vectors: C candidates.
        k: at most C are returned.
    """
    k = min(k, len(vectors))
    if k == 0:
        return Found(np.empty((len(query), 0), np.int64), np.empty((len(query), 0), np.float32))
    scan = Scan(query)
    best = [Best(k) for _ in range(len(query))]
    bars = torch.full((len(query),), -torch.inf, device=query.vectors.device)
    rows = max(SCAN_PRODUCTS // query.vectors[..., 0].numel(), 512)
    for block in blocks_on(vectors, query.vectors.device):
        for part in block.split(rows):
            bounds = scan.bounds(part)
            hopeful = ~(bounds < bars)  # a bound that is no number says nothing
            if part.alive is not None:
                hopeful &= part.alive.unsqueeze(1)
            for example in hopeful.any(0).nonzero().flatten().tolist():
                rest = hopeful[:, example].nonzero().flatten()
                bars[example] = best[example].take(part, rest, bounds[rest, example], query.one(example))
    return Found(np.stack([one.indices for one in best]), np.stack([one.scores for one in best]))


ON_DEVICE: weakref.WeakKeyDictionary[Vectors, list[Block]] = weakref.WeakKeyDictionary()


def blocks_on(vectors: Vectors, device: torch.device) -> Iterable[Block]:
    """The blocks on a device: a GPU keeps them from the first search on where they fit, else they pass through it."""
    if device.type != "cuda":
        return vectors.blocks()
    if vectors not in ON_DEVICE:
        blocks = list(vectors.blocks())
        size = sum(part.nbytes for block in blocks for part in block[1:] if part is not None)
        if size > 0.8 * torch.cuda.mem_get_info(device)[0]:
            return (block.to(device) for block in blocks)
        ON_DEVICE[vectors] = [block.to(device) for block in blocks]
    return ON_DEVICE[vectors]


class Best:
    """The k best candidates of one context among those met so far."""

    def __init__(self, k: int):
        self.k = k
        self.indices, self.scores = np.empty(0, np.int64), np.empty(0, np.float32)

    def take(self, block: Block, rows: Tensor, bounds: Tensor, query: Query) -> float:
        """Score candidates in fp32, those of the highest bounds first, until no other can be among the best.

        Args:
            block: where they are.
            rows: [r], which of its candidates.
            bounds: [r], what the score of each can be at most.
            query: of this context.

        Returns:
            The score that a candidate needs from now on.
        """
        while len(rows) > SCORED_AT_ONCE:
            first = bounds.topk(SCORED_AT_ONCE).indices
            self._score(block, rows[first], query)
            left = ~(bounds < self.bar)
            left[first] = False
            rows, bounds = rows[left], bounds[left]
        if len(rows):
            self._score(block, rows, query)
        return self.bar

    def _score(self, block: Block, rows: Tensor, query: Query) -> None:
        self.merge(rows.cpu().numpy() + block.start, query.scores(block.exact(rows))[0].cpu().numpy())

    @property
    def bar(self) -> float:
        """The k-th best score; -inf as long as there are fewer."""
        return float(self.scores[-1]) if len(self.scores) == self.k else -np.inf

    def merge(self, indices: np.ndarray, scores: np.ndarray) -> None:
        """Take these in, as far as they are among the best."""
        indices = np.concatenate([self.indices, indices])
        scores = np.concatenate([self.scores, np.where(np.isnan(scores), -np.inf, scores)])  # a diverged model's
        order = np.lexsort((indices, -scores))[: self.k]
        self.indices, self.scores = indices[order], scores[order]


class Lowered(NamedTuple):
    """Context vectors in a low precision.

    Attributes:
        vectors: [B, M, D].
        scales: [B]; a vector stands for itself times the scale of its context.
        lost: [B], how far a dot product can be off for a candidate of length 1 (Cauchy-Schwarz).
    """

    vectors: Tensor
    scales: Tensor
    lost: Tensor


class Scan:
    """Upper bounds of the scores, from one matrix product in the lowest precision that the machine is fast in."""

    def __init__(self, query: Query):
        vectors = query.vectors.float()
        # A vector that a short text does not have repeats its first one, which changes no maximum.
        self.vectors = torch.where(query.mask.unsqueeze(-1), vectors, vectors[:, :1])  # [B, M, D]
        self.longest = torch.linalg.vector_norm(self.vectors, dim=2).amax(1)  # [B]
        self.lowered: dict[torch.dtype, Lowered] = {}

    def bounds(self, block: Block) -> Tensor:
        """[n, B] fp32: no score of the block's candidates is higher."""
        kind = scan_precision(block.vectors)
        low = self._low(kind)
        products = multiply(block.vectors, low.vectors.flatten(0, 1))
        highest = products.unflatten(1, self.vectors.shape[:2]).amax(2).float()
        if kind == torch.int8:
            highest = highest * low.scales
        if kind == torch.bfloat16:
            highest = highest.add(highest.abs(), alpha=BF16_ROUNDING)
        if block.scales is not None:
            highest = highest * block.scales.unsqueeze(1)
        lost = low.lost if block.rest is None else low.lost + BF16_STORED * self.longest
        return torch.addcmul(highest, block.norms.unsqueeze(1), lost)

    def _low(self, kind: torch.dtype) -> Lowered:
        if kind not in self.lowered:
            scales = torch.ones_like(self.longest)
            if kind == torch.int8:
                scales = self.vectors.abs().amax((1, 2)) / 127
                divisor = torch.where(scales > 0, scales, 1.0)[:, None, None]
                low = (self.vectors / divisor).round().nan_to_num(0.0).to(kind)
            else:
                low = self.vectors.to(kind)
            error = torch.linalg.vector_norm(low.float() * scales[:, None, None] - self.vectors, dim=2).amax(1)
            self.lowered[kind] = Lowered(low, scales, error + FP32_SUMS * self.longest)
        return self.lowered[kind]


def multiply(candidates: Tensor, context: Tensor) -> Tensor:
    """Candidates [n, D] and context vectors [Q, D], these in the precision to multiply in -> [n, Q]."""
    asked = len(context)
    context = functional.pad(context, (0, 0, 0, max(NARROWEST - asked, 0)))
    if context.dtype == torch.int8:
        products = torch._int_mm(candidates, context.T)  # there is no public name for it
    else:
        products = candidates.to(context.dtype) @ context.T
    return products[:, :asked]


def scan_precision(stored: Tensor) -> torch.dtype:
    """The precision to scan stored vectors in: int8, bf16 or fp32."""
    if stored.device.type != "cpu":
        return torch.bfloat16  # holds an int8 exactly, too
    if stored.dtype == torch.int8 and has_int8():
        return torch.int8
    return torch.bfloat16 if has_bf16() else torch.float32


@functools.cache
def has_bf16() -> bool:
    """Whether this CPU multiplies in bf16; where it does not, torch converts, slower than fp32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@functools.cache
def has_int8() -> bool:
    """Whether this CPU multiplies in int8."""
    return bool(torch.cpu._is_vnni_supported())


def top_k(scores: np.ndarray, k: int, last: np.ndarray | None = None) -> np.ndarray:
    """Indices of the k highest scores, highest first; among equals the lower index.

    Args:
        scores: [C].
        k: at most C are returned.
        last: [C] bool, candidates that come after all others of the same score (a label must not win a tie by luck).
    """
    scores = np.where(np.isnan(scores), -np.inf, scores)  # a diverged model's scores come last
    k = min(k, len(scores))
    if k < len(scores):
        threshold = np.partition(scores, -k)[-k]
        index = np.flatnonzero(scores >= threshold)  # all that tie with the k-th are still in
    else:
        index = np.arange(len(scores))
    tie_break = np.zeros(len(index), bool) if last is None else last[index]
    return index[np.lexsort((index, tie_break, -scores[index]))][:k]
