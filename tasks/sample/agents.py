"""The sample task as a ParlAI teacher."""

import copy
from collections.abc import Iterator
from typing import Any

from parlai.core.opt import Opt
from parlai.core.teachers import DialogTeacher

from .generate import dialogues


class SampleTeacher(DialogTeacher):
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


class DefaultTeacher(SampleTeacher):
    """The teacher that `-t polyagents.tasks.sample` finds."""
