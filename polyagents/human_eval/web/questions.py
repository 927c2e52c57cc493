"""The questions that annotators are asked."""

from dataclasses import dataclass

from polyagents.errors import InputError
from polyagents.human_eval.records import DEFAULT_QUESTION

LONGEST = 300  # characters: it is a heading


@dataclass(frozen=True)
class AnnotationQuestion:
    """A question about two speakers."""

    text: str  # as it is asked, and stored with every answer
    choice: str = "{}"  # the text of the two buttons; {} is the speaker


# ACUTE-Eval's four (Li et al. 2019), in the words of ParlAI's parlai/crowdsourcing/tasks/acute_eval/fast_eval.py.
PRESETS = {
    "engaging": AnnotationQuestion(DEFAULT_QUESTION, "I would prefer to talk to {}"),
    "interesting": AnnotationQuestion(
        "If you had to say one of these speakers is interesting and one is boring, who would you say is more "
        "interesting?",
        "{} is more interesting",
    ),
    "humanlike": AnnotationQuestion("Which speaker sounds more human?", "{} sounds more human"),
    "knowledgeable": AnnotationQuestion(
        "If you had to say that one speaker is more knowledgeable and one is more ignorant, who is more knowledgeable?",
        "{} is more knowledgeable",
    ),
}


def question_of(given: str) -> AnnotationQuestion:
    """Return a preset by its name, or a question in the organiser's own words, which are more than one."""
    text = " ".join(given.split())
    if text in PRESETS:
        return PRESETS[text]
    if " " not in text or len(text) > LONGEST:
        raise InputError(
            f"--question {text[:40]!r} is not a question; give {', '.join(PRESETS)}, or a sentence of up to {LONGEST} "
            f"characters."
        )
    return AnnotationQuestion(text)
