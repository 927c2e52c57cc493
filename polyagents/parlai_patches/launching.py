"""ParlAI's multi-process training without a GPU, under torchrun, and when a process dies.

    parlai multiprocessing_train --distributed-world-size 2 -m polyagents:PolyEncoder ...
    torchrun --nproc-per-node 2 -m polyagents train_model -m poly ...

ParlAI starts every process with CUDA and NCCL only, and its first process trains in the launching one: when another
dies, it waits forever.
"""

import contextlib
import copy
import os
from collections.abc import Iterator
from typing import Any

import parlai.scripts.eval_model
import parlai.scripts.multiprocessing_eval as multiprocessing_eval
import parlai.scripts.multiprocessing_train as multiprocessing_train
import parlai.scripts.train_model
import parlai.utils.distributed as parlai_distributed
import torch
from parlai.core.opt import Opt
from parlai.scripts.build_dict import build_dict
from parlai.scripts.multiprocessing_eval import multiprocess_eval
from torch import distributed
from torch.multiprocessing.spawn import ProcessException, spawn

from polyagents.errors import InputError
from polyagents.parlai_patches import train_loop, wrapped
from polyagents.training.distributed import gathered

USERS_FAULT = f"{InputError.__module__}.{InputError.__name__}: "  # begins the last part of a traceback


def patch_launching() -> None:
    """Patch `parlai multiprocessing_train` (idempotent)."""
    multiprocessing_train.launch_and_train = launch_and_train


def patch_workers() -> None:
    """Let the processes of `multiprocessing_eval` evaluate as eval_model of polyagents does."""
    launch = multiprocessing_eval.launch_and_eval
    multiprocessing_eval.multiprocess_eval = evaluating_worker
    multiprocessing_eval.launch_and_eval = lambda opt, port: processes(opt) and launch(opt, port)


def evaluating_worker(rank: int, opt: Opt, *where: Any) -> Any:
    """Evaluate in one of the processes."""
    wrapped.wrap_eval_model()
    choose_device(opt)
    return multiprocess_eval(rank, opt, *where)


def choose_device(opt: Opt) -> bool:
    """Make ParlAI's processes communicate by gloo if they train on CPUs; return whether they do not."""
    if torch.cuda.is_available() and not opt["no_cuda"]:
        return True
    parlai_distributed.distributed_context = gloo_context
    for module in (parlai_distributed, parlai.scripts.train_model, parlai.scripts.eval_model):
        module.all_gather_list, module.sync_object = gathered, from_first
    return False


def from_first(data: Any) -> Any:
    """Return the first process's data, for all (ParlAI's sync_object, which asks for CUDA)."""
    return gathered(data)[0]


def launch_and_train(opt: Opt, port: int | None = None) -> None:
    """Start all processes, wait for them, and end all when one fails: its error is what the user sees.

    Args:
        port: the port of the first process; None for a free one.
    """
    count = processes(opt)
    learn_vocabulary(opt)
    port = port or parlai_distributed.find_free_port()
    try:
        spawn(worker, (opt, port), nprocs=count)
    except ProcessException as error:
        lines = str(error).strip().split("\n")
        raise InputError(
            lines[-1].removeprefix(USERS_FAULT)
            if lines[-1].startswith(USERS_FAULT)
            else f"Process {error.error_index} of {count} ended ({lines[-1]}), and the others were stopped; the same "
            f"command resumes from the last checkpoint."
        ) from error


def processes(opt: Opt) -> int:
    """Return the number of processes; refuse none, the default of a machine without a GPU."""
    count: int | None = opt["distributed_world_size"]
    if not count or count < 1:
        raise InputError(
            f"--distributed-world-size {count}: the default is one process per GPU, and there is none; give the number "
            f"of processes."
        )
    return count


def learn_vocabulary(opt: Opt) -> None:
    """Build the dictionary as ParlAI does before training; it refuses to do so in one of several processes."""
    train_loop.check_options(opt)
    opt = copy.deepcopy(opt)
    if not opt.get("dict_file") and not opt.get("model_file"):
        raise InputError("Training in several processes needs --model-file, for the vocabulary that all of them use.")
    opt["dict_file"] = opt.get("dict_file") or f"{opt['model_file']}.dict"
    build_dict(opt, skip_if_built=True)


def worker(rank: int, opt: Opt, port: int) -> None:
    """Train in one of the processes, which starts with ParlAI as it was shipped."""
    wrapped.wrap_all()
    choose_device(opt)
    multiprocessing_train.multiprocess_train(rank, opt, port)


def train_under_torchrun(arguments: list[str]) -> None:
    """Run `train_model` in a process that torchrun has started; torchrun ends the others when one fails."""
    opt = multiprocessing_train.setup_args().parse_args(arguments)
    opt["distributed_world_size"] = int(os.environ["WORLD_SIZE"])
    if os.environ["RANK"] == "0":  # the others wait for it in the process group
        learn_vocabulary(opt)
    multiprocessing_train.multiprocess_train(
        int(os.environ["RANK"]),
        opt,
        int(os.environ["MASTER_PORT"]),
        gpu=int(os.environ["LOCAL_RANK"]) if choose_device(opt) else None,
        hostname=os.environ["MASTER_ADDR"],
    )


@contextlib.contextmanager
def gloo_context(
    rank: int, opt: Opt, rank_offset: int = 0, gpu: Any = None, init_method: str = "tcp://localhost:61337"
) -> Iterator[Opt]:
    """Do as ParlAI's distributed_context, on CPUs."""
    opt = copy.deepcopy(opt)
    opt["rank"] = rank = rank + rank_offset
    opt["gpu"] = "cpu"
    opt["no_cuda"] = True
    opt.setdefault("override", {})["gpu"] = "cpu"
    with parlai_distributed.override_print(rank != 0 and not opt.get("verbose"), f"rank:{rank:3d} |" if rank else None):
        world = opt["distributed_world_size"]
        distributed.init_process_group("gloo", init_method=init_method, world_size=world, rank=rank)
        try:
            from_first(None)  # all processes start together
            yield opt
        finally:
            distributed.destroy_process_group()
