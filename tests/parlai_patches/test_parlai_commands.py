"""Every command of ParlAI, end to end, as a user would type it."""

import json
import math
import os
import shutil
import threading
import urllib.request
from pathlib import Path

import pytest
import torch
from commands import (
    KINDS,
    SAMPLE,
    TINY,
    colour_dialogues,
    copy_model,
    evaluate,
    forked,
    largest_difference,
    options,
    run,
    train,
    weights,
    write_task,
)
from parlai.scripts import interactive_web

from polyagents import CandidateStore, Ranker
from polyagents.__main__ import main
from polyagents.errors import InputError
from polyagents.index.candidate_records import read_candidates
from polyagents.parlai_agents.ranker_agent import RankerAgent

METRICS = ("loss", "mrr", "hits@1", "hits@2", "hits@5", "hits@10", "hits@50")


# ---- train_model and eval_model ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_model_knows_its_name_and_reports_every_metric(kind, trained):
    assert options(trained(kind))["model"] == KINDS[kind]
    report = evaluate(trained(kind), "-t", SAMPLE, "--num-examples", 16, "--recall-at", "1,3,7")
    assert report["exs"] == 16
    assert 0 <= report["hits@1"] <= report["hits@3"] <= report["hits@7"] <= 1
    assert report["hits@1"] <= report["mrr"] <= 1
    assert 0 < report["loss"] < 10


def test_the_sample_task_leaves_nothing_in_the_current_folder(monkeypatch, tmp_path):
    """ParlAI notes the length of a streamed task beside its data file, of which there is none."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    flags = ("-m", KINDS["bi"], "--backbone", "scratch:tiny", "--dict-file", tmp_path / "M.dict")
    run("build_dict", "-t", SAMPLE, *flags)
    assert (tmp_path / "M.dict").exists()
    assert not list(here.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "source"),
    [("bi", "batch"), ("poly", "inline"), ("poly", "fixed"), ("uni", "batch-all-cands"), ("cross", "batch")],
)
def test_every_candidate_source_in_training_and_evaluation(kind, source, colours, replies, tmp_path):
    """30 examples in batches of 8 leave a partial last batch; the fixed replies lack most labels.

    tests/parlai_agents/test_agent.py has every kind with every source.
    """
    flags = ("--candidates", source, "--eval-candidates", source, "--fixed-candidates-path", replies)
    file = tmp_path / "M"
    valid, _ = train(kind, file, *colours, *flags, "--max-train-steps", 5)
    assert float(valid["exs"]) == 30
    assert 0 <= float(valid["loss"]) < 20
    again = evaluate(file, *colours, "--batchsize", 8)
    assert {name: again[name] for name in METRICS} == pytest.approx(
        {name: float(valid[name]) for name in METRICS}, abs=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "source"), [("poly", "inline"), ("bi", "fixed"), ("uni", "inline"), ("cross", "fixed")]
)
def test_the_metrics_do_not_depend_on_the_batch_size(kind, source, replies, tmp_path):
    """Not even where the fixed replies lack most labels, some of which are the same to the tokenizer."""
    dialogues = [
        (text, label.upper() if i % 3 else label, candidates)
        for i, (text, label, candidates) in enumerate(colour_dialogues())
    ]
    task = write_task(tmp_path, dialogues)
    train(kind, tmp_path / "M", *task, "--max-train-steps", 2)
    flags = (*task, "--eval-candidates", source, "--fixed-candidates-path", replies)
    one, seven = (evaluate(tmp_path / "M", *flags, "--batchsize", size) for size in (1, 7))
    assert {name: one[name] for name in METRICS} == pytest.approx({name: seven[name] for name in METRICS}, abs=1e-4)


@pytest.mark.slow
def test_the_metrics_do_not_depend_on_how_many_replies_are_listed(colours, tmp_path):
    """ParlAI's teachers count hits@5, hits@10 and hits@100 in the list that the agent returns."""
    train("bi", tmp_path / "M", *colours, "--max-train-steps", 2)
    every, three = (evaluate(tmp_path / "M", *colours, *flags) for flags in ((), ("--rank-top-k", 3)))
    assert {name: every[name] for name in METRICS} == {name: three[name] for name in METRICS}


