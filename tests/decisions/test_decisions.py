"""Decisions: what is chosen, whatever the order and the company of the options, and the commands that decide."""

import argparse
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import copy_model, own
from decisions import simulated
from parlai.core.params import ParlaiParser

from polyagents import InputError, Ranker
from polyagents.arguments import threshold
from polyagents.commands.decide import KEYS
from polyagents.decisions.calibration import MadeFor, fitted_to, identity, path_of, write_calibration
from polyagents.decisions.deciding import checked_none, decisions_of
from polyagents.decisions.score_map import ScoreMap
from polyagents.parlai_agents import evaluating
from polyagents.parlai_agents.decision_task import examples_of_task
from polyagents.tasks import clinc150

OPTIONS = ["so you like red", "i do not know", "tell me more", "bye"]
CONTEXT = "your persona: i ski .\ni like red"


@pytest.fixture(scope="module")
def calibrated(trained, tmp_path_factory):
    """Model files by kind, with a calibration that knows "none of these"."""
    made = {}

    def of(kind):
        if kind not in made:
            file = copy_model(trained(kind), tmp_path_factory.mktemp("calibrated") / kind)
            ranker = Ranker.load(file)
            scores = ranker.score(CONTEXT, OPTIONS)
            scored, _ = simulated(200, temperature=max(float(np.std(scores)), 1e-3), outside=0.2)
            made_for = MadeFor(identity(ranker.model), None, None, None, 1, 10, "")
            write_calibration(fitted_to(scored, made_for, 1.0), path_of(file))
            made[kind] = file
        return made[kind]

    return of


@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_a_score_depends_neither_on_order_nor_on_company(kind, calibrated):
    ranker = Ranker.load(calibrated(kind))
    scores = dict(zip(OPTIONS, ranker.score(CONTEXT, OPTIONS), strict=True))
    for listed in (OPTIONS[::-1], OPTIONS[1:3], [*OPTIONS, "more", *OPTIONS]):
        again = dict(zip(listed, ranker.score(CONTEXT, listed), strict=True))
        assert [again[name] for name in again if name in scores] == pytest.approx(
            [scores[name] for name in again if name in scores], abs=1e-4
        )
    decision = ranker.decide(CONTEXT, OPTIONS)
    shuffled = ranker.decide(CONTEXT, OPTIONS[::-1])
    assert shuffled.choice == decision.choice
    assert shuffled.probabilities == pytest.approx(decision.probabilities, abs=1e-4)
    assert sum(decision.probabilities.values()) + decision.none_probability == pytest.approx(1)


def test_a_text_that_is_listed_twice_counts_once(calibrated):
    ranker = Ranker.load(calibrated("bi"))
    once, twice = ranker.decide(CONTEXT, OPTIONS), ranker.decide(CONTEXT, [*OPTIONS, *OPTIONS[:2]])
    assert twice == once
    repeated = [{"id": f"{place}", "text": text} for place, text in enumerate([*OPTIONS, *OPTIONS[:2]])]
    for listed in (repeated, [*OPTIONS, *OPTIONS[:2]]):
        found = ranker.decide(CONTEXT, ranker.prepare(listed))
        assert found.choice == once.choice and found.probabilities == pytest.approx(once.probabilities, abs=1e-4)


def test_ties_are_decided_by_name():
    for names in (["b", "a"], ["a", "b"]):
        for calibration in (None, ScoreMap(1.0)):
            (found,) = decisions_of([names], np.array([[1.0, 1.0]]), None, calibration, None)
            assert found.choice == "a"


@pytest.mark.parametrize(
    ("none", "choice", "probability"),
    [(None, None, "none"), (False, "a", "a"), (True, None, "none"), (0.9, None, "none"), (0.1, None, "none")],
)
def test_none_is_an_exit_if_it_is_wanted(none, choice, probability):
    (found,) = decisions_of([["a", "b"]], np.array([[0.5, 0.0]]), None, ScoreMap(1.0, none_bias=3.0), none)
    assert found.choice == choice
    assert found.probability == (found.none_probability if probability == "none" else found.probabilities["a"])
    assert sum(found.probabilities.values()) + found.none_probability == pytest.approx(1)


@pytest.mark.parametrize(
    ("none", "choice"), [(0.9, None), (np.float32(0.9), None), (0.5, "a"), (None, "a"), (np.bool_(False), "a")]
)
def test_a_threshold_decides_where_none_was_not_learnt(none, choice):
    (found,) = decisions_of([["a", "b"]], np.array([[1.0, 0.0]]), None, ScoreMap(1.0), none)
    assert found.choice == choice and found.none_probability == 0


