"""The manifest of a folder of finished data."""

from typing import Any

from ..streaming import data_manifest

POOL = "pool.txt"
FORMAT = 1  # of the data and of the rules by which they are made


def read_manifest(folder: str) -> dict[str, Any]:
    """Read the manifest of finished data.

    Raises:
        InputError: there is none, or it is damaged.
    """
    missing = (
        "There are no data for Wikipedia search in {folder} (manifest.json: {reason}); make them with polyagents "
        "build_wiki_search --source DUMP --outdir {folder}, or give --wiki-search-path."
    )
    return data_manifest.read_manifest(folder, FORMAT, missing)
