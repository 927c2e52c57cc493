"""`polyagents bench_training`: training speed and memory beside ParlAI's and sentence-transformers', in one run."""

import os

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.arguments import positive_int, positive_ints
from polyagents.errors import InputError


@register_script("bench_training")
class BenchTraining(ParlaiScript):
    """Measure training steps against peers."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """A backbone, a task, and what to measure."""
        parser = ParlaiParser(True, False, "Measure training speed and memory against peers, in one run (polyagents)")
        # Not `required`: ParlAI parses every command's flags with an empty line to write its list of commands.
        parser.add_argument("--backbone", help="a pretrained encoder: a folder, or a hub name")
        parser.add_argument(
            "--batch-sizes",
            type=positive_ints,
            default="32,128,512",
            help="two or more; the largest is trained in parts, with --chunk-tokens and its like",
        )
        parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="ParlAI's is always fp32")
        parser.add_argument("--chunk-tokens", type=positive_int, default=2048, help="tokens of a part")
        parser.add_argument("--steps", type=positive_int, default=3, help="each figure is the median of so many")
        parser.add_argument("--out", default="bench-output", help="folder for the tables (JSON)")
        return parser

    def run(self) -> None:
        """Measure, print tables, write a file."""
        from polyagents.benchmarks import report, training  # peers take seconds to import

        opt = self.opt
        if not opt.get("backbone") or not opt.get("task"):
            raise InputError("bench_training needs --backbone and --task.")
        sizes = list(opt["batch_sizes"])
        if len(sizes) < 2 or sizes[0] < 2:
            raise InputError(
                f"--batch-sizes {','.join(map(str, sizes))}: give two sizes or more, none below 2; the largest is "
                f"trained in parts, the others whole."
            )
        examples = training.draw(opt, sizes[-1] * (opt["steps"] + 1))
        rows, ratios = training.compare(opt["backbone"], examples, sizes, opt["precision"], opt["chunk_tokens"])
        tables = {"training": rows, "ratios": ratios}
        report.publish(tables, os.path.join(opt["out"], "training.json"))
