"""The data that `--table-path` names, and which of its rows are train, valid and test."""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from polyagents.errors import InputError
from polyagents.training_loop.text_example import FIELDS, listed, read_example

from ..streaming.blocks import Block, Table, of_csv, of_json_lines, of_parquet
from ..streaming.data_files import NAMES, DataFiles, empty_split, split_of

# What others call our columns, for a sentence that says what to rename.
OTHER_NAMES = {
    "context": ("contexts", "query", "question", "message", "input", "prompt", "text", "anchor", "dialogue", "history"),
    "label": ("labels", "response", "reply", "answer", "output", "target", "positive", "completion"),
}


@dataclass(frozen=True)
class TableColumns:
    """The columns that are read; others are ignored."""

    names: tuple[str, ...] = FIELDS

    @classmethod
    def of(cls, names: Iterable[str], where: str) -> "TableColumns":
        """Find the columns.

        Raises:
            InputError: context or label is missing; the sentence says what may be meant.
        """
        there = list(names)
        for wanted, others in OTHER_NAMES.items():
            if wanted not in there:
                known = {name.strip().lower(): name for name in there}
                meant = next((known[other] for other in (wanted, *others) if other in known), None)
                hint = f"did you mean {meant!r}? Rename it to {wanted}" if meant else f"name one of them {wanted}"
                listed = ", ".join(map(repr, there[:12])) or "no columns"
                raise InputError(f"{where} has {listed}, and needs context and label; {hint}.")
        return cls()  # a JSON line may have candidates where the first one has none

    def example(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Read a row: its `context`, `labels`, empty if no candidate is right, and `candidates`, None if it has none.

        Raises:
            InputError: a cell holds something else than texts, or the context is empty.
        """
        given = {name: row.get(name) for name in self.names}
        if isinstance(own := given.get("candidates"), str):
            given["candidates"] = listed(own)
            if given["candidates"] is None and own.strip():
                raise InputError(f'{where}: candidates is {own!r:.60}; write a JSON list, such as ["yes .", "no ."].')
        example = read_example(given, where, needs_label=False)
        if any("\0" in text for text in (example.context, *example.labels, *(example.candidates or ()))):
            raise InputError(f"{where} has a NUL character; remove it, or save the file as UTF-8 if it is in UTF-16.")
        if not all(candidate.strip() for candidate in example.candidates or ()):
            raise InputError(f"{where} has an empty candidate; remove it from the list.")
        return example._replace(context=with_line_feeds(example.context))._asdict()


def with_line_feeds(text: str) -> str:
    """Replace the line ends of a cell that a spreadsheet wrote."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


READERS = {".csv": of_csv, ".tsv": of_csv, ".jsonl": of_json_lines, ".json": of_json_lines, ".parquet": of_parquet}
KINDS = "a .csv, .tsv, .jsonl or .parquet file, or a folder with files named train, valid and test"
FILES = DataFiles(KINDS, READERS, TableColumns.of)
PARTS = 10  # of a single file, by a checksum of the context: one for valid, one for test, all others for train


def open_split(path: str, split: str) -> Table:
    """Open the examples of a split.

    Args:
        path: a file, of which a tenth of the contexts each is for valid and test; or a folder of files.

    Raises:
        InputError: there is none, its columns are others, or it is empty; NoTestSplit where it is the test set.
    """
    if not os.path.exists(path):
        raise InputError(f"{path}: there is no such file or folder; give {KINDS}.")
    if not is_divided(path):
        blocks, columns = FILES.split(path, split)
        if not blocks or columns is None:
            raise empty_split(split, f"{path} has no rows in {split}.")
        return Table(blocks, columns)
    read, columns = FILES.read(path)
    if not read or columns is None:
        raise InputError(f"{path} has no rows.")
    chosen = list(parts_of(read, split))
    if not chosen:
        raise empty_split(
            split,
            f"{path} has too few rows: a checksum of the context puts a tenth each into valid and test, and none is "
            f"in {split}. Add rows, or give a folder with files named train, valid and test.",
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
    """Choose a split's rows of a file; a block without any is left out."""
    for block in blocks:
        contexts = (row.get("context") for row in block.rows(["context"]))
        chosen = [place for place, context in enumerate(contexts) if part_of(context) == split]
        if chosen:
            yield replace(block, chosen=chosen)


def part_of(context: object) -> str:
    """Say which split a context belongs to: the same one on every machine, whatever else is in the file."""
    turns = context if isinstance(context, list) else [context]
    checksum = zlib.crc32(with_line_feeds("\n".join(map(str, turns))).encode("utf-8", "surrogatepass"))
    return {0: "valid", 1: "test"}.get(checksum % PARTS, "train")
