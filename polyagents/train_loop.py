"""ParlAI's training loop, so that a killed run goes on where it was and never leaves half a file.

A model in training is two files: M, the weights that did best so far, and M.checkpoint, the last state with the
optimiser's, from which the same command goes on. Each has a .opt, a .dict and a .trainstats beside it.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from parlai.scripts.train_model import TrainLoop
from parlai.utils.distributed import is_primary_worker

from polyagents.shards import writing

CHECKPOINT = ".checkpoint"


def mend() -> None:
    """Replace three methods of ParlAI's loop; twice is once."""
    if getattr(TrainLoop, "of_polyagents", False):
        return
    TrainLoop.of_polyagents = True
    TrainLoop.train_steps = after_resuming(TrainLoop.train_steps)
    TrainLoop.save_model = with_checkpoint(TrainLoop.save_model)
    TrainLoop._save_train_stats = whole_or_not_at_all(TrainLoop._save_train_stats)


def after_resuming(train_steps: Any) -> Any:
    """Keep the best model of a resumed run.

    ParlAI overwrites M at the end of a resumed run that has not beaten it, and then evaluates M.checkpoint for M.
    """

    def mended(self: Any) -> Iterator[Any]:
        file = self.opt.get("model_file")
        if str(self.opt.get("init_model")).endswith(CHECKPOINT):
            self.opt["init_model"] = None
        self.saved = self.best_valid is not None and bool(file) and os.path.exists(file)
        yield from train_steps(self)

    return mended


def with_checkpoint(save_model: Any) -> Any:
    """A run that never validated saves M at its end, and like the others leaves a checkpoint to go on from."""

    def mended(self: Any, suffix: str | None = None) -> None:
        save_model(self, suffix)
        if suffix is None and not self.valid_reports and self.opt.get("save_after_valid"):
            save_model(self, CHECKPOINT)

    return mended


def whole_or_not_at_all(save_train_stats: Any) -> Any:
    """The .trainstats are JSON that a resumed run cannot do without; ParlAI writes over the last ones."""

    def mended(self: Any, suffix: str | None = None) -> None:
        file = self.opt.get("model_file")
        if not file or not is_primary_worker():
            return
        end = f"{suffix or ''}.trainstats"
        with writing(f"{file}{end}") as temporary:
            self.opt["model_file"] = temporary
            try:
                save_train_stats(self, None)
                os.replace(f"{temporary}.trainstats", temporary)
            finally:
                self.opt["model_file"] = file
                with contextlib.suppress(OSError):
                    os.remove(f"{temporary}.trainstats")

    return mended
