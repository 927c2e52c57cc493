"""The report of `polyagents evaluate`: metrics with intervals, compared between models, as JSON and text."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyagents.console import decimals, in_columns, number_of, range_of
from polyagents.evaluation.intervals import CONFIDENCE, RANDOMISATIONS, RESAMPLES, Estimate, estimates, randomisation_p
from polyagents.evaluation.rank_metrics import Floats, metrics
from polyagents.files.json_files import json_number

SEED = 0  # for the draws of intervals and tests: the same evaluation reports the same numbers


@dataclass(frozen=True)
class Evaluated:
    """The results of one model on the E examples of a task."""

    model_file: str
    architecture: str  # its name in reports, such as "poly-encoder"
    cutoffs: Sequence[int]  # the k of its metrics, its `--recall-at`
    source: str  # where its candidates came from: inline, batch, batch-all-cands or fixed
    right_ranks: Sequence[NDArray[np.int64]]  # the ranks of the right answers of each example, best first
    sizes: NDArray[np.int64]  # [E], how many candidates each example ranked
    dialogues: NDArray[np.int64]  # [E], the dialogue of each example, numbered from 0
    digest: str  # equal for models that ranked the same examples
    batchsize: int  # how many examples a batch had, at most
    no_label: int = 0  # how many other examples had no label and were skipped
    no_candidates: int = 0  # how many examples had no candidates of their own, and ranked the labels of their batch


@dataclass(frozen=True)
class Difference:
    """The difference of a metric from the first model's, with the p of the randomisation test."""

    estimate: Estimate
    p: float


@dataclass(frozen=True)
class Measured:
    """The metrics of one model, and their differences from the first model's; none for that one itself."""

    evaluated: Evaluated
    metrics: dict[str, Estimate]
    differences: dict[str, Difference]


def measure(models: Sequence[Evaluated]) -> list[Measured]:
    """Measure models on the same examples, at the cutoffs of the first, and compare each later one with the first."""
    values = [metrics(model.right_ranks, models[0].cutoffs) for model in models]
    measured = []
    for place, (model, own) in enumerate(zip(models, values, strict=True)):
        found = estimates(np.stack([*own.values()], axis=1), model.dialogues, SEED)
        within = {  # 0 and 1, beyond which an expanded interval may reach
            name: one._replace(low=float(np.maximum(one.low, 0)), high=float(np.minimum(one.high, 1)))
            for name, one in zip(own, found, strict=True)
        }
        measured.append(Measured(model, within, differences(own, values[0], model) if place else {}))
    return measured


def differences(values: dict[str, Floats], first: dict[str, Floats], model: Evaluated) -> dict[str, Difference]:
    """Compare the metrics of a model, values [E] by name, with the first one's, paired by example."""
    paired = np.stack([values[name] - first[name] for name in values], axis=1)
    ends = estimates(paired, model.dialogues, SEED)
    chances = randomisation_p(paired, model.dialogues, SEED)
    return {name: Difference(one, p) for name, one, p in zip(values, ends, chances, strict=True)}


# ---- JSON ------------------------------------------------------------------------------------------------------------


def as_json(measured: Sequence[Measured], task: dict[str, Any]) -> dict[str, Any]:
    """Build the report as JSON, the first model first, with facts about the task; what is not known is null."""
    first = measured[0].evaluated
    return {
        **task,
        "examples": len(first.right_ranks),
        "digest": first.digest,
        "no_label": first.no_label,
        "no_candidates": first.no_candidates,
        "dialogues": count_dialogues(first),
        "right_answers": mean_and_range([len(ranks) for ranks in first.right_ranks]),
        "candidates": mean_and_range(first.sizes.tolist()) | {"source": first.source},
        "intervals": {
            "confidence": CONFIDENCE,
            "method": "expanded percentile bootstrap",
            "unit": unit(first),
            "resamples": RESAMPLES,
            "seed": SEED,
        },
        "test": {"method": "paired randomisation, two-sided", "unit": unit(first), "draws": RANDOMISATIONS},
        "models": [
            {
                "model_file": one.evaluated.model_file,
                "architecture": one.evaluated.architecture,
                "metrics": {name: estimate_json(estimate) for name, estimate in one.metrics.items()},
                "less_the_first": {
                    name: estimate_json(difference.estimate) | {"p": difference.p}
                    for name, difference in one.differences.items()
                },
            }
            for one in measured
        ],
    }


