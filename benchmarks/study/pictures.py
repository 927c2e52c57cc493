"""A study as pictures: quality during training, and against what it costs."""

from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from polyagents.benchmarks.study import tables
from polyagents.benchmarks.study.plan import Study
from polyagents.benchmarks.study.tables import Reached, Runs
from polyagents.files.atomic import atomic_write

# Okabe and Ito's colours, distinguishable with any colour vision; without yellow, which is invisible on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKERS = "osD^vPX*"
SIZE = (13, 5)


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return colour and marker of each row: 7 colours and 8 markers distinguish 56 rows."""
    return {
        name: {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
        for place, name in enumerate(names)
    }


def curves(study: Study, runs: Runs, path: str) -> None:
    """Draw R@1 over examples and over training seconds, with bands of the intervals."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=SIZE, sharey=True, layout="constrained")
    for name, style in styles([row.name for row in study.rows]).items():
        points = tables.curve(study, runs, study.row(name))
        if not points or study.row(name).is_pipeline:
            continue
        for panel, places in ((left, [p.examples for p in points]), (right, [p.seconds for p in points])):
            recalls = [point.metrics["R@1"] for point in points]
            panel.plot(places, [one.mean for one in recalls], label=name, markersize=5, **style)
            ends = ([one.low for one in recalls], [one.high for one in recalls])
            panel.fill_between(places, *ends, color=style["color"], alpha=0.08, linewidth=0)
    for panel, label in ((left, "training examples"), (right, "training seconds")):
        logarithmic(panel, label)
    left.set_ylabel("R@1, with 95 % intervals")
    right.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    save(figure, path)


def cost(
    study: Study,
    by_examples: Sequence[Reached],
    by_seconds: Sequence[Reached],
    pipelines: Sequence[Reached],
    path: str,
) -> None:
    """Draw R@1 against training seconds (with the rows it builds on) and against the time of a reply."""
    style = styles([row.name for row in study.rows])
    trained = by_examples or by_seconds
    named = [*trained, *pipelines]
    panels = 1 + any(row.milliseconds is not None for row in named)
    figure, ((left, *right),) = pyplot.subplots(
        1, panels, figsize=SIZE, sharey=True, layout="constrained", squeeze=False
    )
    points(left, [(row, row.total) for row in by_seconds], style, filled=False)
    points(left, [(row, row.total) for row in [*by_examples, *pipelines]], style, filled=True)
    logarithmic(left, "training seconds, with what a row builds on")
    for panel in right:
        points(panel, [(row, row.milliseconds) for row in trained], style, filled=trained is by_examples)
        points(panel, [(row, row.milliseconds) for row in pipelines], style, filled=True)
        logarithmic(panel, "milliseconds per reply")
    left.set_ylabel("R@1, with 95 % intervals")
    kinds = [kind for kind, rows in (("filled: after equal examples", by_examples),
                                     ("hollow: after equal seconds", by_seconds),
                                     ("re-ranking: of finished models", pipelines)) if rows]  # fmt: skip
    figure.suptitle(f"Quality against cost ({', '.join(kinds)}; up and left is better)", fontsize=11)
    figure.canvas.draw()  # the places of names follow from the final scales
    name_points(left, [(row, row.total) for row in named], style)
    for panel in right:
        name_points(panel, [(row, row.milliseconds) for row in named], style)
    save(figure, path)


def points(panel: Any, rows: Sequence[tuple[Reached, float | None]], style: Any, filled: bool) -> None:
    """Draw a point with its interval for each row that has a cost.

    Args:
        panel: where to draw.
        rows: the rows with their costs.
        style: colour and marker of each row.
        filled: whether the markers are filled.
    """
    for row, place in rows:
        if place is None:
            continue
        found, own = row.metrics["R@1"], style[row.row.name]
        reach = [[found.mean - found.low], [found.high - found.mean]]
        face = own["color"] if filled else "white"
        panel.errorbar([place], [found.mean], reach, color=own["color"], elinewidth=1, capsize=3, alpha=0.4)
        panel.plot([place], [found.mean], linestyle="", markerfacecolor=face, markersize=8, zorder=3, **own)


def name_points(panel: Any, rows: Sequence[tuple[Reached, float | None]], style: Any) -> None:
    """Write the name of each point beside it, moved up if it would cover another one.

    Args:
        panel: where to draw.
        rows: the rows with their costs.
        style: colour and marker of each row.
    """
    gap, taken = 13.0, list[tuple[float, float, float]]()  # in pixels of the drawing: left, right, height
    placed = [(row.row.name, place, row.metrics["R@1"].mean) for row, place in rows if place is not None]
    for name, x, y in sorted(placed, key=lambda one: one[2]):
        across, up = panel.transData.transform((x, y))
        ends, height = (across, across + 10 + 7 * len(name)), up
        while any(ends[0] < right and left < ends[1] and abs(height - other) < gap for left, right, other in taken):
            height += 2
        taken.append((*ends, height))
        moved = height - up
        line = {"arrowstyle": "-", "color": style[name]["color"], "linewidth": 0.6} if moved > gap else None
        panel.annotate(name, (x, y), (9, 3 + moved * 72 / panel.figure.dpi), textcoords="offset points", fontsize=9,
                       color=style[name]["color"], arrowprops=line, zorder=4,
                       path_effects=[withStroke(linewidth=3, foreground="white")])  # fmt: skip


def logarithmic(panel: Any, label: str) -> None:
    """Make an axis over a factor of 4 or more logarithmic, with plain numbers, and room for names at its right.

    Args:
        panel: where to draw.
    """
    panel.set(xscale="log", xlabel=f"{label} (log scale)")
    low, high = panel.get_xlim()
    wider = max((4 * low / high) ** 0.5, 1.0)
    low, high = low / wider, high * wider
    panel.set_xlim(low, high * (high / low) ** 0.15)
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.grid(alpha=0.3)


def save(figure: Any, path: str) -> None:
    """Write a picture."""
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    pyplot.close(figure)
