"""Skipped updates are noticed after some time, and their number is right then."""

import math

import pytest
import torch

from polyagents import Ranker
from polyagents.errors import InputError
from polyagents.ranking.candidate_set import Candidate, Label
from polyagents.training import watch
from polyagents.training.candidate_sources import EncodedExamples
from polyagents.training.watch import Watch
from polyagents.training_loop.callbacks import Callback

EXAMPLES = EncodedExamples(
    [[1], [2]], ["hello", "how are you ?"], [Label(Candidate("fine", (3,)), ("fine",)), None], None
)
GPU = torch.device("cuda")  # only its name is looked at
NAN = torch.tensor(math.nan)


def test_a_cpu_is_looked_at_after_every_update_and_a_gpu_after_ten():
    for device, due in ((torch.device("cpu"), 1), (GPU, 10)):
        seen = Watch(device)
        for number in range(1, 11):
            seen.saw_update(torch.tensor(1.0))
            assert seen.is_due == (number >= due)


def test_what_is_found():
    seen = Watch(GPU)
    seen.saw_batch(1, torch.tensor([0.5, 0.1]), EXAMPLES)
    seen.saw_update(torch.tensor(2.0))
    seen.saw_batch(2, torch.tensor([0.5, math.inf]), EXAMPLES)
    seen.saw_update(NAN)
    seen.saw_update(NAN)
    found = seen.look(3)
    assert (found.norms, found.skipped, seen.failures) == ([2.0], 2, 2)
    assert found.wrong == [
        "Update 2: the loss of 1 of 2 examples is not finite, and the batch is not trained on. "
        "The first: 'how are you ?' -> None"
    ]
    assert seen.look(1) == watch.Findings() and not seen.is_due
    seen.saw_update(torch.tensor(1.0))
    assert seen.look(2).norms == [1.0] and seen.failures == 0


@pytest.mark.parametrize("every", [1, 10])
def test_a_training_that_cannot_recover_says_its_last_update(monkeypatch, every):
    monkeypatch.setitem(watch.EVERY, "cpu", every)
    seen, updates = Watch(torch.device("cpu")), 0
    with pytest.raises(InputError, match="of 30 updates in a row were not finite, the last at update 4;"):
        for number in range(100):
            seen.saw_update(torch.tensor(1.0) if number < 4 else NAN)
            updates += 1
            if seen.is_due:
                updates -= seen.look(updates).skipped


@pytest.mark.parametrize(
    ("rate", "norms", "moves", "why"),
    [
        (1e-3, [0.5], False, "rate is too small"),
        (1e-3, [0.0, 0.0], False, "were 0"),
        (1e-3, [0.0], True, "were 0"),  # by weight decay
        (1e-3, [math.inf, math.nan], False, "were not finite"),
        (1e-3, [0.5, 0.0], True, None),
        (0.0, [0.5], False, None),
        (1e-3, [], False, None),  # a run that was at its end
    ],
)
def test_a_run_that_learns_nothing_is_an_error(rate, norms, moves, why):
    weights = [torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones((), dtype=torch.bfloat16))]
    seen = Watch(torch.device("cpu"), torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:]}], lr=rate))
    for norm in norms:
        seen.saw_update(torch.tensor(norm))
    seen.look(len(norms))
    if moves:
        weights[1].data += 0.01
    if why is None:
        return seen.check_learned()
    with pytest.raises(InputError, match=why):
        seen.check_learned()


class Infinite(Callback):
    """Makes all gradients infinite."""

    def on_train_begin(self, trainer):
        for weight in trainer.parameters:
            weight.register_hook(lambda gradient: gradient * math.inf)


ALONE = [{"context": "hi", "label": "hello", "candidates": ["hello"]}] * 4


@pytest.mark.parametrize("options", [{"callbacks": [Infinite()]}, {"candidates": "inline", "weight_decay": 0.1}])
def test_a_training_that_learns_nothing_does_not_finish(options, tmp_path):
    given = {"backbone": "scratch:tiny", "batchsize": 2, "num_epochs": 1, "progress": False}
    with pytest.raises(InputError, match="Nothing was learned"):
        Ranker.train(ALONE, tmp_path / "M", "cross", **given, **options)
    assert not (tmp_path / "M").exists()
