"""`--precision auto`: in which arithmetic an encoder computes on which device, in training and afterwards."""

import pytest
import torch
from backbones import SENTENCES

from polyagents.model_files.building import build_encoder, build_model, settings_of
from polyagents.ranker import Ranker
from polyagents.text.pretrained import load_tokenizer
from polyagents.timings import encodes_in_bf16

CPU, GPU = torch.device("cpu"), torch.device("cuda")  # only the name of the second is looked at


@pytest.fixture
def model(backbone):
    torch.manual_seed(0)
    settings = settings_of("BiEncoder", {"backbone": backbone})
    tokenizer = load_tokenizer(backbone)
    return build_model(build_encoder(settings, tokenizer, training=True), tokenizer, settings)


@pytest.mark.parametrize(("faster", "trains_in"), [(True, "bf16"), (False, "fp32")])
def test_auto_on_a_cpu_is_what_was_measured_in_training_and_fp32_afterwards(model, faster, trains_in, monkeypatch):
    asked = []
    assert model.context_encoder.measures is encodes_in_bf16
    for encoder in (model.module.context_encoder, model.module.candidate_encoder):
        monkeypatch.setattr(encoder, "measures", lambda width: asked.append(width) or faster)
    assert model.settings.encoder.precision == "auto"
    model.module.train()
    assert model.precision == trains_in and asked == [32]
    seen = []
    layer = model.context_encoder.backbone.encoder.layer[0].output.dense
    layer.register_forward_hook(lambda module, given, output: seen.append(output.dtype))
    for texts in (SENTENCES[:2], SENTENCES):
        states = model.context_encoder(model.tokens(model.context_ids(texts)))
        assert states.dtype == torch.float32
    assert set(seen) == {torch.bfloat16 if faster else torch.float32}
    ranker = Ranker(model)
    seen.clear()
    ranker.rank("hi", SENTENCES)
    assert set(seen) == {torch.float32} and ", fp32, cpu)" in repr(ranker)


@pytest.mark.parametrize(("supported", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_on_a_gpu_is_bf16_where_it_has_it(model, supported, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported or including_emulation)
    for training in (True, False):
        model.module.train(training)
        assert model.context_encoder.arithmetic(GPU) == expected


def test_what_is_asked_for_is_done_everywhere(model):
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        model.compute_in(precision)
        assert {model.context_encoder.arithmetic(device) for device in (CPU, GPU)} == {dtype}
