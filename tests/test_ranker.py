"""The Python API and `polyagents rank`, on models that train_model wrote."""

import copy
import dataclasses
import io
import json
import os
import pickle
import sys
from types import SimpleNamespace

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from commands import own

from polyagents import InputError, Match, Pipeline, Ranker
from polyagents.commands.parlai_command import check_is_trained, with_full_names
from polyagents.files.context_lines import read_contexts
from polyagents.models.adapters import load_weights
from polyagents.models.architecture import ARCHITECTURES, options_with
from polyagents.options import Role
from polyagents.ranking import two_tower_model

REPLIES = ["i am here", "canada is in north america", "fruits are still very nice", "i am here"]
CONTEXTS = ["where is canada", "hi", "your persona: i ski .\nhello\nhow are you ?"]


@pytest.fixture(scope="module", params=["bi", "poly", "uni", "cross"])
def ranker(request, trained):
    return Ranker.load(trained(request.param))


@pytest.fixture(scope="module")
def poly(trained):
    return Ranker.load(trained("poly"))


def test_scores_have_the_shape_of_the_question(ranker):
    scores = ranker.score(CONTEXTS, REPLIES)
    assert scores.shape == (3, 4) and scores.dtype == np.float32
    assert ranker.score(CONTEXTS[0], REPLIES).shape == (4,)
    assert ranker.score([], REPLIES).shape == (0, 4)
    assert ranker.score(CONTEXTS, []).shape == (3, 0)
    assert (scores[:, 0] == scores[:, 3]).all()  # equal texts, equal scores


def test_many_contexts_score_as_one_by_one(ranker):
    many = CONTEXTS * 30  # more than one block
    scores = ranker.score(many, REPLIES)
    for context, row in zip(CONTEXTS, scores, strict=False):
        np.testing.assert_allclose(ranker.score(context, REPLIES), row, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(scores[:3], scores[-3:], atol=1e-4, rtol=1e-4)


def test_rank_sorts_by_score_and_then_by_index(ranker):
    matches = ranker.rank(CONTEXTS[0], REPLIES, top_k=10)
    scores = ranker.score(CONTEXTS[0], REPLIES)
    assert [match.index for match in matches] == sorted(range(4), key=lambda i: (-scores[i], i))
    assert matches[0] == Match(
        matches[0].index, REPLIES[matches[0].index], pytest.approx(float(scores.max()), abs=1e-4)
    )
    several = ranker.rank(CONTEXTS, REPLIES, top_k=2)
    assert [len(row) for row in several] == [2, 2, 2]
    assert several[0] == [Match(m.index, m.text, pytest.approx(m.score, abs=1e-4)) for m in matches[:2]]
    assert ranker.rank(CONTEXTS[0], [], top_k=2) == []


def test_a_query_has_a_context(trained):
    with pytest.raises(InputError, match="no contexts"):
        Ranker.load(trained("bi")).query([])


def test_a_model_is_saved_in_a_folder_that_can_be_made(trained, tmp_path):
    (tmp_path / "file").write_text("hello")
    ranker = Ranker.load(trained("bi"))
    with pytest.raises(InputError, match=r"cannot be made .*give a file in another folder"):
        ranker.save(tmp_path / "file" / "M")


@pytest.mark.parametrize("wrong", [0, -1, True, "3", 2.0, None])
def test_a_number_of_things_is_a_whole_number_of_1_or_more(ranker, wrong):
    examples = [{"context": "hi", "label": REPLIES[0]}]
    for call in (
        lambda: ranker.rank(CONTEXTS[0], REPLIES, top_k=wrong),
        lambda: ranker.search(CONTEXTS[0], REPLIES, top_k=wrong),
        lambda: ranker.decide(CONTEXTS[0], REPLIES, rerank_top=wrong),
        lambda: ranker.calibrate(examples, REPLIES, rerank_top=wrong),
        lambda: Pipeline(ranker, None, wrong),
    ):
        with pytest.raises(InputError, match=r"(top_k|rerank_top) is .*; give a whole number of 1 or more"):
            call()


def test_an_option_of_several_texts_scores_between_their_mean_and_the_best(ranker):
    options = {"here": REPLIES[0], "elsewhere": [REPLIES[1], "far away", REPLIES[2]], "nowhere": np.array(["no"])}
    texts = [REPLIES[0], REPLIES[1], "far away", REPLIES[2], "no"]
    scores, of_texts = ranker.score(CONTEXTS, options), ranker.score(CONTEXTS, texts)
    k, several = 0.25 * ranker.model.module.logit_scale, of_texts[:, 1:4]
    expected = np.stack([of_texts[:, 0], np.log(np.exp(k * several).mean(1)) / k, of_texts[:, 4]], 1)
    np.testing.assert_allclose(scores, expected, atol=1e-4, rtol=1e-4)
    assert (scores[:, 1] <= several.max(1) + 1e-4).all() and (scores[:, 1] >= several.mean(1) - 1e-4).all()
    for row, matches in zip(scores, ranker.rank(CONTEXTS, options), strict=True):
        assert [match.index for match in matches] == sorted(range(3), key=lambda i: -row[i])
        assert [match.text for match in matches] == [list(options)[match.index] for match in matches]
        assert [match.score for match in matches] == pytest.approx(sorted(row, reverse=True), abs=1e-4)
    assert ranker.rank("hi", {}) == [] and ranker.score("hi", {}).shape == (0,)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"a": []}, r"candidates\['a'\] is an empty list; give the option a text, or remove it"),
        ({"a": 3}, r"candidates\['a'\] is 3; give a text, or a list of texts"),
        ({"a": ["b", None]}, r"candidates\['a'\] has None at place 1"),
        ({"a": {"b": "c"}}, r"candidates\['a'\] is {'b': 'c'}; give"),
        ({1: "a"}, "The list of names in candidates has 1 at place 0"),
    ],
)
def test_an_option_without_texts_is_refused(poly, options, said):
    for call in (poly.rank, poly.score):
        with pytest.raises(InputError, match=said):
            call("hi", options)
    with pytest.raises(InputError, match=r"candidates is {.*}; give a list of texts"):
        poly.prepare({"a": "b"})


