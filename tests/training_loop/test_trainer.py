"""Training from Python: ParlAI's step without ParlAI, resuming, stopping, what it says and what it refuses."""

import io
import json
import math
import os
import random
import re
import sys
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import (
    COLOURS,
    colour_dialogues,
    copy_model,
    evaluate,
    largest_difference,
    options,
    train,
    weights,
    write_task,
)
from datasets import Dataset

from polyagents import InputError, Ranker
from polyagents.console import number_of
from polyagents.model_files.saving import save_model
from polyagents.models.architecture import find
from polyagents.parlai_agents.ranker_agent import RankerAgent
from polyagents.ranking.candidate_set import Candidate, Label
from polyagents.training.candidate_sources import TrainingCandidates
from polyagents.training_loop import trainer, training_files, validation
from polyagents.training_loop.callbacks import PACKAGES, Callback
from polyagents.training_loop.from_python import architecture_named
from polyagents.training_loop.text_example import read_example
from polyagents.training_loop.training_data import TrainingData

ROOT = Path(__file__).parents[2]
DIALOGUES = colour_dialogues(24)
EXAMPLES = [{"context": text, "label": label, "candidates": own} for text, label, own in DIALOGUES]
PAIRS = [{"context": text, "label": label} for text, label, _ in DIALOGUES]
SMALL = {"backbone": "scratch:tiny", "poly_n_codes": 4, "dropout": 0.0, "learningrate": 1e-3, "batchsize": 8}
SMALL |= {"text_truncate": 64, "label_truncate": 16, "progress": False}
WITH_A_MODEL = {name: value for name, value in SMALL.items() if name not in ("backbone", "poly_n_codes")}


class InOrder:
    """Examples that can be read again and again, and in their own order only."""

    def __init__(self, examples):
        self.examples = examples

    def __iter__(self):
        return iter(self.examples)


class Listener(Callback):
    """Remembers what it was told, and ends the training after an update."""

    def __init__(self, stop_after=None):
        self.stop_after, self.logs, self.evaluations, self.ended = stop_after, [], [], 0

    def on_step_end(self, trainer):
        trainer.stop = trainer.updates == self.stop_after

    def on_log(self, trainer, report):
        self.logs.append((trainer.updates, report))

    def on_evaluate(self, trainer, report):
        self.evaluations.append((trainer.updates, report))

    def on_train_end(self, trainer):
        self.ended += 1


def trained_weights(ranker):
    return ranker.model.module.state_dict()


def assert_equal_weights(first, second):
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) == 0


# ---- the step --------------------------------------------------------------------------------------------------------

SAME = {
    "poly": ("poly", {"warmup_updates": 3}),
    "poly, in chunks": ("poly", {"chunk_tokens": 64, "lr_scheduler": "linear", "warmup_updates": 2}),
    "poly, codes": ("poly", {"codes_learningrate": 1e-2, "lr_scheduler": "none"}),
    "bi, accumulated": ("bi", {"update_freq": 2, "lr_scheduler": "cosine", "warmup_updates": 2, "gradient_clip": 0.5}),
    "bi, both kinds": ("bi", {"candidates": "batch+inline", "optimizer": "adamax", "warmup_updates": 0}),
    "bi, dropout": ("bi", {"dropout": 0.1, "seed": 5, "warmup_updates": 0}),
    "uni": (
        "uni",
        {"cross_negatives": 3, "warmup_updates": 0, "weight_decay": 0.0, "seed": 42},
    ),  # ParlAI's of negatives
    "cross": ("cross", {"warmup_updates": 0, "optimizer": "adam"}),
}


def parlais(monkeypatch, tmp_path, kind, start, *flags):
    """The weights that ParlAI's training loop ends with, its validations, and the examples in their order."""
    seen, losses = [], RankerAgent._training_losses

    def spied(agent, examples):
        seen.extend(zip(examples.texts, [label.candidate.text for label in examples.labels], strict=True))
        return losses(agent, examples)

    monkeypatch.setattr(RankerAgent, "_training_losses", spied)
    short = ("--validation-max-exs", "8", "--short-final-eval", "true")
    train(kind, tmp_path / "theirs", *write_task(tmp_path, DIALOGUES), "--init-model", start, *short, *flags)
    given = {text: own for text, _, own in DIALOGUES}
    examples = [{"context": text, "label": label, "candidates": given[text]} for text, label in seen]
    stats = json.loads(Path(f"{tmp_path / 'theirs'}.trainstats").read_text())
    return weights(tmp_path / "theirs")["model"], stats["valid_reports"], examples


