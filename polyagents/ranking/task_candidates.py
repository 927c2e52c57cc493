"""The file of all labels of a model's task, which ParlAI's `interactive` leaves beside the model file."""

import os
import re
from collections.abc import Mapping
from typing import Any

from polyagents.errors import InputError


def task_candidates_path(model_file: str, task: str) -> str:
    """Where the labels of a task lie, once something has written them."""
    task = re.sub(r"[^\w.,:-]", "_", task)
    return f"{model_file}.cands-{task}.cands"


def task_candidates_file(model_file: str, saved: Mapping[str, Any]) -> str:
    """The file of all labels of a model's task.

    Args:
        model_file: the model's path.
        saved: what its options file holds.

    Raises:
        InputError: the model names no task, or nothing has written the file yet.
    """
    task = saved.get("task")
    if not task:
        raise InputError(
            f"{model_file} does not say which task it was trained on, whose replies it could give; name some with "
            f"--candidates-file or --index-dir."
        )
    path = task_candidates_path(model_file, str(task))
    if not os.path.exists(path):
        raise InputError(
            f"{path}, the replies of the task {task}, is not there yet; name some with --candidates-file or "
            f"--index-dir, or write it with polyagents interactive -mf {model_file}, which needs ParlAI and the task."
        )
    return path
