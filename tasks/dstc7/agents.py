"""DSTC7 track 1 as a ParlAI teacher."""

import os
from array import array
from collections.abc import Iterable
from typing import Any

from parlai.core.opt import Opt
from parlai.tasks.dstc7.build import build

from polyagents.tasks.counts import check_count

from ..one_message import Examples, OneMessageTeacher
from .dialogues import DialogueExample, DialogueMessage, read_dialogues, read_questions

SAMPLE = os.path.join(os.path.dirname(__file__), "sample")
NAMES = {"train": "train", "valid": "dev", "test": "test"}  # of the splits in the files' names


class DefaultTeacher(OneMessageTeacher):
    """Every message of a training dialogue is a target; there are 100 candidates in valid and test.

    In training there are none: the agents use those of the batch, or random labels (paper 5.1).
    """

    def folder(self, opt: Opt) -> str:
        """Return the folder of ParlAI's teacher, which downloads the files if necessary."""
        build(opt)
        return os.path.join(opt["datapath"], "dstc7")

    def check(self, split: str, found: int, path: str) -> None:
        """Compare the number of dialogues with the paper's."""
        check_count(self.opt, "DSTC7", split, found, "dialogues", path)

    def read(self, opt: Opt, split: str) -> Examples:
        """OneMessageTeacher: read all examples of a split."""
        folder = self.folder(opt)
        path = os.path.join(folder, f"ubuntu_{NAMES[split]}_subtask_1.json")
        if split == "train":
            targets = Targets(read_dialogues(path))
            self.check(split, len(targets.dialogues), path)
            return targets
        answers = os.path.join(folder, "ubuntu_responses_subtask_1.tsv") if split == "test" else None
        questions = list(read_questions(path, answers))
        self.check(split, len(questions), path)
        return questions

    def fields(self, example: DialogueExample) -> dict[str, Any]:
        """OneMessageTeacher: return an example in ParlAI's wording."""
        fields: dict[str, Any] = {"text": as_parlai_writes(example.context), "labels": [example.label]}
        if example.candidates:
            fields["label_candidates"] = list(example.candidates)
        return fields


class Sample(DefaultTeacher):
    """Made-up dialogues in the same files, without a download."""

    def folder(self, opt: Opt) -> str:
        """Return the folder beside this file."""
        return SAMPLE

    def check(self, split: str, found: int, path: str) -> None:
        """Do nothing: nobody published scores on the sample."""


class Targets:
    """Every message of each dialogue except the first, with the messages before it as context.

    Contexts are composed when they are requested: all of them would take many times the dialogues' memory. An empty
    message is no target; ParlAI's pull request 1850 counted thousands among the official candidates.
    """

    def __init__(self, dialogues: Iterable[tuple[DialogueMessage, ...]]):
        self.dialogues = list(dialogues)
        self.places = array("i"), array("i")  # of the targets: dialogue, message
        for number, dialogue in enumerate(self.dialogues):
            for place, message in enumerate(dialogue):
                if place and message.text:
                    self.places[0].append(number)
                    self.places[1].append(place)

    def __len__(self) -> int:
        return len(self.places[0])

    def __getitem__(self, index: int) -> DialogueExample:
        dialogue, place = self.dialogues[self.places[0][index]], self.places[1][index]
        return DialogueExample(dialogue[:place], dialogue[place].text, [])


def as_parlai_writes(context: Iterable[DialogueMessage]) -> str:
    """Return a context in the wording of ParlAI's teacher, with the speakers and a line end after each message.

    The paper's models have read contexts in this form.
    """
    return "".join(f"{message.speaker.replace('_', ' ')}: {message.text}\n" for message in context)
