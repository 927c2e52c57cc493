"""The report of a study: the results of its rows, their differences, and the pictures."""

import os
from collections.abc import Sequence
from typing import Any

from polyagents.benchmarks.study import pictures, tables
from polyagents.benchmarks.study.plan import FINISHED, Study
from polyagents.benchmarks.study.statistics import Estimate
from polyagents.benchmarks.study.tables import ALL_PAIRS, Difference, Reached, Runs
from polyagents.console import markdown, number_of
from polyagents.errors import InputError
from polyagents.files.atomic import write_text

INTERVALS = (
    "In brackets: 95 % intervals, for other examples of the task (other dialogues, if it has them) and, with two seeds "
    "or more, for other seeds; with one seed they say nothing of others. Training seconds are those spent in batches; "
    "“with what it builds on” adds all training seconds of the rows whose models a row takes."
)
TESTS = (
    "R@1 of the row less that of the column, over the same examples and the same seeds: its 95 % interval, and the "
    "two-sided p of no difference, not adjusted for the number of pairs. **Bold**: p below .05."
)


class NothingToReport(InputError):
    """No run has reached its last mark."""


def write(name: str, study: Study, folder: str) -> str:
    """Write report.md, curves.png and cost.png beside the results; returns what report.md says.

    Raises:
        NothingToReport: no run has reached its last mark.
        InputError: some results are damaged or not comparable.
    """
    runs = tables.read_runs(study, folder)
    by_examples, by_seconds = tables.at_last_examples(study, runs), tables.at_seconds(study, runs)
    if not by_examples and not by_seconds:
        raise NothingToReport(
            f"{folder} has no run of {name} that reached its last mark; run the study without --report."
        )
    compared = {"Equal examples": by_examples, "Equal seconds": by_seconds}
    finished = tables.finished(study, runs)
    pipelines = [row for row in finished if row.row.is_pipeline]
    if study.pool is not None or pipelines:
        compared["Finished models"] = finished
    found = {title: tables.differences(rows) for title, rows in compared.items()}
    sections = [part for title, rows in compared.items() for part in section(title, study, rows, found[title])]
    shown = ["![R@1 during training](curves.png)", "![quality against cost](cost.png)"]
    title = [f"# {name}", *power(study, [one for some in found.values() for one in some])]
    text = "\n\n".join([*title, *heading(study, runs), *sections, *shown])
    write_text(os.path.join(folder, "report.md"), f"{text}\n")
    pictures.curves(study, runs, os.path.join(folder, "curves.png"))
    pictures.cost(study, by_examples, by_seconds, pipelines, os.path.join(folder, "cost.png"))
    return text


def power(study: Study, found: Sequence[Difference]) -> list[str]:
    """Say whether the intervals can tell the difference that the study looks for from none."""
    halves = [(one.estimate.high - one.estimate.low) / 2 for one in found]
    if study.difference is None or not halves:
        return []
    wide = [half for half in halves if half > study.difference]
    if not wide:
        return [f"A difference of {study.difference:g} can be told from none: no interval reaches further to a side."]
    return [f"**A difference of {study.difference:g} cannot be told from none in {len(wide)} of "
            f"{number_of(len(halves), 'test')}**: the intervals reach up to {max(wide):.3f} to a side. More examples "
            "or seeds narrow them."]  # fmt: skip


def heading(study: Study, runs: Runs) -> list[str]:
    """Describe what was measured."""
    evaluated = {len(one.ranks) for run in runs.values() for one in run.measurements}
    machines = sorted({run.end.machine for run in runs.values() if run.end is not None})
    replies = sorted({run.end.replies for run in runs.values() if run.end is not None and run.end.milliseconds})
    lines = [
        f"Task {study.task}: {', '.join(f'{count:,}' for count in evaluated)} examples of its "
        f"{study.evaluation.split} split, the same for all rows; seeds {', '.join(map(str, study.seeds))}. {INTERVALS}",
    ]
    if replies:
        lines.append(f"A reply is one of {', '.join(f'{count:,}' for count in replies)}, for one context at a time, "
                     f"vectors ready where a model has some: the median.")  # fmt: skip
    pools = {run.end.pool: len(run.end.pool_ranks) for run in runs.values() if run.end and run.end.pool_ranks}
    if pools:
        lines.append(
            f"Pool: the label among {', '.join(f'{count:,}' for count in sorted(pools))} labels of the task, for the "
            f"first {number_of(max(pools.values()), 'example')}; not for rows that read pairs of all of them."
        )
    unfinished = [f"{row.name} (seed {seed})" for row in study.rows for seed in study.seeds
                  if not runs[row.name, seed].has_all(row)]  # fmt: skip
    lines += [f"Measured on: {machine}." for machine in machines]
    return lines + ([f"**Not finished: {', '.join(unfinished)}.**"] if unfinished else [])


def section(title: str, study: Study, rows: Sequence[Reached], found: Sequence[Difference]) -> list[str]:
    """Make a table of rows at their marks, and the tests between them."""
    if not rows:
        return []
    return [f"## {title}", markdown([line(row) for row in rows]), *tests(study, rows, found)]


def line(row: Reached) -> dict[str, Any]:
    """Make a row of the table."""
    cells: dict[str, Any] = {"row": row.row.name, "seeds": len(row.found), "examples": f"{row.examples:,.0f}"}
    cells |= {metric: with_interval(found) for metric, found in row.metrics.items()}
    cells |= {"training s": f"{row.seconds:,.1f}"}
    cells |= {"with what it builds on, s": "?" if row.total is None else f"{row.total:,.1f}"}
    if row.mark.kind == FINISHED:
        cells |= {f"{metric}, pool": with_interval(found) for metric, found in row.pool.items()}
    return cells | {"ms per reply": "" if row.milliseconds is None else f"{row.milliseconds:,.2f}"}


def with_interval(found: Estimate) -> str:
    """Format a share with its interval."""
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def tests(study: Study, rows: Sequence[Reached], found: Sequence[Difference]) -> list[str]:
    """Describe the tests: a triangle of all pairs, or a line for each row beside the first."""
    if not found:
        return []
    by_pair = {(one.row.row.name, one.other.row.name): one for one in found}
    columns = rows[:-1] if len(rows) <= ALL_PAIRS else rows[:1]
    lines: list[dict[str, Any]] = []
    for row in rows[1:]:
        cells = {named(study, column): by_pair.get((row.row.name, column.row.name)) for column in columns}
        lines.append({"": named(study, row), **{name: one and difference(one) for name, one in cells.items()}})
    return [TESTS, markdown(lines)]


def named(study: Study, row: Reached) -> str:
    """Return a row's name, with its mark if that is not the study's: such rows are not compared at equal cost."""
    usual = row.mark.kind == FINISHED or row.mark.at in (study.seconds, *study.examples[-1:])
    return row.row.name if usual else f"{row.row.name} (at {row.mark.at:,g} {row.mark.kind})"


def difference(one: Difference) -> str:
    """Format a test."""
    found = one.estimate
    p = f"p {found.p:.3f}" if found.p >= 0.001 else "p < 0.001"
    mean = f"**{found.mean:+.3f}**" if found.p < 0.05 else f"{found.mean:+.3f}"
    return f"{mean} [{found.low:+.3f}, {found.high:+.3f}] {p}"
