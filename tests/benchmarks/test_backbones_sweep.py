"""The sweep over families of backbones: which there are, their tiny models, limits, and its file of results."""

import json
import os
import time

import pytest
import torch

from polyagents.benchmarks import backbones as sweep

WORDS = 261


def test_text_families():
    texts = ["bert", "clip_text_model", "deberta-v2", "gpt2", "t5"]
    others = ["vit", "clip", "whisper", "musicgen", "wav2vec2", "layoutlmv2"]
    assert sweep.text_families([*others, *texts]) == texts
    assert {*texts, *others} <= {*sweep.MODEL_MAPPING_NAMES}


@pytest.mark.parametrize("family", ["bert", "xlm", "opt", "gemma3n_text", "deepseek_v3", "reformer"])
def test_tiny_models_are_small_and_the_same_every_time(family):
    first, second = (sweep.tiny_model(family, WORDS).state_dict() for _ in range(2))
    assert sum(weight.numel() for weight in first.values()) < sweep.WEIGHTS
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())


@pytest.mark.slow
def test_what_cannot_be_made_tiny(monkeypatch):
    monkeypatch.setattr(sweep, "WEIGHTS", 10)
    with pytest.raises(ValueError, match=r"\d+,\d+ weights"):
        sweep.tiny_model("bert", WORDS)
    assert "not tried" in sweep.tried("bert")


@pytest.mark.slow
def test_a_process_that_dies_or_hangs_is_not_tried(monkeypatch):
    monkeypatch.setattr(sweep, "tried", lambda _: os._exit(1))
    assert "took more than" in sweep.in_a_process("bert")["not tried"]
    monkeypatch.setattr(sweep, "tried", lambda _: time.sleep(60))
    monkeypatch.setattr(sweep, "PATIENCE", 0.01)
    assert sweep.in_a_process("bert") == {"not tried": "it waits"}
    monkeypatch.setattr(sweep, "tried", lambda _: {"not tried": str(bytearray(3 << 30)[:1])})
    monkeypatch.setattr(sweep, "PATIENCE", 1)
    assert "took more than" in sweep.in_a_process("bert")["not tried"]


def test_a_results_file_is_continued_after_a_line_that_was_cut(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(sweep, "in_a_process", lambda family: asked.append(family) or {"not tried": family})
    file = tmp_path / "results.jsonl"
    file.write_text('{"family": "a", "not tried": "before"}\n{"family": "b", "not tr')
    expected = {"a": {"not tried": "before"}, "b": {"not tried": "b"}, "c": {"not tried": "c"}}
    for _ in range(2):
        assert sweep.sweep(["a", "b", "c"], str(file)) == expected
    assert asked == ["b", "c"]


def test_the_page_counts_and_numbers_what_was_found():
    refused = "This backbone (x) is <odd>"
    works = dict.fromkeys(sweep.ARCHITECTURES, "works")
    page = sweep.page(
        {
            "x": works | {"uni": refused},
            "y": works | {"bi": "works with --train-layers all", "uni": refused.replace("x", "y")},
            "z": {"not tried": "too large"},
        }
    )
    assert "knows 3 families that read only texts. 2 of them were tried" in page.replace("\n", " ")
    assert "bi 2, poly 2, cross 2, uni 0" in page.replace("\n", " ")
    assert "| `y` | works, all layers | works | works | [1](#refusals) |" in page
    assert "1. This backbone (...) is \\<odd>" in page and "2. " not in page
    assert "## Not tried: 1" in page and "- `z`: too large" in page


def test_scores_that_differ_by_a_part_of_their_range_are_noticed():
    scores = torch.tensor([[1000.0, 1000.1], [1000.2, 1000.3]]).double().numpy()
    sweep.same("x", scores + 1e-5, scores)
    for wrong in (scores + 1e-3, scores * float("nan"), scores * 0):
        with pytest.raises(sweep.Late, match="x: scores are off by"):
            sweep.same("x", wrong, scores)


def test_families_by_name_write_no_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "in_a_process", lambda family: {"bi": "FAILED: x"})
    sweep.main(["bert"])
    assert json.loads((tmp_path / "backbones.jsonl").read_text())["family"] == "bert"
    assert os.listdir(tmp_path) == ["backbones.jsonl"] and "failed: bert" in capsys.readouterr().out
