"""What commands print."""

import io
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from polyagents import InputError, console
from polyagents.commands.mine_negatives import report_mined
from polyagents.console import Bar
from polyagents.files.json_files import json_number
from polyagents.human_eval.statistics.filtering import FilteredJudgement, check_counted
from polyagents.mining import Counts
from polyagents.tasks.pairs.build_pairs import describe_counts
from polyagents.tasks.table.checking import Split, warnings_of

OUTPUT = {"capture_output": True, "text": True, "check": False, "timeout": 60}


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


HOSTILE = [
    ("\x1b]0;pwned\x07", "\\u001b]0;pwned\\u0007"),  # the title of the window
    ("\x1b[2J\x1b[H", "\\u001b[2J\\u001b[H"),  # clears the screen
    ("\x9b2J", "\\u009b2J"),  # the same in one character
    ("\x1b[8mhidden\x1b[31m", "\\u001b[8mhidden\\u001b[31m"),
    ("\x1bPq\x1b\\", "\\u001bPq\\u001b\\"),  # a picture
    ("bad\b\b\b\x1b[Kgood", "bad\\u0008\\u0008\\u0008\\u001b[Kgood"),  # what is overwritten
    ("\0\x7f\x85\v\f", "\\u0000\\u007f\\u0085\\u000b\\u000c"),
    ("\u202etxt.exe\u2066", "\\u202etxt.exe\\u2066"),  # turns letters around
    ("\ud800", "\\ud800"),
    ("שלום 😀 é\u200f\u200d \\u001b", "שלום 😀 é\u200f\u200d \\u001b"),  # is no command to a terminal
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_no_text_commands_the_terminal(text, shown, monkeypatch):
    raw = io.BytesIO()
    for is_error in (False, True):
        stream = console.Output(io.TextIOWrapper(raw, "utf-8", newline="\n", write_through=True), is_error)
        print(f"a\t{text}", file=stream)
        assert raw.getvalue().decode() == f"a\t{shown}\n"
        raw.seek(0), raw.truncate()
        stream.stream.detach()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    console.say(f"{text}\npolyagents: forged")
    assert sys.stderr.getvalue().encode("utf-8", "backslashreplace").decode() == f"{shown}\\u000apolyagents: forged\n"


def test_colours_and_bars_are_for_terminals_and_standard_error():
    terminal, log = (console.Output(kind(), is_error=True) for kind in (Terminal, io.StringIO))
    for stream in (terminal, log):
        stream.write("\x1b[0;31mred\x1b[0;0m\r50%\x1b[A\n")
    assert terminal.getvalue() == "\x1b[0;31mred\x1b[0;0m\r50%\x1b[A\n"
    assert log.getvalue() == "\\u001b[0;31mred\\u001b[0;0m\r50%\x1b[A\n"


def test_json_with_control_characters_stays_the_same_value():
    stream = console.Output(io.StringIO(), is_error=False)
    value = {"text": "".join(map(chr, range(0x300))) + "\u202e😀"}
    print(json.dumps(value, ensure_ascii=False), file=stream)
    assert json.loads(stream.getvalue()) == value


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "utf-16"])
def test_every_reply_can_be_written_in_any_encoding(encoding):
    raw = io.BytesIO()
    stream = console.Output(io.TextIOWrapper(raw, encoding), is_error=False)
    print("שלום 😀 é \ud800", file=stream)
    stream.flush()
    expected = "שלום 😀 é \\ud800" if encoding == "utf-16" else "\\u05e9\\u05dc\\u05d5\\u05dd \\U0001f600 "
    assert raw.getvalue().decode(encoding).startswith(expected)


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        (">&-", 2, "Standard output is closed"),
        (">&- 2>&- <&-", 2, ""),
        ("1</dev/null", 2, "Standard output cannot be written to (Bad file descriptor)"),
        (">/dev/full", 2, "Standard output cannot be written to (No space left on device)"),
        ("| true", 141, ""),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
    ],
)
def test_where_standard_output_fails_a_command_ends_with_a_sentence(how, code, said):
    command = f"{Path(sys.executable).with_name('polyagents')} --version"
    done = subprocess.run(["bash", "-c", f"{command} {how}; exit ${{PIPESTATUS[0]}}"], **OUTPUT)
    assert done.returncode == code and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert len(done.stderr.splitlines()) == bool(said) and said in done.stderr


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


