"""Dropout begins with the second pass over the examples in both loops, unless a flag or the schedule decides."""

import pytest
from commands import KINDS, TINY, colour_dialogues, run, write_task

from polyagents import Ranker
from polyagents.models.backbone import dropouts_of
from polyagents.training.objective import Objective

FLAGS = TINY[: TINY.index("--dropout")] + TINY[TINY.index("--dropout") + 2 :]
DIALOGUES = colour_dialogues(24)
OWN, FIRST_PASS = 0.1, [0.0] * 3
CASES = {
    "late": ({}, FIRST_PASS + [OWN] * 3),
    "given": ({"dropout": 0.2}, [0.2] * 6),
    "none": ({"dropout": 0.0}, [0.0] * 6),
    "the paper's schedule": ({"lr_scheduler": "reduceonplateau"}, [OWN] * 6),
}


@pytest.fixture
def seen(monkeypatch):
    """The largest probability in each training batch."""
    found, of = [], Objective.of

    def spied(self, *batch):
        found.append(max(value for _, _, value in dropouts_of(self.model.module)))
        return of(self, *batch)

    monkeypatch.setattr(Objective, "of", spied)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("loop", ["Ranker.train", "train_model"])
def test_dropout_of_each_batch(loop, case, seen, tmp_path):
    more, expected = CASES[case]
    more = {"num_epochs": 2, "batchsize": 8, "validation_every_n_epochs": 9} | more
    if loop == "train_model":
        flags = [part for name, value in more.items() for part in (f"--{name.replace('_', '-')}", value)]
        run("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", *FLAGS, *write_task(tmp_path, DIALOGUES), *flags)
    else:
        pairs = [{"context": text, "label": label} for text, label, _ in DIALOGUES]
        ranker = Ranker.train(pairs, model="bi", backbone="scratch:tiny", progress=False, **more)
        assert max(value for _, _, value in dropouts_of(ranker.model.module)) == more.get("dropout", OWN)
    assert seen == expected


@pytest.mark.slow
def test_a_run_that_goes_on_in_its_second_pass_drops_at_once(seen, tmp_path):
    file, task = tmp_path / "M", write_task(tmp_path, DIALOGUES)
    for epochs in (1, 2):
        run("train_model", "-m", KINDS["bi"], "-mf", file, *FLAGS, *task, "--num-epochs", epochs)
    assert seen == FIRST_PASS + [OWN] * 3
