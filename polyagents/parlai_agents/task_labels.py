"""A candidates file of all labels of a model's task, read from the task if it does not exist yet."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from parlai.core.opt import Opt
from parlai.scripts.build_candidates import build_cands

from polyagents.files.atomic import temporary_name, write_text
from polyagents.index.texts import read_candidates
from polyagents.ranking.task_candidates import task_candidates_path


def write_task_candidates(options: Mapping[str, Any]) -> str:
    """Return the file of all labels of a model's task, beside the model file; write it if it is missing.

    Args:
        options: of the model; its `task` with the task's own flags, and `model_file`.
    """
    path = task_candidates_path(options["model_file"], options["task"])
    if not os.path.exists(path):
        opt = Opt(options)
        unfinished = temporary_name(path)
        opt |= {"outfile": unfinished, "datatype": "train:evalmode", "interactive_task": False, "batchsize": 1}
        opt.setdefault("log_every_n_secs", 2)
        opt["num_examples"] = -1  # --num-examples must not limit the candidates
        try:
            build_cands(opt)
            texts = sorted(read_candidates(unfinished))  # ParlAI writes them in the order of a hash table
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(unfinished)
        write_text(path, "\n".join(texts))
    return path
