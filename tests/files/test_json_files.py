"""JSON that others may have written is read whole and of the types that are expected, or refused with a ValueError."""

from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from polyagents.files import json_files
from polyagents.files.json_files import TOO_DEEP, fields_of_json, fits, parse_json, read_fields, read_json


@dataclass(frozen=True)
class Made:
    name: str
    counts: list[tuple[str, int]]
    share: float = 0.5
    source: str | None = None
    more: dict[str, int] = field(default_factory=dict)


class Place(NamedTuple):
    file: int
    offset: int


GOOD = {"name": "a", "counts": [["b", 1]], "share": 1, "source": None, "more": {"c": 2}}


def test_fields_of_their_types_make_the_class():
    assert fields_of_json(GOOD, Made) == Made("a", [["b", 1]], 1, None, {"c": 2})
    assert fields_of_json({"name": "a", "counts": []}, Made) == Made("a", [])
    assert fields_of_json({"file": 1, "offset": 2}, Place) == Place(1, 2)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (GOOD | {"name": 7}, "its field name is of another type"),
        (GOOD | {"name": None}, "its field name"),
        (GOOD | {"counts": [["b"]]}, "its field counts"),
        (GOOD | {"counts": [["b", "1"]]}, "its field counts"),
        (GOOD | {"counts": [["b", True]]}, "its field counts"),
        (GOOD | {"counts": {"b": 1}}, "its field counts"),
        (GOOD | {"share": "half"}, "its field share"),
        (GOOD | {"share": True}, "its field share"),
        (GOOD | {"source": 1}, "its field source"),
        (GOOD | {"more": {"c": 1.5}}, "its field more"),
        (GOOD | {"other": 1}, "it has an unknown field, other"),
        ({"name": "a"}, "a field is missing"),
        ([1], "it holds no fields"),
        (None, "it holds no fields"),
    ],
)
def test_other_fields_and_types_are_refused(found, said):
    with pytest.raises(ValueError, match=said):
        fields_of_json(found, Made)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, int, True),
        (1.0, int, False),
        (True, int, False),
        (True, bool, True),
        (1, float, True),
        ([1, "a"], list[int | str], True),
        ([1, None], list[int | str], False),
        ((1, 2), tuple[int, int], False),  # what JSON never gives
        ({"a": [1]}, dict[str, list[int]], True),
        ({"a": object()}, Any, True),
    ],
)
def test_what_fits_a_type(value, hint, expected):
    assert fits(value, hint) is expected


def test_what_is_nested_too_deeply_is_no_json():
    for text in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000):
        with pytest.raises(ValueError, match=TOO_DEEP):
            parse_json(text)


def test_a_number_that_python_does_not_read_is_refused():
    assert parse_json("[1, -2, 3.5]") == [1, -2, 3.5]
    with pytest.raises(ValueError, match="it has a number of 5,000 digits"):
        parse_json('{"a": [1, %s]}' % ("1" * 5_000))


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 3}', '[{"b": {"a": 1, "a": 1}}]'])
def test_a_key_that_would_replace_another_is_refused(text):
    with pytest.raises(ValueError, match="it has 'a' twice"):
        parse_json(text)
    assert parse_json('{"a": {"a": [{"a": 1}, {"a": 2}]}}') == {"a": {"a": [{"a": 1}, {"a": 2}]}}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"\x00", b"1" * 5_000, b"\xef\xbb\xbf{}"])
def test_what_is_no_json(content, tmp_path):
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(ValueError):
        read_fields(tmp_path / "file.json", Made)


def test_a_file_that_is_too_large_is_not_parsed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(json_files, "opened", lambda path: nullcontext(SimpleNamespace(read=range)))  # a file without end
        with pytest.raises(ValueError, match="larger than 268,435,456 bytes"):
            read_json("endless.json")
    monkeypatch.setattr(json_files, "LARGEST", 100)
    (tmp_path / "file.json").write_text("7".ljust(101))
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        read_json(tmp_path / "file.json")
    (tmp_path / "file.json").write_text("7".ljust(100))
    assert read_json(tmp_path / "file.json") == 7
