"""A table of the people whom platforms sent: who did what, when, and was paid for it."""

import dataclasses

from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.human_eval.statistics.csv_files import as_csv, yes
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.people_records import PersonWork, work_of_people


def write_payments(path: str, store: EvaluationStore) -> int:
    """Write the table as CSV; return how many people there are.

    Raises:
        InputError: there is nobody.
    """
    people = work_of_people(store)
    if not people:
        raise InputError(f"No platform has sent anybody to {store.name}; give another --database.")
    columns = [field.name for field in dataclasses.fields(PersonWork) if field.name != "number"]
    cells = ([getattr(one, name) for name in columns] for one in people)
    rows = [[yes(cell) if isinstance(cell, bool) else cell for cell in row] for row in cells]
    write_text(path, as_csv(columns, rows).decode())
    return len(people)
