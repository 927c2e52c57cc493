"""On a GPU everything is as on a CPU, up to the rounding of each precision, and a training step does not wait for it.

`python -m polyagents.benchmarks.gpu` runs these first.
"""

import subprocess
import sys

import numpy as np
import pytest
import torch
from backbones import SENTENCES
from commands import KINDS, SAMPLE, colour_dialogues, train, weights, write_task
from parlai.core.agents import create_agent
from parlai.core.message import Message
from parlai.core.params import ParlaiParser
from queries import poly_query
from stand import HERE, REPLIES
from starlette.testclient import TestClient

from polyagents import Ranker
from polyagents.index.exact import search
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.parlai_agents.task_reader import TextPair
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
PAIRS = [(f"{SENTENCES[i % 6]} {'and ' * (3 * i)}{i}", f"{SENTENCES[(i + 1) % 6]} {i % 5}") for i in range(8)]
COSINE = {"fp32": 0.9999, "bf16": 0.95, "fp16": 0.999}  # of all gradients on both devices
PRETRAIN = ("-m", "polyagents:Pretrain", "--batch-tokens", "500", "--text-truncate", "48", "--label-truncate", "16")
STEADY = ("--warmup-updates", "-1", "--lr-scheduler", "none")


@pytest.fixture
def agent_of(backbone):
    """An agent in training, on the GPU or not."""

    def build(*flags, gpu=True):
        torch.manual_seed(0)
        arguments = ["--backbone", backbone, "-t", SAMPLE, "-dt", "train", "-bs", "8", "--train-layers", "all"]
        arguments += ["--dropout", "0", "--gradient-clip", "-1", *([] if gpu else ["--no-cuda"]), *flags]
        agent = create_agent(ParlaiParser(True, True).parse_args(arguments))
        assert agent.device.type == (DEVICE if gpu else "cpu")
        return agent

    return build


def ranker_of(kind, *flags):
    return ("-m", KINDS[kind], "--candidates", "batch", "--poly-n-codes", "4", *flags)


def step(agent, pairs=PAIRS):
    torch.manual_seed(1)
    messages = [Message({"id": "x", "text": a, "labels": (b,), "episode_done": True}) for a, b in pairs]
    return agent.batch_act([agent.clone().observe(message) for message in messages])


def gradients(agent):
    found = [p.grad.float().flatten().cpu() for p in agent.model.parameters() if p.grad is not None]
    return torch.cat(found)


def cosine(first, second):
    return float(torch.cosine_similarity(first.double(), second.double(), dim=0))


