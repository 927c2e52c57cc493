"""The exact search over vectors that are all on one device, for GPUs: few large steps, and one look at the results.

A search on a CPU looks at the bar, the k-th best score so far, after each block, and scans no further than it must. On
a GPU each look waits for all work that was begun (2,367 looks for 64 contexts over 100,000 candidates). Here
the bounds of all candidates are computed, the highest of them are scored in fp32, and only then it is decided for which
contexts that proves the answer: no other candidate's bound reaches the k-th best score. The others are left to the
search of exact.py.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyagents.index.scan import Scan
from polyagents.index.stored_vectors import VectorBlock
from polyagents.index.top_k import TopCandidates
from polyagents.models.two_towers import Query

SCANNED = 64_000_000  # dot products at once, B x M x C: 256 MB in fp32
SCORED = 512  # candidates of each context that are scored, besides four for each of the k: some dozens have to be
GATHERED = 64_000_000  # numbers of their vectors at once


@dataclass(frozen=True)
class Resident(TopCandidates):
    """The best candidates that were found.

    Attributes:
        is_proven: [B], whether these are the best ones of each context.
    """

    is_proven: np.ndarray


def search_resident(query: Query, block: VectorBlock, k: int) -> Resident | None:
    """Find the k best candidates of every context in a block of all; k or more are not deleted.

    Returns:
        The candidates; None if the architecture knows no bound, or k is too large for the memory.
    """
    count, width = block.vectors.shape
    taken = min(SCORED + 4 * k, count)
    together = GATHERED // (taken * width)  # contexts
    highest = highest_bounds(query, block, min(taken + 1, count)) if together else None
    if highest is None:
        return None
    bounds, places = highest  # [B, taken + 1], highest bound first
    next_bound = bounds[:, taken] if taken < count else torch.full_like(bounds[:, 0], -torch.inf)
    places = places[:, :taken]
    parts = [slice(start, start + together) for start in range(0, len(query), together)]
    chunks = []
    for part in parts:  # each context scores its own candidates, since another's bounds say nothing about them
        vectors = block.exact(places[part].flatten()).unflatten(0, places[part].shape)
        own = query.scorer.score(query.context.rows(part), vectors)
        chunks.append(own.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf))
    scores = torch.cat(chunks)
    if block.alive is not None:  # a deleted one is among the highest if fewer are left than are taken
        scores = scores.masked_fill(~block.alive[places], -torch.inf)
    # In one copy: each of them would wait for the GPU.
    found = torch.cat([scores.double(), places.double(), next_bound.double().unsqueeze(1)], dim=1).cpu().numpy()
    scores_there, places_there, bar = found[:, :taken], found[:, taken:-1].astype(np.int64), found[:, -1]
    order = np.lexsort((places_there, -scores_there), axis=1)[:, :k]
    best = np.take_along_axis(scores_there, order, 1).astype(np.float32)
    # Proven only if the k-th score is above the next bound: at equality an unscored candidate might win the tie.
    return Resident(np.take_along_axis(places_there, order, 1) + block.start, best, best[:, -1] > bar)


def highest_bounds(query: Query, block: VectorBlock, count: int) -> tuple[Tensor, Tensor] | None:
    """Find the highest bounds of scores and their places in the block, both [B, count]; None if there are none."""
    scan, best = Scan(query.context), None
    for part in block.split(max(SCANNED // query.products, 512)):
        bounds = query.scorer.upper_bound(scan.largest_products(part))
        if bounds is None:
            return None
        bounds = bounds.T.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)  # NaN says nothing
        if part.alive is not None:
            bounds = bounds.masked_fill(~part.alive, -torch.inf)
        highest = bounds.topk(min(count, bounds.size(1)))
        found = highest.values, highest.indices + (part.start - block.start)
        if best is not None:  # the highest of two parts are the highest of their own highest
            both = [torch.cat(pair, dim=1) for pair in zip(best, found, strict=True)]
            kept = both[0].topk(min(count, both[0].size(1)))
            found = kept.values, both[1].gather(1, kept.indices)
        best = found
    return best


def joined_blocks(blocks: list[VectorBlock], device: torch.device) -> VectorBlock:
    """Copy one block or more, which follow one another, to a device as one, without having any of them there twice."""
    count = sum(len(block.vectors) for block in blocks)
    columns: list[Tensor | None] = []
    for parts in zip(*(block.columns for block in blocks), strict=True):
        given = [part for part in parts if part is not None]
        if not given:
            columns.append(None)
            continue
        column = torch.ones((count, *given[0].shape[1:]), dtype=given[0].dtype, device=device)
        for block, part in zip(blocks, parts, strict=True):
            if part is not None:  # only `alive` may be missing in some of them: there, nothing was deleted
                column[block.start - blocks[0].start :][: len(part)] = part.to(device)
        columns.append(column)
    return VectorBlock(blocks[0].start, *columns)  # type: ignore[arg-type]
