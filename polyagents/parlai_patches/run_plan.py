"""What ParlAI's loop does with a ranker if no flag says it: batch, length, learning rate and validations.

training_loop/budget.py decides, once the number of examples is known.
"""

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from parlai.scripts import train_model
from parlai.scripts.train_model import TrainLoop
from parlai.utils import logging
from parlai.utils.distributed import num_workers

from polyagents.errors import InputError
from polyagents.models.architecture import find
from polyagents.training_loop.budget import (
    COPIES,
    Budget,
    fitting_batch,
    fitting_epochs,
    held_out_examples,
    validations,
)
from polyagents.training_loop.schedule import ENDING, LateDropout
from polyagents.training_loop.summary import chosen_settings, said_choices
from polyagents.training_loop.training_options import papers_warm_up
from polyagents.training_loop.validation import least_kept

VALIDATION_FLAGS = tuple(f"validation_every_n_{unit}" for unit in ("steps", "epochs", "secs"))


def begin_plan(loop: TrainLoop) -> None:
    """Decide what no flag says, say it, and validate the model that a new run starts from."""
    if not hasattr(loop.agent, "rate"):  # an agent of others
        return
    loop.run_progress, loop.begun = None, 0.0
    if not hasattr(loop.agent, "ranking"):  # a pre-training
        fit_length(loop, None)
        return
    size = loop.world.num_examples() or 0
    examples = int(size) if 0 < size < math.inf else None
    fit_batch(loop, examples)
    fit_length(loop, examples)
    logging.info(
        said_choices(loop.agent.opt | chosen_settings(loop.agent.ranking), loop.opt.get("override", {}), examples)
    )
    loop.dropout = LateDropout(loop.agent.ranking, loop.agent.opt["lr_scheduler"])
    loop.dropout.follow(loop._preempted_epochs)
    by_itself = not loop.opt.get("override", {}).keys() & {*VALIDATION_FLAGS}
    loop.validates = by_itself or min(loop.val_every_n_steps, loop.val_every_n_epochs, loop.val_every_n_secs) < math.inf
    loop._total_epochs, loop._total_exs = loop._preempted_epochs, 0  # ParlAI's loop has none before its first update
    if loop.validates:
        loop.valid_worlds = train_model.load_eval_worlds(loop.agent, loop.opt, "valid")
        if by_itself:
            spread_validations(loop, examples)
        if not loop._train_steps and not loop.valid_reports:
            loop.validate()
            loop.world.reset_metrics()
            loop.log_time.reset()
    first = loop.valid_reports[0] if loop.valid_reports else {}
    before = first.get("train_time", 0.0) if first.get("train_steps") == 0 else 0.0
    loop.begun = float(train_model.sync_object(before))
    loop.world.shutdown = functools.partial(shut_down_loop, loop.world.shutdown, loop)


def decide(loop: TrainLoop, **values: Any) -> None:
    """Set options of the loop, and of the agent, which writes them next to the model."""
    for opt in (loop.opt, loop.agent.opt):
        opt.update(values)


def of_a_step(loop: TrainLoop) -> int:
    """Return the examples of an update, of all processes."""
    return int(loop.opt["batchsize"] * loop.opt.get("update_freq", 1) * num_workers())


def fit_batch(loop: TrainLoop, examples: int | None) -> None:
    """Make a smaller batch, in a world of its own, if the default is too large for the examples."""
    opt = loop.opt
    if examples is None or "batchsize" in opt.get("override", {}) or opt.get("dynamic_batching"):
        return
    batch = fitting_batch(opt["batchsize"], examples, num_workers())
    if batch != opt["batchsize"]:
        if opt.get("num_workers"):
            loop.world.shutdown()  # its helpers are processes
        decide(loop, batchsize=batch)
        loop.world = train_model.create_task(opt, loop.agent)


