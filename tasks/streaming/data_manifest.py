"""The manifest of a folder of finished data; without it the data are not finished."""

import os
from collections.abc import Iterator
from typing import Any

from polyagents.errors import InputError
from polyagents.files.json_files import fits, read_json

MANIFEST = "manifest.json"
# The fields of the manifest that every streaming task needs, and their types.
FIELDS = {"options": dict[str, Any], "examples": dict[str, int], "shards": list[tuple[str, int]]}


def read_manifest(folder: str, format: int, missing: str) -> dict[str, Any]:
    """Read the manifest of finished data.

    Args:
        missing: the error message if there is none, with {folder} and {reason}.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        found = read_json(path)
    except OSError as error:
        raise InputError(missing.format(folder=folder, reason=error.strerror)) from error
    except ValueError as error:
        raise InputError(f"{path} is damaged; delete {folder} and build again.") from error
    if not isinstance(found, dict) or not all(fits(found.get(name), hint) for name, hint in FIELDS.items()):
        raise InputError(f"{path} is damaged; delete {folder} and build again.")
    if found["options"].get("format") != format:
        raise InputError(f"{path} is of another version; build the data again, into another folder.")
    if outside := [name for name, _ in found["shards"] if os.path.basename(name) != name]:
        raise InputError(f"{path} names {outside[0]}, which is not in its folder; delete {folder} and build again.")
    made: dict[str, Any] = found
    return made


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
