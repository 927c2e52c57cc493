"""The uni-encoder: all candidates of a context in one pass, each as if it were alone."""

import copy

import pytest
import torch
from backbones import FAMILIES, save
from transformers import (
    DebertaConfig,
    DebertaModel,
    MistralConfig,
    MistralModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    Qwen3Config,
    Qwen3Model,
)

from polyagents.errors import InputError
from polyagents.model_files.building import build_encoder, settings_of
from polyagents.models.cross import CrossEncoder
from polyagents.models.encoder import Encoder
from polyagents.models.formulas import reduce
from polyagents.models.model_options import EncoderOptions, UniOptions
from polyagents.models.tokens import JointTokens, Tokens, pad, pad_joint
from polyagents.models.uni import UniEncoder
from polyagents.ranking.candidate_set import Candidate, Label, inline_set
from polyagents.ranking.joint_model import JointModel, lists_that_fit
from polyagents.text.pretrained import load_tokenizer

# No id of any family's special tokens: RoBERTa counts positions from the padding id on.
CONTEXTS = [[20, 7, 9, 12, 21], [20, 6, 21], [20, 8, 8, 10, 11, 9, 21]]
CANDIDATES = [[20, 5, 21], [20, 5, 6, 7, 21], [20, 11, 21], [20, 12, 9, 21]]


@pytest.fixture(scope="module", params=FAMILIES)
def encoder(request, tmp_path_factory):
    folder = save(request.param, tmp_path_factory.mktemp(request.param))
    settings = settings_of("UniEncoder", {"backbone": folder})
    return build_encoder(settings, load_tokenizer(folder), training=False).eval()


@pytest.fixture
def model(encoder):
    torch.manual_seed(0)
    return UniEncoder(copy.deepcopy(encoder), UniOptions()).eval()


def scores(model, rows):
    with torch.no_grad():
        return model(pad_joint(rows, 0))


def test_a_candidates_score_is_the_one_that_it_has_alone(model):
    together = scores(model, [(context, CANDIDATES) for context in CONTEXTS])
    alone = [[scores(model, [(context, [candidate])])[0, 0] for candidate in CANDIDATES] for context in CONTEXTS]
    torch.testing.assert_close(together, torch.tensor(alone), atol=1e-5, rtol=1e-5)
    assert together.unique().numel() == together.numel()


def test_it_does_not_matter_what_else_is_ranked_nor_in_which_order(model):
    first = scores(model, [(CONTEXTS[0], CANDIDATES)])[0]
    turned = scores(model, [(CONTEXTS[0], CANDIDATES[::-1])])[0]
    torch.testing.assert_close(first, turned.flip(0), atol=1e-5, rtol=1e-5)
    other = scores(model, [(CONTEXTS[0], [CANDIDATES[0], [20, 9, 9, 9, 9, 21]])])[0]
    torch.testing.assert_close(first[0], other[0], atol=1e-5, rtol=1e-5)


def test_the_context_sees_no_candidate_and_is_what_it_is_alone(encoder):
    if encoder.backbone.config.model_type == "modernbert":
        pytest.skip("without a mask of its own it takes another attention, which rounds otherwise")
    rows = pad_joint([(CONTEXTS[0], CANDIDATES)], 0)
    with torch.no_grad():
        together = encoder(rows, rows.together(encoder.causal), rows.positions)[0, : len(CONTEXTS[0])]
        alone = encoder(pad([CONTEXTS[0]], 0))[0]
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_a_candidate_reads_the_context(model):
    one, other = (scores(model, [(context, CANDIDATES)])[0] for context in (CONTEXTS[0], CONTEXTS[2]))
    assert ((one - other).abs() > 1e-6).all()