LISTS = {
    "tuple": tuple,
    "generator": lambda texts: (text for text in texts),
    "dict's keys": lambda texts: dict.fromkeys(texts).keys(),
    "array": np.array,
    "array of objects": lambda texts: np.array(texts, object),
    "part of an array": lambda texts: np.array([texts, texts])[0],
    "Series": lambda texts: pd.Series(texts, index=range(7, 7 + len(texts))),
    "Series of strings": lambda texts: pd.Series(texts, dtype="string"),
    "categories": lambda texts: pd.Series(texts, dtype="category"),
    "Index": pd.Index,
    "Arrow": pa.array,
    "chunks of Arrow": lambda texts: pa.chunked_array([texts[:1], texts[1:]]),
    "column of datasets": lambda texts: datasets.Dataset.from_dict({"text": texts})["text"],
}


@pytest.mark.parametrize("listed", LISTS)
def test_texts_come_in_anything_that_lists_them(poly, tmp_path, listed):
    """An empty text is a text like any other, in memory and on the disk."""
    make, texts = LISTS[listed], ["", "yes", "no"]
    poly.score("hi", texts)  # encoded together, so that all below have the same vectors
    expected = poly.rank("hi", texts)
    assert {match.text for match in expected} == set(texts)
    assert poly.rank("hi", make(texts)) == poly.rank(make(["hi"]), make(texts))[0] == expected
    np.testing.assert_array_equal(poly.score(make(["hi"]), make(texts))[0], poly.score("hi", texts))
    prepared = poly.prepare(make(texts))
    found, complete = poly.search(make(["hi"]), prepared)
    assert complete == [True]
    for matches in (*found, poly.search("hi", prepared)[0][0]):
        assert [(m.index, m.text) for m in matches] == [(m.index, m.text) for m in expected]
    assert poly.encode_candidates(make(texts)).shape[0] == poly.encode_contexts(make(texts)).vectors.shape[0] == 3
    file = tmp_path / "yes.txt"
    file.write_text("yes\n")
    index = poly.append(poly.index(file, tmp_path / "index", "fp32"), make(texts))
    assert len(index) == 3 and index.find("") == 1 and list(index.texts()) == ["yes", "", "no"]
    assert {match.text for match in poly.rank("hi", index)} == set(texts)