def fit_length(loop: TrainLoop, examples: int | None) -> None:
    """Decide the epochs of a run without an end; if they cannot be counted, the rate follows the validations."""
    opt, agent = loop.opt, loop.agent
    if agent.opt["lr_scheduler"] not in ENDING or budget_of(loop) != Budget():
        return
    if examples is not None and "num_epochs" not in opt.get("override", {}):
        loop.max_num_epochs = fitting_epochs(examples, of_a_step(loop))
        decide(loop, num_epochs=loop.max_num_epochs)
    elif "lr_scheduler" in opt.get("override", {}):
        raise InputError(
            f"--lr-scheduler {opt['lr_scheduler']} falls to the end of the run; say when that is: --num-epochs, "
            f"--max-train-steps or --max-train-time."
        )
    else:
        decide(loop, lr_scheduler="reduceonplateau", warmup_updates=papers_warm_up(find(agent.architecture)))
        agent.build_lr_scheduler(hard_reset=True)


def budget_of(loop: TrainLoop) -> Budget:
    """Return where a run ends."""
    ends = (loop.max_train_steps, loop.max_num_epochs, loop.max_train_time)
    return Budget(*(None if end == math.inf else end for end in ends))


def is_over(loop: TrainLoop) -> bool:
    """Return whether a ranker's run that is resumed had reached its end."""
    done = budget_of(loop).progress(loop._train_steps, loop._preempted_epochs, loop.train_time.time())
    impatient = 0 < loop.opt["validation_patience"] <= loop.impatience
    return hasattr(loop.agent, "ranking") and loop._train_steps > 0 and (impatient or done == 1.0)


# ---- validations -----------------------------------------------------------------------------------------------------


def spread_validations(loop: TrainLoop, examples: int | None) -> None:
    """Spread the validations evenly over the run; take as many examples as its time allows."""
    budget, opt = budget_of(loop), loop.opt
    if budget == Budget():
        loop.val_every_n_epochs = 0.5
        return
    seconds, ranked = first_batch(loop)
    cost = 1.0 if loop.agent.ranking.encodes_candidates else ranked / COPIES
    affordable = budget.affordable(examples or math.inf, of_a_step(loop), cost, seconds / num_workers())
    held_out = sum(world.num_examples() or 0 for world in loop.valid_worlds) or 1
    resumed = loop.agent.opt["validation_max_exs"] if loop._train_steps else -1  # the best model is one of these
    if opt["validation_max_exs"] <= 0 and held_out_examples(affordable, held_out) < held_out:
        decide(loop, validation_max_exs=resumed if resumed > 0 else held_out_examples(affordable, held_out))
    if opt["validation_max_exs"] > 0:
        held_out = min(held_out, opt["validation_max_exs"])
    count = validations(affordable / held_out)
    loop.val_every_n_steps, loop.val_every_n_epochs, loop.val_every_n_secs = (
        math.inf if end is None else end / count for end in (budget.steps, budget.epochs, budget.seconds)
    )


def first_batch(loop: TrainLoop) -> tuple[float, float]:
    """Evaluate one batch of the validation, which begins anew afterwards.

    Returns:
        The seconds that an example took, and how many candidates it ranked; the same for all processes.
    """
    world, begin = loop.valid_worlds[0], time.monotonic()
    world.reset()
    world.parley()
    took, report = time.monotonic() - begin, world.report()
    count, ranked = (float(report.get(name) or 0) or 1.0 for name in ("exs", "candidates"))
    first = train_model.sync_object((took / count, ranked))
    return float(first[0]), float(first[1])