@pytest.mark.parametrize(
    ("calibration", "none", "said"),
    [
        (None, 0.5, "not calibrated: run polyagents calibrate first"),
        (None, True, "not calibrated: run polyagents calibrate first"),
        (ScoreMap(1.0), True, "has seen no example without a right option"),
        (ScoreMap(1.0), 1.5, "give a probability from 0 to 1"),
        (ScoreMap(1.0), -0.5, "give a probability from 0 to 1"),
        (ScoreMap(1.0), "0.5", "give a probability from 0 to 1"),
        (ScoreMap(1.0), np.bool_(True), "has seen no example without a right option"),
    ],
)
def test_an_exit_that_there_is_not_is_refused(calibration, none, said):
    with pytest.raises(InputError, match=said):
        decisions_of([["a"]], np.array([[1.0]]), None, calibration, none)


@pytest.mark.parametrize("none", ["0", "1", "0.5", "-0.1", "1.1", "nan", "1.0000001"])
def test_the_command_takes_the_same_thresholds_as_python(none):
    def is_possible(call):
        try:
            call()
        except (InputError, argparse.ArgumentTypeError):
            return False
        return True

    in_python = is_possible(lambda: checked_none(float(none), ScoreMap(1.0)))
    assert is_possible(lambda: threshold(none)) == in_python == (0 <= float(none) <= 1)
    (found,) = decisions_of([["a", "b"]], np.array([[1.0, 0.0]]), None, ScoreMap(1.0), float(in_python and none))
    assert found.choice == (None if none == "1" else "a")


def test_one_option_is_chosen_and_has_no_margin(calibrated):
    found = Ranker.load(calibrated("bi")).decide(CONTEXT, ["hello"], none=False)
    assert (found.choice, found.probability, found.margin) == ("hello", 1.0, None)


def test_without_a_calibration_there_is_no_probability(trained):
    ranker = Ranker.load(trained("bi"))
    found = ranker.decide(CONTEXT, OPTIONS)
    assert (found.calibrated, found.probability, found.probabilities, found.none_probability) == (
        False,
        None,
        None,
        None,
    )
    best, second = ranker.rank(CONTEXT, OPTIONS, top_k=2)
    assert found.choice == best.text and found.margin == pytest.approx(best.score - second.score)


def test_options_of_several_texts_score_as_when_they_are_ranked(calibrated):
    ranker = Ranker.load(calibrated("poly"))
    options = {"colour": ["so you like red", "so you like blue"], "end": "bye"}
    best = ranker.rank(CONTEXT, options, top_k=1)[0]
    assert ranker.decide(CONTEXT, options, none=False).choice == best.text
    repeated = options | {"colour": [*options["colour"], *options["colour"][:1] * 9]}
    assert ranker.rank(CONTEXT, repeated, top_k=1)[0] == best


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "There are no options"),
        ({}, "There are no options"),
        (["a", " "], "has a blank text"),
        ({"a": "b", " ": "x"}, "The option of 'x' has a blank name"),
        ({"a": "x", "b": "x"}, "The options 'a' and 'b' have the same text, 'x'"),
        ({"a": ["x", "y"], "b": ["y"]}, "The options 'a' and 'b' have the same text, 'y'"),
        ({"a": []}, "is an empty list"),
        ("text", "give a list of texts"),
        ([3], "has 3 at place 0"),
        ({1: "a"}, "has 1 at place 0"),
    ],
)
def test_options_that_cannot_be_decided_between_are_one_sentence(calibrated, options, said):
    with pytest.raises(InputError, match=said):
        Ranker.load(calibrated("bi")).decide(CONTEXT, options)


def test_a_joint_model_is_not_asked_about_a_hundred_thousand_options(calibrated):
    with pytest.raises(InputError, match="reads each option together with the context, and these are 100,000"):
        Ranker.load(calibrated("cross")).decide(CONTEXT, list(map(str, range(100_000))))


def test_an_index_decides_as_its_texts(calibrated, tmp_path, monkeypatch):
    ranker = Ranker.load(calibrated("bi"))
    (tmp_path / "o.txt").write_text("\n".join(OPTIONS))
    store = ranker.index(tmp_path / "o.txt", tmp_path / "o.index", stored_as="fp32")
    expected = ranker.decide(CONTEXT, OPTIONS)
    for index in (ranker.prepare(OPTIONS), store):
        found = ranker.decide(CONTEXT, index)
        assert found.choice == expected.choice
        assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-4)
    monkeypatch.setattr("polyagents.decisions.scoring.LISTED", 3)
    monkeypatch.setattr("polyagents.decisions.scoring.SHORTLIST", 2)
    found = ranker.decide(CONTEXT, store)
    assert len(found.probabilities) == 2
    assert found.notes == ("Probabilities are over the 2 best of 4 candidates.",)


