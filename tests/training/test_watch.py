"""Skipped updates are noticed after some time, and their number is right then."""

import math

import pytest
import torch

from polyagents.errors import InputError
from polyagents.ranking.candidate_set import Candidate, Label
from polyagents.training import watch
from polyagents.training.examples import Examples
from polyagents.training.watch import FAILURES, Watch

EXAMPLES = Examples([[1], [2]], ["hello", "how are you ?"], [Label(Candidate("fine", (3,)), ("fine",)), None], None)
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
    with pytest.raises(InputError, match=f"of {FAILURES} updates in a row were not finite, the last at update 4;"):
        for number in range(100):
            seen.saw_update(torch.tensor(1.0) if number < 4 else NAN)
            updates += 1
            if seen.is_due:
                updates -= seen.look(updates).skipped
