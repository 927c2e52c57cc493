"""A request for decisions and its response in the shape of TypeSafe's System One API, as its clients use it."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from polyagents.decisions.named_options import NamedOptions, named_options
from polyagents.decisions.score_map import ScoreMap
from polyagents.errors import InputError
from polyagents.serving.limits import CANDIDATE_CHARACTERS, CANDIDATES, CONTEXT_CHARACTERS, QUESTIONS
from polyagents.serving.messages import A_CONTEXT, GivenModel, Request, Text
from polyagents.serving.problems import Unanswerable

Content = Text | dict[str, Any] | list[Any]
A_TEXT = "a text, an object, or a list"
OWN = "@"  # before the name of the server's own candidates


def message_text(content: Any) -> str:
    """Return JSON as the model reads it: an object as lines of names and values, a list as lines, messages as turns."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        if isinstance(said := content.get("content"), str) and "role" in content:
            return said
        return "\n".join(f"{name}: {message_text(value)}" for name, value in content.items())
    if isinstance(content, Sequence):
        return "\n".join(map(message_text, content))
    return json.dumps(content)


def short_state(state: Any) -> Any:
    """Refuse a state that is blank, too long, or not made of characters."""
    text = message_text(state)
    text.encode("utf-8")  # a UnicodeEncodeError is a ValueError
    if not text.strip() or len(text) > CONTEXT_CHARACTERS:
        raise ValueError("blank or too long")
    return state


class Choice(Request):
    """A question with named choices."""

    type: Literal["choice"]
    criteria: Annotated[dict[Text, Content | None], Field(min_length=1, max_length=CANDIDATES)]
    instructions: Content | None = None

    def options(self) -> dict[str, Any]:
        """Return the texts of each choice: its description, a list for several, or else its name."""
        return {name: option_values(name, given) for name, given in self.criteria.items()}

    def answer(self, probabilities: Mapping[str, float], none: float) -> dict[str, Any]:
        """Choose, by the probabilities of the options and of none of them."""
        choice = max(sorted(probabilities), key=lambda name: probabilities[name])
        return {
            "choice": choice,
            "confidence": probabilities[choice],
            "probabilities": probabilities,
            "none_probability": none,
        }


class Criteria(Request):
    """Texts of a yes and of a no."""

    true: Content | None = None
    false: Content | None = None


class Noul(Request):
    """A question with yes or no as answer."""

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: Criteria | None = None

    def options(self) -> dict[str, Any]:
        """Return the texts of yes and no; without them, the statement itself as yes."""
        given = self.criteria or Criteria()
        texts = {"true": given.true, "false": given.false}
        found = {name: option_values(name, text) for name, text in texts.items() if text is not None}
        if not found and self.instructions is not None:
            found = {"true": message_text(self.instructions)}
        if not found:
            raise Unanswerable("A noul question needs criteria with texts of true and false, or instructions.")
        return found

    def answer(self, probabilities: Mapping[str, float], none: float) -> dict[str, Any]:
        """Return the probability of yes; "none of these" counts as the other one if only one has a text."""
        if len(probabilities) == 2:
            return {"noul": probabilities["true"] / max(sum(probabilities.values()), 1e-300)}
        return {"noul": probabilities.get("true", none)}


class Score(Request):
    """A question about a level, from 0."""

    type: Literal["score"]
    criteria: Annotated[list[Content], Field(min_length=1, max_length=CANDIDATES)]
    instructions: Content | None = None

    def options(self) -> dict[str, Any]:
        """Return the text of each level."""
        return {str(level): message_text(given) for level, given in enumerate(self.criteria)}

    def answer(self, probabilities: Mapping[str, float], none: float) -> dict[str, Any]:
        """Return the expected level, given the probabilities of a text that has one."""
        total = max(sum(probabilities.values()), 1e-300)
        levels = {level: probability / total for level, probability in probabilities.items()}
        return {
            "score": sum(int(level) * probability for level, probability in levels.items()),
            "confidence": max(levels.values()),
            "legend": {str(level): given for level, given in enumerate(self.criteria)},
            "probabilities": levels,
            "none_probability": none,
        }


