"""What Python callers give: values of other types are one sentence, and numpy's numbers are numbers."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from polyagents import InputError, Pipeline, Ranker
from polyagents.models.model_options import RankingOptions
from polyagents.training_loop.callbacks import Callback

PAIRS = [{"context": f"question {number}", "label": f"answer {number}"} for number in range(4)]
TABLES = [pd.DataFrame(PAIRS), pa.Table.from_pylist(PAIRS)]
TINY = {"backbone": "scratch:tiny", "max_train_steps": 1, "progress": False}
ROWS = [{"id": "a", "text": "hello", "year": 2020, "new": True}, {"id": "b", "text": "bye", "year": 2021, "new": False}]
FIELDS = ["year:int", "new:bool"]


@pytest.fixture(scope="module")
def ranker(trained):
    return Ranker.load(trained("bi"))


class LazyTable:
    """A table that is not read yet, such as a LazyFrame of polars."""

    def __getitem__(self, places):
        raise TypeError("LazyTable is not subscriptable (aside from slicing)")


OTHER_TYPES = [
    (lambda ranker: Ranker.load(5), "model_file is 5; give a path"),
    (lambda ranker: Ranker.from_pretrained(None), "name_or_folder is None; give a path"),
    (lambda ranker: ranker.save(b"M"), "model_file is b'M'; give a path"),
    (lambda ranker: ranker.open_index(5), "index_dir is 5; give a path"),
    (lambda ranker: ranker.index(TABLES[0], "I"), "candidates_file is context label 0 question 0 .*; give a path"),
    (lambda ranker: Ranker.train(PAIRS, 5, **TINY), "model_file is 5; give a path"),
    (lambda ranker: Ranker.train(PAIRS, init_model=5, **TINY), "init_model is 5; give a path"),
    (lambda ranker: Ranker.train(PAIRS, model=5, **TINY), "no architecture 5"),
    (lambda ranker: Ranker.train(PAIRS, **TINY | {"backbone": None}), "--backbone None is not possible"),
    (lambda ranker: Ranker.train(PAIRS, context_prompt=False, **TINY), "--context-prompt False is not possible"),
    (lambda ranker: Ranker.train(PAIRS, callbacks=[5], **TINY), "5 is not a callback"),
    (lambda ranker: Ranker.train(PAIRS, callbacks=5, **TINY), "callbacks is 5"),
    (lambda ranker: Ranker.train(PAIRS, valid=5, **TINY), "valid is int; give a list of dicts"),
    *(
        (lambda ranker, given=given: Ranker.train(given, **TINY), "examples is .*; give a list of dicts")
        for given in (None, 5, Path("pairs.csv"), "pairs.csv", PAIRS[0], *TABLES)
    ),
    (lambda ranker: ranker.calibrate(5), "examples is int"),
    (lambda ranker: ranker.calibrate(PAIRS, rerank="M"), "rerank is 'M'; give a Ranker"),
    (lambda ranker: ranker.decide("hi", ["a", "b"], rerank="M"), "rerank is 'M'; give a Ranker"),
    (lambda ranker: ranker.decide("hi", ["a", "b"], none="0.5"), "not calibrated"),
    (lambda ranker: ranker.decide("hi", ["a", "b"], rerank=""), "rerank is ''; give a Ranker"),
    (lambda ranker: Pipeline(ranker, 0), "second is 0; give a Ranker"),
    (lambda ranker: Pipeline("M", ranker), "first is 'M'; give a Ranker"),
    (lambda ranker: Pipeline(ranker, "M"), "second is 'M'; give a Ranker"),
    (lambda ranker: ranker.rerank("hi", ["hello"]), "to rank texts, use rank"),
    (lambda ranker: ranker.rerank("hi", 5), "matches is 5"),
    (lambda ranker: ranker.approximate(ranker.prepare(["a"]), "hnsw"), "Only an index on disk"),
    (lambda ranker: ranker.append(["a"], ["b"]), "index is \\['a'\\]"),
    (lambda ranker: ranker.prepare(pd.DataFrame(ROWS)), "DataFrame of 2 dimensions"),
    (lambda ranker: ranker.prepare([ROWS[0], "hello"]), "place 1 is 'hello'"),
    (lambda ranker: ranker.rank("hi", LazyTable()), "candidates is .*LazyTable.*; give a list of texts"),
    (lambda ranker: ranker.rank(LazyTable(), ["a"]), "contexts is .*LazyTable.*; give a text"),
    (lambda ranker: Ranker.train(LazyTable(), **TINY), "examples is LazyTable"),
    (lambda ranker: ranker.prepare(ROWS, fields=5), "fields is 5"),
    (lambda ranker: ranker.prepare(ROWS, fields=[5]), "fields has 5 at place 0"),
    (lambda ranker: ranker.rank("hi", ranker.prepare(ROWS, FIELDS), filter=np.arange(2)), "The filter is array"),
]


@pytest.mark.parametrize(("call", "said"), OTHER_TYPES, ids=[said for _, said in OTHER_TYPES])
def test_a_value_of_another_type_is_one_sentence(call, said, ranker):
    with pytest.raises(InputError, match=said) as error:
        call(ranker)
    assert "\n" not in str(error.value)


EMPTY = [
    ("model_file", Ranker.load),
    ("model_files", lambda name: Ranker.average([name, name])),
    ("name_or_folder", Ranker.from_pretrained),
    ("encoder", Ranker.from_encoder),
    ("model_file", lambda name: Ranker.train(PAIRS, name, **TINY)),
    ("init_model", lambda name: Ranker.train(PAIRS, init_model=name, **TINY)),
]
EMPTY_OF_RANKER = [
    ("folder", "save_pretrained", ()),
    ("model_file", "save", ()),
    ("index_dir", "open_index", ()),
    ("candidates_file", "index", ("c.index",)),
    ("url", "open_engine", ()),
    ("repo_id", "push_to_hub", ()),
]


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_refused(name, ranker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = [
        *EMPTY,
        *((what, lambda name, of=of: getattr(ranker, of[0])(name, *of[1])) for what, *of in EMPTY_OF_RANKER),
    ]
    calls += [("index_dir", lambda name: ranker.index("c.txt", name))]
    calls += [("url", lambda name: ranker.index_in_engine(["hi"], name))]
    for what, call in calls:
        with pytest.raises(InputError, match=f"{what} is '{name}'; give a "):
            call(name)
    with pytest.raises(InputError, match="no architecture ''"):
        Ranker.train(PAIRS, model="", **TINY)
    assert not [*tmp_path.iterdir()]


EMPTY_OF_CONTEXTS = [
    (lambda ranker, other: ranker.decide([], ["a"], none=3), "not calibrated"),
    (lambda ranker, other: ranker.decide([], []), "There are no options"),
    (lambda ranker, other: ranker.decide([], other), "other weights"),
    (lambda ranker, other: ranker.rank([], other), "other weights"),
    (lambda ranker, other: ranker.score([], other), "other weights"),
    (lambda ranker, other: ranker.rank([], ["a"], top_k=0), "top_k is 0"),
    (lambda ranker, other: ranker.rank([], ["a"], filter={"x": 1}), "have no fields"),
    (lambda ranker, other: Pipeline(ranker, ranker).rank([], ["a"], top_k=0), "top_k is 0"),
    (lambda ranker, other: ranker.rerank("hi", [], top_k=0), "top_k is 0"),
]


@pytest.mark.parametrize(("call", "said"), EMPTY_OF_CONTEXTS)
def test_without_contexts_all_else_is_checked_too(call, said, ranker, trained):
    with pytest.raises(InputError, match=said):
        call(ranker, Ranker.load(trained("poly")).prepare(["a"]))
    assert ranker.decide([], ["a"]) == ranker.rank([], ["a"]) == []


@pytest.mark.parametrize("name", ["new/", "there"])
def test_a_name_that_no_file_can_have_is_refused_before_anything_is_written_or_learnt(
    name, ranker, tmp_path, monkeypatch
):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    listener = Callback()
    listener.on_step_end = lambda trainer: pytest.fail("it was trained before")
    for call in (lambda: ranker.save(name), lambda: Ranker.train(PAIRS, name, callbacks=[listener], **TINY)):
        with pytest.raises(InputError, match=r"is not a file that can be replaced"):
            call()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("options", [{}, {"load_from_checkpoint": False}])
def test_no_model_replaces_a_file_that_is_none(options, ranker, tmp_path):
    file = tmp_path / "replies.txt"
    file.write_text("hello")
    for call in (ranker.save, lambda name: Ranker.train(PAIRS, name, **TINY, **options)):
        with pytest.raises(InputError, match="is not a model file"):
            call(file)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["hello"]


@pytest.mark.parametrize("convert", [pd.Series, lambda rows: pd.Series(rows, index=list("dcba")), np.array, tuple])
def test_examples_in_any_container_and_texts_to_rank(convert, trained):
    pairs = [{"context": "hi", "label": one} for one in ("hello", "i ski", "i have two dogs", "bye")]
    more = {"init_model": trained("bi"), "max_train_steps": 1, "progress": False}
    answers = convert([pair["label"] for pair in pairs])
    Ranker.train(convert(pairs), valid=convert(pairs), eval_candidates=answers, **more)


def test_a_number_is_a_choice_as_its_text_is():
    assert RankingOptions.read({"backbone_bits": 8}) == RankingOptions.read({"backbone_bits": "8"})


@pytest.mark.parametrize("value", [np.int64(32), np.int8(32), np.array(32)])
def test_numbers_of_numpy_are_options(value, trained):
    assert Ranker.load(trained("bi"), text_truncate=value).model.settings.text_truncate == 32


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_numbers_of_numpy_are_counts(kind, ranker, tmp_path):
    assert len(ranker.rank("hi", ["a", "b", "c"], top_k=kind(2))) == 2
    ranker.save(tmp_path / "M")
    own = Ranker.load(tmp_path / "M")  # whose calibration is written next to it
    examples = [{"context": f"{n} plus 1", "label": "more" if n % 3 else "less"} for n in range(60)]
    pair = Pipeline(own, own, rerank_top=kind(2))
    pair.calibrate(examples)
    assert Ranker.load(tmp_path / "M").decide("1 plus 1", ["more", "less"], rerank=own, rerank_top=2).calibrated
    assert len(pair.rank("hi", ["a", "b", "c"], top_k=kind(1))) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"year": np.int32(2020)},
        {"year": np.array([2020, 2019])},
        {"year": {"lte": np.float32(2020)}},
        {"new": np.bool_(True)},
    ],
)
def test_numbers_of_numpy_are_values_of_fields_and_of_filters(given, ranker):
    rows = [row | {"year": np.int64(row["year"]), "new": np.bool_(row["new"])} for row in ROWS]
    assert [match.id for match in ranker.rank("hi", ranker.prepare(rows, FIELDS), filter=given)] == ["a"]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda: (row for row in ROWS), id="generator"),
        pytest.param(lambda: tuple(ROWS), id="tuple"),
        pytest.param(lambda: pa.Table.from_pylist(ROWS), id="pyarrow"),
        pytest.param(lambda: pytest.importorskip("datasets").Dataset.from_list(ROWS), id="datasets"),
    ],
)
def test_dicts_come_from_anything_that_has_them(given, ranker):
    prepared = ranker.prepare(given(), FIELDS)
    assert [prepared.find(row["id"]) for row in ROWS] == [0, 1]
    more = ranker.append(ranker.prepare(ROWS[:1], FIELDS), given())
    assert len(more) == 2 and more.find("b") == 1
