"""Adapters (LoRA): what is learnt, what a model file holds, and what it needs to be loaded."""

import json
import shutil
from pathlib import Path

import backbones
import numpy as np
import pytest
import torch
import transformers
from commands import SAMPLE, copy_model, own, train

from polyagents import InputError, Ranker
from polyagents.backends.exporting import export_model
from polyagents.files.model_file import read

SHORT = ("-t", SAMPLE, "--validation-max-exs", "8", "--short-final-eval", "true", "--max-train-steps", "6")
CONTEXTS, REPLIES = ["where is canada", "hi"], ["i am here", "canada is in north america", "she plays"]
ENCODERS = {"context_encoder", "candidate_encoder"}
KINDS = ["bi", "poly", "uni", "cross"]


@pytest.fixture(scope="module")
def adapted(once, backbone):
    """A model file with adapters, by kind."""

    def of(kind):
        flags = ("--backbone", backbone, "--lora-rank", "2", "-lr", "1e-2", "--reduction-type", "first")
        return once(f"adapted/{kind}", lambda file: train(kind, file, *SHORT, *flags))

    return of


def scores(model_file, **overrides):
    return Ranker.load(model_file, **overrides).score(CONTEXTS, REPLIES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_only_adapters_learn_and_are_kept(kind, adapted, backbone):
    stored = read(adapted(kind))["model"]
    assert all(".lora_" in name for name in stored if ".backbone." in name)
    starts_at_0 = [weight for name, weight in stored.items() if ".lora_B" in name]
    assert starts_at_0 and all(weight.abs().max() > 0 for weight in starts_at_0)
    pretrained = transformers.AutoModel.from_pretrained(backbone).state_dict()
    encoder = Ranker.load(adapted(kind)).model.context_encoder
    loaded = {name.replace(".base_layer", ""): weight for name, weight in encoder.backbone.state_dict().items()}
    for name, weight in pretrained.items():
        if not name.startswith("pooler"):
            assert torch.equal(loaded[name][: len(weight)], weight)  # embeddings have grown


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_a_calibration_holds_when_adapters_are_merged(kind, adapted, tmp_path):
    file = copy_model(adapted(kind), tmp_path / "M")
    ranker = Ranker.load(file)
    ranker.calibrate([{"context": f"{n} {colour}", "label": colour} for n in range(30) for colour in ("red", "blue")])
    ranker.save_pretrained(tmp_path / "folder")
    for model in (file, tmp_path / "folder"):
        assert Ranker.load(model).decide("i like red", ["red", "blue"]).calibrated


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_merged_adapters_score_alike_without_a_backbone(kind, adapted, tmp_path):
    own("convert_weights", "-mf", adapted(kind), "--to", "model-file", "--out", tmp_path / "M")
    merged = read(tmp_path / "M")["model"]
    assert not [name for name in merged if "lora" in name or "base_layer" in name or "digest" in name]
    options = (tmp_path / "M.opt").read_text()
    (tmp_path / "M.opt").write_text(options.replace('"backbone": "', '"backbone": "/gone'))
    np.testing.assert_allclose(scores(tmp_path / "M"), scores(adapted(kind)), rtol=1e-4, atol=1e-5)
    Ranker.load(adapted(kind)).save_pretrained(tmp_path / "folder")
    np.testing.assert_allclose(scores(tmp_path / "folder"), scores(tmp_path / "M"), rtol=1e-6)


@pytest.mark.slow
def test_two_encoders_share_what_does_not_learn(adapted):
    module = Ranker.load(adapted("bi")).model.module
    of_contexts, of_candidates = (
        {name: weight.data_ptr() for name, weight in encoder.backbone.state_dict().items()}
        for encoder in (module.context_encoder, module.candidate_encoder)
    )
    for name, place in of_contexts.items():
        assert (of_candidates[name] == place) == (".lora_" not in name)


@pytest.mark.slow
def test_a_training_is_resumed(backbone, tmp_path):
    flags = (*SHORT, "--backbone", backbone, "--lora-rank", "2", "--save-after-valid", "true")
    train("bi", tmp_path / "M", *flags, "--max-train-steps", "3")
    before = read(tmp_path / "M")
    train("bi", tmp_path / "M", *flags, "--max-train-steps", "4")
    after = read(tmp_path / "M")
    assert (before["number_training_updates"], after["number_training_updates"]) == (3, 4)
    for name, weight in before["model"].items():
        torch.testing.assert_close(after["model"][name], weight, atol=1e-3, rtol=0)  # one update; they start at 0.1


@pytest.mark.slow
def test_another_architecture_starts_from_adapters(adapted, backbone, tmp_path):
    start_from = ("--init-model", adapted("bi"), "--backbone", backbone)
    train("uni", tmp_path / "M", *SHORT, *start_from, "--max-train-steps", "1", "-lr", "1e-9")
    start = read(adapted("bi"))["model"]
    for name, weight in read(tmp_path / "M")["model"].items():
        if ".lora_" in name:
            theirs = name if name.startswith("candidate_") else f"context_{name}"
            torch.testing.assert_close(weight, start[theirs], atol=1e-6, rtol=0)


def test_other_weights_of_the_backbone_are_refused(adapted, backbone, tmp_path):
    model_file = copy_model(adapted("bi"), tmp_path / "M")
    changed = shutil.copytree(backbone, tmp_path / "changed")
    model = transformers.AutoModel.from_pretrained(changed)
    model.embeddings.word_embeddings.weight.data[7] += 1
    model.save_pretrained(changed)
    options = Path(f"{model_file}.opt")
    trained_from = json.loads(options.read_text())["backbone"]  # another process of the tests may have trained it
    options.write_text(options.read_text().replace(trained_from, str(changed)))
    with pytest.raises(InputError, match="trained with other weights than"):
        Ranker.load(model_file)
    np.testing.assert_array_equal(scores(model_file, backbone=backbone), scores(adapted("bi")))
    own("convert_weights", "-mf", model_file, "--to", "model-file", "--backbone", backbone, "--out", tmp_path / "N")


def test_a_backbone_that_has_moved_can_be_given(adapted, backbone, tmp_path, ends_with_2):
    model_file = copy_model(adapted("bi"), tmp_path / "M")
    options = Path(f"{model_file}.opt")
    moved = str(tmp_path / "moved")
    options.write_text(json.dumps(json.loads(options.read_text()) | {"backbone": moved}))
    (line,) = ends_with_2("export", "-mf", model_file, "--to", "onnx")
    assert f"there is no model at {moved}" in line and "backbone=FOLDER" in line and "convert_weights -mf" in line
    np.testing.assert_array_equal(scores(model_file, backbone=backbone), scores(adapted("bi")))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "uni"])
