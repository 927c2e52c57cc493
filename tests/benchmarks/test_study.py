"""Studies: their files, what is run and what is kept, one run's measurements, and the report."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from commands import COLOURS, KINDS, TINY, colour_dialogues, evaluate, largest_difference, train, write_task

from polyagents.benchmarks.study import plan, records, report, run_row, schedule, tables
from polyagents.benchmarks.study.__main__ import main
from polyagents.benchmarks.study.flag_check import check_flags
from polyagents.benchmarks.study.job import Job
from polyagents.benchmarks.study.measuring import Example
from polyagents.benchmarks.study.plan import Mark
from polyagents.benchmarks.study.records import End, Measurement, Run
from polyagents.benchmarks.study.text_ranking import Pipeline
from polyagents.errors import InputError
from polyagents.ranker import Ranker

STUDY = """
task: polyagents.tasks.sample
flags: {backbone: "${BACKBONE}", dropout: 0.1, batchsize: 8}
seeds: [1, 2]
examples: [16, 32]
seconds: 60
evaluate: {num-examples: 4, batchsize: 2}
replies: 5
rows:
  taught: {model: poly, teacher-model-file: "{cross one}", seconds: null}
  cross one: {model: cross, dropout: null, lr_scheduler: linear, seconds: null}
  bi: {model: bi, examples: [8]}
