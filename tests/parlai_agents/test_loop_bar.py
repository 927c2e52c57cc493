"""The progress bar of ParlAI's train_model: at a terminal, and nowhere else."""

import io
import re
import sys

import pytest
from commands import SAMPLE, TINY, run
from parlai.utils import logging

SHORT = ("-t", SAMPLE, "--validation-max-exs", "8", "--short-final-eval", "true", "--log-every-n-steps", "2")


class Terminal(io.StringIO):
    """A standard stream that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Train as at a terminal, or not: what standard error and the log hold."""

    def train(stream, *flags):
        log = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream())
        monkeypatch.setattr(logging.logger.streamHandler, "stream", log)
        monkeypatch.setattr(sys, "stdout", log)
        run(
            "train_model",
            "-m",
            "polyagents:BiEncoder",
            "-mf",
            tmp_path / "M",
            *TINY,
            *SHORT,
            *flags,
            "--loglevel",
            "info",
        )
        return sys.stderr.getvalue(), log.getvalue()

    return train


def logged(text):
    """Log lines without what differs from run to run."""
    return [re.sub(r"[\d.:]+", "", line) for line in text.splitlines() if "total_exs" in line or "completed" in line]


@pytest.mark.parametrize(
    ("flags", "total"),
    [
        (("--max-train-steps", "6"), 6),
        (("--num-epochs", "0.03", "--max-train-steps", "1000"), None),
        (("--max-train-steps", "3", "--update-freq", "2"), 3),
    ],
)
def test_a_terminal_has_a_bar(said, flags, total):
    shown, log = said(Terminal, *flags)
    last = re.findall(r"(\d+)/(\d+) \[\d\d:\d\d<\d\d:\d\d, ([^\]]*)\]", shown)[-1]
    assert last[0] == last[1] and (total is None or int(last[1]) == total)
    assert re.search(r"updates/s|s/ updates", last[2])
    assert re.search(r"loss=\d\.\d{3}, R@1=\d\.\d{3}", last[2])
    assert "total_steps:2" in log and "\r" not in log


def test_where_there_is_no_terminal_nothing_changes(said, tmp_path):
    """The log lines are those that a terminal has above the bar."""
    shown, log = said(io.StringIO, "--max-train-steps", "6")
    assert "updates" not in shown and "\r" not in shown
    (tmp_path / "M").unlink()
    (tmp_path / "M.checkpoint").unlink()
    assert logged(said(Terminal, "--max-train-steps", "6")[1]) == logged(log) != []


def test_what_only_patience_ends_shows_no_time_left(said):
    flags = ("--validation-every-n-steps", "2", "--validation-patience", "1", "-lr", "1e-12", "-vmt", "loss")
    shown, _ = said(Terminal, *flags)
    assert re.search(r"\d+ updates \[\d\d:\d\d, ", shown) and "<" not in shown
