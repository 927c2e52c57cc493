"""The training loop of Ranker.train: the step of ParlAI's agents, without ParlAI."""

import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.json_files import fields_of_json
from polyagents.model_files.initial_weights import refuse_another_metric
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training import optimising
from polyagents.training.candidate_sources import TrainingCandidates
from polyagents.training.distillation import Distillation
from polyagents.training.late_values import LateValues, read_all
from polyagents.training.objective import Objective, training_scores
from polyagents.training.watch import Watch
from polyagents.training_loop.budget import COPIES, VALIDATIONS, held_out_examples, validations
from polyagents.training_loop.callbacks import Callback, Report
from polyagents.training_loop.schedule import ENDING, LateDropout, Schedule
from polyagents.training_loop.summary import said_over
from polyagents.training_loop.text_example import TextExample
from polyagents.training_loop.training_data import TrainingData, batches, token_ids_of
from polyagents.training_loop.training_files import STATE, TrainingFiles, drawing_state, restore_draws
from polyagents.training_loop.training_options import TrainingOptions
from polyagents.training_loop.validation import SMALLER_IS_BETTER, Validation, least_kept, validate

NAMES = {"mean_loss": "loss", "train_accuracy": "hits@1"}  # ParlAI's reports -> ours


@dataclass
class TrainingProgress:
    """The progress of a run, stored in its checkpoint.

    Attributes:
        epoch: completed passes over the examples.
        examples: how many examples of the current pass were trained on.
        size: how many examples a pass has; None before the end of the first, if it had to be counted.
        best: the best value of the validation metric; None before the first.
        start: its value before the first update.
        kept: its value of the model that is kept, a later one than the best if `least_kept` allows it.
        is_start: whether that is the model before the first update.
        impatience: validations since then, none of which was better.
        validated: updates at the last validation.
        validated_epochs: epochs at the last validation.
        validated_progress: the progress at the last validation, 0 to 1.
        held_out: how many validation examples are taken; None for all.
        validations: how often to validate after the start, if no option says it; None before that is known.
        seconds: how long it took until the last checkpoint.
        begun: seconds before the first update.
        unreported: sums of the figures that were not reported until then, and their counts, by name.
        reports: updates, loss and R@1 of every report.
        evaluations: the same of every evaluation.
    """

    updates: int = 0
    epoch: int = 0
    examples: int = 0
    size: int | None = None
    best: float | None = None
    start: float | None = None
    kept: float | None = None
    is_start: bool = False
    impatience: int = 0
    validated: int = 0
    validated_epochs: float = 0.0
    validated_progress: float = 0.0
    held_out: int | None = None
    validations: int | None = None
    seconds: float = 0.0
    begun: float = 0.0
    unreported: dict[str, list[float]] = field(default_factory=dict)
    reports: list[list[float]] = field(default_factory=list)
    evaluations: list[list[float]] = field(default_factory=list)


