"""What our agents and tasks do to the ParlAI beside them, and what is said where there is none."""

import forks
import pytest
import torch
from parlai.nn.lr_scheduler import ReduceOnPlateauLRScheduler

from polyagents.parlai_patches import patches


def python(code):
    """Run some Python in a process of its own that has imported neither ParlAI nor polyagents."""
    return forks.run(code, bare=True)


def test_without_parlai_an_agent_names_the_missing_command():
    done = python("import sys; sys.modules['parlai'] = None; import polyagents; polyagents.PolyEncoder")
    assert done.returncode == 1
    assert "pip install --no-deps parlai==1.7.2" in done.stderr.strip().split("\n")[-1]


PATCHED = "print(ParlaiParser.error.__module__, flush=True)"


@pytest.mark.slow
def test_parlai_is_patched_as_soon_as_it_has_one_of_our_agents_or_tasks_and_not_before():
    """A child of the process, which has loaded ParlAI, asks for a task; the process itself for an agent."""
    done = python(
        f"import os; from parlai.core.params import ParlaiParser; import polyagents; {PATCHED}\n"
        f"if os.fork(): os.wait(); {PATCHED}; polyagents.BiEncoder\n"
        f"else: import polyagents.tasks\n"
        f"{PATCHED}"
    )
    ours, theirs = "polyagents.parlai_patches.compat", "parlai.core.params"
    assert done.stdout.split() == [theirs, ours, theirs, ours], done.stderr


def test_parlais_default_scheduler_decays_on_a_plateau():
    patches.apply()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = ReduceOnPlateauLRScheduler(optimizer, patience=0, decay=0.4, warmup_updates=-1, warmup_rate=1e-4)
    for loss in (1.0, 1.0):
        scheduler.valid_step({"loss": loss})
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4)


def test_a_task_that_cannot_be_downloaded_is_one_sentence(tmp_path, monkeypatch):
    from parlai.core import build_data

    from polyagents import InputError
    from polyagents.parlai_patches import compat

    patches.apply()
    monkeypatch.setattr(compat, "is_reachable", lambda url: False)
    with pytest.raises(InputError, match=r"data.tgz cannot be downloaded: example.org .*tasks.sample"):
        build_data.download("http://example.org/data.tgz", str(tmp_path), "data.tgz")


@pytest.mark.parametrize(("verbose", "lines"), [(False, 1), (True, 4)])
def test_only_given_options_are_listed_unless_asked(verbose, lines, monkeypatch):
    from parlai.core.opt import Opt
    from parlai.utils import logging

    patches.apply()
    said = []
    monkeypatch.setattr(logging, "info", said.append)
    monkeypatch.setattr("parlai.core.params.print_git_commit", lambda: None)
    Opt({"verbose": verbose, "batchsize": 7, "override": {"batchsize": 7}}).log()
    assert len(said) == lines and any("batchsize: 7" in line for line in said)
