"""Command lines of our own commands: the parser, and the types of its flags."""

import argparse
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from polyagents.console import one_line
from polyagents.errors import InputError, did_you_mean

AUTO = "auto"  # of --output-scaling and --backend
PRECISIONS = ("auto", "fp32", "bf16", "fp16")
BACKENDS = ("auto", "torch", "onnx", "openvino")
INDEX_URL = (
    "candidates in a vector database: milvus:FOLDER.db/NAME, milvus://HOST:19530/NAME, milvus+https://HOST/NAME or "
    "postgresql://USER@HOST/DATABASE/NAME"
)

BACKEND = (
    "the runtime of the encoders: torch; onnx or openvino, on the CPU, once polyagents export has written them; or "
    "auto, the one that polyagents tune has measured to be the fastest on this machine, otherwise torch"
)


# ---- the parser ------------------------------------------------------------------------------------------------------


class CommandParser(argparse.ArgumentParser):
    """Parses the flags of one command as ParlAI's parser does, without ParlAI.

    `--model_file` is `--model-file`, flags are not abbreviated, and errors are reported in one line with exit code 2.

    Attributes:
        needed: the name of a flag -> the one without which it has no effect, and is refused.
        given: the command line.
    """

    def __init__(self, prog: str, description: str):
        super().__init__(prog=prog, description=description, allow_abbrev=False, formatter_class=HelpFormatter)
        self.needed: dict[str, str] = {}
        self.given: list[str] = []

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse, and refuse flags that would have no effect."""
        found = super().parse_args(args, namespace)
        self.check_needed(found)
        return found

    def check_needed(self, given: argparse.Namespace) -> None:
        """End with an error if a flag is given, and the one that it needs is not."""
        for name, other in self.needed.items():
            if getattr(given, name) != self.get_default(name) and getattr(given, other) is None:
                self.error(f"{flag_of(name)} is for {flag_of(other)}; give that flag, too, or remove {flag_of(name)}")

    def parse_known_args(  # type: ignore[override]  # argparse's type is overloaded for other namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, with hyphens for the underscores in names of flags; values stay as they are."""
        self.given = [with_hyphens(argument) for argument in (sys.argv[1:] if args is None else args)]
        return super().parse_known_args(self.given, namespace)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Refuse an empty value, such as an unset shell variable: none of our flags takes one."""
        if not arg_string.strip() and action.nargs != argparse.REMAINDER:  # what follows has a parser of its own
            raise argparse.ArgumentError(action, "its value is empty")
        return super()._get_value(action, arg_string)

    def error(self, message: str) -> NoReturn:
        """Report an error in one line: of a flag that is missing because it is misspelt, the misspelt one."""
        missing = re.findall(r"-[\w-]+", message.partition("are required: ")[2])
        for name in (word.partition("=")[0] for word in self.given if word.startswith("-")):
            if name not in self._option_string_actions and did_you_mean(name, missing, "-"):
                message = f"unrecognized arguments: {name}"
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


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"--{name.replace('_', '-')}"


def exit_with_one_line(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Report an error in a command line to standard error, with the likely flag; exit with code 2."""
    flags = [flag for action in parser._actions for flag in action.option_strings]
    wrong = re.search(r"unrecognized arguments: (-[\w-]+)", message)
    hint = did_you_mean(wrong.group(1), flags, "-", most=1) if wrong else ""
    sys.stderr.write(f"{parser.prog}: {one_line(message)}{hint}. All flags: {parser.prog} --help\n")
    sys.exit(2)


def add_precision_flag(parser: argparse.ArgumentParser, help: str = "by default as in training") -> None:
    """Add `--precision`, how a model that is loaded computes."""
    parser.add_argument("--precision", choices=PRECISIONS, help=help)


def add_fields_flag(parser: CommandParser) -> None:
    """Add --fields, the fields of candidates with ids."""
    parser.needed["fields"] = "candidates_file"
    parser.add_argument(
        "--fields",
        metavar="NAME[:KIND],...",
        help="fields of a candidates file with ids (such as .jsonl) by which a search can be filtered, such as "
        "tenant,year:int; kinds: text (default), int, float, bool",
    )


def add_backend_flag(parser: argparse.ArgumentParser, default: str = AUTO) -> None:
    """Add `--backend`, what computes the encoders of a model that is loaded."""
    parser.add_argument("--backend", choices=BACKENDS, default=default, help=BACKEND)


