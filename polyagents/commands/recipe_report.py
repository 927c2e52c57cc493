"""The results of trained models, compared with the paper's numbers: `polyagents recipe report FOLDER`."""

import glob
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyagents.console import Bar, markdown, say
from polyagents.errors import InputError
from polyagents.files.atomic import atomic_write, write_text
from polyagents.files.json_files import fits, read_json
from polyagents.models import architecture
from polyagents.options import Options, fields_of
from polyagents.parlai_agents.fixed_candidates import located
from polyagents.parlai_agents.flags import TargetOptions
from polyagents.parlai_files import parlai_options
from polyagents.parlai_patches.compat import quiet
from polyagents.parlai_patches.saved_options import OURS
from polyagents.ranker import Ranker, median_seconds
from polyagents.tasks.sample.generate import dialogues, replies
from polyagents.timings import training_machine
from polyagents.training_loop.training_options import training_groups
from polyagents.zoo.recipes.describe import CANDIDATES, together
from polyagents.zoo.recipes.recipe_flags import SMOKE, Recipe, find, flags_of

TIMED_CANDIDATES = 1_000  # paper Table 5
MESSAGES = {"bi": 25, "poly": 25, "cross": 3}  # messages of the median; a cross-encoder reads 1,000 pairs for each
SAME_RESULT = {"chunk_tokens", "compile", "eval_batchsize", "fixed_candidates_path", "keep_checkpoint"}
SAME_RESULT |= {"init_model", "save_every_n_secs"}
# ParlAI's that change what is learnt, and are not flags of a recipe.
PARLAIS: dict[str, Any] = {
    "mutators": None,
    "multitask_weights": [1],
    "dynamic_batching": None,
    "betas": [0.9, 0.999],
    "momentum": 0,
}
METRICS = {"MRR": "mrr"}  # R@k is hits@k


@dataclass(frozen=True)
class Trained:
    """A model that a recipe trained."""

    file: str
    name: str  # the recipe's name, with `/smoke` if it was one
    changed: str  # flags that were given in addition to the recipe, as text
    epochs: float  # how long it was trained
    candidates: int  # of each example in these evaluations
    reports: Mapping[str, Mapping[str, float]]  # split -> metric -> value, of the evaluations at the end of its run
    milliseconds: float  # of a reply among 1,000 candidates

    @property
    def recipe(self) -> Recipe:
        """The recipe that trained it."""
        return find(self.name)

    def percent(self, split: str, metric: str) -> float | None:
        """Return its result of a metric, by the paper's name, in percent; None if there is none."""
        value = self.reports[split].get(METRICS.get(metric, metric.replace("R@", "hits@")))
        return None if value is None else 100 * value


def print_report(folder: str) -> None:
    """Print the tables of a folder's models that recipes trained, and write `report.md` and `report.png` into it."""
    models = trained_in(folder)
    text = "\n\n".join(
        [
            "# What recipes reached",
            "Percent; mean ± deviation if several models were trained alike. The splits are ParlAI's, evaluated at "
            "the end of training.",
            markdown(quality(models)),
            "## Time of a reply",
            f"One context at a time among {TIMED_CANDIDATES:,} candidates, their vectors ready-made for bi- and "
            f"poly-encoder; the median of {MESSAGES['bi']} messages (of a cross-encoder, {MESSAGES['cross']}). "
            f"{training_machine()}.",
            markdown(speed(models)),
        ]
    )
    print(text)  # first: timing takes minutes, which a folder that cannot be written to should not cost
    write_text(os.path.join(folder, "report.md"), f"{text}\n")
    draw_panels(models, os.path.join(folder, "report.png"))
    say(f"Written to {os.path.join(folder, 'report.md')} and report.png.")


