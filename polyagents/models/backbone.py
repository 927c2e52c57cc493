"""A Hugging Face model as backbone: loaded or drawn at random, its embeddings grown, its trained layers chosen."""

from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, BertConfig, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils import logging as transformers_logging

from polyagents.errors import InputError
from polyagents.models.options import BackboneOptions
from polyagents.parlai_agents.dictionary import SCRATCH, TextDictionary
from polyagents.parlai_files import model_weights
from polyagents.text.pretrained import first_line

# Layers, width, heads: BERT's namesakes (google-research/bert, and Turc et al. 2019 for the small ones).
SCRATCH_SIZES = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "base": (12, 768, 12)}


def load_backbone(
    options: BackboneOptions, dictionary: TextDictionary, pretrained: bool, training: bool, kind: Any = AutoModel
) -> PreTrainedModel:
    """The Hugging Face model, its embeddings grown for added tokens, with the layers set that learn.

    Args:
        options: name, trained layers, dropout.
        dictionary: its `backbone_config` is where a model file keeps the configuration; filled in here.
        pretrained: False when a model file's weights follow: only the shape is built, and no hub or folder is asked.
        training: whether gradients will be wanted.
        kind: of transformers' automatic models; one with a head for pre-training returns the backbone within it.
    """
    # Measured on two CPU cores: a training step with plain matrix products is 1.27 times as fast as with torch's fused
    # attention, whose backward is slow there, and encoding without gradient 0.93 times (docs/architecture.md). Both
    # compute the same.
    attention = "eager" if training and not torch.cuda.is_available() else "sdpa"
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        if dictionary.backbone_config is not None and not pretrained:
            config = AutoConfig.for_model(**dictionary.backbone_config)
            with no_init_weights():  # the model file's take their place (BaseAgent.load_state_dict)
                model = kind.from_config(config, attn_implementation=attention)
        elif file := model_weights.backbone_file(options.name, dictionary.opt.get("datapath")):
            parlai = model_weights.ParlaiModel.read(file)
            with no_init_weights() if kind is AutoModel else nullcontext():  # a head is not in the file
                model = kind.from_config(parlai.config(), attn_implementation=attention)
            model.base_model.pooler = None  # nor is this
            model.base_model.load_state_dict(parlai.backbone(), assign=True)
            model.tie_weights()
        elif options.name.startswith(SCRATCH):
            model = kind.from_config(scratch_config(options.name, dictionary), attn_implementation=attention)
        else:
            model = kind.from_pretrained(options.name, dtype=torch.float32, attn_implementation=attention)
    except InputError:
        raise
    except Exception as error:  # transformers and the hub raise a dozen kinds, by version
        raise InputError(
            f"--backbone {options.name}: no model could be loaded from there ({first_line(error)}). Give the hub name "
            f"of an encoder, a folder with config.json and weights, or scratch:{'|'.join(SCRATCH_SIZES)}."
        ) from error
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()
    backbone: Any = model.base_model
    if backbone.config.is_encoder_decoder:
        raise InputError(
            f"--backbone {options.name} is an encoder-decoder ({backbone.config.model_type}); these agents take an "
            f"encoder such as BERT, or a decoder such as GPT-2."
        )
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None  # a head on [CLS] that the paper does not use
    grow_embeddings(model, dictionary)
    if options.dropout is not None:
        set_dropout(backbone, options.dropout)
    choose_trained_layers(backbone, options.train_layers)
    dictionary.backbone_config = backbone.config.to_diff_dict() | {"model_type": backbone.config.model_type}
    return cast(PreTrainedModel, model)


def scratch_config(name: str, dictionary: TextDictionary) -> PretrainedConfig:
    """The configuration of `scratch:tiny` and its siblings."""
    size = name.removeprefix(SCRATCH)
    if size not in SCRATCH_SIZES:
        raise InputError(f"--backbone {name}: there is no such size; use scratch:{'|'.join(SCRATCH_SIZES)}.")
    layers, width, heads = SCRATCH_SIZES[size]
    return BertConfig(
        vocab_size=len(dictionary),
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        pad_token_id=dictionary.pad_id,
    )


def grow_embeddings(backbone: PreTrainedModel, dictionary: TextDictionary) -> None:
    """Give added tokens a row each: the separator's, the nearest thing to a line end that the weights know."""
    rows = backbone.get_input_embeddings().weight.size(0)  # type: ignore[operator]
    if len(dictionary) <= rows:
        return
    backbone.resize_token_embeddings(len(dictionary), mean_resizing=False)
    weight: Tensor = backbone.get_input_embeddings().weight  # type: ignore[assignment]
    with torch.no_grad():
        weight[rows:] = weight[dictionary.end_id]


def set_dropout(backbone: PreTrainedModel, probability: float) -> None:
    """One probability for every dropout, those inside attention included."""
    for module in backbone.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        for name in ("dropout_prob", "attention_dropout"):  # attention modules keep the number themselves
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, probability)


def choose_trained_layers(backbone: PreTrainedModel, which: str) -> None:
    """Freeze what `--train-layers` leaves out (paper Table 3).

    A backbone registers its parameters in the order of the data: embeddings, layers, and for some a last norm.
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
