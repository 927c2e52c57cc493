"""What a poly-encoder may have beside the paper's: a learnt sharpness, and the mean among its context vectors."""

import copy
import math

import pytest
import torch
from backbones import SENTENCES, save

from polyagents.errors import InputError
from polyagents.models.backbone import load_backbone
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import EncoderOptions, PolyOptions
from polyagents.models.poly import PolyEncoder
from polyagents.models.reduction import ContextVectors
from polyagents.models.tokens import pad
from polyagents.ranking.building import vocabulary_of
from polyagents.text.pretrained import load_tokenizer

LEARNT = {"poly_attention_type": "learnt"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """An encoder without dropout, and contexts of different lengths, an empty one among them."""
    options = EncoderOptions(save("bert", tmp_path_factory.mktemp("bert")), "all", "fp32", 0.0)
    tokenizer = load_tokenizer(options.backbone)
    ids = [tokenizer.context(ids, 40) for ids in tokenizer.encode([*SENTENCES[:3], " ".join(SENTENCES)])]
    encoder = Encoder(load_backbone(options, vocabulary_of(tokenizer), False), options).eval()
    norm = encoder.backbone.encoder.layer[-1].output.LayerNorm  # whose outputs would all have the sum 0
    torch.nn.init.uniform_(norm.weight, generator=torch.Generator().manual_seed(0))
    return encoder, pad([*ids, []], tokenizer.pad_id)


def poly(encoder, **options):
    torch.manual_seed(0)
    return PolyEncoder(copy.deepcopy(encoder), PolyOptions(poly_n_codes=5, codes_init="unit", **options)).eval()


def drawn(m=6, width=8):
    """Context vectors, the last example's fewer, and candidates."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(3, m).bool()
    mask[2, 2:] = False
    return ContextVectors(torch.randn(3, m, width, generator=generator), mask), torch.randn(
        4, width, generator=generator
    )


def slow_score(vectors, candidate, sharpness):
    """sum_i w_i d_i with w = softmax(sharpness d), and the variance of d under w."""
    products = [float(vector @ candidate) for vector in vectors]
    exponentials = [math.exp(sharpness * (d - max(products))) for d in products]
    weights = [e / sum(exponentials) for e in exponentials]
    mean = sum(w * d for w, d in zip(weights, products, strict=True))
    return mean, sum(w * (d - mean) ** 2 for w, d in zip(weights, products, strict=True))


# ---- a learnt sharpness ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_a_learnt_sharpness_starts_as_the_paper(parts, similarity):
    encoder, _ = parts
    context, candidates = drawn()
    scores = [poly(encoder, similarity=similarity, **more).score(context, candidates) for more in (LEARNT, {})]
    assert torch.equal(*scores)


@pytest.mark.parametrize("sharpness", [1e-4, 0.3, 1.0, 20.0, 1e4])
def test_scores_and_gradient_of_a_learnt_sharpness(parts, sharpness):
    """With s = e^a, the score's derivative by a is s times the variance of the products under the weights."""
    model = poly(parts[0], **LEARNT)
    model.log_sharpness.data.fill_(math.log(sharpness))
    (vectors, mask), candidates = drawn()
    scores = model.score(ContextVectors(vectors, mask), candidates)
    slow = [[slow_score(v[real], c, sharpness) for c in candidates] for v, real in zip(vectors, mask, strict=True)]
    expected = torch.tensor([[score for score, _ in row] for row in slow])
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)
    scores.sum().backward()
    derivative = sharpness * sum(variance for row in slow for _, variance in row)
    assert float(model.log_sharpness.grad) == pytest.approx(derivative, rel=1e-3, abs=1e-5)


def test_sharpness_goes_from_mean_to_maximum_and_the_bound_holds(parts):
    model = poly(parts[0], **LEARNT)
    (vectors, mask), candidates = drawn()
    products = vectors @ candidates.T
    largest = products.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
    mean = (products * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    for log_sharpness, expected in ((-20.0, mean), (20.0, largest)):
        model.log_sharpness.data.fill_(log_sharpness)
        torch.testing.assert_close(model.score(ContextVectors(vectors, mask), candidates), expected)
    for log_sharpness in torch.linspace(-5, 5, 11):
        model.log_sharpness.data.fill_(log_sharpness)
        scores = model.score(ContextVectors(vectors, mask), candidates)
        assert (scores <= model.upper_bound(largest.T).T + 1e-5).all()


def test_a_fixed_sharpness_is_no_weight(parts):
    assert "log_sharpness" not in poly(parts[0]).state_dict()
    assert poly(parts[0], poly_attention_type="sqrt").sharpness == parts[0].width ** -0.5


# ---- the mean among the context vectors ------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_the_mean_of_all_outputs_is_one_more_context_vector(parts, similarity):
    encoder, tokens = parts
    with torch.no_grad():
        states = encoder(tokens)
        plain = poly(encoder, similarity=similarity).context_vectors(tokens)
        vectors, mask = poly(encoder, similarity=similarity, codes_mean=True).context_vectors(tokens)
    assert (
        vectors.shape == (5, 6, encoder.width) and mask.shape == (5, 6) and mask.all(1).tolist() == [True] * 4 + [False]
    )
    assert mask.any(1).tolist() == [True] * 4 + [False]
    torch.testing.assert_close(vectors[:, :5], plain.vectors)
    for example, length in enumerate(tokens.mask.sum(1).tolist()):
        mean = states[example, :length].mean(0) if length else torch.zeros(encoder.width)
        expected = mean / mean.norm() if similarity == "cosine" and length else mean
        torch.testing.assert_close(vectors[example, 5], expected, atol=1e-5, rtol=1e-5)


def test_the_mean_has_no_code_to_learn(parts):
    model = poly(parts[0], codes_mean=True)
    assert model.state_dict().keys() == poly(parts[0]).state_dict().keys() and model.codes.shape[0] == 5


@pytest.mark.parametrize("kind", ["n_first", "n_last", "n_last_and_first"])
def test_outputs_have_no_mean_among_them(kind):
    with pytest.raises(InputError, match=f"--codes-mean .* --polyencoder-type {kind} has no codes; remove one"):
        PolyOptions.read({"codes_mean": True, "polyencoder_type": kind})
