"""Tables and a picture of the measurements on a GPU."""

import json
import os
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from polyagents.benchmarks.gpu import rows
from polyagents.benchmarks.gpu.carry_out import read_state
from polyagents.console import markdown
from polyagents.files.atomic import atomic_write, write_text

REPORT, PICTURE = "report.md", "gpu.png"


def write(out: str) -> str:
    """Write the report of all calls so far, and return it."""
    state = read_state(out)
    stages = [{"stage": name, "ended": one["state"], "seconds": one["seconds"]} for name, one in state.items()]
    parts = ["# On a GPU", "## Stages", markdown(stages)]
    for name, one in state.items():
        for file in one.get("results", []):
            parts += [f"## {name}", *tables_of(file)] if os.path.exists(file) else []
    text = "\n\n".join(parts) + "\n"
    write_text(os.path.join(out, REPORT), text)
    draw(rows.read(os.path.join(out, "search.jsonl")), os.path.join(out, PICTURE))
    return text


def tables_of(file: str) -> list[str]:
    """Return the rows of a result as tables.

    Args:
        file: JSON lines, a benchmark's JSON, or a study's report.
    """
    if file.endswith(".md"):
        with open(file, encoding="utf-8") as text:
            return [text.read().strip()]
    if file.endswith(".jsonl"):
        groups: dict[frozenset[str], list[dict[str, Any]]] = {}
        for row in rows.read(file):  # rows with the same columns are a table
            groups.setdefault(frozenset(row), []).append(row)
        return [markdown(group) for group in groups.values()]
    with open(file, encoding="utf-8") as text:
        found = json.load(text)
    return [str(found.pop("machine", "")), *(markdown(table) for table in found.values())]


def draw(measured: list[rows.Row], path: str) -> None:
    """Draw the milliseconds of the searches beside one reading of the matrix; nothing if there are none."""
    measured = [row for row in measured if "search ms" in row]
    if not measured:
        return
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.5 * len(measured)), layout="constrained")
    names = [f"{row['candidates']:,} x {row['width']}, {row['contexts']} x {row['m']}" for row in measured]
    for offset, key, colour in ((0.2, "search ms", "#0072b2"), (-0.2, "reading ms", "#999999")):
        places = [place + offset for place in range(len(measured))]
        bars = axes.barh(places, [row[key] for row in measured], 0.38, label=key.removesuffix(" ms"), color=colour)
        axes.bar_label(bars, fmt="%.3g", padding=3)
    axes.set_yticks(range(len(measured)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("milliseconds")
    axes.set_title("The best 10 of all candidates, contexts x context vectors")
    axes.legend()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    plt.close(figure)
