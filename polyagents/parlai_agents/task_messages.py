"""The messages of a ParlAI task, from the first to the last, for commands that read a task without training."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from parlai.agents.repeat_label.repeat_label import RepeatLabelAgent
from parlai.core.opt import Opt
from parlai.core.worlds import create_task
from tqdm import tqdm

from polyagents.errors import InputError
from polyagents.parlai_agents.quiet import quiet

MANY = 100_000  # a progress bar is shown for at least this many examples


def task_messages(opt: Opt) -> Iterator[dict[str, Any]]:
    """Yield the teacher's messages of one pass over the task of `opt`, in order, with a batch of one.

    Raises:
        InputError: the task cannot be read.
    """
    opt = Opt(opt | {"batchsize": 1})
    # Standard output is for results, and teachers print to it.
    with quiet(), contextlib.redirect_stdout(sys.stderr):
        try:
            world = create_task(opt, RepeatLabelAgent(opt))
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"--task {opt['task']} cannot be read ({str(error).splitlines()[0]}); give a task that parlai "
                f"display_data shows, with its flags."
            ) from error
        size = world.num_examples() or 0
        with tqdm(total=size, unit=" examples", desc="Reading the task", disable=size < MANY) as bar:
            while not world.epoch_done():
                world.parley()
                act = world.get_acts()[0]
                if not act.get("batch_padding"):
                    yield act
                bar.update()