NO_TEXTS = {
    "None": (None, "candidates is None; give a list of texts"),
    "number": (3, "candidates is 3; give"),
    "bytes": (b"ab", "candidates is b'ab'; give"),
    "missing text": (["a", None], "candidates has None at place 1; give a list of texts"),
    "NaN": (["a", float("nan")], "candidates has nan at place 1"),
    "pandas' NaN": (pd.Series(["a", None]), "candidates has .* at place 1"),
    "pandas' NA": (pd.Series(["a", None], dtype="string"), "candidates has <NA> at place 1"),
    "Arrow's null": (pa.array(["a", None]), "candidates has None at place 1"),
    "number in a list": ([1, "a"], "candidates has 1 at place 0"),
    "numbers": (np.arange(3), "candidates has 0 at place 0"),
    "bytes in a list": (["a", b"b"], "candidates has b'b' at place 1"),
    "array of bytes": (np.array([b"a"]), "candidates has b'a' at place 0"),
    "list in a list": ([["a", "b"]], r"candidates has \['a', 'b'\] at place 0"),
    "two dimensions": (np.array([["a", "b"]]), "candidates is a ndarray of 2 dimensions"),
    "no dimension": (np.array("ab"), "candidates is a ndarray of 0 dimensions"),
    "DataFrame": (pd.DataFrame({"text": ["a"]}), "candidates is a DataFrame of 2 dimensions"),
    "rows": (datasets.Dataset.from_dict({"text": ["a"]}), "candidates has {'text': 'a'} at place 0"),
    "half a character": (["a", "b\ud83d"], r"candidates has half a character at place 1 \('b\\ud83d'\)"),
    "dicts": ([{"text": "a"}], "candidates has {'text': 'a'} at place 0"),
}


@pytest.mark.parametrize("kind", [*NO_TEXTS, "letters"])
def test_what_is_no_list_of_texts_is_refused_before_anything_is_written(poly, tmp_path, kind):
    given, said = NO_TEXTS.get(kind, ("hello", "candidates is 'hello'; give a list of texts"))
    (tmp_path / "yes.txt").write_text("yes\n")
    index = poly.index(tmp_path / "yes.txt", tmp_path / "index")
    calls = [lambda: poly.rank("hi", given), lambda: poly.score("hi", given), lambda: poly.prepare(given)]
    calls += [lambda: poly.append(index, given), lambda: poly.index_in_engine(given, f"milvus:{tmp_path}/E.db/e")]
    for call in calls:
        with pytest.raises(InputError, match=f"{said}|The candidate at place 0 has the id None"):  # of dicts
            call()
    assert not (tmp_path / "E.db").exists() and len(poly.open_index(tmp_path / "index")) == 1
    if kind == "letters":  # a text alone is one text where texts are meant
        assert poly.encode_candidates(given).shape[0] == len(poly.query(given)) == 1
        return
    for call, name in ((poly.encode_candidates, "candidates"), (poly.encode_contexts, "contexts")):
        with pytest.raises(InputError, match=said.replace("candidates", name).replace("a list", "a text, or a list")):
            call(given)
    for call in (poly.rank, poly.score, poly.search):
        with pytest.raises(InputError, match=said.replace("candidates", "contexts").split("; give")[0]):
            call(given, poly.prepare(["yes"]) if call == poly.search else ["yes"])
    with pytest.raises(InputError, match=said.replace("candidates", "Example 0: label").split("; give")[0]):
        Ranker.train([{"context": "hi", "label": given}], backbone="scratch:tiny")


def test_an_index_is_scored_as_its_texts_and_is_no_list_of_them(poly):
    index = poly.prepare(REPLIES)
    expected = poly.score(CONTEXTS, REPLIES)
    np.testing.assert_allclose(poly.score(CONTEXTS, index), expected, atol=1e-4)
    expected[:, 1] = -np.inf
    np.testing.assert_allclose(poly.score(CONTEXTS, index.remove([REPLIES[1]])), expected, atol=1e-4)
    for call in (poly.prepare, poly.encode_candidates):
        with pytest.raises(InputError, match=r"candidates is <.*; give a"):
            call(index)
    for given in (index, {"hello": REPLIES}):
        with pytest.raises(InputError, match=r"Encoded contexts have scores .* give the contexts themselves"):
            poly.score(poly.encode_contexts(CONTEXTS), given)


def test_a_change_of_the_working_directory_changes_nothing(poly, tmp_path, monkeypatch):
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES[:3]))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    poly.save("M")
    ranker = Ranker.load("M")
    index = ranker.index("replies.txt", "replies.index")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert ranker.approximate(index, "hnsw").index_type == "hnsw"
    more = ranker.append(index, ["more"])
    assert len(more) == 4 and len(more.remove(["more"])) == 3
    ranker.calibrate([{"context": f"{n}", "label": "more" if n % 3 else "less"} for n in range(60)])
    assert (tmp_path / "M.calibration.json").exists() and not os.listdir()


