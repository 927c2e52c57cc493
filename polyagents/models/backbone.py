"""A Hugging Face model as backbone: loads it or draws it at random, grows its embeddings, freezes layers."""

import contextlib
import importlib.util
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from polyagents.backbone_files import read_config
from polyagents.errors import InputError, first_line
from polyagents.models.model_options import SCRATCH, EncoderOptions
from polyagents.network import is_offline

# Layers, width, heads: BERT's namesakes (google-research/bert, and Turc et al. 2019 for the small ones).
SCRATCH_SIZES = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "base": (12, 768, 12)}


@dataclass(frozen=True)
class Vocabulary:
    """The facts about the tokenizer that a backbone needs.

    Attributes:
        size: the number of token ids.
        pad_id: the id that pads short texts.
        end_id: the id that ends a text; its embedding initialises those of added tokens.
    """

    size: int
    pad_id: int
    end_id: int


def load_backbone(
    options: EncoderOptions,
    vocabulary: Vocabulary,
    training: bool,
    config: "transformers.PretrainedConfig | None" = None,
    weights: Mapping[str, Tensor] | None = None,
    kind: Any = None,
    bits: str | None = None,
) -> "transformers.PreTrainedModel":
    """Load a Hugging Face model, grow its embeddings for added tokens, and freeze the layers that do not learn.

    Args:
        options: name, trained layers, dropout.
        vocabulary: that of the tokenizer.
        training: whether gradients will be needed.
        config: the shape, where the weights come from elsewhere; the name is not looked up then.
        weights: the backbone's, by the names of `config`; with a config but without weights, those of a model file
            follow.
        kind: one of transformers' automatic models, AutoModel by default; one with a head for pre-training returns the
            backbone within it.
        bits: "8" or "4" bits for the weights of linear layers; None keeps fp32.

    Returns:
        The model, on the CPU.

    Raises:
        InputError: there is no such model, or it cannot rank.
    """
    # Measured on two CPU cores: a training step with plain matrix products is 1.27 times as fast as with torch's fused
    # attention, whose backward is slow there, and encoding without gradient 0.93 times (docs/architecture.md). Both
    # compute the same.
    attention = "eager" if training and not torch.cuda.is_available() else "sdpa"
    with silent_transformers():
        try:
            model = loaded(
                options, vocabulary, attention, config, weights, kind or transformers.AutoModel, in_bits(bits)
            )
        except InputError:
            raise
        except Exception as error:  # transformers and the hub raise a dozen kinds, by version
            raise InputError(
                f"--backbone {options.backbone}: no model could be loaded from there ({first_line(error)}). Give the "
                f"hub name of an encoder, a folder with config.json and weights, or {SCRATCH}{'|'.join(SCRATCH_SIZES)}."
            ) from error
    backbone: Any = model.base_model
    if backbone.config.is_encoder_decoder:
        raise InputError(
            f"--backbone {options.backbone} is an encoder-decoder ({backbone.config.model_type}); these agents take an "
            f"encoder such as BERT, or a decoder such as GPT-2."
        )
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None  # a head on [CLS] that the paper does not use
    grow_embeddings(model, vocabulary)
    if options.dropout is not None:
        set_dropout(backbone, options.dropout)
    choose_trained_layers(backbone, options.trained_layers)
    return cast("transformers.PreTrainedModel", model)


def loaded(
    options: EncoderOptions,
    vocabulary: Vocabulary,
    attention: str,
    config: "transformers.PretrainedConfig | None",
    weights: Mapping[str, Tensor] | None,
    kind: Any,
    quantized: dict[str, Any],
) -> Any:
    """Load the model from wherever it comes from: a file's weights, random weights, a folder or the hub.

    Args:
        options: name, trained layers, dropout.
        vocabulary: that of the tokenizer.
        attention: the name of transformers' implementation of attention.
        config: the shape, or None.
        weights: the backbone's, or None.
        kind: one of transformers' automatic models.
        quantized: arguments of `from_pretrained` for low precision.

    Returns:
        The model, as transformers builds it.
    """
    from transformers.initialization import no_init_weights  # loads all of transformers' modelling code

    if config is not None and weights is None:
        with no_init_weights():  # the model file's weights replace them (RankingModel.load_weights)
            return kind.from_config(config, attn_implementation=attention, dtype=torch.float32)
    if config is not None and weights is not None:
        with no_init_weights() if kind is transformers.AutoModel else nullcontext():  # a head is not among the weights
            model = kind.from_config(config, attn_implementation=attention, dtype=torch.float32)
        model.base_model.pooler = None  # the pooler is not among them either
        model.base_model.load_state_dict(weights, assign=True)
        model.tie_weights()
        return model
    if options.backbone.startswith(SCRATCH):
        return kind.from_config(scratch_config(options.backbone, vocabulary), attn_implementation=attention)
    if not os.path.exists(options.backbone):
        is_offline()  # asked first: the hub's client would try for a minute
    own: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": attention, "trust_remote_code": False}
    config = read_config(options.backbone)
    return kind.from_pretrained(options.backbone, config=config, **own, **quantized)