@pytest.mark.slow
@pytest.mark.parametrize("case", SAME)
def test_the_weights_are_those_of_parlais_loop(case, trained, monkeypatch, tmp_path):
    kind, more = SAME[case]
    more = {"max_train_steps": 5, "seed": 0, "text_truncate": 64, "label_truncate": 16} | more
    flags = [part for name, value in more.items() for part in (f"--{name.replace('_', '-')}", value)]
    theirs, _, examples = parlais(monkeypatch, tmp_path, kind, trained(kind), *flags)
    assert len(examples) == 8 * 5 * more.get("update_freq", 1)
    ranker = Ranker.train(InOrder(examples), model=kind, init_model=trained(kind), **WITH_A_MODEL | more)
    before = weights(trained(kind))["model"]
    assert max(float((theirs[name] - before[name]).abs().max()) for name in before) > 1e-3
    assert_equal_weights(trained_weights(ranker), theirs)


@pytest.mark.slow
def test_validations_and_a_plateaus_rates_are_those_of_parlais_loop(trained, monkeypatch, tmp_path):
    """At a rate this large the loss rises now and then, and the rate falls."""
    more = {"max_train_steps": 10, "learningrate": 0.02, "warmup_updates": 2, "validation_patience": 0}
    more |= {"validation_every_n_steps": 2, "validation_metric": "loss", "seed": 0, "lr_scheduler": "reduceonplateau"}
    flags = [part for name, value in more.items() for part in (f"--{name.replace('_', '-')}", value)]
    _, theirs, examples = parlais(monkeypatch, tmp_path, "poly", trained("poly"), *flags, "--validation-max-exs", "-1")
    listener = Listener()
    more |= {"init_model": trained("poly"), "batchsize": 8, "text_truncate": 64, "label_truncate": 16, "dropout": 0}
    Ranker.train(InOrder(examples), valid=EXAMPLES, callbacks=[listener], progress=False, **more)
    ours = [report for _, report in listener.evaluations[: len(theirs)]]
    assert [report["train_steps"] for report in theirs] == [0, 2, 4, 6, 8, 10]
    for one, other in zip(ours, theirs, strict=True):
        for name in ("loss", "mrr", "hits@1", "hits@5", "rank"):
            assert one[name] == pytest.approx(other[name], rel=1e-6), name
    rates = [report["lr"] for _, report in listener.logs]
    assert min(rates) < 0.5 * max(rates)


@pytest.mark.slow
def test_the_teachers_scores_count(trained, tmp_path):
    plain, taught = (
        Ranker.train(InOrder(PAIRS), init_model=trained("poly"), max_train_steps=2, progress=False, **more)
        for more in ({}, {"teacher_model_file": trained("cross"), "teacher_negatives": 3})
    )
    first, second = trained_weights(plain), trained_weights(taught)
    assert any(not torch.equal(first[name], second[name]) for name in first)


# ---- from where, and to where ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_new_model_learns_and_is_opened_by_ranker_and_by_parlai(tmp_path):
    file = tmp_path / "new" / "M"
    ranker = Ranker.train(PAIRS, file, valid=EXAMPLES, num_epochs=12, warmup_updates=5, **SMALL)
    contexts, replies = [one["context"] for one in EXAMPLES], [f"so you like {colour}" for colour in COLOURS]
    found = [matches[0].text for matches in ranker.rank(contexts, replies, top_k=1)]
    right = np.mean([text == one["label"] for text, one in zip(found, EXAMPLES, strict=True)])
    assert right > 0.6  # 1/8 by chance
    again = Ranker.load(file)
    np.testing.assert_allclose(again.score(contexts, replies), ranker.score(contexts, replies), rtol=1e-5, atol=1e-5)
    report = evaluate(file, *write_task(tmp_path, DIALOGUES), "-dt", "valid")
    assert report["hits@1"] == right
    assert options(file)["model"] == "polyagents:PolyEncoder" and options(file)["learningrate"] == 1e-3
    assert "optimizer" not in weights(file) and "optimizer" in weights(f"{file}.checkpoint")


def test_a_model_may_stay_in_memory_and_be_saved(tmp_path):
    ranker = Ranker.train(PAIRS, model="bi", max_train_steps=2, **SMALL)
    ranker.save(tmp_path / "M")
    assert_equal_weights(trained_weights(Ranker.load(tmp_path / "M")), trained_weights(ranker))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["M", "M.dict", "M.opt"]


def test_an_init_model_keeps_its_backbone(trained):
    with pytest.raises(InputError, match="has the backbone scratch:tiny, and --backbone is /no/where; give one of"):
        Ranker.train(PAIRS, init_model=trained("bi"), backbone="/no/where")


