"""Approximate search: FAISS gives a shortlist of candidates, whose scores are then computed in fp32.

One vector per candidate is indexed, whatever the architecture. A poly-encoder's context asks with its m vectors (those
that lie close together ask once), and what any of them finds is scored. A candidate outside all m lists has no dot
product above the last of its list, and the architecture bounds its score by the largest of these last values. Where
the k-th best score reaches that bound, longer lists would change nothing: the answer is exact if the lists lack
nothing. FAISS's may: how much is measured, when it is built, against the exact search.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from polyagents.index.exact import Best, search
from polyagents.index.top_k import TopCandidates
from polyagents.models.two_towers import Query
from polyagents.surroundings import undisturbed

if TYPE_CHECKING:
    from polyagents.index.store import CandidateStore

# How many candidates an exact search scans while a graph of a million adds one to a list. A filter lengthens lists, and
# is left to the exact search if that is then faster.
SCANNED = 60
NEAR = 0.1  # times their mean length: context vectors that are this close share one search


class Found(NamedTuple):
    """The nearest candidates of q vectors.

    Attributes:
        products: [q, n] dot products, descending, as precise as the source has them.
        lists: [q, n] ids of candidates; -1 where a list is shorter.
        members: [r] ids, ascending: all that are in the lists, each once, as far as they still exist.
        vectors: [r, D] fp32, of the members.
        texts: of the members, by id, if an engine sent them; otherwise `Collection.texts` is asked for a few of them.
        alive: [r], False where a member was deleted and must not be found; None if none was, and of an engine.
        are_all: whether the members are all candidates there are; not set by an engine.
    """

    products: np.ndarray
    lists: np.ndarray
    members: np.ndarray
    vectors: Tensor
    texts: Mapping[int, str] | None = None
    alive: np.ndarray | None = None
    are_all: bool = False


Nearest = Callable[[Tensor, int], Found]
"""Finds the candidates nearest to vectors [q, D], in lists long enough for the best k candidates."""


class Shortlist(Protocol):
    """An index of vectors that knows only their places: FAISS. A list of its `length` suffices for the best 10."""

    length: int

    def nearest(self, vectors: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return dot products [Q, count], with the index's rounding, and indices; -1 if there are no more."""
        ...


def nearest_in(
    store: "CandidateStore",
    shortlist: Shortlist,
    allowed: np.ndarray | None,
    share: float,
    vectors: Tensor,
    k: int,
) -> Found:
    """Find candidates of a store by its shortlist, as `Nearest`.

    Args:
        allowed: [C], which candidates may be found; None for all.
        share: of the candidates, that may be found.
    """
    count = min(int(max(shortlist.length, 2 * k) / share), store.slots)
    if allowed is not None and len(vectors) * count * SCANNED > store.slots:
        none = np.empty((len(vectors), 0), np.int64)  # too few, so that the caller searches exactly
        return Found(none, none, none[0], torch.empty(0, store.width))
    products, lists = shortlist.nearest(vectors, count)
    members = np.unique(lists[lists >= 0])
    alive = ~np.isin(members, store.deleted) if allowed is None else allowed[members]
    are_all = len(members) == store.slots
    return Found(products, lists, members, store.rows(members), alive=alive, are_all=are_all)


@undisturbed()
def search_shortlist(
    query: Query, shortlist: Shortlist, store: "CandidateStore", k: int, allowed: np.ndarray | None = None
) -> tuple[TopCandidates, list[bool]]:
    """Find the k best candidates of every context among those that a shortlist of the store's vectors finds.

    A filter lengthens the lists, so that as many are left of them as without it. A context is searched exactly if that
    is faster, or if the stop rule does not hold.

    Args:
        allowed: [C], False for a candidate that must not be found, deleted or not; None for all that are not deleted.

    Returns:
        The candidates, and for each context whether the stop rule held: longer lists would not change it.
    """
    if allowed is not None and not allowed.any():
        return search(query, store, k, allowed), [True] * len(query)
    k = min(k, len(store) if allowed is None else int(allowed.sum()))
    share = 1.0 if allowed is None else float(allowed.mean())  # reads all of it, so once for all contexts
    nearest = functools.partial(nearest_in, store, shortlist, allowed, share)
    indices, scores, complete = [], [], []
    for example in range(len(query)):
        mine, done, _ = search_one(query.one(example), nearest, k)
        found = TopCandidates(mine.indices[None], mine.scores[None])
        # Most neighbours were deleted, or the searched clusters are small; or a filter left too few.
        if len(mine.indices) < k or (allowed is not None and not done):
            found, done = search(query.one(example), store, k, allowed), True
        indices.append(found.indices[0])
        scores.append(found.scores[0])
        complete.append(done)
    return TopCandidates(np.stack(indices), np.stack(scores)), complete


@undisturbed()
def search_one(query: Query, nearest: Nearest, k: int) -> tuple[Best, bool, Found]:
    """Find the best candidates of one context among its neighbours, whether the stop rule held, and the neighbours."""
    vectors = query.context.vectors[0][query.context.mask[0]].float().cpu()  # [m, D]
    asking, stand_in = representatives(vectors)
    found = nearest(vectors[asking], k)
    lists, members, rows = found.lists, found.members, found.vectors
    best = Best(k)
    if not len(members):  # there is none, or the context's vectors are not finite
        return best, found.are_all, found
    # Members are scored in fp32 by the formula itself; the lists have only decided which candidates those are.
    alive = slice(None) if found.alive is None else found.alive
    best.merge(members[alive], query.scores(rows.to(query.device))[0].cpu().numpy()[alive])

    # The stop rule: how high can a candidate outside of all lists score? Exact products of the members say how far the
    # lists' own are off. `place` is where in `members` each entry of a list is; padding, -1, points anywhere.
    products = (vectors @ rows.T).numpy()  # [m, members]
    place = np.searchsorted(members, lists.clip(min=0))
    there = lists >= 0
    # A list ends with its smallest value, and nothing outside of it is larger, except ...
    # ... by the rounding of the shortlist (ivfpq keeps an eighth of a byte a number), the largest seen in the list, ...
    rounded = np.where(there, np.take_along_axis(products[asking], place, 1) - found.products, 0.0).max(1).clip(min=0.0)
    last = np.where(there, found.products, np.inf).min(1) + rounded  # [q]
    # ... and for a context vector that did not ask, by its difference from the one that asked for it.
    differs = (products - products[asking][stand_in]).max(1)  # [m]
    outside = torch.tensor([[(last[stand_in] + differs).max()]], dtype=torch.float32, device=query.device)
    # A bound never falls where the product rises, so the largest product's bound holds for all that is outside.
    bound = query.scorer.upper_bound(outside)  # None: only lists of all candidates are complete
    return best, found.are_all or (bound is not None and best.bar >= float(bound)), found


def representatives(vectors: Tensor) -> tuple[list[int], np.ndarray]:
    """Select the context vectors [m, D] that ask for all: the farthest from those chosen so far, until none is far.

    Learnt codes give vectors that are close together, and ask for the same candidates.

    Returns:
        The places of those that ask, and [m], the one of these that asks for each vector.
    """
    near = NEAR * float(torch.linalg.vector_norm(vectors, dim=1).mean())
    distances = torch.cdist(vectors, vectors)
    asking = [int(distances.sum(1).argmin())]
    while float((nearest := distances[asking].min(0)).values.max()) > near:
        asking.append(int(nearest.values.argmax()))
    return asking, nearest.indices.numpy()
