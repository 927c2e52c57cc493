"""Rankings and right answers as TREC's text files, which trec_eval, ir_measures, ranx and pytrec_eval read.

A run has a line for each ranked candidate, `1 Q0 17 3 8.25 name`: example, the word Q0, candidate, rank, score, name
of the run. The qrels ("query relevance") have one for each right answer, `1 0 17 1`. An example's name is its number in
the evaluation, from 1; a candidate's is its place in the list that the example ranked, from 0.
"""

import contextlib
import re
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from polyagents.evaluation.judged import Judged
from polyagents.files.atomic import atomic_write

DEPTH = 1_000  # candidates of an example in a run, as in TREC's tracks

Write = Callable[[int, Judged], None]
"""Takes the number of an example, from 1, and its ranked candidates."""


@contextlib.contextmanager
def trec_files(run: str | None, qrels: str | None, name: str) -> Iterator[Write]:
    """Open a run and qrels, each written atomically; None for one that is not wanted.

    The context is a function that writes an example to both. White space in the run's name is replaced. An InputError
    says if a file cannot be written.
    """
    word = re.sub(r"\s+", "_", name) or "run"
    with contextlib.ExitStack() as files:
        run_file, qrels_file = (
            files.enter_context(open(files.enter_context(atomic_write(path)), "w", encoding="utf-8", newline="\n"))
            if path
            else None
            for path in (run, qrels)
        )

        def write(number: int, judged: Judged) -> None:
            if run_file:
                run_file.writelines(run_lines(number, judged, word))
            if qrels_file:
                qrels_file.writelines(f"{number} 0 {column} 1\n" for column in judged.columns[judged.right].tolist())

        yield write


def run_lines(number: int, judged: Judged, name: str) -> Iterator[str]:
    """Format an example, numbered from 1, for a run: its `DEPTH` best candidates, best first."""
    best = judged.best(DEPTH)
    scores = strictly_falling(judged.scores[best])
    for rank, (column, score) in enumerate(zip(judged.columns[best].tolist(), scores, strict=True), 1):
        yield f"{number} Q0 {column} {rank} {score!s} {name}\n"


def strictly_falling(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Separate equal scores by the smallest step of fp32: scores in falling order, [n] -> [n].

    A program that reads a run sorts it by score, ignores the ranks, and breaks ties by the candidates' names, each in
    its own way. Without ties every program has the same ranking, which is ours.
    """
    fallen = scores.astype(np.float32)
    for place in np.flatnonzero(np.diff(fallen) >= 0).tolist():
        while place + 1 < len(fallen) and fallen[place + 1] >= fallen[place]:
            fallen[place + 1] = np.nextafter(fallen[place], np.float32(-np.inf))
            place += 1
    return fallen
