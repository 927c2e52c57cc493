"""`polyagents zoo`: list, show and download pretrained models."""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.console import in_columns
from polyagents.errors import InputError
from polyagents.zoo.datapath import add_datapath_flag, datapath, is_built, models_folder
from polyagents.zoo.models import ARCHIVE, GROUP, MODELS, Model, find

USAGE = "polyagents zoo list, polyagents zoo show NAME, or polyagents zoo download NAME"


def parser() -> argparse.ArgumentParser:
    """Declare the arguments: what to do, with which model, and the folder of models."""
    parser = CommandParser(
        "polyagents zoo",
        f"List, show or download ParlAI's pretrained rankers: zoo:{GROUP}/NAME/model in every command.",
    )
    parser.add_argument("what", nargs="?", help="list, show or download")
    parser.add_argument("name", nargs="?", help="a name that list shows")
    add_datapath_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """List, show or download."""
    what, name = opt["what"], opt["name"]
    if what not in ("list", "show", "download") or (what == "list") != (name is None):
        raise InputError(f"Give one of: {USAGE}.")
    if what == "list":
        print(model_table())
        return
    model, folder = find(name), datapath(opt["datapath"])  # a wrong name is reported before the download
    if what == "show":
        print(model_description(model, folder))
    else:
        from polyagents.zoo.archive import fetch  # imports what downloads

        fetch(ARCHIVE, folder)
        print(f"zoo:{model.name} is {model_path(model, folder)}")


def model_table() -> str:
    """List all models."""
    rows = [("name", "architecture", "pretrained on", "fine-tuned on", "expected on ConvAI2 (valid)")]
    for model in MODELS:
        row = (model.short_name, f"{model.kind}-encoder", model.pretrained_on, model.fine_tuned_on or "-", model.metric)
        rows.append(row)
    return "\n".join(
        [
            *in_columns(rows),
            "",
            f"In a command: zoo:{GROUP}/NAME/model. Options and commands: polyagents zoo show NAME.",
        ]
    )


def model_description(model: Model, folder: str) -> str:
    """Describe one model."""
    trained = f"pretrained on {model.pretrained_on}"
    if model.fine_tuned_on:
        trained += f", fine-tuned on {model.fine_tuned_on}"
    file = model_path(model, folder)
    if not is_built(os.path.join(models_folder(folder), ARCHIVE.folder), ARCHIVE.version):
        state = f"not downloaded; it comes with all others from {ARCHIVE.url}"
    else:
        state = "downloaded" if os.path.exists(file) else "missing from the archive that was downloaded"
    facts = {
        "name": f"zoo:{model.name}",
        "what": f"{model.kind}-encoder, {trained}",
        "agent": f"{model.our_agent} (ParlAI's own: {model.agent})",
        "expected": f"{model.metric} ({model.source})",
        "file": f"{file} ({state})",
    }
    lines = [f"{name + ':':10}{fact}" for name, fact in facts.items()]
    lines += ["options:", *(f"  {name} {value}" for name, value in model.options.items())]
    return "\n".join([model.title, *lines, "commands:", *(f"  {command}" for command in commands_for_model(model))])


def model_path(model: Model, folder: str) -> str:
    """Return the path at which ParlAI looks for a model of the zoo."""
    return os.path.join(models_folder(folder), *model.name.split("/"))


def commands_for_model(model: Model) -> list[str]:
    """Return the commands that a user types next."""
    train = f"polyagents train_model -m {model.kind} -t convai2 -mf M"
    first = f"{train} --init-model zoo:{model.name}"
    if model.fine_tuned_on:
        use = f"-mf zoo:{model.name} -t {model.fine_tuned_on}"
        return [first, f"polyagents eval_model {use} --eval-candidates inline", f"polyagents interactive {use}"]
    texts = model.short_name.rsplit("_", 1)[-1]
    evaluate = "polyagents eval_model -mf M -t convai2 --eval-candidates inline"
    return [first, f"{train} --backbone zoo:{texts}", evaluate]
