"""A project of Label Studio, and the tasks of its JSON export.

Formats of label-studio 1.23.2.
"""

import html
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from polyagents.files.atomic import write_text
from polyagents.human_eval.blind import SPEAKERS
from polyagents.human_eval.formats.parlai_format import Malformed, object_in
from polyagents.human_eval.formats.shown_pairs import PREFERRED, REASON, WHY, Shown, made_answer, question_name
from polyagents.human_eval.records import ToolAnswer

CONFIG, TASKS = "label_config.xml", "tasks.json"
HALF = '    <View><Header value="{name}"/><HyperText name="{side}" value="${side}"/></View>\n'
INTERFACE = f"""<View>
  <View style="display: grid; grid-template-columns: 1fr 1fr; gap: 1em">
{"".join(HALF.format(side=side, name=name) for side, name in SPEAKERS.items())}  </View>
  <Header value="$question"/>
  <Choices name="{PREFERRED}" toName="left" choice="single" required="true" showInline="true">
{"".join(f'    <Choice value="{name}"/>{chr(10)}' for name in SPEAKERS.values())}  </Choices>
  <TextArea name="{REASON}" toName="left" placeholder="{WHY}" rows="2" maxSubmissions="1"/>
</View>
"""


def write_project(folder: str, shown: Sequence[Shown], question: str) -> None:
    """Write the labelling interface and the tasks of a project."""
    tasks = [
        {"data": {"pair": name, "question": question} | {side: as_html(halves[side]) for side in SPEAKERS}}
        for name, halves in shown
    ]
    write_text(os.path.join(folder, CONFIG), INTERFACE)
    write_text(os.path.join(folder, TASKS), json.dumps(tasks, indent=1) + "\n")


def as_html(lines: Sequence[tuple[str, str]]) -> str:
    """Return one half of a pair."""
    paragraphs = (
        f"<p><b>{html.escape(who)}</b><br>{html.escape(text).replace(chr(10), '<br>')}</p>" for who, text in lines
    )
    return f'<div style="font-family: sans-serif">{"".join(paragraphs)}</div>'


def read_task(task: Mapping[str, Any]) -> list[ToolAnswer]:
    """Read the answers to one task of an export, without skipped ones; Malformed if `write_project` has not made it."""
    data, annotations = object_in(task.get("data"), "data"), task.get("annotations")
    if not isinstance(annotations, list):
        raise Malformed("its annotations are not a list")
    return [
        read_annotation(object_in(one, "annotation"), data)
        for one in annotations
        if not (isinstance(one, dict) and one.get("was_cancelled"))
    ]


def read_annotation(annotation: Mapping[str, Any], data: Mapping[str, Any]) -> ToolAnswer:
    """Read one person's answer to a task."""
    who, result = annotation.get("completed_by"), annotation.get("result")
    if not isinstance(result, list):
        raise Malformed("the result of an annotation is not a list")
    values = {}
    for one in result:
        value = object_in(object_in(one, "result").get("value"), "value")
        given = value.get("choices", value.get("text"))
        values[question_name(one, "from_name")] = given[0] if isinstance(given, list) and given else None
    person = who.get("email") or who.get("id") if isinstance(who, dict) else who
    if not isinstance(person, str | int) or isinstance(person, bool):
        raise Malformed("an annotation does not say who has completed it")
    taken, ended = annotation.get("lead_time"), annotation.get("updated_at") or annotation.get("created_at")
    return made_answer("label_studio", str(person), data.get("pair"), values, data.get("question"), taken, ended)
