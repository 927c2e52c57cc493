"""The data that `--hf-dataset` names, and which of its files are train, valid and test."""

import os

from polyagents.errors import InputError, first_line

from ..streaming.blocks import Block, Table, of_json_lines, of_parquet, of_saved
from ..streaming.data_files import DataFiles, split_of
from .columns import Columns

READERS = {".parquet": of_parquet, ".jsonl": of_json_lines, ".json": of_json_lines}
KINDS = "a folder that datasets' save_to_disk wrote, .parquet or .jsonl files, or a folder of such files"
FILES = DataFiles("--hf-dataset", KINDS, READERS, Columns.of)


def open_split(path: str, split: str) -> Table:
    """Open the examples of a split.

    Raises:
        InputError: there is none, its columns are others, or it is empty; NoTestSplit where it is the test set.
    """
    if not os.path.exists(path):
        raise InputError(f"--hf-dataset {path}: there is no such file or folder; give {KINDS}.")
    blocks, columns = saved(path, split) if is_saved(path) else FILES.split(path, split)
    if not blocks or columns is None:
        raise InputError(f"--hf-dataset {path} has no rows in {split}.")
    return Table(blocks, columns)


def is_saved(path: str) -> bool:
    """Return whether `save_to_disk` wrote a folder."""
    return any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_dict.json", "state.json"))


def saved(folder: str, split: str) -> tuple[list[Block], Columns]:
    """Return the blocks and columns of a split that `save_to_disk` wrote, as one data set or several by name."""
    import datasets

    try:
        found = datasets.load_from_disk(folder)
    except Exception as error:  # datasets and pyarrow raise a dozen kinds, by version
        raise InputError(f"--hf-dataset {folder} cannot be read by datasets ({first_line(error)}).") from error
    if isinstance(found, datasets.Dataset):
        found = {"train": found}
    name = next((name for name in found if split_of(name) == split), None)
    if name is None:
        raise FILES.no_such_split(folder, split, list(found))
    blocks, names = of_saved(found[name], f"{folder} ({name})")
    return blocks, Columns.of(names, f"{folder} ({name})")