def test_candidates_may_be_a_list_in_json_as_in_a_row_of_csv():
    rows = [example | {"candidates": json.dumps(example["candidates"])} for example in EXAMPLES[:4]]
    assert [read_example(row, "row") for row in rows] == [read_example(row, "row") for row in EXAMPLES[:4]]
    assert read_example(EXAMPLES[0] | {"candidates": "[sic] yes"}, "row").candidates == ("[sic] yes",)
    assert read_example(EXAMPLES[0] | {"candidates": "[]"}, "row").candidates is None


@pytest.mark.parametrize(("source", "kind"), [("poly", None), ("bi", "cross"), ("cross", "poly")])
def test_an_init_model_decides_the_architecture_and_brings_its_weights(source, kind, trained):
    ranker = Ranker.train(
        EXAMPLES, model=kind, init_model=trained(source), learningrate=0, max_train_steps=1, progress=False
    )
    assert ranker.model.architecture == architecture_named(kind or source)
    begun = weights(trained(source))["model"]
    same = [
        name for name, weight in trained_weights(ranker).items() if name in begun and torch.equal(weight, begun[name])
    ]
    assert kind is not None or len(same) == len(begun)
    words = "backbone.embeddings.word_embeddings.weight"
    there = begun["encoder." + words if source == "cross" else "context_encoder." + words]
    assert torch.equal(
        trained_weights(ranker)["encoder." + words if kind == "cross" else "context_encoder." + words], there
    )


@pytest.mark.slow
def test_a_parlai_model_can_be_what_it_starts_from(written):
    more = {"learningrate": 0, "max_train_steps": 1, "progress": False, "text_truncate": 30, "label_truncate": 12}
    ranker = Ranker.train(PAIRS, init_model=written("poly"), **more)
    texts = [one["label"] for one in PAIRS[:5]]
    expected = Ranker.load(written("poly"), text_truncate=30, label_truncate=12).score("i like red", texts)
    np.testing.assert_allclose(ranker.score("i like red", texts), expected, atol=1e-4)


def test_scaling_is_measured_by_the_examples():
    ranker = Ranker.train(PAIRS, **SMALL | {"output_scaling": "auto", "learningrate": 0, "max_train_steps": 1})
    assert ranker.model.context_encoder.output_scaling == ranker.model.settings.saved["output_scaling"] != 1


# ---- stopping and going on -------------------------------------------------------------------------------------------

