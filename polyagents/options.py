"""Options that are declared once: a field of a frozen dataclass is a flag, a key of `M.opt` and an attribute.

A field says its default, what it may be, and the sentence that `--help` shows. What a model needs of its options file
is what such a class reads; everything else in there is ignored.
"""

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from polyagents.errors import InputError

AnyOptions = TypeVar("AnyOptions", bound="Options")


def option(default: Any, help: str, parse: Callable[[str], Any] = str, choices: Sequence[str] | None = None) -> Any:
    """A field that is a flag.

    Args:
        default: the value where none is given; None is a value of its own.
        help: what `--help` says.
        parse: from text to value; it raises argparse.ArgumentTypeError for what is no value.
        choices: all values that are possible, where these are words.
    """
    return dataclasses.field(default=default, metadata={"help": help, "parse": parse, "choices": choices})


@dataclass(frozen=True)
class Options:
    """A group of options.

    Attributes:
        title: heads the group in `--help`.
    """

    title: ClassVar[str]

    @classmethod
    def read(cls: type[AnyOptions], values: Mapping[str, Any]) -> AnyOptions:
        """Read a group from flags, or from what a JSON file holds; other keys are ignored.

        Raises:
            InputError: a value is none of those that are possible.
        """
        return cls(**{field.name: checked(field, values.get(field.name, field.default)) for field in fields_of(cls)})


def fields_of(group: type[Options]) -> tuple["dataclasses.Field[Any]", ...]:
    """The fields of a group that are flags."""
    return tuple(field for field in dataclasses.fields(group) if "help" in field.metadata)


def checked(field: "dataclasses.Field[Any]", value: Any) -> Any:
    """A value of a field, with its type; a file's true and 64 mean what the flags' texts do."""
    if value is None and field.default is None:
        return None
    choices, flag = field.metadata["choices"], f"--{field.name.replace('_', '-')}"
    if choices is not None and value not in choices:
        raise InputError(f"{flag} {value} is not possible; give one of {', '.join(choices)}.")
    if not isinstance(value, str | int | float):
        raise InputError(f"{flag} {value!r} is not possible; {field.metadata['help']}.")
    try:
        return field.metadata["parse"](str(value))
    except argparse.ArgumentTypeError as error:
        raise InputError(f"{flag}: {error}.") from error
