"""The file of all labels of a model's task, which ParlAI's `interactive` writes next to the model file."""

import os
import re
from collections.abc import Mapping
from typing import Any

from polyagents.console import command
from polyagents.errors import InputError


def task_candidates_path(model_file: str, task: str) -> str:
    """Return the path of a task's labels, whether or not the file exists."""
    task = re.sub(r"[^\w.,:-]", "_", task)
    return f"{model_file}.cands-{task}.cands"


def task_candidates_file(model_file: str, saved: Mapping[str, Any]) -> str:
    """Return the path of the labels of the task in a model's options; an InputError says if there is none."""
    task = saved.get("task")
    if not task:
        raise InputError(
            f"{model_file} does not say which task it was trained on, so there are no replies to rank; give some "
            f"with --candidates-file or --index-dir."
        )
    path = task_candidates_path(model_file, str(task))
    if not os.path.exists(path):
        raise InputError(
            f"{path}, the replies of the task {task}, does not exist yet; give some with --candidates-file or "
            f"--index-dir, or write it with {command('interactive', '-mf', model_file)}, which needs ParlAI and the "
            f"task."
        )
    return path
