"""Scores whose true probabilities are known."""

import numpy as np

from polyagents.decisions.score_map import Scored


def simulated(examples, options=4, temperature=3.0, outside=0.0, seed=0):
    """Scores, and the true probability [E, O] of each option; with `outside`, this share has no right one."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(examples, options)) * 1.5
    truth = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    chosen = (truth.cumsum(1) > draw.random((examples, 1))).argmax(1)
    right = np.zeros((examples, options), bool)
    right[np.arange(examples), chosen] = True
    gone = draw.random(examples) < outside
    right[gone] = False
    logits[gone] = draw.normal(size=(int(gone.sum()), options)) * 0.5 - 1
    return Scored(logits * temperature, right, np.arange(examples)), truth
