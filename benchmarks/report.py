"""Tables and pictures of rows."""

import json
import os
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from polyagents.benchmarks import measure
from polyagents.console import markdown

COLOURS = {"bi": "#0072b2", "poly 16": "#009e73", "poly 64": "#d55e00", "poly 360": "#cc79a7"}


def publish(tables: dict[str, list[dict[str, Any]]], path: str) -> None:
    """Print the machine and the tables, and write them to a JSON file, in a folder that is created if it is missing.

    Args:
        tables: the rows of each table, by its name.
        path: the JSON file.
    """
    print(measure.machine())
    for name, rows in tables.items():
        print(f"\n{name}\n\n{markdown(rows)}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"machine": measure.machine()} | tables, out, indent=1)


def scoring_picture(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Draw milliseconds over the number of candidates, one panel per width: ours, ParlAI's, and a copy of the matrix.

    Args:
        rows: the rows of the scoring table.
    """
    widths = sorted({row["width"] for row in rows})
    figure, panels = plt.subplots(1, len(widths), figsize=(6 * len(widths), 4.5), sharey=True, squeeze=False)
    for panel, width in zip(panels[0], widths, strict=True):
        mine = [row for row in rows if row["width"] == width and "first" not in row["model"]]
        for name in dict.fromkeys(row["model"] for row in mine):
            line = [row for row in mine if row["model"] == name]
            label = name.split(",")[0]
            for key, style in (("ours ms", "-o"), ("parlai ms", "--s")):
                points = [(row["candidates"], row[key]) for row in line if key in row]
                who = "polyagents" if key == "ours ms" else "ParlAI"
                panel.plot(
                    *zip(*points, strict=True), style, color=COLOURS[label], label=f"{label}, {who}", markersize=4
                )
        bound = {row["candidates"]: row["bound ms"] for row in mine}
        panel.plot(list(bound), list(bound.values()), ":", color="black", label="a copy of the stored matrix")
        panel.set(xscale="log", yscale="log", xlabel="candidates", title=f"width {width}, one context, best 10")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("milliseconds")
    panels[0][-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