def estimate_json(estimate: Estimate) -> dict[str, float | None]:
    """Return a number with the ends of its interval."""
    return {name: json_number(value) for name, value in estimate._asdict().items()}


def mean_and_range(counts: Sequence[int]) -> dict[str, float]:
    """Return the mean, the smallest and the largest of some counts."""
    return {"mean": sum(counts) / len(counts), "least": min(counts), "most": max(counts)}


def count_dialogues(model: Evaluated) -> int:
    """Count the dialogues that the examples are from."""
    return int(model.dialogues.max()) + 1


def unit(model: Evaluated) -> str:
    """Name the unit that is resampled: an example if every dialogue has one."""
    return "example" if count_dialogues(model) == len(model.dialogues) else "dialogue"


# ---- text ------------------------------------------------------------------------------------------------------------


def as_text(measured: Sequence[Measured], task: str) -> str:
    """Write the report for people, the first model first."""
    first = measured[0].evaluated
    dialogues = f" of {number_of(count_dialogues(first), 'dialogue')}" if unit(first) == "dialogue" else ""
    least, most = int(first.sizes.min()), int(first.sizes.max())
    candidates = range_of(least, most, "candidate")
    right = sum(map(len, first.right_ranks)) / len(first.right_ranks)
    several = f", {right:.2f} of them right on average" if right > 1 else ""
    examples = number_of(len(first.right_ranks), "example")
    lines = [f"{task}: {examples}{dialogues}, {candidates} each ({first.source}){several}"]
    if first.no_candidates and first.source != "batch":
        lines.append(f"Without candidates, and ranked among the labels of their batch: {first.no_candidates:,}.")
    if first.no_label:
        lines.append(f"Without a label, and skipped: {first.no_label:,}.")
    lines.append("")
    lines += in_columns(list(table(measured)))
    has_ends = not all(math.isnan(estimate.low) for estimate in measured[0].metrics.values())
    brackets = f"In brackets 95 % intervals, from a bootstrap over {unit(first)}s; right" if has_ends else "Right"
    lines += ["", f"{brackets} answers lose ties."]
    if len(measured) > 1:
        lines.append("Differences are a model's metric less the first one's; p by the paired randomisation test.")
    return "\n".join(lines)


def table(measured: Sequence[Measured]) -> Iterator[list[str]]:
    """Build a row for each metric: every model's number, and how it differs from the first one's."""
    header = [""]
    for one in measured:
        header += [f"{one.evaluated.model_file} ({one.evaluated.architecture})"]
        header += ["difference", "p"] if one.differences else []
    yield header
    # The candidates of a batch are fewer in smaller batches, and the numbers higher.
    among = f"/{measured[0].evaluated.batchsize}" if measured[0].evaluated.source == "batch" else ""
    # With one right answer in every example, hits@k is R@k.
    several = any(len(ranks) > 1 for ranks in measured[0].evaluated.right_ranks)
    for name in (name for name in measured[0].metrics if several or not name.startswith("hits@")):
        row = [f"{name}{among}" if "@" in name else name]
        for one in measured:
            row.append(with_ends(one.metrics[name]))
            if one.differences:
                difference = one.differences[name]
                row += [with_ends(difference.estimate, "+"), f"{difference.p:.4f}"]
        yield row


def with_ends(estimate: Estimate, sign: str = "") -> str:
    """Format a number, 0.652 (0.610, 0.693), without ends that are NaN; a `sign` of "+" precedes positive ones."""
    value, low, high = (decimals(number, sign=sign) for number in estimate)
    return value if math.isnan(estimate.low) else f"{value} ({low}, {high})"
