"""ConvAI2 (Persona-Chat): which of 20 replies fits persona and history? ParlAI's teacher, but valid is not called test.

`-t polyagents.tasks.convai2`, from the files that ParlAI downloads. A dialogue:

    your persona: i have two cats .
    your persona: i work at night .
    hi , how are you today ?
        -> a bit tired , i just came home from work .

`-t polyagents.tasks.convai2:sample` is a few made-up dialogues in the same format, without a download.
"""

import contextlib
import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from parlai.core.opt import Opt
from parlai.core.teachers import FbDeprecatedDialogTeacher
from parlai.tasks.convai2.agents import SelfOriginalTeacher
from parlai.tasks.convai2.worlds import InteractiveWorld, SelfChatWorld
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError, NoTestSplit
from polyagents.files.lines import opened, without_mark
from polyagents.tasks.counts import TABLE_1, warn_of_count

__all__ = ["DefaultTeacher", "InteractiveWorld", "Sample", "SelfChatWorld"]  # a chat gets its personas from the worlds

PERSONA = "your persona: "

Entry = list[Any]  # text, labels, reward, candidates


class PersonaTeacher(FbDeprecatedDialogTeacher):
    """Dialogues in ParlAI's oldest format, persona first; the splits are train and valid."""

    sample: str | None = None  # a folder of made-up files, without a download

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        if DatatypeHelper.fold(opt["datatype"]) == "test":
            raise NoTestSplit(
                f"ConvAI2's test set ({TABLE_1['ConvAI2']['test']:,} examples) is not public, and ParlAI serves valid "
                f"for it; give -dt valid."
            )
        super().__init__(opt, shared)

    def setup_data(self, path: str) -> Iterator[tuple[Entry, bool]]:
        """DialogTeacher: yield the turns, and whether each begins a dialogue."""
        found = 0
        with plain(path) as file:
            for dialogue in dialogues(super().setup_data(file)):
                for number, entry in enumerate(persona_first(dialogue)):
                    found += 1
                    if len(entry) > 3 and entry[1] and entry[3] and entry[1][0] not in entry[3]:
                        raise InputError(
                            f"{path}, example {found:,}: its candidates lack the label {entry[1][0]!r:.60}."
                        )
                    yield entry, number == 0
        if not (self.sample or self.stream):
            warn_of_count(self.opt, "ConvAI2", DatatypeHelper.fold(self.datatype), found, "examples", path)


class DefaultTeacher(PersonaTeacher, SelfOriginalTeacher):
    """The task with ParlAI's files and messages."""


class Sample(PersonaTeacher):
    """Made-up dialogues in the same files."""

    sample = os.path.join(os.path.dirname(__file__), "sample")

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        opt = copy.deepcopy(opt)
        opt["datafile"] = os.path.join(self.sample, f"{DatatypeHelper.fold(opt['datatype'])}.txt")
        super().__init__(opt, shared)


@contextlib.contextmanager
def plain(path: str) -> Iterator[str]:
    """Give a path at which a file has no byte order mark, which ParlAI's reader takes for text."""
    try:
        source = opened(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); delete its folder and run again.") from error
    with source as file, tempfile.TemporaryDirectory() as folder:
        copy_of_file = path
        if without_mark(file).tell():
            copy_of_file = os.path.join(folder, os.path.basename(path))
            with open(copy_of_file, "wb") as out:
                shutil.copyfileobj(file, out)
        yield copy_of_file


def dialogues(entries: Iterator[tuple[Entry, bool]]) -> Iterator[list[Entry]]:
    """Yield the turns of each dialogue."""
    dialogue: list[Entry] = []
    for entry, begins in entries:
        if begins and dialogue:
            yield dialogue
            dialogue = []
        dialogue.append(entry)
    if dialogue:
        yield dialogue


def persona_first(dialogue: list[Entry]) -> list[Entry]:
    """Return the same turns, with all persona lines before the first message."""
    turns = [entry[0].split("\n") for entry in dialogue]
    persona = [line for lines in turns for line in lines if line.startswith(PERSONA)]
    said = [[line for line in lines if not line.startswith(PERSONA)] for lines in turns]
    said[0] = persona + said[0]
    return [["\n".join(lines), *entry[1:]] for lines, entry in zip(said, dialogue, strict=True)]
