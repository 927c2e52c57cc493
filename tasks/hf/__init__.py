"""Training data in the shape that sentence-transformers uses: columns of queries, positives and negatives.

`-t polyagents.tasks.hf --hf-dataset F` reads a folder that `datasets.Dataset.save_to_disk` wrote, parquet files, or
files of JSON lines. They are read in place and one block at a time, so their size does not matter.

An example, as JSON line:

    {"query": "where is canada", "positive": "canada is in north america", "negative": "i am here"}
"""

from polyagents.tasks import teachers_of

__all__ = ["DefaultTeacher"]
__getattr__ = teachers_of(__name__, __all__)