def cross_entropy(scores, label):
    return math.log(sum(math.exp(score - scores[label]) for score in scores))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "source"),
    [("bi", "inline"), ("poly", "batch"), ("uni", "inline"), ("cross", "batch-all-cands"), ("cross", "batch")],
)
def test_one_example(kind, source, tmp_path):
    (text, label, replies) = dialogue = colour_dialogues(1)[0]
    task, file = write_task(tmp_path, [dialogue]), tmp_path / "M"
    valid, _ = train(kind, file, *task, "--candidates", source, "--eval-candidates", source, "--max-train-steps", 2)
    listed = [label] if source == "batch" else replies  # alone in its batch, it has no negatives
    ranker = Ranker.load(str(file))
    scores, place = ranker.score(text, listed), listed.index(label)
    rank = sum(score >= scores[place] for score in scores)
    assert float(valid["exs"]) == 1 and float(valid["rank"]) == rank and float(valid["mrr"]) == pytest.approx(1 / rank)
    loss = cross_entropy(scores * ranker.model.module.logit_scale, place)
    assert float(valid["loss"]) == pytest.approx(loss, abs=1e-3)
    assert float(valid["hits@1"]) == (rank == 1)


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_one_candidate(kind, tmp_path):
    task = write_task(tmp_path, [(text, label, [label]) for text, label, _ in colour_dialogues()])
    valid, _ = train(kind, tmp_path / "M", *task, "--candidates", "inline", "--max-train-steps", 2)
    assert (float(valid["hits@1"]), float(valid["mrr"]), float(valid["loss"])) == (1, 1, 0)


@pytest.mark.slow
def test_cross_encoder_trains_on_a_task_without_candidates(tmp_path):
    task = write_task(tmp_path, [(text, label, None) for text, label, _ in colour_dialogues()])
    flags = (*task, "--eval-candidates", "batch", "--weight-decay", 0, "--warmup-updates", -1)
    train("cross", tmp_path / "start", *flags, "--max-train-steps", 1, "-lr", 1e-12)
    for negatives in (1, 3):
        steps = ("--cross-negatives", negatives, "--max-train-steps", 3)
        valid, _ = train("cross", tmp_path / f"{negatives}", *flags, *steps)
        assert float(valid["exs"]) == 30
    assert largest_difference(tmp_path / "start", tmp_path / "1") > 1e-3
    assert largest_difference(tmp_path / "1", tmp_path / "3") > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["full", "batchsort"])
def test_dynamic_batching(batching, colours, tmp_path):
    evaluation = batching if batching == "full" else "off"  # ParlAI's thousand buffers take seconds to make
    flags = ("--dynamic-batching", batching, "--eval-dynamic-batching", evaluation, "--max-train-steps", 2)
    valid, _ = train("poly", tmp_path / "M", *colours, *flags)
    still = evaluate(tmp_path / "M", *colours, "--batchsize", 4)
    assert {name: float(valid[name]) for name in METRICS} == pytest.approx({name: still[name] for name in METRICS})


