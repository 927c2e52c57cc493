"""ACUTE-Eval's pairings: JSON lines, each with two dialogues and which speaker of each is judged."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from polyagents.files.atomic import write_text
from polyagents.human_eval.conversations import (
    clean,
    context_lines,
    make_conversation,
    make_pair,
    model_of,
    speaker_name,
)
from polyagents.human_eval.formats.parlai_format import Malformed, context_acts, object_in, text_of
from polyagents.human_eval.records import HUMAN, Conversation, ConversationPair, Side

OTHER = "other_speaker"  # ParlAI's name for who is not judged


def read_pairing(entry: Mapping[str, Any], source: str) -> tuple[list[Conversation], ConversationPair]:
    """Read a line: its two conversations, and the pair of them; Malformed if it is not a pairing."""
    judged: Any = entry.get("speakers_to_eval")
    dialogues = entry["dialogue_dicts"]
    if not is_two(judged, str) or not all(judged) or clean(judged[0]) == clean(judged[1]):
        raise Malformed("its speakers_to_eval are not two different names")
    if not is_two(dialogues, dict):
        raise Malformed("its dialogue_dicts are not two dialogues")
    (first, one), (second, other) = (read_dialogue(*pair, source) for pair in zip(dialogues, judged, strict=True))
    right = None
    if entry.get("is_onboarding"):
        if entry.get("correct_answer") not in judged:
            raise Malformed("its correct_answer is not one of its speakers_to_eval")
        right = judged.index(entry["correct_answer"])
    return [first, second], make_pair(one, other, right)


def is_two(value: Any, kind: type) -> bool:
    """Return whether a value is a list of two of a kind."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(item, kind) for item in value)


def read_dialogue(dialogue: Mapping[str, Any], judged: str, source: str) -> tuple[Conversation, Side]:
    """Read one of the two dialogues, and its speaker who is judged, whose name is the model's."""
    acts, context = dialogue.get("dialogue"), dialogue.get("context") or []
    if not isinstance(acts, list) or not isinstance(context, list):
        raise Malformed("a dialogue or its context is not a list")
    turns = [(str(act.get("id")), text) for act, text in ((act, text_of(act)) for act in acts)]
    speakers = list(dict.fromkeys(speaker for speaker, _ in turns))
    if judged not in speakers:
        raise Malformed(f"{judged} is to be judged but does not speak")
    models = {speaker: HUMAN for speaker in speakers if "human" in speaker.lower()}
    models |= {str(speaker): str(model) for speaker, model in object_in(dialogue.get("models"), "models").items()}
    models[judged] = judged
    background = context_lines([text_of(act) for act in context])
    conversation = make_conversation(turns, models, background, source)
    return conversation, Side(conversation.name, speaker_name(speakers.index(judged)))


def as_pairing(pair: ConversationPair, conversations: Mapping[str, Conversation]) -> dict[str, Any]:
    """Make an object of the format. Its `models` tell who else spoke; ParlAI ignores them, `import` reads them."""
    models = [model_of(side, conversations) for side in pair.sides]
    entry: dict[str, Any] = {
        "is_onboarding": pair.right is not None,
        "speakers_to_eval": models,
        "dialogue_ids": [side.conversation for side in pair.sides],
        "dialogue_dicts": [as_dialogue(side, conversations[side.conversation]) for side in pair.sides],
    }
    return entry if pair.right is None else entry | {"correct_answer": models[pair.right]}


def as_dialogue(side: Side, conversation: Conversation) -> dict[str, Any]:
    """Make a dialogue whose judged speaker has the model's name; ParlAI allows no other speaker that name."""
    others = sorted({turn.speaker for turn in conversation.turns} - {side.speaker})
    names = {speaker: f"{OTHER}_{place}" if place else OTHER for place, speaker in enumerate(others)}
    names[side.speaker] = conversation.models[side.speaker]
    return {
        "speakers": [names[side.speaker], *(names[speaker] for speaker in others)],
        "dialogue": [{"id": names[turn.speaker], "text": turn.text} for turn in conversation.turns],
        "context": context_acts(conversation),
        "models": {names[speaker]: model for speaker, model in conversation.models.items()},
    }


def write_pairings(path: str, pairs: Iterable[ConversationPair], conversations: Mapping[str, Conversation]) -> int:
    """Write pairings atomically, checks first; return how many."""
    entries = [as_pairing(pair, conversations) for pair in sorted(pairs, key=lambda pair: pair.right is None)]
    write_text(path, "".join(f"{json.dumps(entry)}\n" for entry in entries))
    return len(entries)
