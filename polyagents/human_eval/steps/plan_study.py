"""`polyagents human_eval plan`: what a study needs before it starts."""

import argparse
import json
import math
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, Real, positive, positive_int


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(
        "polyagents human_eval plan",
        "How many judgements, people and how much money a comparison of two models needs, by the report's own test "
        "(two-sided binomial, p < .05).",
    )
    parser.add_argument(
        "--difference",
        type=Real("a difference of .01 to .5 (excluded)", 0.01, 0.5),
        default=0.1,
        help="how far the better model's win rate is above a half: .1 means that it is preferred in 60 %% of cases",
    )
    parser.add_argument("--wage", type=positive, default=12.0, help="what a person earns in an hour")
    parser.add_argument("--minutes", type=positive, default=1.0, help="of one judgement")
    parser.add_argument("--judgements", type=positive_int, default=20, help="of each person")
    parser.add_argument(
        "--power",
        type=Real("a probability between .5 and .999", 0.5, 0.999),
        default=0.8,
        help="how likely the study shall be to find the difference",
    )
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Print what the study needs."""
    from polyagents.human_eval.statistics.win_rates import judgements_needed  # loads SciPy

    pairs = judgements_needed(opt["difference"], opt["power"])
    each = min(opt["judgements"], pairs)  # nobody judges a pair twice
    people = math.ceil(pairs / each)
    hours = people * each * opt["minutes"] / 60
    # Each pair is judged once, as the test takes judgements as independent.
    needs = {"pairs": pairs, "people": people, "hours": round(hours, 1), "sum": round(hours * opt["wage"], 2)}
    print(json.dumps(needs | {"win_rate": round(0.5 + opt["difference"], 4), "power": opt["power"]}))
