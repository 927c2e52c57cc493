"""The ranges of ParlAI's numbers: ParlAI takes any, and then trains forever, divides by zero or learns nothing.

ParlAI's word for none is -1: no limit, never, or off.
"""

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parlai.core.params import ParlaiParser

from polyagents.arguments import (
    LARGEST,
    Real,
    Whole,
    batch_size,
    boolean,
    count,
    not_negative,
    port_number,
    positive,
    positive_int,
    probability,
    shown,
)
from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.options import fields_of
from polyagents.training_loop.training_options import LoopOptions


@dataclass(frozen=True)
class Several:
    """The type of a flag that takes `count` numbers (None: any) with commas between them, each of a range."""

    one: Callable[[str], float]
    count: tuple[int, ...] | None = None

    def __call__(self, text: str) -> tuple[float, ...]:
        """Parse the numbers."""
        found = tuple(self.one(part) for part in text.split(","))
        if self.count and len(found) not in self.count:
            counts = " or ".join(map(str, self.count))
            raise argparse.ArgumentTypeError(f"{text!r} is {number_of(len(found), 'number')}; give {counts}")
        return found


def weights(text: str) -> tuple[float, ...] | str:
    """Parse --multitask-weights: the parts of the tasks, or the word "stochastic"."""
    found = () if text == "stochastic" else Several(not_negative)(text)
    if found and not any(found):
        raise argparse.ArgumentTypeError(f"{text!r} has no number above 0")
    return found or text


limit = Whole(1, none=-1)
share = Real("a number from 0 to 1", 0, math.nextafter(1, 2))
some = Real("a number above 0", 0, above=True, none=-1)
any_number = Real("a finite number", -LARGEST)

OURS = {field.name: field.metadata["parse"] for field in fields_of(LoopOptions)}

# What is not here is any number that is finite.
RANGES: dict[str, Callable[[str], Any]] = {
    **{name: parse for name, parse in OURS.items() if isinstance(parse, Whole | Real)},  # those below may be none
    **dict.fromkeys(("eval_batchsize", "encode_candidate_vecs_batchsize"), batch_size),
    # a run
    **dict.fromkeys(("max_train_steps", "num_examples", "num_episodes", "validation_max_exs"), limit),
    **dict.fromkeys(("validation_every_n_steps", "log_every_n_steps"), limit),
    **dict.fromkeys(("max_train_time", "num_epochs", "save_every_n_secs", "seconds"), some),
    **dict.fromkeys(("validation_every_n_epochs", "validation_every_n_secs"), some),
    "log_every_n_secs": Real("a number of 0 or more", 0, none=-1),
    "validation_patience": Whole(0, none=-1),
    "validation_cutoff": any_number,
    "teacher_seed": any_number,
    # an optimiser
    "gradient_clip": Real("a number of 0 or more", 0, none=-1),
    "adam_eps": positive,
    "adafactor_eps": Several(positive, (2,)),
    "betas": Several(probability, (2,)),
    "nus": Several(share, (1, 2)),
    "momentum": probability,
    "warmup_updates": Whole(0, none=-1),
    "warmup_rate": share,
    "invsqrt_lr_decay_gamma": Whole(0, none=-1),
    # texts, dictionaries and replies
    **dict.fromkeys(("truncate", "history_size", "rank_top_k", "dict_maxexs", "dict_maxtokens"), Whole(0, none=-1)),
    **dict.fromkeys(("dict_max_ngram_size", "area_under_curve_digits"), Whole(0, none=-1)),
    "dict_minfreq": count,
    "bpe_dropout": probability,
    "cap_num_predictions": positive_int,
    "topk": positive_int,
    "multitask_weights": weights,
    # chats, pictures and processes
    **dict.fromkeys(("num_self_chats", "selfchat_max_turns", "max_turns", "max_display_len"), positive_int),
    **dict.fromkeys(("image_size", "image_cropsize", "width", "height"), positive_int),
    "agent": Whole(0, 1),
    "port": port_number,
    "gpu": Whole(0, 1_023, none=-1),
    "num_workers": Whole(0, 1_024),
    "distributed_world_size": Whole(0, 4_096),
}
NUMBERS: dict[Any, Callable[[str], Any]] = {int: Whole(-(2**63)), float: any_number, "floats": Several(any_number)}


def parse_limited(parse: Any, parser: ParlaiParser, *args: Any, **kwargs: Any) -> Any:
    """Parse flags, of which those that take numbers have their ranges."""
    for action in parser._actions:
        limit_numbers(action)
    return parse(parser, *args, **kwargs)


def limit_numbers(action: argparse.Action) -> None:
    """Give a flag of ParlAI's that takes numbers its range."""
    kind: Any = action.type
    if kind is None and type(action.default) in NUMBERS:  # one that display_model does not convert
        kind = type(action.default)
    if kind in NUMBERS or kind == "multitask_weights":
        action.type = RANGES.get(action.dest) or NUMBERS[kind]


def check_values(
    options: Mapping[str, Any], actions: Iterable[argparse.Action], source: str, whole: bool = False
) -> None:
    """Refuse a value in a file of options that its flag would refuse; what is missing or None is not checked.

    Args:
        whole: whether not only numbers are checked.
    """
    for action in actions:
        value = options.get(action.dest)
        if value is None:
            continue
        limit_numbers(action)
        try:
            if not isinstance(action.type, str | type | None):  # a range
                action.type(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
            elif whole and action.type == "bool":
                boolean(str(value))
            elif whole and action.nargs is None and not isinstance(value, str):
                raise argparse.ArgumentTypeError(f"{value!r} is not a text")
            if whole and action.choices and value not in action.choices:
                raise argparse.ArgumentTypeError(f"give one of {', '.join(map(str, action.choices))}")
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise InputError(f"{source}: {action.dest} cannot be {shown(str(value))} ({error}).") from error
