"""Files that ParlAI's commands write at their end, without a check: reports of evaluations, and logs of chats."""

import os
from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript

from polyagents.files.own_folder import check_format, check_out_file, files_read, make_folder_of


def run_checked(run: Any, script: type[ParlaiScript], opt: Opt, parser: ParlaiParser) -> Any:
    """Run a script of ParlAI's after a check of its output files."""
    check_outputs(opt)
    return run(script, opt, parser)


def name_of_log(name_of: Any, task: str, *given: Any, **named: Any) -> Any:
    """Return ParlAI's name of a log; it would lose what follows the last dot of the task's name."""
    return name_of(task.replace(".", "_"), *given, **named)


def check_outputs(opt: Opt) -> None:
    """Refuse, with an InputError, an output that cannot be written, or would replace what the command reads."""
    model = opt.get("model_file")
    if (opt.get("report_filename") or "").startswith(("./", "../")):
        opt["report_filename"] = os.path.abspath(opt["report_filename"])  # ParlAI would append it to the model's name
    for name in ("report_filename", "world_logs", "outfile"):
        path = opt.get(name)
        if not path:
            continue
        flag, read = f"--{name.replace('_', '-')}", (model, opt.get("partner_model_file"), *files_read(opt))
        ending = ".txt"
        if name == "report_filename":
            path, ending = f"{model}{path}" if path.startswith(".") else path, ".json"
        elif opt.get("save_format") == "conversations":
            check_format(flag, path, [".jsonl", ".json"])  # ParlAI replaces what follows the last dot
            path, ending = f"{os.path.splitext(path)[0]}.jsonl", ".jsonl"
        make_folder_of(path)
        check_out_file(flag, path, [ending], read)
