"""Command lines of our own commands: the parser, and the types of its flags."""

import argparse
import difflib
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

AUTO = "auto"  # of --output-scaling
INDEX_URL = (
    "candidates in a vector database: milvus:FOLDER.db/NAME, milvus://HOST:19530/NAME, milvus+https://HOST/NAME or "
    "postgresql://USER@HOST/DATABASE/NAME"
)

BACKEND = "what computes the encoders: torch; or onnx or openvino, on the CPU, once polyagents export has written them"


# ---- the parser ------------------------------------------------------------------------------------------------------


class CommandParser(argparse.ArgumentParser):
    """Parses the flags of one command as ParlAI's parser does, without ParlAI.

    `--model_file` is `--model-file`, flags are not abbreviated, and errors are reported in one line with exit code 2.
    """

    def __init__(self, prog: str, description: str):
        super().__init__(prog=prog, description=description, allow_abbrev=False, formatter_class=HelpFormatter)

    def parse_known_args(  # type: ignore[override]  # argparse's type is overloaded for other namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, with hyphens for the underscores in names of flags; values stay as they are.

        Args:
            args: the command line; None for that of the process.
            namespace: where the values go; None for a new one.
        """
        given = [with_hyphens(argument) for argument in (sys.argv[1:] if args is None else args)]
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """Report an error in one line."""
        exit_with_one_line(self, message)


class HelpFormatter(argparse.HelpFormatter):
    """Adds the default to the help of each flag that has one."""

    def __init__(self, prog: str, **kwargs: Any):
        super().__init__(prog, max_help_position=8, **kwargs)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        shown = action.option_strings and action.default not in (None, False, argparse.SUPPRESS)
        return f"{action.help} (default: %(default)s)" if shown else action.help


def with_hyphens(argument: str) -> str:
    """Replace underscores in the name of a flag: `--model_file=a_b` -> `--model-file=a_b`; other words stay."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}"


def exit_with_one_line(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Report an error in a command line to standard error, with the flag that may be meant; exit with code 2.

    Args:
        parser: the parser.
        message: the error.
    """
    flags = [flag for action in parser._actions for flag in action.option_strings]
    wrong = re.search(r"unrecognized arguments: (--[\w-]+)", message)
    close = difflib.get_close_matches(wrong.group(1), flags, n=1) if wrong else []
    hint = f" (did you mean {close[0]}?)" if close else ""
    sys.stderr.write(f"{parser.prog}: {message}{hint}. All flags: {parser.prog} --help\n")
    sys.exit(2)


def add_precision_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--precision`, how a model that is loaded computes."""
    # Literal, as the module that defines these choices, polyagents.models.model_options, imports torch.
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16", "fp16"), help="by default as in training")


def add_backend_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--backend`, what computes the encoders of a model that is loaded."""
    # Literal, as the module that knows them, polyagents.backends, imports torch.
    parser.add_argument("--backend", choices=("torch", "onnx", "openvino"), default="torch", help=BACKEND)


# ---- types of flags --------------------------------------------------------------------------------------------------
# argparse turns an ArgumentTypeError into one line and exit code 2.


def positive_int(text: str) -> int:
    """Parse a number of things: 1 or more, and no more than a machine word holds."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    if value > sys.maxsize:  # the limit of deque, numpy and Rust's libraries
        raise argparse.ArgumentTypeError(f"a number of {len(text)} digits is too large: at most {sys.maxsize}")
    return value


def count(text: str) -> int:
    """Parse a number of things that may be none: 0 or more."""
    return 0 if text == "0" else positive_int(text)


def positive_ints(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of 1 or more; the result is sorted and holds each of them once."""
    return tuple(sorted({positive_int(part) for part in str(text).split(",")}))


def token_limit(text: str) -> int:
    """Parse a length in tokens with room for [S], one token and [S]; -1 is ParlAI's word for no limit."""
    value = int(text) if text.lstrip("-").isdigit() else 0
    if value != -1 and value < 3:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length in tokens: 3 or more, or -1 for no limit")
    return value


def number(text: str) -> float:
    """Parse a number; the result is NaN, which lies within no bounds, where the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def positive(text: str) -> float:
    """Parse a factor or rate: a number above 0."""
    value = number(text)
    if not 0.0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def not_negative(text: str) -> float:
    """Parse a weight of a loss: 0 or more."""
    value = number(text)
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value


def positive_or_auto(text: str) -> float | str:
    """Parse a number above 0, or the word "auto"."""
    try:
        return AUTO if text == AUTO else positive(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and not {AUTO}") from error


def probability(text: str) -> float:
    """Parse a probability below 1."""
    value = number(text)
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a probability between 0 and 1 (excluded)")
    return value


def boolean(text: str) -> bool:
    """Parse a truth value, in the words that ParlAI's flags accept."""
    word = text.lower()
    if word in ("yes", "true", "t", "1", "y"):
        return True
    if word in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
