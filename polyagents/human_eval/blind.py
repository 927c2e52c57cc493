"""The part of a conversation that an annotator sees: who said what, and nothing that identifies a model.

The templates print these records, and nothing else of the conversation, which holds models and its source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polyagents.human_eval.storage.views import Assignment, ShownSide

SPEAKERS = {"left": "Speaker A", "right": "Speaker B"}
PERSONA = "your persona: "  # ParlAI's prefix of a persona line


@dataclass(frozen=True)
class ShownMessage:
    """One message as it is shown; whether it is of the speaker that is asked about."""

    name: str
    judged: bool
    text: str


@dataclass(frozen=True)
class Half:
    """One side of the page."""

    side: str
    name: str  # of the judged speaker
    choice: str  # the text of the button that prefers it
    contexts: Mapping[str, Sequence[str]]  # neutral name of a speaker, "" for nobody's -> lines above the conversation
    lines: Sequence[ShownMessage]


def halves(assignment: Assignment, choice: str) -> list[Half]:
    """Make the left and the right half of a page."""
    shown = {"left": assignment.left, "right": assignment.right}
    return [half(side, shown[side], choice) for side in SPEAKERS]


def half(side: str, shown: ShownSide, choice: str) -> Half:
    """Make one half of a page."""
    judged, names = SPEAKERS[side], neutral_names(shown, SPEAKERS[side])
    said = shown.conversation.turns
    lines = [ShownMessage(names[turn.speaker], turn.speaker == shown.speaker, turn.text) for turn in said]
    contexts = speaker_contexts(shown.conversation.context, names, judged)
    return Half(side, judged, choice.replace("{}", judged), contexts, lines)


def neutral_names(shown: ShownSide, judged: str) -> dict[str, str]:
    """Name the speakers: the judged one gets the given name, and the others are partners."""
    others = dict.fromkeys(turn.speaker for turn in shown.conversation.turns if turn.speaker != shown.speaker)
    names = {speaker: f"Partner {place}" if len(others) > 1 else "Partner" for place, speaker in enumerate(others, 1)}
    return names | {shown.speaker: judged}


def speaker_contexts(context: Sequence[str], names: Mapping[str, str], judged: str) -> dict[str, list[str]]:
    """Return the lines that each speaker was given, the judged one first, if the context says whose a line is."""
    found: dict[str, list[str]] = {}
    for line in context:
        speaker, _, text = line.partition(": ")
        name = names.get(speaker, "")
        found.setdefault(name, []).append(text.removeprefix(PERSONA) if name else line)
    return {name: found[name] for name in sorted(found, key=lambda name: name != judged)}
