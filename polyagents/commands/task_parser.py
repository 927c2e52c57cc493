"""The parser of a command that reads a task of ParlAI's, which has flags of its own."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyagents.arguments import CommandParser
from polyagents.commands.parlai_command import HELP
from polyagents.faults import parlai_is_installed

if TYPE_CHECKING:
    from polyagents.ranker import Ranker

BATCH = 64  # of an evaluation


def load_with_flags(opt: Mapping[str, Any], file: str, only: Sequence[str] | None = None) -> "Ranker":
    """Load a model with the options of models on a command line that ParlAI has parsed; `only` some, if given.

    ParlAI reads a model's flags from `M.opt`, so with a folder of `save_pretrained` the command line has none.
    """
    from polyagents.ranker import Ranker, loading_options  # imports torch

    names = only or {"backend", *loading_options(file)}
    given = {name: value for name, value in opt["override"].items() if name in names}
    device = {name: opt[name] for name in ("no_cuda", "gpu") if name in opt}
    return Ranker.load(file, **device, **given)


class TaskCommandParser(CommandParser):
    """Parses a command's own flags at once, and all flags by ParlAI's parser if a task is given.

    ParlAI takes seconds to import. A missing flag is therefore reported before, and a command without a task does not
    import it. With a task, the result is ParlAI's `Opt`, a dict, instead of a namespace. A command that evaluates a
    model accepts the flags of the model, too, and reads the valid split by default.
    """

    def __init__(self, prog: str, description: str, task_required: bool, evaluates: bool = False):
        self.own_flags: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self.evaluates = evaluates
        super().__init__(prog, description)
        # Not among the command's own flags: ParlAI's parser has these, and adds the task's and the model's.
        task_help = "a task of ParlAI's, or polyagents.tasks.NAME"
        argparse.ArgumentParser.add_argument(self, "-t", "--task", required=task_required, help=task_help)
        if evaluates:
            argparse.ArgumentParser.add_argument(self, "-mf", "--model-file", required=True, help="a trained model")

    def add_argument(self, *names: Any, **settings: Any) -> Any:
        """Add a flag of the command's own to this parser and to ParlAI's."""
        if "-h" not in names:
            self.own_flags.append((names, settings))
        return super().add_argument(*names, **settings)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse a command line, or the process's, to a namespace without a task, and to ParlAI's `Opt` with one."""
        arguments = list(sys.argv[1:] if args is None else args)
        if {*HELP} & set(arguments):  # help is ParlAI's, with the flags of the task
            with_task = parlai_is_installed()
        else:
            known, _ = self.parse_known_args(arguments)
            self.check_needed(known)
            with_task = known.task is not None
        return self.parse_with_task(arguments) if with_task else super().parse_args(arguments, namespace)

    def parse_with_task(self, arguments: list[str]) -> dict[str, Any]:
        """Parse by ParlAI's parser, which adds the flags of the task."""
        from parlai.core.params import ParlaiParser  # takes seconds
        from parlai.utils import logging

        from polyagents.parlai_patches import patches

        patches.apply()
        parser = ParlaiParser(True, self.evaluates, self.description, prog=self.prog)
        for names, settings in self.own_flags:
            # Those that are missing have been refused, and ParlAI parses a request for help without it.
            parser.add_argument(*names, **{key: value for key, value in settings.items() if key != "required"})
        if self.evaluates:
            parser.set_params(datatype="valid", batchsize=BATCH)
        opt: dict[str, Any] = parser.parse_args(arguments)
        logging.set_log_level(opt["loglevel"].upper())
        return opt
