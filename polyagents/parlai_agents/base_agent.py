"""The common base of our agents on ParlAI's TorchAgent: their initial weights and their files."""

import os
from typing import Any

import numpy as np
import torch
from parlai.core.opt import Opt
from parlai.utils.distributed import is_distributed

from polyagents.errors import InputError
from polyagents.files import model_file
from polyagents.files.atomic import atomic_write, clear_leftovers
from polyagents.files.hashing import file_digest
from polyagents.model_files import initial_weights
from polyagents.model_files.loading import checked_weights, read_weights
from polyagents.models.adapters import load_weights, trained_weights
from polyagents.models.model_options import EncoderOptions
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.parlai_agents.optimising_agent import OptimisingAgent
from polyagents.parlai_patches import train_loop, wrapped
from polyagents.training import distributed
from polyagents.training.optimising import align_weights, refused_where_damaged
from polyagents.training.watch import Watch
from polyagents.training_loop.starting_model import check_start
from polyagents.training_loop.training_files import STATE

# Options that identify one of several processes, and do not belong in M.opt: a model trained on CPUs may be trained
# further on a GPU.
PROCESS_OPTIONS = ("gpu", "no_cuda", "rank", "multiprocessing", "distributed_world_size")


class BaseAgent(OptimisingAgent):
    """A TorchAgent around an encoder."""

    architecture: str
    """The agent's public name: `polyagents:<architecture>`."""

    progress: str | None = None
    """What ParlAI's loop notes of a run, the content of .trainstats: the checkpoint holds it, too."""

    @staticmethod
    def dictionary_class() -> type[TextDictionary]:
        """TorchAgent: return the tokenizer of the backbone."""
        return TextDictionary

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        if opt.get("fp16"):  # ParlAI's flag, which halves the weights themselves; ours uses autocast
            opt["precision"], opt["fp16"] = "fp16", False
        opt["force_fp16_tokens"] = False  # TorchAgent's padding tokens, which our weights and dictionary do not have
        self.encoder_options = EncoderOptions.read(opt)
        device = "cuda" if torch.cuda.is_available() and not opt["no_cuda"] else "cpu"
        self.scaler = torch.amp.GradScaler(device, enabled=self.encoder_options.precision == "fp16")
        self._number_grad_accum = 0
        super().__init__(opt, shared)

    @classmethod
    def upgrade_opt(cls, opt_from_disk: Opt) -> Opt:
        """Do as TorchAgent; M.opt says that the model was in training, and the command decides whether it is now."""
        opt = super().upgrade_opt(opt_from_disk)
        stale = ("datatype",) if train_loop.is_training_run(opt) else ()
        return Opt({name: value for name, value in opt.items() if name not in stale})

    def _checked_start(self, opt: Opt) -> str | None:
        """Return the file from which to load a model; refuse one that does not fit before anything is built.

        Processes that start from different files are refused as well: machines that do not see each other's files would
        each resume from different weights and optimiser states, and none of them would notice.
        """
        file: str | None = self._get_init_model(opt, None)[0]
        if file is None and opt.get("init_model"):
            check_start(opt["init_model"])
        if file is not None:
            initial_weights.check_file(file, opt, self.architecture, train_loop.is_training_run(opt))
        digest = None if file is None or not distributed.is_distributed() else file_digest(file)
        if len(set(distributed.gathered(digest))) > 1:
            raise InputError(
                f"--model-file {opt.get('model_file')} is a different file for some of the processes; give one in a "
                f"folder that all machines share."
            )
        return file

    def begin_run(self) -> None:
        """Prepare ParlAI's loop for a training run."""
        wrapped.wrap_loop()
        self.watch = Watch(self.device, self.optimizer)
        file, start = self.opt.get("model_file"), str(self.opt.get("init_model"))
        if file:
            clear_leftovers(file)  # this run may never write that file again
        if start.endswith(train_loop.CHECKPOINT):
            self.opt["init_model"] = None  # M.opt would send every later command there
        if start == f"{file}{train_loop.CHECKPOINT}":
            train_loop.restore_progress(start, self.progress)

    @property
    def module(self) -> Any:
        """The architecture, without a wrapper for several devices around it."""
        return getattr(self.model, "module", self.model)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device

    # ---- files -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return TorchAgent's state with plain numbers, as the inverse square root schedule has numpy's."""
        state: dict[str, Any] = plain_values(super().state_dict())
        state["model"] = trained_weights(self.module)
        return state | ({"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {})

    def save(self, path: str | None = None) -> None:
        """Save TorchAgent's files (weights, options, dictionary), each atomically.

        The optimiser's state, twice the size of the weights, goes only into the checkpoint, from which training is
        resumed; it goes into every file if there are no checkpoints (`--save-after-valid false`).
        """
        path = path or self.opt.get("model_file")
        if not path:
            return
        if not os.path.exists(f"{path}.dict"):
            self.dict.save(f"{path}.dict", sort=False)
        state = self.state_dict()
        if path.endswith(train_loop.CHECKPOINT):
            if self.progress is not None:
                state["progress"] = self.progress
        elif self.opt.get("save_after_valid"):
            state = {name: state[name] for name in ("model", "number_training_updates")}
        model_file.write(path, state)
        saved = {name: value for name, value in self.opt.items() if name not in PROCESS_OPTIONS}
        with atomic_write(f"{path}.opt") as temporary:
            (Opt(saved) if is_distributed() else self.opt).save(temporary)

    def load(self, path: str) -> dict[str, Any]:
        """Read a model file: tensors and plain values only, so that a stranger's file cannot run code."""
        states = self._read(path)
        if STATE in states and path == f"{self.opt.get('model_file')}{train_loop.CHECKPOINT}":
            raise InputError(
                f"{path} is a checkpoint of Ranker.train; resume with that, or give another --model-file, and "
                f"--init-model to start from its weights."
            )
        states["model"] = checked_weights(self.module, states["model"], path, self.architecture, self.opt["backbone"])
        self.load_state_dict(states["model"])
        with refused_where_damaged(path):
            if self.scaler.is_enabled() and "scaler" in states:
                self.scaler.load_state_dict(states["scaler"])
            if not 0 <= states.get("number_training_updates", 0) < 2**63:
                raise ValueError("number_training_updates")
            if "progress" in states:
                train_loop.check_progress(states["progress"])
        self.progress = states.get("progress")
        return states

    def _read(self, path: str) -> dict[str, Any]:
        return read_weights(path)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load TorchAgent's state; on a CPU the loaded weights replace the model's own, so that none exists twice."""
        load_weights(self.module, state_dict)
        if train_loop.is_training_run(self.opt):
            align_weights(self.module)


def is_training_command(partial_opt: Opt | None) -> bool:
    """Return whether the flags of train_model (or a sibling) are being read, not an evaluation's or a chat's."""
    return partial_opt is not None and "validation_every_n_epochs" in partial_opt


def plain_values(value: Any) -> Any:
    """Convert numpy numbers in nested dicts and lists to Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plain_values(item) for key, item in value.items()}
    return type(value)(plain_values(item) for item in value) if type(value) in (list, tuple) else value
