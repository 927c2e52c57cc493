"""How conversations are prepared for the store: cleaned, with neutral speaker names, and named by their content."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polyagents.human_eval.records import Conversation, ConversationPair, Side, Utterance

NAME = 16  # hexadecimal digits of a name: 64 bits, of which a million conversations share none
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # UTF-8 or PostgreSQL cannot store them


def make_conversation(
    turns: Iterable[tuple[str, str]], models: Mapping[str, str], context: Iterable[str] = (), source: str = ""
) -> Conversation:
    """Make a conversation in the form in which all of them are stored; `models` may lack a speaker.

    Speakers are renamed to speaker_1, speaker_2, ... in the order in which they first speak: their names in a log tell
    the model. The same turns of the same models with the same context have the same name, whatever file they are in.
    """
    turns = list(turns)
    blind = {speaker: speaker_name(place) for place, speaker in enumerate(dict.fromkeys(who for who, _ in turns))}
    spoken = tuple(Utterance(blind[speaker], clean(text)) for speaker, text in turns)
    known = {blind[speaker]: clean(models[speaker]) for speaker in blind if models.get(speaker)}
    lines = tuple(clean(line) for text in context for line in text.split("\n") if line.strip())
    content = [[[turn.speaker, turn.text] for turn in spoken], sorted(known.items()), lines]
    return Conversation(name_of(content), spoken, known, lines, clean(source))


def context_lines(texts: Sequence[str]) -> list[str]:
    """Return the lines shown above a conversation, of what each speaker was given.

    Where two speakers know different things, each line names its speaker.
    """
    if len(texts) != 2 or texts[0] == texts[1]:
        return list(dict.fromkeys(texts))
    return [f"speaker_{place}: {line}" for place, text in enumerate(texts, 1) for line in text.split("\n") if line]


def speaker_name(place: int) -> str:
    """Name the speaker who is the first (0), second (1), ... to speak."""
    return f"speaker_{place + 1}"


def make_pair(first: Side, second: Side, right: int | None = None) -> ConversationPair:
    """Make a pair; the same two sides always have the same name."""
    sides = [[side.conversation, side.speaker] for side in (first, second)]
    return ConversationPair(name_of([sides, right]), (first, second), right)


def model_of(side: Side, conversations: Mapping[str, Conversation]) -> str:
    """Return the model that is judged on a side."""
    return conversations[side.conversation].models[side.speaker]


def sides_of(conversation: Conversation) -> dict[str, Side]:
    """Return the sides of a conversation that can be judged: model -> side.

    If a model talks with itself, its second speaker is judged: the first may have begun with a given opening.
    """
    speakers = dict.fromkeys(turn.speaker for turn in conversation.turns)
    return {conversation.models[who]: Side(conversation.name, who) for who in speakers if who in conversation.models}


def clean(text: str) -> str:
    """Replace characters that no database can store or page can show (NULs, lone surrogates) by U+FFFD."""
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def name_of(content: Sequence[Any]) -> str:
    """Name content by its hash."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:NAME]