"""


def write_study(folder, text=STUDY, name="small"):
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return str(path)


@pytest.fixture
def study(tmp_path):
    return plan.read(write_study(tmp_path))


# ---- the file --------------------------------------------------------------------------------------------------------


def test_rows_have_the_studys_flags_and_marks_unless_they_have_their_own(study):
    assert [row.name for row in study.rows] == ["cross one", "taught", "bi"]  # what others build on comes first
    assert study.row("bi").flags == plan.DEFAULT_FLAGS | {
        "backbone": "${BACKBONE}", "dropout": 0.1, "batchsize": 8, "model": "bi"}  # fmt: skip
    assert "dropout" not in study.row("cross one").flags and study.row("cross one").flags["lr-scheduler"] == "linear"
    assert study.row("cross one").flags["max-train-steps"] == 32 / 8 + 1  # the rate is zero behind the last mark
    assert study.row("bi").marks == (Mark("examples", 8), Mark("seconds", 60))
    assert study.row("taught").marks == (Mark("examples", 16), Mark("examples", 32))
    words = plan.command_line(study.row("taught"), study, {"BACKBONE": "scratch:tiny"}, {"cross one": "/w/M"})
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert given["--model"] == KINDS["poly"] and given["--backbone"] == "scratch:tiny"
    assert given["--teacher-model-file"] == "/w/M" and given["--task"] == given["--evaltask"]


def test_a_key_changes_with_whatever_changes_the_figures(tmp_path, study):
    keys = {row.name: row.key for row in study.rows}
    for old, new, changed in (
        ("model: bi", "model: bi, seed_of_nothing: 1", {"bi"}),
        ("model: cross", "model: cross, learningrate: 1", {"cross one", "taught"}),  # and what builds on it
        ("num-examples: 4", "num-examples: 6", {"cross one", "taught", "bi"}),
        ("num-examples: 4", "num-examples: 4, split: test", {"cross one", "taught", "bi"}),
        ("dropout: 0.1", "dropout: 0.1, few-shot-seed: '${SEED}'", {"cross one", "taught", "bi"}),
        ("examples: [16, 32]", "examples: [24, 32]", set()),
        ("examples: [16, 32]", "examples: [16, 64]", {"cross one", "taught"}),  # its rate falls to zero later
        ("seeds: [1, 2]", "seeds: [3]", set()),
        ("cross one", "another name", {"cross one"}),  # only the name: the keys stay
    ):
        other = plan.read(write_study(tmp_path, STUDY.replace(old, new)))
        assert {name for name, key in keys.items() if key not in [row.key for row in other.rows]} == (
            changed if "name" not in new else set()
        )


@pytest.mark.parametrize(("old", "new"), [("[16, 32]", "[16, 64]"), ("linear, seconds: null", "none, seconds: 5")])
def test_what_builds_on_a_row_is_another_run_where_that_row_is_trained_further(tmp_path, places, old, new):
    study = plan.read(write_study(tmp_path, STUDY.replace("linear", "none")))
    further = plan.read(write_study(tmp_path, STUDY.replace(old, new).replace("linear", "none")))
    assert {row.name for row in study.rows if row.key != further.row(row.name).key} == {"taught"}
    files = [places.model_file(one.row("cross one"), 1) for one in (study, further)]
    assert files[0] != files[1]


def test_what_starts_from_another_row_meets_the_examples_in_another_order(tmp_path):
    chain = STUDY.replace(
        "bi: {", 'third: {model: uni, init-model: "{second}"}\n  second: {model: bi, init-model: "{bi}"}\n  bi: {'
    )
    study = plan.read(write_study(tmp_path, chain))
    places = schedule.Places(str(tmp_path), str(tmp_path))
    draws = {row.name: schedule.job_of(study, row, 2, places, {"BACKBONE": "b"}).draws for row in study.rows}
    assert draws == {"cross one": 2, "taught": 2, "bi": 2, "second": 1_002, "third": 2_002}


def test_a_flag_may_be_the_seed_of_the_run_which_is_that_of_the_row_it_starts_from(tmp_path):
    text = STUDY.replace("dropout: 0.1", 'few-shot-seed: "${SEED}"')
    study = plan.read(write_study(tmp_path, text.replace("bi: {", 'next: {model: uni, init-model: "{bi}"}\n  bi: {')))
    places = schedule.Places(str(tmp_path), str(tmp_path))
    for row in study.rows:
        words = schedule.job_of(study, row, 2, places, {"BACKBONE": "b"}).words
        assert words[words.index("--few-shot-seed") + 1] == "2"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("task: polyagents.tasks.sample", "", "task is missing; give a name of --task"),
        ("task: polyagents.tasks.sample", "task: a,b", "task is 'a,b'; give one, on which"),
        ("replies: 5", "reply: 5", "'reply' is not a key of a study, which has task, flags"),
        ("replies: 5", "replies: 0", "replies is 0; give a number of candidates above 0, or null"),
        ("replies: 5", "pool: 99", "pool is 99 and pool-examples 100; the pool has the labels of these examples"),
        ("replies: 5", "difference: 1", "difference is 1; give a difference of R@1, above 0 and below 1, or null"),
        ("replies: 5", "difference: [1]", r"difference is \[1\]; give"),
        ("replies: 5", "replies: [", "is not YAML: "),
        ("num-examples: 4", "num: 4", "'num' is not a key of evaluate, which has num-examples, batchsize"),
        ("num-examples: 4", "num-examples: 4, split: train", "evaluate is {'num-examples': 4, 'split': 'train', "),
        ("num-examples: 4", "num-examples: true", "evaluate is {'num-examples': True, 'batchsize': 2}; give"),
        (
            "num-examples: 4, batchsize: 2",
            "batchsize: 2",
            "evaluate is {'batchsize': 2}; give num-examples and batchsi",
        ),
        ("seeds: [1, 2]", "seeds: [1, 1]", "seeds are 0 to .*, each of them once"),
        ("examples: [16, 32]", "examples: [32, 16]", r"the study has examples \[32, 16\] and seconds 60; give"),
        ("linear, seconds: null", "linear", "row 'cross one' has lr-scheduler linear, which ends at a number of exam"),
        ("batchsize: 8", "chunk-tokens: 64", "row 'cross one' has lr-scheduler linear, whose end depends on batchsize"),
        ("examples: [8]", "examples: [], seconds: null", "row 'bi' is never measured; give examples, seconds, or both"),
        ("examples: [8]", "examples: few", "row 'bi' has examples 'few' and seconds 60; give a list"),
        ("seconds: 60", "seconds: -1", "seconds -1; give"),
        ("model: bi,", "", "row 'bi' has no model; give one, such as model: bi"),
        (
            "model: bi,",
            "model: bi, max_train_steps: 3,",
            "row 'bi': max-train-steps is not for flags; the study itself",
        ),
        ('"{cross one}"', "{cross one}", "row 'taught': teacher-model-file is {'cross one': None}; give a text"),
        (
            '"{cross one}"',
            '"{cross}"',
            "row 'taught' builds on 'cross', which is not a row that is trained; there are tau",
        ),
        ("model: cross,", 'model: cross, init-model: "{taught}",', "in a circle: taught -> cross one -> taught"),
        ("  bi: {", "  taught: {", "is not YAML: 'taught' is there twice"),
        ("rows:", "rows: {}\nmore:", "'more' is not a key of a study"),
        (STUDY, "[]", "a study has the keys task, flags"),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence_before_anything_runs(old, new, sentence, tmp_path, capsys):
    assert old in STUDY
    path = write_study(tmp_path, STUDY.replace(old, new))
    assert main([path, "--work", str(tmp_path / "work")]) == 2
    said = capsys.readouterr().err
    with pytest.raises(InputError, match=sentence):
        plan.read(path)
    assert said.startswith(f"study: {path}") and said.count("\n") == 1 and not (tmp_path / "work").exists()


BOMB = [
    "a0: &a0 {x: 1}",
    *(f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(10))}}}" for n in range(1, 10)),
]
CHAIN = "".join(f'  r{n}: {{model: bi, init-model: "{{r{n + 1}}}"}}\n' for n in range(600))
HUGE = "9" * 400


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (STUDY, "!!python/object/apply:os.system ['exit 1']", "could not determine a constructor"),
        ("polyagents.tasks.sample", "!!python/name:os.system", "could not determine a constructor"),
        ("polyagents.tasks.sample", "!anything x", "could not determine a constructor"),
        (STUDY, "\n".join([*BOMB, STUDY]), "an alias; write it out"),
        ("rows:\n", f"rows: {{model: bi, {', '.join(BOMB)}}}\nmore:\n", "an alias; write it out"),
        (STUDY, "&a [*a]", "an alias"),
        ("flags: {", "flags: &f {z: *f, ", "an alias"),
        (STUDY, "? &a [*a]\n: 1", "an alias"),
        (STUDY, "&a {rows: *a}", "an alias"),
        (STUDY, "? [1]\n: 1", "is not YAML: "),
        (STUDY, "[" * 2_000, "recursion"),
        (STUDY, "{a: " * 2_000, "recursion"),
        (STUDY, "\0", "special characters"),
        (STUDY, "", "a study has the keys"),
        (STUDY, f"{STUDY}\n---\n{STUDY}", "expected a single document"),
        (STUDY, f"<<: [1]\n{STUDY}", "could not determine a constructor"),
        (STUDY, f"%YAML 9.9\n---\n{STUDY}", "incompatible YAML"),
        ("seconds: 60", "seconds: !!float abc", "could not convert"),
        ("seconds: 60", "seconds: !!bool x", "is not YAML: 'x'"),
        ("[1, 2]", "[!!int x]", "invalid literal"),
        ("[1, 2]", "[!!int '']", "string index"),
        ("[1, 2]", f"[{'9' * 5_000}]", "Exceeds the limit"),
        ("polyagents.tasks.sample", "2020-13-45", "month must be in"),
        ("polyagents.tasks.sample", "!!timestamp x", "is not YAML: 'NoneType'"),
        ("polyagents.tasks.sample", "2020-11-25", "task is datetime"),
        ("polyagents.tasks.sample", "!!binary aGk=", "task is b'hi'"),
        ("polyagents.tasks.sample", "''", "task is ''"),
        ("polyagents.tasks.sample", "[a]", "task is "),
        ('{backbone: "${BACKBONE}", dropout: 0.1, batchsize: 8}', "!!map [1]", "is not YAML: cannot unpack"),
        ("[1, 2]", "!!set {1, 2}", "seeds is {1, 2}"),
        ("[1, 2]", "abc", "seeds is 'abc'"),
        ("[1, 2]", "['1']", "seeds is "),
        ("[1, 2]", "[.nan]", "nan is too large, not a number"),
        ("[1, 2]", "[1.0]", "seeds is "),
        ("[1, 2]", "[true]", "seeds is "),
        ("[1, 2]", "[[1]]", "seeds is "),
        ("[1, 2]", "[]", "one entry or more"),
        ("[1, 2]", "[-1]", "seeds are 0 to"),
        ("[1, 2]", "[4294967296]", "seeds are 0 to"),
        ("[1, 2]", f"[{HUGE}]", "is too large"),
        ("seconds: 60", "seconds: .nan", "nan is too large, not a number"),
        ("seconds: 60", "seconds: .inf", "inf is too large"),
        ("seconds: 60", "seconds: 1e400", "seconds is '1e400'"),
        ("model: bi,", "model: bi, seconds: -.inf,", "-inf is too large"),
        ("model: bi, examples: [8]", f"model: bi, lr-scheduler: linear, examples: [{HUGE}]", "too large"),
        ("examples: [16, 32]", "examples: [0]", "examples \\[0\\]"),
        ("replies: 5", f"replies: {HUGE}", "too large"),
        ("replies: 5", "replies: x", "replies is 'x'"),
        ("num-examples: 4", "num-examples: .inf", "too large"),
        ("batchsize: 2}", "batchsize: 2, 3: 4}", "3 is not a key of evaluate"),
        ("{num-examples: 4, batchsize: 2}", "[1]", "evaluate is"),
        ("dropout: 0.1", "dropout: .nan", "not a number"),
        ("dropout: 0.1", 'dropout: "a\\0b"', "not a text"),
        ("dropout: 0.1", 'dropout: "\\uD800"', "not a text"),
        ("dropout: 0.1", "drop_out: 1, drop-out: 2", "give each flag once"),
        ("dropout: 0.1", '"--dropout": 1', "without dashes before it"),
        ("dropout: 0.1", '"model-file=/x": 1', "give each flag once"),
        ("dropout: 0.1", '"": 1', "give each flag once"),
        ("dropout: 0.1", "model: rerank", None),  # each row has a model of its own
        ("model: bi,", 'model: bi, init-model: "{bi}",', "in a circle: bi -> bi"),
        ("model: bi, examples: [8]", "dropout: 0.1", "row 'bi' has no model"),
        ("model: bi, examples: [8]", 'model: rerank, first: "{bi}", then: "{taught}", top: 3', "builds on 'bi', which"),
        ("model: bi, examples: [8]", 'model: rerank, first: "{taught}", then: "{taught}", top: true', "top: 1 or more"),
        ("rows:\n", f"rows:\n{CHAIN}  r600: {{model: bi}}\n", "rows has 604 names; give up to 500"),
        ("rows:\n", f"rows:\n{CHAIN[: CHAIN.index('  r400:')]}  r400: {{model: bi}}\n", None),
        ("rows:\n", "rows:\n" + "".join(f"  {n}: {n}\n" for n in range(2_000)), "rows is {0: 0"),
        ("  bi: {", "  1: {model: bi}\n  '1': {", "all different as texts"),
        ("  bi: {", "  bi: 1\n  bi: {", "'bi' is there twice"),
        ("  bi: {", '  "": {', "needs another name"),
        ("  bi: {", '  "a\\nb": {', "needs another name"),
        ("  bi: {", '  "\\e[31m": {', "needs another name"),
        ("  bi: {", '  "a\\0": {', "not a text"),
        ("  bi: {", '  "{a}": {', "needs another name"),
        ("  bi: {", '  "<script>": {', "needs another name"),
        ("  bi: {", '  "a|b": {', "needs another name"),
        ("  bi: {", "  '$\\foo$': {", "needs another name"),
        ("  bi: {", "  _bi: {", "needs another name"),
        ("  bi: {", f"  {'x' * 500}: {{", "needs another name"),
        ("  bi: {", '  "../../x": {', None),
        ("  bi: {", '  "/etc/passwd": {', None),
        ("  bi: {", '  "..": {', None),
    ],
    ids=lambda given: given and given[:20],
)  # fmt: skip
def test_a_hostile_study_is_one_sentence_or_stays_in_its_folders(old, new, sentence, tmp_path):
    assert old in STUDY
    path = write_study(tmp_path, STUDY.replace(old, new))
    if sentence is not None:
        with pytest.raises(InputError, match=sentence) as raised:
            plan.read(path)
        assert "\n" not in str(raised.value) and len(str(raised.value)) < len(path) + 600
        return
    study, places = plan.read(path), schedule.Places(str(tmp_path / "results"), str(tmp_path / "work"))
    for row in study.rows[-8:]:
        job = schedule.job_of(study, row, 1, places, {"BACKBONE": "b"})
        assert Path(job.folder).resolve().parent == tmp_path / "work"
        assert Path(job.results).resolve().parent == tmp_path / "results"


def test_a_pipe_in_place_of_a_study_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "s.yaml")
    with pytest.raises(InputError, match="it is a pipe or a device"):
        plan.read(str(tmp_path / "s.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "model: bi",
            "model: bi, codes-init: normal",
            "Row 'bi': polyagents train_model: unrecognized arguments: --codes-init",
        ),
        ("model: bi", "model: bi, learningrate: fast", "Row 'bi': polyagents train_model: argument --learning"),
        ("model: bi", "model: be", "Row 'bi': --model be: there is no such agent"),
        ("model: bi", "model: bi, eps: 3", "Row 'bi': --eps is --num-epochs, which is not for flags"),
        ("model: bi", "model: bi, bs: 4", "Row 'bi': --bs is --batchsize, the name to give here"),
        ("model: bi", "model: bi, lr: 1", "Row 'bi': --lr is --learningrate, the name to give here"),
        ("task: polyagents.tasks.sample", 'task: "${OTHER}"', r"has evaltask: \$\{OTHER\}; give --set OTHER=VALUE"),
        ("model: bi", "model: 'internal:x'", "Row 'bi': --model internal:x: there is no such agent"),
        ("${BACKBONE}", "${OTHER}", r"has backbone: \$\{OTHER\}; give --set OTHER=VALUE"),
    ],
)
def test_flags_that_train_model_would_refuse(old, new, sentence, tmp_path):
    study = plan.read(write_study(tmp_path, STUDY.replace(old, new)))
    with pytest.raises(InputError, match=sentence):
        check_flags(study, {"BACKBONE": "scratch:tiny"})


@pytest.mark.parametrize(
    "file", sorted(Path(__file__).parents[2].glob("benchmarks/studies/*.yaml")), ids=lambda f: f.stem
)
def test_the_studies_of_this_repository_can_be_run(file):
    study = plan.read(str(file))
    text = file.read_text()
    check_flags(study, dict.fromkeys(plan.PLACEHOLDER.findall(text), "scratch:tiny"))


def test_the_command_line_wants_a_folder_and_values(tmp_path, capsys):
    path = write_study(tmp_path)
    for arguments, sentence in (
        ([], "Give --work DIR"),
        (["--work", str(tmp_path / "w"), "--set", "A"], "--set A: give NAME=VALUE"),
        (["--work", str(tmp_path / "w"), "--set", "SEED=3"], "--set SEED=3: ${SEED} is the seed of the run"),
        (["--report"], "has no run of small that reached its last mark"),
    ):
        assert main([path, *arguments]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("reached", [0, 1])
def test_where_every_run_failed_only_that_is_said(reached, study, tmp_path, capsys, monkeypatch):
    def fail(study, places, _):
        row = study.row("taught")
        if reached:
            partly = finished(row, 1, end=None).measurements[:reached]
            records.write(records.path_of(places.results, row, 1), Run("taught", 1, partly))
        return ["taught, seed 1: failed with exit code 1"]

    monkeypatch.setattr(schedule, "carry_out", fail)
    assert main([write_study(tmp_path), "--work", str(tmp_path / "w"), "--set", "BACKBONE=scratch:tiny"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "taught, seed 1: failed with exit code 1"


# ---- which runs ------------------------------------------------------------------------------------------------------


def finished(row, seed, **changes):
    """What a run of a row would have written."""
    made = [Measurement(mark.kind, mark.at, 8, 1, 2.0, [1, 2, 1, 4], "same") for mark in row.marks]
    return replace(Run(row.name, seed, tuple(made), End(2.0, 1.5, 5, "a machine")), **changes)


@pytest.fixture
def places(tmp_path):
    (tmp_path / "results").mkdir()
    return schedule.Places(str(tmp_path / "results"), str(tmp_path / "work"))


@pytest.fixture
def processes(monkeypatch, study, places):
    """Stand-ins for the processes of runs, which write results at once: [(row, seed)]; those in `fails` fail."""
    started, fails = [], set()

    def start(command, stdout, **_):
        job = Job.of_json(command[-1])
        started.append((job.row, job.seed))
        if job.row in fails:
            stdout.write("Traceback\nValueError: no\n")
            stdout.flush()
            return subprocess.CompletedProcess(command, 1)
        row = study.row(job.row)
        assert job.keep == (job.row == "cross one")
        if job.keep:
            os.makedirs(job.folder, exist_ok=True)
            open(job.model_file, "w").close()
        records.write(job.results, finished(row, job.seed))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(schedule.subprocess, "run", start)
    return started, fails


VALUES = {"BACKBONE": "scratch:tiny"}


def test_a_seed_of_all_rows_comes_before_the_next_and_nothing_is_run_twice(study, places, processes):
    started, _ = processes
    assert schedule.carry_out(study, places, VALUES) == []
    assert started == [(row, seed) for seed in (1, 2) for row in ("cross one", "taught", "bi")]
    before = {name: (places.results, os.stat(os.path.join(places.results, name)).st_mtime_ns)
              for name in os.listdir(places.results)}  # fmt: skip
    schedule.carry_out(study, places, VALUES)
    assert len(started) == 6
    assert before == {name: (places.results, os.stat(os.path.join(places.results, name)).st_mtime_ns)
                      for name in os.listdir(places.results)}  # fmt: skip


def test_a_run_that_was_killed_between_marks_is_made_again_and_others_are_kept(study, places, processes):
    started, _ = processes
    schedule.carry_out(study, places, VALUES)
    row = study.row("bi")
    killed = finished(row, 2, end=None)
    records.write(records.path_of(places.results, row, 2), replace(killed, measurements=killed.measurements[:1]))
    del started[:]
    schedule.carry_out(study, places, VALUES)
    assert started == [("bi", 2)]


def test_a_row_with_other_flags_is_another_run(tmp_path, study, places, processes):
    started, _ = processes
    schedule.carry_out(study, places, VALUES)
    del started[:]
    changed = plan.read(write_study(tmp_path, STUDY.replace("model: bi", "model: bi, learningrate: 1")))
    schedule.carry_out(changed, places, VALUES)
    assert started == [("bi", 1), ("bi", 2)]
    old = [os.path.basename(records.path_of(places.results, study.row("bi"), seed)) for seed in (1, 2)]
    assert schedule.others_in(places.results, changed) == sorted(old)


def test_a_model_that_is_needed_and_gone_is_trained_again_with_its_results(study, places, processes):
    started, _ = processes
    schedule.carry_out(study, places, VALUES)
    os.remove(places.model_file(study.row("cross one"), 1))
    os.remove(places.model_file(study.row("cross one"), 2))
    os.remove(records.path_of(places.results, study.row("taught"), 2))
    del started[:]
    schedule.carry_out(study, places, VALUES)
    assert started == [("cross one", 2), ("taught", 2)]


def test_a_failed_run_leaves_out_what_builds_on_it_and_nothing_else(study, places, processes):
    started, fails = processes
    fails.add("cross one")
    failed = schedule.carry_out(study, places, VALUES)
    assert started == [("cross one", 1), ("bi", 1), ("cross one", 2), ("bi", 2)]
    assert "cross one, seed 1: failed with exit code 1; ValueError: no" in failed[0]
    assert failed[1] == "taught, seed 1: left out, as what it builds on failed." and len(failed) == 4


# ---- one run ---------------------------------------------------------------------------------------------------------


def test_batches_are_timed_and_marks_reached_between_updates():
    now, seen = [0.0], []

    def parley():
        now[0] += 2.0

    def measure(due, examples, updates, seconds):
        now[0] += 100.0  # an evaluation does not count
        seen.append(([mark.at for mark in due], examples, updates, seconds))

    marks = [Mark("examples", 10), Mark("examples", 16), Mark("examples", 24), Mark("seconds", 9)]
    batches = run_row.TimedBatches(parley, 4, 2, marks, measure, lambda: now[0])
    with pytest.raises(run_row.AllMarksReached):
        for _ in range(100):
            batches()
    # Updates are of two batches, 8 examples and 4 seconds.
    assert seen == [([10, 16], 16, 2, 8.0), ([24, 9], 24, 3, 12.0)] and batches.seconds == 12.0


def job_of(colours, folder, kind="bi", **changes):
    """A run on the colours task in this process."""
    flags = [*colours, "--evaltask", "fromfile:parlaiformat", "--eval-batchsize", "4", *TINY, "--dropout", "0.1"]
    words = ["--model", KINDS[kind], *flags, "--lr-scheduler", "none", "--warmup-updates", "-1"]
    words = [str(word).replace("-bs", "--batchsize") for word in words]
    marks = [Mark("examples", 8), Mark("examples", 24)]
    files = {"folder": str(folder / "run"), "results": str(folder / "row.jsonl")}
    wanted = {
        "split": "valid",
        "num_examples": 10,
        "replies": 6,
        "pool": 7,
        "pool_examples": 3,
        "rerank": None,
        "keep": True,
    }
    job = Job("row", 3, 3, words, marks, **wanted, **files, parent=os.getppid())
    return replace(job, **changes)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "split"), [("bi", "valid"), ("cross", "test")])
def test_a_run_is_train_model_with_measurements_that_do_not_disturb_it(kind, split, colours, tmp_path):
    """The weights are those of train_model, dropout and all; the ranks are those of eval_model."""
    write_task(tmp_path, colour_dialogues()[::-1], "other")
    shutil.move(tmp_path / "other_test.txt", tmp_path / "colours_test.txt")  # which begins with other examples
    job = job_of(colours, tmp_path, kind, split=split)
    run_row.carry_out(job)
    plain = (*job.words[2:], "--seed", 3, "--max-train-steps", 3, "--short-final-eval", "true", "-vme", 4)
    train(kind, tmp_path / "plain", *plain)
    assert largest_difference(tmp_path / "plain", job.model_file) == 0

    run = read(job)
    assert [(one.at, one.examples, one.updates) for one in run.measurements] == [(8, 8, 1), (24, 24, 3)]
    assert 0 < run.measurements[0].seconds < run.measurements[1].seconds <= run.end.seconds + 1e-3
    last = run.measurements[-1].ranks
    assert sum(run.measurements[-1].dialogues) == 10
    found = evaluate(job.model_file, *colours, "-dt", split, "-bs", 4, "--num-examples", 10)
    assert len(last) == found["exs"] == 10
    assert records.recall(last).mean() == pytest.approx(found["hits@1"])
    assert records.reciprocal(last).mean() == pytest.approx(found["mrr"])
    assert run.measurements[0].evaluated == run.measurements[1].evaluated
    assert run.end.replies == 6 and run.end.milliseconds > 0


def test_a_falling_rate_is_measured_at_its_end(colours, tmp_path):
    row = {"model": "bi", "lr-scheduler": "linear", "batchsize": 8}
    end = plan.end_of_schedule(row, [8, 24], None, "row")["max-train-steps"]  # ParlAI ends a training of 3 unmeasured
    job = job_of(colours, tmp_path, keep=False, replies=None)
    words = " ".join(job.words).replace("--lr-scheduler none", f"--lr-scheduler linear --max-train-steps {end}").split()
    run_row.carry_out(replace(job, words=words))
    assert [one.examples for one in read(job).measurements] == [8, 24]


def read(job):
    return records.run_of([*map(json.loads, Path(job.results).read_text().splitlines())], job.row, job.seed)


def test_a_model_that_no_row_builds_on_is_not_kept(colours, tmp_path):
    job = job_of(colours, tmp_path, marks=[Mark("seconds", 1e-9)], replies=None, keep=False)
    run_row.carry_out(job)
    assert not os.path.exists(job.folder)
    run = read(job)
    assert [(one.mark, one.updates) for one in run.measurements] == [("seconds", 1)] and run.end.milliseconds is None


def test_a_run_ends_when_its_study_was_killed(colours, tmp_path):
    with pytest.raises(InputError, match="The study that this run belongs to has gone"):
        run_row.carry_out(job_of(colours, tmp_path, parent=0))
    assert not os.path.exists(tmp_path / "row.jsonl")


# ---- pipelines and pools ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """A ranker that has a score for each candidate."""

    of: dict

    def score(self, context, candidates):
        return np.array([self.of[text] for text in candidates], np.float32)


def test_ranks_of_a_pipeline_against_sorting_twice():
    """Few scores, so that there are ties; what is right, of which there is one or two, comes last of them."""
    generator = np.random.default_rng(0)
    texts = [f"reply {place}" for place in range(7)]
    for _ in range(300):
        first, then = (dict(zip(texts, generator.integers(0, 4, 7).tolist(), strict=True)) for _ in range(2))
        right, top = set(generator.choice(texts, generator.integers(1, 3), replace=False)), generator.integers(1, 9)
        by_first = sorted(texts, key=lambda text: (-first[text], text in right))
        best = by_first[:top]
        ranked = sorted(best, key=lambda text: (-then[text], text in right)) + by_first[top:]
        expected = 1 + sum(text not in right for text in ranked[: min(map(ranked.index, right))])
        pipeline = Pipeline(Scores(first), Scores(then), int(top))
        example = Example("", tuple(right), (), 0)
        assert pipeline.rank_of_label(example, texts, Scores(first).score("", texts)) == expected


@pytest.mark.slow
def test_a_pipeline_of_one_is_its_first_row_and_of_all_its_second(colours, tmp_path):
    """Over the same examples as the rows themselves, by the same hash; and the pool, against scores one by one."""
    marks, evaluated, own = [Mark("examples", 8)], set(), []
    for kind in ("bi", "poly"):
        job = job_of(colours, tmp_path / kind, kind, marks=marks)
        (tmp_path / kind).mkdir()
        run_row.carry_out(job)
        own.append(job)
    ranks = {1: read(own[0]).measurements[0].ranks, 99: read(own[1]).measurements[0].ranks}
    assert ranks[1] != ranks[99]
    for top, expected in ranks.items():
        rerank = (own[0].model_file, own[1].model_file, top)
        job = job_of(colours, tmp_path, marks=[Mark("finished", 0)], rerank=rerank)
        run_row.carry_out(job)
        run = read(job)
        assert run.measurements[0].ranks == expected and run.end.milliseconds > 0
        evaluated |= {one.evaluated for one in (*run.measurements, *read(own[0]).measurements)}
        assert run.end.pool_ranks == read(own[top == 99]).end.pool_ranks and run.end.pool == 7
    assert len(evaluated) == 1

    ranker, labels = Ranker.load(own[0].model_file), [f"so you like {colour}" for colour in COLOURS]
    assert len(read(own[0]).end.pool_ranks) == 3
    (text, label, _), *_ = colour_dialogues()
    pool = labels[1:]  # the first examples are answered with all colours but red
    scores = ranker.score(text, pool)
    assert read(own[0]).end.pool_ranks[0] == (scores >= scores[pool.index(label)]).sum()


@pytest.mark.slow
def test_a_pipeline_in_a_study(tmp_path, study, places):
    text = STUDY + '  both: {model: rerank, first: "{bi}", then: "{cross one}", top: 3}\n'
    study = plan.read(write_study(tmp_path, text))
    row = study.row("both")
    assert row.is_pipeline and row.builds_on == ("bi", "cross one") and study.rows[-1] == row
    job = schedule.job_of(study, row, 2, places, VALUES)
    bi, cross = (places.model_file(study.row(name), 2) for name in row.builds_on)
    assert job.rerank == (bi, cross, 3)
    assert job.words == schedule.job_of(study, study.row("bi"), 2, places, VALUES).words
    for other in study.rows:
        for seed in study.seeds:
            records.write(records.path_of(places.results, other, seed), finished(other, seed))
    said = report.write("small", study, places.results)
    assert cells(said, "both")[0][:3] == ["both", "2", "8"] and "## Finished models" in said
    assert cells(said, "both")[0][6] == "6.0"  # two of its own here, and those of both rows
    for wrong in ("bi", "{bi}{bi}"):
        with pytest.raises(InputError, match="row 'both' re-ranks; give first: "):
            plan.read(write_study(tmp_path, text.replace('first: "{bi}"', f'first: "{wrong}"')))
    with pytest.raises(InputError, match="'batchsize' is not a key of row 'both', which re-ranks, which has model"):
        plan.read(write_study(tmp_path, text.replace("top: 3", "top: 3, batchsize: 1")))


# ---- results and report ----------------------------------------------------------------------------------------------


def test_results_are_read_as_they_were_written(tmp_path, study):
    row = study.row("bi")
    path = records.path_of(str(tmp_path), row, 1)
    assert records.read(path, row, 1) == Run("bi", 1) and not Run("bi", 1).has_all(row)
    records.write(path, finished(row, 1))
    assert records.read(path, row, 1) == finished(row, 1) and finished(row, 1).has_all(row)
    text = Path(path).read_text()
    first, *_, last = map(json.loads, text.splitlines())
    assert (first["R@1"], first["MRR"], first["seed"], last["mark"]) == (0.5, 0.6875, 1, "end")
    assert not finished(row, 1).has_all(replace(row, seconds=61.0))
    assert not finished(row, 1, end=None).has_all(row)  # killed while replies were timed
    for damage in ("{", "[]\n", '{"mark": "end"}\n', text.replace("[1, 2", "[0, 2")):
        Path(path).write_text(damage)
        with pytest.raises(InputError, match=r"cannot be read .* remove it, and the run is made again"):
            records.read(path, row, 1)


REPORTED = """
task: convai2
seeds: [1, 2]
examples: [10, 20]
seconds: 5
evaluate: {num-examples: 4, batchsize: 2}
rows:
  base: {model: bi}
  better: {model: poly, init-model: "{base}"}
  late: {model: cross}
