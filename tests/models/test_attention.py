"""Each formula of formulas.py against a slow loop that follows the paper word by word."""

import math

import pytest
import torch

from polyagents.models.formulas import attend, bi_scores, masked_softmax, poly_scores

SIZES = [(1, 1, 1, 1), (2, 3, 1, 1), (2, 1, 5, 4), (3, 4, 7, 16), (5, 6, 2, 3)]  # B, C, T, M


def tensors(sizes, width=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    b, c, t, m = sizes

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    lengths = torch.randint(1, t + 1, (b,), generator=generator)
    return normal(b, t, width), torch.arange(t) < lengths.unsqueeze(1), normal(m, width), normal(b, c, width)


def slow_softmax(values):
    exponentials = [math.exp(value - max(values)) for value in values]
    return [e / sum(exponentials) for e in exponentials]


def slow_attend(queries, states, mask):
    rows = []
    for example, real in zip(states, mask, strict=True):
        kept = [h for h, r in zip(example, real, strict=True) if r]
        for code in queries:
            weights = slow_softmax([float(code @ h) for h in kept])
            rows.append(sum(w * h for w, h in zip(weights, kept, strict=True)))
    return torch.stack(rows).view(len(states), len(queries), -1)


def slow_poly(context, mask, candidates, sharpness=1.0):
    """Paper 4.4 with the attended context y_ctxt built for every candidate, as ParlAI does."""
    scores = torch.zeros(candidates.shape[:2])
    for b in range(len(context)):
        vectors = [v for v, real in zip(context[b], mask[b], strict=True) if real]
        for c, candidate in enumerate(candidates[b]):
            weights = slow_softmax([sharpness * float(v @ candidate) for v in vectors])
            attended = sum(w * v for w, v in zip(weights, vectors, strict=True))
            scores[b, c] = attended @ candidate
    return scores


@pytest.mark.parametrize("sizes", SIZES)
def test_attend_equals_the_loop(sizes):
    states, mask, queries, _ = tensors(sizes)
    torch.testing.assert_close(attend(queries, states, mask), slow_attend(queries, states, mask), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sharpness", [1.0, 8**-0.5, 20.0])
@pytest.mark.parametrize("sizes", SIZES)
def test_poly_scores_equal_the_attended_context(sizes, sharpness):
    states, mask, _, candidates = tensors(sizes)
    expected = slow_poly(states, mask, candidates, sharpness)
    torch.testing.assert_close(poly_scores(states, mask, candidates, sharpness), expected, atol=1e-4, rtol=1e-4)


def test_the_paper_has_no_sharpness():
    states, mask, _, candidates = tensors((3, 4, 7, 16))
    torch.testing.assert_close(poly_scores(states, mask, candidates), slow_poly(states, mask, candidates, 1.0))


@pytest.mark.parametrize("sizes", SIZES)
def test_shared_candidates_score_as_one_list_per_example(sizes):
    states, mask, _, candidates = tensors(sizes)
    shared = candidates[0]
    repeated = shared.expand(len(states), -1, -1)
    torch.testing.assert_close(poly_scores(states, mask, shared), poly_scores(states, mask, repeated))
    torch.testing.assert_close(bi_scores(states[:, 0], shared), bi_scores(states[:, 0], repeated))


@pytest.mark.parametrize("sizes", SIZES)
def test_bi_scores_are_dot_products(sizes):
    states, _, _, candidates = tensors(sizes)
    expected = torch.tensor([[float(x @ c) for c in row] for x, row in zip(states[:, 0], candidates, strict=True)])
    scores = bi_scores(states[:, 0], candidates)
    assert scores.shape == candidates.shape[:2]  # one candidate keeps its axis
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)


def test_one_context_vector_makes_poly_a_bi_encoder():
    states, _, _, candidates = tensors((3, 4, 1, 1))
    mask = torch.ones(3, 1).bool()
    torch.testing.assert_close(poly_scores(states, mask, candidates), bi_scores(states[:, 0], candidates))


def test_padding_has_no_say():
    states, mask, queries, candidates = tensors((3, 4, 7, 16))
    garbage = states.masked_fill(~mask.unsqueeze(-1), 1e4)
    torch.testing.assert_close(attend(queries, states, mask), attend(queries, garbage, mask))
    torch.testing.assert_close(poly_scores(states, mask, candidates), poly_scores(garbage, mask, candidates))


def test_a_fully_padded_row_is_zero_and_spoils_no_gradient():
    states, mask, queries, candidates = tensors((2, 3, 4, 5))
    mask[1] = False
    states.requires_grad_(True)
    attended, scores = attend(queries, states, mask), poly_scores(states, mask, candidates)
    assert torch.equal(attended[1], torch.zeros_like(attended[1]))
    assert torch.equal(scores[1], torch.zeros_like(scores[1]))
    (attended.sum() + scores.sum()).backward()
    assert torch.isfinite(states.grad).all()
    assert torch.equal(states.grad[1], torch.zeros_like(states.grad[1]))


def test_scores_stay_between_mean_and_maximum_of_the_products():
    states, _, _, candidates = tensors((3, 4, 7, 16))
    mask = torch.ones(3, 7).bool()
    products = states @ candidates.transpose(1, 2)
    scores = poly_scores(states, mask, candidates)
    assert (scores <= products.max(1).values + 1e-5).all()
    assert (scores >= products.mean(1) - 1e-5).all()


def test_scores_are_fp32_whatever_comes_in():
    states, mask, queries, candidates = tensors((2, 3, 4, 5))
    half = states.bfloat16()
    assert attend(queries.bfloat16(), half, mask).dtype == torch.float32
    assert poly_scores(half, mask, candidates.bfloat16()).dtype == torch.float32
    assert bi_scores(half[:, 0], candidates.bfloat16()).dtype == torch.float32


def test_masked_softmax_survives_huge_logits():
    logits, mask = torch.tensor([[1e30, -1e30, 0.0]]), torch.tensor([[True, True, False]])
    assert torch.equal(masked_softmax(logits, mask, -1), torch.tensor([[1.0, 0.0, 0.0]]))