def validate_with_grace(validate: Any, loop: TrainLoop) -> Any:
    """Do as ParlAI's `validate`, with the ties and the patience of training_loop/trainer.py.

    While the rate falls to zero, a later model is kept if it is about as good (`least_kept`). Patience counts no
    validation of the warm-up or of the first pass over the examples. The cutoff ends a run that has begun.
    """
    if not hasattr(loop, "validates"):
        return validate(loop)
    before = loop.best_valid
    if before is not None and loop.agent.opt["lr_scheduler"] in ENDING and loop.valid_reports:
        loop.good_enough = before, least_to_keep(loop, loop.valid_optim * before)
    scheduler = getattr(loop.agent, "scheduler", None)
    if loop._total_epochs < 1 or (scheduler is not None and scheduler._is_lr_warming_up()):
        loop.impatience = -1  # ParlAI adds one
    cutoff = loop.opt["validation_cutoff"]
    loop.opt["validation_cutoff"] = loop.valid_optim * math.inf  # at it, ParlAI writes M, but no checkpoint
    try:
        stop = bool(validate(loop))
    finally:
        loop.opt["validation_cutoff"] = cutoff
    if loop._train_steps and loop.best_valid != before and reaches(loop, cutoff):
        logging.info(f"--validation-cutoff {cutoff:g} is reached: the training ends.")
        stop = True
    keep_if_good_enough(loop)
    loop.good_enough = None
    if loop.best_valid != before:
        loop.noted_of_kept = vars(loop).get("noted")  # at the end, M is not evaluated on the same again
    loop.agent.phase["training"] = True  # so is a batch without a label
    return stop


def reaches(loop: TrainLoop, cutoff: float) -> bool:
    """Return whether the best validation is at least as good as a value."""
    return bool(loop.valid_optim * loop.best_valid >= loop.valid_optim * cutoff)


def keep_if_good_enough(loop: TrainLoop) -> None:
    """Save M, if the validation of a moment ago is no better than the best one, but about as good.

    The checkpoint of that validation says so, and is saved after M.
    """
    (best, least), name = vars(loop).get("good_enough") or (None, math.inf), loop.opt["validation_metric"]
    if best is None or loop.best_valid != best or loop.valid_optim * loop.valid_reports[-1][name] < least:
        return
    loop.good_enough, loop.noted_of_kept = None, vars(loop).get("noted")
    logging.info(f"This {name} is about as good, and later: saving the model as {loop.opt.get('model_file')}")
    loop.save_model()
    loop.saved = True


def shut_down_loop(shutdown: Callable[[], None], loop: TrainLoop) -> None:
    """End the world of a run; its last state, whose rate was the smallest, is validated before, too."""
    if loop.validates and loop.run_progress == 1.0:
        validate_once_more(loop)
    shutdown()


def validate_once_more(loop: TrainLoop) -> None:
    """Validate at the end: ParlAI does not, and later learning would only be in the checkpoint."""
    if loop._train_steps > loop._last_valid_steps:
        if loop._last_log_steps:
            loop.log()
        loop.world.reset_metrics()
        loop.validate()


# ---- the learning rate -----------------------------------------------------------------------------------------------


def follow_progress(get_time: Any, loop: TrainLoop, world: Any) -> Any:
    """Do as ParlAI's `_get_time`, which its loop calls after each batch: learning rate and dropout follow the run."""
    times = get_time(loop, world)
    if hasattr(loop, "run_progress"):
        loop.run_progress = budget_of(loop).progress(loop._train_steps, loop._total_epochs, times[0], loop.begun)
        follow = getattr(loop.agent.scheduler, "follow", None)
        if follow is not None and not loop.agent._number_grad_accum:
            follow(loop.run_progress)
    if hasattr(loop, "dropout"):
        loop.dropout.follow(loop._total_epochs)
    return times


def kept_report(loop: TrainLoop) -> Mapping[str, Any] | None:
    """Return the report of the validation whose model M is; None without one that has the metric."""
    name, falls = loop.opt["validation_metric"], loop.opt.get("lr_scheduler") in ENDING
    best, kept = -math.inf, None
    for report in loop.valid_reports:
        if name in report:
            value = loop.valid_optim * float(report[name])
            if value > best or (falls and value >= least_to_keep(loop, best)):
                kept = report
            best = max(best, value)
    return kept


def least_to_keep(loop: TrainLoop, best: float) -> float:
    """Return `least_kept` for the validations of a run; of all values, larger ones are better."""
    first, name = loop.valid_reports[0], loop.opt["validation_metric"]
    start = loop.valid_optim * float(first[name]) if first.get("train_steps") == 0 and name in first else None
    return least_kept(best, start, float(loop.valid_reports[-1].get("exs") or math.inf))