"""


@pytest.fixture
def reported(tmp_path):
    """A study with results by hand: `base` 1 of 4 right, `better` 3 of 4 in seed 1 and 4 of 4 in seed 2, no `late`."""
    path = write_study(tmp_path, REPORTED)
    study, folder = plan.read(path), tmp_path / "results" / "small"
    folder.mkdir(parents=True)
    ranks = {("base", 1): [1, 2, 2, 2], ("base", 2): [1, 2, 2, 2]}
    ranks |= {("better", 1): [1, 1, 1, 2], ("better", 2): [1, 1, 1, 1]}
    for (name, seed), found in ranks.items():
        marks = [("examples", 10, 10, 3.0), ("seconds", 5, 17, 5.0), ("examples", 20, 20, 6.0 + seed)]
        made = [Measurement(kind, at, examples, 2, seconds, found, "same") for kind, at, examples, seconds in marks]
        end = End(6.0 + seed, 2.0 * seed, 1000, "a machine")
        row = study.row(name)
        records.write(records.path_of(str(folder), row, seed), Run(name, seed, tuple(made), end))
    return path, study, str(folder)


def cells(text, row):
    """The rows of all tables that begin with a name."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_a_report_of_results_made_by_hand(reported, capsys):
    path, _, folder = reported
    assert main([path, "--report"]) == 0
    text = capsys.readouterr().out
    base, by_seconds = cells(text, "base")
    better, test, _, _ = cells(text, "better")
    assert base[:3] == ["base", "2", "20"] and base[3].startswith("0.250 [") and base[4].startswith("0.625 [")
    assert base[5:] == ["7.5", "7.5", "3.00"]
    assert better[3].startswith("0.875 [") and better[5:] == ["7.5", "15.0", "3.00"]  # 7.5 of its base besides
    assert by_seconds[2] == "17" and by_seconds[5] == "5.0"
    assert len(text.split("(at ")) == 1
    assert test[1].startswith("**+0.625** [") and " p 0." in test[1]
    assert "**Not finished: late (seed 1), late (seed 2).**" in text and "Measured on: a machine." in text
    assert Path(folder, "report.md").read_text().strip() == text.strip()
    for picture in ("curves.png", "cost.png"):
        assert os.path.getsize(os.path.join(folder, picture)) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("looked_for", "said"),
    [
        (0.9, "A difference of 0.9 can be told from none: no interval reaches further to a side."),
        (0.01, "**A difference of 0.01 cannot be told from none in 2 of 2 tests**: the intervals reach up to 0."),
        (None, "Task convai2: 4 examples of its valid split"),
    ],
)
def test_a_report_begins_with_whether_its_tests_suffice(reported, looked_for, said):
    _, study, folder = reported
    text = report.write("small", replace(study, difference=looked_for), folder)
    assert text.splitlines()[2].startswith(said)


