"""Training that meets trouble: losses that are no numbers, kills, full disks; and what its files hold."""

import errno
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import forks
import pytest
import torch
from commands import (
    KINDS,
    PARTS,
    SAMPLE,
    TINY,
    colour_dialogues,
    evaluate,
    largest_difference,
    train,
    updates_in_checkpoint,
    weights,
    write_task,
)
from parlai.utils import logging
from safetensors import safe_open

from polyagents import Ranker
from polyagents.errors import InputError
from polyagents.files import locks, model_file
from polyagents.parlai_agents import ranker_agent
from polyagents.parlai_patches import train_loop
from polyagents.training import watch


@pytest.fixture
def ordered(tmp_path):
    """A task whose training set is one batch, always the same."""
    return (*write_task(tmp_path, colour_dialogues(8)), "-dt", "train:ordered")


# ---- losses that are no numbers --------------------------------------------------------------------------------------


def poison(monkeypatch, updates):
    """Make the scores of the given training steps not-a-number."""
    step, scores = [0], ranker_agent.training_scores

    def poisoned(*arguments):
        result = scores(*arguments)
        step[0] += 1
        return result._replace(scores=result.scores * torch.nan) if step[0] in updates else result

    monkeypatch.setattr(ranker_agent, "training_scores", poisoned)


CONSTANT_RATE = ("--warmup-updates", -1, "--lr-scheduler", "none")
PLATEAU = ("--lr-scheduler", "reduceonplateau")  # what does not depend on the length of the run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "every"), [((*PLATEAU, "--chunk-tokens", 64), 1), (("--precision", "fp16"), 1), (CONSTANT_RATE, 4)]
)
def test_a_loss_that_is_no_number_is_reported_and_not_trained_on(more, every, ordered, monkeypatch, tmp_path):
    """At once, or as on a GPU, where one looks after several updates."""
    monkeypatch.setitem(watch.EVERY, "cpu", every)
    said = []
    monkeypatch.setattr(logging, "error", said.append)
    train("poly", tmp_path / "good", *ordered, *more, "--max-train-steps", 4)
    poison(monkeypatch, {2, 4})
    train("poly", tmp_path / "bad", *ordered, *more, "--max-train-steps", 6)
    assert len(said) == 2 and "Update 2: the loss of 8 of 8 examples is not finite" in said[0]
    assert "i like " in said[0] and "so you like " in said[0]
    assert weights(tmp_path / "bad")["number_training_updates"] == 4
    if "fp16" not in more:  # the same updates without the poisoned two
        assert largest_difference(tmp_path / "good", tmp_path / "bad") == 0


@pytest.mark.slow
def test_a_training_that_cannot_recover_ends_with_a_sentence(ordered, monkeypatch, tmp_path):
    monkeypatch.setattr(logging, "error", lambda text: None)
    poison(monkeypatch, set(range(3, 1000)))
    with pytest.raises(InputError, match="30 updates in a row were not finite, the last at update 2; none of them"):
        train("bi", tmp_path / "M", *ordered, "--max-train-steps", 100, "--save-every-n-secs", 1e-9)
    state = weights(tmp_path / "M.checkpoint")
    assert all(torch.isfinite(weight).all() for weight in state["model"].values())


# ---- files -----------------------------------------------------------------------------------------------------------


def test_the_optimisers_state_is_in_the_checkpoint_only(ordered, tmp_path):
    file = tmp_path / "M"
    train("poly", file, *ordered, "--max-train-steps", 3)
    assert "optimizer" not in weights(file) and "optimizer" in weights(f"{file}.checkpoint")
    assert os.path.getsize(file) < 0.4 * os.path.getsize(f"{file}.checkpoint")
    with safe_open(file, "pt") as opened:  # plain weights for every other tool
        assert "context_encoder.backbone.embeddings.word_embeddings.weight" in opened.keys()  # noqa: SIM118
    assert os.stat(file).st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask():
    value = os.umask(0)
    os.umask(value)
    return value


@pytest.mark.slow
def test_a_shared_encoder_is_stored_once(ordered, tmp_path):
    sizes = {}
    for shared in ("true", "false"):
        train("bi", tmp_path / shared, *ordered, "--share-encoders", shared, "--max-train-steps", 1)
        sizes[shared] = os.path.getsize(tmp_path / shared)
        assert evaluate(tmp_path / shared, *ordered[:-2])["exs"] == 8
    assert sizes["true"] < 0.6 * sizes["false"]