def test_an_index_ranks_as_its_texts(poly, tmp_path):
    file, folder = tmp_path / "replies.txt", tmp_path / "replies.index"
    file.write_text("\n".join(REPLIES))
    distinct = REPLIES[:3]
    fp32 = poly.index(str(file), str(folder), stored_as="fp32")
    for index in (fp32, poly.open_index(str(folder)), poly.prepare(distinct)):
        for ours, direct in zip(poly.rank(CONTEXTS, index, 3), poly.rank(CONTEXTS, distinct, 3), strict=True):
            assert [(m.index, m.text) for m in ours] == [(m.index, m.text) for m in direct]
            assert [m.score for m in ours] == pytest.approx([m.score for m in direct], abs=1e-4)


@pytest.mark.parametrize(("stored_as", "off"), [("bf16", 0.01), ("int8", 0.02)])
def test_a_rounded_index_scores_nearly_the_same(poly, tmp_path, stored_as, off):
    file = tmp_path / "replies.txt"
    file.write_text("\n".join(REPLIES))
    index = poly.index(file, tmp_path / "replies.index", stored_as=stored_as)
    for ours, direct in zip(poly.rank(CONTEXTS, index, 3), poly.rank(CONTEXTS, REPLIES[:3], 3), strict=True):
        direct = {match.text: match.score for match in direct}
        assert {match.text: match.score for match in ours} == pytest.approx(direct, rel=off)


def test_an_index_follows_its_file(poly, tmp_path):
    file, folder = tmp_path / "replies.txt", str(tmp_path / "replies.index")
    file.write_text("\n".join(REPLIES))
    poly.index(str(file), folder)
    (stored,) = (tmp_path / "replies.index").glob("*.safetensors")
    first = stored.stat().st_ino
    poly.index(str(file), folder)
    assert stored.stat().st_ino == first  # reused: not written again
    file.write_text("something else\nand more")
    assert list(poly.index(str(file), folder).texts()) == ["something else", "and more"]


def test_an_index_of_other_weights_is_refused(poly, trained, tmp_path):
    file, folder = tmp_path / "replies.txt", str(tmp_path / "replies.index")
    file.write_text("\n".join(REPLIES))
    poly.index(str(file), folder)
    other = Ranker.load(trained("bi"))
    with pytest.raises(InputError, match="encoded by another model"):
        other.open_index(folder)
    before = poly.model.fingerprint()
    parameter = next(poly.model.module.candidate_encoder.parameters())
    with torch.no_grad():
        parameter[0, 0] += 1
        changed = poly.model.fingerprint()
        parameter[0, 0] -= 1
    assert changed != before


@pytest.mark.parametrize("ask", [Ranker.rank, Ranker.score, Ranker.decide])
def test_what_another_model_prepared_is_refused(ask, ranker, trained):
    other, rows = Ranker.load(trained("uni")), [{"id": "a", "text": "hello"}]
    with pytest.raises(InputError, match="prepare them"):
        ask(ranker, "hi", other.prepare(rows))
    ask(other, "hi", other.prepare(rows))


def other_weight(model):
    with torch.no_grad():
        next(model.module.candidate_encoder.parameters())[0, 0] += 1


def other_scaling(model):
    model.module.candidate_encoder.output_scaling = model.module.context_encoder.output_scaling = 0.5


def other_option(**options):
    def change(model):
        ranking = dataclasses.replace(model.settings.ranking, **options)
        model.settings = dataclasses.replace(model.settings, ranking=ranking)

    return change


def without_prompt(model):
    model.module.left_out = (0, 2)


# Of the options those whose role is Role.VECTORS, and what else decides a vector.
CAUSES = {
    "weights": other_weight,
    "tokenizer": lambda model: model.tokenizer.add_tokens(["canada"]),
    "truncation": lambda model: setattr(model, "settings", dataclasses.replace(model.settings, label_truncate=5)),
    "plain_texts": lambda model: setattr(model, "settings", dataclasses.replace(model.settings, plain_texts=True)),
    "candidate_prompt": other_option(candidate_prompt="the "),
    "reduction_type": other_option(reduction_type="mean"),
    "similarity": other_option(similarity="cosine"),
    "output_scaling": other_scaling,
    "include_prompt": without_prompt,
}


def test_every_option_that_decides_a_vector_is_among_the_causes():
    for kind in ARCHITECTURES:
        assert {*options_with(kind, Role.VECTORS)} <= CAUSES.keys()


@pytest.mark.parametrize("cause", CAUSES)
def test_a_fingerprint_changes_with_all_that_decides_a_vector(trained, cause):
    model = Ranker.load(trained("poly")).model
    before = model.fingerprint()
    CAUSES[cause](model)
    assert model.fingerprint() != before