@pytest.mark.slow
def test_parlais_own_flags_for_half_precision(colours, tmp_path):
    flags = (*colours, "--max-train-steps", 12, "--warmup-updates", -1)  # the first overflow, until their scale fits
    for name, more in (
        ("theirs", ("--fp16", "true", "--force-fp16-tokens", "true")),
        ("ours", ("--precision", "fp16")),
        ("fp32", ()),
    ):
        train("poly", tmp_path / name, *flags, *more)
    assert options(tmp_path / "theirs")["precision"] == "fp16"
    assert largest_difference(tmp_path / "theirs", tmp_path / "ours") == 0
    assert largest_difference(tmp_path / "theirs", tmp_path / "fp32") > 0
    assert all(weight.dtype == torch.float32 for weight in weights(tmp_path / "theirs")["model"].values())
    assert evaluate(tmp_path / "theirs", *colours)["exs"] == 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        "--lr-scheduler reduceonplateau --warmup-updates 4",
        "--lr-scheduler reduceonplateau --warmup-updates 2 --optimizer adamax",
        "--warmup-updates 2 --lr-scheduler invsqrt",
        "--lr-scheduler none --precision bf16 --polyencoder-type n_first",
    ],
)
def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(flags, tmp_path):
    """The whole training set is one batch, so that the order of the examples cannot tell the two runs apart."""
    task = write_task(tmp_path, colour_dialogues(8))
    flags = (*task, "-dt", "train:ordered", *flags.split())
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    train("poly", straight, "--max-train-steps", 6, *flags)
    # Every step but the last leaves a checkpoint; with M taken away it is what a killed process leaves.
    every_step = ("--save-every-n-secs", 1e-9, "--save-after-valid", "false")
    train("poly", stopped, "--max-train-steps", 4, *flags, *every_step)
    for part in ("", ".opt", ".trainstats"):
        os.remove(f"{stopped}{part}")
    assert weights(f"{stopped}.checkpoint")["number_training_updates"] == 3
    train("poly", stopped, "--max-train-steps", 6, *flags)
    assert weights(stopped)["number_training_updates"] == weights(straight)["number_training_updates"] == 6
    steps = [
        json.loads((tmp_path / f"{name}.trainstats").read_text())["train_steps"] for name in ("straight", "stopped")
    ]
    assert steps[0] == steps[1]
    assert largest_difference(straight, stopped) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    ["--max-train-steps 6", "--num-epochs 6 --optimizer adamax", "--num-epochs 6 --warmup-updates 2 --update-freq 2"],
)
def test_a_rate_that_falls_over_the_run_goes_on_where_it_was(flags, monkeypatch, tmp_path):
    """A run that dies ends with the weights of an undisturbed one; every batch is the whole training set."""
    flags = (*write_task(tmp_path, colour_dialogues(8)), "-dt", "train:ordered", *flags.split())
    train("poly", tmp_path / "straight", *flags)
    calls, step = [], RankerAgent.train_step

    def dying(self, batch):
        calls.append(batch)
        if len(calls) == 5:
            raise RuntimeError("killed")
        return step(self, batch)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="killed"):
        patched.setattr(RankerAgent, "train_step", dying)
        train("poly", tmp_path / "stopped", *flags, "--save-every-n-secs", 1e-9)
    train("poly", tmp_path / "stopped", *flags)
    assert largest_difference(tmp_path / "straight", tmp_path / "stopped") == 0


@pytest.mark.slow
def test_more_steps_for_a_finished_model(tmp_path):
    task = write_task(tmp_path, colour_dialogues(8))
    flags = (*task, "-dt", "train:ordered", "--lr-scheduler", "none")
    train("bi", tmp_path / "straight", *flags, "--max-train-steps", 6)
    train("bi", tmp_path / "continued", *flags, "--max-train-steps", 3)
    train("bi", tmp_path / "continued", *flags, "--max-train-steps", 6)
    assert weights(tmp_path / "continued")["number_training_updates"] == 6
    assert largest_difference(tmp_path / "straight", tmp_path / "continued") == 0


