"""`polyagents bench_training`: training steps of ours and of others, side by side."""

import json
import math
import shutil
from pathlib import Path

import pytest
from backbones import save, word_piece
from commands import SAMPLE, colour_dialogues, own, write_task
from parlai.core.params import ParlaiParser
from transformers import BertConfig, BertModel

from polyagents.benchmarks import training
from polyagents.errors import InputError


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    """A pretrained model in a folder."""
    return Path(save("bert", tmp_path_factory.mktemp("backbone")))


@pytest.mark.slow
def test_the_losses_of_a_backbone_that_was_trained_as_a_bi_encoder_are_compared(backbone, tmp_path):
    """Ours takes the backbone's own reduction and similarity, if it names some; the others all have what is given."""
    folder = tmp_path / "backbone"
    shutil.copytree(backbone, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    kinds = ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate(kinds)]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    training.prepare(str(folder), str(tmp_path))
    setting = training.Setting(str(folder), str(tmp_path), "fp32", 64)
    texts, labels = ["hi , how are you ?", "any pets ?"], ["fine .", "two dogs ."]
    training.check(setting, texts, labels)
    for way in training.WAYS:
        training.WAYS[way](training.Job(way, 2, training.WHOLE), setting).step(texts, labels)


@pytest.mark.release
def test_every_way_trains_and_is_measured(backbone, tmp_path, capsys):
    """Within, the losses of ours and of sentence-transformers are compared."""
    task = write_task(tmp_path, colour_dialogues(56))
    flags = ("--batch-sizes", "2,4", "--steps", 1, "--chunk-tokens", 32, "--out", tmp_path / "out")
    own("bench_training", "--backbone", backbone, *task, *flags)
    out = capsys.readouterr().out
    tables = json.loads((tmp_path / "out" / "training.json").read_text())
    assert [(row["way"], row["batch"], row["parts"]) for row in tables["training"]] == [
        ("ParlAI poly", 2, "whole"),
        ("ParlAI poly", 4, "whole"),
        ("sentence-transformers bi", 2, "whole"),
        ("sentence-transformers bi", 4, "32 texts"),
        ("sentence-transformers bi", 4, "32 tokens"),
        ("polyagents bi", 2, "whole"),
        ("polyagents bi", 4, "32 tokens"),
        ("polyagents poly", 2, "whole"),
        ("polyagents poly", 4, "32 tokens"),
    ]
    for row in tables["training"]:
        assert row["examples/s"] > 0 and row["peak MB"] > 0 and 1 <= row["positions per token"] < 2
    assert len(tables["ratios"]) == 6 and all(row["value"] > 0 for row in tables["ratios"])
    assert "| polyagents poly | 4 | 32 tokens | fp32 |" in out and "speed, poly 2: polyagents to ParlAI" in out


def test_examples_are_drawn_alike_each_time_with_their_history():
    opt = ParlaiParser(True, False).parse_kwargs(task=SAMPLE)
    examples = training.draw(opt, 40)
    assert examples == training.draw(opt, 40)
    assert len(set(examples)) > 30 and any(text.count("\n") > 3 for text, _ in examples)


def test_ratios_leave_out_what_memory_was_too_small_for():
    jobs = training.jobs([32, 128, 512], 8192)
    rows = [{"way": job.way, "batch": job.batch, "parts": job.parts} for job in jobs]
    for place, row in enumerate(rows, 1):
        row |= {"examples/s": float(place), "peak MB": 10.0 * place}
    speed = {(row["way"], row["batch"], row["parts"]): row["examples/s"] for row in rows}
    (poly,) = (row for row in rows if (row["way"], row["batch"]) == ("polyagents poly", 32))
    poly["examples/s"] = "out of memory"
    found = {row["ratio"]: row["value"] for row in training.ratios(rows, [32, 128, 512], "8,192 tokens")}
    assert found["speed, poly 32: polyagents to ParlAI"] is None
    theirs = max(speed["sentence-transformers bi", 512, parts] for parts in ("32 texts", "8,192 tokens"))
    ours = speed["polyagents bi", 512, "8,192 tokens"]
    assert math.isclose(found["speed, bi 512 in parts: polyagents to sentence-transformers"], ours / theirs)
    time = found["time per example, polyagents bi: 512 in parts to 128"]
    assert math.isclose(time, speed["polyagents bi", 128, "whole"] / ours)


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", ["8", "1,8"])
def test_too_few_or_too_small_batches(backbone, sizes):
    with pytest.raises(InputError, match=f"--batch-sizes {sizes}: give two sizes or more, none below 2"):
        own("bench_training", "--backbone", str(backbone), "-t", SAMPLE, "--batch-sizes", sizes)


def test_more_examples_than_the_task_has(backbone, tmp_path):
    task = write_task(tmp_path, colour_dialogues(30))
    with pytest.raises(InputError, match="has 30 training examples, and --batch-sizes and --steps want 32"):
        own("bench_training", "--backbone", str(backbone), *task, "--batch-sizes", "2,8")


def test_a_backbone_without_weights_or_without_positions(tmp_path):
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=200, max_position_embeddings=128, **small)).save_pretrained(tmp_path)
    word_piece().save_pretrained(tmp_path)
    flags = ("-t", SAMPLE, "--batch-sizes", "2,4")
    with pytest.raises(InputError, match="has positions for 128 tokens, and contexts here have up to 360"):
        own("bench_training", "--backbone", str(tmp_path), *flags)
    with pytest.raises(InputError, match="scratch:tiny has no weights before training"):
        own("bench_training", "--backbone", "scratch:tiny", *flags)
    with pytest.raises(InputError, match="is not a folder here"):
        own("bench_training", "--backbone", str(tmp_path / "nothing"), *flags)


@pytest.mark.parametrize("flags", [("--precision", "fp16"), ("--steps", "0"), ("--chunk-tokens", "-1")])
def test_wrong_values_end_with_code_2(backbone, flags):
    with pytest.raises(SystemExit) as end:
        own("bench_training", "--backbone", str(backbone), "-t", SAMPLE, *flags)
    assert end.value.code == 2
