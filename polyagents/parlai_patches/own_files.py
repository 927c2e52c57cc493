"""Files that ParlAI reads without a check: of its tasks `fromfile` and `jsonfile`, and of tasks without any example."""

import contextlib
import difflib
import json
import os
from collections.abc import Iterator
from typing import Any

from parlai.core.opt import Opt
from parlai.tasks.fromfile.agents import Parlaiformat2Teacher, ParlaiformatTeacher
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError, NoTestSplit, first_line
from polyagents.files.lines import opened, text_lines, without_mark

FORMATS = {"fromfile": ("txt", "ParlAI's text format"), "jsonfile": ("jsonl", "ParlAI's JSON lines, a dialogue each")}
# Fields of a line that may be missing, and what else they are called.
OPTIONAL = {"label_candidates": "label_candidates", "candidates": "label_candidates", "episode_done": "episode_done"}


def check_task_file(task: str, opt: Opt) -> None:
    """Check the file of a task before it is opened; a task without such a file passes.

    Raises:
        InputError: it is not given, does not exist, or begins with no text in UTF-8; NoTestSplit where it is missing
            and would be the test set.
    """
    name, _, teacher = task.strip().partition(":")
    if name not in FORMATS:
        return
    ending, form = FORMATS[name]
    second = "2" * teacher.removesuffix("Teacher").endswith("2")  # such as fromfile:parlaiformat2
    flag, extension = f"--{name}-datapath{second}", f"{name}_datatype_extension"
    path, split = opt.get(f"{name}_datapath{second}"), DatatypeHelper.fold(opt["datatype"])
    if not path:
        raise InputError(f"The task {task} needs {flag}: a file in {form}.")
    extended, is_extended = f"{path}_{split}.{ending}", bool(opt.get(extension)) and not second
    file = extended if is_extended else path
    if not os.path.exists(file):
        how = f", or --{extension.replace('_', '-')} true for {extended}" if os.path.exists(extended) else ""
        kind = NoTestSplit if is_extended and split == "test" else InputError
        raise kind(f"{flag} {path}: there is no file {file}; give one in {form}{how}.")
    try:
        with opened(file) as text:
            if without_mark(text).tell():
                raise InputError(f"{file} begins with a byte order mark, which ParlAI reads as text; remove it.")
            if not any(line.strip() for line in text_lines(text, file)):
                raise InputError(f"{file} holds no text; give {flag} a file in {form}.")
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}); give another {flag}.") from error


def message_of(str_to_msg: Any, line: str) -> Any:
    """Parse a line of ParlAI's text format, without a carriage return and without empty fields between tabs."""
    return str_to_msg("\t".join(part for part in line.rstrip("\r").split("\t") if part.strip()))


def check_line(line: str) -> None:
    """Refuse what ParlAI would read as something else.

    Raises:
        ValueError: a field has no name, is there twice, or seems to be misspelt; or `episode_done` is not true.
    """
    parts = [part for part in line.split("\t") if part.strip()]
    names = [part.partition(":")[0] for part in parts]
    for place, (part, name) in enumerate(zip(parts, names, strict=True)):
        meant = meant_field(name)
        if ":" not in part:
            fault = f"{part!r:.60}, which has no name such as text:; write tabs as \\t"
        elif name in names[:place]:
            fault = f"two fields {name}"
        elif meant not in (None, *names):
            fault = f"the field {name}; did you mean {meant}?"
        elif name == "episode_done" and part.partition(":")[2].strip().lower() in ("false", "0", "no"):
            fault = f"{part.strip()}, which ParlAI reads as true; leave it out within a dialogue"
        else:
            continue
        raise ValueError(f"the line that begins with {line[:40]!r} has {fault}")


def meant_field(name: str) -> str | None:
    """Return the field that a name is, or is misspelt from: one letter more or less, or two exchanged."""
    close = difflib.get_close_matches(name, OPTIONAL, n=1, cutoff=0.9)
    return OPTIONAL[close[0]] if close and abs(len(close[0]) - len(name)) <= 1 else None


def yield_examples(setup_data: Any, teacher: Any, path: str) -> Iterator[Any]:
    """Read a task's file as a teacher of ParlAI does that yields its examples."""
    with refused_if_malformed(path):
        yield from setup_data(teacher, path)


def keep_examples(setup_data: Any, teacher: Any, path: str) -> None:
    """Read a task's file as a teacher of ParlAI does that keeps its examples; lines of the user's own are checked."""
    with refused_if_malformed(path):
        if isinstance(teacher, (ParlaiformatTeacher, Parlaiformat2Teacher)):
            with open(path, newline="\n", encoding="utf-8") as lines:
                for line in lines:
                    check_line(line.rstrip("\r\n"))
        setup_data(teacher, path)


def parsed_dialogues(_: Any, dialogues: Any, path: str) -> Iterator[Any]:
    """Parse ParlAI's JSON lines; it would end a line within a text, too, as at U+2028, and not say which is wrong."""
    with opened(path) as file:
        for number, line in enumerate(text_lines(file, path), start=1):
            try:
                yield dialogues._parse(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number} is not JSON") from error
            except (AttributeError, LookupError, TypeError) as error:
                raise ValueError(f"line {number} has no dialog, a list of lists of turns with id and text") from error


def with_examples(init: Any, data: Any, opt: Opt, data_loader: Any = None, *args: Any, **kwargs: Any) -> None:
    """Initialise a task's data, but refuse a file without examples: a stream would look for them for ever."""

    def load(path: Any) -> Iterator[Any]:
        found = False
        for example in data_loader(path):
            found = True
            yield example
        if not found:
            split = DatatypeHelper.fold(opt["datatype"])
            raise (NoTestSplit if split == "test" else InputError)(
                f"{path} has no examples that can be used in {split}; mend it, or give another --task."
            )

    init(data, opt, data_loader and load, *args, **kwargs)


def count_anew(_: Any, data: Any) -> tuple[int, int]:
    """Count the episodes and examples of a stream, which decide how long an epoch is.

    ParlAI notes the numbers in a file next to the data and believes it ever after, whatever becomes of the data.
    """
    lengths = [len(episode) for episode in data._read_episode(data.data_loader(data.datafile))]
    return len(lengths), sum(lengths)


@contextlib.contextmanager
def refused_if_malformed(path: str) -> Iterator[None]:
    """Report what ParlAI raises in reading a file that is not in the format of its task."""
    try:
        yield
    except InputError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        why = first_line(error).removesuffix(" The line is:")
        raise InputError(f"{path} is not in the format of its task ({why}); mend it, or give another file.") from error
