"""ParlAI's logs: `conversations` (JSON lines with a metadata file), the JSON logs before them, and its text format.

`self_chat`, `interactive --outfile` and `eval_model --world-logs` write the first, or with `--save-format parlai` the
last.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from polyagents.errors import InputError
from polyagents.files.atomic import atomic_write, write_text
from polyagents.files.json_files import read_json
from polyagents.files.own_folder import check_out_file
from polyagents.human_eval.conversations import context_lines, make_conversation
from polyagents.human_eval.records import HUMAN, Conversation, RatedChat

CONTEXT = "context"  # the speaker of a persona or topic
PERSONA = ("your persona:", "partner's persona:")
TEXT_FIELDS = ("text:", "id:")  # what a line of the text format begins with
LABELS_ARE_OF = "model"  # the text format does not say who answered


class Malformed(ValueError):
    """The error for a part of a file that is not a conversation; the message describes the fault."""


Places = tuple[str | None, str | None]
"""The model that speaks first in each exchange and the one that answers; None if no metadata file tells."""


def read_line(entry: Mapping[str, Any], places: Places, source: str) -> Conversation:
    """Read a line of the conversations format; Malformed if it is none."""
    dialog, context = entry["dialog"], entry.get("context") or []
    if not isinstance(dialog, list) or not isinstance(context, list):
        raise Malformed("its dialog or context is not a list")
    said = {str(speaker): str(model) for speaker, model in object_in(entry.get("models"), "models").items()}
    background = context_lines([text_of(act) for act in context])
    return read_exchanges(dialog, places, source, background, said if "models" in entry else None)


def read_exchanges(
    dialog: Sequence[Any],
    places: Places,
    source: str,
    background: Iterable[str] = (),
    models: Mapping[str, str] | None = None,
) -> Conversation:
    """Make a conversation of exchanges; Malformed if a message has no text, or nobody speaks.

    Args:
        dialog: exchanges, each a list of messages, or messages without that level; messages have `text`, and `id` of
            the speaker. Speakers without one take turns.
        models: speaker -> model, if the log says it.
    """
    lines, turns, found = list(background), list[tuple[str, str]](), dict[str, str]()
    for exchange in dialog:
        acts = exchange if isinstance(exchange, list) else [exchange]
        lines += context_lines([text_of(act) for act in acts if is_context(act)])
        for position, act in enumerate(act for act in acts if not is_context(act)):
            text, name = text_of(act), act.get("id")
            is_named = name not in (None, "")
            place = position if isinstance(exchange, list) else len(found) if is_named else len(turns) % 2
            speaker = str(name) if is_named else f"speaker {place + 1}"
            turns.append((speaker, text))
            found.setdefault(speaker, model_name(speaker, places[place] if place < 2 else None))
    # If the log names the models, `write` wrote it, and persona lines are where they belong.
    persona, turns = without_persona(turns) if models is None else ([], turns)
    if not turns:
        raise Malformed("nobody speaks")
    return make_conversation(turns, found if models is None else models, [*lines, *persona], source)


def is_context(act: Any) -> bool:
    """Return whether a message is a persona or topic, which nobody said."""
    return isinstance(act, dict) and act.get("id") == CONTEXT


def text_of(act: Any) -> str:
    """Return the text of a message; Malformed if it has none."""
    if not isinstance(act, dict) or not isinstance(act.get("text"), str):
        raise Malformed("a turn has no text")
    return str(act["text"])


def model_name(speaker: str, known: str | None) -> str:
    """Name the model of a speaker: a person, or what is known, or ParlAI's name of the agent without its number."""
    if "human" in speaker.lower():
        return HUMAN
    return known or re.sub(r"_[12]$", "", speaker)


def object_in(value: Any, name: str) -> dict[Any, Any]:
    """Return a field that is an object; an empty one if the field is missing; Malformed if it is something else."""
    if value is not None and not isinstance(value, dict):
        raise Malformed(f"its {name} are not an object")
    return value or {}


