"""The results of a study's rows at each mark, and the differences between rows."""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polyagents.benchmarks.study import records
from polyagents.benchmarks.study.plan import EXAMPLES, FINISHED, SECONDS, Mark, Row, Study
from polyagents.benchmarks.study.records import METRICS, Floats, Measurement, Run, recall
from polyagents.benchmarks.study.statistics import Estimate, estimate
from polyagents.errors import InputError

Runs = Mapping[tuple[str, int], Run]
"""The runs of a study, by the name of the row and the seed."""

ALL_PAIRS = 8  # rows up to which each is compared with each, not only with the first


@dataclass(frozen=True)
class Reached:
    """A row at a mark: means over the seeds that are measured there.

    Attributes:
        mark: one of the row's marks.
        found: the measurement of each seed.
        seconds: training seconds.
        total: those and all of the rows that it builds on; None if one of these has no results.
        metrics: R@1 and MRR.
        pool: of the finished model among a pool; empty if they were not measured.
        milliseconds: of a reply of the finished model; None if none was timed.
    """

    row: Row
    mark: Mark
    found: Mapping[int, Measurement]
    examples: float
    seconds: float
    total: float | None
    metrics: Mapping[str, Estimate]
    pool: Mapping[str, Estimate]
    milliseconds: float | None


@dataclass(frozen=True)
class Difference:
    """R@1 of a row less another's, at a mark of each, over the seeds that both have."""

    row: Reached
    other: Reached
    seeds: int
    estimate: Estimate


def read_runs(study: Study, folder: str) -> Runs:
    """Read the results of a study.

    Raises:
        InputError: a file is damaged, or rows were evaluated on different examples.
    """
    runs, evaluated = {}, dict[str, str]()
    for row, seed in itertools.product(study.rows, study.seeds):
        path = records.path_of(folder, row, seed)
        runs[row.name, seed] = records.read(path, row, seed)
        evaluated |= {one.evaluated: path for one in runs[row.name, seed].measurements}
    if len(evaluated) > 1:
        first, second, *_ = evaluated.values()
        raise InputError(
            f"{first} and {second} were evaluated on different examples, and cannot be compared; remove the one of the "
            f"data that you do not mean, and the run is made again."
        )
    return runs


def reached(study: Study, runs: Runs, row: Row, mark: Mark) -> Reached | None:
    """Return a row at a mark; None if no seed has been measured there."""
    found = {seed: runs[row.name, seed].at(mark) for seed in study.seeds}
    return over_seeds(study, runs, row, mark, {seed: one for seed, one in found.items() if one is not None})


def over_seeds(study: Study, runs: Runs, row: Row, mark: Mark, found: Mapping[int, Measurement]) -> Reached | None:
    """Combine the measurements of a row by seed; None if there are none."""
    if not found:
        return None
    totals = [total_seconds(study, runs, row, seed, one.seconds) for seed, one in found.items()]
    ends = [end for seed in study.seeds if (end := runs[row.name, seed].end) is not None]
    times = [end.milliseconds for end in ends if end.milliseconds is not None]
    pools = [end.pool_ranks for end in ends if end.pool_ranks is not None]
    return Reached(
        row,
        mark,
        found,
        statistics.mean(one.examples for one in found.values()),
        statistics.mean(one.seconds for one in found.values()),
        statistics.mean(known) if len(known := [one for one in totals if one is not None]) == len(totals) else None,
        metrics_of([one.ranks for one in found.values()], dialogues_of(found)),
        metrics_of(pools) if pools else {},
        statistics.mean(times) if times else None,
    )


def metrics_of(ranks: Sequence[Sequence[int]], dialogues: Sequence[int] | None = None) -> dict[str, Estimate]:
    """Compute R@1 and MRR of the ranks of several seeds; `dialogues` as for `estimate`."""
    values = {name: np.stack([metric(one) for one in ranks]) for name, metric in METRICS.items()}
    return {name: estimate(one, dialogues).as_share() for name, one in values.items()}


def dialogues_of(found: Mapping[int, Measurement]) -> list[int] | None:
    """Return the lengths of the dialogues that all seeds have evaluated."""
    return next(iter(found.values())).dialogues


def total_seconds(study: Study, runs: Runs, row: Row, seed: int, own: float) -> float | None:
    """Return training seconds of a run and of all that it builds on; None if one of those is not finished.

    Args:
        own: the seconds of the run itself.
    """
    ends = [runs[below.name, seed].end for below in study.all_below(row)]
    return None if None in ends else own + sum(end.seconds for end in ends if end is not None)


def at_last_examples(study: Study, runs: Runs) -> list[Reached]:
    """Return every row at its last mark of examples."""
    last = [(row, Mark(EXAMPLES, row.examples[-1])) for row in study.rows if row.examples]
    return [one for row, mark in last if (one := reached(study, runs, row, mark)) is not None]


def at_seconds(study: Study, runs: Runs) -> list[Reached]:
    """Return every row at its mark of seconds."""
    marks = [(row, mark) for row in study.rows for mark in row.marks if mark.kind == SECONDS]
    return [one for row, mark in marks if (one := reached(study, runs, row, mark)) is not None]


def finished(study: Study, runs: Runs) -> list[Reached]:
    """Return every finished model at its last measurement, pipelines included."""
    rows = []
    for row in study.rows:
        ended = {seed: run for seed in study.seeds if (run := runs[row.name, seed]).end is not None}
        last = {seed: run.measurements[-1] for seed, run in ended.items() if run.measurements}
        rows.append(over_seeds(study, runs, row, Mark(FINISHED, 0), last))
    return [row for row in rows if row is not None]


def curve(study: Study, runs: Runs, row: Row) -> list[Reached]:
    """Return a row at all of its marks, in the order of its training."""
    found = [one for mark in row.marks if (one := reached(study, runs, row, mark)) is not None]
    return sorted(found, key=lambda one: one.examples)


def pairs(rows: Sequence[Reached]) -> Iterator[tuple[Reached, Reached]]:
    """Yield the rows to compare: all with each other, or with the first if there are many; the later comes first."""
    for first, second in itertools.combinations(rows, 2):
        if len(rows) <= ALL_PAIRS or first is rows[0]:
            yield second, first


def differences(rows: Sequence[Reached]) -> list[Difference]:
    """Return how rows differ in R@1, paired by seed and example; pairs without a common seed are skipped."""
    found = []
    for row, other in pairs(rows):
        values = paired(row.found, other.found)
        if values is not None:
            found.append(Difference(row, other, len(values), estimate(values, dialogues_of(row.found))))
    return found


def paired(first: Mapping[int, Measurement], second: Mapping[int, Measurement]) -> Floats | None:
    """Return R@1 of one row less another's for each common seed and example, [S, E]; None without one.

    Args:
        first: the measurements of one row by seed.
        second: those of the other.
    """
    seeds = [seed for seed in first if seed in second]
    if not seeds:
        return None
    return np.stack([recall(first[seed].ranks) - recall(second[seed].ranks) for seed in seeds])
