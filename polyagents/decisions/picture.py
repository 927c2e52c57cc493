"""The reliability picture: how often choices of a probability are right."""

from polyagents.decisions.calibration import Calibration
from polyagents.files.atomic import atomic_write
from polyagents.training_loop.training_curve import drawn


def draw_beside(path: str, found: Calibration) -> str | None:
    """Draw the picture next to a calibration's file, and return its path; if that fails, say so."""
    picture = path.removesuffix(".json") + ".png"
    return drawn("The reliability picture", picture, lambda file: draw(file, found))


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
