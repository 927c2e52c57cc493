"""DSTC7 track 1 (Ubuntu, subtask 1): which of 100 messages comes next? In training, each message is a target.

`-t polyagents.tasks.dstc7`, from the files that ParlAI downloads. An example:

    participant 1: hello, how do i mount a second disk ?
    participant 2: is it formatted already ?
    participant 1: yes, as ext3
        -> then add a line for it to /etc/fstab

`-t polyagents.tasks.dstc7:sample` is a few made-up dialogues in the same format, without a download.
"""

import os
from array import array
from collections.abc import Iterable
from typing import Any

from parlai.core.opt import Opt
from parlai.tasks.dstc7.build import build

from polyagents.tasks.counts import warn_of_count

from ..one_message import Examples, OneMessageTeacher
from .dialogues import DialogueExample, DialogueMessage, read_dialogues, read_questions

NAMES = {"train": "train", "valid": "dev", "test": "test"}  # of the splits in the files' names


class DefaultTeacher(OneMessageTeacher):
    """Every message of a training dialogue is a target; there are 100 candidates in valid and test.

    In training there are none: the agents use the batch's labels, or random ones (paper 5.1).
    """

    sample: str | None = None  # a folder of made-up files, without a download

    def read(self, opt: Opt, split: str) -> Examples:
        """OneMessageTeacher: read all examples of a split."""
        if self.sample is None:
            build(opt)  # ParlAI's, which downloads the files if necessary
        folder = self.sample or os.path.join(opt["datapath"], "dstc7")
        path = os.path.join(folder, f"ubuntu_{NAMES[split]}_subtask_1.json")
        if split == "train":
            found: Targets | list[DialogueExample] = Targets(read_dialogues(path))
        else:
            answers = os.path.join(folder, "ubuntu_responses_subtask_1.tsv") if split == "test" else None
            found = list(read_questions(path, answers))
        if self.sample is None:
            dialogues = found.dialogues if isinstance(found, Targets) else found
            warn_of_count(opt, "DSTC7", split, len(dialogues), "dialogues", path)
        return found

    def fields(self, example: DialogueExample) -> dict[str, Any]:
        """OneMessageTeacher: return an example in ParlAI's wording, which the paper's models have read."""
        said = (f"{message.speaker.replace('_', ' ')}: {message.text}\n" for message in example.context)
        labels = [] if example.label is None else [example.label]
        fields: dict[str, Any] = {"text": "".join(said), "labels": labels}
        if example.candidates:
            fields["label_candidates"] = list(example.candidates)
        return fields


class Sample(DefaultTeacher):
    """Made-up dialogues in the same files."""

    sample = os.path.join(os.path.dirname(__file__), "sample")


class Targets:
    """Every message of each dialogue except the first, with the messages before it as context.

    Contexts are composed when they are requested: all of them would take many times the dialogues' memory. An empty
    message is not a target; ParlAI's pull request 1850 counted thousands among the official candidates.
    """

    def __init__(self, dialogues: Iterable[tuple[DialogueMessage, ...]]):
        self.dialogues = list(dialogues)
        self.places = array("i"), array("i")  # of the targets: dialogue, message
        for number, dialogue in enumerate(self.dialogues):
            for place, message in enumerate(dialogue):
                if place and message.text.strip():
                    self.places[0].append(number)
                    self.places[1].append(place)

    def __len__(self) -> int:
        return len(self.places[0])

    def __getitem__(self, index: int) -> DialogueExample:
        dialogue, place = self.dialogues[self.places[0][index]], self.places[1][index]
        return DialogueExample(dialogue[:place], dialogue[place].text, [])
