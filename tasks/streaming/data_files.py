"""Files of rows, and which of them are train, valid and test."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from polyagents.errors import InputError, NoTestSplit
from polyagents.files.csv_rows import check_names

from .blocks import Block, Columns

# Our splits, and their other names, with which a file's name begins.
NAMES = {"train": ("train",), "valid": ("valid", "validation", "dev", "eval"), "test": ("test",)}

Reader = Callable[[str], tuple[list[Block], list[str]]]
"""The path of a file -> its rows and the names of its columns."""


class EmptySplit(InputError):
    """A split that has no rows."""


@dataclass(frozen=True)
class DataFiles:
    """A file of rows, or a folder of such files.

    Attributes:
        kinds: what may be given, for sentences.
        readers: what reads a file, by the end of its name.
        columns_of: the names of columns, and where they are -> how examples are read.
    """

    kinds: str
    readers: Mapping[str, Reader]
    columns_of: Callable[[Iterable[str], str], Columns]

    def read(self, path: str) -> tuple[list[Block], Columns | None]:
        """Return the rows of a file, and how examples are read; None for a file without rows.

        Raises:
            InputError: it cannot be read.
        """
        reader = self.readers.get(os.path.splitext(path)[1].lower())
        if reader is None:
            raise InputError(f"{path}: its name does not end in {', '.join(self.readers)}; give {self.kinds}.")
        blocks, names = reader(path)
        check_names(names, path)
        return blocks, self.columns_of(names, path) if blocks else None

    def split(self, path: str, split: str) -> tuple[list[Block], Columns | None]:
        """Return the rows of a split; a single file, or files without a split's name, are the training set.

        Raises:
            InputError: there is no such split, or a file cannot be read; NoTestSplit where it is the test set.
        """
        found = self.files_in(path) if os.path.isdir(path) else [path]
        splits = {file: split_of(os.path.basename(file)) for file in found}
        if os.path.isfile(path) or not any(
            splits.values()
        ):  # as on the hub, files without a split's name are for training
            splits = dict.fromkeys(found, "train")
        files = [file for file in found if splits[file] == split]
        if not files:
            raise self.no_such_split(path, split, [os.path.basename(file) for file in found])
        parts = [part for part in map(self.read, files) if part[0]]
        if any(columns != parts[0][1] for _, columns in parts):
            raise InputError(f"The files of {split} in {path} have different columns; give them the same.")
        return [block for blocks, _ in parts for block in blocks], (parts[0][1] if parts else None)

    def files_in(self, folder: str) -> list[str]:
        """Return the data files of a folder, and of `data` in it, where the hub's repositories have theirs."""
        folders = [place for place in (folder, os.path.join(folder, "data")) if os.path.isdir(place)]
        names = [(place, name) for place in folders for name in sorted(os.listdir(place))]
        return [os.path.join(place, name) for place, name in names if os.path.splitext(name)[1].lower() in self.readers]

    def no_such_split(self, path: str, split: str, found: list[str]) -> InputError:
        """Make the error for a missing split."""
        kind = NoTestSplit if split == "test" else InputError
        there = ", ".join(found[:5]) or "no data files"
        return kind(
            f"{path} has no {split} split (there: {there}); its name begins with "
            f"{' or '.join(NAMES[split])}. To evaluate on another task, give -et."
        )


def empty_split(split: str, what: str) -> InputError:
    """Make the error for a split without rows; `what` says so."""
    return (NoTestSplit if split == "test" else EmptySplit)(what)


def split_of(name: str) -> str | None:
    """Return our name for the name of a split or file, such as train-00000-of-00002.parquet; None for others."""
    first = re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]
    return next((split for split, names in NAMES.items() if first in names), None)
