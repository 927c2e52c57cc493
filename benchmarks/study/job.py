"""The input of the process of one run, on its command line."""

import json
import os
import sys
from dataclasses import asdict, dataclass

from polyagents.benchmarks.study.plan import Mark


@dataclass(frozen=True)
class Job:
    """A row with a seed.

    Attributes:
        row: the name of the row.
        seed: the seed of the run.
        draws: the seed for the order of the examples, dropout, and negatives.
        words: flags of train_model, without the model's file and the seed.
        split: evaluated at each of them.
        num_examples: how many of its examples.
        replies: candidates of the timed replies; None if none is timed.
        folder: for the model, emptied first.
        pool: candidates of a larger ranking of the finished model; None if there is none.
        rerank: for a pipeline, the model files of its two rows and how many candidates are re-ranked; its words are
            those of its first row, which name the task. None if the row is trained.
        keep: whether another row builds on the model.
        parent: the process of the study; a run ends when it has gone.
    """

    row: str
    seed: int
    draws: int
    words: list[str]
    marks: list[Mark]
    split: str
    num_examples: int
    replies: int | None
    pool: int | None
    pool_examples: int
    rerank: tuple[str, str, int] | None
    folder: str
    results: str
    keep: bool
    parent: int

    @property
    def model_file(self) -> str:
        """The path of the model, if it is kept."""
        return os.path.join(self.folder, "M")

    def command(self) -> list[str]:
        """Return the command that runs it."""
        return [sys.executable, "-m", "polyagents.benchmarks.study.run_row", json.dumps(asdict(self))]

    @classmethod
    def of_json(cls, text: str) -> "Job":
        """Parse the job of a command line."""
        fields = json.loads(text)
        return cls(**fields | {"marks": [Mark(**mark) for mark in fields["marks"]]})
