"""Batches as real data bring them: several labels, no label, no text, and processes of which one has no example."""

import json
import math

import pytest
import torch
from agent_batches import act, value
from commands import KINDS, TINY, colour_dialogues, evaluate, own, run, weights, write_task
from parlai.core.message import Message
from parlai.core.metrics import TeacherMetrics

from polyagents import InputError, Ranker
from polyagents.text.normalize import normalize

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


# ---- no label or no candidates, beside others ------------------------------------------------------------------------

MIXES = {
    "all have both": [(("yes",), REPLIES), (("no",), REPLIES[:3]), (("never",), REPLIES[2:])],
    "none has candidates": [(("yes",), None), (("no",), None), (("yes",), None), (("in canada",), None)],
    "one has candidates": [(("yes",), None), (("no",), REPLIES), (("never",), None), (("so you like red",), [])],
    "one of each": [(("yes",), REPLIES), (("no",), None), (None, REPLIES), (None, None)],
    "blank ones": [(("yes",), [""]), (("",), REPLIES), ((" ", "no"), None), ((), None), (("never",), ["", "yes"])],
    "several labels": [(("yes", "Yes !"), None), (("no", "never"), None), (("YES",), REPLIES), (("no",), None)],
    "candidates without its label": [(("hm",), ["yes", "no"]), (("oh",), None), (("ah",), None)],
    "one alone": [(("yes",), None)],
    "one with a label": [(("yes",), None), (None, None), (("",), None)],
}


def by_hand(agent, text, right, ranked):
    """The metrics of an example, by a loop over the texts that it ranks; its first right label is in the loss."""

    def same(one):
        return normalize(one) in map(normalize, right)

    texts = [*ranked, *([] if any(one in right for one in ranked) else right[:1])]
    scores = Ranker(agent.ranking).score(text, texts)
    wrong = [score for one, score in zip(texts, scores, strict=True) if not same(one)]
    best = max(score for one, score in zip(texts, scores, strict=True) if same(one))
    drawn = scores[texts.index(next(label for label in right if label in texts))]
    scale = agent.module.logit_scale
    loss = math.log(sum(math.exp(scale * (score - drawn)) for score in [drawn, *wrong]))
    rank = 1 + sum(score >= best for score in wrong)
    return {"loss": loss, "rank": rank, "mrr": 1 / rank, "candidates": len(texts), "hits@1": rank == 1}


def labels_of(given):
    """What is a label of what is given as labels."""
    return [label for label in given or () if label.strip()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_what_lacks_candidates_ranks_the_labels_of_its_batch_and_what_lacks_a_label_is_counted(kind, make):
    evaluating, training = (
        make(kind, "--candidates", "inline", "--eval-candidates", "inline", datatype=datatype)
        for datatype in ("valid", "train")
    )
    evaluating.random.choice = training.random.choice = lambda labels: labels[0]  # which of several is drawn
    for mix, given in MIXES.items():
        rows = [(f"{TEXTS[i % 3]} {i}", *row) for i, row in enumerate(given)]
        real = [[label for label in labels or () if label.strip()] for _, labels, _ in rows]
        own = [list(some or ()) if any(map(str.strip, some or ())) else [] for _, _, some in rows]
        of_batch = list(dict.fromkeys(labels[0] for labels in real if labels))
        lack = sum(bool(labels) and not some for labels, some in zip(real, own, strict=True))
        missing = {"no_label": real.count([]), "no_candidates": lack}
        examples = zip(rows, real, own, strict=True)
        expected = [by_hand(evaluating, row[0], labels, some or of_batch) for row, labels, some in examples if labels]

        def counted(agent, missing=missing):
            report = agent.report()
            agent.reset_metrics()
            return {name: int(report[name].value()) if name in report else 0 for name in missing}

        replies = act(evaluating, [message(text, labels, "eval_labels", some) for text, labels, some in rows])
        teacher = TeacherMetrics("loss")
        for (_, labels, _), some, reply in zip(rows, real, replies, strict=True):
            if labels is not None:
                teacher.evaluate_response(reply, labels)
                assert ("text" in reply) == bool(some), mix
        report = {name: float(metric.value()) for name, metric in teacher.report().items()}
        for name in expected[0]:
            mean = sum(one[name] for one in expected) / len(expected)
            assert report[name] == pytest.approx(mean, abs=1e-4), (mix, name)
        assert counted(evaluating) == missing, mix

        if kind == "bi" and any(own):  # a joint model draws random labels where there are no candidates
            replies = act(training, [message(text, labels, "labels", some) for text, labels, some in rows])
            losses = [value(reply, "mean_loss") for reply in replies if "metrics" in reply]
            assert losses == pytest.approx([one["loss"] for one in expected], abs=1e-4), mix
            assert counted(training) == missing, mix


def test_a_message_without_a_label_in_the_middle_of_an_episode(make):
    """Nothing is said there, and the episode goes on; ParlAI's agent fails."""
    agent = make("bi", "--eval-candidates", "batch", datatype="valid")
    for labels in (("",), (), None, ("yes",)):
        agent.observe(
            Message(
                {"id": "x", "text": "hi", "episode_done": False} | ({} if labels is None else {"eval_labels": labels})
            )
        )
        agent.self_observe(agent.batch_act([agent.observation])[0])
    assert agent.history.get_history_str() == "hi\nhi\nhi\nhi\nyes"


@pytest.mark.parametrize("source", ["inline", "batch", "fixed"])
def test_a_file_that_ends_in_persona_lines_is_evaluated(source, trained, tmp_path, monkeypatch, capsys):
    """As `head -n` leaves it: the lines are alone in a batch, or beside others."""
    entries = "1 your persona: i ski .\n2 hi\thello\t\tbye|no|hello\n3 ok\tbye\t\tbye|no\n1 your persona: i swim .\n"
    (tmp_path / "valid.txt").write_text(entries)
    monkeypatch.setattr("polyagents.tasks.convai2.Sample.sample", str(tmp_path))
    task = ("-t", "polyagents.tasks.convai2:sample", "-dt", "valid")
    report = evaluate(trained("bi"), *task, *fixed(source, tmp_path), "-bs", 1)
    assert report["exs"] == 2 and report["no_label"] == 1 and 1 <= report["candidates"] <= 7
    capsys.readouterr()
    own("evaluate", "-mf", trained("bi"), *task, *fixed(source, tmp_path), "-bs", 4)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("polyagents.tasks.convai2:sample, valid: 2 examples of 1 dialogue, ")
    assert said[1] == "Without a label, and skipped: 1."


def test_a_set_without_any_label_is_refused_in_one_sentence(tmp_path):
    task = write_task(tmp_path, [(text, "", None) for text, _, _ in colour_dialogues(8)])
    with pytest.raises(InputError, match="The validation examples of --task fromfile:parlaiformat have no label"):
        run("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", *TINY, *task, "-vstep", 1)


def test_a_task_some_of_whose_examples_have_candidates_or_labels_is_trained_on(tmp_path):
    """In whole batches none has any, which another process may have prepared."""
    flags = ("--candidates", "inline", "--num-workers", 1)
    rows = [
        (text, label * (i % 4 > 1), own if i == 7 else None) for i, (text, label, own) in enumerate(colour_dialogues(8))
    ]
    run("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", *TINY, *write_task(tmp_path, rows), *flags,
        "-dt", "train:ordered", "-bs", 2, "--num-epochs", 1)  # fmt: skip
    assert json.loads((tmp_path / "M.trainstats").read_text())["final_valid_report"]["no_label"] == 4


# ---- resuming --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
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