def test_an_option_of_ones_own_that_decides_vectors_changes_the_fingerprint(trained, monkeypatch):
    monkeypatch.setattr(two_tower_model, "options_with", lambda *_: ["similarity", "power"])
    found = set()
    for power in (1.0, 2.0):
        model = Ranker.load(trained("poly")).model
        own = SimpleNamespace(**vars(model.settings.ranking), power=power)
        model.settings = dataclasses.replace(model.settings, ranking=own)
        found.add(model.fingerprint())
    assert len(found) == 2


def test_a_prompt_stands_before_every_text(ranker, trained):
    model_file = trained(ranker.model.settings.saved["model"].split(":")[1].removesuffix("Encoder").lower())
    prompted = Ranker.load(model_file, context_prompt="i am here\n", candidate_prompt="canada is ")
    written = ranker.score([f"i am here\n{text}" for text in CONTEXTS], [f"canada is {text}" for text in REPLIES])
    np.testing.assert_array_equal(prompted.score(CONTEXTS, REPLIES), written)
    assert (written != ranker.score(CONTEXTS, REPLIES)).all()


def test_a_fingerprint_changes_with_nothing_else(trained):
    before = Ranker.load(trained("poly")).model.fingerprint()
    others = {"precision": "bf16", "text_truncate": 100, "context_prompt": "the "}
    assert Ranker.load(trained("poly"), **others).model.fingerprint() == before
    model = Ranker.load(trained("poly")).model
    with torch.no_grad():
        model.module.codes += 1  # a context's business
    model.encode_texts(REPLIES)
    assert model.fingerprint() == before


def test_new_weights_have_new_vectors(trained):
    """Vectors of candidates that were met before are forgotten."""
    ranker = Ranker.load(trained("bi"))
    before = ranker.score("hi", REPLIES)
    load_weights(ranker.model.module, {name: 2 * weight for name, weight in ranker.model.module.state_dict().items()})
    again = ranker.score("hi", REPLIES)
    assert not np.isclose(before, again).any()
    ranker.model.weights_changed()
    np.testing.assert_array_equal(ranker.score("hi", REPLIES), again)


def layer_of(module):
    return module.candidate_encoder.backbone.encoder.layer


def optimiser_step(module):
    for weight in module.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.AdamW(module.parameters(), lr=1e-2, fused=True).step()


@torch.no_grad()
def in_place(module):
    module.candidate_encoder.backbone.embeddings.word_embeddings.weight[5:].mul_(3)


def another_parameter(module):
    """Of the same storage, changed afterwards."""
    dense = layer_of(module)[0].output.dense
    dense.weight = torch.nn.Parameter(dense.weight.data)
    with torch.no_grad():
        dense.weight.mul_(3)


def another_layer(module):
    layer_of(module)[1] = copy.deepcopy(layer_of(module)[0])


def rounded(module):
    module.half().float()


def parametrised(module):
    dense = layer_of(module)[0].output.dense
    torch.nn.utils.parametrizations.weight_norm(dense)
    with torch.no_grad():
        dense.parametrizations.weight.original0.mul_(3)


def loaded(module, assign=False):
    module.load_state_dict({name: 2 * weight for name, weight in module.state_dict().items()}, assign=assign)


def inferred(module):
    with torch.inference_mode():
        loaded(module, assign=True)


def other_data(module):
    for weight in module.parameters():
        weight.data = weight.data * 2


def swapped(module):
    weight = layer_of(module)[0].output.dense.weight
    torch.utils.swap_tensors(weight, torch.nn.Parameter(3 * weight.detach()))


CHANGES = [optimiser_step, in_place, another_parameter, another_layer, rounded, parametrised, loaded, inferred]
CHANGES += [other_data, swapped]


@pytest.mark.parametrize("change", CHANGES)
def test_no_vector_outlives_the_weights_that_made_it(change, trained, tmp_path):
    """Neither in the cache, nor among prepared candidates, nor in an index that is open."""
    ranker = Ranker.load(trained("poly"))
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES))
    kept = [ranker.prepare(REPLIES), ranker.index(tmp_path / "replies.txt", tmp_path / "index")]
    before = ranker.score("hi", REPLIES)
    for index in kept:
        ranker.to("cpu").bfloat16().to(torch.float32).rank("hi", index)  # the same weights
    change(ranker.model.module)
    after = ranker.score("hi", REPLIES)
    assert not np.allclose(after, before, rtol=1e-6)
    fresh = Ranker(type(ranker.model)(ranker.model.module, ranker.model.tokenizer, ranker.model.settings))
    np.testing.assert_array_equal(after, fresh.score("hi", REPLIES))
    for index in kept:
        with pytest.raises(InputError, match="encoded with other weights"):
            ranker.rank("hi", index)
    with pytest.raises(InputError, match="encoded with other weights"):
        ranker.append(kept[1], ["new"])
    if change is not inferred:  # of tensors that count no changes nobody knows
        ranker.rank("hi", ranker.prepare(REPLIES))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda prepared: pickle.loads(pickle.dumps(prepared))])
