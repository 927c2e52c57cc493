"""The exception for input that cannot work."""

import difflib
import textwrap
from collections.abc import Iterable


class InputError(ValueError):
    """An error in the user's input, described in one sentence: what was given, what is possible, what to change.

    Python callers get a traceback as with any ValueError; the commands print the sentence and exit with code 2
    (`polyagents.faults`).

    >>> try:
    ...     Ranker.load("runs/none")
    ... except InputError as error:
    ...     print(error)
    There is no trained model at runs/none: both runs/none and runs/none.opt are needed. Give the --model-file of
    train_model, or a folder that Ranker.save_pretrained wrote.
    """


class NoTestSplit(InputError):
    """An error for a task without a test set, which stops an evaluation, but not a run whose last step is one."""


def first_line(error: BaseException, most: int = 10_000) -> str:
    """Return the first line of an error's message, at most `most` characters of it, to be quoted in a sentence."""
    line = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
    return line if len(line) <= most else textwrap.shorten(line, most, placeholder=" ...")


def did_you_mean(name: str, known: Iterable[str], prefix: str = "", most: int = 3) -> str:
    """Return at most `most` names that may be meant, as a part of a sentence: " (did you mean poly?)"; empty if none.

    Args:
        prefix: what all names begin with, and which says nothing about their likeness, if `name` begins with it, too.
    """
    prefix = prefix if name.startswith(prefix) else ""
    rests = [one.removeprefix(prefix) for one in known if one.startswith(prefix)]
    close = difflib.get_close_matches(name.removeprefix(prefix), rests, most)
    return f" (did you mean {' or '.join(prefix + one for one in close)}?)" if close else ""


def meant(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Return a question about the names that unknown ones may mean, with a space after it; empty if none."""
    known = list(known)
    close = [found for name in sorted(unknown) for found in difflib.get_close_matches(name, known)]
    return f"did you mean {' or '.join(dict.fromkeys(close))}? " if close else ""