Question = Annotated[Choice | Noul | Score, Field(discriminator="type")]


class SystemOneRequest(Request):
    """Decide: a state, and named questions with their options."""

    state: Annotated[
        Content,
        AfterValidator(short_state),
        Field(
            description=f"what /rank calls a context: {A_CONTEXT}; of an object the names and values are lines",
            examples=["my card has not come yet"],
        ),
    ]
    questions: Annotated[
        dict[Text, Question],
        Field(
            min_length=1,
            max_length=QUESTIONS,
            description=f"an object of 1 to {QUESTIONS} questions, each an object with type and criteria. choice: an "
            f"object of 1 to {CANDIDATES:,} names, each with a text, a list of texts, or null for the name itself; "
            f"noul: an object with texts of true and false; score: a list of texts, lowest first. Texts have at most "
            f"{CANDIDATE_CHARACTERS:,} characters. instructions is {A_TEXT} that the model does not read, unless a "
            f"noul question has nothing else",
            examples=[{"intent": {"type": "choice", "criteria": {"card": "where is my card", "other": None}}}],
        ),
    ]
    model: GivenModel = None


class Usage(BaseModel):
    """How many tokens the model has read; it writes none."""

    input_tokens: int
    output_tokens: int = 0


class SystemOneResponse(BaseModel):
    """The answers, by the names of their questions."""

    model: Annotated[str, Field(description="the name of the model that answered")]
    answers: Annotated[
        dict[str, dict[str, Any]],
        Field(
            description="an object for each question. choice: choice, confidence, probabilities; noul: noul, the "
            "probability of yes; score: the expected score, confidence, legend, probabilities. Each has type, and "
            "calibrated: false if the model has no calibration, so that its numbers are not probabilities"
        ),
    ]
    usage: Annotated[Usage, Field(description="how many tokens the model has read: input_tokens")]


class ModelMetadata(BaseModel):
    """The model of the server."""

    name: str
    description: str
    release_date: str


class Models(BaseModel):
    """The models of the server, one."""

    models: list[ModelMetadata]


def option_values(name: str, given: Any) -> Any:
    """Return the text of an option, or the list of its texts."""
    if given is None:
        return name
    return list(map(message_text, given)) if isinstance(given, list) else message_text(given)


def own_set(question: Any) -> str | None:
    """Return the name of the server's own candidates if a choice is among these, written @NAME; else None."""
    if isinstance(question, Choice) and len(question.criteria) == 1:
        ((name, text),) = question.criteria.items()
        if name.startswith(OWN) and text is None:
            return name.removeprefix(OWN)
    return None


def options_of_question(name: str, question: Any) -> NamedOptions:
    """Read the options of a question; an Unanswerable says if one is blank or too long, or two are equal."""
    try:
        found = named_options(question.options())
    except Unanswerable:
        raise
    except InputError as error:
        raise Unanswerable(f"The question {name[:40]!r}: {error}") from error
    if max(map(len, found.texts)) > CANDIDATE_CHARACTERS or len(found.texts) > CANDIDATES:
        raise Unanswerable(
            f"The question {name[:40]!r} has an option of more than {CANDIDATE_CHARACTERS:,} characters, or more than "
            f"{CANDIDATES:,} texts; shorten it."
        )
    return found


def answer_of(question: Any, probabilities: Mapping[str, float], none: float, used: ScoreMap, calibrated: bool) -> Any:
    """Return the answer to a question; Unanswerable if one text alone needs "none of these", which was not learnt."""
    if isinstance(question, Noul) and len(probabilities) == 1 and used.none_bias is None:
        raise Unanswerable(
            "A noul question with a text of one side only needs a calibration that has learnt 'none of these'; give "
            "texts of true and false."
        )
    return {"type": question.type, **question.answer(probabilities, none), "calibrated": calibrated}