def test_a_copy_of_prepared_candidates_belongs_to_the_same_weights(copied, trained):
    ranker, other = Ranker.load(trained("poly")), Ranker.load(trained("poly"))
    prepared = ranker.append(ranker.prepare(REPLIES), ["new"])
    kept = prepared.remove(REPLIES[:1])
    for index in (prepared, kept):
        assert other.rank("hi", copied(index)) == ranker.rank("hi", index)
        with pytest.raises(InputError, match="or prepared by another Ranker: prepare them again"):
            other.rank("hi", index)
    in_place(ranker.model.module)
    for index, asked in ((copied(kept), ranker), (copied(kept), other), (copied(other.prepare(REPLIES)), ranker)):
        with pytest.raises(InputError, match="encoded with other weights"):
            asked.rank("hi", index)


def test_candidates_are_read_once_for_all_contexts(trained, monkeypatch):
    ranker, read = Ranker.load(trained("bi")), []
    make = type(ranker.model).candidates
    monkeypatch.setattr(type(ranker.model), "candidates", lambda model, texts: read.append(1) or make(model, texts))
    contexts = [f"hi {n}" for n in range(130)]  # three blocks
    assert len(ranker.rank(contexts, REPLIES)) == 130 and len(read) == 1


@pytest.mark.parametrize("option", ["share_encoders", "backbone", "train_layers"])
def test_what_training_decided_cannot_be_changed_afterwards(trained, option):
    with pytest.raises(InputError, match=f"^{option}: not an option of this model"):
        Ranker.load(trained("bi"), **{option: True})


def test_a_cross_encoder_has_no_index(trained, tmp_path):
    with pytest.raises(InputError, match="cannot encode candidates in advance"):
        Ranker.load(trained("cross")).index("replies.txt", str(tmp_path))


def test_missing_and_foreign_models_are_named(tmp_path):
    with pytest.raises(InputError, match="no trained model at"):
        Ranker.load(str(tmp_path / "M"))
    (tmp_path / "M").write_bytes(b"")
    (tmp_path / "M.opt").write_text(json.dumps({"model": "repeat_label"}))
    with pytest.raises(InputError, match="was trained as repeat_label"):
        Ranker.load(str(tmp_path / "M"))


def test_precision_can_be_chosen_when_loading(trained, poly):
    half = Ranker.load(trained("poly"), precision="bf16")
    np.testing.assert_allclose(half.score(CONTEXTS, REPLIES), poly.score(CONTEXTS, REPLIES), rtol=0.05, atol=0.5)


def test_rank_command_reads_lines_and_json(trained, tmp_path, monkeypatch, capsys):
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES))
    lines = ["hi", "", '{"context": ["your persona: i ski .", "hello"]}', '{"context": "déjà vu"}']
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    own("rank", "-mf", trained("poly"), "--candidates-file", tmp_path / "replies.txt", "--top-k", 2)
    found = [json.loads(line) for line in capsys.readouterr().out.strip().split("\n")]
    assert [row["context"] for row in found] == ["hi", "your persona: i ski .\nhello", "déjà vu"]
    assert all(len(row["candidates"]) == 2 and set(row["candidates"][0]) == {"index", "text", "score"} for row in found)


