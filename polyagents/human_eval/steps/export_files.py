"""`polyagents human_eval export`: the stored conversations and pairs, for other tools."""

import argparse
import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.arguments import CommandParser, refuse_given
from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.own_folder import check_out_file, own_folder
from polyagents.human_eval.formats import label_studio_project, potato_project
from polyagents.human_eval.formats.acute_eval_format import write_pairings
from polyagents.human_eval.formats.crowd_task import write_crowd_task
from polyagents.human_eval.formats.parlai_format import check_out, write_conversations
from polyagents.human_eval.formats.shown_pairs import shown_pairs
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store
from polyagents.human_eval.web.questions import PRESETS, question_of

if TYPE_CHECKING:
    from polyagents.human_eval.storage.evaluation_store import EvaluationStore

PROJECTS = {"potato": potato_project.write_project, "label_studio": label_studio_project.write_project}
TARGETS = ("acute_eval", "parlai", "crowd_task", *PROJECTS, "payments")


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(
        "polyagents human_eval export",
        "Write ACUTE-Eval's pairings (acute_eval), ParlAI's conversations (parlai), a folder to run ACUTE-Eval "
        "with on a crowd platform, from ParlAI's git tree (crowd_task), a project for another annotation tool (potato, "
        "label_studio), or a table of who did what and was paid (payments), which names people as their platform does.",
    )
    parser.add_argument("--to", help=", ".join(TARGETS))
    parser.add_argument("--out", help="the file to write; for crowd_task, potato and label_studio, the folder")
    parser.add_argument(
        "--question",
        help=f"what potato or label_studio asks: {', '.join(PRESETS)}, or your own sentence; by default engaging",
    )
    add_database_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Write the files and print how much they hold."""
    target, out = opt["to"], opt["out"]
    if target not in TARGETS or not out:
        raise InputError(f"human_eval export needs --to {'|'.join(TARGETS)} and --out.")
    if target not in PROJECTS:
        refuse_given(opt, ["question"], f"is for --to {'|'.join(PROJECTS)}; {target} does not take it.")
    store = existing_store(opt["database"])
    if target in ("acute_eval", "payments"):
        check_out_file("--out", out, [".csv" if target == "payments" else ".jsonl"], [store.name])
    elif target == "parlai":
        check_out(out, [store.name])
    if target == "payments":
        print(json.dumps({"people": write_payments(out, store), "out": out}))
        return
    conversations, pairs = store.conversations(), store.pairs()
    if not conversations:
        raise InputError(f"There is no conversation in {store.name}; import some first, or give another --database.")
    if target == "parlai":
        from polyagents.human_eval.storage.results import rated_chats  # loads SQLAlchemy

        write_conversations(out, conversations.values(), chats=rated_chats(store.database))
        print(json.dumps({"conversations": len(conversations), "out": out}))
        return
    if not pairs:
        raise InputError(f"There are no pairs in {store.name}; make some with polyagents human_eval pairs.")
    if target == "acute_eval":
        write_pairings(out, pairs, conversations)
    elif target == "crowd_task":
        write_crowd_task(out, pairs, conversations)
    else:
        question = question_of(opt["question"] or "engaging").text
        own_folder(out, "human_eval export", "--out")
        PROJECTS[target](out, shown_pairs(pairs, conversations), question)
    print(json.dumps({"pairs": len(pairs), "out": out}))


def write_payments(path: str, store: "EvaluationStore") -> int:
    """Write a table of the people whom platforms sent, as CSV; return how many they are. Nobody is an InputError."""
    from polyagents.human_eval.statistics.csv_files import as_csv, yes  # loads SciPy
    from polyagents.human_eval.storage.people_records import PersonWork, work_of_people  # loads SQLAlchemy

    people = work_of_people(store)
    if not people:
        raise InputError(f"No platform has sent anybody to {store.name}; give another --database.")
    columns = [field.name for field in dataclasses.fields(PersonWork) if field.name != "number"]
    cells = ([getattr(one, name) for name in columns] for one in people)
    rows = [[yes(cell) if isinstance(cell, bool) else cell for cell in row] for row in cells]
    write_text(path, as_csv(columns, rows).decode())
    return len(people)
