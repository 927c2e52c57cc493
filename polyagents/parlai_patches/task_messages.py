"""The messages of a ParlAI task, from the first to the last, for commands that read a task without training."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from parlai.agents.repeat_label.repeat_label import RepeatLabelAgent
from parlai.core.opt import Opt
from parlai.core.worlds import create_task

from polyagents.console import Bar
from polyagents.errors import InputError, first_line
from polyagents.files.atomic import write_text
from polyagents.parlai_patches.compat import quiet
from polyagents.ranking.task_candidates import task_candidates_path

MANY = 100_000  # a progress bar is shown for at least this many examples


@contextlib.contextmanager
def refused_where_unreadable(task: str) -> Iterator[None]:
    """Report in one sentence what ParlAI or a task raises in opening the task."""
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"--task {task} cannot be read ({first_line(error)}); give a task that parlai display_data shows, with its "
            f"flags."
        ) from error


def task_messages(opt: Opt) -> Iterator[dict[str, Any]]:
    """Yield the teacher's messages of one pass over the task of `opt`, in order, with a batch of one."""
    # Teachers judge each reply, here a repeated label; the default metrics have BLEU, which takes half of the time.
    opt = Opt(opt | {"batchsize": 1, "metrics": "accuracy"})
    # Standard output is for results, and teachers print to it.
    with quiet(), contextlib.redirect_stdout(sys.stderr):
        with refused_where_unreadable(opt["task"]):
            world = create_task(opt, RepeatLabelAgent(opt))
        size = world.num_examples() or 0
        with Bar(total=size, unit=" examples", desc="Reading the task", disable=size < MANY) as bar:
            while not world.epoch_done():
                world.parley()
                act = world.get_acts()[0]
                if not act.get("batch_padding"):
                    yield act
                bar.update()


def write_task_candidates(options: Mapping[str, Any]) -> str:
    """Return the file of a task's labels, next to the model; write it if it is missing. Refuse a task without any."""
    path = task_candidates_path(options["model_file"], options["task"])
    if not os.path.exists(path):
        chats = {"interactive_task": False, "selfchat_task": False}  # such a task has people instead of messages
        acts = task_messages(Opt({**options, **chats, "datatype": "train:evalmode"}))
        labels = [(act.get("labels") or act.get("eval_labels") or [""])[0] for act in acts]
        texts = {" ".join(label.split("\n")).strip() for label in labels} - {""}  # a file has one candidate a line
        if not texts:
            raise InputError(
                f"--task {options['task']} has no labels that the model could reply with; give --fixed-candidates-path "
                f"a text file with one candidate per line."
            )
        write_text(path, "\n".join(sorted(texts)))
    return path
