"""What a second training process brings: the table of it, and the training that two processes share."""

import json
import os
import subprocess
from types import SimpleNamespace

import forks
import pytest
from backbones import SENTENCES, save

from polyagents.benchmarks import peers, processes


def test_rates_are_of_whole_batches_and_ratios_are_to_one_process(monkeypatch):
    taken = {(1, 1): [2.0, 4.0, 2.0], (2, 1): [1.0, 1.0, 3.0], (1, 2): [1.25, 1.25, 1.0]}
    monkeypatch.setattr(processes, "steps", lambda count, threads, job: taken[count, threads])
    rows = processes.compare(2, {"batch": 10})
    assert [(row["examples/s"], row["ratio"]) for row in rows] == [(5, 1), (10, 2), (8, 1.6)]
    assert rows[1]["way"] == "2 processes, 1 thread each"


class Forked(forks.Child):
    """A new Python that takes no start."""

    def __init__(self, command, env, text, **outputs):
        with open(os.devnull) as null:
            super().__init__(*command[2:], stdin=null, **outputs, **env)

    def communicate(self):
        with self:
            return self.stdout.read(), self.stderr.read()


@pytest.mark.slow
def test_processes_share_the_steps(tmp_path, monkeypatch):
    examples = [(f"{SENTENCES[row % 6]} {row}", f"{SENTENCES[(row + 1) % 6]} {row}") for row in range(16)]
    (tmp_path / "examples.json").write_text(json.dumps(examples))
    backbone = save("bert", tmp_path / "backbone")
    job = {"backbone": backbone, "kind": "bi", "precision": "fp32", "batch": 4}
    monkeypatch.setattr(processes, "TRAIN", f"import polyagents.benchmarks.peers as peers; "
                        f"peers.TEXT_TRUNCATE = peers.LABEL_TRUNCATE = 20; {processes.TRAIN}")  # fmt: skip
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE))
    found = processes.steps(2, 1, job | {"examples": str(tmp_path / "examples.json")})
    assert len(found) == 2 and min(found) > 0 and peers.TEXT_TRUNCATE == 360  # two of the four are not counted
