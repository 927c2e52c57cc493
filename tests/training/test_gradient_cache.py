"""Gradients of a training step: in chunks that are encoded twice, and plainly, against the formula."""

import pytest
import torch
from backbones import SENTENCES
from commands import KINDS
from parlai.core.agents import create_agent
from parlai.core.message import Message
from parlai.core.params import ParlaiParser

from polyagents.models import encoder
from polyagents.models.formulas import ranking_loss

VARIANTS = {
    "bi": ("bi",),
    "bi, shared": ("bi", "--share-encoders", "true"),
    "bi, cosine": ("bi", "--similarity", "cosine"),
    "bi, mean": ("bi", "--reduction-type", "mean"),
    "poly, codes": ("poly", "--polyencoder-type", "codes"),
    "poly, first": ("poly", "--polyencoder-type", "n_first", "--poly-n-codes", "8"),
    "poly, last": ("poly", "--polyencoder-type", "n_last", "--share-encoders", "true"),
    "poly, last and first": ("poly", "--polyencoder-type", "n_last_and_first"),
    "poly, sqrt": ("poly", "--poly-attention-type", "sqrt"),
    "poly, top layer": ("poly", "--train-layers", "top"),
    "uni": ("uni",),
    "uni, dot, late": ("uni", "--joint-head", "dot+late", "--share-encoders", "false"),
    "cross": ("cross",),
    "cross, cosine": ("cross", "--joint-head", "cosine"),
}
IN_CHUNKS = ("bi, cosine", "bi, mean", "poly, first", "poly, last and first", "poly, sqrt")  # against the formula below
PAIRS = [(f"{SENTENCES[i % 6]} {'and ' * (3 * i)}{i}", f"{SENTENCES[(i + 1) % 6]} {i % 5}") for i in range(6)]


@pytest.fixture
def agent_of(backbone):
    def build(variant, *flags):
        torch.manual_seed(0)
        kind, *own = VARIANTS[variant]
        arguments = ["-m", KINDS[kind], "--backbone", backbone, "-t", "integration_tests", "-dt", "train", "-bs", "6"]
        # Without clipping, which would scale the gradients; and all of them.
        arguments += ["--candidates", "batch", "--gradient-clip", "-1", "--train-layers", "all", "--poly-n-codes", "4"]
        return create_agent(ParlaiParser(True, True).parse_args([*arguments, *own, *flags]))

    return build


def gradients(agent, pairs=PAIRS):
    """What one training step leaves with the weights."""
    torch.manual_seed(1)
    messages = [Message({"id": "x", "text": a, "labels": (b,), "episode_done": True}) for a, b in pairs]
    agent.batch_act([agent.clone().observe(message) for message in messages])
    return {name: p.grad.clone() for name, p in agent.model.named_parameters() if p.grad is not None}


def assert_same(ours, expected, tolerance):
    """Rounding grows with what is added up: up to 8e-6 was seen, and 1.3e-5 with gradients of .2 on another machine."""
    assert ours.keys() == expected.keys() and ours
    tolerance += 1e-3 * max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "precision"),
    [(variant, "fp32") for variant in VARIANTS if variant not in IN_CHUNKS]
    + [
        pytest.param(variant, "bf16", marks=() if variant in ("bi", "poly, codes", "uni") else pytest.mark.release)
        for variant in VARIANTS
    ],
)
def test_chunks_have_the_plain_batchs_gradients_dropout_included(agent_of, variant, precision, monkeypatch):
    monkeypatch.setitem(
        encoder.TRAINING_CHUNK_TOKENS, "cpu", 40
    )  # the plain step draws its dropout chunk by chunk, too
    flags = ("--precision", precision, "--dropout", "0.2")
    plain = gradients(agent_of(variant, *flags))
    assert_same(gradients(agent_of(variant, *flags, "--chunk-tokens", "40")), plain, 1e-5)
    without = gradients(agent_of(variant, "--precision", precision, "--dropout", "0"))
    assert any((gradient - plain[name]).abs().max() > 1e-3 for name, gradient in without.items())


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["bi", "uni"])
def test_chunks_have_the_plain_batchs_gradients_in_fp16_whose_loss_is_scaled(agent_of, variant):
    found = []
    for chunks in ((), ("--chunk-tokens", "40")):
        agent = agent_of(variant, "--precision", "fp16", "--dropout", "0", *chunks)
        agent.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)  # the first of 65,536 is too large for all
        found.append(gradients(agent))
    assert all(torch.isfinite(gradient).all() for gradient in found[0].values())
    assert_same(found[1], found[0], 1e-3)
    assert_same(found[0], gradients(agent_of(variant, "--precision", "fp32", "--dropout", "0")), 2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["bi", "poly, codes", "poly, last", "uni, dot, late", "cross"])
def test_neither_the_chunks_nor_their_size_change_the_gradients(agent_of, variant):
    """A chunk for each text, and one for all; every variant has chunks between them above."""
    whole = gradients(agent_of(variant, "--dropout", "0"))
    for size in ("1", "100000"):
        assert_same(gradients(agent_of(variant, "--dropout", "0", "--chunk-tokens", size)), whole, 1e-5)