def test_any_state_comes_back_as_it_was(tmp_path):
    weight = torch.arange(6.0).reshape(2, 3).t()  # not contiguous
    state = {
        "model": {"a": weight, "b": weight, "c": torch.tensor(3), "d": torch.empty(0)},
        "optimizer": {"state": {0: {"step": torch.tensor(2.0), "avg": weight * 2}, 10: {}}, "groups": [{"lr": 0.1}]},
        "nothing": None,
        "number": 3,
    }
    model_file.write(str(tmp_path / "M"), state)
    again = model_file.read(str(tmp_path / "M"))
    assert again["model"].keys() == state["model"].keys()
    for name, value in state["model"].items():
        assert torch.equal(again["model"][name], value)
    assert again["optimizer"]["state"].keys() == {0, 10} and again["optimizer"]["groups"] == [{"lr": 0.1}]
    assert torch.equal(again["optimizer"]["state"][0]["avg"], weight * 2)
    assert (again["nothing"], again["number"]) == (None, 3)


@pytest.mark.slow
def test_a_resumed_run_that_does_not_improve_keeps_the_better_model(tmp_path):
    task = write_task(tmp_path, colour_dialogues())
    file = tmp_path / "M"
    flags = (*task, "--validation-every-n-steps", 4, "--validation-metric", "hits@1")
    train("bi", file, *flags, "--max-train-steps", 8)
    best, states = evaluate(file, *task)["hits@1"], {part: Path(f"{file}{part}").read_bytes() for part in PARTS}
    stats = Path(f"{file}.checkpoint.trainstats")
    stats.write_text(json.dumps(json.loads(stats.read_text()) | {"best_valid": 2.0}))  # nothing will beat that
    valid, _ = train("bi", file, *flags, "--max-train-steps", 12)
    assert Path(file).read_bytes() == states[""]
    assert float(valid["hits@1"]) == best == evaluate(file, *task)["hits@1"]
    assert json.loads(Path(f"{file}.opt").read_text())["init_model"] is None


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", ".checkpoint", pytest.param(".checkpoint.trainstats", marks=pytest.mark.release)])
def test_a_full_disk_while_saving_keeps_the_last_state(part, ordered, monkeypatch, tmp_path):
    file = tmp_path / "M"
    flags = (*ordered, "--validation-every-n-steps", 2, "--validation-metric", "loss")
    train("bi", file, *flags, "--max-train-steps", 4)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("M")}
    fsync = os.fsync

    def full(descriptor):
        if (
            os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{file}{part}.")
            and "tmp" in os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(f"{file}{part}").split(".")[2:3]
        ):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="the disk is full"):
        train("bi", file, *flags, "--max-train-steps", 8)
    monkeypatch.undo()
    assert (tmp_path / f"M{part}").read_bytes() == before[tmp_path / f"M{part}"]
    assert not list(tmp_path.glob("*.tmp*"))
    assert evaluate(file, *ordered[:-2])["exs"] == 8
    updates = weights(f"{file}.checkpoint")["number_training_updates"]
    train("bi", file, *flags, "--max-train-steps", 8)
    assert weights(f"{file}.checkpoint")["number_training_updates"] > updates


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.release)])
def test_kills_at_random_moments(kills, tmp_path):
    """kill -9, several times: every file that there is can be read, and the updates go on where they were."""
    file, moments = tmp_path / "M", random.Random(0)
    command = ["train_model", "-m", KINDS["bi"], "-mf", file, "-t", SAMPLE, *TINY]
    command += ["--save-every-n-secs", "0.05", "--validation-every-n-steps", "20"]
    command += ["--validation-max-exs", "16", "--max-train-steps", "100000", "--loglevel", "error"]
    updates = 0
    for _ in range(kills):
        with open(os.devnull, "r+") as null:
            run = forks.Child(forks.COMMAND, *command, stdin=null, stdout=null, stderr=null)
        deadline, begin = time.monotonic() + 60, updates
        while updates == begin:  # until it has saved at least once more
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
            updates = updates_in_checkpoint(file)
        time.sleep(moments.random() * 0.5)
        run.send_signal(signal.SIGKILL)
        run.wait()
        state = weights(f"{file}.checkpoint")
        assert all(torch.isfinite(weight).all() for weight in state["model"].values())
        assert state["number_training_updates"] >= updates > begin
        updates = state["number_training_updates"]
        stats = json.loads(Path(f"{file}.checkpoint.trainstats").read_text())
        assert 0 <= updates - stats["train_steps"] <= 400  # of the checkpoint, or of the one before it
        for path in tmp_path.glob("M*"):
            if path.suffix in (".opt", ".dict", ".trainstats"):
                json.loads(path.read_text())
    if os.path.exists(file):
        assert Ranker.load(str(file)).rank("hi", ["a", "b"], top_k=1)


