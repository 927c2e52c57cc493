"""The run of Ranker.train: from examples and options to a trained model."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.python_arguments import items_of, path_text, with_plain_values
from polyagents.model_files import initial_weights
from polyagents.models.architecture import architecture_named
from polyagents.ranking.ranking_model import RankingModel
from polyagents.surroundings import learning
from polyagents.training import distributed
from polyagents.training_loop.callbacks import Callback, trackers
from polyagents.training_loop.progress_bar import ProgressBar
from polyagents.training_loop.starting_model import begin, model_of_options
from polyagents.training_loop.summary import Summary, chosen_settings, said_choices
from polyagents.training_loop.text_example import check_examples, read_example
from polyagents.training_loop.trainer import Trainer
from polyagents.training_loop.training_curve import Point, draw_beside
from polyagents.training_loop.training_data import TrainingData
from polyagents.training_loop.training_files import TrainingFiles, after_the_end
from polyagents.training_loop.training_options import TrainingOptions, checked_options
from polyagents.training_loop.validation import validation_of
from polyagents.zoo.resolve import zoo_file


@learning()
def train(
    examples: Iterable[Any],
    model_file: str | None,
    model: str | None,
    valid: Iterable[Any] | None,
    callbacks: Sequence[Callback],
    progress: bool,
    device: torch.device,
    datapath: str | None,
    eval_candidates: str | Iterable[str] | None,
    given: Mapping[str, Any],
) -> RankingModel:
    """Train a model, and return it with its best weights; `given` are the options of `Ranker.train`.

    Raises:
        InputError: an option or an example is not possible, or the model file contains something else.
    """
    given = with_plain_values(given)
    start = given.get("init_model")
    start = None if start is None else zoo_file(path_text(start, "init_model"), datapath)
    if model is None:
        model = (start and initial_weights.trained_as(start)) or "poly"
    architecture = architecture_named(str(model))
    given = checked_options(architecture, given)
    data = TrainingData(check_examples(examples, "examples"), TrainingOptions.read(given).seed)
    options = TrainingOptions.of(architecture, given, data.size)
    check_together(options)
    callbacks = items_of(callbacks, "callbacks", "a list of Callback objects")
    if wrong := [one for one in callbacks if not isinstance(one, Callback)]:
        raise InputError(f"{wrong[0]!r:.60} is not a callback; give objects of a class that extends Callback.")
    held_out = validation_of(read_valid(valid, options.validation_max_exs), data, eval_candidates)
    held_out = replace(held_out, is_shown=progress)
    listeners = [*callbacks, *([ProgressBar()] if progress else [])]
    listeners += trackers(options.report_to, options.project, model_file) if options.report_to else []
    files = TrainingFiles(model_file, options.load_from_checkpoint)
    resumed = files.resumed is not None
    gpus = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    with torch.random.fork_rng(gpus):  # a seed of ours is not the caller's
        built = model_of_options(architecture, given, options, data, files.resumed or start, datapath, resumed)
        built.module.to(device)
        options = replace(options, learningrate=built.settings.saved["learningrate"])
        teacher = begin(built, asdict(options), datapath)
        trainer = Trainer(built, data, held_out, options, files, listeners, teacher)
        if progress:
            say(said_choices(asdict(options) | chosen_settings(built), given, data.size))
        if resumed:
            trainer.resume()
        trainer.train()
    conclude(trainer, progress)
    return built


def conclude(trainer: Trainer, progress: bool) -> None:
    """Draw the curves of a run that has ended, tidy up, and print its summary if `progress`."""
    done, file = trainer.progress, trainer.files.file
    points = [[Point(*one) for one in given] for given in (done.reports, done.evaluations)]
    plot = draw_beside(file, *points) if file is not None else None
    keep = trainer.options.keep_checkpoint or not trainer.is_finished
    spare = after_the_end(file, keep) if file is not None else 0
    again = () if file is None else ((f"Ranker.load({file!r})", "the same ranker in another program"),)
    if progress:
        metric = trainer.options.validation_metric
        ranked = trainer.evaluation.get("candidates"), trainer.valid.ranked
        summary = Summary(done.updates, done.seconds, metric, done.best, file, plot, again, *ranked, spare)
        for line in replace(summary, kept=done.kept, keeps_start=done.is_start).lines():
            say(line)


def check_together(options: TrainingOptions) -> None:
    """Refuse a batch that would have no negatives, and several processes."""
    if options.batchsize == 1 and options.candidates == "batch":
        raise InputError(
            "candidates='batch' takes the other labels of the batch as negatives, and batchsize=1 has none; give a "
            "larger batchsize, or candidates='inline'."
        )
    if distributed.is_distributed():
        raise InputError("Ranker.train trains in one process; several train with torchrun and polyagents train_model.")


def read_valid(valid: Iterable[Any] | None, most: int | None) -> list[Any]:
    """Read and check the validation examples, `most` at most, before anything is trained; refuse an empty list."""
    if valid is None:
        return []
    some = itertools.islice(check_examples(valid, "valid"), most)
    found = [read_example(one, f"Validation example {place}") for place, one in enumerate(some)]
    if not found:
        raise InputError("There are no validation examples; give some, or omit valid.")
    return found