def test_another_number_of_options_is_said(calibrated):
    found = Ranker.load(calibrated("bi")).decide(CONTEXT, [str(number) for number in range(20)])
    assert "fitted for 1 to 10 options, and not for 20" in found.notes[0]


def test_decide_writes_a_line_for_each(calibrated, tmp_path, monkeypatch, capsys):
    (tmp_path / "o.json").write_text(json.dumps({"colour": ["so you like red", "blue"], "end": "bye"}))
    monkeypatch.setattr("sys.stdin", io.StringIO('i like red\n{"context": ["a", "b"], "id": 3}\n{"context": 3}\n'))
    with pytest.raises(InputError, match="No context in 1 of 3 lines"):
        own("decide", "-mf", calibrated("bi"), "--options-file", tmp_path / "o.json", "--top-k", 1)
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["context"] == "i like red" and first["calibrated"] and len(first["probabilities"]) == 1
    assert second["id"] == 3 and second["context"] == "a\nb"
    assert "context is 3" in third["error"]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_the_answer_is_not_a_lines_own(key, calibrated, tmp_path, monkeypatch, capsys):
    (tmp_path / "o.txt").write_text("\n".join(OPTIONS))
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"context": "hi", key: "mine", "id": 3})))
    with pytest.raises(InputError, match="No context in 1 of 1 line;"):
        own("decide", "-mf", calibrated("bi"), "--options-file", tmp_path / "o.txt")
    said = json.loads(capsys.readouterr().out)
    assert said["id"] == 3 and f"The key {key} is reserved" in said["error"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("o.json", "[1", "cannot be read"),
        ("o.json", '{"id": "a", "text": "x"}\n{"id": "b", "text": "y"}', "a name that ends in .jsonl"),
        ("o.json", "3", "is not a JSON object of names and texts"),
        ("o.json", "{}", "There are no options"),
        ("o.json", '{"a": "x", "b": "x"}', "have the same text"),
        ("o.json", '{"a": {"b": "x"}}', "give a text, or a list of texts"),
        ("o.txt", "", "holds no text"),
    ],
)
def test_an_options_file_that_cannot_be_read_is_one_sentence(calibrated, tmp_path, monkeypatch, name, content, said):
    (tmp_path / name).write_text(content)
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    with pytest.raises(InputError, match=said):
        own("decide", "-mf", calibrated("bi"), "--options-file", tmp_path / name)


@pytest.mark.slow
def test_calibrate_fits_to_a_task_and_evaluate_measures_it(model, tmp_path, capsys):
    file = model("bi")
    rows = [f"i like {colour} {n},so you like {colour}" for n in range(30) for colour in ("red", "blue", "pink")]
    rows += [f"what is {n} ?," for n in range(15)]
    folder = tmp_path / "table"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.csv").write_text("\n".join(["context,label", *rows]))
    task = ("-mf", file, "-t", "polyagents.tasks.table", "--table-path", folder)
    own("calibrate", *task)
    said = capsys.readouterr().out
    assert "-0.000" not in said
    assert "105 examples, 3 options each" in said and "none: AUROC" in said and "M.calibration" not in said
    assert (tmp_path / "bi.calibration.json").exists() and (tmp_path / "bi.calibration.png").exists()
    own("evaluate", *task, "-dt", "test", "--out", tmp_path / "out.json")
    assert "Decisions, by the models' calibrations" in capsys.readouterr().out
    (found,) = json.loads((tmp_path / "out.json").read_text())["decisions"].values()
    assert found["figures"]["examples"] == 105
    options = ["so you like red", "so you like blue", "so you like pink"]
    assert Ranker.load(file).decide("i like red", options).calibrated
    own("calibrate", *task, "--text-truncate", 8)
    assert Ranker.load(file, text_truncate=8).decide("i like red", options).calibrated
    assert "has changed" in Ranker.load(file).decide("i like red", options).notes[0]
    (tmp_path / "routes.json").write_text(json.dumps({"red": ["so you like red"], "else": ["blue", "pink"]}))
    for split, times in (("valid", 30), ("test", 4)):
        rows = "i like red 1,red\ni like blue 1,else\nwhat is 1 ?,\n" * times
        (folder / f"{split}.csv").write_text(f"context,label\n{rows}")
    given = ("--options-file", tmp_path / "routes.json")
    own("calibrate", *task, *given)
    for same in ((), given):  # with other options than those it was fitted to, a note says so
        own("evaluate", *task, "-dt", "test", *same, "--out", tmp_path / "out.json")
        (found,) = json.loads((tmp_path / "out.json").read_text())["decisions"].values()
        assert ("note" in found) != bool(same) and found["figures"]["examples"] == 12
    own("calibrate", *task)
    with pytest.raises(InputError, match="is what the model was trained on"):
        own("calibrate", *task, "-dt", "train")
    stale = tmp_path / "bi.calibration.json"
    stale.write_text(stale.read_text().replace('"model": "', '"model": "another '))
    own("evaluate", *task, "-dt", "test")
    assert f"{file}: The model has changed since it was calibrated" in capsys.readouterr().out


