"""The common parts of tasks whose data are larger than memory: `wiki_search` and `pairs`.

source.py (bytes and lines of a file, decompressed) -> runs.py (sorting, shards); order.py (the shuffle) -> teacher.py.
"""
