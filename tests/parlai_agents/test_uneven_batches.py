"""Batches as real data bring them: several labels, no label, no text, and processes of which one has no example."""

import math

import pytest
import torch
from agent_batches import act, value
from commands import KINDS, TINY, colour_dialogues, run, weights, write_task
from parlai.core.message import Message
from parlai.core.metrics import TeacherMetrics

from polyagents import Ranker

TEXTS = ["i like red", "where do you live ?", "do you ski ?"]
REPLIES = ["yes", "no", "so you like red", "in canada", "never"]


@pytest.fixture
def make(make):
    """Agents that neither drop nor learn anything, so that batches can be compared."""
    return lambda kind, *flags, **options: make(kind, "--dropout", "0", "-lr", "0", *flags, **options)


def message(text, labels, key, candidates=REPLIES):
    fields = {"id": "x", "text": text, key: labels, "label_candidates": candidates, "episode_done": True}
    return Message({name: value for name, value in fields.items() if value is not None})


def fixed(source, tmp_path):
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES))
    return (
        "--candidates",
        source,
        "--eval-candidates",
        source,
        "--fixed-candidates-path",
        str(tmp_path / "replies.txt"),
    )


# ---- several labels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["inline", "fixed", "batch-all-cands"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_label_counts_in_every_metric(make, kind, source, tmp_path):
    """ParlAI counts any label in its hits@k: rank, mrr and ours say the same."""
    agent = make(kind, *fixed(source, tmp_path), "--recall-at", "1,2,3,4,5", datatype="valid")
    labels = ("never", "no")
    scores = Ranker(agent.ranking).score(TEXTS[2], REPLIES)
    best = max(scores[REPLIES.index(label)] for label in labels)
    rank = 1 + sum(score >= best for text, score in zip(REPLIES, scores, strict=True) if text not in labels)
    (reply,) = act(agent, [message(TEXTS[2], labels, "eval_labels")])
    assert value(reply, "rank") == rank and value(reply, "mrr") == pytest.approx(1 / rank)
    teacher = TeacherMetrics("loss")
    teacher.evaluate_response(reply, labels)
    report = {name: float(metric.value()) for name, metric in teacher.report().items()}
    assert {k: report[f"hits@{k}"] for k in (1, 2, 3, 4, 5)} == {k: float(rank <= k) for k in (1, 2, 3, 4, 5)}


@pytest.mark.parametrize("datatype", ["train", "valid"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_right_label_is_a_negative_of_another(make, kind, datatype):
    """The loss is over the label that was drawn and what is wrong."""
    agent = make(kind, "--candidates", "inline", "--eval-candidates", "inline", datatype=datatype)
    labels = ("never", "no")
    key, metric = ("labels", "mean_loss") if datatype == "train" else ("eval_labels", "loss")
    (reply,) = act(agent, [message(TEXTS[2], labels, key)])
    scores = dict(zip(REPLIES, Ranker(agent.ranking).score(TEXTS[2], REPLIES), strict=True))
    wrong = sum(math.exp(score) for text, score in scores.items() if text not in labels)
    possible = [math.log(wrong + math.exp(scores[label])) - scores[label] for label in labels]
    assert min(abs(value(reply, metric) - loss) for loss in possible) < 1e-4


# ---- no text, no label -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["batch", "inline", "fixed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_message_without_text_or_label_beside_normal_ones(make, kind, source, tmp_path):
    """What is there is trained on and measured as if it were alone; the others are left out."""
    for key, datatype, metric in (("labels", "train", "mean_loss"), ("eval_labels", "valid", "loss")):
        agent = make(kind, *fixed(source, tmp_path), datatype=datatype)
        normal = [message(TEXTS[0], ("so you like red",), key), message(TEXTS[1], ("in canada",), key)]
        odd = [
            message(None, ("yes",), key),
            message(TEXTS[2], None, key),
            message(TEXTS[2], ("",), key),
        ]
        alone = [value(reply, metric) for reply in act(agent, normal)]
        replies = act(agent, [odd[0], normal[0], odd[1], normal[1], *odd[2:]])
        assert [value(replies[i], metric) for i in (1, 3)] == pytest.approx(alone, abs=1e-4)
        for i in (0, 2, 4):
            assert replies[i].get("metrics", {}).get(metric) is None
        assert bool(replies[2].get("text")) == (datatype == "valid")  # it has no label, and gets an answer


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_without_any_example_is_passed_over(make, kind):
    agent = make(kind, "--candidates", "batch")
    act(agent, [message(TEXTS[0], ("yes",), "labels"), message(TEXTS[1], ("no",), "labels")])
    before = agent._number_training_updates
    assert [reply.get("text") for reply in act(agent, [message(None, None, "labels")])] == [None]
    assert agent._number_training_updates == before


# ---- resuming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_a_resumed_run_draws_what_an_undisturbed_one_does(kind, tmp_path):
    """Dropout, and a cross-encoder's random negatives: the checkpoint knows where the generators and the pool were."""
    task = write_task(tmp_path, [(text, label, None) for text, label, _ in colour_dialogues(24)])
    flags = (*task, "-dt", "train:ordered", "--dropout", "0.2", "--validation-max-exs", 8, "--short-final-eval", "true")
    flags += ("--lr-scheduler", "none", "--warmup-updates", "-1")
    flags += ("--candidates", "inline", "--cross-negatives", 3) if kind == "cross" else ("--candidates", "batch")

    def go(name, steps):
        run("train_model", "-m", KINDS[kind], "-mf", tmp_path / name, *TINY, *flags, "--max-train-steps", steps)

    go("whole", 6)
    go("parts", 3)
    go("parts", 6)
    whole, parts = (weights(f"{tmp_path / name}.checkpoint") for name in ("whole", "parts"))
    assert whole["number_training_updates"] == parts["number_training_updates"] == 6
    assert all(torch.equal(weight, parts["model"][name]) for name, weight in whole["model"].items())
    assert torch.equal(whole["draws"]["torch"], parts["draws"]["torch"])
    if kind == "cross":
        assert whole["draws"]["seen"] == parts["draws"]["seen"] == 48
        assert torch.equal(whole["draws"]["pool"], parts["draws"]["pool"])
        assert whole["draws"]["python"] == parts["draws"]["python"]
