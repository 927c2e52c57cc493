"""The output of commands: sentences to standard error, and results, such as tables, to standard output.

Texts of files reach the terminal here, whoever wrote them: what would move its cursor, set its title or turn letters
around is shown as JSON's escapes are, so that JSON stays the same value.
"""

import contextlib
import functools
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from tqdm import tqdm

from polyagents.errors import InputError

LOGGED_EVERY = 30.0  # seconds between two lines of progress where there is no terminal
SLOW = 2.0  # seconds that a person waits without a sign that something happens
LOADING = "Loading PyTorch; the first time after a reboot takes longest."
CONTROL = r"[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
COLOUR, BAR = r"\x1b\[[0-9;]*m", r"\r|\x1b\[A"  # of ParlAI on a terminal; of progress bars
PIPE_CLOSED = 141  # the exit code of shells for SIGPIPE


def one_line(text: str, kept: str = "(?!)") -> str:
    """Show the control characters of a text but those that the regular expression `kept` matches.

    By default none is kept, so that no name forges a line or a column.
    """
    return re.sub(f"({kept})|{CONTROL}", lambda part: part[1] or f"\\u{ord(part[0]):04x}", text)


def number_of(number: int, noun: str, plural: str = "") -> str:
    """Write a number of things: 1 pair, 2,000 pairs; 2 replies, if the plural is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def range_of(least: int, most: int, noun: str) -> str:
    """Write between which numbers of things: 2 to 5 pairs; 3 pairs if both are the same."""
    return f"{'' if least == most else f'{least:,} to '}{number_of(most, noun)}"


def command(*words: object) -> str:
    """Return a command line of `polyagents` that can be pasted into a shell."""
    return shlex.join(["polyagents", *map(str, words)])


class Output:
    """A standard stream on which control characters are shown, but line ends and tabs.

    A command ends if its standard output cannot be written to; for standard error, what cannot be written is lost.
    """

    def __init__(self, stream: TextIO, is_error: bool):
        """Take the place of a stream; every character can be written to it afterwards."""
        self.stream, self.is_error, self.exit_code = stream, is_error, 0
        self.kept = "|".join([r"[\n\t]", *([COLOUR] if stream.isatty() else []), *([BAR] if is_error else [])])
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        """Return what the stream has."""
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a text. If standard output has failed before, end the command: somebody caught the first SystemExit."""
        if self.exit_code:
            raise SystemExit(self.exit_code)
        with self.ending():
            self.stream.write(one_line(text, self.kept))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write what is buffered."""
        with self.ending():
            self.stream.flush()

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """End the command with a sentence if standard output fails; quietly if its reader has read enough.

        SystemExit passes the handlers of logging, which would print a traceback and continue.
        """
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):  # Python would write once more as it ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            if self.is_error:
                return
            self.exit_code = PIPE_CLOSED if isinstance(error, BrokenPipeError) else 2
            if self.exit_code != PIPE_CLOSED:
                sentence = f"Standard output cannot be written to ({error.strerror}); give it another place: > FILE."
                sys.stderr.write(f"polyagents: {sentence}\n")
            raise SystemExit(self.exit_code) from error


def take_over_streams() -> None:
    """Put our streams in the place of Python's until the process ends (idempotent).

    Raises:
        InputError: standard output is closed.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:  # the next file that is opened would take its number
        descriptor = ("stdin", "stdout", "stderr").index(name)
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    if hasattr(sys.stdin, "reconfigure"):
        with contextlib.suppress(OSError):  # a caller has read from it before
            sys.stdin.reconfigure(errors="replace")
    begin = vars(tqdm)["__init__"]
    if "disable" not in getattr(begin, "keywords", ()):  # hide bars of other packages, too, where there is no terminal
        tqdm.__init__ = functools.partialmethod(begin, disable=None)
    for name in ("stdout", "stderr"):
        if not isinstance(getattr(sys, name), Output):
            setattr(sys, name, Output(getattr(sys, name), name == "stderr"))
    if "stdout" in closed:
        raise InputError("Standard output is closed; give it a place: > FILE, or > /dev/null.")