@pytest.mark.parametrize("tokens", [0, 1, 8, 9, 10_000])
def test_rows_of_any_length_give_the_same_scores(model, tokens):
    candidates = [[Candidate(str(ids), tuple(ids)) for ids in CANDIDATES[: 2 + i]] for i in range(3)]
    given = inline_set(candidates, [Label(own[0], (own[0].text,)) for own in candidates])
    ranking = JointModel(model, type("Tokenizer", (), {"pad_id": 0})(), None)
    model.candidate_tokens = tokens
    found = ranking.scores(CONTEXTS, given)
    expected = torch.zeros(3, 4)
    for b, own in enumerate(candidates):
        for c, candidate in enumerate(own):
            expected[b, c] = scores(model, [(CONTEXTS[b], [candidate.ids])])[0, 0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("head", ["dot", "cosine", "dot+late", "cosine+late"])
@pytest.mark.parametrize("kind", ["mean", "first", "first_m"])
@pytest.mark.parametrize("architecture", [UniEncoder, CrossEncoder])
def test_a_head_that_begins_as_a_similarity(encoder, architecture, kind, head, share):
    options = UniOptions(joint_head=head, reduction_type=kind, poly_n_codes=2, share_encoders=share)
    model = architecture(copy.deepcopy(encoder), options).eval()
    other = model.candidate_encoder or model.encoder
    if not share:
        with torch.no_grad():
            for weight in other.parameters():
                weight.mul_(1.1)
    context, candidate = CONTEXTS[2], CANDIDATES[1]
    with torch.no_grad():
        alone = [pad([text], 0) for text in (context, candidate)]
        if encoder.backbone.config.model_type == "modernbert":  # with a mask of its own it rounds otherwise
            states = [reads(text, text.mask.expand(1, *2 * text.mask.shape[1:]), torch.arange(text.ids.size(1))[None])
                      for reads, text in zip((encoder, other), alone, strict=True)]  # fmt: skip
        else:
            states = [encoder(alone[0]), other(alone[1])]
        sides = [reduce(side, text.mask, kind, 2, encoder.causal) for side, text in zip(states, alone, strict=True)]
        is_cosine = head.startswith("cosine")
        expected = torch.cosine_similarity(*sides) * 20 if is_cosine else (sides[0] * sides[1]).sum(1)
        if head.endswith("late"):
            cosines = torch.cosine_similarity(states[1][0].unsqueeze(1), states[0], dim=-1)  # [candidate's, context's]
            expected = expected + 40 * cosines.amax(1).mean()
    torch.testing.assert_close(scores(model, [(context, [candidate])])[0], expected, atol=1e-4, rtol=1e-4)
    several = scores(model, [(context, [*CANDIDATES])])[0] if architecture is UniEncoder else expected.expand(4)
    torch.testing.assert_close(several[1:2], expected, atol=1e-4, rtol=1e-4)
    torch.nn.init.constant_(model.linear.bias, 3.0)  # what is learnt is added
    torch.testing.assert_close(scores(model, [(context, [candidate])])[0], expected + 3, atol=1e-4, rtol=1e-4)


def test_who_sees_whom():
    places = torch.tensor([[0, 0, 1, 2, 2, -1]])
    expected = [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [1, 1, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    tokens = JointTokens(places, places >= 0, places)
    assert tokens.together().int().tolist() == [expected]
    assert tokens.together(causal=True).int().tolist() == [torch.tensor(expected).tril().tolist()]


def test_positions_of_every_candidate_go_on_where_the_context_ends():
    tokens = pad_joint([([7, 8], [[9], [5, 6, 5]]), ([7], [[9]])], 0)
    assert tokens.positions.tolist() == [[0, 1, 2, 2, 3, 4], [0, 1, 0, 0, 0, 0]]
    assert tokens.places.tolist() == [[0, 0, 1, 2, 2, 2], [0, 1, -1, -1, -1, -1]]
    assert tokens.segments.tolist() == [[0, 0, 1, 1, 1, 1], [0, 1, 0, 0, 0, 0]]
    assert tokens.there.sum(1).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(0, [[3], [2], [4]]), (4, [[3], [2], [4]]), (5, [[3, 2], [4]]), (6, [[3, 2], [4]]), (9, [[3, 2, 4]])],
)
def test_rows_are_filled_in_order(tokens, expected):
    candidates = [[0] * length for length in (3, 2, 4)]
    assert [[len(one) for one in row] for row in lists_that_fit(candidates, tokens)] == expected


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 30}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", [(DebertaConfig, DebertaModel), (MPNetConfig, MPNetModel)])
def test_a_backbone_that_does_not_keep_candidates_apart_is_refused(family, precision):
    """DeBERTa reads no such mask; MPNet tells the distance of tokens by where they stand in the row."""
    torch.manual_seed(0)
    config, backbone = family
    encoder = Encoder(backbone(config(**SMALL)), EncoderOptions(precision=precision), output_scaling=1e-3)
    model = UniEncoder(encoder, UniOptions())
    with pytest.raises(InputError, match=r"this backbone \((deberta|mpnet)\) does not support"):
        scores(model, [(CONTEXTS[0], CANDIDATES)])


@pytest.mark.parametrize(
    ("config", "backbone", "more"),
    [
        (MistralConfig, MistralModel, {}),  # the window is that of all layers
        (Qwen3Config, Qwen3Model, {"use_sliding_window": True, "max_window_layers": 1, "head_dim": 16}),
        (Qwen3Config, Qwen3Model, {"use_sliding_window": False, "head_dim": 16}),
        (ModernBertConfig, ModernBertModel, {"local_attention": 8}),
    ],
)
def test_layers_that_see_a_window_only_see_it_in_a_row_too(config, backbone, more):
    torch.manual_seed(0)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    made = backbone(config(**SMALL, num_key_value_heads=2, sliding_window=4, **ids, **more))
    encoder = Encoder(made, EncoderOptions()).eval()
    long = [20, *(5 + i % 9 for i in range(12)), 21]
    tokens = pad_joint([(CONTEXTS[0], [long])], 0)
    own = tokens.own(encoder.causal)
    with torch.no_grad():
        beside = encoder(Tokens(tokens.ids, tokens.mask), own, tokens.own_positions)[0, len(CONTEXTS[0]) :]
        alone = encoder(pad([long], 0))[0]
    torch.testing.assert_close(beside, alone, atol=1e-4, rtol=1e-4)