@pytest.mark.slow
def test_a_report_says_of_how_many_examples_a_pool_is(reported):
    _, study, folder = reported
    end = End(6.0, None, 0, "a machine", pool_ranks=[1, 2, 2, 2], pool=50)
    records.write(records.path_of(folder, study.row("base"), 1), replace(finished(study.row("base"), 1), end=end))
    assert study.pool_examples == 100
    assert "among 50 labels of the task, for the first 4 examples;" in report.write("small", study, folder)


@pytest.mark.slow
def test_a_picture_that_cannot_be_written_leaves_the_former_one(reported, monkeypatch):
    def half(figure, path, **settings):
        Path(path).write_bytes(b"half")
        raise OSError("full")

    _, study, folder = reported
    report.write("small", study, folder)
    former = Path(folder, "curves.png").read_bytes()
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises((OSError, InputError)):
        report.write("small", study, folder)
    assert Path(folder, "curves.png").read_bytes() == former


@pytest.mark.slow
def test_a_row_with_a_mark_of_its_own_is_named_with_it(reported):
    _, study, folder = reported
    early = replace(study, rows=(study.rows[0], replace(study.rows[1], examples=(10,)), study.rows[2]))
    text = report.write("small", early, folder)
    assert cells(text, "better (at 10 examples)")[0][1].startswith("**+0.625")