def trained_in(folder: str) -> list[Trained]:
    """Return the finished models of a folder and of those below it, in the order of the recipes.

    Raises:
        InputError: there is none, a file is damaged, or two models of a task were evaluated on different examples.
    """
    evaluated: dict[tuple[str, bool, str], tuple[list[str], str]] = {}
    found: list[Trained] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "**", "*.trainstats"), recursive=True)):
        file = path.removesuffix(".trainstats")
        if not os.path.exists(f"{file}.opt") or not os.path.exists(file):
            continue
        opt = parlai_options.read(file)
        parts = str(opt.get("init_opt") or "").split(",")
        name = next((part for part in reversed(parts) if flags_of(part) is not None), "")
        try:
            stats = read_json(path)
            digests_fit = isinstance(stats, dict) and fits(stats.get("evaluated", {}), dict[str, list[str]])
            reports = {split: (digests_fit and stats.get(f"final_{split}_report")) or {} for split in ("valid", "test")}
            reports_fit = all(fits(one, dict[str, float]) and ("exs" in one or not one) for one in reports.values())
            if not digests_fit or (name and not reports_fit) or not fits(stats.get("total_epochs", 0), float):
                raise ValueError("it does not describe a training run")
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}); train that model again, or remove it.") from error
        if name and any(reports.values()):
            epochs = float(stats.get("total_epochs", 0))
            for split, digests in stats.get("evaluated", {}).items():
                first = evaluated.setdefault((find(name).task, name.endswith(SMOKE), split), (digests, file))
                if digests != first[0]:
                    raise InputError(
                        f"{first[1]} and {file} were evaluated on different examples of {split}, and cannot be "
                        f"compared; remove the one of the data that you do not mean."
                    )
            candidates = candidates_count(file, name, opt)
            found.append(Trained(file, name, changed_flags(name, opt), epochs, candidates, reports, math.nan))
    if not found:
        raise InputError(
            f"{folder} has no finished model of a recipe; train one with polyagents recipe run NAME -mf "
            f"{os.path.join(folder, 'M')}."
        )
    bar = Bar(found, desc="timing replies", unit=" models")
    timed = [replace(model, milliseconds=reply_time(model.file, model.recipe.kind)) for model in bar]
    return sorted(timed, key=lambda model: model.recipe.place)


def changed_flags(name: str, opt: Mapping[str, Any]) -> str:
    """Describe the flags of a model that differ from the recipe and could have changed the result."""
    wanted = flags_of(name)
    assert wanted is not None  # the report takes recipes only
    unset = {key: value for key, value in defaults(str(wanted["model"])).items() if key not in wanted}
    flags, opt = unset | wanted, unset | dict(opt)
    others = {key: opt.get(key) for key, value in flags.items() if key not in SAME_RESULT and opt.get(key) != value}
    changed = [f"{key} {value} (recipe: {flags[key]})" for key, value in others.items()]
    start = str(flags.get("init_model", "")).removeprefix("zoo:")
    if start and not str(opt.get("backbone")).endswith(start):  # an agent notes there what it started from
        changed.append(f"started from {opt.get('backbone')} (recipe: {start})")
    return ", ".join(["smoke: on a sample"] * name.endswith(SMOKE) + changed)


def defaults(agent: str) -> dict[str, Any]:
    """Return the defaults of the options that change what an agent learns, whether or not a recipe has them."""
    name = agent.removeprefix(OURS)
    groups: list[type[Options]] = [TargetOptions, *training_groups(architecture.find(name))]
    fields = [*architecture.options_of(name).values(), *(field for group in groups for field in fields_of(group))]
    return PARLAIS | {field.name: field.default for field in fields if field.name != "backbone"}  # or --init-model


def candidates_count(file: str, name: str, opt: Mapping[str, Any]) -> int:
    """Return the number of candidates of an example: the task's number, or the fixed ones and the label.

    Raises:
        InputError: the fixed ones cannot be read.
    """
    if opt.get("eval_candidates") != "fixed":
        return CANDIDATES[find(name).task]
    path = located(str(opt["fixed_candidates_path"]), opt.get("datapath"))
    try:
        with open(path, "rb") as lines:
            return 1 + sum(1 for _ in lines)
    except OSError as error:
        raise InputError(
            f"{file} was evaluated among the candidates of {path}, which cannot be read "
            f"({error.strerror}); put them there again, or remove the model."
        ) from error


def reply_time(file: str, kind: str) -> float:
    """Return the milliseconds of a reply: the median over some messages."""
    words = replies()
    candidates = [f"{words[i % len(words)]} {words[i // len(words)]}" for i in range(TIMED_CANDIDATES)]
    contexts = ["\n".join(turn.text for turn in dialogue) for dialogue in dialogues("test")[: MESSAGES[kind]]]
    with quiet():
        ranker = Ranker.load(file)
        prepared = ranker.prepare(candidates)
        ranker.rank(contexts[-1], prepared, top_k=1)
        return 1e3 * median_seconds(lambda context: ranker.rank(context, prepared, top_k=1), contexts)


