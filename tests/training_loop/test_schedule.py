"""Learning rates without ParlAI, against those of its schedulers, update by update."""

import pytest
import torch
from parlai.core.opt import Opt
from parlai.nn.lr_scheduler import ParlAILRScheduler

from polyagents.errors import InputError
from polyagents.training_loop.schedule import ENDING, SCHEDULES, Schedule

LOSSES = {
    4: 0.85,
    6: 0.9,
    8: 0.95,
    10: 0.97,
    12: 0.8,
    14: 0.85,
    16: 0.9,
    18: 0.95,
}  # of evaluations after so many updates


def optimizer():
    """Two groups with rates of their own."""
    groups = [
        {"params": [torch.nn.Parameter(torch.zeros(2))]},
        {"params": [torch.nn.Parameter(torch.zeros(2))], "lr": 0.5},
    ]
    return torch.optim.AdamW(groups, lr=0.1)


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("patience", [0, 1])
@pytest.mark.parametrize("warmup", [0, 1, 4, 5])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_rates_are_those_of_parlais_schedulers(kind, warmup, patience):
    ours, theirs = optimizer(), optimizer()
    opt = Opt(lr_scheduler=kind, lr_scheduler_patience=patience, lr_scheduler_decay=0.4, warmup_updates=warmup)
    opt |= {"warmup_rate": 1e-4, "max_train_steps": 20, "invsqrt_lr_decay_gamma": -1}
    parlais = ParlAILRScheduler.lr_scheduler_factory(opt, theirs, {})
    schedule = Schedule(ours, kind, warmup, 1e-4, 20, 0.4, patience)
    assert rates(ours) == pytest.approx(rates(theirs), rel=1e-12)
    theirs.step()  # torch warns where none comes before the schedule's
    for update in range(1, 20):
        schedule.after_update(update)
        if parlais is not None:
            parlais.step(update)
        if update in LOSSES:
            schedule.after_evaluation(LOSSES[update])
            if parlais is not None:
                parlais.valid_step({"loss": LOSSES[update]})
        assert rates(ours) == pytest.approx(rates(theirs), rel=1e-12), update
    assert rates(ours)[1] == pytest.approx(5 * rates(ours)[0])


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_resumed_schedule_goes_on_as_it_was(kind):
    whole, halves = optimizer(), optimizer()
    schedule, first = (Schedule(one, kind, 3, 1e-4, 20) for one in (whole, halves))
    for update in range(1, 20):
        for one in (schedule, first):
            one.after_update(update)
            if update in LOSSES:
                one.after_evaluation(LOSSES[update])
        if update == 9:
            state, held = first.state(), halves.state_dict()
            halves = optimizer()
            first = Schedule(halves, kind, 3, 1e-4, 20)
            halves.load_state_dict(held)
            first.restore(state, update)
        assert rates(whole) == rates(halves), update


@pytest.mark.parametrize("kind", ENDING)
@pytest.mark.parametrize("warmup", [0, 5, 30])
def test_a_rate_that_has_reached_zero_stays_there(kind, warmup):
    schedule = Schedule(optimizer(), kind, warmup, 1e-4, 20)
    for update in (20, 21, 50):
        schedule.after_update(update)
        assert max(rates(schedule.optimizer)) == pytest.approx(0.0, abs=1e-12) or update < warmup


def test_what_ends_with_the_last_update_must_know_it():
    with pytest.raises(InputError, match="--lr-scheduler cosine ends with the last update; give max_train_steps"):
        Schedule(optimizer(), "cosine", 0, 1e-4, None)
