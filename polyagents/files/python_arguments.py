"""What Python callers give: texts or dicts in any container, paths, and numbers of numpy."""

import os
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from polyagents.errors import InputError


def texts_of(given: Any, name: str, one: bool = False) -> list[str]:
    """Return texts as a list; an empty text is valid.

    Args:
        given: an iterable of strings: a list, a generator, a numpy array, a column of pandas, pyarrow or datasets.
        name: the argument's name in error sentences.
        one: whether a string is one text; otherwise it is refused, since it would be read letter by letter.

    Raises:
        InputError: it is something else, or an item is not a string, or has half a surrogate pair.
    """
    wanted = "a text, or a list of texts" if one else "a list of texts"
    texts = [given] if isinstance(given, str) and one else items_of(given, name, wanted)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"{name} has {on_one_line(text)} at place {place}; give {wanted}.")
        if not is_whole(text):
            raise InputError(f"{name} has half a character at place {place} ({text[:40]!a}); remove it.")
    return texts


def distinct(texts: Iterable[str]) -> list[str]:
    """Return each text once, in order."""
    return list(dict.fromkeys(texts))


def on_one_line(given: object) -> str:
    """Return a value as a sentence shows it: on one line, which a table of pandas is not, and cut."""
    return " ".join(f"{given!r:.200}".split())[:80]


def is_whole(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which JSON can spell and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def items_of(given: Any, name: str, wanted: str) -> list[Any]:
    """Return the items of a list, generator, array, column or table; an array's become Python's own.

    Args:
        wanted: what to give, for the sentence of an error.

    Raises:
        InputError: it has none, or letters, keys or rows instead of items.
    """
    if getattr(given, "ndim", 1) != 1:
        raise InputError(f"{name} is a {type(given).__name__} of {given.ndim} dimensions; give {wanted}.")
    if not has_items(given):
        raise InputError(f"{name} is {on_one_line(given)}; give {wanted}.")
    convert = getattr(given, "to_pylist", None) or getattr(given, "tolist", None)
    return list(convert() if convert else given)


def has_items(given: Any) -> bool:
    """Tell whether a loop over a value finds items, not letters, keys, or the rows or columns of a table."""
    # A loop can do with __getitem__, unless a class says by None that it has none; without a length, as a LazyFrame of
    # polars, it may take slices only.
    is_sequence = hasattr(given, "__getitem__") and hasattr(given, "__len__") and not hasattr(given, "__iter__")
    iterable = isinstance(given, Iterable) or is_sequence
    one = isinstance(given, (str, bytes, bytearray, Mapping, os.PathLike))
    return iterable and not one and getattr(given, "ndim", 1) == 1


def path_text(given: Any, name: str, wanted: str = "a path") -> str:
    """Return a path, of a str or a path object, as a text; an InputError says if it is something else, or blank."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str) or not path.strip():
        raise InputError(f"{name} is {on_one_line(given)}; give {wanted}.")
    return path


def count_of(given: Any, name: str) -> int:
    """Return a number of things, Python's or numpy's, as Python's; an InputError says if it is not a whole 1 or more.

    numpy's own would wrap around: -np.uint8(1) is 255.
    """
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
        raise InputError(f"{name} is {on_one_line(given)}; give a whole number of 1 or more.")
    return int(given)


def python_value(value: Any) -> Any:
    """Return a number, truth value or array of numpy as Python's own; other values as they are."""
    return value.tolist() if hasattr(value, "tolist") else value


def with_plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with strings instead of path objects, and Python's numbers instead of numpy's."""
    return {name: os.fspath(one) if isinstance(one, os.PathLike) else python_value(one) for name, one in values.items()}