def test_rows_are_paired_by_seed_and_example(reported):
    _, study, folder = reported
    runs = dict(tables.read_runs(study, folder))
    del runs["base", 1]
    runs["base", 1] = Run("base", 1)  # as if seed 1 were still to come
    rows = tables.at_last_examples(study, runs)
    (found,) = tables.differences(rows)
    assert found.seeds == 1 and found.estimate.mean == 0.75  # better's seed 2 against base's seed 2
    assert (found.row.row.name, found.other.row.name) == ("better", "base")
    assert len(rows[1].found) == 2 and rows[1].total is None  # of seed 1 it is not known what base took


def test_many_rows_are_compared_with_the_first_only(reported):
    _, study, folder = reported
    runs = tables.read_runs(study, folder)
    base, better = tables.at_last_examples(study, runs)
    assert len([*tables.pairs([base] * 4 + [better] * 4)]) == 28
    assert [one[1] for one in tables.pairs([base, *[better] * 8])] == [base] * 8


def test_rows_that_were_evaluated_on_other_examples_are_not_compared(reported, capsys):
    path, study, folder = reported
    file = records.path_of(folder, study.row("base"), 2)
    Path(file).write_text(Path(file).read_text().replace('"same"', '"other"'))
    assert main([path, "--report"]) == 2
    assert "were evaluated on different examples, and cannot be compared" in capsys.readouterr().err


