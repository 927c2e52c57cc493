"""Checks training examples in Python, which come from a user's list, data set or table.

It is a dict such as these::

    {"context": "hi , how are you ?", "label": "a bit tired ."}
    {"context": ["hi", "hello", "any plans ?"], "label": ["i bake .", "to bake bread ."], "candidates": ["no .", "hi"]}

Nothing here needs torch, so that `polyagents check_data` answers at once.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from polyagents.errors import InputError
from polyagents.files.json_files import parse_json
from polyagents.files.python_arguments import has_items, texts_of

FIELDS = ("context", "label", "candidates")


class TextExample(NamedTuple):
    """A context, its turns separated by line ends, with its right answers; candidates, or None."""

    context: str
    labels: tuple[str, ...]
    candidates: tuple[str, ...] | None


def check_examples(given: Any, name: str) -> Iterable[Any]:
    """Return examples that are read one by one, or by their place; an InputError says if they cannot be."""
    # Loops over a table of polars or pyarrow find its columns.
    is_table = (hasattr(given, "to_dicts") or hasattr(given, "to_pylist")) and hasattr(given, "columns")
    if is_table or not has_items(given):
        raise InputError(
            f"{name} is {type(given).__name__}; give a list of dicts with context and label, such as the to_dict"
            f"('records') of a pandas.DataFrame, the to_dicts() of polars or the to_pylist() of pyarrow, or a "
            f"datasets.Dataset (its load_dataset reads files)."
        )
    return given.tolist() if hasattr(given, "iloc") else given  # a Series of pandas is read by its labels


def listed(text: str) -> list[Any] | None:
    """Return the list that a text spells in JSON, as a row of CSV does; None if it spells none."""
    try:
        found = parse_json(text)
    except ValueError:
        return None
    return found if isinstance(found, list) else None


def read_example(given: Any, name: str, needs_label: bool = True) -> TextExample:
    """Check an example, a dict with FIELDS, the last of which may be missing; other keys are ignored.

    Candidates may be a list in JSON, as in a row of `csv.DictReader`.

    Args:
        name: of the example, in a message.
        needs_label: if not, a label that is None, blank or an empty list says that no candidate is right.

    Raises:
        InputError: this is not an example.
    """
    if not isinstance(given, Mapping) or not {"context", "label"} <= given.keys():
        found = f"the keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise InputError(
            f"{name} has {found}; an example is a dict with context, label and, if it has its own, candidates "
            f"(datasets.Dataset.rename_column gives columns these names)."
        )
    context, candidates = given["context"], given.get("candidates")
    turns = texts_of(context, f"{name}: context", one=True)
    label = "" if given["label"] is None and not needs_label else given["label"]
    labels = texts_of(label, f"{name}: label", one=True)
    if not needs_label and not any(label.strip() for label in labels):
        labels = []
    is_labelled = bool(labels) or not needs_label
    if not is_labelled or not all(label.strip() for label in labels) or not any(turn.strip() for turn in turns):
        raise InputError(f"{name} has an empty context or label; remove such examples.")
    if isinstance(candidates, str) and (spelt := listed(candidates)) is not None:
        candidates = spelt
    own = () if candidates is None else tuple(texts_of(candidates, f"{name}: candidates", one=True))
    return TextExample("\n".join(turns), tuple(labels), own if any(text.strip() for text in own) else None)
