"""A project of Potato, the annotation tool (Pei et al. 2022, arXiv 2212.08620), and the answers in it.

Format of potato-annotation 2.12.1, which writes `annotation_output/USER/user_state.json`.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import yaml

from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.json_files import read_json
from polyagents.files.lines import opened
from polyagents.human_eval.blind import SPEAKERS
from polyagents.human_eval.formats.parlai_format import Malformed, object_in
from polyagents.human_eval.formats.shown_pairs import PREFERRED, REASON, WHY, Shown, made_answer, question_name
from polyagents.human_eval.records import ToolAnswer

CONFIG, PAIRS, OUTPUT = "config.yaml", "pairs.jsonl", "annotation_output"
LARGEST = 2**20  # bytes of the settings


def write_project(folder: str, shown: Sequence[Shown], question: str) -> None:
    """Write a project that `potato start FOLDER/config.yaml` opens; answers in it stay.

    Answers to another question are an InputError: they would be taken for answers to this one.
    """
    if states(folder) and (before := asked_in(folder)) != question:
        raise InputError(f"{folder} has answers to {before!r:.80}; give another --out for another --question.")
    rows = (
        {"id": name} | {side: [{"speaker": who, "text": text} for who, text in halves[side]] for side in SPEAKERS}
        for name, halves in shown
    )
    write_text(os.path.join(folder, PAIRS), "".join(f"{json.dumps(row)}\n" for row in rows))
    settings = {
        "annotation_task_name": "Two conversations",
        "task_dir": ".",
        "data_files": [PAIRS],
        "output_annotation_dir": OUTPUT,
        "item_properties": {"id_key": "id", "text_key": "id"},
        "assignment_strategy": "fixed_order",  # checks first
        "require_password": False,
        "user_config": {"allow_all_users": True},
        "jumping_to_id_disabled": True,
        "instance_display": {
            "layout": {"direction": "horizontal", "gap": "20px"},
            "fields": [
                {"key": side, "type": "dialogue", "label": name, "display_options": {"speaker_extraction": False}}
                for side, name in SPEAKERS.items()
            ],
        },
        "annotation_schemes": [
            {
                "annotation_type": "radio",
                "name": PREFERRED,
                "description": question,
                "labels": list(SPEAKERS.values()),
                "label_requirement": {"required": True},
            },
            {"annotation_type": "text", "name": REASON, "description": WHY, "textarea": {"on": True, "rows": 2}},
        ],
    }
    write_text(os.path.join(folder, CONFIG), yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def answers_by_file(folder: str) -> Iterator[tuple[str, Callable[[], list[ToolAnswer]]]]:
    """Yield each annotator's file of a project, and what reads its answers; another folder is an InputError."""
    asked = asked_in(folder)
    for state in states(folder):
        yield state, functools.partial(read_answers, os.path.join(folder, state), asked)


def asked_in(folder: str) -> str:
    """Return the question of a project; an InputError says if the folder is none, or does not say it."""
    try:
        with opened(os.path.join(folder, CONFIG)) as file:
            settings = yaml.safe_load(file.read(LARGEST))
        return str({one["name"]: one["description"] for one in settings["annotation_schemes"]}[PREFERRED])
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or f"{CONFIG} does not say what was asked"
        raise InputError(
            f"{folder} is not a folder of human_eval export --to potato ({why}); give files of conversations, or the "
            f"folder that was exported."
        ) from error


def states(folder: str) -> list[str]:
    """Return the annotators' files of a project, by their paths in it."""
    output = os.path.join(folder, OUTPUT)
    people = sorted(os.listdir(output)) if os.path.isdir(output) else []
    found = (os.path.join(OUTPUT, person, "user_state.json") for person in people)
    return [state for state in found if os.path.exists(os.path.join(folder, state))]


def read_answers(path: str, question: str) -> list[ToolAnswer]:
    """Read the answers of one annotator; a pair that only has a reason was not answered.

    What is not JSON, or not what Potato writes, is a ValueError.
    """
    try:
        state = object_in(read_json(path), "user_state")
    except OSError as error:
        raise Malformed(f"it cannot be read ({error.strerror})") from error
    labels, times = (
        object_in(state.get(f"instance_id_to_{name}"), name) for name in ("label_to_value", "behavioral_data")
    )
    found = []
    for pair, chosen in labels.items():
        if not isinstance(chosen, list) or not all(isinstance(one, list) and len(one) == 2 for one in chosen):
            raise Malformed("its labels are not pairs of a label and a value")
        values = {question_name(scheme, "schema"): value for scheme, value in chosen}
        spent = object_in(times.get(pair), "behavioral_data")
        if PREFERRED in values:
            ended = moment_of(spent.get("session_end") or spent.get("session_start"))
            found.append(made_answer("potato", state.get("user_id"), pair, values, question, seconds_of(spent), ended))
    return found


def seconds_of(spent: Mapping[str, Any]) -> float | None:
    """Return the time that an item took; None if its page was left without Next, so that nobody has measured it."""
    took = spent.get("total_time_ms")
    if not isinstance(took, int | float) or not spent.get("session_end"):
        return None
    return took / 1000 if abs(took) < 1e12 else None  # Python cannot divide every whole number that JSON has


def moment_of(seconds: Any) -> str:
    """Return a time since 1970 as ISO 8601; "" for what cannot be one."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
