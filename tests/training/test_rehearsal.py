"""A run is tried before its first step: what cannot go well is refused in one sentence, and nothing is left of it."""

import copy

import pytest
import torch
from commands import KINDS, SAMPLE, run
from transformers import AutoModel, AutoTokenizer

from polyagents import InputError, Ranker
from polyagents.benchmarks import backbones as sweep
from polyagents.models.encoder import Encoder
from polyagents.training import rehearsal
from polyagents.training.gradient_cache import random_state
from polyagents.training.rehearsal import rehearse
from polyagents.training_loop import starting_model

KIND = sweep.ARCHITECTURES


@pytest.fixture(autouse=True)
def each_time(monkeypatch):
    """Trainings of equal models are tried, too (tests/helpers/shared_fixtures.py)."""
    monkeypatch.setattr(starting_model, "rehearse", rehearse)


def train(backbone, kind="bi", **options):
    given = {"backbone": backbone, "text_truncate": 40, "label_truncate": 20, "batchsize": 4, "max_train_steps": 1}
    steps = sweep.Steps()
    try:
        return Ranker.train(sweep.EXAMPLES, None, kind, callbacks=[steps], progress=False, **given | options)
    except InputError:
        assert steps.count == 0
        raise


@pytest.mark.parametrize("kind", KIND)
def test_nothing_is_left_of_it(kind, backbone):
    model = train(backbone, kind, dropout=0.1).model
    before, drawn = copy.deepcopy(model.module.state_dict()), random_state(model.device)
    rehearse(model)
    assert torch.equal(random_state(model.device), drawn) and not model.module.training
    assert all(torch.equal(weight, before[name]) for name, weight in model.module.state_dict().items())
    assert all(weight.grad is None for weight in model.module.parameters())


def fails(*_):
    raise AssertionError("no such mask\nand more")


@pytest.mark.parametrize("kind", KIND)
@pytest.mark.parametrize(
    ("place", "name", "replaced", "said"),
    [
        (
            Encoder,
            "forward",
            fails,
            r"cannot be trained as a .*-encoder \(AssertionError: no such mask\); give a backbone",
        ),
        (rehearsal, "config_values", lambda _: {"a": {1, 2}}, r"\(TypeError: Object of type set is not JSON"),
        (rehearsal, "config_values", lambda _: {"model_type": "bert"}, "describes other weights"),
        (
            rehearsal,
            "config_values",
            lambda _: {"model_type": "bert", "num_attention_heads": 0},
            "read again: num_attention_heads is 0",
        ),
        (rehearsal.RankingModel, "precision", "fp16", "give --precision fp32 instead of fp16, or a backbone"),
    ],
)
def test_what_cannot_go_well(place, name, replaced, said, kind, backbone, monkeypatch):
    if name == "precision":
        monkeypatch.setattr(Encoder, "forward", fails)
    monkeypatch.setattr(place, name, replaced)
    with pytest.raises(InputError, match=said) as refused:
        train(backbone, kind)
    assert "\n" not in str(refused.value)


def test_weights_that_are_not_finite(backbone, tmp_path):
    model = AutoModel.from_pretrained(backbone)
    model.encoder.layer[0].output.dense.bias.data[0] = torch.inf
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(backbone).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="its gradients are not finite"):
        train(str(tmp_path))


@pytest.mark.parametrize("kind", KIND)
def test_scores_that_depend_on_other_texts(kind, backbone, monkeypatch):
    kept = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda self, tokens, *more: kept(self, tokens, *more) * len(tokens.ids))
    with pytest.raises(InputError, match=r"a score is \S+ alone, and \S+ beside a longer text"):
        train(backbone, kind)


def test_parlais_loop_is_tried_too(backbone, tmp_path, monkeypatch):
    monkeypatch.setattr(Encoder, "forward", fails)
    with pytest.raises(InputError, match="no such mask"):
        run("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", "-t", SAMPLE, "--backbone", backbone, "-bs", 2)


def test_bf16_where_the_arithmetic_is_missing(tmp_path):
    sweep.write("xmod", str(tmp_path))
    with pytest.raises(InputError, match=r"\(xmod\) cannot be trained .*give --precision fp32 instead of bf16"):
        train(str(tmp_path), precision="bf16")
    train(str(tmp_path), precision="fp32")
