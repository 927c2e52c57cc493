"""JSON that others may have written: read completely and with the expected types, or refused."""

import dataclasses
import functools
import json
import math
import os
import types
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from polyagents.files.lines import opened
from polyagents.files.python_arguments import is_whole

LARGEST = 256 * 2**20  # bytes of a file. Chosen here: the largest vocabularies take 20 million

TOO_DEEP = "it is nested too deeply"

Fields = TypeVar("Fields")


def json_number(value: float) -> float | None:
    """Return a number as JSON has it: None, which is null there, for an infinity or not-a-number; 0.0 for -0.0."""
    return value + 0.0 if math.isfinite(value) else None


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text; a ValueError says if it is not JSON, has a key twice, or is nested too deeply for Python."""
    try:
        return json.loads(text, object_pairs_hook=with_different_keys)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:  # once more, to name the number; a function for each one would slow down every file
        return json.loads(text, object_pairs_hook=with_different_keys, parse_int=whole_number)


def whole_number(digits: str) -> int:
    """Read a number; a ValueError says if it has more digits than Python reads."""
    try:
        return int(digits)
    except ValueError as error:
        raise ValueError(f"it has a number of {len(digits):,} digits") from error


def json_fault(error: ValueError) -> str:
    """Return, in brackets, what is wrong with a text that is JSON; nothing if it is none."""
    return "" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else f" ({error})"


def with_different_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's pairs as a dict; a ValueError names a key that would replace an earlier one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"it has {twice!r:.60} twice")
    return found


def check_whole(found: Any) -> None:
    """Refuse, with a ValueError, half a surrogate pair in any text of a JSON value: no page or file could have it."""
    if not is_whole(json.dumps(found, ensure_ascii=False)):
        raise ValueError("it has half a character, a lone surrogate")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; an OSError says if it cannot be read, a ValueError if it is not JSON, or too deep or large."""
    with opened(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST:,} bytes")
    return parse_json(content)


def read_fields(path: str | os.PathLike[str], kind: type[Fields]) -> Fields:
    """Read a JSON file as a dataclass or named tuple; raises as `read_json` and `fields_of_json` do."""
    return fields_of_json(read_json(path), kind)


def fields_of_json(found: Any, kind: type[Fields]) -> Fields:
    """Build a dataclass or named tuple from JSON: every field is there, or has a default, and is of its type.

    Raises:
        ValueError: a field is missing, unknown, or of another type.
    """
    if not isinstance(found, Mapping):
        raise ValueError("it holds no fields")
    own = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    names = {field.name for field in own} or {*getattr(kind, "_fields", ())}  # a named tuple's
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name in names}
    if unknown := found.keys() - hints.keys():
        raise ValueError(f"it has an unknown field, {min(unknown)}")
    for name, value in found.items():
        if not fits(value, hints[name]):
            raise ValueError(f"its field {name} is of another type")
    try:
        return kind(**found)
    except TypeError as error:
        raise ValueError("a field is missing") from error


@functools.cache
def parts_of_type(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the origin and the arguments of a type, which typing takes long to find."""
    return get_origin(hint), get_args(hint)


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a JSON value is of a type that `get_type_hints` returned, down to its last item.

    Plain types, None, unions, lists, tuples and dicts are known; any other hint matches nothing.
    """
    origin, inner = parts_of_type(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(fits(item, inner[0]) for item in value)
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(inner) and all(map(fits, value, inner))
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, inner[1]) for item in value.values())
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else False