def test_training_goes_on_where_the_backbone_has_another_name(kind, adapted, backbone, tmp_path):
    one = (*SHORT, "--max-train-steps", "1", "--init-model", adapted("bi"))
    renamed = str(shutil.copytree(backbone, tmp_path / "renamed"))
    train(kind, tmp_path / "M", *one, "--backbone", renamed)
    train(kind, tmp_path / "M", *one, "--backbone", backbone, "--max-train-steps", "2")
    model = transformers.AutoModel.from_pretrained(renamed)
    model.embeddings.word_embeddings.weight.data[7] += 1
    model.save_pretrained(renamed)
    for file in ("M", "N"):
        with pytest.raises(InputError, match="trained with other weights than"):
            train(kind, tmp_path / file, *one, "--backbone", renamed, "--max-train-steps", "3")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--backbone scratch:tiny --lora-rank 2", "--backbone scratch:tiny is not pretrained"),
        ("--backbone {backbone} --lora-rank 2 --train-layers top", "remove it, or --train-layers"),
        ("--backbone {backbone} --backbone-bits 8", "give --lora-rank, or remove it"),
        ("--init-model {adapted} --lora-rank 3", "has adapters of rank 2, and --lora-rank is 3"),
        ("--init-model {plain} --lora-rank 2", "has no adapters, and --lora-rank is 2"),
    ],
)
def test_where_adapters_have_nothing_to_stand_beside(flags, sentence, adapted, backbone, trained, tmp_path):
    values = {"backbone": backbone, "adapted": adapted("bi"), "plain": trained("bi")}
    with pytest.raises(InputError, match=sentence):
        train("bi", tmp_path / "M", *SHORT, *flags.format(**values).split())


@pytest.mark.slow
@pytest.mark.parametrize("bits", ["8", "4"])
def test_adapters_beside_weights_of_few_bits(bits, tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=400, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.LlamaModel(config).save_pretrained(tmp_path / "llama")
    backbones.byte_level(backbones.DECODER).save_pretrained(tmp_path / "llama")
    flags = ("--backbone", tmp_path / "llama", "--lora-rank", "2", "--backbone-bits", bits, "-lr", "1e-2")
    train("bi", tmp_path / "M", *SHORT, *flags)
    stored = read(tmp_path / "M")["model"]
    assert all(".lora_" in name for name in stored if ".backbone." in name)
    # 8 bits compute in fp16, in which gradients of queries and keys as small as these are 0.
    moved = [name for name, weight in stored.items() if ".lora_B" in name and weight.abs().max() > 0]
    assert sum("_proj" in name for name in moved) >= 12 and {name.split(".")[0] for name in moved} == ENCODERS
    ranker = Ranker.load(tmp_path / "M")
    kinds = {weight.dtype for weight in ranker.model.module.parameters()}
    assert kinds == {torch.float32, {"8": torch.int8, "4": torch.uint8}[bits]}
    before = ranker.model.fingerprint()
    np.testing.assert_array_equal(ranker.score(CONTEXTS, REPLIES), scores(tmp_path / "M"))
    assert ranker.model.fingerprint() == before
    for name, weight in ranker.model.module.named_parameters():
        if ".lora_B" in name:
            weight.data.zero_()
    ranker.model.weights_changed()
    of_contexts, of_candidates = ranker.encode_contexts(REPLIES).vectors[:, 0], ranker.encode_candidates(REPLIES)
    torch.testing.assert_close(of_contexts, of_candidates, atol=1e-5, rtol=1e-5)
    with pytest.raises(InputError, match=f"in {bits} bits"):
        ranker.save_pretrained(tmp_path / "folder")
    with pytest.raises(InputError, match=f"in {bits} bits .*, which only torch reads"):
        export_model(ranker.model, str(tmp_path / "M"), "onnx")


def test_a_prompt_is_not_lost_in_other_formats(adapted, trained, tmp_path, capsys):
    prompted = copy_model(trained("bi"), tmp_path / "M")
    options = json.loads(Path(f"{prompted}.opt").read_text())
    Path(f"{prompted}.opt").write_text(json.dumps(options | {"candidate_prompt": "the reply: "}))
    for target, sentence in (
        ("sentence-transformers", "--candidate-prompt"),
        ("parlai", "--candidate-prompt the reply"),
    ):
        with pytest.raises(InputError, match=sentence):
            own("convert_weights", "-mf", prompted, "--to", target, "--out", tmp_path / target)
    own("convert_weights", "-mf", prompted, "--to", "huggingface", "--out", tmp_path / "hf")
    assert "--candidate-prompt 'the reply: ', which the folder does not hold" in capsys.readouterr().out
