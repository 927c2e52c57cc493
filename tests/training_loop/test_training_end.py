"""The end of a training: its summary, the commands that it proposes, and the picture of its curves."""

import contextlib
import io
import json
import re
import shlex
import sys

import pytest
import torch
from commands import KINDS, TINY, colour_dialogues, largest_difference, own, run
from parlai.scripts import train_model
from PIL import Image

from polyagents import Ranker
from polyagents.arguments import flag_of
from polyagents.console import file_size
from polyagents.parlai_patches import run_plan
from polyagents.parlai_patches.training_end import commands_after_training, points_of
from polyagents.training_loop import training_curve
from polyagents.training_loop.callbacks import Callback
from polyagents.training_loop.summary import Summary, said_over
from polyagents.training_loop.training_curve import Point, draw_beside, draw_curves

PAIRS = [{"context": text, "label": label} for text, label, _ in colour_dialogues(16)]
SMALL = {"model": "bi", "backbone": "scratch:tiny", "batchsize": 8, "log_every_n_steps": 1}
LINE = [Point(1, 3.0, 0.1), Point(2, 2.0, 0.4)]
SAMPLE, TABLE = "polyagents.tasks.sample", "polyagents.tasks.table"
FLAGS = ("-m", KINDS["bi"], *TINY, "--log-every-n-steps", "1", "-vstep", "2")


