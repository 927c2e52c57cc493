"""A candidates file of all labels of a model's task, read from the task if it does not exist yet."""

import os
from collections.abc import Mapping
from typing import Any

from parlai.core.opt import Opt

from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.parlai_agents.task_messages import task_messages
from polyagents.ranking.task_candidates import task_candidates_path


def write_task_candidates(options: Mapping[str, Any]) -> str:
    """Return the file of all labels of a model's task, beside the model file; write it if it is missing.

    Args:
        options: of the model; its `task` with the task's own flags, and `model_file`.

    Raises:
        InputError: the task has no labels.
    """
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
