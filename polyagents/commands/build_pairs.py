"""`polyagents build_pairs`: pairs to pre-train on, shuffled, from files of any size."""

import json

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.arguments import positive_int
from polyagents.console import say
from polyagents.errors import InputError


@register_script("build_pairs")
class BuildPairs(ParlaiScript):
    """Make pairs of what was said and what came next."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """Files, a folder."""
        parser = ParlaiParser(
            False,
            False,
            "Make the data of -t polyagents.tasks.pairs: pairs of what was said and what came next, shuffled "
            "(polyagents). A build that was stopped goes on when it is started again.",
        )
        # Not `required`: ParlAI parses every command's flags with an empty line to write its list of commands.
        parser.add_argument(
            "--source",
            help="a file, or a folder of files: JSON lines of pairs, ParlAI's text format, plain text, dumps of "
            "Reddit's comments; as they are, .zst, .gz or .bz2",
        )
        parser.add_argument("--outdir", help="folder of the data; made where it is missing")
        parser.add_argument(
            "--context-lines",
            type=positive_int,
            default=1,
            help="of plain text: how many lines before it are the context of a line, at most; 1 for sentences of "
            "running text (paper 4.1)",
        )
        parser.add_argument(
            "--valid-examples",
            type=positive_int,
            default=10_000,
            help="about so many pairs, of whole threads, to validate with, and as many to test with; of few pairs a "
            "tenth",
        )
        return parser

    def run(self) -> None:
        """Build; then say what there is, and what to do with it."""
        from polyagents.tasks.pairs.build import Plan, build, told  # loads the task, which every help would

        opt = self.opt
        if not opt.get("source") or not opt.get("outdir"):
            raise InputError("build_pairs needs --source and --outdir.")
        made = build(Plan(opt["source"], opt["outdir"], opt["context_lines"], opt["valid_examples"]))
        say(
            f"{opt['outdir']}: {made['examples']['train']:,} pairs to train on, {made['examples']['valid']:,} to "
            f"validate with ({told(made['counts'])}). Train: -t polyagents.tasks.pairs --pairs-path {opt['outdir']}"
        )
        print(json.dumps(made["examples"] | {"counts": made["counts"]}))
