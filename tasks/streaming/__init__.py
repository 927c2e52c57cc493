"""The common parts of tasks whose data are larger than memory: `wiki_search` and `pairs`.

source.py (the bytes of a file, decompressed) -> lines.py; writing.py (shards); order.py (the shuffle) -> teacher.py.
"""
