"""Several processes that train as one: the real commands, and the step against that of one process."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forks
import pytest
import torch
from backbones import save
from commands import KINDS, SAMPLE, TINY, weights, workers

from polyagents.errors import InputError
from polyagents.parlai_patches import launching
from polyagents.training import distributed

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}

CASES = [
    ("bi", "--candidates batch"),
    ("poly", "--candidates batch --chunk-tokens 20"),
    ("poly", "--candidates batch+inline --share-encoders true"),
    ("poly", "--candidates batch --poly-attention-type sqrt --chunk-tokens 20 --empty-second"),
    ("bi", "--candidates batch-all-cands --chunk-tokens 20"),
    ("bi", "--candidates inline"),
    ("cross", "--candidates batch"),
    ("uni", "--candidates batch"),
    ("bi", "--candidates batch --same-labels"),
    ("poly", "--candidates batch --empty-second"),
    ("bi", "--candidates inline --empty-second"),
    ("cross", "--candidates batch --empty-second"),
]

# One process of two, or all alone: a training step of every case on its part of the examples, and what comes of it.
STEPS = """
import sys, torch
from torch import distributed
from parlai.core.agents import create_agent
from parlai.core.message import Message
from parlai.core.params import ParlaiParser
import polyagents
from polyagents.training import distributed as exchange

exchange.ALONE, exchange.BUCKET = 4000, 2000  # these small models would have one bucket

def step(kind, flags):
    same = "--same-labels" in flags  # fewer texts to encode than processes
    empty = "--empty-second" in flags  # the second process gets messages without text, or without label
    flags = flags.replace("--same-labels", "").replace("--empty-second", "")
    torch.manual_seed(int(rank))  # each would start from other codes
    arguments = ["-m", kind, "--backbone", backbone, "-t", "integration_tests", "-dt", "train", "-bs", "6"]
    arguments += ["--dropout", "0", "--gradient-clip", "-1", "--train-layers", "all", "--poly-n-codes", "4"]
    agent = create_agent(ParlaiParser(True, True).parse_args(arguments + ["-lr", "0.1", *flags.split()]))
    words = "canada is in north america hi how are you i fine thank my dog barks she plays piano every".split()
    examples = [(f"{words[i]} {words[i + 3]}" + " and" * i, words[(i * 5) % 7 + 1]) for i in range(5)]
    examples.append(("where", examples[0][1]))
    if same:
        examples = [(text, "canada") for text, _ in examples]
    given = [[label, words[i + 2], words[-i - 1]][: 3 - i % 2] for i, (_, label) in enumerate(examples)]
    mine = range(6) if world == "1" or empty else (range(4) if rank == "0" else range(4, 6))
    keys = ("id", "text", "labels", "label_candidates", "episode_done")
    rows = [("x", examples[i][0], (examples[i][1],), given[i], True) for i in mine]
    if empty and rank == "1":
        rows = [("x", None, ("canada",), given[0], True), ("x", "where", (), given[0], True)]
    start = {name: p.detach().clone() for name, p in agent.model.named_parameters()}
    messages = [Message({key: value for key, value in zip(keys, row) if value is not None}) for row in rows]
    agent.batch_act([agent.clone().observe(message) for message in messages])
    gradients = {name: p.grad for name, p in agent.model.named_parameters()}
    return start, gradients, {name: p.detach() for name, p in agent.model.named_parameters()}

rank, world, port, backbone, out, *cases = sys.argv[1:]
if world != "1":
    url = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=url, rank=int(rank), world_size=int(world))
