"""Runs of Ranker.train on a small table, beside the encoder that they start from: R@1 on test, over ten splits.

    python -m polyagents.benchmarks.small_tables FOLDER

FOLDER has train, valid and test, as for polyagents.tasks.table; each other split is a shuffle of all their examples.
The untrained encoder ranks the answers, and the answers with the questions that the training reads (docs/faq.md).
"""

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from scipy.special import stdtrit

from polyagents import Ranker
from polyagents.arguments import CommandParser, positive_int
from polyagents.backbone_files import MINILM
from polyagents.index.in_memory import Listed
from polyagents.tasks.table.splits import open_split

SPLITS = ("train", "valid", "test")
COLUMNS = ("answers", "answers with questions", "trained")


def main() -> None:
    """Print a line for each split, and the means with 95 % intervals."""
    parser = CommandParser("small_tables", "Compare runs on a small table with the encoder that they start from.")
    parser.add_argument("table", help="a folder with train, valid and test")
    parser.add_argument("--splits", type=positive_int, default=10)
    parser.add_argument("--model", default="bi", choices=("bi", "poly"))
    parser.add_argument("--join", action="store_true", help="train on valid, too, and validate nothing")
    opt: argparse.Namespace = parser.parse_args()
    start, rows = Ranker.from_encoder(MINILM), []
    how = {"model": opt.model, "backbone": MINILM, "progress": False}
    for seed, (train, valid, test) in enumerate(divisions(opt.table, opt.splits)):
        answers = sorted({label for one in (*train, *valid, *test) for label in one["label"]})
        train, held_out = ([*train, *valid], None) if opt.join else (train, valid)
        ranker = Ranker.train(train, valid=held_out, seed=seed, **how)
        known = {text: [text, *(one["context"] for one in train if text in one["label"])] for text in answers}
        rows.append([recall(start, test, answers), recall(start, test, known), recall(ranker, test, answers)])
        print(f"split {seed}: " + ", ".join(f"{n} {x:.3f}" for n, x in zip(COLUMNS, rows[-1], strict=True)), flush=True)
    answers_only, with_questions, trained = zip(*rows, strict=True)
    for name, column in zip(COLUMNS, (answers_only, with_questions, trained), strict=True):
        print(f"{name}: {interval(column)}")
    for name, column in zip(COLUMNS, (answers_only, with_questions), strict=False):
        print(f"trained minus {name}: {interval([a - b for a, b in zip(trained, column, strict=True)])}")


def interval(values: Sequence[float]) -> str:
    """Say the mean with its 95 % interval, by Student's distribution."""
    wide = stdtrit(len(values) - 1, 0.975) * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f} ± {wide:.3f}"


def divisions(table: str, count: int) -> Iterator[list[list[dict[str, Any]]]]:
    """Yield the splits of a table, and others of the same sizes."""
    read = [list(open_split(table, name)) for name in SPLITS]
    given = [[{"context": one["context"], "label": list(one["labels"])} for one in part] for part in read]
    yield given
    for seed in range(1, count):
        everything = [one for part in given for one in part]
        random.Random(seed).shuffle(everything)
        yield [[everything.pop(0) for _ in part] for part in given]


def recall(ranker: Ranker, test: list[dict[str, Any]], answers: Listed) -> float:
    """Return R@1 among all answers, or options."""
    found = ranker.rank([one["context"] for one in test], answers, top_k=1)
    return statistics.fmean(best[0].text in one["label"] for best, one in zip(found, test, strict=True))


if __name__ == "__main__":
    main()
