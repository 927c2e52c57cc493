"""One row with one seed, trained and measured, in a process of its own that schedule.py starts.

Training is ParlAI's loop with the row's flags. Its batches are timed one by one, so that a training second is one that
was spent in them: loading, evaluating and saving do not count.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from parlai.core.opt import Opt
from parlai.scripts.train_model import TrainLoop, TrainModel, set_seed

from polyagents.benchmarks.study import measuring, records, text_ranking
from polyagents.benchmarks.study.job import Job
from polyagents.benchmarks.study.plan import Mark
from polyagents.benchmarks.study.records import End, Measurement, Run
from polyagents.benchmarks.study.text_ranking import Pipeline
from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.parlai_patches import patches
from polyagents.parlai_patches.compat import quiet
from polyagents.parlai_patches.exchanges import world_in_order
from polyagents.ranker import Ranker
from polyagents.timings import training_machine


class AllMarksReached(Exception):
    """Ends ParlAI's loop without its last steps: saving a checkpoint and loading the model again."""


class TimedBatches:
    """A world's `parley`, with the measurements between two updates.

    Attributes:
        seconds: the seconds that were spent in it.

    Args:
        update_freq: batches per update.
        measure: a callback with the marks that have been reached, and examples, updates and seconds until now.
        clock: in seconds.
    """

    def __init__(
        self,
        parley: Callable[[], Any],
        batchsize: int,
        update_freq: int,
        marks: Sequence[Mark],
        measure: Callable[[Sequence[Mark], int, int, float], None],
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.parley, self.batchsize, self.update_freq = parley, batchsize, update_freq
        self.ahead, self.measure, self.clock = list(marks), measure, clock
        self.batches, self.seconds = 0, 0.0

    def __call__(self) -> None:
        """Train on a batch; measure if that has reached a mark.

        Raises:
            AllMarksReached: there are no more marks.
        """
        begin = self.clock()
        self.parley()
        self.seconds += self.clock() - begin
        self.batches += 1
        if self.batches % self.update_freq:
            return
        examples = self.batches * self.batchsize
        due = [mark for mark in self.ahead if mark.reached(examples, self.seconds)]
        if due:
            self.measure(due, examples, self.batches // self.update_freq, self.seconds)
            self.ahead = [mark for mark in self.ahead if mark not in due]
        if not self.ahead:
            raise AllMarksReached


class MeasuredTraining:
    """ParlAI's loop over one row, and its measurements until now.

    Args:
        loop: with the row's flags.
    """

    def __init__(self, job: Job, loop: TrainLoop):
        self.job, self.loop = job, loop
        self.run = Run(job.row, job.seed)
        self.evaluated: Any = None
        self.parley = loop.world.parley
        self.batches = TimedBatches(
            self.parley_for_the_study, loop.opt["batchsize"], loop.update_freq, job.marks, self.measure
        )
        loop.world.parley = self.batches

    def parley_for_the_study(self) -> None:
        """Train on one batch, unless the study that waits for the run has gone.

        Raises:
            InputError: the study was killed.
        """
        if os.getppid() != self.job.parent:
            raise InputError("The study that this run belongs to has gone.")
        self.parley()

    def train(self) -> None:
        """Train until all marks are reached.

        Raises:
            InputError: the training ended before.
        """
        try:
            for _ in self.loop.train_steps():
                pass
        except AllMarksReached:
            return
        raise InputError(
            f"The training ended after {number_of(self.batches.batches, 'batch', 'batches')}, before its marks."
        )

    def measure(self, due: Sequence[Mark], examples: int, updates: int, seconds: float) -> None:
        """Evaluate the model once for all marks that it has reached, and write the results.

        Args:
            examples: training examples until now.
            updates: updates until now.
            seconds: training seconds until now.
        """
        with measuring.undisturbed():
            if self.evaluated is None:
                opt = measuring.evaluation_opt(self.loop.opt, self.job.split)
                self.evaluated = world_in_order(opt, self.loop.agent, self.job.num_examples)
            found = measuring.evaluate(self.evaluated)
        for mark in due:
            one = Measurement(mark.kind, mark.at, examples, updates, round(seconds, 3), *found)
            self.run = replace(self.run, measurements=(*self.run.measurements, one))
        records.write(self.job.results, self.run)


def finish(job: Job, opt: Opt, run: Run, pipeline: Pipeline, seconds: float) -> None:
    """Measure what a finished model is measured on besides, and write down that the run has ended."""
    milliseconds, candidates = None, list[str]()
    if job.replies is not None:
        candidates = measuring.distinct_labels(opt, job.replies)
        prepared = pipeline.first.prepare(candidates)
        examples, _ = measuring.examples_of(opt, job.split, measuring.TIMED_CONTEXTS[1])
        milliseconds = measuring.milliseconds_per_reply(lambda text: pipeline.reply(text, prepared), examples)
    ranks, pool = None, list[str]()
    if job.pool is not None and pipeline.searches():
        examples, _ = measuring.examples_of(opt, job.split, job.pool_examples)
        own = (example.labels[0] for example in examples)
        pool = measuring.distinct_labels(opt, job.pool, own, (measuring.TRAIN, measuring.VALID))
        ranks = text_ranking.ranks_in_pool(pipeline, examples, pool)
    end = End(round(seconds, 3), milliseconds, len(candidates), training_machine(), ranks, len(pool))
    records.write(job.results, replace(run, end=end))


def carry_out(job: Job) -> None:
    """Run a row: train it, or combine a pipeline, and write the measurements.

    A run that was killed starts from its beginning: one that resumes from a checkpoint would meet other examples.

    Raises:
        InputError: the training ended before its marks.
    """
    patches.apply()
    given = ["--model-file", job.model_file, "--seed", str(job.draws)]
    opt = TrainModel.setup_args().parse_args([*job.words, *given])
    with quiet():
        if job.rerank is None:
            carry_out_training(job, opt)
        else:
            carry_out_pipeline(job, opt, *job.rerank)


def carry_out_training(job: Job, opt: Opt) -> None:
    """Train, measure, and keep the model if another row builds on it.

    Raises:
        InputError: the training ended before its marks.
    """
    shutil.rmtree(job.folder, ignore_errors=True)
    os.makedirs(job.folder)
    training = MeasuredTraining(job, TrainLoop(opt))
    set_seed(job.draws)  # as train_model does
    training.train()
    if job.keep:
        training.loop.agent.save(job.model_file)
    pipeline = Pipeline(Ranker(training.loop.agent.ranking))
    finish(job, training.loop.opt, training.run, pipeline, training.batches.seconds)
    if not job.keep:
        shutil.rmtree(job.folder)


def carry_out_pipeline(job: Job, opt: Opt, first: str, then: str, top: int) -> None:
    """Measure how one finished model's best candidates are re-ranked by another."""
    pipeline = Pipeline(Ranker.load(first), Ranker.load(then), top)
    examples, evaluated = measuring.examples_of(opt, job.split, job.num_examples)
    ranks = text_ranking.ranks_in_own_lists(pipeline, examples)
    dialogues = measuring.lengths(example.dialogue for example in examples)
    (mark,) = job.marks
    run = Run(job.row, job.seed, (Measurement(mark.kind, mark.at, 0, 0, 0.0, ranks, evaluated, dialogues),))
    finish(job, opt, run, pipeline, 0.0)


if __name__ == "__main__":
    carry_out(Job.of_json(sys.argv[1]))
