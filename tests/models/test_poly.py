"""A poly-encoder's codes as they start, and the sharpness of its attention."""

import pytest
import torch
from backbones import save

from polyagents.model_files.building import vocabulary_of
from polyagents.models.backbone import load_backbone
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import EncoderOptions, PolyOptions
from polyagents.models.poly import PolyEncoder, initial_codes
from polyagents.text.pretrained import load_tokenizer


@pytest.mark.parametrize(
    ("init", "mean", "deviation"), [("normal", 0.0, 0.02), ("uniform", 0.5, 12**-0.5), ("unit", 64**-0.5, 1.0)]
)
def test_codes_are_drawn_from_what_the_flag_says(init, mean, deviation):
    torch.manual_seed(0)
    codes = initial_codes(init, 3000, 64)
    assert codes.shape == (3000, 64)
    assert float(codes.mean()) == pytest.approx(mean, abs=0.01 * deviation)
    assert float(codes.std()) == pytest.approx(deviation, rel=0.01)
    assert init != "uniform" or (codes.min() >= 0 and codes.max() <= 1)


@pytest.mark.parametrize(("kind", "power"), [("basic", 0), ("sqrt", -0.5)])
def test_the_sharpness_is_the_attentions_and_no_weight(kind, power, tmp_path):
    options = EncoderOptions(save("bert", tmp_path), "all", "fp32", 0.0)
    encoder = Encoder(load_backbone(options, vocabulary_of(load_tokenizer(options.backbone)), False), options)
    model = PolyEncoder(encoder, PolyOptions(poly_attention_type=kind))
    assert model.sharpness == encoder.width**power
    assert "codes" in model.state_dict() and not any("sharp" in name for name in model.state_dict())
