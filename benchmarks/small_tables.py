"""Default runs of Ranker.train on a small table, beside the encoder that they start from: R@1 on test, over ten splits.

    python -m polyagents.benchmarks.small_tables FOLDER

FOLDER has train, valid and test, as for polyagents.tasks.table; each other split is a shuffle of all their examples.
"""

import argparse
import random
import statistics
from collections.abc import Iterator
from typing import Any

from polyagents import Ranker
from polyagents.arguments import CommandParser, positive_int
from polyagents.backbone_files import MINILM
from polyagents.tasks.table.splits import open_split

SPLITS = ("train", "valid", "test")


def main() -> None:
    """Print a line for each split, and the means."""
    parser = CommandParser(
        "small_tables", "Compare default runs on a small table with the encoder that they start from."
    )
    parser.add_argument("table", help="a folder with train, valid and test")
    parser.add_argument("--splits", type=positive_int, default=10)
    parser.add_argument("--model", default="bi", choices=("bi", "poly"))
    opt: argparse.Namespace = parser.parse_args()
    start, rows = Ranker.from_encoder(MINILM), []
    for seed, (train, valid, test) in enumerate(divisions(opt.table, opt.splits)):
        answers = sorted({label for one in (*train, *valid, *test) for label in one["label"]})
        ranker = Ranker.train(train, valid=valid, seed=seed, progress=False, model=opt.model, backbone=MINILM)
        rows.append((recall(start, test, answers), recall(ranker, test, answers)))
        print(f"split {seed}: untrained {rows[-1][0]:.3f}, trained {rows[-1][1]:.3f}", flush=True)
    gains = [trained - untrained for untrained, trained in rows]
    means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    print(f"mean: untrained {means[0]:.3f}, trained {means[1]:.3f}, gain {means[1] - means[0]:.3f} (error {error:.3f})")


def divisions(table: str, count: int) -> Iterator[list[list[dict[str, Any]]]]:
    """Yield the splits of a table, and others of the same sizes."""
    read = [list(open_split(table, name)) for name in SPLITS]
    given = [[{"context": one["context"], "label": list(one["labels"])} for one in part] for part in read]
    yield given
    for seed in range(1, count):
        everything = [one for part in given for one in part]
        random.Random(seed).shuffle(everything)
        yield [[everything.pop(0) for _ in part] for part in given]


def recall(ranker: Ranker, test: list[dict[str, Any]], answers: list[str]) -> float:
    """Return R@1 among all answers."""
    found = ranker.rank([one["context"] for one in test], answers, top_k=1)
    return statistics.fmean(best[0].text in one["label"] for best, one in zip(found, test, strict=True))


if __name__ == "__main__":
    main()