def trained(file, *flags):
    """What `train_model` says on standard error with its log on, and the pictures that it draws."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        run("train_model", "-mf", file, *FLAGS, *flags, "--loglevel", "info")
    return said.getvalue()


def is_picture(path):
    with Image.open(path) as image:
        image.verify()
        return image.format == "PNG" and image.width > 500


@pytest.fixture(autouse=True)
def drawn(monkeypatch):
    """The curves that were drawn; here they are drawn, which they are not in other tests."""
    found = []
    monkeypatch.setattr(
        training_curve, "draw_curves", lambda path, *points: (found.append(points), draw_curves(path, *points))[1]
    )
    return found


@pytest.mark.slow
def test_train_model_says_its_result_and_what_to_run_next(colours, tmp_path, chat, capsys):
    file = tmp_path / "M"
    said = trained(file, *colours, "--max-train-steps", "4")
    assert "Training finished: 4 updates in " in said
    assert "Best accuracy on the validation examples: " in said and "the right candidate ranks first for " in said
    assert f"Model:  {file} " in said and f"Plot:   {file}.png " in said and is_picture(f"{file}.png")
    commands = [shlex.split(line, comments=True) for line in said.splitlines() if line.startswith("  polyagents ")]
    assert [words[1] for words in commands] == ["evaluate", "interactive", "serve"]
    capsys.readouterr()
    own(*commands[0][1:], "--num-examples", "4")
    assert "R@1" in capsys.readouterr().out
    assert chat(commands[1][3], ["i like red more than blue"], *commands[1][4:])[0]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ({"task": f"{SAMPLE},{TABLE}"}, f"eval_model -mf M -t {SAMPLE},{TABLE} --table-path T.csv"),
        ({"task": SAMPLE, "evaltask": TABLE}, f"evaluate -mf M -t {TABLE} --table-path T.csv"),
        ({"task": TABLE, "evaltask": SAMPLE}, f"evaluate -mf M -t {SAMPLE}"),
    ],
)
def test_what_to_run_next_is_possible_with_the_task_of_the_held_out_examples(tasks, said):
    first, *_ = commands_after_training({"model_file": "M", "override": {"table_path": "T.csv"}, **tasks})
    assert first[0] == f"polyagents {said}"


@pytest.mark.slow
def test_the_curves_of_a_resumed_training_have_those_of_the_first_run(colours, tmp_path, drawn):
    for steps in ("5", "7"):
        trained(tmp_path / "M", *colours, "--max-train-steps", steps)
    first, second = drawn
    assert [point.updates for point in first[1]] == [0, 2, 4, 5]  # the start and the end are validated, too
    assert [point.updates for point in second[1]] == [0, 2, 4, 5, 7]
    assert second[0][: len(first[0])] == first[0]
    assert max(point.updates for point in second[0]) == 7


@pytest.mark.slow
def test_a_training_from_python_ends_in_the_same_way(tmp_path, drawn, capsys):
    file = tmp_path / "M"
    for epochs in (2, 3):
        Ranker.train(PAIRS, file, valid=PAIRS, num_epochs=epochs, validation_every_n_steps=1, **SMALL)
    said = capsys.readouterr().err
    assert "Training finished: 4 updates in " in said and "Training finished: 6 updates in " in said
    assert "Best hits@1 on the validation examples: " in said and f"Ranker.load({str(file)!r})" in said
    assert [point.updates for point in drawn[1][1]] == [0, 1, 2, 3, 4, 5, 6]
    assert [point.updates for point in drawn[1][0]] == [1, 2, 3, 4, 5, 6]
    assert is_picture(f"{file}.png")


@pytest.mark.slow
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("way", ["python", "parlai"])
def test_the_end_says_what_may_be_deleted_or_deletes_it(way, keep, colours, tmp_path, capsys):
    file = tmp_path / "M"
    if way == "python":
        stop = type("Stop", (Callback,), {"on_step_end": lambda self, trainer: setattr(trainer, "stop", True)})()
        Ranker.train(PAIRS, file, max_train_steps=2, keep_checkpoint=keep, callbacks=[stop], **SMALL)
        assert (tmp_path / "M.checkpoint").exists()  # a run that was stopped is resumed
        Ranker.train(PAIRS, file, max_train_steps=2, keep_checkpoint=keep, **SMALL)
        said = capsys.readouterr().err.rpartition("Training finished")[2]
    else:
        said = trained(file, *colours, "--max-train-steps", "2", "--keep-checkpoint", keep)
    left = list(tmp_path.glob("M.checkpoint*"))
    size = file_size(sum(path.stat().st_size for path in left))
    assert bool(left) == keep and (f"Spare:  {file}.checkpoint (and .opt, .dict), {size}: " in said) == keep
    assert (f"(or give {'keep_checkpoint' if way == 'python' else '--keep-checkpoint'} false)" in said) == keep
    assert Ranker.load(file).rank("red ?", ["red", "blue"])


@pytest.mark.slow
@pytest.mark.parametrize("where", ["validate_once_more", "load_eval_worlds", ""])
@pytest.mark.parametrize("rate", [1e-3, 0.5])  # at the second one, the start stays the best model
def test_a_run_that_had_reached_its_end_evaluates_its_best_model(where, rate, colours, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    flags = (*colours, "-lr", rate, "--lr-scheduler", "none", "--max-train-steps", 4, "-vstep", 3)
    flags = (*FLAGS, *flags, "--save-every-n-secs", 1e-9)
    run("train_model", "-mf", tmp_path / "undisturbed", *flags)
    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        if where == "validate_once_more":
            patched.setattr(run_plan, where, killed)
        elif where:
            load = train_model.load_eval_worlds
            at_the_end = lambda agent, opt, kind: killed() if kind == "test" else load(agent, opt, kind)  # noqa: E731
            patched.setattr(train_model, where, at_the_end)
        run("train_model", "-mf", tmp_path / "M", *flags)
    run("train_model", "-mf", tmp_path / "M", *flags)
    assert largest_difference(tmp_path / "undisturbed", tmp_path / "M") == 0
    first, again = (json.loads((tmp_path / f"{name}.trainstats").read_text()) for name in ("undisturbed", "M"))
    for report in ("final_valid_report", "final_test_report"):
        assert again[report]["loss"] == pytest.approx(first[report]["loss"], rel=1e-6)
    assert [one["train_steps"] for one in again["valid_reports"]] == [0, 3, 4]


@pytest.mark.slow
def test_a_run_that_has_lost_its_patience_ends_again(colours, tmp_path):
    steep = ("-lr", 0.5, "--lr-scheduler", "none", "-vstep", 1, "--validation-patience", 2, "--max-train-steps", 20)
    ends = []
    for _ in range(2):
        run("train_model", "-mf", tmp_path / "M", *FLAGS, *colours, *steep)
        reports = json.loads((tmp_path / "M.trainstats").read_text())["valid_reports"]
        ends.append([one["train_steps"] for one in reports])
    assert ends[0] == ends[1] and len(ends[0]) < 20


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The file of a model that has learnt its examples."""
    file = tmp_path_factory.mktemp("learned") / "start"
    Ranker.train(PAIRS, file, valid=PAIRS, learningrate=3e-3, num_epochs=30, **SMALL)
    return file


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["linear", "reduceonplateau"])
def test_a_run_that_only_got_worse_keeps_its_start_and_says_so_first(scheduler, learned, colours, tmp_path, capsys):
    """At a rate at which every model forgets everything."""
    capsys.readouterr()
    more = {"init_model": learned, "learningrate": 0.5, "max_train_steps": 4, "lr_scheduler": scheduler}
    again = Ranker.train(PAIRS, tmp_path / "M", valid=PAIRS, validation_every_n_steps=1, warmup_updates=0, **more)
    said = capsys.readouterr().err.splitlines()
    kept = f"): {tmp_path / 'M'} is the model that the run began with."
    assert kept in said[next(i for i, line in enumerate(said) if "Training finished: " in line) - 1]
    for name, weight in Ranker.load(learned).model.module.state_dict().items():
        assert torch.equal(weight, again.model.module.state_dict()[name])
    flags = ("--init-model", learned, "-lr", 0.5, "--max-train-steps", 4, "--warmup-updates", 0)
    lines = trained(tmp_path / "theirs", *colours, *flags, "--lr-scheduler", scheduler).splitlines()
    assert "No validation was better than the start (accuracy " in lines[lines.index("") + 1]
    assert largest_difference(learned, tmp_path / "theirs") == 0


