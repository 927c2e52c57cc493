"""What commands print."""

import io
import sys
import threading

import pytest

from polyagents import console


class Terminal(io.StringIO):
    """A standard stream that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def said(monkeypatch):
    """Set when a sentence is said."""
    event = threading.Event()
    monkeypatch.setattr(console, "say", lambda sentence: event.set())
    return event


def timers():
    """The timers that run."""
    return [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_who_waits_at_a_terminal_is_told_what_for(said, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(console, "SLOW", 0)
    with console.waiting("Loading."):
        assert said.wait(60)


def test_what_is_fast_says_nothing_and_leaves_no_thread(said, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(console, "SLOW", 600)
    with pytest.raises(ValueError), console.waiting("Loading."):
        (timer,) = timers()
        raise ValueError
    timer.join(60)
    assert not timer.is_alive() and not said.is_set()


def test_a_log_is_told_nothing(said, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(console, "SLOW", 0)
    with console.waiting("Loading."):
        assert not timers()
    assert not said.is_set()


def test_numbers_are_aligned_to_the_right_and_texts_to_the_left():
    rows = [["", "train", "b"], ["examples", "1", "22"]]
    assert console.in_columns(rows, numbers=True) == ["          train   b", "examples      1  22"]
    assert console.in_columns(rows) == ["          train  b", "examples  1      22"]
