"""Notices updates that were skipped, and runs that learn nothing, without waiting for a GPU at each update."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.training.candidate_sources import EncodedExamples

FAILURES = 30  # updates in a row without finite gradients; fp16 needs up to 16 to find its scale
EVERY = {"cpu": 1}  # updates between two reads of their norms; a read on a CPU costs nothing
EVERY_ON_A_GPU = 10
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of a number


@dataclass
class Findings:
    """The findings of a look.

    Attributes:
        norms: of the gradients of the updates that were made.
        skipped: how many updates were not made.
        wrong: sentences about batches whose loss is not finite.
    """

    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    wrong: list[str] = field(default_factory=list)


class Watch:
    """The batches and updates since the last look; `failures` in a row were skipped, as far as one has looked."""

    def __init__(self, device: torch.device, optimizer: torch.optim.Optimizer | None = None):
        """Begin a run; without an optimiser, which has the weights and their rates, only updates are watched."""
        self._every = EVERY.get(device.type, EVERY_ON_A_GPU)
        self._batches: list[tuple[int, Tensor, EncodedExamples]] = []
        self._norms: list[Tensor] = []
        self.failures = 0
        self._optimizer = optimizer
        self._start = sums_of(optimizer)
        self._highest_rate, self._largest_norm = 0.0, 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look: after every update on a CPU, after ten on a GPU."""
        return len(self._norms) >= self._every

    def saw_batch(self, update: int, losses: Tensor, examples: EncodedExamples) -> None:
        """Note the losses [B] of a batch, and the number of the update that it is a part of."""
        self._batches.append((update, losses.detach(), examples))

    def saw_update(self, norm: Tensor) -> None:
        """Record an update."""
        self._norms.append(norm)
        groups = [] if self._optimizer is None else self._optimizer.param_groups  # which a resumed run replaces
        self._highest_rate = max([self._highest_rate, *(group["lr"] for group in groups)])

    def check_learned(self) -> None:
        """Refuse the end of a run that has learned nothing, though there was an update at a rate above 0."""
        if not self._highest_rate or (self._largest_norm and sums_of(self._optimizer) != self._start):
            return
        why = "the learning rate is too small for it"
        if not self._largest_norm:
            why = "their gradients were not finite" if self.failures else "their gradients were 0"
        raise InputError(
            f"Nothing was learned in this run, despite updates at a rate of {self._highest_rate:g}: {why}. An "
            f"example that ranks its label alone gives no gradient, and too high a rate no finite one."
        )

    def look(self, updates: int) -> Findings:
        """Read the records since the last look; the host waits for the device once.

        Args:
            updates: how many were made, those that may have been skipped among them.

        Raises:
            InputError: too many updates in a row were skipped for the run to recover.
        """
        batches, norms = self._batches, self._norms
        self._batches, self._norms = [], []
        if not (batches or norms):
            return Findings()
        finite = [torch.isfinite(losses).all().float() for _, losses, _ in batches]
        read = torch.stack([*(norm.float() for norm in norms), *finite]).tolist()
        found = Findings()
        made = updates - len(norms)
        for norm in read[: len(norms)]:
            if math.isfinite(norm):
                found.norms.append(norm)
                self._largest_norm = max(self._largest_norm, norm)
                self.failures, made = 0, made + 1
            else:
                found.skipped += 1
                self.failures += 1
                if self.failures >= FAILURES:
                    raise InputError(
                        f"The gradients of {FAILURES} updates in a row were not finite, the last at update {made}; "
                        f"none of them changed the weights. Lower --learningrate, or train with --precision fp32."
                    )
        for (update, losses, examples), good in zip(batches, read[len(norms) :], strict=True):
            if not good:
                found.wrong.append(f"Update {update}: {about(losses, examples)}")
        return found


def sums_of(optimizer: torch.optim.Optimizer | None) -> list[int]:
    """Sum up the bits of each weight, which differ once one number does; a BERT-base takes a tenth of a second."""
    groups = [] if optimizer is None else optimizer.param_groups
    weights = [weight.detach() for group in groups for weight in group["params"]]
    sums = [weight.view(BITS[weight.element_size()]).sum() for weight in weights]
    return torch.stack(sums).tolist() if sums else []


def about(losses: Tensor, examples: EncodedExamples) -> str:
    """Describe the first example whose loss is not finite; at least one of the losses [B] is not."""
    wrong = (~torch.isfinite(losses)).nonzero().flatten().tolist()
    label = examples.labels[wrong[0]]
    return (
        f"the loss of {len(wrong)} of {number_of(len(losses), 'example')} is not finite, and the batch is not "
        f"trained on. The first: {examples.texts[wrong[0]]!r} -> {None if label is None else label.candidate.text!r}"
    )
