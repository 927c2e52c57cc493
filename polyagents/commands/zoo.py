"""`polyagents zoo`: which pretrained models there are, and having them on the disk."""

import os

from parlai.core.build_data import built, get_model_dir
from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.commands.columns import in_columns
from polyagents.errors import InputError
from polyagents.zoo.archive import fetch
from polyagents.zoo.models import ARCHIVE, GROUP, MODELS, Model, find

USAGE = "polyagents zoo list, polyagents zoo show NAME, or polyagents zoo download NAME"


@register_script("zoo")
class Zoo(ParlaiScript):
    """List, show or download ParlAI's pretrained rankers."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """What to do, and with which model."""
        parser = ParlaiParser(
            False,
            False,
            f"List, show or download ParlAI's pretrained rankers: zoo:{GROUP}/NAME/model in every command (polyagents)",
        )
        # Neither required nor with `choices`: ParlAI parses every command's flags with an empty line to write its list
        # of commands.
        parser.add_argument("what", nargs="?", help="list, show or download")
        parser.add_argument("name", nargs="?", help="a name that list shows")
        parser.add_parlai_data_path()
        return parser

    def run(self) -> None:
        """One of the three."""
        what, name = self.opt.get("what"), self.opt.get("name")
        if what not in ("list", "show", "download") or (what == "list") != (name is None):
            raise InputError(f"Give one of: {USAGE}.")
        if what == "list":
            print(table())
        elif what == "show":
            print(description(find(name), self.opt["datapath"]))
        else:
            model = find(name)  # what is wrong with the name is said before the download
            fetch(ARCHIVE, self.opt["datapath"])
            print(f"zoo:{model.name} is {file_of(model, self.opt['datapath'])}")


def table() -> str:
    """All models, as text."""
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


def description(model: Model, datapath: str) -> str:
    """Everything about one model, as text."""
    trained = f"pretrained on {model.pretrained_on}"
    if model.fine_tuned_on:
        trained += f", fine-tuned on {model.fine_tuned_on}"
    file = file_of(model, datapath)
    facts = {
        "name": f"zoo:{model.name}",
        "what": f"{model.kind}-encoder, {trained}",
        "agent": f"{model.our_agent} (ParlAI's own: {model.agent})",
        "expected": f"{model.metric} ({model.source})",
        "file": f"{file} ({state(model, datapath)})",
    }
    lines = [f"{name + ':':10}{fact}" for name, fact in facts.items()]
    lines += ["options:", *(f"  {name} {value}" for name, value in model.options.items())]
    return "\n".join([model.title, *lines, "commands:", *(f"  {command}" for command in commands(model))])


def state(model: Model, datapath: str) -> str:
    """Whether the file of a model is there."""
    if not built(os.path.join(get_model_dir(datapath), ARCHIVE.folder), ARCHIVE.version):
        return f"not downloaded; it comes with all others from {ARCHIVE.url}"
    return "downloaded" if os.path.exists(file_of(model, datapath)) else "missing from the archive that was downloaded"


def file_of(model: Model, datapath: str) -> str:
    """Where ParlAI looks for a model of the zoo."""
    return os.path.join(get_model_dir(datapath), *model.name.split("/"))


def commands(model: Model) -> list[str]:
    """What a user types next."""
    train = f"polyagents train_model -m {model.kind} -t convai2 -mf M"
    first = f"{train} --init-model zoo:{model.name}"
    if model.fine_tuned_on:
        use = f"-mf zoo:{model.name} -t {model.fine_tuned_on}"
        return [first, f"polyagents eval_model {use} --eval-candidates inline", f"polyagents interactive {use}"]
    texts = model.short_name.rsplit("_", 1)[-1]
    evaluate = "polyagents eval_model -mf M -t convai2 --eval-candidates inline"
    return [first, f"{train} --backbone zoo:{texts}", evaluate]
