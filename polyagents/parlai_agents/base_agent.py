"""What our agents share on ParlAI's TorchAgent, whatever they learn: optimiser, numbers that overflow, files."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from parlai.core.metrics import GlobalAverageMetric, GlobalTimerMetric, SumMetric
from parlai.core.opt import Opt
from parlai.core.torch_agent import TorchAgent
from parlai.utils.distributed import is_distributed, is_primary_worker
from safetensors import SafetensorError
from torch import Tensor, nn

from polyagents.errors import InputError
from polyagents.files import model_file
from polyagents.files.atomic import atomic_write
from polyagents.models.encoder import Encoder
from polyagents.models.tokens import Tokens, pad
from polyagents.parlai_agents import flags, initial_weights, train_loop
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.training import distributed

# What tells one of several processes who it is, and is nothing for M.opt: a model trained on CPUs may go on on a GPU.
PROCESS_OPTIONS = ("gpu", "no_cuda", "rank", "multiprocessing", "distributed_world_size")
FAILURES = 30  # updates in a row without finite gradients; fp16 needs up to 16 to find its scale


class BaseAgent(TorchAgent):
    """A TorchAgent around an encoder."""

    architecture: str
    """The agent's public name: `polyagents:<architecture>`."""

    @staticmethod
    def dictionary_class() -> type[TextDictionary]:
        """TorchAgent: the tokenizer of the backbone."""
        return TextDictionary

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        if opt.get("fp16"):  # ParlAI's flag, whose way halves the weights themselves; ours is autocast
            opt["precision"], opt["fp16"] = "fp16", False
        self.backbone_options = flags.read_backbone(opt)
        device = "cuda" if torch.cuda.is_available() and not opt["no_cuda"] else "cpu"
        self.scaler = torch.amp.GradScaler(device, enabled=self.backbone_options.precision == "fp16")
        self._number_grad_accum = 0
        self.failed_updates = 0
        super().__init__(opt, shared)

    @classmethod
    def upgrade_opt(cls, opt_from_disk: Opt) -> Opt:
        """TorchAgent's, which adds padding tokens after `--fp16`, that our weights do not know.

        And M.opt says that the model was in training, which an evaluation would believe; without that, the command's
        own word counts.
        """
        opt = super().upgrade_opt(opt_from_disk)
        stale = ("datatype",) if cls._is_training_run(opt) else ()
        return Opt({name: value for name, value in opt.items() if name not in stale} | {"force_fp16_tokens": False})

    @staticmethod
    def _is_training_run(opt: Opt) -> bool:
        datatype = opt.get("datatype", "")
        return not opt.get("interactive_mode") and "train" in datatype and "evalmode" not in datatype

    def _checked_start(self, opt: Opt) -> str | None:
        """The file that a model is to be loaded from, refused where it does not fit, before anything is built."""
        file: str | None = self._get_init_model(opt, None)[0]
        if file is None and opt.get("init_model"):
            raise InputError(f"There is no model at --init-model {opt['init_model']}.")
        if file is not None:
            initial_weights.check(file, opt, self.architecture, self._is_training_run(opt))
        return file

    def longest_input(self) -> int:
        """Tokens of the longest text that the encoder will see."""
        return max(self.text_truncate or 0, self.label_truncate or 0)

    def _check_lengths(self, encoder: Encoder) -> None:
        if encoder.max_tokens is None:
            return
        if self.text_truncate is None or self.label_truncate is None or self.longest_input() > encoder.max_tokens:
            raise InputError(
                f"--text-truncate {self.opt['text_truncate']} and --label-truncate {self.opt['label_truncate']} let "
                f"texts grow longer than the {encoder.max_tokens} tokens that {self.opt['backbone']} has positions "
                f"for; lower them."
            )

    def begin_run(self) -> None:
        """What a training run needs of ParlAI's loop."""
        train_loop.patch()
        if str(self.opt.get("init_model")).endswith(train_loop.CHECKPOINT):
            self.opt["init_model"] = None  # M.opt would send every later command there

    @property
    def module(self) -> Any:
        """The architecture, without a wrapper for several devices around it."""
        return getattr(self.model, "module", self.model)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    def tokens(self, ids: Sequence[Sequence[int]]) -> Tokens:
        """Token ids -> a padded batch on the model's device."""
        return pad(ids, self.dict.pad_id).to(self.device)

    # ---- optimiser -------------------------------------------------------------------------------------------------

    def init_optim(self, params: Any, *args: Any, **kwargs: Any) -> bool:
        """Decay for weight matrices only (as for BERT), own rate for the codes, betas and eps for every Adam.

        ParlAI passes `--betas` and `--adam-eps` on to some optimisers and silently not to AdamW.
        """
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        codes = [p for name, p in named if name == "codes"]
        matrices = [p for name, p in named if p.ndim > 1 and name != "codes"]
        vectors = [p for name, p in named if p.ndim <= 1]
        rate = self.opt.get("codes_learningrate") or self.opt["learningrate"]
        decay = self.opt.get("weight_decay") or 0.0  # ParlAI leaves 0 away, and torch's AdamW then takes 0.01
        groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": decay}]
        groups.append({"params": vectors, "weight_decay": 0.0})
        groups.append({"params": codes, "weight_decay": 0.0, "lr": rate})
        was_reset: bool = super().init_optim([g for g in groups if g["params"]], *args, **kwargs)
        for group in self.optimizer.param_groups:
            if isinstance(self.optimizer, torch.optim.Adam):  # AdamW is one
                group |= {"fused": True, "foreach": None}  # one pass over the weights instead of ten
            if "betas" in group:
                group["betas"] = tuple(self.opt["betas"])
            if "betas" in group and "eps" in group:
                group["eps"] = self.opt["adam_eps"]
        return was_reset

    def build_lr_scheduler(self, states: dict[str, Any] | None = None, hard_reset: bool = False) -> None:
        """TorchAgent's, without two slips on resuming.

        Building a LambdaLR steps once, so the first update has the rate of the second, or that of the very start. And
        where there is no scheduler the count of updates begins anew.
        """
        if states and "optimizer" not in states:  # M itself, not its checkpoint: the training begins anew
            states, hard_reset = {}, True
        rates = [group["lr"] for group in self.optimizer.param_groups]
        super().build_lr_scheduler(states, hard_reset)
        if states and not hard_reset:
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            self._number_training_updates = states.get("number_training_updates", 0)

    def state_dict(self) -> dict[str, Any]:
        """TorchAgent's, with plain numbers: the inverse square root schedule keeps numpy's, which `load` refuses."""
        state: dict[str, Any] = plain(super().state_dict())
        return state | ({"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {})

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """TorchAgent's, for one model that no wrapper synchronises, with the loss scaled in fp16."""
        accumulated = self.opt.get("update_freq", 1)
        self._number_grad_accum = (self._number_grad_accum + 1) % accumulated
        self.scaler.scale(loss / accumulated).backward(**kwargs)

    def update_params(self) -> None:
        """TorchAgent's step, left out where the gradients are no numbers: the weights would never be numbers again."""
        if self._number_grad_accum != 0:
            return
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        distributed.average_gradients(parameters)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if torch.isfinite(norm):
            self._update(parameters, norm)
        self.scaler.update()
        self._count_failure(bool(torch.isfinite(norm)))

    def _update(self, parameters: list[nn.Parameter], norm: Tensor) -> None:
        self.global_metrics.add("gnorm", GlobalAverageMetric(float(norm)))
        limit = self.opt.get("gradient_clip", -1)
        if limit > 0:
            nn.utils.clip_grads_with_norm_(parameters, limit, norm)
            self.global_metrics.add("clip", GlobalAverageMetric(float(norm > limit)))
        self.optimizer.step()
        self._number_training_updates += 1
        if is_primary_worker():  # all processes step together
            self.global_metrics.add("ups", GlobalTimerMetric(1))
        if getattr(self, "scheduler", None):
            self.scheduler.step(self._number_training_updates)

    def _count_failure(self, fine: bool) -> None:
        """End a training that cannot recover; in fp16 the first gradients always overflow, until their scale fits."""
        self.failed_updates = 0 if fine else self.failed_updates + 1
        if fine:
            return
        if is_primary_worker():
            self.global_metrics.add("skipped_updates", SumMetric(1))
        if self.failed_updates >= FAILURES:
            raise InputError(
                f"The gradients of {FAILURES} updates in a row were not finite, the last at update "
                f"{self._number_training_updates}; none of them changed the weights. Lower --learningrate, or train "
                f"with --precision fp32."
            )

    # ---- files -----------------------------------------------------------------------------------------------------

    def save(self, path: str | None = None) -> None:
        """TorchAgent's files, each whole or not at all: weights, options, dictionary.

        The optimiser's state, twice the size of the weights, goes into the checkpoint only, from which training goes
        on; into every file where no checkpoints are kept (`--save-after-valid false`).
        """
        path = path or self.opt.get("model_file")
        if not path:
            return
        if not os.path.exists(f"{path}.dict"):
            self.dict.save(f"{path}.dict", sort=False)
        state = self.state_dict()
        if self.opt.get("save_after_valid") and not path.endswith(train_loop.CHECKPOINT):
            state = {name: state[name] for name in ("model", "number_training_updates")}
        model_file.write(path, state)
        saved = {name: value for name, value in self.opt.items() if name not in PROCESS_OPTIONS}
        with atomic_write(f"{path}.opt") as temporary:
            (Opt(saved) if is_distributed() else self.opt).save(temporary)

    def load(self, path: str) -> dict[str, Any]:
        """Read a model file: tensors and plain values only, so that a stranger's file cannot run code."""
        states = self._read(path)
        try:
            self.load_state_dict(states["model"])
        except Exception as error:  # missing, unknown or misshapen weights
            lines = [line.strip() for line in str(error).split("\n")]
            raise InputError(
                f"{path} cannot be loaded as polyagents:{self.architecture} with --backbone {self.opt['backbone']} "
                f"({lines[min(1, len(lines) - 1)]}); it was trained with other options than {path}.opt says."
            ) from error
        if self.scaler.is_enabled() and "scaler" in states:
            self.scaler.load_state_dict(states["scaler"])
        return states

    def _read(self, path: str) -> dict[str, Any]:
        try:
            return model_file.read(path)
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            raise InputError(
                f"{path} cannot be loaded: it is damaged, or no model file of polyagents; give another --model-file."
            ) from error

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """TorchAgent's; on a CPU the weights take the place of the model's own, so that none are there twice."""
        self.module.load_state_dict(state_dict, assign=self.device.type == "cpu")


def is_training_command(partial_opt: Opt | None) -> bool:
    """Whether the flags of train_model (or a sibling) are being read, not those of an evaluation or a chat."""
    return partial_opt is not None and "validation_every_n_epochs" in partial_opt


def plain(value: Any) -> Any:
    """numpy numbers -> Python's, in nested dicts and lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return type(value)(plain(item) for item in value) if type(value) in (list, tuple) else value
