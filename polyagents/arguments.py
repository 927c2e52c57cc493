"""Values of command-line flags: argparse turns what they raise into one line and exit code 2."""

import argparse
import math

AUTO = "auto"  # of --output-scaling


def positive_int(text: str) -> int:
    """A number of things: 1 or more."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more")
    return value


def positive_ints(text: str) -> tuple[int, ...]:
    """Comma-separated numbers of 1 or more, in order and once each."""
    return tuple(sorted({positive_int(part) for part in str(text).split(",")}))


def token_limit(text: str) -> int:
    """A length in tokens with room for [S], one token and [S]; -1 is ParlAI's word for no limit."""
    value = int(text) if text.lstrip("-").isdigit() else 0
    if value != -1 and value < 3:
        raise argparse.ArgumentTypeError(f"{text!r} is no length in tokens: 3 or more, or -1 for no limit")
    return value


def number(text: str) -> float:
    """A number, or NaN, which lies within no bounds."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def positive(text: str) -> float:
    """A factor or rate."""
    value = number(text)
    if not 0.0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def positive_or_auto(text: str) -> float | str:
    """A factor, or the word."""
    try:
        return AUTO if text == AUTO else positive(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and not {AUTO}") from error


def probability(text: str) -> float:
    """A probability below 1."""
    value = number(text)
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no probability between 0 and 1 (excluded)")
    return value


def boolean(text: str) -> bool:
    """A truth value, in the words that ParlAI's flags take."""
    word = text.lower()
    if word in ("yes", "true", "t", "1", "y"):
        return True
    if word in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