RESUMED = {
    "list": ("poly", PAIRS, {"dropout": 0.1}),
    "random negatives": ("cross", PAIRS, {"cross_negatives": 4, "dropout": 0.1, "batchsize": 6}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RESUMED)
def test_a_training_that_was_stopped_ends_as_an_undisturbed_one(case, tmp_path):
    kind, examples, more = RESUMED[case]
    more = SMALL | {"model": kind, "num_epochs": 3, "valid": EXAMPLES, "warmup_updates": 3, "seed": 2} | more
    Ranker.train(examples, tmp_path / "undisturbed", **more)
    for stop in (2, 4, None):
        ranker = Ranker.train(examples, tmp_path / "M", callbacks=[Listener(stop)], **more)
    for part in ("", ".checkpoint"):
        assert largest_difference(f"{tmp_path / 'undisturbed'}{part}", f"{tmp_path / 'M'}{part}") == 0
    assert_equal_weights(trained_weights(ranker), weights(tmp_path / "M")["model"])
    listener = Listener()
    Ranker.train(examples, tmp_path / "M", callbacks=[listener], **more)  # nothing is left to be done
    assert not listener.logs and not listener.evaluations and listener.ended == 1


@pytest.mark.slow
@pytest.mark.parametrize("valid", [None, EXAMPLES])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_a_training_that_is_killed_before_a_write_ends_as_an_undisturbed_one(write, valid, tmp_path, monkeypatch):
    more = SMALL | {"max_train_steps": 2, "valid": valid}
    Ranker.train(EXAMPLES, tmp_path / "undisturbed", **more)
    written = []

    def killed(*given):
        written.append(given)
        if len(written) == write:
            raise KeyboardInterrupt
        save_model(*given)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(training_files, "save_model", killed)
        Ranker.train(EXAMPLES, tmp_path / "M", **more)
    Ranker.train(EXAMPLES, tmp_path / "M", **more)
    for part in ("", ".checkpoint"):
        assert largest_difference(f"{tmp_path / 'undisturbed'}{part}", f"{tmp_path / 'M'}{part}") == 0


# So steep that the loss rises, and a rate falls that does not depend on the end.
STEEP = {"learningrate": 0.03, "validation_metric": "loss", "max_train_steps": 9, "lr_scheduler": "reduceonplateau"}
STOPPED = {
    "between validations": ((5,), STEEP | {"validation_every_n_steps": 3}),
    "again and again": ((1, 2, 4, 5, 6, 8), STEEP | {"validation_every_n_steps": 3, "validation_patience": 3}),
    "a stream": (
        (4, 7),
        {"validation_every_n_epochs": 0.5, "num_epochs": 1.5, "batchsize": 4, "examples": InOrder(PAIRS)},
    ),
    "parts of epochs, saved by the clock": (
        (1, 4),
        STEEP
        | {"validation_every_n_epochs": 0.8, "update_freq": 2, "save_every_n_secs": 1e-9, "lr_scheduler": "linear"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STOPPED)
def test_a_stop_changes_neither_weights_nor_rates_nor_reports(case, trained, tmp_path):
    stops, more = STOPPED[case]
    more = WITH_A_MODEL | {"init_model": trained("bi"), "valid": EXAMPLES[:8], "log_every_n_steps": 5} | more
    more |= {"warmup_updates": 2, "dropout": 0.1}
    examples = more.pop("examples", PAIRS)

    def run(name, stops):
        listeners = [Listener(stop) for stop in (*stops, None)]
        for listener in listeners:
            Ranker.train(examples, tmp_path / name, callbacks=[listener], **more)
        logs, evaluations = (
            [*chain(*reports)] for reports in zip(*((one.logs, one.evaluations) for one in listeners), strict=True)
        )
        state = weights(tmp_path / f"{name}.checkpoint")
        return (
            logs,
            evaluations,
            state["schedule"],
            state["trainer"] | {"seconds": 0, "begun": 0},
            state["optimizer"]["param_groups"],
        )

    whole, parts = run("whole", ()), run("parts", stops)
    assert len(whole[1]) > 1
    assert parts == whole
    for part in ("", ".checkpoint"):
        assert largest_difference(f"{tmp_path / 'whole'}{part}", f"{tmp_path / 'parts'}{part}") == 0


@pytest.mark.release
def test_a_training_that_is_prolonged_is_one_that_was_longer(trained, tmp_path):
    """The validation at its end, which a longer one would not have made, lowers no rate; it may choose the model."""
    more = WITH_A_MODEL | STEEP | {"init_model": trained("bi"), "valid": EXAMPLES[:8], "validation_every_n_steps": 3}
    for name, ends in (("whole", (9,)), ("parts", (1, 4, 5, 7, 8, 9))):
        for end in ends:
            Ranker.train(PAIRS, tmp_path / name, **more | {"max_train_steps": end})
    assert largest_difference(tmp_path / "whole.checkpoint", tmp_path / "parts.checkpoint") == 0


def test_a_stopped_training_has_a_model_though_none_was_validated(trained, tmp_path):
    more = WITH_A_MODEL | {"init_model": trained("bi"), "callbacks": [Listener(1)]}
    ranker = Ranker.train(PAIRS, tmp_path / "M", max_train_steps=5, **more)
    assert_equal_weights(trained_weights(ranker), weights(tmp_path / "M")["model"])
    assert largest_difference(tmp_path / "M", tmp_path / "M.checkpoint") == 0


@pytest.mark.slow
def test_the_best_model_is_kept_and_patience_ends_the_training(tmp_path):
    """A rate so large that the model forgets what it has learnt; a pass has three updates."""
    listener = Listener()
    more = SMALL | {"learningrate": 0.01, "warmup_updates": 0, "lr_scheduler": "none", "validation_every_n_steps": 1}
    more |= {"validation_metric": "loss", "validation_patience": 3, "num_epochs": 50}
    ranker = Ranker.train(PAIRS, tmp_path / "M", valid=EXAMPLES, callbacks=[listener], **more)
    losses = [report["loss"] for _, report in listener.evaluations]
    best = int(np.argmin(losses))
    assert best > 0 and len(losses) == max(best, 2) + 1 + 3
    stop = Listener(best)
    again = Ranker.train(PAIRS, valid=EXAMPLES, callbacks=[stop], **more)
    assert_equal_weights(trained_weights(again), trained_weights(ranker))


@pytest.mark.slow
def test_a_validation_that_is_only_as_good_is_no_better(trained, monkeypatch):
    """Patience counts it after the first pass. The first weights are kept; the last ones if the rate falls to 0."""
    monkeypatch.setattr(trainer, "validate", lambda *_: {"loss": 1.0, "hits@1": 0.5})
    more = WITH_A_MODEL | {"init_model": trained("bi"), "validation_every_n_steps": 1, "validation_patience": 2}
    more |= {"valid": EXAMPLES, "num_epochs": 9, "warmup_updates": 0}
    begun = weights(trained("bi"))["model"]
    for scheduler, is_start in (("reduceonplateau", True), ("linear", False)):
        listener = Listener()
        kept = trained_weights(Ranker.train(PAIRS, callbacks=[listener], lr_scheduler=scheduler, **more))
        assert [update for update, _ in listener.evaluations] == [0, 1, 2, 3, 4]
        assert all(torch.equal(kept[name], begun[name]) for name in begun) == is_start


def test_reports_have_the_means_since_the_last_one():
    listener = Listener()
    Ranker.train(PAIRS, callbacks=[listener], max_train_steps=5, log_every_n_steps=2, **SMALL)
    assert [updates for updates, _ in listener.logs] == [2, 4, 5]
    assert all(0 <= report["hits@1"] <= 1 and math.isfinite(report["loss"]) for _, report in listener.logs)
    assert [report["epoch"] for _, report in listener.logs] == pytest.approx([2 / 3, 4 / 3, 5 / 3])


# ---- validation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "which"), [("bi", "none"), ("bi", "some"), ("bi", "all but one"), ("bi", "blank ones"), ("cross", "some")]
)
def test_an_example_ranks_its_own_candidates_or_the_labels_of_its_batch(kind, which, trained, capsys):
    """Against a loop over the examples; the last batch is smaller, and the report says among how many they ranked."""
    has = {"none": lambda i: 0, "some": lambda i: i % 4 == 1, "all but one": lambda i: i != 3}.get(which, lambda i: 1)
    own = [list(COLOURS[: 2 + i % 3]) if has(i) else None for i in range(13)]
    own = [["", " "]] * 13 if which == "blank ones" else own
    valid = [{**pair, "candidates": some} for pair, some in zip(PAIRS, own, strict=False)]
    listener, more = Listener(), WITH_A_MODEL | {"learningrate": 0, "max_train_steps": 1, "batchsize": 5}
    more |= {"valid": valid, "callbacks": [listener], "progress": True}
    more["eval_candidates"] = "batch" if which in ("none", "blank ones") else "inline"
    ranker, expected = Ranker.train(PAIRS, init_model=trained(kind), **more), []
    for i, one in enumerate(valid):
        start = i - i % 5
        real = [text for text in own[i] or () if text.strip()]
        ranked = [*dict.fromkeys([one["label"], *(real or (other["label"] for other in valid[start : start + 5]))])]
        scores = ranker.score(one["context"], ranked)
        rank = 1 + sum(scores[1:] >= scores[0])
        loss = np.log(np.exp(ranker.model.module.logit_scale * (scores - scores[0])).sum())
        hits = {f"hits@{k}": rank <= k for k in (1, 5, 10)}
        lacks = 13.0 * (not real)
        expected.append(
            {"loss": loss, "rank": rank, "mrr": 1 / rank, "candidates": len(ranked), "no_candidates": lacks} | hits
        )
    means = {name: np.mean([one[name] for one in expected]) for name in expected[0]}
    assert listener.evaluations[-1][1] == pytest.approx(means, abs=1e-4)
    lack = int(means["no_candidates"])
    said = f", among {means['candidates']:.4g} candidates on average"
    batch = "the labels of their batch"
    some = f"their own; {number_of(lack, 'example')} without any: {batch}"
    said += f" ({batch if lack == 13 else some})"
    assert [line.endswith(said) for line in capsys.readouterr().err.splitlines() if "among" in line] == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("given", [None, ["hello", "bye", "hello"]])
@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_validation_ranks_all_answers_whatever_the_batch(kind, given, trained, capsys, monkeypatch):
    """Against a loop: all labels of train and valid, or the given texts and the label; one example has its own."""
    valid = [*EXAMPLES[:6], {**PAIRS[7], "candidates": ["hi", "ho"]}, {"context": "red ?", "label": "only in valid"}]
    valid = [{key: one[key] for key in ("context", "label")} for one in valid[:6]] + valid[6:]
    answers = given or [one["label"] for one in (*valid, *PAIRS)]
    rest = "their own; 7 examples without any: all labels of train and valid"
    named = "the texts of eval_candidates" if given else rest
    found, more = [], WITH_A_MODEL | {"learningrate": 0, "max_train_steps": 1, "eval_candidates": given}
    for size in (3, 64):
        listener = Listener()
        more |= {"valid": valid, "callbacks": [listener], "batchsize": size, "progress": True}
        ranker = Ranker.train(PAIRS, init_model=trained(kind), candidates="batch", **more)
        found.append(listener.evaluations[-1][1])
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    ranks = []
    for one in valid:
        own = one.get("candidates", answers) if given is None else given
        scores = ranker.score(one["context"], [one["label"], *sorted({*own} - {one["label"]})])
        ranks.append(1 + sum(scores[1:] >= scores[0]))
    assert found[0]["rank"] == pytest.approx(np.mean(ranks)) and found[0]["mrr"] == pytest.approx(
        np.mean(1 / np.array(ranks))
    )
    said = [line for line in capsys.readouterr().err.splitlines() if "among" in line]
    assert len(said) == 6 and all(line.endswith(f"candidates on average ({named})") for line in said)


def test_of_more_labels_validation_ranks_those_of_the_batch(trained, monkeypatch):
    many = [{"context": str(i), "label": f"{i} ."} for i in range(12)]
    data = TrainingData(many, 0)
    held_out = [read_example(one, "") for one in many[:3]]
    assert validation.validation_of(held_out, data, None).answers == tuple(one["label"] for one in many)
    assert validation.validation_of(held_out, TrainingData(iter(many), 0), None).ranked == "the labels of their batch"
    monkeypatch.setattr(validation, "MOST_ANSWERS", 11)
    assert validation.validation_of(held_out, data, None).ranked == "the labels of their batch"


@pytest.mark.parametrize(
    ("given", "valid", "sentence"),
    [
        ("btach", EXAMPLES, "eval_candidates is 'btach'; give 'batch', 'inline', a list of texts, or None."),
        ("inline", PAIRS, "no validation example has any"),
        ([], PAIRS, "eval_candidates is an empty list"),
        ([3], PAIRS, "eval_candidates has 3 at place 0"),
        ("batch", None, "there are none; give valid, too"),
    ],
)
def test_eval_candidates_that_are_not_possible(given, valid, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        Ranker.train(PAIRS, valid=valid, eval_candidates=given, **SMALL)


def test_candidates_inline_needs_some_somewhere(trained, capsys):
    """A batch may have none of its own; where no example has any, the training is refused (below)."""
    rare = [*PAIRS[:23], EXAMPLES[23]]
    Ranker.train(InOrder(rare), init_model=trained("bi"), candidates="inline", max_train_steps=2, **WITH_A_MODEL)
    assert capsys.readouterr().err == "Examples without candidates of their own learn from the labels of their batch.\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_labels_that_a_model_cannot_tell_apart_are_named_once(kind, trained, capsys):
    cut = [{"context": f"hi {end}", "label": f"{'the same ' * 20}{end}"} for end in ("one", "two", "six", "Two !")]
    options = {**WITH_A_MODEL, "max_train_steps": 2, "batchsize": 28}
    Ranker.train([*PAIRS, *cut], init_model=trained(kind), **options)
    said = capsys.readouterr().err
    assert said.count("have the same tokens") == 1 and said.count("'the same the same") == 2, said
    seen_as_one = [{"context": "tea", "label": label} for label in ("caf\u00e9", "cafe\u0301", "ca\u200bf\u00e9")]
    Ranker.train([*PAIRS, cut[1], cut[3], *seen_as_one], init_model=trained(kind), **options)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["init_model", "teacher_model_file", "backbone", "vocabulary", "datapath"])
def test_a_path_may_be_an_object(name, trained, tmp_path):
    """A folder that is none is refused by its name."""
    more = {"init_model": trained("bi"), "max_train_steps": 1} | WITH_A_MODEL
    if name in ("backbone", "vocabulary"):
        with pytest.raises(InputError, match=f"{tmp_path / 'nothing'} is not a folder here"):
            Ranker.train(PAIRS, **SMALL | {name: tmp_path / "nothing"})
    else:
        value = tmp_path if name == "datapath" else Path(trained("bi"))
        Ranker.train(PAIRS, **more | {name: value})


# ---- examples --------------------------------------------------------------------------------------------------------


def test_a_dataset_is_read_as_a_list_is():
    more = SMALL | {"max_train_steps": 4}
    first, second = (Ranker.train(examples, **more) for examples in (PAIRS, Dataset.from_list(PAIRS)))
    assert_equal_weights(trained_weights(first), trained_weights(second))


def test_each_epoch_has_each_example_once_in_an_order_of_its_own():
    data = TrainingData(PAIRS, 0)
    epochs = [[one.context for one in data.epoch(number)] for number in range(3)]
    assert all(sorted(epoch) == sorted(one["context"] for one in PAIRS) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [one.context for one in data.epoch(1, skipped=7)] == epochs[1][7:]
    assert [one.context for one in TrainingData(PAIRS, 1).epoch(0)] != epochs[0]


def test_turns_and_several_labels():
    one = read_example({"context": ["your persona: i ski .", "hi"], "label": ["hello", "hey"], "id": 3}, "Example 0")
    assert one.context == "your persona: i ski .\nhi" and one.labels == ("hello", "hey") and one.candidates is None


def test_a_generator_is_read_once(trained):
    listener = Listener()
    once = (one for one in PAIRS)
    Ranker.train(once, init_model=trained("poly"), num_epochs=5, callbacks=[listener], **WITH_A_MODEL)
    assert listener.logs[-1][1]["epoch"] == 1 and listener.logs[-1][0] == 3
    with pytest.raises(InputError, match="reads the examples before training does, and these can be read once only"):
        Ranker.train((one for one in PAIRS), **SMALL)


REFUSED = {
    "no list of dicts": (["hi"], {}, "Example 0 has str; an example is a dict with context, label"),
    "other columns": ([{"anchor": "a", "positive": "b"}], {}, "has the keys anchor, positive; an example is a dict"),
    "no text": ([{"context": "a", "label": 3}], {}, "Example 0: label is 3; give a text, or a list of texts"),
    "an empty label": ([{"context": "a", "label": " "}], {}, "Example 0 has an empty context or label"),
    "nothing": ([], {}, "There are no examples to train on"),
    "nothing to stream": (InOrder([]), {"vocabulary": None}, "no examples to train on|no text"),
    "an unknown option": (
        PAIRS,
        {"learning_rate": 1},
        "learning_rate: not an option of training a poly; .*learningrate",
    ),
    "another's option": (PAIRS, {"cross_negatives": 1}, "cross_negatives: not an option of training a poly"),
    "a wrong value": (PAIRS, {"lr_scheduler": "fast"}, "--lr-scheduler fast is not possible; give one of"),
    "not a number": (PAIRS, {"batchsize": "many"}, "--batchsize: 'many' is not a whole number"),
    "no such model": (PAIRS, {"model": "tri"}, "There is no architecture tri"),
    "no init model": (PAIRS, {"init_model": "/nowhere"}, "There is no model at /nowhere"),
    "a batch of one": (PAIRS, {"batchsize": 1}, "batchsize=1 has none"),
    "no candidates": (PAIRS, {"candidates": "inline"}, "--candidates inline needs the candidates of the task, and the"),
    "a schedule without end": (InOrder(PAIRS), {"lr_scheduler": "linear"}, "linear ends with the last update"),
    "no validation examples": (PAIRS, {"valid": []}, "There are no validation examples"),
    "an unknown tracker": (PAIRS, {"report_to": "paper"}, "report_to paper is not possible; give one or more of"),
    "no place for tensorboard": (PAIRS, {"report_to": "tensorboard"}, "give a model_file"),
    "a vocabulary too many": (PAIRS, {"backbone": "bert", "vocabulary": "v"}, "has a vocabulary of its own"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_with_is_said_in_one_sentence(case):
    examples, more, said = REFUSED[case]
    with pytest.raises(InputError, match=said):
        Ranker.train(examples, **SMALL | {"max_train_steps": None} | more)


def test_a_model_file_that_is_there_is_not_written_over(trained, tmp_path):
    file = copy_model(trained("poly"), tmp_path / "M")
    with pytest.raises(InputError, match=r"exists already, and there is no .*checkpoint to resume from; give another"):
        Ranker.train(PAIRS, file, max_train_steps=1, **SMALL)
    assert largest_difference(file, trained("poly")) == 0
    Ranker.train(PAIRS, file, max_train_steps=1, load_from_checkpoint=False, **SMALL)
    for wrong in ({"init_model": "not/there"}, {"examples": [*PAIRS[:3], {"context": "", "label": "x"}]}):
        given = {"examples": PAIRS, "max_train_steps": 4} | SMALL | wrong
        with pytest.raises(InputError):
            Ranker.train(given.pop("examples"), file, load_from_checkpoint=False, **given)
        assert weights(f"{file}.checkpoint")["number_training_updates"] == 1  # of the run before
    Ranker.train(PAIRS, file, max_train_steps=1, load_from_checkpoint=False, **SMALL)
    assert weights(f"{file}.checkpoint")["number_training_updates"] == 1


@pytest.mark.slow
def test_checkpoints_are_not_taken_for_train_models(tmp_path):
    task = write_task(tmp_path, DIALOGUES)
    train("poly", tmp_path / "theirs", *task, "--max-train-steps", 1)
    with pytest.raises(InputError, match="is a checkpoint of train_model; resume it with that command"):
        Ranker.train(PAIRS, tmp_path / "theirs", max_train_steps=2, **SMALL)
    Ranker.train(PAIRS, tmp_path / "ours", max_train_steps=1, **SMALL)
    with pytest.raises(InputError, match=r"is a checkpoint of Ranker\.train; resume with that"):
        train("poly", tmp_path / "ours", *task, "--max-train-steps", 2)


@pytest.mark.parametrize("damage", ["trainer", "optimizer", "schedule", "draws"])
def test_a_damaged_checkpoint_is_refused(damage, tmp_path):
    from polyagents.files import model_file

    Ranker.train(PAIRS, tmp_path / "M", max_train_steps=1, **SMALL)
    state = weights(f"{tmp_path / 'M'}.checkpoint")
    model_file.write(f"{tmp_path / 'M'}.checkpoint", state | {damage: {"updates": -3}})
    with pytest.raises(InputError, match=r"checkpoint cannot be loaded \(.*: it is damaged or belongs to another run"):
        Ranker.train(PAIRS, tmp_path / "M", max_train_steps=2, **SMALL)


# ---- what is shown ---------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("shown", [True, False])
def test_a_terminal_has_a_bar_with_rate_time_left_loss_and_recall(shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal() if shown else io.StringIO())
    Ranker.train(PAIRS, valid=EXAMPLES, num_epochs=2, **SMALL | {"progress": True})
    said = sys.stderr.getvalue()
    assert re.search(r"After 6 updates: hits@1 \d\.\d+, hits@5 .*, mrr .*, loss", said)
    assert (
        bool(re.search(r"Training: 100%.* 6/6 \[00:\d\d<00:00, .*updates?/s?, R@1|Training:.* 6/6 \[", said)) == shown
    )
    assert bool(re.search(r"loss=\d\.\d{3}, R@1=\d\.\d{3}", said)) == shown


def test_nothing_is_said_where_nothing_is_to_be_shown(capsys):
    Ranker.train(PAIRS, valid=EXAMPLES, max_train_steps=1, **SMALL)
    assert capsys.readouterr() == ("", "")


def scalars(folder):
    """What tensorboard would show: (tag, update) -> value."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for path in Path(folder).iterdir():
        content, place = path.read_bytes(), 0
        while place < len(content):
            size = int.from_bytes(content[place : place + 8], "little")
            event = Event.FromString(content[place + 12 : place + 12 + size])
            place += 12 + size + 4
            found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    return found


def test_tensorboard_has_the_reports(tmp_path):
    listener = Listener()
    more = SMALL | {"report_to": "tensorboard", "max_train_steps": 4, "log_every_n_steps": 2, "valid": EXAMPLES}
    Ranker.train(PAIRS, tmp_path / "M", callbacks=[listener], **more)
    found = scalars(f"{tmp_path / 'M'}.tensorboard")
    for split, reports in (("train", listener.logs), ("valid", listener.evaluations)):
        for updates, report in reports:
            for name, value in report.items():
                assert found.pop((f"{split}/{name.replace('@', '_')}", updates)) == pytest.approx(value, rel=1e-6)
    assert not found and listener.logs and listener.evaluations


@pytest.mark.parametrize("name", PACKAGES)
def test_a_tracker_that_is_not_installed_is_one_sentence(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    with pytest.raises(InputError, match=rf"report_to {name} needs {PACKAGES[name]}.*: pip install {PACKAGES[name]}"):
        Ranker.train(PAIRS, tmp_path / "M", report_to=name, **SMALL)
    assert not os.listdir(tmp_path)


@pytest.mark.slow
def test_the_example_of_the_documentation_runs_as_printed(tmp_path, monkeypatch):
    section = (ROOT / "docs" / "training.md").read_text().split("\n## From Python\n")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    namespace = {}
    for block in blocks:
        exec(block, namespace)
    assert len(blocks) >= 2 and isinstance(namespace["ranker"], Ranker)


def test_every_architecture_has_a_short_name():
    assert [architecture_named(name) for name in ("bi", "polyagents:CrossEncoder", "UniEncoder")] == [
        *("BiEncoder", "CrossEncoder", "UniEncoder")
    ]
    assert find(architecture_named("poly")).short_name == "poly"


def test_a_joint_model_remembers_100_000_labels_and_draws_15_of_them():
    given = SimpleNamespace(candidates=lambda texts: [Candidate(text, (3,)) for text in texts])
    candidates = TrainingCandidates(given, random.Random(0), None, "", lambda: False)
    candidates._remember(map(str, range(100_001)))
    assert len(candidates.pool) == 100_000 and candidates.seen == 100_001
    drawn = candidates._negatives(Label(Candidate("7", (3,)), ("7",)), [], None)
    assert len({one.text for one in drawn} - {"7"}) == 15 == len(drawn)