def test_a_file_replaced_while_it_is_read(monkeypatch, tmp_path):
    """A run saves while somebody loads its model: what is read is one file or the other, not the head of one."""
    file = str(tmp_path / "M")
    model_file.write(file, {"model": {"weight": torch.zeros(4)}, "updates": 1})

    def late(*arguments):
        model_file.write(file, {"model": {"weight": torch.ones(2)}, "updates": 10**40})
        return safe_open(*arguments)

    monkeypatch.setattr(model_file, "safe_open", late)
    state = model_file.read(file)
    assert (state["updates"], state["model"]["weight"].tolist()) == (1, [0, 0, 0, 0])


# ---- helpers that read ahead -----------------------------------------------------------------------------------------


@pytest.mark.release
def test_examples_read_by_other_processes(tmp_path):
    """A process of its own: helpers are forked, which threads of other tests would not outlive."""
    command = [Path(sys.executable).with_name("polyagents"), "train_model", "-m", "bi", "-mf", tmp_path / "M", *TINY]
    command += ["-t", SAMPLE, "--num-workers", "2", "--max-train-steps", "2", "-vme", "8", "--short-final-eval", "true"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "M.trainstats").read_text())["train_steps"] == 2


# ---- one training of a model file at a time --------------------------------------------------------------------------

HOLD = """
import sys
from polyagents.files.locks import lock_model
held = lock_model(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def elsewhere(tmp_path):
    """Another process that trains tmp_path / "M"."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "M"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.stdin.close()


def test_a_second_training_of_a_model_file_is_refused(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0)
    with pytest.raises(InputError, match="M is being trained by another process"):
        train("bi", tmp_path / "M", "-t", SAMPLE, "--max-train-steps", 1)
    assert [path.name for path in tmp_path.iterdir()] == [".M.lock"]


@pytest.mark.slow
def test_the_lock_of_a_training_goes_with_it(elsewhere, tmp_path):
    elsewhere.kill()
    elsewhere.wait()
    first, second = locks.lock_model(str(tmp_path / "M")), locks.lock_model(str(tmp_path / "x" / ".." / "M"))
    assert first is second and (tmp_path / ".M.lock").exists()  # one process, however many agents
    child = os.fork()
    if not child:
        del first, second
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / ".M.lock").exists()
    del first, second
    assert not list(tmp_path.iterdir()) and locks.lock_model(str(tmp_path / "missing" / "M")) is None


NOTED = [3, "", "[]", "{}", '{"train_steps": 3}', '{"train_steps": -1, "valid_reports": []}']
NOTED += ['{"train_steps": true, "valid_reports": []}', '{"train_steps": 3, "valid_reports": [1]}']
NOTED += ['{"train_steps": 3, "valid_reports": [{}]}']


@pytest.mark.parametrize("held", NOTED)
def test_what_no_run_has_noted_is_refused(held):
    with pytest.raises(ValueError):
        train_loop.check_progress(held)


# ---- what a checkpoint knows of its run ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_killed_between_checkpoint_and_trainstats_makes_as_many_updates(ordered, tmp_path):
    flags = (*ordered, "--validation-every-n-steps", 2, "--validation-cutoff", 2, "--max-train-steps")
    (tmp_path / "run").mkdir()
    train("bi", tmp_path / "run" / "M", *flags, 2)
    old = (tmp_path / "run" / "M.checkpoint.trainstats").read_text()
    train("bi", tmp_path / "run" / "M", *flags, 6)
    ends = []
    for number, left in enumerate(("undisturbed", old, old[:50], None)):
        folder = shutil.copytree(tmp_path / "run", tmp_path / str(number))
        stats = folder / "M.checkpoint.trainstats"
        if left != "undisturbed":
            stats.unlink() if left is None else stats.write_text(left)
        train("bi", folder / "M", *flags, 10)
        found = json.loads(stats.read_text())
        assert found["train_steps"] == weights(f"{folder}/M.checkpoint")["number_training_updates"] > 6
        ends.append((found["train_steps"], [report["loss"] for report in found["valid_reports"]]))
    assert ends == ends[:1] * 4
