"""Options that are declared once: a field of a frozen dataclass is a flag, a key of `M.opt` and an attribute.

A field has its default, its possible values, and the sentence that `--help` shows. A model reads its options file
through such classes; everything else in the file is ignored.
"""

import argparse
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from polyagents.errors import InputError

AnyOptions = TypeVar("AnyOptions", bound="Options")


def option(default: Any, help: str, parse: Callable[[str], Any] = str, choices: Sequence[str] | None = None) -> Any:
    """Declare a field that is a flag.

    Args:
        default: the value if none is given; None is a possible value.
        parse: converts the flag's text to a value; it raises argparse.ArgumentTypeError for impossible text.
        choices: all possible values, if these are words.
    """
    return dataclasses.field(default=default, metadata={"help": help, "parse": parse, "choices": choices})


@dataclass(frozen=True)
class Options:
    """A group of options.

    Attributes:
        title: the heading of the group in `--help`.
    """

    title: ClassVar[str]

    @classmethod
    def read(cls: type[AnyOptions], values: Mapping[str, Any]) -> AnyOptions:
        """Read a group from flags, or from the content of a JSON file; other keys are ignored.

        Raises:
            InputError: a value is not possible.
        """
        return cls(**{field.name: checked(field, values.get(field.name, field.default)) for field in fields_of(cls)})


def fields_of(group: type[Options]) -> tuple["dataclasses.Field[Any]", ...]:
    """Return the fields of a group that are flags."""
    return tuple(field for field in dataclasses.fields(group) if "help" in field.metadata)


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
    if choices is not None and value not in choices:
        raise InputError(f"{flag} {value} is not possible; give one of {', '.join(choices)}.")
    if not isinstance(value, str | int | float):
        raise InputError(f"{flag} {value!r} is not possible; {field.metadata['help']}.")
    try:
        return field.metadata["parse"](str(value))
    except argparse.ArgumentTypeError as error:
        raise InputError(f"{flag}: {error}.") from error


def with_plain_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that were given in Python, with strings in place of path objects."""
    return {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in values.items()}