class Trainer:
    """One training run.

    Attributes:
        progress: progress so far.
        is_best: whether the last evaluation was the best so far.
        evaluation: the report of the last evaluation.
        stop: set it to end the run after the update.
    """

    def __init__(
        self,
        model: RankingModel,
        data: TrainingData,
        valid: Validation,
        options: TrainingOptions,
        files: TrainingFiles,
        callbacks: Sequence[Callback] = (),
        distillation: Distillation | None = None,
    ):
        """Prepare a run; without validation examples nothing is evaluated. Refuse options that contradict others."""
        self.model, self.data, self.valid, self.options = model, data, valid, options
        self.files, self.callbacks, self.budget = files, callbacks, options.budget
        self.parameters = [p for p in model.module.parameters() if p.requires_grad]
        self.optimizer = optimizer_of(model, options)
        self.scaler = torch.amp.GradScaler(model.device.type, enabled=model.settings.encoder.precision == "fp16")
        self.progress = TrainingProgress(size=data.size)
        self.schedule = Schedule(
            self.optimizer,
            options.lr_scheduler,
            options.warmup_updates,
            options.warmup_rate,
            None if options.max_train_time else self.last_update,
            options.lr_scheduler_decay,
            options.lr_scheduler_patience,
            has_progress=options.max_train_time is not None,
        )
        self.dropout = LateDropout(model, options.lr_scheduler)
        self._rate = 0.0  # of the last update
        draw = random.Random(options.seed)
        self.candidates = TrainingCandidates(
            model, draw, options.cross_negatives, "the list of examples", data.has_candidates
        )
        self.objective = Objective(model, distillation)
        self.is_best = self.stop = False
        self.evaluation: Report = {}
        self._pending = 0  # batches of the next update
        self._watch = Watch(model.device, self.optimizer)
        self._last: LateValues | None = None
        self._unreported: list[LateValues] = []  # of the batches since the last report
        self._saved_at = self._counted_at = time.monotonic()
        torch.manual_seed(options.seed)

    @property
    def updates(self) -> int:
        """The number of updates so far."""
        return self.progress.updates

    @property
    def is_finished(self) -> bool:
        """Whether the training that has ended was not stopped before its end."""
        return not self.stop or self._is_over()

    @property
    def last(self) -> Report:
        """Loss and hits@1 of the last batch. Reading it waits for the GPU, so read it rarely."""
        return {} if self._last is None else {n: sum(v) / len(v) for n, v in numbers_of([self._last]).items()}

    @property
    def epochs(self) -> float:
        """Passes over the examples; a whole number as long as the number of examples is not known."""
        size = self.progress.size
        return self.progress.epoch + (self.progress.examples / size if size else 0)

    @property
    def run_progress(self) -> float | None:
        """The progress of the run, 0 to 1; None if its end is a number of epochs whose size is not known yet."""
        known = self.budget if self.progress.size is not None else replace(self.budget, epochs=None)
        return known.progress(self.updates, self.epochs, self.seconds, self.progress.begun)

    @property
    def seconds(self) -> float:
        """How long the training has taken, earlier runs of a resumed one included."""
        return self.progress.seconds + time.monotonic() - self._counted_at

    @property
    def last_update(self) -> int | None:
        """The maximal number of updates, if known."""
        limits = [self.options.max_train_steps] if self.options.max_train_steps else []
        if self.options.num_epochs and self.progress.size:
            rest, whole = math.modf(self.options.num_epochs)
            sizes = [self.progress.size] * int(whole) + [math.ceil(rest * self.progress.size)]
            total = sum(math.ceil(size / (self.options.batchsize or 1)) for size in sizes)
            limits.append(total // self.options.update_freq)
        return min(limits) if limits else None

    # ---- the loop --------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train until the last update or epoch, until patience ends, or until a callback stops it.

        The model has its best weights afterwards, by the validation metric; without validation examples its last ones.

        Raises:
            InputError: an example is not possible, gradients are repeatedly not finite, no weight changed, or the disk
                is full.
        """
        self._tell("on_train_begin")
        try:
            if self.updates and self._is_over():
                say(said_over(self.files.file, self.updates))
            if self.valid and not self.updates and not self.progress.evaluations:
                self._validate_start()
            for batch in self._batches():
                self._train_on(batch)
                if self._pending:
                    continue
                self._rate = self.optimizer.param_groups[0]["lr"]
                norm = optimising.step(self.optimizer, self.scaler, self.parameters, self.options.gradient_clip)
                self._watch.saw_update(norm)
                self.progress.updates += 1
                skipped = self._look() if self._watch.is_due else 0
                if not skipped:
                    self.schedule.after_update(self.updates, self.run_progress)
                self._after_update()
            self._finish()
        finally:
            self.dropout.follow(1)  # as it was: the caller may go on with the model
            self._tell("on_train_end")

    def _batches(self) -> Iterator[list[TextExample]]:
        """Yield batches from the current progress on, until the run ends."""
        done, size = self.progress, self.options.batchsize or 1
        while not (self.stop or self._is_over()):
            self.dropout.follow(done.epoch)
            for batch in batches(self.data.epoch(done.epoch, done.examples), size):
                done.examples += len(batch)
                yield batch
                if self.stop or self._is_over():
                    return
            if not done.examples:
                raise InputError("There are no examples to train on.")
            done.size = done.examples
            done.epoch, done.examples = done.epoch + 1, 0
            if self.data.is_read_once:
                return

    def _is_over(self) -> bool:
        """Return whether nothing is left for a resumed run."""
        options = self.options
        impatient = 0 < options.validation_patience <= self.progress.impatience
        return impatient or self.budget.progress(self.updates, self.epochs, self.seconds, self.progress.begun) == 1.0

    def _finish(self) -> None:
        """End the run; a stopped one does not change, so that a later call can resume it."""
        done = self.progress
        self._look()
        self._watch.check_learned()
        if self.is_finished:
            if self.valid and self.updates > (done.evaluations[-1][0] if done.evaluations else 0):
                self._validate(in_turn=False)
            self._log()
        self._save()  # before M
        if not self.valid or done.best is None:
            self.files.keep_best(self.model)
        self.files.load_best(self.model)
        self.model.module.eval()

    # ---- a step ----------------------------------------------------------------------------------------------------

    def _train_on(self, batch: Sequence[TextExample]) -> None:
        """Add a batch's gradients to the next update's."""
        self.model.module.train()
        if not self._pending:
            self.optimizer.zero_grad()
        examples = token_ids_of(self.model, batch, self.candidates.random)
        assert self.options.candidates is not None
        candidates = self.candidates.of(self.options.candidates, examples, None)
        scored = training_scores(self.model, examples.contexts, candidates, self.options.chunk_tokens)
        loss = self.objective.of(scored, examples, candidates)
        loss.backward([len(batch)], self.scaler, self.options.update_freq)
        self._pending = (self._pending + 1) % self.options.update_freq
        self._watch.saw_batch(self.updates + 1, loss.losses, examples)
        self._last = loss.values
        self._unreported.append(loss.values)

    def _look(self) -> int:
        """Say what went wrong since the last look; take skipped updates from the count, and return their number."""
        found = self._watch.look(self.updates)
        for sentence in found.wrong:
            say(sentence)
        self.progress.updates -= found.skipped
        return found.skipped

    def _after_update(self) -> None:
        """Do the reports, evaluations and checkpoints that are due."""
        options = self.options
        self._tell("on_step_end")
        if self.updates % options.log_every_n_steps == 0:
            self._log()
        if self.valid and self._is_validation_due():
            self._validate()
            self._save()
        elif time.monotonic() - self._saved_at > options.save_every_n_secs:
            self._save()

    def _is_validation_due(self) -> bool:
        options, done = self.options, self.progress
        if options.validation_every_n_steps is not None:
            return self.updates - done.validated >= options.validation_every_n_steps
        if options.validation_every_n_epochs is not None:
            return self.epochs - done.validated_epochs >= options.validation_every_n_epochs
        since = (self.run_progress or 0.0) - done.validated_progress
        return since * (done.validations or VALIDATIONS) >= 1.0 - 1e-9

    # ---- reports ---------------------------------------------------------------------------------------------------

    def _log(self) -> None:
        """Report the means since the last report."""
        self._sum_up()
        sums, self.progress.unreported = self.progress.unreported, {}
        if report := {name: total / count for name, (total, count) in sums.items()}:
            self.progress.reports.append([self.updates, report["loss"], report["hits@1"]])
            self._tell("on_log", report | {"lr": self._rate, "epoch": self.epochs})

    def _sum_up(self) -> None:
        """Add unreported values to the sums of the progress, which a checkpoint stores."""
        sums = self.progress.unreported
        for name, numbers in numbers_of(self._unreported).items():
            total, count = sums.get(name, (0.0, 0))
            sums[name] = [sum(numbers, total), count + len(numbers)]
        self._unreported = []

    def _validate_start(self) -> None:
        """Validate the model that the training starts from; decide how often to validate, and how many examples."""
        self._save()  # before M, which this validation writes
        done, options, seconds = self.progress, self.options, 0.0
        if options.max_train_time is not None:
            begin, some = time.monotonic(), self.valid.first(options.batchsize)
            validate(self.model, some, options.batchsize or 1)
            seconds = (time.monotonic() - begin) / len(some)
        step = (options.batchsize or 1) * options.update_freq
        affordable = self.budget.affordable(done.size or math.inf, step, self._validation_cost(), seconds)
        by_itself = options.validation_every_n_steps is options.validation_every_n_epochs is None
        if options.validation_max_exs is None and by_itself:
            done.held_out = held_out_examples(affordable, len(self.valid))
            self.valid = self.valid.first(done.held_out)
        done.validations = validations(affordable / len(self.valid))
        self._validate()
        done.begun = self.seconds
        self._save()

    def _validation_cost(self) -> float:
        """Return how long a validation example takes, as a part of a forward pass of a training example."""
        held_out, answers = len(self.valid), self.valid.answers
        if self.model.encodes_candidates:
            return (held_out + len(answers or self.valid.examples)) / (2 * held_out)
        own = self.valid.examples[0].candidates or ()
        return (len(answers) if answers else len(own) or self.options.batchsize or 1) / COPIES

    def _validate(self, in_turn: bool = True) -> None:
        """Rank the validation examples; keep the model if it is the best so far, or as good at a smaller rate.

        Args:
            in_turn: whether a longer training would validate here, too: then rates and patience depend on it.
        """
        self._look()
        self._log()
        options, done = self.options, self.progress
        report = self.evaluation = validate(self.model, self.valid, options.batchsize or 1)
        done.evaluations.append([self.updates, report["loss"], report["hits@1"]])
        value = report[options.validation_metric]
        sign = -1 if options.validation_metric in SMALLER_IS_BETTER else 1
        if not self.updates:
            done.start = value
        self.is_best = done.best is None or sign * value > sign * done.best
        least = math.inf
        if done.best is not None and options.lr_scheduler in ENDING:
            start = None if done.start is None else sign * done.start
            least = least_kept(sign * done.best, start, len(self.valid))
        if self.is_best or sign * value >= least:
            done.kept, done.is_start = value, not self.updates
            self.files.keep_best(self.model)
        if self.is_best:
            done.best = value
        if in_turn:
            self.schedule.after_evaluation(report["loss"])
            patient = self.is_best or self.schedule.is_warming_up or self.epochs < 1
            done.impatience = 0 if patient else done.impatience + 1
            done.validated, done.validated_epochs = self.updates, self.epochs
            done.validated_progress = self.run_progress or 0.0
        self._tell("on_evaluate", report)

    def _tell(self, event: str, *about: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *about)

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._look()
        self._sum_up()
        self.progress.seconds, self._counted_at = self.seconds, time.monotonic()
        state = {
            STATE: asdict(self.progress),
            "number_training_updates": self.updates,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state(),
            "scaler": self.scaler.state_dict(),
            "draws": drawing_state(self.candidates),
        }
        self.files.keep_last(self.model, state)
        self._saved_at = time.monotonic()
        self._tell("on_save")

    def resume(self) -> None:
        """Resume from the checkpoint, whose weights the model has; refuse a damaged one, or another run's."""
        states = self.files.state()
        with optimising.refused_where_damaged(str(self.files.resumed)):
            self.optimizer.load_state_dict(states["optimizer"])
            optimising.check_state(self.optimizer)
            self.progress = fields_of_json(states[STATE], TrainingProgress)
            self.progress.size = self.data.size or self.progress.size
            if min(self.updates, self.progress.epoch, self.progress.examples, self.progress.impatience) < 0:
                raise ValueError("its counts are none")
            if self.progress.best is not None:
                refuse_another_metric(str(self.files.resumed), self.options.validation_metric)
            self.valid = self.valid.first(self.progress.held_out)
            self.schedule.restore(states["schedule"], self.updates, self.run_progress)
            self.scaler.load_state_dict(states["scaler"])
            restore_draws(states["draws"], self.candidates, rank=0)


def numbers_of(batches: Sequence[LateValues]) -> dict[str, list[float]]:
    """Return the values of all examples of some batches, by name; nothing if there are no examples."""
    read_all(batches)
    values: defaultdict[str, list[float]] = defaultdict(list)
    for batch in batches:
        for name in batch:
            values[NAMES.get(name, name)] += batch[name]
    return {name: numbers for name, numbers in values.items() if numbers}


def optimizer_of(model: RankingModel, options: TrainingOptions) -> torch.optim.Optimizer:
    """Create the optimiser of a run, with ParlAI's settings and our groups of weights."""
    rate = options.learningrate
    assert rate is not None, "starting_model decides it"
    groups = optimising.weight_groups(model.module, rate, options.codes_learningrate, options.weight_decay)
    optimizer: torch.optim.Optimizer
    if options.optimizer == "adamax":
        optimizer = torch.optim.Adamax(groups, lr=rate)
    elif options.optimizer == "adam":
        optimizer = torch.optim.Adam(groups, lr=rate, amsgrad=True)
    else:
        optimizer = torch.optim.AdamW(groups, lr=rate)
    optimising.fuse(optimizer)
    return optimizer
