"""The reliability picture: how often choices of a probability are right."""

from polyagents.console import say
from polyagents.decisions.calibration import Calibration
from polyagents.errors import first_line
from polyagents.files.atomic import atomic_write


def draw_beside(path: str, found: Calibration) -> str | None:
    """Draw the picture next to a calibration's file, and return its path; if that fails, say so."""
    picture = path.removesuffix(".json") + ".png"
    try:
        draw(picture, found)
    except ModuleNotFoundError:
        say("The reliability picture needs matplotlib, which is not installed: pip install matplotlib")
    except Exception as error:  # the calibration itself is written
        say(f"The reliability picture, {picture}, could not be drawn ({first_line(error)}).")
    else:
        return picture
    return None


def draw(path: str, found: Calibration) -> None:
    """Draw the share of right choices over their probability, in bins of equal mass, into a PNG."""
    from matplotlib.figure import Figure  # takes a second, and is no dependency of the core

    figure = Figure(figsize=(4.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], "--", color="gray", label="perfect")
    axes.plot([one.probability for one in found.bins], [one.right for one in found.bins], "o-", label="measured")
    ece = found.after.ece
    axes.set(
        xlabel="probability of the choice",
        ylabel="share of right choices",
        title=f"Calibration error {ece.value:.3f} ({ece.low:.3f}, {ece.high:.3f})",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
