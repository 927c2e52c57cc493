"""The caller's settings of torch and transformers: our calls compute as if nothing were set, and change nothing."""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from polyagents.errors import InputError

LOADING = threading.RLock()
"""For one thread at a time: transformers replaces functions of torch and of its own as it builds a model."""

FLOATS = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.eye, torch.linspace, torch.logspace}
INFERRED = {torch.tensor, torch.full, torch.arange, torch.range, torch.scalar_tensor, torch.as_tensor}
DRAWING = {torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.multinomial}
DRAWING |= {getattr(Tensor, f"{name}_") for name in ("normal", "uniform", "random", "bernoulli", "exponential")}
INITS = "normal uniform trunc_normal kaiming_uniform kaiming_normal xavier_uniform xavier_normal orthogonal"
DRAWING |= {getattr(nn.init, f"{name}_") for name in INITS.split()}


class Threads(threading.local):
    """Whether this thread has computed with others, and whether a fork has taken those away.

    OpenMP, by which torch computes, would wait for them without end. Threads that a forked process starts find others.
    """

    has_computed = has_lost = False

    def forked(self) -> None:
        """Note, in the new process, that the threads are gone."""
        self.has_lost = self.has_computed


THREADS = Threads()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=THREADS.forked)


@contextlib.contextmanager
def undisturbed(gradients: bool = False) -> Iterator[None]:
    """Compute in this thread as torch does if nobody has set anything: in fp32, on the CPU, without autocast.

    Raises:
        InputError: in a process that was forked by a thread which had computed with others (`Threads`).
    """
    if torch.get_num_threads() > 1:
        if THREADS.has_lost:
            raise InputError(
                "This process was forked after its parent had computed with several threads, and torch would wait "
                "here forever. Start processes by spawn (multiprocessing.get_context('spawn')), load and rank in them "
                "only, or call torch.set_num_threads(1) in them first."
            )
        THREADS.has_computed = True
    with contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(gradients))
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if torch.get_default_dtype() != torch.float32:
            stack.enter_context(InFp32())
        yield


@contextlib.contextmanager
def learning() -> Iterator[None]:
    """Compute as `undisturbed` does, with gradients.

    Raises:
        InputError: in torch's inference mode, in which the caller's own tensors have none.
    """
    if torch.is_inference_mode_enabled():
        raise InputError(
            "Training needs gradients, and there are none inside torch.inference_mode(); train outside it."
        )
    with undisturbed(gradients=True):
        yield


class InFp32(TorchFunctionMode):
    """torch.set_default_dtype(torch.float32) for this thread alone."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, with dtype=torch.float32 if torch would take the default."""
        kwargs = dict(kwargs or {})
        if func in FLOATS and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float32
        made = func(*args, **kwargs)
        if func in INFERRED and kwargs.get("dtype") is None and made.dtype == torch.get_default_dtype():
            is_number = not any(isinstance(given, Tensor) or hasattr(given, "dtype") for given in args)
            return func(*args, **kwargs | {"dtype": torch.float32}) if is_number else made
        return made


class OwnDraws(TorchFunctionMode):
    """Random numbers of a generator of this thread's own, the same in each, so that torch's stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, with our generator if it would take torch's."""
        if func in DRAWING:
            kwargs = {**(kwargs or {}), "generator": self.generator}
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def silent_transformers() -> Iterator[None]:
    """Load without transformers' warnings and progress bars: our errors say what a user should know.

    One thread at a time, so that none restores what another had set. The hub's own bars are left to the user.
    """
    from transformers.utils import logging as transformers_logging

    logger = logging.getLogger("transformers")
    with LOADING:
        level, bars = logger.level, transformers_logging._tqdm_active
        logger.setLevel(logging.ERROR)
        # disable_progress_bar would set the hub's as well, and lose its groups
        transformers_logging._tqdm_active = False
        try:
            yield
        finally:
            logger.setLevel(level)
            transformers_logging._tqdm_active = bars