def mean_cosine(context):
    """Of all pairs of one context's real vectors."""
    vectors = context.vectors[0][context.mask[0]]
    return torch.cosine_similarity(vectors.unsqueeze(0), vectors.unsqueeze(1), dim=-1).mean()


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if not variant.startswith(("uni", "cross"))])
def test_gradients_are_those_of_the_formula(agent_of, variant):
    """The slow, obvious way: every text for itself, repeated ones too, one softmax over the distinct labels."""
    pairs = [*PAIRS, PAIRS[0], (PAIRS[1][0], PAIRS[2][1])]
    ours = gradients(agent_of(variant, "--dropout", "0", "--chunk-tokens", "40"), pairs)
    agent = agent_of(variant, "--dropout", "0")
    agent.model.train()
    module, labels = (
        agent.module,
        [candidate.ids for candidate in agent.ranking.candidates([label for _, label in pairs])],
    )
    distinct = list(dict.fromkeys(labels))
    assert len(distinct) < len(pairs) - 1
    vectors = torch.cat([module.encode_candidates(agent.ranking.tokens([ids])) for ids in distinct])
    contexts = [agent.ranking.tokens(agent.ranking.context_ids([text])) for text, _ in pairs]
    encoded = [module.encode_context(context) for context in contexts]
    scores = [module.score(one, vectors) for one in encoded]
    columns = torch.tensor([distinct.index(ids) for ids in labels])
    logits = torch.cat(scores) * module.logit_scale
    loss = ranking_loss(logits, columns, torch.ones_like(logits).bool()).mean()
    if "penalty" in variant:
        loss = loss + 0.7 * torch.stack([mean_cosine(one) for one in encoded]).mean()
    loss.backward()
    expected = {name: p.grad for name, p in agent.model.named_parameters() if p.grad is not None}
    assert_same(ours, expected, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["uni", "uni, dot, late", "cross", "cross, cosine"])
def test_gradients_of_those_that_read_together_are_the_formulas(agent_of, variant):
    """The slow, obvious way: every candidate alone with its context."""
    ours = gradients(agent_of(variant, "--dropout", "0"))
    agent = agent_of(variant, "--dropout", "0")
    agent.model.train()
    model = agent.ranking
    labels = [candidate.ids for candidate in model.candidates([label for _, label in PAIRS])]
    distinct = list(dict.fromkeys(labels))
    rows = [[(*model.context_ids([text]), [ids])] for text, _ in PAIRS for ids in distinct]
    scores = torch.cat([model.module(model.joint_tokens(row)) for row in rows]).view(len(PAIRS), len(distinct))
    columns = torch.tensor([distinct.index(ids) for ids in labels])
    ranking_loss(scores, columns, torch.ones_like(scores).bool()).mean().backward()
    expected = {name: p.grad for name, p in agent.model.named_parameters() if p.grad is not None}
    assert_same(ours, expected, 1e-5)


def test_randomness_goes_on_as_after_a_plain_step(agent_of, monkeypatch):
    monkeypatch.setitem(encoder.TRAINING_CHUNK_TOKENS, "cpu", 40)
    drawn = []
    for flags in ((), ("--chunk-tokens", "40")):
        gradients(agent_of("poly, codes", "--dropout", "0.2", *flags))
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


def test_accumulated_chunks_have_the_gradients_of_the_mean(agent_of):
    agent = agent_of("bi", "--dropout", "0", "--chunk-tokens", "40", "--update-freq", "2")
    first = gradients(agent, PAIRS[:4])
    both = gradients(agent, PAIRS[4:])
    halves = [gradients(agent_of("bi", "--dropout", "0"), part) for part in (PAIRS[:4], PAIRS[4:])]
    assert_same(first, {name: gradient / 2 for name, gradient in halves[0].items()}, 1e-5)
    assert_same(both, {name: (gradient + halves[1][name]) / 2 for name, gradient in halves[0].items()}, 1e-5)


def test_frozen_layers_run_without_a_graph(agent_of):
    agent = agent_of("bi", "--train-layers", "top")
    states = []
    for layer in agent.module.context_encoder.backbone.encoder.layer:
        layer.register_forward_hook(
            lambda _, __, output: states.append(output if torch.is_tensor(output) else output[0])
        )
    gradients(agent)
    below, top = states[:2]
    assert top.requires_grad and not below.requires_grad


@pytest.mark.release
def test_a_compiled_encoder_has_the_same_gradients(agent_of):
    plain = gradients(agent_of("poly, codes", "--dropout", "0"))
    compiled = agent_of("poly, codes", "--dropout", "0", "--compile", "true", "--chunk-tokens", "40")
    assert_same(gradients(compiled), plain, 1e-4)
    assert compiled.module.state_dict().keys() == agent_of("poly, codes").module.state_dict().keys()


@pytest.mark.release
def test_a_compiled_encoder_draws_the_same_dropout_for_a_chunk_a_second_time(agent_of, monkeypatch):
    monkeypatch.setitem(encoder.TRAINING_CHUNK_TOKENS, "cpu", 40)
    flags = ("--dropout", "0.2", "--compile", "true")
    plain = gradients(agent_of("poly, codes", *flags))
    assert_same(gradients(agent_of("poly, codes", *flags, "--chunk-tokens", "40")), plain, 1e-4)
    assert any(
        (gradient - plain[name]).abs().max() > 1e-3
        for name, gradient in gradients(agent_of("poly, codes", "--dropout", "0")).items()
    )
