"""The curves of a run, loss and R@1 over its updates, drawn into `M.png` next to the model."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from polyagents.console import say
from polyagents.errors import first_line
from polyagents.files.atomic import atomic_write


class Point(NamedTuple):
    """Figures of a run after a number of updates."""

    updates: float
    loss: float
    recall: float


def draw_beside(model_file: str, training: Sequence[Point], validation: Sequence[Point]) -> str | None:
    """Draw the curves into `M.png`, and return its path; if that fails, say so: the training itself is finished.

    Args:
        training: means since the point before.
        validation: means over the validation examples.
    """
    if max(len(training), len(validation)) < 2:  # one point shows no course
        return None
    return drawn("The training plot", f"{model_file}.png", lambda path: draw_curves(path, training, validation))


def drawn(what: str, path: str, draw: Callable[[str], None]) -> str | None:
    """Draw a picture of what is finished, and return its path; if that fails, say so."""
    try:
        draw(path)
    except ModuleNotFoundError:
        say(f"{what} needs matplotlib, which is not installed: pip install matplotlib")
    except Exception as error:  # whatever a library for pictures raises must not fail what is finished
        say(f"{what}, {path}, could not be drawn ({first_line(error)}).")
    else:
        return path
    return None


def draw_curves(path: str, training: Sequence[Point], validation: Sequence[Point]) -> None:
    """Draw loss and R@1 over updates into a PNG; training and validation have the same colours in both."""
    from matplotlib.figure import Figure  # takes a second, and is not a dependency of the core

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    for name, points, style in (("training", training, "-"), ("validation", validation, "o-")):
        updates = [point.updates for point in points]
        left.plot(updates, [point.loss for point in points], style, label=name, markersize=4)
        right.plot(updates, [point.recall for point in points], style, label=name, markersize=4)
    left.set(xlabel="updates", ylabel="loss", title="Loss")
    right.set(xlabel="updates", ylabel="R@1", title="R@1: share of right candidates that rank first")
    if best := max(validation, key=lambda point: point.recall, default=None):
        place = (best.updates, best.recall)
        right.annotate(f"{best.recall:.3f}", place, (0, 6), textcoords="offset points", ha="center")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    right.set_ylim(0, 1)
    left.legend()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
