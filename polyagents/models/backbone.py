"""A Hugging Face model as backbone: loads it or draws it at random, grows its embeddings, freezes layers."""

import importlib.util
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn

from polyagents.errors import InputError, first_line
from polyagents.models.model_options import SCRATCH, EncoderOptions
from polyagents.network import is_offline
from polyagents.surroundings import silent_transformers

# Layers, width, heads: BERT's namesakes (google-research/bert, and Turc et al. 2019 for the small ones).
SCRATCH_SIZES = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "base": (12, 768, 12)}


LARGEST_SIZE, MOST_LAYERS = 10_000_000, 1_000  # in a configuration that others may have written


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
    if config is not None:
        if (
            weights is None or kind is transformers.AutoModel
        ):  # a file's weights replace all (RankingModel.load_weights)
            model = without_weights(config, attention, kind)
        else:  # a head is not among the weights
            model = drawn(config, attention, kind)
        if weights is not None:
            model.base_model.pooler = None  # the pooler is not among them either
            model.base_model.load_state_dict(weights, assign=True)
            model.tie_weights()
        return model
    if options.backbone.startswith(SCRATCH):
        return drawn(scratch_config(options.backbone, vocabulary), attention, kind)
    if not os.path.exists(options.backbone):
        is_offline()  # asked first: the hub's client would try for a minute
    own: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": attention, "trust_remote_code": False}
    return kind.from_pretrained(options.backbone, **own, **quantized)


def drawn(config: "transformers.PretrainedConfig", attention: str, kind: Any) -> Any:
    """Build a model with random weights, in torch's default precision (`undisturbed`: fp32).

    Args:
        config: the shape.
        attention: the name of transformers' implementation of attention.
        kind: one of transformers' automatic models.
    """
    # With a dtype, transformers would set torch's default for all threads meanwhile.
    model = kind.from_config(config, attn_implementation=attention, dtype=None)
    for part in (model.config, *(getattr(model.config, name, None) for name in model.config.sub_configs)):
        if part is not None:
            part.dtype = model.dtype
    return model


def without_weights(config: "transformers.PretrainedConfig", attention: str, kind: Any) -> Any:
    """Build a model whose weights will be replaced, without drawing them: its buffers have their values.

    transformers' own way (no_init_weights) switches torch's initialisers off for all threads.

    Args:
        config: as for `drawn`.
        attention: as for `drawn`.
        kind: as for `drawn`.
    """
    with torch.device("meta"):  # for this thread alone
        model = drawn(config, attention, kind)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter._is_hf_initialized = True  # as where transformers has read them from a file
    fill_buffers(model, model)
    model.tie_weights()
    return model


def fill_buffers(model: "transformers.PreTrainedModel", part: nn.Module) -> None:
    """Compute the buffers of a part of a model that no file holds, such as positions, as it does itself."""
    for child in part.children():
        fill_buffers(child if isinstance(child, transformers.PreTrainedModel) else model, child)
    model._init_weights(part)


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


def config_of(values: Mapping[str, Any]) -> "transformers.PretrainedConfig":
    """Build a backbone's configuration from the plain values that `config_values` returned.

    Raises:
        InputError: the values are no configuration, or so large that building the model would not end.
    """
    try:
        for name, value in values.items():
            if isinstance(value, int | float) and not is_possible(name, value):
                raise ValueError(f"{name} is {value}")
        own = {name: value for name, value in values.items() if name != "auto_map"}  # auto_map names code to download
        config: transformers.PretrainedConfig = transformers.AutoConfig.for_model(**own)
    except Exception as error:  # transformers raises a dozen kinds, by version
        raise InputError(
            f"The backbone's configuration in the model's dictionary file cannot be used ({first_line(error)}); the "
            f"file is damaged, or of another version of transformers."
        ) from error
    return config


def is_possible(name: str, value: float) -> bool:
    """Tell whether a number of a configuration is plausible, judged by its name: a size, a probability, or another.

    Args:
        name: the field.
        value: its value.

    Returns:
        False for a number that no model has.
    """
    if name.endswith(("layers", "n_layer", "heads", "n_head")):
        return 1 <= value <= MOST_LAYERS
    if name.startswith("num_") or name.endswith("_size"):
        return 0 <= value <= LARGEST_SIZE
    if "dropout" in name or name.endswith("_prob"):
        return 0 <= value <= 1
    return abs(value) <= LARGEST_SIZE  # False for not-a-number


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
