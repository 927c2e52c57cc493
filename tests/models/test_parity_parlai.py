"""Our scores against ParlAI's own poly-encoder, on the same tensors."""

import pytest
import torch
from parlai.agents.transformer.modules import BasicAttention
from parlai.agents.transformer.polyencoder import PolyBasicAttention, PolyEncoderModule

from polyagents.models.formulas import attend, poly_scores

B, C, T, M, D = 3, 5, 11, 7, 16


def parlai_module(kind, attention):
    """ParlAI's module with its attention layers but without its transformers."""
    module = PolyEncoderModule.__new__(PolyEncoderModule)
    torch.nn.Module.__init__(module)
    module.type, module.n_codes = kind, M
    module.attention = PolyBasicAttention(kind, M, dim=2, attn=attention, get_weights=False)
    module.code_attention = PolyBasicAttention(kind, M, dim=2, attn="basic", get_weights=False)
    return module


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    vectors, candidates = torch.randn(B, M, D, generator=generator), torch.randn(B, C, D, generator=generator)
    mask = torch.arange(M) < torch.tensor([[7], [1], [4]])
    return vectors, mask, candidates


@pytest.mark.parametrize(("attention", "sharpness"), [("basic", 1.0), ("sqrt", D**-0.5)])
def test_scores_equal_parlais(tensors, attention, sharpness):
    vectors, mask, candidates = tensors
    theirs = parlai_module("n_first", attention).score(vectors, mask, candidates)
    torch.testing.assert_close(poly_scores(vectors, mask, candidates, sharpness), theirs, atol=1e-4, rtol=1e-4)


def test_code_attention_equals_parlais():
    generator = torch.Generator().manual_seed(1)
    states, codes = torch.randn(B, T, D, generator=generator), torch.rand(M, D, generator=generator)
    mask = torch.arange(T) < torch.tensor([[11], [2], [5]])
    module = parlai_module("codes", "basic")
    assert isinstance(module.code_attention, BasicAttention)
    theirs = module.attend(module.code_attention, codes.repeat(B, 1, 1), states, states, mask)
    torch.testing.assert_close(attend(codes, states, mask), theirs, atol=1e-4, rtol=1e-4)


def test_gradients_equal_parlais(tensors):
    """The softmax-weighted sum of dot products has the gradient of the attended context, too."""
    gradients = []
    for score in (lambda v, m, c: poly_scores(v, m, c), parlai_module("n_first", "basic").score):
        vectors, mask, candidates = (t.clone() for t in tensors)
        vectors.requires_grad_(True), candidates.requires_grad_(True)
        score(vectors, mask, candidates).square().sum().backward()
        gradients.append((vectors.grad, candidates.grad))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
