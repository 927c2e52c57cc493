"""Random rankings with ties, for tests of what is measured of them."""

import numpy as np

from polyagents.evaluation.judged import Judged


def rankings(seed, count=60, most=30, values=8):
    """Examples of 1 to `most` candidates, of which some are right and many have the same score."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        size = int(draw.integers(1, most + 1))
        right = draw.random(size) < 0.2
        right[draw.integers(size)] = True
        scores = draw.integers(0, values, size).astype(np.float32) - np.float32(values / 2)
        found.append(Judged(np.sort(draw.permutation(2 * most)[:size]), scores, right))
    return found


def obvious_ranks(judged):
    """The ranks of the right answers by a sort in which they lose every tie."""
    order = sorted(range(len(judged)), key=lambda i: (-judged.scores[i], bool(judged.right[i])))
    return [rank for rank, place in enumerate(order, 1) if judged.right[place]]