LINES = {  # of standard input: the context that is read, or what is wrong, and the further keys
    "hi": ("hi", {}),
    '\ufeff{"context": ["hi", "how are you ?"]}': ("hi\nhow are you ?", {}),
    '{"context": "hi", "id": 3, "of": {"a": [null, 1.5, "ä"]}}': ("hi", {"id": 3, "of": {"a": [None, 1.5, "ä"]}}),
    "{ return 0; }": ("{ return 0; }", {}),
    "{": ("{", {}),
    '{"context": "cut o': ('{"context": "cut o', {}),
    '["a"]': ('["a"]', {}),
    "\t a\u2028b\x85c\x0cd\re \r": ("a\u2028b\x85c\x0cd\re", {}),
    '{"context": " a\\tb\\u2028\\r\\n"}': (" a\tb\u2028\r\n", {}),
    '{"context": ""}': ("", {}),
    '{"context": "hi", "n": NaN, "more": [-Infinity, 1e999]}': ("hi", {"n": None, "more": [None, None]}),
    '{"context": 3, "id": "a"}': ("context is 3; give a text", {"id": "a"}),
    '{"text": "hi", "line": "b"}': ("context is None; give a text", {"text": "hi", "line": "b"}),
    '{"context": [1]}': ("context has 1 at place 0", {}),
    '{"context": ["a", null]}': ("context has None at place 1", {}),
    '{"context": []}': ("context has no turns", {}),
    '{"context": {"a": "b"}}': ("context is {'a': 'b'}", {}),
    '{"context": "\\ud83d"}': ("context has half a character", {}),
    '{"context": "hi", "candidates": ["a"]}': ("The key candidates is reserved for the answer", {}),
    "{}": ("context is None", {}),
}
WRONG = list(LINES)[11:]


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_counted(line, tmp_path):
    (tmp_path / "contexts.txt").write_text(f"fine\n{line}\n")
    with pytest.raises(InputError, match=r"Line 2 of .*/contexts\.txt: "):
        read_contexts(str(tmp_path / "contexts.txt"))


def test_every_line_of_the_rank_command_has_an_answer(trained, tmp_path, monkeypatch, capsys):
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES))
    lines = sorted(LINES, reverse=True)  # that with the byte order mark first
    given = io.TextIOWrapper(io.BytesIO(("\n".join([lines[0], "", *lines[1:]])).encode() + b"\n\xff\n"), "latin-1")
    monkeypatch.setattr("sys.stdin", given)
    with pytest.raises(InputError, match=f"No context in {len(WRONG)} of {len(lines) + 1} lines"):
        own("rank", "-mf", trained("bi"), "--candidates-file", tmp_path / "replies.txt", "--top-k", 1)
    answers = [json.loads(line) for line in capsys.readouterr().out.split("\n")[:-1]]
    for number, (line, answer) in enumerate(zip([*lines, "\ufffd"], answers, strict=True), 1):
        context, fields = LINES.get(line, (line, {}))
        if line in WRONG:
            assert answer.pop("error").startswith(context)
            assert answer == {"line": number + (number > 1)} | fields
        else:
            assert len(answer.pop("candidates")) == 1 and answer == fields | {"context": context}


def test_short_names_and_missing_model_files():
    assert with_full_names(["train_model", "-m", "poly", "-t", "bi"]) == [
        "train_model",
        "-m",
        "polyagents:PolyEncoder",
        "-t",
        "bi",
    ]
    with pytest.raises(InputError, match="There is no trained model at nowhere/M"):
        check_is_trained(["eval_model", "-mf", "nowhere/M", "-t", "x"])
    check_is_trained(["train_model", "-m", "poly", "-mf", "nowhere/M"])
    check_is_trained(["train_model", "-o", "my.opt", "-mf", "nowhere/M"])
    assert with_full_names(["tm", "--model=bi"]) == ["tm", "--model", "polyagents:BiEncoder"]


@pytest.mark.parametrize("given", [["--model_file", "a_b"], ["--model_file=a_b"], ["--model-file=a_b"]])
def test_every_spelling_of_model_file_is_read(given):
    arguments = with_full_names(["eval_model", *given, "-t", "x"])
    assert arguments[1:3] == ["--model-file", "a_b"]
    with pytest.raises(InputError, match="There is no trained model at a_b"):
        check_is_trained(arguments)
    check_is_trained(with_full_names(["train_model", *given, "--init_opt=my.opt"]))


# ---- vectors, device, precision --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_vectors_score_as_their_texts(kind, trained):
    ranker = Ranker.load(trained(kind))
    contexts, candidates = ranker.encode_contexts(CONTEXTS), ranker.encode_candidates(REPLIES)
    assert contexts.vectors.shape == (3, 1 if kind == "bi" else 4, 128)
    assert candidates.shape == (4, 128) and candidates.dtype == contexts.vectors.dtype == torch.float32
    assert not candidates.requires_grad and not contexts.vectors.requires_grad
    scores = ranker.score(CONTEXTS, REPLIES)
    for asked, ranked in ((contexts, candidates), (contexts, REPLIES), (CONTEXTS, candidates)):
        np.testing.assert_allclose(ranker.score(asked, ranked), scores, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(ranker.score(CONTEXTS[0], candidates), scores[0], atol=1e-4, rtol=1e-4)


def test_vectors_are_those_of_an_index(poly, tmp_path):
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES[:3]))
    index = poly.index(tmp_path / "replies.txt", tmp_path / "replies.index", stored_as="fp32")
    torch.testing.assert_close(index.rows(range(3)), poly.encode_candidates(REPLIES[:3]), atol=1e-5, rtol=1e-5)


