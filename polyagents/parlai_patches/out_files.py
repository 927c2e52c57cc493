"""Files that ParlAI's commands write at their end, without a check: reports of evaluations, and logs of chats."""

import functools
import os
from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript
from parlai.scripts import eval_model, train_model

from polyagents.files.own_folder import check_out_file, files_read, make_folder_of


@functools.cache
def apply() -> None:
    """Patch ParlAI's scripts (idempotent)."""
    run = ParlaiScript._run_from_parser_and_opt.__func__

    def run_checked(cls: type[ParlaiScript], opt: Opt, parser: ParlaiParser) -> Any:
        check(opt)
        return run(cls, opt, parser)

    ParlaiScript._run_from_parser_and_opt = classmethod(run_checked)
    logs_of = eval_model.get_task_world_logs

    def get_task_world_logs(task: str, *given: Any, **named: Any) -> str:
        return logs_of(task.replace(".", "_"), *given, **named)  # the log's name would lose what follows the last dot

    for script in (eval_model, train_model):
        script.get_task_world_logs = get_task_world_logs


def check(opt: Opt) -> None:
    """Refuse, with an InputError, an output that cannot be written, or would replace what the command reads."""
    model = opt.get("model_file")
    if (opt.get("report_filename") or "").startswith(("./", "../")):
        opt["report_filename"] = os.path.abspath(opt["report_filename"])  # ParlAI would append it to the model's name
    for name in ("report_filename", "world_logs", "outfile"):
        path = opt.get(name)
        if not path:
            continue
        if name == "report_filename":
            path = f"{model}{path}" if path.startswith(".") else path
        elif opt.get("save_format") == "conversations":
            path = f"{os.path.splitext(path)[0]}.jsonl"
        make_folder_of(path)
        check_out_file(f"--{name.replace('_', '-')}", path, (model, opt.get("partner_model_file"), *files_read(opt)))
