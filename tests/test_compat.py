"""What importing polyagents does to, and says about, the ParlAI beside it."""

import subprocess
import sys

import pytest
import torch
from parlai.nn.lr_scheduler import ReduceOnPlateauLRScheduler


def test_without_parlai_the_missing_command_is_named():
    blocked = "import sys; sys.modules['parlai'] = None; import polyagents"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install --no-deps parlai==1.7.2" in done.stderr.strip().split("\n")[-1]


def test_parlais_default_scheduler_decays_on_a_plateau():
    import polyagents  # noqa: F401

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = ReduceOnPlateauLRScheduler(optimizer, patience=0, decay=0.4, warmup_updates=-1, warmup_rate=1e-4)
    for loss in (1.0, 1.0):
        scheduler.valid_step({"loss": loss})
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4)
