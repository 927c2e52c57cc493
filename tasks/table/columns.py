"""The columns of a table of examples."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polyagents.errors import InputError
from polyagents.files.json_files import parse_json
from polyagents.training.text_example import FIELDS, read_example

# What others call our columns, for a sentence that says what to rename.
OTHER_NAMES = {
    "context": ("contexts", "query", "question", "message", "input", "prompt", "text", "anchor", "dialogue", "history"),
    "label": ("labels", "response", "reply", "answer", "output", "target", "positive", "completion"),
}


@dataclass(frozen=True)
class TableColumns:
    """The columns that are read; further ones are ignored."""

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
        """Read a row: its `context`, `labels`, and `candidates`, None if it has none.

        Raises:
            InputError: a cell holds something else than texts, or the context or the label is empty.
        """
        given = {name: row.get(name) for name in self.names}
        if isinstance(own := given.get("candidates"), str):
            given["candidates"] = listed(own, where)
        example = read_example(given, where)
        if any("\0" in text for text in (example.context, *example.labels, *(example.candidates or ()))):
            raise InputError(f"{where} has a NUL character; remove it, or save the file as UTF-8 if it is in UTF-16.")
        if not all(candidate.strip() for candidate in example.candidates or ()):
            raise InputError(f"{where} has an empty candidate; remove it from the list.")
        context = example.context.replace("\r\n", "\n").replace("\r", "\n")  # of a cell that a spreadsheet wrote
        return example._replace(context=context)._asdict()


def listed(cell: str, where: str) -> list[Any] | None:
    """Read a list that was written into a text, as CSV needs it; None for an empty cell.

    Raises:
        InputError: it is no JSON list.
    """
    if not cell.strip():
        return None
    try:
        found = parse_json(cell)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise InputError(f'{where}: candidates is {cell!r:.60}; write a JSON list, such as ["yes .", "no ."].')
    return found
