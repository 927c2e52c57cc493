"""`--output-scaling auto`: the factor is the deviations' quotient, is measured once, and goes with the model."""

import json

import numpy as np
import pytest
import torch
from commands import KINDS, SAMPLE, evaluate, run, train, weights

from polyagents import Ranker
from polyagents.errors import InputError
from polyagents.model_files import initial_weights
from polyagents.model_files.building import vocabulary_of
from polyagents.models import output_scaling
from polyagents.models.backbone import load_backbone
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import EncoderOptions
from polyagents.models.output_scaling import BERT_DEVIATION
from polyagents.models.tokens import pad
from polyagents.text.pretrained import load_tokenizer

SHORT = ("-t", SAMPLE, "--validation-max-exs", "8", "--short-final-eval", "true", "--max-train-steps", "1")
AUTO = ("--output-scaling", "auto")


def scaling(file):
    with open(f"{file}.opt") as options:
        return json.load(options)["output_scaling"]


def encoder_and_texts(backbone, scaling=1.0):
    options = EncoderOptions(backbone, "all", "fp32", 0.5)
    dictionary = load_tokenizer(backbone)
    encoder = Encoder(load_backbone(options, vocabulary_of(dictionary), True), options, scaling).train()
    texts = ["hi , how are you ?", "i am fine thank you , and where is canada", "no", "she plays with my dog"]
    return encoder, [dictionary.candidate(ids, 72) for ids in dictionary.encode(texts)], dictionary.pad_id


@pytest.mark.parametrize("given", [1.0, 0.06])
def test_the_deviation_is_that_of_every_text_for_itself(backbone, given):
    encoder, texts, pad_id = encoder_and_texts(backbone, given)
    measured = output_scaling.deviation(encoder, texts, pad_id)
    assert encoder.training  # as it was
    encoder.eval()
    with torch.no_grad():
        outputs = np.concatenate([encoder(pad([ids], pad_id))[0].numpy() / given for ids in texts])
    assert measured == pytest.approx(outputs.std(ddof=1), rel=1e-4)
    assert output_scaling.factor(encoder, texts, pad_id) == pytest.approx(BERT_DEVIATION / outputs.std(), rel=1e-2)


def test_scaled_outputs_deviate_as_berts(backbone):
    encoder, texts, pad_id = encoder_and_texts(backbone)
    with torch.no_grad():
        encoder.backbone.encoder.layer[-1].output.LayerNorm.weight.mul_(20)  # what training without decay does
    before = output_scaling.deviation(encoder, texts, pad_id)
    encoder.output_scaling = output_scaling.factor(encoder, texts, pad_id)
    encoder.eval()
    with torch.no_grad():
        after = torch.cat([encoder(pad([ids], pad_id))[0] for ids in texts]).std()
    assert before > 10 and float(after) == pytest.approx(BERT_DEVIATION, rel=1e-3)


@pytest.mark.parametrize("broken", [0.0, torch.nan])
def test_outputs_that_do_not_deviate(backbone, broken):
    encoder, texts, pad_id = encoder_and_texts(backbone)
    norm = encoder.backbone.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        norm.weight.fill_(broken), norm.bias.zero_()
    with pytest.raises(InputError, match=r"--output-scaling auto measures .* give a number"):
        output_scaling.factor(encoder, texts, pad_id)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "uni"])
def test_the_model_file_keeps_the_factor(kind, backbone, tmp_path):
    train(kind, tmp_path / "M", *SHORT, "--backbone", backbone, *AUTO)
    factor = scaling(tmp_path / "M")
    assert factor == scaling(tmp_path / "M.checkpoint") > 0 and factor != 1
    few = ("-t", SAMPLE, "--num-examples", 16)
    told = [evaluate(tmp_path / "M", *few, AUTO[0], word)["loss"] for word in (AUTO[1], factor)]
    assert told[0] == told[1]
    module = Ranker.load(tmp_path / "M").model.module
    assert {part.output_scaling for part in module.modules() if isinstance(part, Encoder)} == {factor}
    # By hand the same model comes of it: measuring takes nothing from what training draws.
    train(kind, tmp_path / "N", *SHORT, "--backbone", backbone, "--output-scaling", factor)
    mine, theirs = weights(tmp_path / "M"), weights(tmp_path / "N")
    assert all(torch.equal(value, theirs["model"][name]) for name, value in mine["model"].items())


@pytest.mark.slow
def test_the_same_command_goes_on_with_the_factor(backbone, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(initial_weights, "say", said.append)
    auto = ("--backbone", backbone, *AUTO)
    train("bi", tmp_path / "M", *SHORT, *auto, "-lr", "1e-1")
    first = scaling(tmp_path / "M.checkpoint")
    train("bi", tmp_path / "M", *SHORT, *auto, "--max-train-steps", "2")  # whose outputs deviate otherwise by now
    assert scaling(tmp_path / "M.checkpoint") == first and not any("is kept" in line for line in said), said
    train("bi", tmp_path / "second", *SHORT, *auto, "--init-model", tmp_path / "M")
    assert scaling(tmp_path / "second") == first
    assert any("the factor that" in line and "is kept" in line for line in said)


def test_a_chat_has_nothing_to_measure(backbone, replies):
    with pytest.raises(InputError, match=r"--output-scaling auto measures the training examples.* give a number"):
        run("interactive", "-m", KINDS["bi"], "--backbone", backbone, *AUTO, "--fixed-candidates-path", replies)