def duration(seconds: float) -> str:
    """Format a time in words: 41 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def file_size(count: float) -> str:
    """Format a number of bytes: 640 B, 13.6 MB, 1.2 GB."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.3g} {units[0]}"


def has_standard_error() -> bool:
    """Tell whether there is a standard error: windowed programs have None in its place, and services may close it."""
    return sys.stderr is not None and not getattr(sys.stderr, "closed", False)


def is_terminal() -> bool:
    """Tell whether standard error is a terminal; what an application puts in its place may have `write` only."""
    return has_standard_error() and hasattr(sys.stderr, "isatty") and sys.stderr.isatty()


def say(sentence: str) -> None:
    """Print a sentence to standard error, if there is one: standard output is for results."""
    if has_standard_error():
        tqdm.write(one_line(sentence), file=sys.stderr)


class Bar(tqdm):
    """A progress bar at a terminal and in a notebook; in a file a line now and then, if it takes long.

    Attributes:
        is_logged: whether it writes lines.
    """

    def __init__(self, iterable: Iterable[Any] | None = None, disable: bool = False, **settings: Any):
        """Begin, with tqdm's settings."""
        is_shown = is_terminal() or (has_standard_error() and "ipykernel" in sys.modules)
        super().__init__(iterable, disable=disable or not is_shown, **settings)
        self.is_logged = not (disable or is_shown)
        self._settings, self._begin, self._first = settings, time.monotonic(), self.n
        self._next = self._begin + LOGGED_EVERY

    @property
    def is_due(self) -> bool:
        """Whether the next update will be seen."""
        return not self.disable or (self.is_logged and time.monotonic() >= self._next)

    def __iter__(self) -> Iterator[Any]:
        """Yield the items, with progress."""
        if not self.is_logged:
            yield from super().__iter__()
            return
        for item in self.iterable:
            yield item
            self.update()

    def update(self, n: float = 1) -> bool | None:
        """Add to what is done."""
        if not self.is_logged:
            return bool(super().update(n))
        self.n += n
        if self.is_due:
            self._next = time.monotonic() + LOGGED_EVERY
            say(self._line())
        return None

    def _line(self) -> str:
        """Say how much is done, and how much time is left."""
        size = tqdm.format_sizeof if self._settings.get("unit_scale") else "{:,}".format
        unit, label = self._settings.get("unit", "it"), self._settings.get("desc")
        parts = [f"{size(self.n)}{f' of {size(self.total)}' if self.total else ''}{unit}"]
        parts += [self.postfix] if getattr(self, "postfix", None) else []
        if self.total and self.n > self._first:
            left = (self.total - self.n) * (time.monotonic() - self._begin) / (self.n - self._first)
            parts.append(f"{duration(left)} left")
        return f"{f'{label}: ' if label else ''}{', '.join(parts)}"


@contextlib.contextmanager
def waiting(sentence: str) -> Iterator[None]:
    """Print a sentence, what the program does meanwhile, to a terminal if what is inside takes longer than SLOW."""
    timer = threading.Timer(SLOW, say, [sentence])
    timer.daemon = True  # does not keep a program alive that has failed
    if is_terminal():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def in_columns(rows: Sequence[Sequence[str]], numbers: bool = False) -> list[str]:
    """Format rows of as many cells each as lines with aligned columns.

    Args:
        numbers: whether all cells but the first of a row are numbers, which are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<", *(">" if numbers else "<" for _ in widths[1:])]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Format rows as a Markdown table, with every column that a row has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *[[cell(row.get(name)) for name in columns] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def decimals(value: float, places: int = 3, sign: str = "") -> str:
    """Write a number with its decimals, and no minus before a zero; a `sign` of "+" writes the sign of all others."""
    return f"{round(value, places) + 0.0:{sign}.{places}f}"


def cell(value: Any) -> str:
    """Format a value with three significant digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)