@pytest.mark.slow
def test_four_examples_are_learned_at_parlais_settings(tmp_path):
    """ParlAI's own test of its rankers; the batch, the length, the warm-up and the validations are the defaults."""
    flags = ("-m", KINDS["poly"], "-t", "integration_tests:overfit", "-mf", tmp_path / "M", "-opt", "adam", "-lr", 1e-2)
    valid, _ = run("train_model", *flags, "--backbone", "scratch:tiny", "--candidates", "batch")
    assert float(valid["hits@1"]) == 1.0
    stats, saved = json.loads((tmp_path / "M.trainstats").read_text()), options(tmp_path / "M")
    assert (saved["batchsize"], saved["num_epochs"], stats["train_steps"]) == (2, 20, 40)
    assert [report["train_steps"] for report in stats["valid_reports"]][:3] == [0, 8, 16]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_init_model_starts_from_its_weights_and_vocabulary(kind, model, colours, tmp_path):
    source, file = model(kind), tmp_path / "M"
    # Of another task, whose vocabulary would not fit the weights.
    train(kind, file, *colours, "--init-model", source, "--max-train-steps", 1, "-lr", 1e-9)
    assert largest_difference(source, file) < 1e-6
    assert weights(file)["number_training_updates"] == 1
    pair = ("your persona: i ski .\nhi", ["so you like red", "bye"])
    assert Ranker.load(str(file)).score(*pair) == pytest.approx(Ranker.load(str(source)).score(*pair), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "kind", "names"),
    [
        ("bi", "cross", {"encoder": "context_encoder"}),
        ("poly", "uni", {"encoder": "context_encoder"}),
        ("uni", "bi", {"context_encoder": "encoder", "candidate_encoder": "encoder"}),
        ("bi", "poly", {"context_encoder": "context_encoder", "candidate_encoder": "candidate_encoder"}),
    ],
)
def test_init_model_starts_from_the_encoders_of_another_architecture(source, kind, names, model, colours, tmp_path):
    file, start = tmp_path / "M", model(source)
    train(kind, file, *colours, "--init-model", start, "--max-train-steps", 1, "-lr", 1e-9)
    found, expected = weights(file)["model"], weights(start)["model"]
    for own, theirs in names.items():
        weight = "backbone.encoder.layer.1.output.dense.weight"
        assert float((found[f"{own}.{weight}"] - expected[f"{theirs}.{weight}"]).abs().max()) < 1e-6
    assert options(file)["reduction_type"] == options(start)["reduction_type"]
    assert ("codes" in found) == (kind == "poly")
    assert evaluate(file, *colours)["exs"] == 30
    with pytest.raises(InputError, match=r"give another --model-file .* --init-model .* to train from it"):
        run("train_model", "-m", KINDS[kind], "-mf", start, *TINY, *colours)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "similarity", "share"), [("uni", "cosine", "false"), ("cross", "dot", "true")])
def test_a_start_from_a_bi_encoder_begins_with_its_scores(kind, similarity, share, colours, tmp_path):
    start, file = tmp_path / "bi", tmp_path / "M"
    train("bi", start, *colours, "--share-encoders", share, "--similarity", similarity, "--max-train-steps", 2)
    unchanged = ("--init-model", start, "--max-train-steps", 1, "-lr", 1e-12, "--weight-decay", 0)
    train(kind, file, *colours, *unchanged, "--joint-head", similarity)
    bi, joint = Ranker.load(start), Ranker.load(file)
    context, texts = "i like red more than blue", ["so you like red", "so you like pink and green", "bye"]
    expected = bi.score(context, texts) * bi.model.module.logit_scale
    assert joint.score(context, texts) == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert (joint.model.module.candidate_encoder is None) == (share == "true")
    train(kind, tmp_path / "late", *colours, *unchanged)  # by default, how well tokens are matched is added to them
    late = Ranker.load(tmp_path / "late")
    assert options(tmp_path / "late")["joint_head"] == f"{similarity}+late"
    added = late.score(context, texts) - expected
    assert (added > 1).all() and (added <= 40).all() and added.argmax() == 0  # its words are all in the context
    train(kind, tmp_path / "linear", *colours, *unchanged, "--joint-head", "linear")  # which has no second encoder
    assert options(tmp_path / "linear")["share_encoders"] is True
    train("bi", tmp_path / "back", *colours, "--init-model", file, "--max-train-steps", 1, "-lr", 1e-12)
    assert options(tmp_path / "back")["similarity"] == similarity
    again = Ranker.load(tmp_path / "back")
    assert again.score(context, texts) == pytest.approx(bi.score(context, texts), rel=1e-3, abs=1e-3)


@pytest.mark.slow
def test_the_kind_of_attention_goes_with_the_file(colours, tmp_path):
    """A file decides it, whatever starts from it."""
    train("poly", tmp_path / "M", *colours, "--poly-attention-type", "sqrt", "--max-train-steps", 2)
    again = ("--init-model", tmp_path / "M", "--max-train-steps", 1, "-lr", 1e-9)
    train("poly", tmp_path / "second", *colours, *again)
    assert options(tmp_path / "second")["poly_attention_type"] == "sqrt"
    assert largest_difference(tmp_path / "M", tmp_path / "second") < 1e-6


def with_options(file, copy, **changed):
    """Copy a model, with other values in its M.opt."""
    for part in ("", ".opt", ".dict"):
        shutil.copy(f"{file}{part}", f"{copy}{part}")
    Path(f"{copy}.opt").write_text(json.dumps(options(file) | changed))
    return copy


