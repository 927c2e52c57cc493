"""The sentences of a run: at its start its choices; at its end its result, the model's place and the next commands."""

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from polyagents.console import duration, file_size, in_columns, number_of
from polyagents.models.model_options import TowerOptions
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training_loop.schedule import is_late

MEANINGS = {
    "mrr": "the mean of 1 / rank of the right candidate: 1 if it always ranks first",
    "loss": "the mean loss; smaller is better",
    "rank": "the mean rank of the right candidate; 1 is the best",
    "f1": "the mean overlap of words with the right reply",
}


@dataclass(frozen=True)
class Summary:
    """The end of a run.

    Attributes:
        seconds: how long it took, earlier runs of a resumed training included; None if that is not known.
        metric: the validation metric, by ParlAI's name.
        best: its best value; None without a validation.
        model_file: None if the model is in memory only.
        plot: the picture of the training; None if there is none.
        next: commands and what each of them does.
        candidates: how many a validation example ranked, on average; None if that is not known.
        ranked: what these are, in words; empty if it goes without saying.
        checkpoint: the size of the checkpoint's files in bytes; 0 if there are none.
        kept: the metric of the model that the run keeps, which may be a little below the best; None if it is the best.
        keeps_start: whether no validation was better than the one before the first update.
        named: turns an option into the name that the user gives it by.
    """

    updates: int
    seconds: float | None
    metric: str
    best: float | None
    model_file: str | None
    plot: str | None
    next: tuple[tuple[str, str], ...] = ()
    candidates: float | None = None
    ranked: str = ""
    checkpoint: int = 0
    kept: float | None = None
    keeps_start: bool = False
    named: Callable[[str], str] = str

    def lines(self) -> list[str]:
        """Return the summary, a line each."""
        took = "" if self.seconds is None else f" in {duration(self.seconds)}"
        lines = ["", f"Training finished: {number_of(self.updates, 'update')}{took}."]
        if self.keeps_start:
            model = "The model" if self.model_file is None else self.model_file
            lines.insert(
                1,
                f"No validation was better than the start ({self.metric} {self.best:.4g}): {model} is the model that "
                f"the run began with. Give it more examples, a longer run, or another learning rate.",
            )
        if self.best is not None:
            among = "" if self.candidates is None else f", among {among_text(self.candidates, self.ranked)}"
            lines.append(f"Best {self.metric} on the validation examples: {self.best:.4g}{meaning_of(self)}{among}")
            if self.kept not in (None, self.best):
                lines.append(
                    f"Kept:   a later model, of {self.kept:.4g}: no more than one standard error of so few examples "
                    f"below the best, and trained for longer"
                )
        if self.model_file is not None:
            lines.append(f"Model:  {self.model_file} (with {self.model_file}.opt and {self.model_file}.dict)")
        if self.checkpoint:
            lines.append(
                f"Spare:  {self.model_file}.checkpoint (and .opt, .dict), {file_size(self.checkpoint)}: needed to "
                f"continue the run only, so you may delete it (or give {self.named('keep_checkpoint')} false)"
            )
        if self.plot is not None:
            lines.append(f"Plot:   {self.plot} (loss and R@1 over the updates)")
        if self.next:
            lines += ["What to run next:", *(f"  {line}" for line in in_columns([(c, f"# {t}") for c, t in self.next]))]
        return lines


def meaning_of(summary: Summary) -> str:
    """Explain a value of a metric, in brackets; nothing if it is unknown."""
    assert summary.best is not None
    if summary.metric == "accuracy" or re.fullmatch(r"hits@\d+", summary.metric):
        k = int(summary.metric.partition("@")[2] or 1)
        places = "ranks first" if k == 1 else f"is among the first {k}"
        return f" (the right candidate {places} for {summary.best:.1%} of them)"
    return f" ({MEANINGS[summary.metric]})" if summary.metric in MEANINGS else ""


def among_text(candidates: float, ranked: str) -> str:
    """Say among how many candidates validation examples were ranked, and what these are."""
    return f"{candidates:.4g} candidates on average{f' ({ranked})' if ranked else ''}"


def said_over(file: str | None, updates: int, named: Callable[[str], str] = str) -> str:
    """Return the sentence for a run that has ended before, so that a repeated one reads no example.

    Args:
        named: as for `Summary`.
    """
    return (
        f"{file} was trained to its end before ({number_of(updates, 'update')}), so nothing is trained now. To "
        f"train on other examples, give another model file (and {file} as {named('init_model')} to start from it); for "
        f"a longer run, give a later end, or a larger {named('validation_patience')} if that ended it."
    )


def chosen_settings(model: RankingModel) -> dict[str, Any]:
    """Return the reduction, similarity, precision and dropout of a model that is about to be trained."""
    model.module.train()  # which arithmetic depends on
    ranking = model.settings.ranking
    of_towers = {"similarity": ranking.similarity} if isinstance(ranking, TowerOptions) else {}
    of_all = {"reduction_type": ranking.reduction_type, "precision": model.precision}
    return of_all | of_towers | {"dropout": model.settings.encoder.dropout}


def said_choices(values: Mapping[str, Any], given: Container[str], examples: int | None) -> str:
    """Return the line that says what a run chose by itself.

    Args:
        values: the options of the run, as both loops name them; the reduction and precision that were decided.
        given: the names of those that were given.
        examples: training examples; None if their number is not known.
    """
    scheduler, warm_up = values["lr_scheduler"], values["warmup_updates"]
    rises = "a tenth of the run" if warm_up is None else number_of(warm_up, "update")
    names = ("batchsize", "num_epochs", "learningrate", "reduction_type", "similarity", "precision")
    chosen = {name: values.get(name) for name in names}
    chosen |= {"lr_scheduler": f"{scheduler}, warm-up {rises}"}
    if is_late(scheduler, values["dropout"]):
        chosen["dropout"] = "from the second pass on"
    chosen = {name: value for name, value in chosen.items() if name not in given and value not in (None, -1)}
    parts = [f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in chosen.items()]
    threads = torch.get_num_threads()
    parts.append(number_of(threads, "thread"))
    counted = "" if examples is None else f" for {number_of(examples, 'example')}"
    return f"Chosen{counted}: {'; '.join(parts)}."
