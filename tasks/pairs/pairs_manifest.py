"""The manifest of a folder of pairs, and where the pairs of a source are stored."""

import hashlib
import json
import os
from typing import Any

from ..streaming import data_manifest
from .source_files import File

FORMAT = 1  # of the data and of the rules by which they are made
VALID_EXAMPLES = 10_000  # chosen here; the paper does not say how many it held out
CONTEXT_LINES = 1  # of plain text: "the input is one sentence and the label the next sentence" (4.1)
MISSING = (
    "There are no pairs in {folder} (manifest.json: {reason}); make them with polyagents build_pairs --source FILES "
    "--outdir {folder}."
)


def read_manifest(folder: str) -> dict[str, Any]:
    """Read the manifest of finished pairs.

    Raises:
        InputError: there is none, or it is damaged.
    """
    return data_manifest.read_manifest(folder, FORMAT, MISSING)


def stamp(files: list[File]) -> str:
    """Return a key for a source that is too large to be read each time: names, sizes, times of change."""
    found = [(file.name, *_size_and_time(file.path)) for file in files]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _size_and_time(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
