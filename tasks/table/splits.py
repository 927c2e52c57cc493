"""The data that `--table-path` names, and which of its rows are train, valid and test."""

import os
import zlib
from collections.abc import Iterator
from dataclasses import replace

from polyagents.errors import InputError, NoTestSplit

from ..streaming.blocks import Block, Table, of_csv, of_json_lines, of_parquet
from ..streaming.data_files import NAMES, DataFiles, split_of
from .columns import TableColumns

READERS = {".csv": of_csv, ".tsv": of_csv, ".jsonl": of_json_lines, ".json": of_json_lines, ".parquet": of_parquet}
KINDS = "a .csv, .tsv, .jsonl or .parquet file, or a folder with files named train, valid and test"
FILES = DataFiles("--table-path", KINDS, READERS, TableColumns.of)
PARTS = 10  # of a single file, by a checksum of the context: one for valid, one for test, all others for train


def open_split(path: str, split: str) -> Table:
    """Open the examples of a split.

    Args:
        path: a file, of which a tenth of the contexts each is for valid and test; or a folder of files.

    Raises:
        InputError: there is none, its columns are others, or it is empty; NoTestSplit where it is the test set.
    """
    if not os.path.exists(path):
        raise InputError(f"--table-path {path}: there is no such file or folder; give {KINDS}.")
    if not is_divided(path):
        blocks, columns = FILES.split(path, split)
        if not blocks or columns is None:
            raise InputError(f"--table-path {path} has no rows in {split}.")
        return Table(blocks, columns)
    read, columns = FILES.read(path)
    if not read or columns is None:
        raise InputError(f"--table-path {path} has no rows.")
    chosen = list(parts_of(read, split))
    if not chosen:
        kind = NoTestSplit if split == "test" else InputError
        raise kind(
            f"--table-path {path} has too few rows: none of them is in {split}, which gets a tenth of the contexts by "
            f"a checksum. Add rows, or give a folder with files named train, valid and test."
        )
    return Table(chosen, columns)


def is_divided(path: str) -> bool:
    """Whether train, valid and test are made of one file."""
    return os.path.isfile(path)


def splits_of(path: str) -> list[str]:
    """Name the splits that a table has, without reading its rows."""
    if is_divided(path):
        return list(NAMES)
    found = {split_of(os.path.basename(file)) for file in FILES.files_in(path)}
    return [split for split in NAMES if split in found] or ["train"]


def parts_of(blocks: list[Block], split: str) -> Iterator[Block]:
    """Choose the rows of a split from those of a file; a block without any is left out."""
    for block in blocks:
        contexts = (row.get("context") for row in block.rows(["context"]))
        chosen = [place for place, context in enumerate(contexts) if part_of(context) == split]
        if chosen:
            yield replace(block, chosen=chosen)


def part_of(context: object) -> str:
    """Say which split a context belongs to: the same one on every machine, whatever else is in the file."""
    turns = context if isinstance(context, list) else [context]
    checksum = zlib.crc32("\n".join(map(str, turns)).encode("utf-8", "surrogatepass"))
    return {0: "valid", 1: "test"}.get(checksum % PARTS, "train")