def in_bits(bits: str | None) -> dict[str, Any]:
    """Build the arguments that have transformers keep the weights of linear layers in 8 or 4 bits by bitsandbytes.

    Raises:
        InputError: bitsandbytes is not installed.
    """
    if bits is None:
        return {}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise InputError("--backbone-bits needs bitsandbytes: pip install 'polyagents[lora]'.")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns in every layer that inputs are rounded
    # 4 bits as the paper has them (Dettmers et al. 2023, arXiv 2305.14314): normal floats, whose scales are in 8 bits.
    four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    own = transformers.BitsAndBytesConfig(**({"load_in_8bit": True} if bits == "8" else four))
    return {"quantization_config": own}


@contextlib.contextmanager
def silent_transformers() -> Iterator[None]:
    """Load without transformers' warnings and progress bars: what a user should know, our errors say."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()


def config_values(backbone: "transformers.PreTrainedModel") -> dict[str, Any]:
    """Return the configuration of a backbone as plain values, for a file."""
    config: transformers.PretrainedConfig = getattr(backbone, "base_model").config  # noqa: B009  typed as a tensor or module
    return {**config.to_diff_dict(), "model_type": config.model_type}


def scratch_config(name: str, vocabulary: Vocabulary) -> "transformers.PretrainedConfig":
    """Build the configuration of `scratch:tiny`, `scratch:mini` or `scratch:base`.

    Args:
        name: the backbone's name, with the prefix.
        vocabulary: that of the tokenizer.

    Returns:
        BERT's configuration of that size.

    Raises:
        InputError: there is no such size.
    """
    size = name.removeprefix(SCRATCH)
    if size not in SCRATCH_SIZES:
        raise InputError(f"--backbone {name}: there is no such size; use scratch:{'|'.join(SCRATCH_SIZES)}.")
    layers, width, heads = SCRATCH_SIZES[size]
    return transformers.BertConfig(
        vocab_size=vocabulary.size,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        pad_token_id=vocabulary.pad_id,
    )


def grow_embeddings(backbone: "transformers.PreTrainedModel", vocabulary: Vocabulary) -> None:
    """Add a row for each added token, a copy of the separator's: the nearest to a line end that the weights know.

    Args:
        backbone: changed in place.
        vocabulary: that of the tokenizer.
    """
    rows = backbone.get_input_embeddings().weight.size(0)  # type: ignore[operator]
    if vocabulary.size <= rows:
        return
    backbone.resize_token_embeddings(vocabulary.size, mean_resizing=False)
    weight: Tensor = backbone.get_input_embeddings().weight  # type: ignore[assignment]
    with torch.no_grad():
        weight[rows:] = weight[vocabulary.end_id]


def set_dropout(backbone: "transformers.PreTrainedModel", probability: float) -> None:
    """Set one probability for every dropout of a backbone, that inside attention included.

    Args:
        backbone: changed in place.
        probability: 0 to 1.
    """
    for module in backbone.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        for name in ("dropout_prob", "attention_dropout"):  # attention modules keep the number themselves
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, probability)


def choose_trained_layers(backbone: "transformers.PreTrainedModel", which: str) -> None:
    """Freeze the weights that `--train-layers` excludes (paper Table 3).

    A backbone registers its parameters in the order in which data flows: embeddings, layers, and for some a last norm.

    Args:
        backbone: changed in place.
        which: a value of `--train-layers`.

    Raises:
        InputError: the backbone has no list of layers.
    """
    if which == "all":
        return
    layers = next(
        (
            module
            for module in backbone.modules()
            if isinstance(module, nn.ModuleList) and len(module) == backbone.config.num_hidden_layers
        ),
        None,
    )
    if layers is None:
        raise InputError(
            f"--train-layers {which}: {backbone.config.model_type} has no list of its layers (ALBERT shares one); use "
            f"--train-layers all."
        )
    first_trained = {"all_but_embeddings": 0, "top4": max(len(layers) - 4, 0), "top": len(layers) - 1}[which]
    first_parameter = next(layers[first_trained].parameters())
    for parameter in backbone.parameters():
        if parameter is first_parameter:
            break
        parameter.requires_grad_(False)