class WritesOnly:
    """What an application may put in the place of a standard stream, to keep what is written."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("kind", [lambda: None, closed, WritesOnly])
def test_where_an_application_has_no_standard_error_nothing_fails(kind, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", kind())
    monkeypatch.setattr(console, "LOGGED_EVERY", 0)
    console.say("read this")
    with console.waiting("Loading."):
        assert [*Bar("ab", desc="Reading", unit=" letters")] == [*"ab"]
    if kind is WritesOnly:
        assert sys.stderr.text.startswith("read this\nReading: 1 of 2 letters")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("value", "sign", "written"),
    [
        (-0.0, "", "0.000"),
        (-0.0004, "", "0.000"),
        (-0.0004, "+", "+0.000"),
        (-0.0006, "+", "-0.001"),
        (1.5, "+", "+1.500"),
    ],
)
def test_a_zero_has_no_minus(value, sign, written):
    assert console.decimals(value, sign=sign) == written
    assert console.decimals(float("nan")) == "nan" and str(json_number(-0.0)) == "0.0"


def test_numbers_are_aligned_to_the_right_and_texts_to_the_left():
    rows = [["", "train", "b"], ["examples", "1", "22"]]
    assert console.in_columns(rows, numbers=True) == ["          train   b", "examples      1  22"]
    assert console.in_columns(rows) == ["          train  b", "examples  1      22"]


# ---- progress --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_progress_is_a_bar_at_a_terminal_and_lines_in_a_file(stream, monkeypatch):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(sys, "stderr", stream())
    assert [*Bar("abcd", desc="Reading", unit=" letters")] == [*"abcd"]
    with Bar(total=2048, unit="B", unit_scale=True) as bar:
        for _ in range(8):
            bar.update(256)
    said = sys.stderr.getvalue()
    if stream is Terminal:
        assert "\rReading: " in said and "4/4" in said
    else:
        assert said.splitlines() == [
            "Reading: 3 of 4 letters, 17 s left",
            "768 of 2.05kB, 83 s left",
            "1.28k of 2.05kB, 54 s left",
            "1.79k of 2.05kB, 19 s left",
        ]


MINED = ({"negatives": 2, "outfile": "F", "task": "x"}, Counts(examples=1, random=1, short=1), 0, 1)
TWICE = Split(examples=1, pairs=Counter([b"x"]), answers=Counter([b"x"]), contexts=Counter([b"x"]))


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda: console.number_of(1, "reply", "replies"), "1 reply"),
        (lambda: f"{console.range_of(1, 1, 'pair')}, {console.range_of(1, 2_000, 'pair')}", "1 pair, 1 to 2,000 pairs"),
        (lambda: describe_counts({"bots": 1, "files_cut_off": 1, "without_parent": 1, "urls": 2}),
         "1 bot, 1 file cut off, 2 urls, 1 without parent"),
        (lambda: report_mined(*MINED), "too few of 1 candidate are wrong answers"),
        (lambda: list(warnings_of({"train": TWICE, "valid": TWICE}, (0, 0), "words")),
         "valid: 1 of 1 example in train as well"),
        (lambda: check_counted([FilteredJudgement(None, "late")], []), "Of 1 judgement, none counts: "),
    ],
)  # fmt: skip
def test_one_thing_is_written_in_the_singular(write, sentence, capsys):
    try:
        written = write()
    except InputError as error:
        written = error
    assert sentence in f"{written} {capsys.readouterr().err}"
