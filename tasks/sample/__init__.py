"""A built-in task: generated persona dialogues, small enough to learn from scratch in a minute.

`-t polyagents.tasks.sample`. A dialogue:

    your persona: my hobby is knitting .
    your persona: i train judo .
    your persona: i love to eat soup .
    i train golf . what about you ?
        -> throwing opponents over the shoulder .
    oh , go on .
        -> black belt on the mat .

The right reply follows from the persona and what was said before, and shares no word with either. Among the 19 others
are replies of the same persona to other questions, and replies of other people, the partner included, to this one.
"""

import copy
from collections.abc import Iterator
from typing import Any

from parlai.core.opt import Opt
from parlai.core.teachers import DialogTeacher

from .generate import dialogues


class DefaultTeacher(DialogTeacher):
    """Generated persona dialogues with 20 candidates; nothing is read from disk or downloaded."""

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        opt = copy.deepcopy(opt)
        opt["datafile"] = opt["datatype"].split(":")[0]  # DialogTeacher hands it to setup_data
        # A streaming teacher keeps the lengths of its data file in the current folder; there is no file to stream.
        opt["datatype"] = opt["datatype"].replace(":stream", "")
        super().__init__(opt, shared)
        self.id = "sample"

    def setup_data(self, datafile: str) -> Iterator[tuple[dict[str, Any], bool]]:
        """DialogTeacher: yield (message, whether it begins a dialogue) for every turn of a split."""
        for dialogue in dialogues(datafile):
            for number, turn in enumerate(dialogue):
                message = {"text": turn.text, "labels": [turn.label], "label_candidates": list(turn.candidates)}
                yield message, number == 0
