"""The manifest of a folder of finished data; without it the data are not finished."""

import os
from collections.abc import Iterator
from typing import Any

from polyagents.errors import InputError
from polyagents.files.json_files import fits, read_json

MANIFEST = "manifest.json"
# The fields of the manifest that every streaming task needs, and their types.
FIELDS = {"options": dict[str, Any], "examples": dict[str, int], "shards": list[tuple[str, int]]}


def read_manifest(folder: str, format: int, option: str, missing: str) -> dict[str, Any]:
    """Read the manifest of finished data.

    Args:
        option: an option that only these data have: another task's folder looks the same otherwise.
        missing: the error message if there is none, with {folder} and {reason}.

    Raises:
        InputError: there is none, or it is damaged or another task's, or a file of the data is missing.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        found = read_json(path)
    except OSError as error:
        raise InputError(missing.format(folder=folder, reason=error.strerror)) from error
    except ValueError as error:
        raise damaged(path, "is damaged") from error
    if not isinstance(found, dict) or not all(fits(found.get(name), hint) for name, hint in FIELDS.items()):
        raise damaged(path, "is damaged")
    if option not in found["options"]:
        raise InputError(f"{folder} holds data of another task ({MANIFEST} says which); give another folder.")
    if found["options"].get("format") != format:
        raise InputError(f"{path} is of another version; build the data again, into another folder.")
    if outside := [name for name, _ in found["shards"] if os.path.basename(name) != name]:
        raise damaged(path, f"names {outside[0]}, which is not in its folder")
    names = [*(name for name, _ in found["shards"]), "valid.jsonl", "test.jsonl"]
    if gone := [name for name in names if not os.path.exists(os.path.join(folder, name))]:
        raise damaged(os.path.join(folder, gone[0]), "is missing")
    made: dict[str, Any] = found
    return made


def damaged(path: str, what: str) -> InputError:
    """Make the error for a file of finished data, which a build does not make again; `what` follows its path."""
    return InputError(f"{path} {what}; delete {os.path.dirname(path)} and build again.")


def is_finished(folder: str) -> bool:
    """Return whether a folder holds finished data, of any version."""
    try:
        found = read_json(os.path.join(folder, MANIFEST))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and {"options", "examples", "shards"} <= found.keys()


def files_of(folder: str, made: dict[str, Any], split_name: str) -> Iterator[tuple[str, int]]:
    """Yield the files of a split and the number of examples in each."""
    files = made["shards"] if split_name == "train" else [(f"{split_name}.jsonl", made["examples"][split_name])]
    return ((os.path.join(folder, name), count) for name, count in files)
