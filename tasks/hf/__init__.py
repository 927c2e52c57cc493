"""Training data in the shape that sentence-transformers uses: columns of queries, positives and negatives.

`-t polyagents.tasks.hf --hf-dataset F` reads a folder that `datasets.Dataset.save_to_disk` wrote, parquet files, or
files of JSON lines. They are read in place and one block at a time, so their size does not matter.

An example, as JSON line:

    {"query": "where is canada", "positive": "canada is in north america", "negative": "i am here"}
"""

from typing import Any

__all__ = ["DefaultTeacher"]


def __getattr__(name: str) -> Any:
    """Import the teacher when ParlAI asks for it: reading the data needs no ParlAI."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from . import agents

    return getattr(agents, name)
