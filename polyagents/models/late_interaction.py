"""Late interaction: how well the tokens of a candidate are matched by those of its context (ColBERT's MaxSim).

Khattab and Zaharia 2020, arXiv 2004.12832. A vector for a whole text cannot say that a candidate repeats two words of
the third line of a persona; the states of its tokens can (docs/results.md).
"""

import torch
from torch import Tensor
from torch.nn import functional

from polyagents.models.tokens import JointTokens


def late_interaction(states: Tensor, tokens: JointTokens) -> Tensor:
    """Compute the mean over a candidate's tokens of the largest cosine that each has with a token of the context.

    Args:
        states: [R, T, D], of contexts followed by candidates.
        tokens: [R, T].

    Returns:
        [R, K] fp32, -1 to 1, for up to K candidates in a row; 0 if a row has fewer.
    """
    places = tokens.places
    directions = functional.normalize(states.float(), dim=-1)
    cosines = directions @ directions.transpose(1, 2)  # [R, T, T]
    best = cosines.masked_fill((places != 0).unsqueeze(1), -1.0).amax(-1)
    numbers = torch.arange(1, tokens.longest_list + 1, device=places.device)
    own = places.unsqueeze(1) == numbers.unsqueeze(1)  # [R, K, T]
    return (own * best.unsqueeze(1)).sum(-1) / own.sum(-1).clamp(min=1)
