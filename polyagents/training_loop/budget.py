"""The length of a run, and what follows from it: its progress, batch, epochs and validations, in both loops."""

import math
from dataclasses import dataclass

WARM_UP = 0.1  # share of a run in which the learning rate rises
BATCH_SHARE = 8  # a batch is at most this part of the examples: each update of a pass then sees others as negatives
LARGEST_BATCH = 32  # of two towers: in a minute of a CPU as good as the best flags on BANKING77 (docs/results.md)
UPDATES, FEWEST_EPOCHS, MOST_EPOCHS = 300, 3.0, 20.0  # of a run without a given end
VALIDATIONS = 10  # of a run, at most, the start's not counted
VALIDATION_SHARE = 0.1  # of the time of a run, at most
STEP_COST = 3  # forward passes that a training step takes the time of
COPIES = 16  # candidates that a joint model reads with an example in training, about
RATE, RATE_WIDTH = 5e-5, 768  # the paper's (5.1), for BERT-base
FEWEST_HELD_OUT = 32  # fewer validation examples choose a model by chance


@dataclass(frozen=True)
class Budget:
    """The end of a run: whichever of these is reached first; None means no limit."""

    steps: int | None = None
    epochs: float | None = None
    seconds: float | None = None

    def progress(self, steps: int, epochs: float, seconds: float, begun: float = 0.0) -> float | None:
        """Return how much of the run is done, 0 to 1; None without a limit. `begun` are the seconds before it."""
        left = None if self.seconds is None else max(self.seconds - begun, 1e-9)
        ends = ((steps, self.steps), (epochs, self.epochs), (seconds - begun, left))
        shares = [done / end for done, end in ends if end is not None]
        return min(max(shares), 1.0) if shares else None

    def affordable(self, of_an_epoch: float, of_a_step: int, cost: float, seconds: float) -> float:
        """Return how many examples may be validated in VALIDATION_SHARE of the run, all validations together.

        Args:
            of_an_epoch: training examples of a pass; infinite if that is not known.
            cost: of a validation example, as a part of a forward pass of a training example.
            seconds: that a validation example takes; read only if the time of the run is limited.
        """
        trained = [of_a_step * self.steps] if self.steps is not None else [math.inf]
        trained += [of_an_epoch * self.epochs] if self.epochs is not None else []
        by_time = math.inf if self.seconds is None else VALIDATION_SHARE * self.seconds / seconds
        return min(VALIDATION_SHARE * STEP_COST * min(trained) / cost, by_time)


def fitting_batch(largest: int, examples: int, processes: int = 1) -> int:
    """Return the batch of each process for a number of examples."""
    return max(2, min(largest, examples // (BATCH_SHARE * processes)))


def fitting_rate(width: int) -> float:
    """Return the learning rate for a backbone.

    Adam changes each weight by about the rate, and an output sums over `width` of them: the change of an output stays
    the same if the rate falls with the width (Yang et al. 2022, arXiv 2203.03466).
    """
    return RATE * RATE_WIDTH / width


def fitting_epochs(examples: int, of_a_step: int) -> float:
    """Return the epochs of a run without a given end, of some UPDATES."""
    return float(min(max(math.ceil(UPDATES * of_a_step / examples), FEWEST_EPOCHS), MOST_EPOCHS))


def validations(affordable: float) -> int:
    """Return how often a run validates after its start.

    Args:
        affordable: how many validations fit into VALIDATION_SHARE of the run.
    """
    return int(min(max(affordable - 1, 1), VALIDATIONS))


def held_out_examples(affordable: float, held_out: int) -> int:
    """Return how many of the validation examples a run takes, so that its start and its end fit into its share."""
    return int(min(held_out, max(affordable / 2, FEWEST_HELD_OUT)))  # affordable may be infinite