@pytest.mark.slow
def test_a_model_whose_training_had_removed_options_is_used_as_it_is(model, colours, tmp_path):
    file = with_options(model("poly"), tmp_path / "M", codes_init="kmeans", codes_penalty=0.5, codes_mean=False)
    pair = ("i like red", ["so you like red", "bye"])
    expected = Ranker.load(model("poly")).score(*pair)
    assert Ranker.load(file).score(*pair) == pytest.approx(expected, abs=0)
    Ranker.load(file).save_pretrained(tmp_path / "folder")
    assert Ranker.load(tmp_path / "folder").score(*pair) == pytest.approx(expected, abs=0)
    assert evaluate(file, *colours)["loss"] == evaluate(model("poly"), *colours)["loss"]
    train("poly", tmp_path / "N", *colours, "--init-model", file, "--max-train-steps", 1, "-lr", 1e-9)
    train("poly", file, *colours, "--max-train-steps", 1, "-lr", 1e-9)
    for trained in ("M", "N"):
        assert options(tmp_path / trained)["codes_init"] == "normal"
        assert largest_difference(model("poly"), tmp_path / trained) < 1e-6


@pytest.mark.parametrize(("name", "value"), [("codes_mean", True), ("poly_attention_type", "learnt")])
def test_a_model_that_computes_what_is_no_longer_there_is_refused(name, value, model, colours, tmp_path):
    file, shown = with_options(model("poly"), tmp_path / "M", **{name: value}), f"--{name.replace('_', '-')}"
    said = rf"M was trained with {shown} {str(value).lower()}, .* a development version of 0\.2\.0\); train it again"
    Ranker.load(model("poly")).save_pretrained(tmp_path / "folder")
    config = json.loads((tmp_path / "folder/config.json").read_text())
    config["options"][name] = value
    (tmp_path / "folder/config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=said.replace("M", "folder", 1)):
        Ranker.load(tmp_path / "folder")
    for use in (
        lambda: Ranker.load(file),
        lambda: evaluate(file, *colours),
        lambda: train("poly", tmp_path / "N", *colours, "--init-model", file, "--max-train-steps", 1),
        lambda: train("poly", file, *colours, "--max-train-steps", 1),
        lambda: Ranker.train([{"context": "hi", "label": "hello"}], init_model=file),
    ):
        with pytest.raises(InputError, match=said):
            use()
    assert not (tmp_path / "N").exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"delimiter": " | "}, "--delimiter ' | '"),
        ({"history_reversed": True}, "--history-reversed True"),
        ({"history_add_global_end_token": "end"}, "--history-add-global-end-token 'end'"),
        ({"delimiter": "\n", "person_tokens": False, "history_add_global_end_token": None}, ""),
    ],
)
def test_an_older_model_whose_training_marked_turns_says_so(option, said, trained, capsys, tmp_path):
    """ParlAI's commands mark them still, and Ranker does not; a folder says it, too."""
    file = with_options(trained("bi"), tmp_path / "M", **option)
    Ranker.load(file).save_pretrained(tmp_path / "folder")
    Ranker.load(tmp_path / "folder")
    lines = [line for line in capsys.readouterr().err.splitlines() if "was trained with" in line]
    assert [f"was trained with {said}, which ParlAI's commands" in line for line in lines] == [True, True] * bool(said)


@pytest.mark.slow
def test_a_validation_metric_names_a_task_if_there_are_several(colours, tmp_path):
    tasks = (*colours, "-t", f"fromfile:parlaiformat,{SAMPLE}", "-vme", 8, "--short-final-eval", "true", "-vstep", 1)
    flags = (*tasks, "--max-train-steps", 1, "-vmt")
    with pytest.raises(
        InputError, match=r"x/accuracy: the validation of .* give one of .*sample/accuracy, accuracy\.$"
    ):
        train("bi", tmp_path / "M", *flags, "x/accuracy")
    assert not (tmp_path / "M").exists()
    train("bi", tmp_path / "M", *flags, "sample/accuracy")
    assert (tmp_path / "M").exists()


