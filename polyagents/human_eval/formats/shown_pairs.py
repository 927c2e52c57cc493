"""Pairs for other annotation tools, which show everybody the same side on the left, and the answers that come back."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from polyagents.human_eval.blind import SPEAKERS, half
from polyagents.human_eval.formats.parlai_format import Malformed, object_in
from polyagents.human_eval.records import Conversation, ConversationPair, ToolAnswer
from polyagents.human_eval.storage.views import ShownSide

Shown = tuple[str, Mapping[str, Sequence[tuple[str, str]]]]
"""A pair's name, and what is on its `left` and `right`: (who, text), personas first."""

PREFERRED, REASON = "preferred", "reason"  # what a project asks
WHY = "Why? In a few words, if you like."


def left_of(pair: str) -> int:
    """Return the side of a pair that is on the left, drawn by its name."""
    return hashlib.sha256(pair.encode()).digest()[0] % 2


def shown_pairs(pairs: Iterable[ConversationPair], conversations: Mapping[str, Conversation]) -> list[Shown]:
    """Return what people see: checks before all other pairs, and nothing says which pairs they are."""
    found: list[Shown] = []
    for pair in sorted(pairs, key=lambda pair: pair.right is None):
        halves = {}
        for place, name in enumerate(SPEAKERS):
            side = pair.sides[left_of(pair.name) ^ place]
            shown = half(name, ShownSide(conversations[side.conversation], side.speaker), "")
            given = [
                (f"{speaker} was given" if speaker else "Given before the conversation", line)
                for speaker, lines in shown.contexts.items()
                for line in lines
            ]
            halves[name] = [*given, *((line.name, line.text) for line in shown.lines)]
        found.append((pair.name, halves))
    return found


def made_answer(
    tool: str, person: Any, pair: Any, values: Mapping[Any, Any], question: Any, seconds: Any, ended: Any
) -> ToolAnswer:
    """Check what a tool has kept of an answer, its values by what was asked; Malformed if it cannot be one."""
    preferred, reason = values.get(PREFERRED), values.get(REASON) or ""
    texts = {"annotator": person, "pair": pair, "question": question, "reason": reason}
    if wrong := next((name for name, value in texts.items() if not isinstance(value, str)), None):
        raise Malformed(f"the {wrong} of an answer is not a text")
    speakers = [*SPEAKERS.values()]
    if not (person and pair and question) or preferred not in speakers:
        raise Malformed(f"an answer does not say who prefers which of {' and '.join(speakers)}, in which pair")
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 1e9
    try:
        moment = datetime.fromisoformat(str(ended).replace("Z", "+00:00"))  # which Python 3.10 does not read
        if moment.tzinfo is None:
            raise ValueError
        when = moment.astimezone(timezone.utc).isoformat()
    except (ValueError, OverflowError) as error:
        raise Malformed("an answer does not say when it was given") from error
    left = left_of(pair)
    return ToolAnswer(
        tool, person, pair, left, left ^ speakers.index(str(preferred)), question, reason,
        float(seconds) if known else None, when,
    )  # fmt: skip


def question_name(entry: Any, field: str) -> str:
    """Return the name of what was asked; Malformed if it is not a text."""
    name = object_in(entry, "label").get(field)
    if not isinstance(name, str):
        raise Malformed("a name of what was asked is not a text")
    return name
