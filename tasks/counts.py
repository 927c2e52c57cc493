"""How many examples the paper counts in each data set, and a word where the files at hand have another number."""

from parlai.core.opt import Opt
from parlai.utils.distributed import is_primary_worker
from parlai.utils.misc import warn_once

# Humeau et al. 2019, Table 1. The training set of DSTC7 before every message becomes a target.
TABLE_1 = {
    "ConvAI2": {"train": 131_438, "valid": 7_801, "test": 6_634},
    "DSTC7": {"train": 100_000, "valid": 10_000, "test": 5_000},
    "Ubuntu V2": {"train": 1_000_000, "valid": 19_560, "test": 18_920},
}


def say_once(opt: Opt, sentence: str) -> None:
    """Warn of a file, once in a run.

    A training reads its file several times (for the dictionary, too), in several processes with --num-workers or
    under torchrun.
    """
    if is_primary_worker() and not opt.get("background_index"):
        warn_once(sentence)


def check_count(opt: Opt, data_set: str, split: str, found: int, what: str, path: str) -> None:
    """Say that a file which was read to its end is not what the paper had."""
    expected = TABLE_1[data_set][split]
    if found != expected:
        say_once(
            opt,
            f"{path} has {found:,} {what}, and {data_set} {split} has {expected:,} in the paper (Table 1): scores do "
            f"not compare with published ones.",
        )