def model_overrides(opt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `--precision` and `--backend` override when a model is loaded."""
    return {name: opt[name] for name in ("precision", "backend") if opt.get(name)}


def refuse_given(opt: Mapping[str, Any], names: Iterable[str], why: str) -> None:
    """Refuse, with an InputError, the first of some flags that is given: `--NAME why`."""
    if wrong := next((name for name in names if opt.get(name)), None):
        raise InputError(f"{flag_of(wrong)} {why}")


# ---- types of flags --------------------------------------------------------------------------------------------------
# argparse turns an ArgumentTypeError into one line and exit code 2.


LARGEST = 1e12


def shown(text: str) -> str:
    """Quote the given value, cut to its beginning."""
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


@dataclass(frozen=True)
class Whole:
    """The type of a flag that takes whole numbers.

    Attributes:
        most: the largest; by default what a machine word holds, the limit of deque, numpy and Rust's libraries.
        none: a word of ParlAI's below `least`, such as -1 for no limit.
    """

    least: int
    most: int = sys.maxsize
    none: int | None = None

    def __call__(self, text: str) -> int:
        """Parse a number."""
        try:
            value = int(text)
        except ValueError:
            raise self.refusal(text) from None
        if value != self.none and value < self.least:
            raise self.refusal(text)
        if value > self.most:
            given = text if len(text) <= 20 else f"a number of {len(text)} digits"
            raise argparse.ArgumentTypeError(f"{given} is too large: at most {self.most}")
        return value

    def refusal(self, text: str) -> argparse.ArgumentTypeError:
        """Return the error for any other value."""
        none = "" if self.none is None else f", or {self.none} for none"
        least = "" if self.least == -sys.maxsize else f" of {self.least} or more"
        return argparse.ArgumentTypeError(f"{shown(text)} is not a whole number{least}{none}")


@dataclass(frozen=True)
class Real:
    """The type of a flag that takes numbers: finite ones whose cube fits into fp32.

    Attributes:
        words: what the numbers are, for the sentence of an error.
        least: the lower bound.
        below: the upper bound, which is not among them.
        above: whether `least` is not among them either.
        none: a word of ParlAI's outside the bounds, such as -1 for no limit.
    """

    words: str
    least: float
    below: float = LARGEST
    above: bool = False
    none: float | None = None

    def __call__(self, text: str) -> float:
        """Parse a number."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan  # which lies within no bounds
        if LARGEST <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{shown(text)} is too large: below {LARGEST:.0e}")
        inside = self.least <= value < self.below and not (self.above and value == self.least)
        if not inside and value != self.none:
            none = "" if self.none is None else f", or {self.none:g} for none"
            raise argparse.ArgumentTypeError(f"{shown(text)} is not {self.words}{none}")
        return value


whole = Whole(-sys.maxsize)
number = Real("a number", -LARGEST)
positive_int = Whole(1)  # a number of things
count = Whole(0)  # a number of things that may be none
batch_size = Whole(1, 65_536)
seed_number = Whole(0, 2**32 - 1)  # numpy's limit
port_number = Whole(0, 65_535)
positive = Real("a number above 0", 0, above=True)  # a factor or rate
not_negative = Real("a number of 0 or more", 0)
threshold = Real("a probability from 0 to 1", 0, math.nextafter(1, 2))
probability = Real("a probability between 0 and 1 (excluded)", 0, 1)


def positive_ints(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of 1 or more; the result is sorted and holds each of them once."""
    return tuple(sorted({positive_int(part) for part in str(text).split(",")}))


def amounts(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of candidates, such as 250000, 100k or 2.5m; sorted, each of them once."""
    found = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([km]?)", part.strip().lower())
        value = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6}[match[2]] if match else 0
        if not 1 <= value <= LARGEST:
            raise argparse.ArgumentTypeError(
                f"{shown(part)} is not a number of candidates from 1 to {LARGEST:.0e}, such as 250000, 100k or 2.5m; "
                f"--candidates-file takes a file of them"
            )
        found.add(round(value))
    return tuple(sorted(found))


def token_limit(text: str) -> int:
    """Parse a length in tokens with room for [S], one token and [S]; -1 is ParlAI's word for no limit."""
    try:
        return Whole(3, none=-1)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a length in tokens: 3 or more, or -1 for no limit"
        ) from None


def positive_or_auto(text: str) -> float | str:
    """Parse a number above 0, or the word "auto"."""
    try:
        return AUTO if text == AUTO else positive(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and not {AUTO}") from error


def boolean(text: str) -> bool:
    """Parse a truth value, in the words that ParlAI's flags accept."""
    word = text.lower()
    if word in ("yes", "true", "t", "1", "y"):
        return True
    if word in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