@pytest.mark.parametrize(("options", "said"), [(None, "there is no file"), ({"task": "x"}, "no datatype; add one")])
def test_the_options_of_an_evaluation_at_the_end_are_read_at_the_start(options, said, colours, tmp_path):
    if options:
        (tmp_path / "extra.opt").write_text(json.dumps(options))
    with pytest.raises(InputError, match=rf"extra\.opt: .*{said}"):
        train("bi", tmp_path / "M", *colours, "--max-train-steps", 1, "--final-extra-opt", tmp_path / "extra.opt")
    assert not (tmp_path / "M").exists()


@pytest.mark.parametrize(("name", "said"), [("table.csv", "is not a model file"), ("folder/", "is not a file")])
def test_training_leaves_no_trace_at_a_name_that_no_model_can_have(name, said, colours, tmp_path):
    (tmp_path / "table.csv").write_text("context,label\n")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=said):
        train("bi", f"{tmp_path}/{name}", *colours, "--max-train-steps", 1)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["rank", "sample/loss", "rank --validation-metric-mode max"])
def test_of_a_loss_or_rank_the_smallest_is_kept_unless_the_flag_says_otherwise(metric, colours, tmp_path):
    tasks = (*colours, "-t", f"fromfile:parlaiformat,{SAMPLE}") if "/" in metric else colours
    flags = ("-vmt", *metric.split(), "-vme", 8, "--short-final-eval", "true", "-vstep", 1, "-lr", 0.05)
    train("bi", tmp_path / "M", *tasks, *flags, "--max-train-steps", 6, "--validation-patience", -1)
    stats = json.loads((tmp_path / "M.trainstats").read_text())
    values = [report[metric.split()[0]] for report in stats["valid_reports"]]
    assert stats["best_valid"] == (max if "max" in metric else min)(values)


@pytest.mark.slow
def test_the_polyagents_command_writes_the_full_name(colours, monkeypatch, tmp_path):
    """So that plain `parlai` loads the model too."""
    arguments = ["train_model", "-m", "poly", "-mf", tmp_path / "M", *TINY, *colours, "--max-train-steps", 1]
    monkeypatch.setattr("sys.argv", ["polyagents", *map(str, arguments), "--loglevel", "error"])
    main()
    assert options(tmp_path / "M")["model"] == "polyagents:PolyEncoder"
    assert evaluate(tmp_path / "M", *colours)["exs"] == 30


@pytest.mark.slow
def test_tensorboard(colours, tmp_path):
    train("bi", tmp_path / "M", *colours, "--max-train-steps", 4, "--tensorboard-log", "true", "-lstep", 1, "-vstep", 2)
    (log,) = (tmp_path / "M.tensorboard").rglob("events.out.tfevents.*")
    content = log.read_bytes()
    for name in (b"mean_loss/train", b"loss/valid", b"hits_1/valid", b"mrr/valid", b"lr/train"):
        assert name in content


