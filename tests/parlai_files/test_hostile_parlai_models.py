"""ParlAI's model files that somebody has damaged: each is refused in one sentence, and none is used silently."""

import json
import shutil

import pytest
import torch

from polyagents import InputError, Ranker
from polyagents.parlai_files import parlai_options

HEAD = b"#version: 0.2\n"
DICTIONARIES = {
    ".dict": [b"", b"\n", b"\x00\xff" * 500, b"hello\tmany\n", b"hello\t1.5\n", b"hello\t\n", b"a\t" + b"9" * 5_000],
    ".dict.codecs": [b"", b"\xff\xfe\x00", HEAD + b"\xe4 b", HEAD, HEAD + b"a", HEAD + b"a b c\n", HEAD + b" \n"],
}
DICTIONARIES[".dict.codecs"] += [b"#version: 9\na b\n", HEAD + b"\na b\n"]
OPTIONS = {
    "n_heads": ["x", -2, 0, 3, None, 2.5, 10**30, [2], {}, True],
    "n_layers": ["x", 7, None, -1, {}, 2.0], "embedding_size": ["x", 32, None, [], 1e9], "ffn_size": ["x", 1, {}],
    "n_positions": ["x", -2, [64], {}, 10**12, True, 1.5], "n_segments": ["x", None, 10**9],
    "dropout": ["x", -1, 2, None, float("nan"), [], {}], "attention_dropout": [None, "x", 7, {}, float("inf")],
    "text_truncate": ["x", {}, [1], 1.5, -7, 10**30], "label_truncate": [{}, "x", [[]], True, -3],
    "truncate": ["x", {}], "output_scaling": ["x", None, float("nan"), {}, [1]], "poly_n_codes": ["x", -3, None, 7, {}],
    "dict_nulltoken": [5, {}, ["x"], True], "dict_starttoken": [5], "dict_unktoken": [[]], "dict_lower": ["yes", 3, {}],
    "variant": [{}, 5, None], "embeddings_scale": [{}, "x", [1]], "activation": [{}, 5], "reduction_type": [{}, [], 7],
    "polyencoder_type": [{}, "x"], "dict_tokenizer": [{}, None], "person_tokens": [{}, [1]],
    "share_word_embeddings": [{}],
    "model": ["transformer/biencoder", "transformer/crossencoder"],
}  # fmt: skip


def damaged_tensors(weight):
    """A tensor in forms that no model of ParlAI's has, and values that are not tensors."""
    yield from (None, 5, "x", [1.0], {}, float("nan"), (weight,), torch.Size([2]))
    yield from (weight.to(kind) for kind in (torch.int8, torch.int64, torch.complex64, torch.bool))
    yield from (weight.to_sparse(), torch.tensor(1.0), weight.flatten(), weight[None], weight[:0], weight[:-1])
    yield from (weight[:, :-1], weight * float("nan"), weight * float("inf"))


def damaged_files(good):
    """Whole contents of a model file."""
    name = next(iter(good))
    yield from ({"model": value} for value in (5, None, "x", [], {}, [good], torch.ones(2), {name: good[name]}))
    yield from (
        5,
        None,
        [],
        "x",
        good,
        {},
        {"Model": good},
        torch.ones(3),
        {"model": good, 5: {}} and {"model": {5: 5}},
    )
    yield from (
        {"model": good | {odd: good[name]}} for odd in (5, ("a", 1), None, "", "encoder_ctxt.layers.7.x.weight")
    )
    for lost in ("embeddings.weight", "position_embeddings.weight", "layers.0.", "layers.1.", "ffn.lin1", "norm1.bias"):
        yield {"model": {key: value for key, value in good.items() if lost not in key}}
    yield {"model": {key.replace("layers.0.", "layers.5."): value for key, value in good.items()}}
    yield {"model": {key.replace("layers.1.", "layers.x."): value for key, value in good.items()}}
    parts = ("encoder_ctxt.embeddings.weight", "encoder_ctxt.layers.0.ffn.lin1.weight", "codes")
    for part in (*parts, "encoder_cand.layers.1.attention.q_lin.weight"):
        yield from ({"model": good | {part: value}} for value in damaged_tensors(good[part]))
    wide = {key: torch.zeros(1).expand(value.shape) for key, value in good.items()}
    yield {"model": wide | {parts[0]: torch.zeros(1).expand(10**9, 16)}}


@pytest.fixture
def copy(written, tmp_path):
    """A copy of a poly-encoder of ParlAI's."""
    for part in ("", ".opt", ".dict", ".dict.codecs"):
        shutil.copy(f"{written('poly')}{part}", tmp_path / f"M{part}")
    options = json.loads((tmp_path / "M.opt").read_text())
    known = {*parlai_options.TYPES, *parlai_options.CHECKED, *parlai_options.CHECKED_IN["PolyEncoder"], "model"}
    (tmp_path / "M.opt").write_text(json.dumps({name: options[name] for name in known & options.keys()}))
    return tmp_path / "M"


def outcome(file):
    """The sentence in which a file is refused; None if it is used."""
    try:
        Ranker.load(file).rank("hello there", ["hi", "what"])
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 1_000
        return str(error)
    return None


@pytest.mark.slow
def test_damaged_weights_are_refused(copy):
    good, used = torch.load(copy, weights_only=False)["model"], []
    for number, content in enumerate(damaged_files(good)):
        torch.save(content, copy)
        if outcome(copy) is None:
            used.append(number)
    assert number > 90 and not used


@pytest.mark.slow
def test_options_of_other_types_are_refused(copy):
    path = copy.with_name("M.opt")
    good = json.loads(path.read_text())
    cases = [{name: value} for name, values in OPTIONS.items() for value in values]
    used = []
    for changed in cases:
        path.write_text(json.dumps(good | changed))
        if outcome(copy) is None:
            used.append(changed)
    assert len(cases) > 80 and not used


@pytest.mark.slow
def test_damaged_dictionaries_are_refused(copy):
    for part, contents in DICTIONARIES.items():
        path = copy.with_name(f"M{part}")
        good = path.read_bytes()
        for content in (*contents, good[:-7] + b"\xff", good.replace(b"\t", b"\t-", 3), good[: len(good) // 2] + b"\t"):
            path.write_bytes(content)
            sentence = outcome(copy)
            if content in contents:
                assert sentence, (part, content)
        path.write_bytes(good)
