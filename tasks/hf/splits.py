"""The data that `--hf-dataset` names, and which of its files are train, valid and test."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polyagents.errors import InputError, first_line
from polyagents.files.python_arguments import texts_of

from ..streaming.blocks import Block, Table, of_json_lines, of_parquet, of_saved
from ..streaming.data_files import DataFiles, empty_split, split_of

# The names in sentence-transformers' data sets, the most usual one first.
CONTEXTS = ("query", "anchor", "question")
LABELS = ("positive", "answer")
JUDGEMENTS = ("label", "labels", "score", "scores")
NEGATIVE = re.compile(r"negatives?(_\d+)?")


@dataclass(frozen=True)
class DatasetColumns:
    """The columns of a data set that are read; all others are ignored.

    Attributes:
        label: holds a right reply, or a list of them.
        negatives: each holds a wrong reply, or a list of them, or nothing.
    """

    context: str
    label: str
    negatives: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str], where: str) -> "DatasetColumns":
        """Find the columns by their names.

        Raises:
            InputError: one is missing, and the sentence says which there are; or pairs are judged one by one.
        """
        there = sorted(names)
        if judged := [name for name in there if name in JUDGEMENTS]:
            raise InputError(
                f"{where} has the column {judged[0]}, which says how right a pair is, and this task takes right pairs "
                f"and wrong replies by name; keep the right ones and remove the column."
            )
        context = next((name for name in CONTEXTS if name in there), None)
        label = next((name for name in LABELS if name in there), None)
        if context is None or label is None:
            lacks, possible = ("text to reply to", CONTEXTS) if context is None else ("right reply", LABELS)
            raise InputError(
                f"{where} has the columns {', '.join(there)}, and none of them is the {lacks}; rename one to "
                f"{' or '.join(possible)} (wrong replies: negative, negatives, negative_1 and so on)."
            )
        return cls(context, label, tuple(name for name in there if NEGATIVE.fullmatch(name)))

    @property
    def names(self) -> list[str]:
        """Return all of the columns."""
        return [self.context, self.label, *self.negatives]

    def example(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Read a row: `text`, `labels`, and `negatives`, which are different from the labels.

        Raises:
            InputError: a column holds something else than texts, or no text where there must be one.
        """
        (context, *more), labels = self.texts(row, self.context, where) or [""], self.texts(row, self.label, where)
        if more:
            raise InputError(
                f"{where} has {1 + len(more)} texts in the column {self.context}; join the turns of a dialogue to one "
                f"text, with a line end between them."
            )
        if not context or not labels:
            column = self.label if context else self.context
            raise InputError(f"{where} has no text in the column {column}; remove such rows.")
        negatives = [text for name in self.negatives for text in self.texts(row, name, where)]
        return {"text": context, "labels": labels, "negatives": [text for text in negatives if text not in labels]}

    @staticmethod
    def texts(row: Mapping[str, Any], column: str, where: str) -> list[str]:
        """Return the texts of a cell: one, a list of them, or none; empty texts are dropped.

        Raises:
            InputError: it holds something else.
        """
        value = row.get(column)
        given = (
            [text for text in value if text is not None] if isinstance(value, list) else "" if value is None else value
        )
        return [text for text in texts_of(given, f"{where}: {column}", one=True) if text.strip()]


READERS = {".parquet": of_parquet, ".jsonl": of_json_lines, ".json": of_json_lines}
KINDS = "a folder that datasets' save_to_disk wrote, .parquet or .jsonl files, or a folder of such files"
FILES = DataFiles(KINDS, READERS, DatasetColumns.of)


def open_split(path: str, split: str) -> Table:
    """Open the examples of a split.

    Raises:
        InputError: there is none, its columns are others, or it is empty; NoTestSplit where it is the test set.
    """
    if not os.path.exists(path):
        raise InputError(f"--hf-dataset {path}: there is no such file or folder; give {KINDS}.")
    is_saved = any(os.path.isfile(os.path.join(path, name)) for name in ("dataset_dict.json", "state.json"))
    blocks, columns = saved(path, split) if is_saved else FILES.split(path, split)
    if not blocks or columns is None:
        raise empty_split(split, f"--hf-dataset {path} has no rows in {split}.")
    return Table(blocks, columns)


def saved(folder: str, split: str) -> tuple[list[Block], DatasetColumns]:
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
    return blocks, DatasetColumns.of(names, f"{folder} ({name})")
