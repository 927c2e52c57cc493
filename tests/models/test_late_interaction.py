"""Late interaction against loops over texts and tokens."""

import torch

from polyagents.models.joint import late_interaction
from polyagents.models.tokens import pad_joint

ROWS = [([20, 7, 9, 12, 21], [[20, 5, 21], [20, 5, 6, 7, 21], [20, 11, 21]]), ([20, 6, 21], [[20, 8, 8, 9, 21]])]


def slow(states, context, candidates):
    """The mean over a candidate's tokens of the best cosine with a token of the context, one by one."""
    scores, begin = [], len(context)
    for candidate in candidates:
        own = states[begin : begin + len(candidate)]
        best = [max(torch.cosine_similarity(token, other, dim=0) for other in states[:len(context)])
                for token in own]  # fmt: skip
        scores.append(sum(best) / len(best))
        begin += len(candidate)
    return scores


def test_it_is_the_mean_of_each_tokens_best_cosine():
    torch.manual_seed(0)
    tokens = pad_joint(ROWS, 0)
    states = torch.randn(*tokens.ids.shape, 8)
    found = late_interaction(states, tokens)
    for row, (context, candidates) in enumerate(ROWS):
        expected = torch.stack(slow(states[row], context, candidates))
        torch.testing.assert_close(found[row, : len(candidates)], expected)
    assert found[1, 1:].tolist() == [0, 0]  # the second row has one candidate


def test_it_is_1_for_tokens_of_the_context_and_minus_1_for_their_opposites():
    tokens = pad_joint([([20, 7], [[7, 20, 7], [5, 5]])], 0)
    one, other = torch.eye(4)[:2]
    states = torch.stack([one, one, 3 * one, one, one, -one, -2 * one])  # lengths do not count
    assert late_interaction(states[None], tokens)[0].tolist() == [1, -1]
    states[1] = other  # to which the last candidate's tokens are orthogonal
    assert late_interaction(states[None], tokens)[0].tolist() == [1, 0]


def test_states_in_low_precision_are_compared_in_fp32():
    torch.manual_seed(0)
    tokens = pad_joint(ROWS, 0)
    states = torch.randn(*tokens.ids.shape, 8).bfloat16()
    found = late_interaction(states, tokens)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, late_interaction(states.float(), tokens))