def without_persona(turns: list[tuple[str, str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the persona lines that ParlAI's first message begins with, and the turns without them."""
    if not turns or not turns[0][1].startswith(PERSONA):
        return [], turns
    speaker, text = turns[0]
    lines = text.split("\n")
    persona = [line for line in lines if line.startswith(PERSONA)]
    said = "\n".join(line for line in lines if not line.startswith(PERSONA))
    return persona, [(speaker, said), *turns[1:]] if said else turns[1:]


def places_of(file: str) -> Places:
    """Read the models from the metadata next to a log, by place in an exchange."""
    try:
        found = read_json(metadata_file(file))
        opt, self_chat = dict(found["opt"]), bool(found.get("self_chat"))
    except (OSError, ValueError, KeyError, TypeError):
        return None, None
    model = opt.get("model_file") or opt.get("model")
    if not isinstance(model, str):
        return None, None
    if self_chat:
        return model, str(opt.get("partner_model_file") or model)
    return HUMAN, model  # of `interactive` a person, of `eval_model` the task


def metadata_file(file: str) -> str:
    """Return ParlAI's name for the metadata of a log."""
    return f"{os.path.splitext(file)[0]}.metadata"


def read_text_line(line: str) -> list[dict[str, Any]]:
    """Read the messages of one exchange from a line of the text format; Malformed without a text or labels."""
    fields: dict[str, str] = {}
    if "\t" in line or line.startswith(TEXT_FIELDS):
        # As ParlAI's `str_to_msg` does: the last of several fields of one name counts.
        parts = (part.partition(":") for part in line.split("\t") if ":" in part)
        fields = {name: value for name, _, value in parts}
    if "text" not in fields or "labels" not in fields:
        raise Malformed("it has no text: or no labels: field")
    first_label = fields["labels"].split("|")[0]
    asked = {"id": unescaped_value(fields["id"]) if "id" in fields else None, "text": unescaped_value(fields["text"])}
    return [asked, {"id": LABELS_ARE_OF, "text": unescaped_value(first_label)}]


def unescaped_value(value: str) -> str:
    """Read a value of the text format, in which tabs, line ends and `|` are escaped."""
    return value.replace("\\t", "\t").replace("\\n", "\n").replace("__PIPE__", "|")


def check_out(path: str, inputs: Iterable[str | None]) -> None:
    """Refuse, as `check_out_file` does, a file that is for conversations, or their metadata would replace."""
    check_out_file("--out", path, [".jsonl"], inputs)
    if metadata_file(path) == path:
        raise InputError(f"--out {path} is for the metadata of a file; give a name that ends in .jsonl.")


def write_conversations(
    path: str,
    conversations: Iterable[Conversation],
    opt: Mapping[str, Any] | None = None,
    chats: Iterable[RatedChat] = (),
) -> int:
    """Write the conversations format, with its metadata, each file whole or not at all; return how many.

    ParlAI ignores what we add: `models` in each line, which says who spoke, and `import` reads; and `ratings`, what
    people said of the chats that a conversation came from.
    """
    conversations, ratings = list(conversations), ratings_by_conversation(chats)
    speakers: dict[str, None] = {}
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for conversation in conversations:
            line = as_line(conversation, metadata_file(path))
            if conversation.name in ratings:
                line["ratings"] = ratings[conversation.name]
            speakers |= dict.fromkeys(line["models"])
            file.write(json.dumps(line) + "\n")
    metadata = {
        "date": str(datetime.now(timezone.utc)),
        "opt": dict(opt or {}),
        "self_chat": all(len(one.models) > 1 == len({*one.models.values()}) for one in conversations),
        "speakers": list(speakers),
        "version": "0.1",
    }
    write_text(metadata_file(path), json.dumps(metadata))
    return len(conversations)


def ratings_by_conversation(chats: Iterable[RatedChat]) -> dict[str, list[dict[str, Any]]]:
    """Return who talked, the rating of the whole and of the replies, of each chat, by its conversation."""
    found: dict[str, list[dict[str, Any]]] = {}
    for chat in chats:
        replies = chat.messages[1::2]
        rated: dict[str, Any] = {"annotator": chat.annotator, "rating": chat.rating}
        rated |= {"good_replies": [reply.good for reply in replies], "passed": chat.passed}
        if any(reply.problems for reply in replies):
            rated["problems"] = [list(reply.problems) for reply in replies]
        found.setdefault(chat.conversation, []).append(rated)
    return found


def as_line(conversation: Conversation, metadata: str) -> dict[str, Any]:
    """Make an object of the conversations format: exchanges of two turns each."""
    names = speaker_names(conversation)
    acts = [{"id": names[turn.speaker], "text": turn.text} for turn in conversation.turns]
    return {
        "dialog": [acts[start : start + 2] for start in range(0, len(acts), 2)],
        "context": context_acts(conversation),
        "metadata_path": metadata,
        "models": {names[speaker]: model for speaker, model in conversation.models.items()},
    }


def context_acts(conversation: Conversation) -> list[dict[str, str]]:
    """Return the message of the lines above a conversation, if there are any."""
    return [{"id": CONTEXT, "text": "\n".join(conversation.context)}] if conversation.context else []


def speaker_names(conversation: Conversation) -> dict[str, str]:
    """Return the names that ParlAI's tools look for, by speaker: the model's, with a number if it is not unique."""
    speakers = dict.fromkeys(turn.speaker for turn in conversation.turns)
    names = {speaker: conversation.models.get(speaker, speaker) for speaker in speakers}
    if len(set(names.values())) == len(names) and CONTEXT not in names.values():
        return names
    return {speaker: f"{name}_{place}" for place, (speaker, name) in enumerate(names.items(), 1)}
