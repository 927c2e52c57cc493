"""The progress bar of ParlAI's train_model: at a terminal, and nowhere else."""

import io
import re
import shutil
import sys

import pytest
from commands import TINY, colour_dialogues, run, write_task
from parlai.utils import logging

from polyagents import console
from polyagents.parlai_patches import loop_bar

BAR = r"(\d+)/(\d+) \[\d\d:\d\d<\d\d:\d\d, ([^\]]*)\]"


class Terminal(io.StringIO):
    """A standard stream that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Train as at a terminal, or not: what standard error holds of training, and what the log."""
    task = write_task(tmp_path, colour_dialogues(24))
    write_task(tmp_path, colour_dialogues(24)[::-1], "other")
    shutil.copy(tmp_path / "other_test.txt", tmp_path / "task_test.txt")  # else valid is not evaluated again

    def train(name, stream, *flags):
        log = io.StringIO()
        for shown, place in (("stderr", stream()), ("stdout", log)):
            monkeypatch.setattr(sys, shown, place)
        monkeypatch.setattr(logging.logger.streamHandler, "stream", log)
        logging.logger._cache.clear()  # what other tests' log level has left: setLevel does not find this logger
        every = ("--log-every-n-steps", "2", "--loglevel", "info")
        run("train_model", "-m", "polyagents:BiEncoder", "-mf", tmp_path / name, *TINY, *task, *every, *flags)
        return "".join(re.findall("\rTraining:[^\r]*", sys.stderr.getvalue())), log.getvalue()

    return train


def logged(text):
    """Log lines without what differs from run to run."""
    return [re.sub(r"[\d.:]+", "", line) for line in text.splitlines() if "total_exs" in line or "completed" in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "total"),
    [
        (("--max-train-steps", "6"), 6),
        (("--num-epochs", "2", "--max-train-steps", "1000"), 6),
        (("--max-train-steps", "3", "--update-freq", "2"), 3),
    ],
)
def test_a_terminal_has_a_bar(said, flags, total):
    shown, log = said("M", Terminal, *flags)
    done, all_of_them, rest = re.findall(BAR, shown)[-1]
    assert int(done) == int(all_of_them) == total
    assert re.search(r"updates/s|s/ updates", rest)
    assert re.search(r"loss=\d\.\d{3}, R@1=\d\.\d{3}", rest)
    assert "total_steps:2" in log and "\r" not in log


@pytest.mark.slow
def test_where_there_is_no_terminal_there_is_none_and_the_log_is_the_same(said):
    shown, log = said("M", io.StringIO, "--max-train-steps", "6")
    assert not shown and "\r" not in log and "Training:" not in sys.stderr.getvalue()
    assert logged(said("N", Terminal, "--max-train-steps", "6")[1]) == logged(log) != []


@pytest.mark.slow
def test_into_a_file_there_are_lines_now_and_then(said, monkeypatch):
    """Every 30 s; here with each update, and each batch of an evaluation."""
    monkeypatch.setattr(console, "LOGGED_EVERY", 0)
    said("M", io.StringIO, "--max-train-steps", "6")
    shown = sys.stderr.getvalue().rpartition("ex/s]\n")[2]  # after ParlAI's own bar, which only our command hides
    lines = shown.splitlines()
    training = r"Training: (\d) of 6 updates, loss=\d\.\d{3}, R@1=\d\.\d{3}, rate=[\de.-]+, \d+ (s|min) left"
    assert [found[1] for line in lines if (found := re.fullmatch(training, line))] == [*"123456"]
    for split in ("valid", "test"):
        assert f"Evaluating {split}: 24 of 24 examples, 1 s left" in lines
    assert "\r" not in shown


@pytest.mark.slow
def test_what_only_patience_ends_shows_no_time_left(said):
    flags = ("--validation-every-n-steps", "2", "--validation-patience", "1", "-lr", "0", "-vmt", "loss")
    flags += ("--num-epochs", "-1", "--lr-scheduler", "reduceonplateau", "--warmup-updates", "2")
    shown, _ = said("M", Terminal, *flags)
    assert re.search(r"\d+ updates \[\d\d:\d\d, ", shown) and "<" not in shown


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_an_evaluation_of_some_seconds_has_one_too(said, stream, monkeypatch):
    monkeypatch.setattr(loop_bar, "SLOW", 0)
    said("M", stream, "--max-train-steps", "2")
    shown = sys.stderr.getvalue()
    for split in ("valid", "test"):
        assert bool(re.search(rf"\rEvaluating {split}: +\d+%[^\r]*/24 \[", shown)) == (stream is Terminal)
