"""CSV files that pandas reads back exactly and a spreadsheet does not run."""

import csv
import io
from collections.abc import Iterable, Sequence

from polyagents.evaluation.intervals import Estimate

# A cell that starts with one of these is a formula to Excel or LibreOffice: the list of OWASP's page on CSV injection,
# with the full-width signs that Japanese and Chinese versions take for the same. And the mark itself, see as_cell().
STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")

Cell = str | int | float | None


def as_cell(value: Cell) -> Cell:
    """Put a `'` in front of a text that a spreadsheet would run, and of one that starts with a `'` already.

    So taking one leading `'` away gives every text back exactly:

        table = pandas.read_csv(path, dtype=str, keep_default_na=False)
        table = table.apply(lambda column: column.str.removeprefix("'"))

    Numbers are left as they are, negative ones too: they are ours, and no formulas.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(STARTS_A_FORMULA) else value


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> bytes:
    """Write a table in UTF-8: texts in quotes, numbers in full precision, what is not known empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([as_cell(value) for value in row] for row in rows)
    return text.getvalue().encode("utf-8", errors="replace")  # half a character pair, as bad JSON may hold, is not text


def with_ends(name: str) -> tuple[str, str, str]:
    """Name the columns of an estimate."""
    return name, f"{name}_low", f"{name}_high"


def ends(estimate: Estimate | None) -> list[Cell]:
    """Return the cells of an estimate; what is not known is empty."""
    return [None] * 3 if estimate is None else [None if part != part else part for part in estimate]
