"""Approximate search: FAISS gives a shortlist of candidates, whose scores are then computed in fp32.

One vector per candidate is indexed, whatever the architecture. A poly-encoder's context asks with its m vectors (those
that lie close together ask once), and what any of them finds is scored. A candidate outside all m lists has no dot
product above the last of its list, and the architecture bounds its score by the largest of these last values. Where
the k-th best score reaches that bound, longer lists would change nothing: the answer is exact if the lists lack
nothing. FAISS's may: how much is measured, when it is built, against the exact search.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from polyagents.index.exact import Best, search
from polyagents.index.store import CandidateStore
from polyagents.index.top_k import TopCandidates
from polyagents.models.query import Query

NEAR = 0.1  # of their mean length: context vectors that close ask together


class Shortlist(Protocol):
    """What finds the nearest vectors by inner product: FAISS here, or a vector database.

    Attributes:
        length: of a list that is long enough for the best 10.
    """

    length: int

    def nearest(self, vectors: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Vectors [Q, D] -> dot products [Q, count], as it knows them, and indices; -1 where there are no more."""
        ...


def search_shortlist(
    query: Query, shortlist: Shortlist, store: CandidateStore, k: int
) -> tuple[TopCandidates, list[bool]]:
    """The k best candidates of every context among those that a shortlist finds.

    Returns:
        What was found, and for each context whether the stop rule held: longer lists would not change it.
    """
    k = min(k, len(store))
    indices, scores, complete = [], [], []
    for example in range(len(query)):
        mine, done = search_one(query.one(example), shortlist, store, k)
        found = TopCandidates(mine.indices[None], mine.scores[None])
        if len(mine.indices) < k:  # most of what is near was deleted, or the clusters looked into are small
            found, done = search(query.one(example), store, k), True
        indices.append(found.indices[0])
        scores.append(found.scores[0])
        complete.append(done)
    return TopCandidates(np.stack(indices), np.stack(scores)), complete


def search_one(query: Query, shortlist: Shortlist, store: CandidateStore, k: int) -> tuple[Best, bool]:
    """The best candidates of one context, and whether the stop rule held."""
    vectors = query.context.vectors[0][query.context.mask[0]].float().cpu()  # [m, D]
    asking, stand_in = representatives(vectors)
    values, lists = shortlist.nearest(vectors[asking], min(max(shortlist.length, 2 * k), store.slots))  # [q, n]
    members = np.unique(lists[lists >= 0])
    rows = store.rows(members)
    alive = ~np.isin(members, store.deleted)
    best = Best(k)
    if not len(members):  # the context's vectors are no numbers; exact search answers for it
        return best, False
    best.merge(members[alive], query.scores(rows.to(query.device))[0].cpu().numpy()[alive])

    products = (vectors @ rows.T).numpy()  # [m, members]
    place = np.searchsorted(members, lists.clip(min=0))
    there = lists >= 0
    # What a candidate outside of the lists can be better than their last values say, as far as it is seen within them:
    # by the rounding of the shortlist (ivfpq keeps an eighth of a byte a number), ...
    rounded = np.where(there, np.take_along_axis(products[asking], place, 1) - values, 0.0).max(1).clip(min=0.0)
    last = np.where(there, values, np.inf).min(1) + rounded  # [q]
    # ... and for a context vector that did not ask, by what it differs from the one that asked for it.
    differs = (products - products[asking][stand_in]).max(1)  # [m]
    outside = torch.tensor([[(last[stand_in] + differs).max()]], dtype=torch.float32, device=query.device)
    bound = query.scorer.upper_bound(outside)  # None: only lists of all candidates lack nothing
    return best, len(members) == store.slots or (bound is not None and best.bar >= float(bound))


def representatives(vectors: Tensor) -> tuple[list[int], np.ndarray]:
    """Which of m context vectors ask for all of them: the farthest from those chosen so far, until none is far.

    Learnt codes give vectors that lie close together, and ask for the same candidates.

    Args:
        vectors: [m, D].

    Returns:
        Places of those that ask, and [m], which of these asks for each vector.
    """
    near = NEAR * float(torch.linalg.vector_norm(vectors, dim=1).mean())
    distances = torch.cdist(vectors, vectors)
    asking = [int(distances.sum(1).argmin())]
    while float((nearest := distances[asking].min(0)).values.max()) > near:
        asking.append(int(nearest.values.argmax()))
    return asking, nearest.indices.numpy()
