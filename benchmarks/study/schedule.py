"""Chooses and runs the next run: one process at a time, one seed of all rows before the next seed."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polyagents.benchmarks.study import records
from polyagents.benchmarks.study.job import Job
from polyagents.benchmarks.study.plan import Row, Study, command_line
from polyagents.console import number_of, say
from polyagents.files.locks import exclusive_folder
from polyagents.files.own_folder import LOCK

OTHER_DRAWS = 1_000  # between the seeds of a row and of the one that starts from its weights


@dataclass(frozen=True)
class Places:
    """The paths of a study's files.

    Attributes:
        work: the folder of logs, and of the models that other rows build on.
    """

    results: str
    work: str

    def model_folder(self, row: Row, seed: int) -> str:
        """Return the folder of a run's model; a run with another end has another one."""
        return os.path.join(self.work, f"{records.file_name(row, seed)}-{row.end}")

    def model_file(self, row: Row, seed: int) -> str:
        """Return the model file of a run."""
        return os.path.join(self.model_folder(row, seed), "M")

    def log(self, row: Row, seed: int) -> str:
        """Return the log of a run's process."""
        return f"{self.model_folder(row, seed)}.log"


def missing(study: Study, places: Places, seed: int) -> list[Row]:
    """Return the rows that must be run with a seed, each after those that it builds on.

    Those are run again, too, where their model is not in the work folder: results and model then belong together.
    """
    wanted = set[str]()
    for row in reversed(study.rows):
        run = records.read(records.path_of(places.results, row, seed), row, seed)
        gone = not os.path.exists(places.model_file(row, seed))
        needed = any(row.name in other.builds_on for other in study.rows if other.name in wanted)
        if not run.has_all(row) or (needed and gone):
            wanted.add(row.name)
    return [row for row in study.rows if row.name in wanted]


def carry_out(study: Study, places: Places, values: Mapping[str, str]) -> list[str]:
    """Run what is missing.

    Args:
        study: all of its rows with all of its seeds.

    Returns:
        A sentence for each run that failed; rows that build on it were skipped.
    """
    # Each run has a new folder within: nothing of an earlier study's is overwritten.
    with exclusive_folder(places.work, "study", "--work", lambda folder: os.path.exists(os.path.join(folder, LOCK))):
        planned = [(seed, row) for seed in study.seeds for row in missing(study, places, seed)]
        failed: dict[tuple[int, str], str] = {}
        for number, (seed, row) in enumerate(planned, 1):
            say(f"[{number}/{len(planned)}] {row.name}, seed {seed}")
            if any((seed, name) in failed for name in row.builds_on):
                failed[seed, row.name] = f"{row.name}, seed {seed}: left out, as what it builds on failed."
            elif sentence := run(study, row, seed, places, values):
                failed[seed, row.name] = sentence
        return list(failed.values())


def run(study: Study, row: Row, seed: int, places: Places, values: Mapping[str, str]) -> str | None:
    """Carry out one run in a process of its own.

    Returns:
        What went wrong; None if nothing did.
    """
    job = job_of(study, row, seed, places, values)
    with open(places.log(row, seed), "w", encoding="utf-8") as log:
        done = subprocess.run(job.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        shutil.rmtree(job.folder, ignore_errors=True)
        return f"{row.name}, seed {seed}: failed with exit code {done.returncode}; {last_line(log.name)} ({log.name})"
    for one in records.read(job.results, row, seed).measurements:
        recall = records.recall(one.ranks).mean()
        say(f"    R@1 {recall:.3f} after {number_of(one.examples, 'example')}, {one.seconds:,.1f} s of training")
    return None


def job_of(study: Study, row: Row, seed: int, places: Places, values: Mapping[str, str]) -> Job:
    """Make the input of a run's process."""
    read = study.row(row.first) if row.is_pipeline else row
    files = {below.name: places.model_file(below, seed) for below in study.all_below(row)}
    rerank = (files[row.first], files[row.then], row.flags["top"]) if row.is_pipeline else None
    return Job(
        row=row.name,
        seed=seed,
        draws=seed + OTHER_DRAWS * study.trainings_before(row),
        words=command_line(read, study, {**values, "SEED": str(seed)}, files),
        marks=list(row.marks),
        split=study.evaluation.split,
        num_examples=study.evaluation.num_examples,
        replies=study.replies,
        pool=study.pool,
        pool_examples=study.pool_examples,
        rerank=rerank,
        folder=places.model_folder(row, seed),
        results=records.path_of(places.results, row, seed),
        keep=any(row.name in other.builds_on for other in study.rows),
        parent=os.getpid(),
    )


def last_line(path: str) -> str:
    """Return the last line of a log."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1] if lines else "it said nothing"


def others_in(folder: str, study: Study) -> Sequence[str]:
    """Return results of runs that the study no longer has."""
    known = {os.path.basename(records.path_of(folder, row, seed)) for row in study.rows for seed in study.seeds}
    there = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in there if name.endswith(".jsonl") and name not in known)
