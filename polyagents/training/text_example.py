"""A training example in Python, checked: it comes from a user's list, data set or table.

It is a dict such as these::

    {"context": "hi , how are you ?", "label": "a bit tired ."}
    {"context": ["hi", "hello", "any plans ?"], "label": ["i bake .", "to bake bread ."], "candidates": ["no .", "hi"]}

Nothing here needs torch, so that `polyagents check_data` answers at once.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from polyagents.errors import InputError

FIELDS = ("context", "label", "candidates")


class TextExample(NamedTuple):
    """A context with its right answers.

    Attributes:
        context: its turns are separated by line ends.
        labels: at least one; all of them are right.
        candidates: further candidates; None where none were given.
    """

    context: str
    labels: tuple[str, ...]
    candidates: tuple[str, ...] | None


def read_example(given: Any, name: str) -> TextExample:
    """Check an example.

    Args:
        given: a dict with FIELDS, the last of which may be missing; further keys are ignored.
        name: that of the example in messages.

    Returns:
        The example.

    Raises:
        InputError: this is not an example.
    """
    if not isinstance(given, Mapping) or not {"context", "label"} <= given.keys():
        found = f"the keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise InputError(
            f"{name} has {found}; an example is a dict with context, label and, where it has its own, candidates "
            f"(datasets.Dataset.rename_column gives columns these names)."
        )
    context, candidates = given["context"], given.get("candidates")
    turns = [context] if isinstance(context, str) else texts_of(context, f"{name}: context")
    labels = texts_of(given["label"], f"{name}: label")
    if not any(turn.strip() for turn in turns) or not all(label.strip() for label in labels) or not labels:
        raise InputError(f"{name} has an empty context or label; remove such examples.")
    own = None if candidates is None else texts_of(candidates, f"{name}: candidates")
    return TextExample("\n".join(turns), labels, own if own and any(text.strip() for text in own) else None)


def texts_of(value: Any, name: str) -> tuple[str, ...]:
    """Return one text or several as a tuple.

    Args:
        value: a text, or a list of texts.
        name: that of the value in messages.

    Returns:
        The texts.

    Raises:
        InputError: the value is something else.
    """
    is_one = isinstance(value, (str, Mapping)) or not isinstance(value, Iterable)
    texts = (value,) if is_one else tuple(value)
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{name} is {value!r:.80}; give a text, or a list of texts.")
    return texts