def test_many_texts_are_encoded_in_blocks_with_a_bar(poly, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    contexts = [f"hi {n}" for n in range(70)] + ["a longer one , which has more context vectors"]
    vectors, mask = poly.encode_contexts(contexts, show_progress=True)
    assert "Encoding contexts: 100%" in capsys.readouterr().err
    for place in (0, 69, 70):
        alone = poly.encode_contexts(contexts[place])
        torch.testing.assert_close(vectors[place][mask[place]], alone.vectors[0][alone.mask[0]], atol=1e-4, rtol=1e-4)
    poly.encode_candidates(REPLIES, show_progress=True)
    assert "Encoding candidates: 100%" in capsys.readouterr().err
    poly.encode_candidates(REPLIES)
    assert not capsys.readouterr().err


def test_no_text_has_no_vector_and_one_has_one(poly):
    assert poly.encode_candidates([]).shape == (0, 128) and poly.encode_candidates("hi").shape == (1, 128)
    none, one = poly.encode_contexts([]), poly.encode_contexts("hi")
    assert none.vectors.shape[0] == none.mask.shape[0] == 0 and one.vectors.shape == (1, 4, 128)
    assert poly.score(none, REPLIES).shape == (0, 4) and poly.score(one, poly.encode_candidates([])).shape == (1, 0)


def test_vectors_of_another_width_or_kind_of_model_are_refused(poly, trained):
    with pytest.raises(InputError, match=r"shape \[4, 64\] have no score with context vectors of shape \[1, 4, 128\]"):
        poly.score("hi", torch.zeros(4, 64))
    with pytest.raises(InputError, match="cannot encode candidates in advance"):
        Ranker.load(trained("uni")).encode_candidates(REPLIES)
    with pytest.raises(InputError, match="cannot encode candidates in advance"):
        Ranker.load(trained("cross")).encode_contexts(CONTEXTS)


def test_another_precision_is_that_of_loading(trained, poly, tmp_path):
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES[:3]))
    poly.index(tmp_path / "replies.txt", tmp_path / "replies.index")
    loaded, moved = Ranker.load(trained("poly"), precision="bf16"), Ranker.load(trained("poly"))
    exact = moved.score(CONTEXTS, REPLIES)  # and its vectors are remembered
    assert moved.bfloat16() is moved and repr(moved) == repr(loaded) != repr(poly)
    low = moved.score(CONTEXTS, REPLIES)
    np.testing.assert_array_equal(low, loaded.score(CONTEXTS, REPLIES))
    assert (low != exact).any()
    assert len(moved.rank("hi", moved.open_index(tmp_path / "replies.index"), 3)) == 3  # an index stays valid
    np.testing.assert_array_equal(moved.to(torch.float32).score(CONTEXTS, REPLIES), exact)
    assert "fp16" in repr(moved.half())


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere", "'nowhere' is not a device"),
        (torch.int8, "cannot compute in torch.int8"),
        ("mps:9", "cannot be moved"),
    ],
)
def test_a_device_that_there_is_not_is_named_and_all_stays(trained, target, said):
    ranker = Ranker.load(trained("bi"))
    before = ranker.score("hi", REPLIES)
    with pytest.raises(InputError, match=said):
        ranker.to(target)
    assert ranker.device == torch.device("cpu")
    np.testing.assert_array_equal(ranker.score("hi", REPLIES), before)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_a_model_that_was_moved_ranks_as_before(trained, kind, tmp_path):
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES[:3]))
    ranker = Ranker.load(trained(kind), no_cuda=True, precision="fp32")
    two_towers = kind in ("bi", "poly")
    encoded = [ranker.prepare(REPLIES[:3])]
    encoded += [ranker.index(tmp_path / "replies.txt", tmp_path / "replies.index", "fp32")] if two_towers else []
    before = ranker.score(CONTEXTS, REPLIES[:3])
    for device in ("cuda", "cpu"):
        assert ranker.to(device).device.type == device
        np.testing.assert_allclose(ranker.score(CONTEXTS, REPLIES[:3]), before, atol=1e-3, rtol=1e-3)
        for candidates in encoded:
            best = [matches[0].score for matches in ranker.rank(CONTEXTS, candidates)]
            np.testing.assert_allclose(best, before.max(1), atol=1e-3, rtol=1e-3)