@pytest.mark.parametrize("rerank", [(), ("--rerank", "folder", "--rerank-top", 2)])
def test_a_model_folder_is_calibrated_as_its_file(rerank, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = copy_model(trained("bi"), tmp_path / "bi")
    Ranker.load(file).save_pretrained("folder")
    rows = [f"i like {colour} {n},so you like {colour}" for n in range(300) for colour in ("red", "blue")]
    Path("t.csv").write_text("\n".join(["context,label", *rows]))
    for model in (file, "folder"):
        own("calibrate", "-mf", model, "-t", "polyagents.tasks.table", "--table-path", "t.csv", *rerank)
    assert Ranker.load("folder").calibration == Ranker.load(file).calibration is not None


@pytest.mark.parametrize(
    ("damage", "candidates", "said"),
    [
        (str, ["", "\tlabel_candidates:so you like red|bye"], "no candidates in 1 of 2 examples"),
        (lambda text: text[:1], ["", ""], "calibration.json cannot be read"),
        (str, [f"\tlabel_candidates:{'|'.join(map(str, range(20)))}"] * 2, "fitted for 1 to 10 options"),
        (
            lambda text: text.replace('"options": null', '"options": "0"'),
            ["\tlabel_candidates:so you like red|bye"] * 2,
            "fitted to other options (--options-file)",
        ),
    ],
)
def test_rankings_are_measured_whatever_the_decisions_are(calibrated, tmp_path, capsys, damage, candidates, said):
    file = copy_model(calibrated("bi"), tmp_path / "bi")
    Path(path_of(file)).write_text(damage(Path(path_of(calibrated("bi"))).read_text()))
    rows = (f"text:i like red\tlabels:so you like red{own}\tepisode_done:True\n" for own in candidates)
    (tmp_path / "t.txt").write_text("".join(rows))
    task = ("-t", "fromfile:parlaiformat", "--fromfile-datapath", tmp_path / "t.txt")
    own("evaluate", "-mf", file, *task, "--fromfile-datatype-extension", "false", "--out", tmp_path / "out.json")
    printed, (found,) = capsys.readouterr().out, json.loads((tmp_path / "out.json").read_text())["decisions"].values()
    assert "MRR" in printed and said in printed and said in found["note"]
    assert ("figures" in found) == ("options" in said)


def test_intents_outside_the_scope_have_no_right_candidate(tmp_path):
    sample = Path(clinc150.__file__).parent / "sample" / "data_full.json"
    (tmp_path / "clinc150").mkdir()
    shutil.copy(sample, tmp_path / "clinc150")
    opt = ParlaiParser(True, True).parse_args(["-t", "polyagents.tasks.clinc150:outside", "-dp", str(tmp_path)])
    found = examples_of_task(opt | {"datatype": "valid"})
    content = json.loads(sample.read_text())
    assert len(found) == len(content["val"]) + len(content["oos_val"])
    assert [bool(labels) for labels in found.labels].count(False) == len(content["oos_val"]) > 0
    assert "oos" not in found.shared.names


@pytest.mark.parametrize(
    ("options", "has_calibration", "said"),
    [
        ({"red": "so you like red"}, False, "bi is not calibrated; calibrate it first"),
        ({"red": "like", "blue": "like"}, True, "like"),
        ({"red": "i like", "blue": "bye"}, True, "is not among the options"),
    ],
)
def test_an_options_file_is_checked_before_anything_is_ranked(
    calibrated, tmp_path, monkeypatch, options, has_calibration, said
):
    file = copy_model(calibrated("bi"), tmp_path / "bi")
    if has_calibration:
        Path(path_of(file)).write_text(Path(path_of(calibrated("bi"))).read_text())
    (tmp_path / "o.json").write_text(json.dumps(options))
    (tmp_path / "t.txt").write_text("text:i like red\tlabels:so you like red\tepisode_done:True\n")
    monkeypatch.setattr(evaluating, "evaluate", lambda *_: pytest.fail("it was ranked"))
    task = ("-t", "fromfile:parlaiformat", "--fromfile-datapath", tmp_path / "t.txt")
    with pytest.raises(InputError, match=said):
        own(
            "evaluate",
            "-mf",
            file,
            *task,
            "--fromfile-datatype-extension",
            "false",
            "--options-file",
            tmp_path / "o.json",
        )
