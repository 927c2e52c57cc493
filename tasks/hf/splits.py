"""The data that `--hf-dataset` names, and which of its files are train, valid and test."""

import os
import re

from polyagents.errors import InputError, NoTestSplit, first_line

from .blocks import Block, Table, of_json_lines, of_parquet, of_saved
from .columns import Columns

# Our splits, and their other names, with which a file's name begins.
NAMES = {"train": ("train",), "valid": ("valid", "validation", "dev", "eval"), "test": ("test",)}
READERS = {".parquet": of_parquet, ".jsonl": of_json_lines, ".json": of_json_lines}
KINDS = "a folder that datasets' save_to_disk wrote, .parquet or .jsonl files, or a folder of such files"


def open_split(path: str, split: str) -> Table:
    """Open the examples of a split.

    Args:
        path: what `--hf-dataset` names.
        split: train, valid or test.

    Raises:
        InputError: there is none, its columns are others, or it is empty; NoTestSplit where it is the test set.
    """
    if not os.path.exists(path):
        raise InputError(f"--hf-dataset {path}: there is no such file or folder; give {KINDS}.")
    if is_saved(path):
        blocks, columns = saved(path, split)
    else:
        blocks, columns = from_files(path, split)
    if not blocks:
        raise InputError(f"--hf-dataset {path} has no rows in {split}.")
    return Table(blocks, columns)


def is_saved(path: str) -> bool:
    """Return whether `save_to_disk` wrote a folder."""
    return any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_dict.json", "state.json"))


def saved(folder: str, split: str) -> tuple[list[Block], Columns]:
    """Return the blocks and columns of a split that `save_to_disk` wrote, as one data set or several by name.

    Args:
        folder: the folder.
        split: train, valid or test.
    """
    import datasets

    try:
        found = datasets.load_from_disk(folder)
    except Exception as error:  # datasets and pyarrow raise a dozen kinds, by version
        raise InputError(f"--hf-dataset {folder} cannot be read by datasets ({first_line(error)}).") from error
    if isinstance(found, datasets.Dataset):
        found = {"train": found}
    name = next((name for name in found if split_of(name) == split), None)
    if name is None:
        raise no_such_split(folder, split, list(found))
    blocks, names = of_saved(found[name], f"{folder} ({name})")
    return blocks, Columns.of(names, f"{folder} ({name})")


def from_files(path: str, split: str) -> tuple[list[Block], Columns]:
    """Return the blocks and columns of a split of plain files; files without a split's name are the training set.

    Args:
        path: a file or a folder.
        split: train, valid or test.
    """
    found = files_in(path) if os.path.isdir(path) else [path]
    splits = {file: split_of(os.path.basename(file)) for file in found}
    if os.path.isfile(path) or not any(splits.values()):  # as on the hub, files without a split's name are for training
        splits = dict.fromkeys(found, "train")
    files = [file for file in found if splits[file] == split]
    if not files:
        raise no_such_split(path, split, [os.path.basename(file) for file in found])
    blocks: list[Block] = []
    all_columns = []
    for file in files:
        reader = READERS.get(os.path.splitext(file)[1])
        if reader is None:
            raise InputError(f"--hf-dataset {file}: its name does not end in {', '.join(READERS)}; give {KINDS}.")
        some, names = reader(file)
        if some:
            blocks += some
            all_columns.append(Columns.of(names, file))
    if len(set(all_columns)) > 1:
        raise InputError(f"The files of {split} in {path} have different columns; give them the same.")
    return blocks, (all_columns[0] if all_columns else Columns("", "", ()))


def files_in(folder: str) -> list[str]:
    """Return the data files of a folder, and of `data` in it, where the hub's repositories have theirs."""
    folders = [place for place in (folder, os.path.join(folder, "data")) if os.path.isdir(place)]
    names = [(place, name) for place in folders for name in sorted(os.listdir(place))]
    return [os.path.join(place, name) for place, name in names if os.path.splitext(name)[1] in READERS]


def split_of(name: str) -> str | None:
    """Return our name for the name of a split or file, such as train-00000-of-00002.parquet; None for others."""
    first = re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]
    return next((split for split, names in NAMES.items() if first in names), None)


def no_such_split(path: str, split: str, found: list[str]) -> InputError:
    """Make the error for a missing split.

    Args:
        path: what was given.
        split: the split that is missing.
        found: the splits that exist.
    """
    kind = NoTestSplit if split == "test" else InputError
    there = ", ".join(found[:5]) or "no data files"
    return kind(
        f"--hf-dataset {path} has no {split} split (there: {there}); its name begins with {' or '.join(NAMES[split])}. "
        f"To evaluate on another task, give -et."
    )