def test_without_progress_a_training_from_python_says_nothing(tmp_path, capsys):
    Ranker.train(PAIRS, tmp_path / "M", num_epochs=1, progress=False, **SMALL)
    assert capsys.readouterr().err == ""
    assert (tmp_path / "M.png").exists()


def test_a_training_in_memory_draws_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Ranker.train(PAIRS, num_epochs=1, **SMALL)
    assert "Training finished: 2 updates" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", ["folder", "library", "missing"])
def test_a_picture_that_cannot_be_drawn_is_one_sentence(wrong, tmp_path, monkeypatch, capsys):
    if wrong == "folder":
        (tmp_path / "M.png").mkdir()
    elif wrong == "library":
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: 1 / 0)
    else:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert draw_beside(str(tmp_path / "M"), LINE, LINE) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("The training plot") and line.endswith((".", "matplotlib"))
    assert [path.name for path in tmp_path.iterdir()] == (["M.png"] if wrong == "folder" else [])


def test_one_point_is_no_curve(tmp_path):
    assert draw_beside(str(tmp_path / "M"), LINE[:1], LINE[:1]) is None and not list(tmp_path.iterdir())
    assert draw_beside(str(tmp_path / "M"), LINE, []) == str(tmp_path / "M.png")


@pytest.mark.slow
def test_only_the_first_of_several_processes_draws(monkeypatch, colours, tmp_path):
    monkeypatch.setattr("polyagents.parlai_patches.training_end.is_primary_worker", lambda: False)
    said = trained(tmp_path / "M", *colours, "--max-train-steps", "4")
    assert "Training finished" not in said and not (tmp_path / "M.png").exists()


def test_reports_without_both_figures_are_no_points():
    reports = [{"train_steps": 1, "loss": 2}, {"train_steps": 2, "loss": 1.5, "hits@1": 0.25}]
    assert points_of(reports, "loss", "hits@1") == [Point(2, 1.5, 0.25)]


@pytest.mark.parametrize(
    ("named", "options"),
    [
        (str, ("init_model", "validation_patience", "keep_checkpoint")),
        (flag_of, ("--init-model", "--validation-patience", "--keep-checkpoint")),
    ],
)
def test_an_option_is_named_as_it_is_given(named, options):
    ended = Summary(3, None, "accuracy", None, "M", None, checkpoint=5, named=named)
    said = f"{said_over('M', 3, named)} {' '.join(ended.lines())}"
    assert tuple(re.findall(r"(?:--)?\b(?:init|validation|keep)[_-]\w+", said)) == options


@pytest.mark.parametrize(
    ("metric", "meaning"),
    [
        ("accuracy", " (the right candidate ranks first for 25.0% of them)"),
        ("hits@5", " (the right candidate is among the first 5 for 25.0% of them)"),
        ("mrr", " (the mean of 1 / rank of the right candidate: 1 if it always ranks first)"),
        ("bleu-4", ""),
    ],
)
def test_a_metric_is_explained(metric, meaning):
    lines = Summary(3, None, metric, 0.25, None, None).lines()
    assert lines == ["", "Training finished: 3 updates.", f"Best {metric} on the validation examples: 0.25{meaning}"]
