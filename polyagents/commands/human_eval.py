"""`polyagents human_eval`: people compare conversations, step by step."""

import importlib

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.errors import InputError

# Step -> module and class of a ParlaiScript; imported when it is called.
STEPS = {
    "self_chat": "polyagents.human_eval.steps.self_chat:SelfChat",
    "import": "polyagents.human_eval.steps.import_logs:Import",
    "pairs": "polyagents.human_eval.steps.pairs:Pairs",
    "invite": "polyagents.human_eval.steps.invite:Invite",
    "serve": "polyagents.human_eval.steps.serve:Serve",
    "chat": "polyagents.human_eval.steps.chat:ChatStep",
    "report": "polyagents.human_eval.steps.report:Report",
    "export": "polyagents.human_eval.steps.export:Export",
}


@register_script("human_eval")
class HumanEval(ParlaiScript):
    """Compare models by what people prefer."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """The step; its own flags follow."""
        parser = ParlaiParser(
            False,
            False,
            "Human evaluation without a crowd platform: two conversations side by side, which speaker would you rather "
            "talk to? Flags of a step: polyagents human_eval STEP --help (polyagents)",
        )
        parser.add_argument("step", nargs="?", help=", ".join(STEPS))
        return parser

    @classmethod
    def _run_args(cls, args: list[str] | None = None) -> None:
        """Hand the rest of the line to the step."""
        step, *rest = args or [""]
        if step in ("-h", "--help"):
            super()._run_args([step])
        if step not in STEPS:
            given = f"{step} is no step" if step else "No step is given"
            raise InputError(f"{given}; give one of: polyagents human_eval {'|'.join(STEPS)}.")
        module, name = STEPS[step].split(":")
        getattr(importlib.import_module(module), name)._run_args(rest)

    def run(self) -> None:
        """Never reached: the steps run."""
