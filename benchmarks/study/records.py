"""The files of results: one for each run, a JSON line for each measurement, rewritten atomically."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyagents.benchmarks.study.plan import Mark, Row
from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.json_files import fields_of_json, parse_json

END = "end"  # instead of a measurement's mark

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """An evaluation of a model in training when a mark was reached.

    Attributes:
        mark: examples or seconds: the unit of the mark.
        examples: training examples until then.
        updates: updates until then.
        seconds: training seconds until then, without loading, evaluating and saving.
        ranks: the rank of each evaluated example's label, from 1, in the order of the evaluation.
        evaluated: a hash of the examples; only ranks with the same hash can be compared.
        dialogues: how many of the examples each dialogue has, in the same order; None if each is alone.
    """

    mark: str
    at: float
    examples: int
    updates: int
    seconds: float
    ranks: list[int]
    evaluated: str
    dialogues: list[int] | None = None


@dataclass(frozen=True)
class End:
    """The end of a run that reached all of its marks.

    Attributes:
        seconds: training seconds in all.
        milliseconds: of a reply, the median; None if none was timed.
        replies: the number of candidates of that reply.
        pool_ranks: the rank of the label of each of some examples among a pool; None if that was not requested, or
            would take too long.
        pool: the number of candidates of the pool.
        machine: the machine of all times of the run.
    """

    seconds: float
    milliseconds: float | None
    replies: int
    machine: str
    pool_ranks: list[int] | None = None
    pool: int = 0


@dataclass(frozen=True)
class Run:
    """One row with one seed, as far as it was measured.

    Attributes:
        measurements: in the order in which they were made.
        end: None while it is not finished.
    """

    row: str
    seed: int
    measurements: tuple[Measurement, ...] = ()
    end: End | None = None

    def at(self, mark: Mark) -> Measurement | None:
        """Return the measurement at a mark; None if there is none."""
        return next((one for one in self.measurements if Mark(one.mark, one.at) == mark), None)

    def has_all(self, row: Row) -> bool:
        """Return whether it is finished, and measured at each mark of a row."""
        return self.end is not None and all(self.at(mark) for mark in row.marks)


def recall(ranks: Sequence[int]) -> Floats:
    """Return 1 for each example whose label is ranked first, else 0."""
    return (np.asarray(ranks) == 1).astype(float)


def reciprocal(ranks: Sequence[int]) -> Floats:
    """Return one divided by the rank of each example; the mean of these is the MRR."""
    return 1 / np.asarray(ranks, dtype=float)


METRICS = {"R@1": recall, "MRR": reciprocal}


# ---- files -----------------------------------------------------------------------------------------------------------


def file_name(row: Row, seed: int) -> str:
    """Return the name of a run: its row's for people, the seed, and the row's key, which is unique to its flags."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', row.name).strip('-')}-{seed}-{row.key}"


def path_of(folder: str, row: Row, seed: int) -> str:
    """Return the file of a run's results."""
    return os.path.join(folder, f"{file_name(row, seed)}.jsonl")


def write(path: str, run: Run) -> None:
    """Write what is known of a run, atomically."""
    lines: list[dict[str, Any]] = []
    for one in run.measurements:
        means = {name: round(float(metric(one.ranks).mean()), 6) for name, metric in METRICS.items()}
        lines.append({"row": run.row, "seed": run.seed} | means | asdict(one))
    if run.end is not None:
        lines.append({"row": run.row, "seed": run.seed, "mark": END} | asdict(run.end))
    write_text(path, "".join(f"{json.dumps(line)}\n" for line in lines))


def read(path: str, row: Row, seed: int) -> Run:
    """Read a file of results; if there is none, the run is empty.

    Raises:
        InputError: the file is damaged.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [parse_json(line) for line in file]
        return run_of(lines, row.name, seed)
    except FileNotFoundError:
        return Run(row.name, seed)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); remove it, and the run is made again.") from error


def run_of(lines: Sequence[Any], name: str, seed: int) -> Run:
    """Make a run of its lines.

    Raises:
        ValueError: they are not measurements.
    """
    measurements, end = list[Measurement](), None
    for line in lines:
        if not isinstance(line, dict):
            raise ValueError("a line holds no fields")
        fields = {key: value for key, value in line.items() if key not in ("row", "seed", *METRICS)}
        if fields.get("mark") == END:
            del fields["mark"]
            end = fields_of_json(fields, End)
        else:
            measurements.append(fields_of_json(fields, Measurement))
            if min(measurements[-1].ranks, default=0) < 1:
                raise ValueError("a line has no ranks, or one below 1")
    return Run(name, seed, tuple(measurements), end)