@pytest.mark.slow
def test_a_model_loads_from_another_folder(colours, replies, tmp_path):
    """Nothing of the old folder is asked for again, though `M.opt` names it."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    train("poly", old / "M", *colours, "--max-train-steps", 2)
    before = evaluate(old / "M", *colours)
    old.rename(new)
    after = evaluate(new / "M", *colours)
    assert {name: after[name] for name in METRICS} == {name: before[name] for name in METRICS}
    evaluate(new / "M", *colours, "--eval-candidates", "fixed", "--fixed-candidates-path", replies)
    assert not old.exists()


@pytest.mark.slow
def test_unknown_leftovers_in_the_options_are_no_problem(model):
    file = model("bi")
    before = evaluate(file, "-t", SAMPLE, "--num-examples", 16)
    saved = options(file) | {"flag_of_the_future": [1], "interactive_task": True, "no_such_agent_flag": None}
    (file.parent / f"{file.name}.opt").write_text(json.dumps(saved))
    after = evaluate(file, "-t", SAMPLE, "--num-examples", 16)
    assert {name: after[name] for name in METRICS} == {name: before[name] for name in METRICS}


# ---- display_model, interactive, self_chat, interactive_web ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_display_model(kind, model, capsys):
    capsys.readouterr()
    run("display_model", "-mf", model(kind), "-t", SAMPLE, "--num-examples", 3)
    lines = capsys.readouterr().out.splitlines()
    for field in ("labels: ", "model: "):
        shown = [line.strip().removeprefix(field) for line in lines if line.strip().startswith(field)]
        assert len(shown) == 3 and all(shown)


@pytest.mark.slow
def test_interactive_from_a_terminal(model, replies):
    done = forked(
        "interactive", "-mf", model("poly"), "-fcp", replies, program="parlai", stdin="hello\nhow are you ?\n[EXIT]\n"
    )
    assert done.code == 0
    answers = [line.split("]: ")[1] for line in done.out.splitlines() if "[PolyEncoder]: " in line]
    assert len(answers) == 2
    assert set(answers) <= set(replies.read_text().splitlines())


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_interactive_does_not_repeat_itself_until_it_must(kind, model, replies, chat):
    messages = ["hello"] * 8
    answers = [text.split("]: ")[1] for (text,) in chat(model(kind), messages, "-fcp", replies)]
    candidates = replies.read_text().splitlines()
    assert sorted(answers[: len(candidates)]) == sorted(candidates)
    assert set(answers[len(candidates) :]) <= set(candidates)


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_one_reply_at_a_time_does_not_repeat_itself_either(kind, model, replies, chat):
    answers = chat(model(kind), ["hello"] * 6, "-fcp", replies, "--rank-top-k", 1)
    assert len({text for (text,) in answers}) == 6


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_interactive_shows_the_best_replies_with_scores_on_request(kind, model, replies, chat):
    """The flags that the README gives."""
    file = model(kind)
    flags = ("--return-cand-scores", "true", "--display-add-fields", "top_replies", "--rank-top-k", 3)
    ((*shown, reply),) = chat(file, ["hello there"], "-fcp", replies, *flags)
    best = Ranker.load(str(file)).rank("hello there", read_candidates(str(replies)), top_k=3)
    assert reply.endswith(f"]: {best[0].text}")
    shown[0] = shown[0].removeprefix("[top_replies]: ")
    assert [line.split(maxsplit=1)[1] for line in shown] == [match.text for match in best]
    assert [float(line.split()[0]) for line in shown] == pytest.approx([match.score for match in best], abs=1e-3)


@pytest.mark.slow
def test_interactive_without_a_file_takes_the_replies_of_the_training_task(colours, chat, tmp_path):
    train("bi", tmp_path / "M", *colours, "--max-train-steps", 2)
    (reply,) = chat(tmp_path / "M", ["hi"])[0]
    assert reply.split("]: ")[1] in {label for _, label, _ in colour_dialogues()}
    (listed,) = tmp_path.glob("M.cands-*.cands")
    assert listed.read_text().splitlines() == sorted({label for _, label, _ in colour_dialogues()})


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_self_chat_with_three_candidates_never_runs_out_of_words(kind, model, tmp_path):
    replies = tmp_path / "three.txt"
    replies.write_text("hi\nfine\nbye\n")
    flags = ("-fcp", replies, "--selfchat-max-turns", 8, "--outfile", tmp_path / "log", "--display-examples", "false")
    run("self_chat", "-mf", model(kind), *flags)
    (log,) = tmp_path.glob("log*.jsonl")
    (dialogue,) = [json.loads(line)["dialog"] for line in log.read_text().splitlines()]
    said = [act["text"] for turn in dialogue for act in turn if act["id"] != "context"]
    assert len(said) >= 8 and set(said) == {"hi", "fine", "bye"}


@pytest.fixture
def web(model, replies):
    """A running `interactive_web` over fixed replies: a function that asks it for a page."""
    arguments = ["-mf", str(model("bi")), "-fcp", str(replies), "--port", "0", "--loglevel", "error"]
    server = threading.Thread(target=interactive_web.InteractiveWeb.main, args=arguments)
    server.start()
    while server.is_alive() and not interactive_web.SHARED.get("ready"):
        server.join(0.01)
    host, port = interactive_web.SHARED["server"].server_address

    def ask(page, body=None):
        with urllib.request.urlopen(f"http://{host}:{port}{page}", body, timeout=60) as answer:
            return answer.read().decode()

    yield ask
    interactive_web.shutdown()
    server.join()


def test_interactive_web(web, replies):
    candidates = replies.read_text().splitlines()
    assert "<html>" in web("/")
    first = json.loads(web("/interact", b"hello"))["text"]
    second = json.loads(web("/interact", "ça va ?".encode()))["text"]
    assert {first, second} <= set(candidates) and first != second
    assert web("/reset", b"") == "{}"
    assert json.loads(web("/interact", b"hello"))["text"] == first


# ---- the candidate index beside a model ------------------------------------------------------------------------------


def vectors(model_file, texts):
    """The stored index of `texts`, checked against vectors that are made now."""
    ranker = Ranker.load(str(model_file))
    stored = CandidateStore.open(f"{model_file}.replies.index", ranker.model.fingerprint())
    assert list(stored.texts()) == texts
    kept = stored.rows(range(len(texts)))
    torch.testing.assert_close(kept, ranker.model.encode_texts(texts), rtol=0, atol=1e-4)
    return kept


@pytest.mark.slow
def test_the_index_is_kept_as_long_as_model_and_file_are_the_same(colours, replies, tmp_path):
    file, texts = tmp_path / "M", replies.read_text().splitlines()
    flags = ("--eval-candidates", "fixed", "--fixed-candidates-path", replies)
    train("poly", file, *colours, "--max-train-steps", 2)
    evaluate(file, *colours, *flags)
    first = vectors(file, texts)
    (stored,) = (tmp_path / "M.replies.index").glob("*.safetensors")
    written = stored.stat().st_mtime_ns

    evaluate(file, *colours, *flags)
    assert stored.stat().st_mtime_ns == written  # reused

    train("poly", file, *colours, "--max-train-steps", 4)  # other weights, though M.opt may be the same
    evaluate(file, *colours, *flags)
    second = vectors(file, texts)
    assert not torch.equal(first, second)

    replies.write_text("bye\nsomething new\n")
    evaluate(file, *colours, *flags)
    third = vectors(file, ["bye", "something new"])
    torch.testing.assert_close(third[0], second[texts.index("bye")], rtol=0, atol=1e-4)


def test_the_index_of_another_folder_with_the_same_file_name(model, chat, tmp_path):
    file = model("bi")
    for folder, text in (("a", "first reply"), ("b", "second reply")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "replies.txt").write_text(f"{text}\n")
        assert chat(file, ["hi"], "-fcp", tmp_path / folder / "replies.txt") == [[f"[BiEncoder]: {text}"]]


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_fixed_candidates_with_the_same_tokens_keep_their_places(kind, model, chat, tmp_path):
    """The tokenizer lower-cases: the first two are one to the model, which must not shift those after them."""
    file, texts = tmp_path / "replies.txt", ["Hello there", "hello there", "so you like red", "bye"]
    file.write_text("\n".join(texts))
    trained = model(kind)
    flags = ("-fcp", file, "--rank-top-k", 4, "--return-cand-scores", "true", "--display-add-fields", "top_replies")
    ((*lines, answer),) = chat(trained, ["hi"], *flags)
    shown = [line.removeprefix("[top_replies]:").strip().split(maxsplit=1) for line in lines]
    expected = Ranker.load(str(trained)).rank("hi", texts, 4)
    assert [text for _, text in shown] == [match.text for match in expected]
    assert [float(score) for score, _ in shown] == pytest.approx([match.score for match in expected], abs=1e-3)
    assert answer.endswith(expected[0].text)


@pytest.mark.slow
def test_training_leaves_no_index_of_weights_that_change(colours, replies, tmp_path):
    """ParlAI writes the vectors of the first, untrained weights and goes on using them."""
    file, texts = tmp_path / "M", replies.read_text().splitlines()
    flags = ("--candidates", "fixed", "--eval-candidates", "fixed", "--fixed-candidates-path", replies)
    valid, _ = train("bi", file, *colours, *flags, "--max-train-steps", 4, "-vstep", 2)
    again = evaluate(copy_model(file, tmp_path / "copy"), *colours, "--batchsize", 8)
    assert again["loss"] == pytest.approx(float(valid["loss"]), abs=1e-4)
    if (tmp_path / "M.replies.index").exists():
        vectors(file, texts)
