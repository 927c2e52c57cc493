"""Filters by declared fields: parsed and checked once, where they come in, and then a condition for every field.

A filter is JSON: `{"tenant": "a", "language": ["de", "en"], "year": {"gte": 2020, "lt": 2024}}`. A field must equal a
value, equal one of a list, or be within the bounds of an object (gt, gte, lt, lte); all conditions must hold. A
candidate without a value meets no condition on it. Texts are ordered by their UTF-8 bytes.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from polyagents.errors import InputError
from polyagents.files.hashing import utf8
from polyagents.files.python_arguments import is_whole, python_value, texts_of

Value = str | int | float | bool
Fields = Mapping[str, str]
"""Name -> kind of each declared field, one of KINDS."""

KINDS = {"text": "a text", "int": "a whole number", "float": "a number", "bool": "true or false"}
BOUNDS = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")  # what Milvus and PostgreSQL both take as part of a column's name
RESERVED = ("id", "text")
LONGEST = 1_024  # bytes of an id, and of a text in a field: PostgreSQL indexes up to 2,704
LARGEST = 2**63 - 1  # of whole numbers, which have 64 bits, and -2**63 is not a value (columns.py)


class FilterError(InputError):
    """A filter names an unknown field, or a value of another kind than the field's."""


class Condition(NamedTuple):
    """What a filter demands of one field.

    Attributes:
        one_of: values, one of which it must have; None if it has bounds.
        bounds: pairs of an operator (>=, >, <= or <) and a value.
    """

    field: str
    kind: str
    one_of: tuple[Value, ...] | None
    bounds: tuple[tuple[str, Value], ...] = ()


Filter = tuple[Condition, ...]
"""Conditions that must all hold; at least one."""


def declared_fields(given: str | Iterable[str] | None) -> dict[str, str]:
    """Parse declarations such as `tenant` (a text) or `year:int`, in a list or between commas; None or "" for none.

    Raises:
        InputError: a name or a kind is impossible, or a field is declared twice.
    """
    fields: dict[str, str] = {}
    if given is None or isinstance(given, str):
        given = given.split(",") if given else []
    for one in texts_of(given, "fields"):
        name, _, kind = one.strip().partition(":")
        if not NAME.fullmatch(name) or name in RESERVED:
            raise InputError(
                f"Field {name[:60]!r}: give a name of letters, digits and underscores other than id and text, such as "
                f"tenant or year:int."
            )
        if (kind or "text") not in KINDS:
            raise InputError(f"Field {name}:{kind[:60]}: the kinds are {', '.join(KINDS)}.")
        if name in fields:
            raise InputError(f"Field {name} is declared twice; declare it once.")
        fields[name] = kind or "text"
    return fields


def parse_filter(given: Any, fields: Fields | None) -> Filter | None:
    """Check a filter, None or {} for none, against the declared fields, None for plain lines.

    A FilterError says what is wrong.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise FilterError(f'The filter is {given!r:.60}; give an object such as {{"tenant": "a"}}.')
    return None if not given else tuple(condition_of(name, wanted, fields) for name, wanted in given.items())


def condition_of(name: Any, wanted: Any, fields: Fields | None) -> Condition:
    """Check what a filter demands of one field."""
    if not fields:
        raise FilterError(
            f"The filter names {name!r:.60}, and these candidates have no fields; build an index of a file of JSON "
            f"lines, CSV or Parquet, and declare them (--fields)."
        )
    if name not in fields:
        known = ", ".join(f"{one} ({kind})" for one, kind in fields.items())
        raise FilterError(f"The filter names {name!r:.60}, which is not a field; the fields are {known}.")
    kind, wanted = fields[name], python_value(wanted)
    if isinstance(wanted, Mapping):
        if not wanted or wanted.keys() - BOUNDS.keys() or kind == "bool":
            raise FilterError(
                f"The filter's {name} is an object; give bounds of a text or number among {', '.join(BOUNDS)}, such as "
                f'{{"gte": 1, "lt": 9}}.'
            )
        found = ((BOUNDS[bound], filter_value(name, value, kind)) for bound, value in wanted.items())
        return Condition(name, kind, None, tuple(found))
    values = wanted if isinstance(wanted, (list, tuple, set, frozenset)) else [wanted]
    return Condition(name, kind, tuple(dict.fromkeys(filter_value(name, value, kind) for value in values)))


def filter_value(name: str, value: Any, kind: str) -> Value:
    """Check a value of a filter."""
    found = value_of(value, kind)
    if found is None:
        raise FilterError(f"The filter's {name} is {value!r:.60}; give {KINDS[kind]}{limits_of_kind(kind)}.")
    return found


def value_of(value: Any, kind: str) -> Value | None:
    """Return a value as its field keeps it; None if it is of another kind, or too large."""
    value = python_value(value)
    if kind == "text":
        return value if isinstance(value, str) and is_short_text(value) else None
    if isinstance(value, bool) or kind == "bool":
        return value if isinstance(value, bool) and kind == "bool" else None
    if not isinstance(value, (int, float)) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if kind == "float":
        return float(value) + 0.0 if abs(value) <= 1e308 else None  # -0.0 becomes 0.0: Milvus compares their bits
    return int(value) if value == int(value) and abs(value) <= LARGEST else None  # 1.0 and 1 are the same in JSON


def is_short_text(value: str) -> bool:
    """Tell whether every engine keeps a text unchanged, in a column and its index."""
    return is_whole(value) and len(value.encode()) <= LONGEST and "\0" not in value


def limits_of_kind(kind: str) -> str:
    """Return what `value_of` demands beyond the kind, for a sentence."""
    if kind == "text":
        return f" of at most {LONGEST:,} bytes of UTF-8, without a zero byte"
    return " of 64 bits" if kind == "int" else ""


def sort_key(text: Value) -> bytes:
    """Return what texts are ordered by."""
    return utf8(str(text))