def test_every_row_of_56_has_a_look_of_its_own():
    looks = report.pictures.styles([str(number) for number in range(56)]).values()
    assert len({tuple(look.values()) for look in looks}) == 56


# ---- all of it -------------------------------------------------------------------------------------------------------

WHOLE = """
task: polyagents.tasks.sample
flags: {backbone: "scratch:tiny", text-truncate: 32, label-truncate: 16, learningrate: 1.0e-3}
seeds: [1, 2]
examples: [32, 64]
seconds: 0.01
evaluate: {num-examples: 32, batchsize: 16}
replies: 20
rows:
  first: {model: bi, batchsize: 16}
  second: {model: bi, batchsize: 16, init-model: "{first}"}
"""


@pytest.mark.release
def test_a_study_that_is_killed_between_marks_goes_on_and_reports(tmp_path):
    path = write_study(tmp_path, WHOLE, "whole")
    results, work = tmp_path / "results" / "whole", tmp_path / "work"
    command = [sys.executable, "-m", "polyagents.benchmarks.study", path, "--work", str(work), "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as study:
        for line in study.stderr:
            if line.startswith("[2/4]"):  # the second run begins
                break
        study.send_signal(signal.SIGKILL)
    kept = {file.name: file.read_bytes() for file in results.iterdir()}
    assert len(kept) == 1
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[1/3] second, seed 1" in done.stderr
    (name,) = kept
    assert (results / name).read_bytes() == kept[name]
    study = plan.read(path)
    runs = tables.read_runs(study, str(results))
    assert all(runs[row.name, seed].has_all(row) for row in study.rows for seed in study.seeds)
    for row in study.rows:  # seeds are others, rows of one seed meet the same examples
        ranks = [runs[row.name, seed].measurements[-1].ranks for seed in study.seeds]
        assert not np.array_equal(*ranks)
    first, second = (cells(done.stdout, row)[0] for row in ("first", "second"))
    assert first[5] == first[6] and float(second[6]) > float(second[5])
    assert sorted(os.path.basename(one) for one in work.iterdir() if one.is_dir()) == sorted(
        f"{records.file_name(study.row('first'), seed)}-{study.row('first').end}" for seed in study.seeds
    )
    shutil.rmtree(work)  # nothing is missing: the models are not needed any more
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
