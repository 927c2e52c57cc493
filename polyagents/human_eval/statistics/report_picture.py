"""The win rates and the ranking as a picture."""

import io
import textwrap
import warnings
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polyagents.human_eval.statistics.display import printable, short_names
from polyagents.human_eval.statistics.report_sections import Section
from polyagents.human_eval.statistics.win_rates import SIGNIFICANT

# Red to blue over grey-white: told apart by colour-blind people too. The numbers are printed on it all the same.
COLOURS = "RdBu"
CELL = 0.55  # inches
WRAP = 70  # characters of the question in a line


def draw(sections: Sequence[Section]) -> bytes:
    """Draw a PNG: for each question a row of the win rate matrix and the ranking, the strongest model on top."""
    sizes = [max(len(section.models), 3) * CELL for section in sections]
    longest = max(len(name) for section in sections for name in short_names(section.models))
    height = sum(sizes) + 1.7 * len(sections)
    figure = Figure(figsize=(max(sizes) + 5.5 + 0.09 * longest, height), layout="constrained")
    panels = figure.subplots(
        len(sections), 2, squeeze=False, sharey="row", height_ratios=sizes, width_ratios=(max(sizes), 4.5)
    )
    for section, (left, right) in zip(sections, panels, strict=True):
        draw_matrix(left, section)
        draw_ranking(right, section)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a letter without a picture in matplotlib's font is a box
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def draw_matrix(panel: Axes, section: Section) -> None:
    """Draw how often the row was preferred over the column."""
    count = len(section.models)
    rates = np.full((count, count), np.nan)
    for i, row in enumerate(section.models):
        for j, column in enumerate(section.models):
            matchup = section.between(row, column)
            if matchup is not None:
                rates[i, j] = matchup.rate.value
                star = "*" if matchup.p_value < SIGNIFICANT else ""
                panel.text(j, i, f"{100 * matchup.rate.value:.0f}{star}", ha="center", va="center")
            elif i != j:
                panel.text(j, i, "–", ha="center", va="center")
    # A scale longer than 0 to 1 leaves out the darkest colours, on which the numbers could not be read.
    panel.imshow(rates, colormaps[COLOURS].with_extremes(bad="0.9"), vmin=-0.4, vmax=1.4, aspect="auto")
    panel.set_xticks(range(count), [str(i + 1) for i in range(count)])
    panel.set_yticks(range(count), [f"{name}  {i}" for i, name in enumerate(short_names(section.models), 1)])
    for label in panel.get_yticklabels():
        label.set_parse_math(False)  # a $ in a name is a $
    panel.tick_params(length=0)
    panel.set_xlabel("row preferred over column, percent\n(* p < .05; – not compared)")
    panel.set_title(title(section), loc="left", fontsize="medium", parse_math=False)


def draw_ranking(panel: Axes, section: Section) -> None:
    """Draw how often each model would be preferred over one of the others, with its interval."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(left=False, labelleft=False)
    if not section.ranking.models:
        panel.set_axis_off()
        panel.text(0.05, 0.5, "no ranking: not all models\nare connected by comparisons", transform=panel.transAxes)
        return
    for place, ranked in enumerate(section.ranking.models):
        value, low, high = (100 * end for end in ranked.win_rate)
        panel.plot([low, high], [place, place], color="0.25", linewidth=2, solid_capstyle="butt")
        panel.plot(value, place, "o", color="#2166ac", markersize=7)
    panel.axvline(50, color="0.6", linewidth=1, linestyle="--")
    panel.set_xlim(0, 100)
    panel.grid(axis="x", alpha=0.3)
    panel.set_xlabel("ranking: preferred over one of the others, percent\n(line: 95 % interval)")


def title(section: Section) -> str:
    """Break the question into lines."""
    return "\n".join(textwrap.wrap(printable(section.question), WRAP)) or "(no question)"
