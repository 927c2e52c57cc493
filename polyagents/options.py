"""Options that are declared once: a field of a frozen dataclass is a flag, a key of `M.opt` and an attribute.

A field has its default, its possible values, the sentence that `--help` shows, and its role. A model reads its options
file through such classes; everything else in the file is ignored. The models' are in models/model_options.py, those of
training in training_loop/training_options.py, and what only ParlAI's commands have in parlai_agents/flags.py.
"""

import argparse
import copy
import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from polyagents.arguments import boolean, number, whole
from polyagents.errors import InputError

ENTRY_POINTS = "polyagents.architectures"  # the group under which installed packages name their architectures
PARSES: dict[Any, Callable[[str], Any]] = {str: str, int: whole, float: number, bool: boolean}
AnyOptions = TypeVar("AnyOptions", bound="Options")


class Role(enum.Flag):
    """What an option of a model decides."""

    NONE = 0  # it may change from use to use
    WEIGHTS = enum.auto()  # which weights there are, and of which size
    VECTORS = enum.auto()  # the vector of a candidate, from the same weights
    SCORES = enum.auto()  # a score, from the same weights and candidate vectors
    TRAINING = enum.auto()  # how weights start, learn or are kept: nothing that a trained model could have otherwise
    CARD = enum.auto()  # nothing; a model's card names it


def option(
    default: Any,
    help: str,
    parse: Callable[[str], Any] | None = None,
    choices: Sequence[str] | None = None,
    role: Role = Role.NONE,
) -> Any:
    """Declare a field that is a flag.

    Args:
        default: the value if none is given; None is a possible value.
        parse: converts the flag's text to a value; it raises argparse.ArgumentTypeError for impossible text. None for
            the annotated type: str, int, float or bool.
        choices: all possible values, if these are words.
    """
    return dataclasses.field(default=default, metadata={"help": help, "parse": parse, "choices": choices, "role": role})


@dataclass(frozen=True)
class Options:
    """A group of options.

    Attributes:
        title: the heading of the group in `--help`.
    """

    title: ClassVar[str] = ""

    def __init_subclass__(cls, title: str | None = None) -> None:
        """Take the title of a group from its class statement; by default it is its base class's."""
        cls.title = cls.title if title is None else title

    @classmethod
    def read(cls: type[AnyOptions], values: Mapping[str, Any]) -> AnyOptions:
        """Read a group from flags, or from the content of a JSON file; other keys are ignored.

        Raises:
            InputError: a value is not possible.
        """
        return cls(**{field.name: checked(field, values.get(field.name, field.default)) for field in fields_of(cls)})


def fields_of(group: type[Options]) -> tuple["dataclasses.Field[Any]", ...]:
    """Return the fields of a group, each with what parses it.

    Raises:
        InputError: a field is not declared as an `option`, or nothing parses its type.
    """
    annotated = typing.get_type_hints(group)
    return tuple(with_parse(field, annotated[field.name], group.__name__) for field in dataclasses.fields(group))


def with_parse(field: "dataclasses.Field[Any]", annotated: Any, group: str) -> "dataclasses.Field[Any]":
    """Return a field with what parses it; raises as `fields_of` does."""
    if "help" not in field.metadata:
        raise InputError(
            f"{group}.{field.name} is not declared as an option, so --help could not explain it, and nobody would know "
            f"what it decides: write {field.name}: ... = option(DEFAULT, 'what it is', role=Role.WEIGHTS), with the "
            f"role (polyagents.options) that is true."
        )
    if field.metadata["parse"] is not None:
        return field
    possible = [kind for kind in typing.get_args(annotated) or (annotated,) if kind is not type(None)]
    if len(possible) != 1 or possible[0] not in PARSES:
        raise InputError(
            f"{group}.{field.name} is of the type {annotated}, which no flag has by itself; annotate it with str, int, "
            f"float or bool, or give its option a parse=."
        )
    made = copy.copy(field)
    made.metadata = types.MappingProxyType({**field.metadata, "parse": PARSES[possible[0]]})
    return made


def checked(field: "dataclasses.Field[Any]", value: Any) -> Any:
    """Check a value of a field and convert it to its type; a file's true and 64 mean what the flags' texts do.

    Args:
        value: from the command line or from a file.

    Raises:
        InputError: the value is not possible.
    """
    if value is None and field.default is None:
        return None
    choices, flag = field.metadata["choices"], f"--{field.name.replace('_', '-')}"
    if choices is not None and str(value) not in choices:
        raise InputError(f"{flag} {value} is not possible; give one of {', '.join(choices)}.")
    if not isinstance(value, str | int | float) or (isinstance(value, bool) and field.metadata["parse"] is str):
        raise InputError(f"{flag} {value!r} is not possible; {field.metadata['help']}.")
    try:
        return field.metadata["parse"](str(value))
    except argparse.ArgumentTypeError as error:
        raise InputError(f"{flag}: {error}.") from error