def alike(models: Sequence[Trained]) -> list[list[Trained]]:
    """Group models of one recipe with the same flags and candidates: they differ only by their seed."""
    groups: dict[tuple[str, str, int], list[Trained]] = {}
    for model in models:
        groups.setdefault((model.name, model.changed, model.candidates), []).append(model)
    return list(groups.values())


def quality(models: Sequence[Trained]) -> list[dict[str, Any]]:
    """Make a row for each number of the paper."""
    rows = []
    for group in alike(models):
        first = group[0]
        wanted = dict.fromkeys((value.split, value.metric) for value in first.recipe.expected)
        for split, metric in wanted:
            measured = [value for model in group if (value := model.percent(split, metric)) is not None]
            if not measured:
                continue
            size = f"/{first.candidates}" if "@" in metric else ""
            values = [value for value in first.recipe.expected if (value.split, value.metric) == (split, metric)]
            rows.append(
                {
                    "recipe": first.name,
                    "split": split,
                    "metric": f"{metric}{size}",
                    "measured": f"{statistics.mean(measured):.1f}"
                    + (f" ± {statistics.stdev(measured):.1f}" if len(measured) > 1 else ""),
                    "paper": together(values),
                    "source": ", ".join(dict.fromkeys(value.source for value in values)),
                    "models": len(measured),
                    "examples": ", ".join(
                        dict.fromkeys(f"{model.reports[split]['exs']:,.0f}" for model in group if model.reports[split])
                    ),
                    "epochs": round(statistics.mean(model.epochs for model in group), 1),
                    "not as in the recipe": first.changed,
                }
            )
    return rows


def speed(models: Sequence[Trained]) -> list[dict[str, Any]]:
    """Make a row for each group of models."""
    rows = []
    for group in alike(models):
        milliseconds = statistics.median(model.milliseconds for model in group)
        changed = group[0].changed
        rows.append({"recipe": group[0].name, "ms per reply": f"{milliseconds:,.2f}", "not as in the recipe": changed})
    return rows


def draw_panels(models: Sequence[Trained], path: str) -> None:
    """Draw R@1 against milliseconds per reply, one panel per task."""
    from matplotlib.figure import Figure  # not a dependency of the core

    tasks = list(dict.fromkeys(model.recipe.task for model in models))
    figure = Figure(figsize=(7 * len(tasks), 5), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)
    for panel, task in zip(panels[0], tasks, strict=True):
        groups = alike([model for model in models if model.recipe.task == task])
        split = "test" if any(group[0].reports["test"] for group in groups) else "valid"
        for number, group in enumerate(groups):
            draw_group(panel, group, split, f"C{number % 10}")
        times = [model.milliseconds for group in groups for model in group]
        low, high = panel.get_ylim()
        panel.set(xscale="log", xlim=(min(times) / 2, max(times) * 2), ylim=(low - 2, high + 2))
        panel.set_xlabel(f"milliseconds per reply out of {TIMED_CANDIDATES:,} (log scale; left is faster)")
        panel.set_ylabel(f"R@1/{groups[0][0].candidates}, percent")
        panel.set_title(f"{task}, {split}: dots measured here, rings the paper's")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("{x:g}" if max(times) < 10 * min(times) else "")
        panel.grid(alpha=0.3, which="both")
        panel.legend(fontsize="small")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def draw_group(panel: Any, group: Sequence[Trained], split: str, colour: str) -> None:
    """Draw a dot for a measurement, with its deviation, and a ring for each number of the paper."""
    recipe = group[0].recipe
    points = [value for model in group if (value := model.percent(split, "R@1")) is not None]
    milliseconds = statistics.median(model.milliseconds for model in group)
    if points:
        spread = statistics.stdev(points) if len(points) > 1 else 0
        name = group[0].name.removeprefix(f"{recipe.task}/") + (" (changed)" if group[0].changed else "")
        panel.errorbar(milliseconds, statistics.mean(points), spread, fmt="o", color=colour, label=name, capsize=4)
        for papers in recipe.expected:
            if (papers.split, papers.metric) == (split, "R@1"):
                panel.plot(milliseconds, papers.mean, "o", markersize=11, markerfacecolor="none", color=colour)