@pytest.mark.parametrize("chunks", [(), ("--chunk-tokens", "40")], ids=["whole", "chunks"])
@pytest.mark.parametrize("precision", COSINE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_step_has_the_gradients_of_a_cpu_in_fp32(agent_of, kind, precision, chunks):
    there = agent_of(*ranker_of(kind, *chunks, "--precision", precision))
    if precision == "fp16":
        there.scaler = torch.amp.GradScaler(DEVICE, init_scale=64.0)  # the first of 65,536 is too large for all
    here = agent_of(*ranker_of(kind, "--precision", "fp32"), gpu=False)
    losses = [float(reply["metrics"]["mean_loss"].value()) for reply in step(there)]
    assert losses == pytest.approx([float(reply["metrics"]["mean_loss"].value()) for reply in step(here)], abs=0.05)
    assert cosine(gradients(there), gradients(here)) > COSINE[precision]


@pytest.mark.parametrize("chunks", [(), ("--chunk-tokens", "40")], ids=["whole", "chunks"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_step_does_not_wait_for_the_gpu(agent_of, kind, chunks):
    agent = agent_of(*ranker_of(kind, *chunks, "--gradient-clip", "1"))
    step(agent)  # the first one allocates, and asks the backbone what it is
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(agent)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert agent.state_dict()["number_training_updates"] == 2


def test_the_default_is_bf16(agent_of):
    assert agent_of(*ranker_of("bi")).ranking.precision == "bf16"


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_training_ends_where_an_uninterrupted_one_does(kind, backbone, tmp_path):
    task = write_task(tmp_path, colour_dialogues(8))  # one batch, since a resumed training begins its epoch anew
    flags = ("--backbone", backbone, *task, "-dt", "train:ordered", "--precision", "fp32", "--dropout", "0", *STEADY)
    flags += ("--save-every-n-secs", "1e-9")
    train(kind, tmp_path / "whole", *flags, "--max-train-steps", 6)
    train(kind, tmp_path / "parts", *flags, "--max-train-steps", 3)
    train(kind, tmp_path / "parts", *flags, "--max-train-steps", 6)
    states = [weights(tmp_path / name) for name in ("whole", "parts")]
    assert states[0]["number_training_updates"] == states[1]["number_training_updates"] == 6
    for name, weight in states[0]["model"].items():
        torch.testing.assert_close(states[1]["model"][name], weight, rtol=1e-3, atol=1e-5, msg=name)


def test_pretraining_makes_the_updates_of_a_cpu(agent_of):
    there, here = agent_of(*PRETRAIN, "--precision", "fp32"), agent_of(*PRETRAIN, "--precision", "fp32", gpu=False)
    pairs = [TextPair(text, label) for text, label in PAIRS * 4]
    plan = here.plan(pairs, window=0)
    assert there.plan(pairs, window=0) == plan
    for number, update in enumerate(plan[:2]):
        for agent in (there, here):
            agent.train_update(update, number)
        assert cosine(gradients(there), gradients(here)) > COSINE["fp32"]
    first, second = there.report(), here.report()
    assert float(first["loss"]) == pytest.approx(float(second["loss"]), rel=1e-3)


ONE_OF_ONE = """
import sys, torch
from torch import distributed
first, device = sys.argv[1:]
backend = "nccl" if device == "cuda" else "gloo"
distributed.init_process_group(backend, init_method=f"file://{first}", rank=0, world_size=1)
from polyagents.training import distributed as ours
weights = [torch.nn.Parameter(torch.zeros(size, device=device)) for size in (3, 300, 300_000)]
for weight in weights[1:]:
    weight.grad = torch.ones_like(weight)
ours.average_gradients(weights)
assert weights[0].grad is None and all(float(weight.grad.min()) == 1 for weight in weights[1:])
own = torch.arange(6.0, device=device).view(3, 2).requires_grad_()
rows = ours.GatheredRows.apply(own, ours.shares([5, 9, 7]))
assert rows.tolist() == [[4, 5], [0, 1], [2, 3]] and ours.gathered("text") == ["text"]
rows[0].sum().backward()
assert own.grad.tolist() == [[0, 0], [0, 0], [1, 1]]
print("as alone")
"""


def test_one_process_of_nccl_is_as_one_alone(tmp_path):
    command = [sys.executable, "-c", ONE_OF_ONE, str(tmp_path / "first"), DEVICE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip().endswith("as alone"), done.stderr


def test_a_million_candidates_are_searched_as_on_a_cpu():
    generator = torch.Generator().manual_seed(0)
    stored = InMemoryCandidates([], torch.randn(1_000_000, 64, generator=generator))
    context = torch.randn(2, 16, 64, generator=generator)
    mask = torch.ones(2, 16).bool()
    here = poly_query(context, mask)
    there = poly_query(context.to(DEVICE), mask.to(DEVICE))
    ours, theirs = search(there, stored, 10), search(here, stored, 10)
    np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-4)
    assert ours.indices.tolist() == theirs.indices.tolist()


@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_fixed_candidates_and_a_server_answer_as_on_a_cpu(trained, kind, tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("\n".join(REPLIES))
    expected = Ranker.load(trained(kind), no_cuda=True, precision="fp32").rank("hi", REPLIES, top_k=3)
    served = Sources(trained(kind), str(path)).read()
    assert served.ranker.device.type == DEVICE
    with TestClient(create_app(served), HERE) as client:
        answer = client.post("/rank", json={"context": "hi", "top_k": 3})
    assert answer.status_code == 200
    scores = [match["score"] for match in answer.json()["matches"]]
    assert scores == pytest.approx([match.score for match in expected], abs=0.1, rel=0.05)
