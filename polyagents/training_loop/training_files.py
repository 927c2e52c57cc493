"""The files of a run from Python: M, the best model so far, and M.checkpoint, from which it is resumed.

Both are a model's three files, which `Ranker.load` opens; M.checkpoint has the optimiser's state as well.
"""

import itertools
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyagents.errors import InputError
from polyagents.files.atomic import clear_leftovers
from polyagents.files.hashing import utf8
from polyagents.files.locks import lock_model
from polyagents.files.own_folder import make_folder_of
from polyagents.model_files.initial_weights import CHECKPOINT
from polyagents.model_files.loading import load_from_file, read_weights
from polyagents.model_files.saving import refuse_other_file, save_model
from polyagents.models.adapters import load_weights
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training.candidate_sources import TrainingCandidates

STATE = "trainer"  # the name in a checkpoint of the state that only our trainer reads


def after_the_end(file: str, keep_checkpoint: bool) -> int:
    """Remove the checkpoint of a finished run unless it is to be kept; return how many bytes of it remain."""
    names = [f"{file}{CHECKPOINT}{ending}" for ending in ("", ".opt", ".dict", ".trainstats")]
    there = list(filter(os.path.exists, names))
    if keep_checkpoint:
        return sum(map(os.path.getsize, there))
    for name in there:
        os.remove(name)
    return 0


class TrainingFiles:
    """The files of a run; without a model file (None) the best weights are kept in memory.

    Attributes:
        resumed: the checkpoint of an earlier run; None if there is none.
    """

    def __init__(self, file: str | None, resume: bool):
        """Lock a model file for this training; its checkpoint and it are replaced unless `resume`.

        A run writes its checkpoint before M, so that M never goes with another run's, or without one to resume from.

        Raises:
            InputError: another process trains it, or M exists and would be lost.
        """
        self.file = file
        self.resumed: str | None = None
        self._best: dict[str, Tensor] | None = None
        if file is None:
            return
        refuse_other_file(file)
        make_folder_of(file)
        self._lock = lock_model(file)
        clear_leftovers(file)
        checkpoint = f"{file}{CHECKPOINT}"
        if resume and os.path.exists(checkpoint):
            self.resumed = checkpoint
        elif resume and os.path.exists(file):
            raise InputError(
                f"{file} exists already, and there is no {checkpoint} to resume from; give another model_file, "
                f"init_model to start from it, or load_from_checkpoint=False to replace it."
            )

    def state(self) -> dict[str, Any]:
        """Read the state of the checkpoint; refuse a damaged one, or one of train_model."""
        assert self.resumed is not None
        states = read_weights(self.resumed)
        if STATE not in states:
            raise InputError(
                f"{self.resumed} is a checkpoint of train_model; resume it with that command, or give another "
                f"model_file, and init_model to start from its weights."
            )
        return states

    def keep_best(self, model: RankingModel) -> None:
        """Keep the model as the best so far."""
        if self.file is None:
            self._best = {name: weight.detach().clone() for name, weight in model.module.state_dict().items()}
        else:
            save_model(model, self.file)

    def keep_last(self, model: RankingModel, state: dict[str, Any]) -> None:
        """Write the checkpoint."""
        if self.file is not None:
            save_model(model, f"{self.file}{CHECKPOINT}", state)

    def load_best(self, model: RankingModel) -> None:
        """Load the best weights into the model, if any were kept."""
        if self.file is not None and os.path.exists(self.file):
            load_from_file(model, read_weights(self.file)["model"], self.file)
        elif self._best is not None:
            load_weights(model.module, self._best)


def drawing_state(candidates: TrainingCandidates) -> dict[str, Any]:
    """Return the state of all that a run draws from; of several processes, the first one's."""
    version, numbers, gauss = candidates.random.getstate()
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": [version, list(numbers), gauss]}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if candidates.seen:
        # Bytes, and the end of each text: a pool of 100,000 texts is too large for JSON in a header.
        raw = [utf8(text) for text in candidates.pool]
        content = torch.frombuffer(bytearray(b"".join(raw)) or bytearray(1), dtype=torch.uint8)
        state |= {"seen": candidates.seen, "pool": content, "ends": torch.tensor([len(text) for text in raw]).cumsum(0)}
    return state


def restore_draws(state: Mapping[str, Any], candidates: TrainingCandidates, rank: int) -> None:
    """Continue the random draws from a checkpoint; the processes after the first derive their state from it."""
    if rank:
        torch.manual_seed(int(state["torch"].sum()) + rank)
        return
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(state["cuda"])
    version, numbers, gauss = state["python"]
    candidates.random.setstate((version, tuple(numbers), gauss))
    if "seen" in state:
        content, ends = state["pool"].numpy().tobytes(), state["ends"].tolist()
        candidates.pool = [content[start:end].decode() for start, end in itertools.pairwise([0, *ends])]
        candidates.seen = state["seen"]
