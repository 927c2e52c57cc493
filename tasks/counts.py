"""The number of examples that each data set has in publications, and a warning about files with another number."""

from parlai.core.opt import Opt
from parlai.utils.distributed import is_primary_worker
from parlai.utils.misc import warn_once

from polyagents.console import number_of

# Humeau et al. 2019, Table 1. The training set of DSTC7 before every message becomes a target.
TABLE_1 = {
    "ConvAI2": {"train": 131_438, "valid": 7_801, "test": 6_634},
    "DSTC7": {"train": 100_000, "valid": 10_000, "test": 5_000},
    "Ubuntu V2": {"train": 1_000_000, "valid": 19_560, "test": 18_920},
}

# The lines of the files as they were released, which are what others have trained on (docs/tasks.md). Of Chit-Chat, the
# examples that our splits make of the package's version 0.9.0, and of BANKING77's training set what they make of it.
RELEASED = {
    "Ubuntu V1": {"train": 1_000_000, "valid": 500_000, "test": 500_000},
    "Douban": {"train": 1_000_000, "valid": 50_000, "test": 10_000},
    "Chit-Chat": {"train": 117_616, "valid": 6_615, "test": 7_326},
    "BANKING77": {"train": 8_043, "valid": 1_960, "test": 3_080, "in all": 77},
    "BANKING77, valid included": {"train": 10_003, "valid": 1_960, "test": 3_080, "in all": 77},
    "CLINC150": {"train": 15_000, "valid": 3_000, "test": 4_500, "in all": 150},
    "CLINC150 with requests out of scope": {"train": 15_100, "valid": 3_100, "test": 5_500, "in all": 151},
}


def say_once(opt: Opt, sentence: str) -> None:
    """Warn about a file, once in a run.

    A run reads its file several times (for the dictionary, too), in several processes with --num-workers or
    under torchrun.
    """
    if is_primary_worker() and not opt.get("background_index"):
        warn_once(sentence)


def warn_of_count(opt: Opt, data_set: str, split: str, found: int, what: str, path: str) -> None:
    """Warn if a file that was read to its end has not as many examples as the paper or the release."""
    expected = (TABLE_1 | RELEASED)[data_set][split]
    if found != expected:
        source = "in the paper (Table 1)" if data_set in TABLE_1 else "as it was released"
        say_once(
            opt,
            f"{path} has {number_of(found, what.removesuffix('s'))}, and {data_set} {split} has {expected:,} "
            f"{source}: scores do not compare with published ones.",
        )
