"""The files of DSTC7 track 1, subtask 1: one JSON list of dialogues, each with the next message and what it may be.

    {"example-id": 7, "messages-so-far": [{"speaker": "participant_1", "utterance": "..."}, ...],
     "options-for-correct-answers": [{"candidate-id": "24C2925B04", "utterance": "..."}],
     "options-for-next": [{"candidate-id": "CF4BCB17E9", "utterance": "..."}, ...]}

A correct answer with the candidate-id NONE says that none of the candidates is right.

The correct answers of the test set are in a file of their own, of tab-separated lines: example-id, candidate-id, text.
"""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import ijson

from polyagents.errors import InputError
from polyagents.files.lines import opened, text_lines, without_mark

T = TypeVar("T")

NO_ANSWER = "NONE"


@dataclass(frozen=True)
class DialogueMessage:
    """A message and its speaker."""

    speaker: str
    text: str


@dataclass(frozen=True)
class DialogueExample:
    """An example.

    Attributes:
        label: the message that comes next; None if none of the candidates is right.
        candidates: the texts among which it is to be found, itself included; none in training.
    """

    context: tuple[DialogueMessage, ...]
    label: str | None
    candidates: list[str]


def read_dialogues(path: str) -> Iterator[tuple[DialogueMessage, ...]]:
    """Yield the training dialogues, with the correct answer as the last message.

    The candidates of the training dialogues are not kept in memory.
    """
    return read_examples(path, lambda example, _: (*messages(example), DialogueMessage("", given_answer(example)[1])))


def read_questions(path: str, answers_path: str | None) -> Iterator[DialogueExample]:
    """Yield the dialogues of valid or test.

    Args:
        answers_path: the file of the answers, for test; None if the dialogues contain them.
    """
    answers = {} if answers_path is None else read_answers(answers_path)

    def read_question(example: dict[str, Any], number: int) -> DialogueExample:
        name = str(example["example-id"])
        if answers_path is not None and name not in answers:
            raise InputError(f"{answers_path} has no answer for example-id {name} of {path}; download both again.")
        options = example["options-for-next"]
        answer_id, answer = given_answer(example) if answers_path is None else answers[name]
        label = None if answer_id == NO_ANSWER else find_label(options, answer_id, answer)
        if label is None and answer_id != NO_ANSWER:
            raise InputError(f"{path}, example-id {name}: the correct answer is not among the candidates.")
        candidates = [utterance_of(option) for option in options]
        random.Random(number).shuffle(candidates)  # ParlAI's order, the same in every run
        return DialogueExample(tuple(messages(example)), label, candidates)

    return read_examples(path, read_question)


def given_answer(example: dict[str, Any]) -> tuple[str | None, str]:
    """Return the candidate-id, if there is one, and the text of the correct answer."""
    answer = example["options-for-correct-answers"][0]
    answer_id = answer.get("candidate-id")
    return answer_id, "" if answer_id == NO_ANSWER else utterance_of(answer)


def find_label(options: list[dict[str, Any]], answer_id: str | None, answer: str) -> str | None:
    """Return the text of the candidate that is the correct answer; None if no candidate is.

    By its id: the text may differ in white space, and ParlAI then adds it as a candidate 101.

    Args:
        answer_id: the candidate-id of the answer; None if it is unknown.
    """
    for option in options:
        if answer_id is not None and option.get("candidate-id") == answer_id:
            return utterance_of(option)
    return answer if any(option["utterance"] == answer for option in options) else None


def messages(example: dict[str, Any]) -> Iterator[DialogueMessage]:
    """Yield what was said so far. The names of the two speakers are shared between messages."""
    for message in example["messages-so-far"]:
        yield DialogueMessage(sys.intern(message["speaker"]), utterance_of(message))


def utterance_of(message: dict[str, Any]) -> str:
    """Return what a message or candidate says; a TypeError says that this is not text."""
    if not isinstance(text := message["utterance"], str):
        raise TypeError(f"an utterance is {text!r:.60}, and no text")
    return text


def read_examples(path: str, read: Callable[[dict[str, Any], int], T]) -> Iterator[T]:
    """Yield the examples of a file, one at a time: the training file is a gigabyte of JSON.

    Raises:
        InputError: the file is missing, cut short, or something else.
    """
    done = 0
    try:
        with opened(path) as file:
            for example in ijson.items(without_mark(file), "item"):
                yield read(example, done)
                done += 1
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); delete its folder and run again.") from error
    except (ijson.JSONError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is damaged after its example {done} (not JSON there); delete its folder and run again."
        ) from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(
            f"{path}, example {done + 1}: not in the format of DSTC7's subtask 1 ({type(error).__name__}: {error})."
        ) from error
    if done == 0:
        raise InputError(f"{path} has no examples; it should be a list of dialogues in JSON.")


def read_answers(path: str) -> dict[str, tuple[str, str]]:
    """Return a table example-id -> (candidate-id, text)."""
    found = {}
    try:
        with opened(path) as file:
            for line in text_lines(file, path):
                name, candidate, text = line.split("\t")[:3]
                found[name] = candidate, text
    except OSError as error:
        raise InputError(
            f"The answers of DSTC7's test set cannot be read ({error.strerror}: {path}); give -dt valid, or delete the "
            f"folder and run again."
        ) from error
    except ValueError as error:  # three columns
        raise InputError(
            f"{path}, after line {len(found)}: not an example's id, its candidate's id and the text, divided by tabs."
        ) from error
    return found