torch.save([step(*case.split(" ", 1)) for case in cases], f"{out}.{rank}of{world}")
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Of every case: starting weights, gradients and new weights of one process alone, and of two together."""
    folder = tmp_path_factory.mktemp("steps")
    backbone = save("bert", folder / "backbone")
    port = launching.parlai_distributed.find_free_port()
    cases = [f"{KINDS[kind]} {flags}" for kind, flags in CASES]
    given = (port, backbone, folder / "out", *cases)
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(forks.run, STEPS, *part, *given) for part in (("0", "1"), ("0", "2"), ("1", "2"))]
    assert [run.result().returncode for run in runs] == [0, 0, 0], [run.result().stderr for run in runs]
    return list(zip(*(torch.load(f"{folder / 'out'}.{name}") for name in ("0of1", "0of2", "1of2")), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)), ids=[" ".join(case) for case in CASES])
def test_two_processes_make_the_step_of_one_with_both_parts(steps, case):
    """Parts of different sizes, a label that both have, and candidates of which each encodes its share."""
    one, *both = steps[case]
    for start, gradients, after in both:
        assert start.keys() == one[0].keys()
        for name, gradient in one[1].items():
            # Both had the second one's own seed before them: they start from the first one's weights.
            assert torch.equal(start[name], one[0][name])
            # Terms of both signs cancel, in another order here than there, and where memory lies decides how MKL adds:
            # the difference varies from run to run, up to 1.5e-3 of the largest gradient in some hundred.
            torch.testing.assert_close(
                gradients[name], gradient, rtol=0, atol=1e-5 + 4e-3 * float(gradient.abs().max())
            )
            assert torch.equal(after[name], both[0][2][name])


def test_gradients_travel_in_buckets_of_one_type(monkeypatch):
    monkeypatch.setattr(distributed, "BUCKET", 400)
    half = torch.zeros(7, dtype=torch.float16)
    gradients = [torch.zeros(*shape) for shape in ((3,), (50, 2), (9, 9), (90,), (4,))] + [half, half, torch.zeros(2)]
    packed = list(distributed.buckets(gradients))
    assert [id(one) for bucket in packed for one in bucket] == [id(one) for one in gradients]
    assert [[one.numel() for one in bucket] for bucket in packed] == [[3, 100], [81, 90], [4], [7, 7], [2]]


def test_texts_are_dealt_out_evenly(monkeypatch):
    monkeypatch.setattr(distributed, "num_workers", lambda: 3)
    lengths = [5, 9, 1, 7, 3, 3, 8]
    dealt = distributed.shares(lengths)
    assert sorted(row for part in dealt for row in part) == list(range(7))
    sums = [sum(lengths[row] for row in part) for part in dealt]
    assert max(sums) - min(sums) <= max(lengths)


FLAGS = (*TINY, "--validation-max-exs", "16", "--short-final-eval", "true")


def command(how, file, *flags):
    """Two training processes, started the one way or the other."""
    folder = Path(sys.executable).parent
    torchrun = [folder / "torchrun", "--standalone", "--nproc-per-node", "2", "-m", "polyagents", "train_model"]
    parlai = [folder / "parlai", "multiprocessing_train", "--distributed-world-size", "2"]
    return [*map(str, (*(torchrun if how == "torchrun" else parlai), "-m", KINDS["poly"], "-mf", file, *FLAGS, *flags))]


@pytest.mark.release
@pytest.mark.parametrize("how", ["torchrun", "multiprocessing_train"])
def test_a_process_that_dies_ends_the_others_and_training_goes_on_from_the_checkpoint(how, tmp_path):
    file = tmp_path / "M"
    flags = ("-t", SAMPLE, "--save-every-n-secs", "0.5")
    run = subprocess.Popen(
        command(how, file, *flags, "--max-train-steps", "100000"),
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 100
        while not os.path.exists(f"{file}.checkpoint.trainstats"):
            assert run.poll() is None and time.monotonic() < deadline, run.communicate()
            time.sleep(0.1)
        os.kill(workers(run.pid)[-1], signal.SIGKILL)
        begin = time.monotonic()
        output, _ = run.communicate(timeout=60)
        assert run.returncode != 0 and time.monotonic() - begin < 60
        assert "SIGKILL" in output
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    before = weights(f"{file}.checkpoint")["number_training_updates"]
    assert before > 0 and json.loads(Path(f"{file}.checkpoint.trainstats").read_text())["train_steps"] > 0
    done = subprocess.run(
        command(how, file, *flags, "--max-train-steps", str(before + 3)),
        env=ENVIRONMENT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert before < weights(file)["number_training_updates"] <= before + 8


@pytest.mark.release
def test_what_several_processes_cannot_do(tmp_path):
    arguments = command("multiprocessing_train", tmp_path / "M", "-t", SAMPLE, "--candidates", "fixed")
    arguments += ["--fixed-candidates-path", str(tmp_path / "none.txt")]
    done = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("parlai: ") and "none.txt" in done.stderr
    with pytest.raises(InputError, match="give the number of processes"):
        launching.launch_and_train({"distributed_world_size": 0})
