"""A Hugging Face model as backbone: loads it or draws it at random, grows its embeddings, freezes layers."""

import importlib.util
import inspect
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn

from polyagents.backbone_files import CONFIG, located_backbone, read_config
from polyagents.errors import InputError, first_line
from polyagents.models.model_options import SCRATCH, EncoderOptions
from polyagents.network import is_offline
from polyagents.surroundings import silent_transformers

# Layers, width, heads: BERT's namesakes (google-research/bert, and Turc et al. 2019 for the small ones).
SCRATCH_SIZES = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "base": (12, 768, 12)}


@dataclass(frozen=True)
class Vocabulary:
    """The number of token ids, the id that pads, and the id that ends a text; added tokens start as its embedding."""

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
        training: whether gradients will be needed.
        config: the shape, if the weights come from elsewhere; the name is not looked up then.
        weights: the backbone's, by the names of `config`; with a config but without weights, those of a model file
            follow.
        kind: one of transformers' automatic models, AutoModel by default; one with a head for pre-training returns the
            backbone within it.
        bits: "8" or "4" bits for the weights of linear layers; None keeps fp32.

    Raises:
        InputError: there is no such model, or it cannot rank.
    """
    # Measured on two CPU cores: a training step with plain matrix products is 1.27 times as fast as with torch's fused
    # attention, whose backward is slow there, and encoding without gradient 0.93 times (docs/architecture.md). Both
    # compute the same. None is fused attention for the families that have it, and plain products for the others.
    attention = "eager" if training and not torch.cuda.is_available() else None
    with silent_transformers():
        try:
            model = load_from_anywhere(
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
    if not reads_texts(type(backbone), type(backbone.config)) or not has_embeddings(backbone):
        raise InputError(
            f"--backbone {options.backbone} ({backbone.config.model_type}) does not read token ids only; give an "
            f"encoder such as BERT, or a decoder such as GPT-2."
        )
    drop_pooler(backbone)
    if hasattr(backbone, "set_attention_type"):  # BigBird would take it at its first short text, and keep it forever
        backbone.set_attention_type("original_full")
    grow_embeddings(model, vocabulary)
    if options.dropout is not None:
        for module, name, _ in dropouts_of(backbone):
            setattr(module, name, options.dropout)
    if training:
        choose_trained_layers(backbone, options.trained_layers)
    return cast("transformers.PreTrainedModel", model)


def load_from_anywhere(
    options: EncoderOptions,
    vocabulary: Vocabulary,
    attention: str | None,
    config: "transformers.PretrainedConfig | None",
    weights: Mapping[str, Tensor] | None,
    kind: Any,
    quantized: dict[str, Any],
) -> Any:
    """Load the model from wherever it comes from: a file's weights, random weights, a folder or the hub.

    Args:
        attention: the name of transformers' implementation of attention; None is the model's own choice.
        quantized: arguments of `from_pretrained` for low precision.
    """
    if config is not None:
        # A file's weights replace all (adapters.load_weights); a head is not among them.
        is_replaced = weights is None or kind is transformers.AutoModel
        model = without_weights(config, attention, kind) if is_replaced else drawn_at_random(config, attention, kind)
        if weights is not None:
            drop_pooler(model.base_model)  # the pooler is not among them either
            model.base_model.load_state_dict(weights, assign=True)
            model.tie_weights()
        return model
    if options.backbone.startswith(SCRATCH):
        return drawn_at_random(scratch_config(options.backbone, vocabulary), attention, kind)
    name = located_backbone(options.backbone)
    if not os.path.exists(name):
        is_offline()  # asked first: the hub's client would try for a minute
    own: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": attention, "trust_remote_code": False}
    config = read_config(name)
    if isinstance(transformers.MODEL_MAPPING.get(type(config), None), tuple):  # Funnel's: the first of its classes
        config.architectures = []
    own |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # refused below, with their shapes
    model, found = kind.from_pretrained(name, config=config, **own, **quantized)
    refuse_other_shapes(found, f"--backbone {options.backbone}")
    drop_pooler(model.base_model)  # which may be missing: nothing reads it
    refuse_weights(model, {*found["missing_keys"]}, options.backbone)
    return model


def refuse_other_shapes(found: Mapping[str, Any], name: str) -> None:
    """Refuse a model with weights of other shapes than its configuration says; they are random.

    Args:
        found: what transformers says of the loading.
    """
    for part, shape, wanted in sorted(found["mismatched_keys"]):
        raise InputError(
            f"{name}: its weights {part} have the shape {tuple(shape)}, and its {CONFIG} asks for {tuple(wanted)}, so "
            f"the two are not of one model; give the model's own {CONFIG}."
        )


def refuse_weights(model: Any, missing: Collection[str], name: str) -> None:
    """Refuse a model whose files lack weights of its backbone; a head may be missing.

    Args:
        missing: the names of the weights of `model` that no file has; they are random.
    """
    backbone = model.base_model
    prefix = "" if backbone is model else f"{model.base_model_prefix}."
    parts = [f"{prefix}{part}" for part, _ in backbone.named_parameters()]
    if absent := [part for part in parts if part in missing]:
        raise InputError(
            f"--backbone {name} lacks {len(absent)} of the {len(parts)} weights that its {CONFIG} asks for, such as "
            f"{absent[0]}, which would be random; its files are incomplete, or name their weights in another way."
        )


def drawn_at_random(config: "transformers.PretrainedConfig", attention: str | None, kind: Any) -> Any:
    """Build a model with random weights, in torch's default precision (`undisturbed`: fp32)."""
    # With a dtype, transformers would set torch's default for all threads meanwhile.
    model = kind.from_config(config, attn_implementation=attention, dtype=None)
    for part in (model.config, *(getattr(model.config, name, None) for name in model.config.sub_configs)):
        if part is not None:
            part.dtype = model.dtype
    return model


def without_weights(config: "transformers.PretrainedConfig", attention: str | None, kind: Any) -> Any:
    """Build a model whose weights will be replaced, without drawing them; its buffers have their values.

    transformers' own way (no_init_weights) switches torch's initialisers off for all threads.
    """
    with torch.device("meta"):  # for this thread alone
        model = drawn_at_random(config, attention, kind)
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
    """Return the arguments for linear layers in 8 or 4 bits; an InputError says if bitsandbytes is missing."""
    if bits is None:
        return {}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise InputError("--backbone-bits needs bitsandbytes: pip install 'polyagents[lora]'.")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns in every layer that inputs are rounded
    # 4 bits as the paper has them (Dettmers et al. 2023, arXiv 2305.14314): normal floats, whose scales are in 8 bits.
    four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    own = transformers.BitsAndBytesConfig(**({"load_in_8bit": True} if bits == "8" else four))
    return {"quantization_config": own}


def config_values(backbone: "transformers.PreTrainedModel") -> dict[str, Any]:
    """Return the configuration of a backbone as plain values, for a file."""
    config: transformers.PretrainedConfig = getattr(backbone, "base_model").config  # noqa: B009  typed as a tensor or module
    return {**config.to_diff_dict(), "model_type": config.model_type}


def scratch_config(name: str, vocabulary: Vocabulary) -> "transformers.PretrainedConfig":
    """Build the configuration of `scratch:tiny`, `scratch:mini` or `scratch:base`; refuse other sizes."""
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


def reads_texts(model_class: Any, config_class: Any) -> bool:
    """Tell whether classes of a model and its configuration are of a family that reads token ids and nothing else."""
    modalities = getattr(model_class, "input_modalities", "text")
    takes_ids = "input_ids" in inspect.signature(model_class.forward).parameters
    parts = " ".join(getattr(config_class, "sub_configs", ()))
    others = any(kind in parts for kind in ("audio", "image", "protein", "speech", "video", "vision", "vocoder"))
    return takes_ids and modalities in ("text", ["text"], ("text",)) and not others


def has_embeddings(backbone: Any) -> bool:
    """Tell whether there is a row of weights for each token id, and a width; CANINE has hashes of letters."""
    try:
        return isinstance(backbone.get_input_embeddings().weight, Tensor) and backbone.config.hidden_size > 0
    except (AttributeError, NotImplementedError, TypeError):
        return False


def drop_pooler(backbone: Any) -> None:
    """Drop the head on [CLS], which the paper does not use; its replacement has no weights."""
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = nn.Identity()  # SqueezeBERT's class calls whatever is there


def grow_embeddings(backbone: "transformers.PreTrainedModel", vocabulary: Vocabulary) -> None:
    """Add a row for each added token, a copy of the separator's: the nearest to a line end that the weights know."""
    rows = backbone.get_input_embeddings().weight.size(0)  # type: ignore[operator]
    if vocabulary.size <= rows:
        return
    backbone.resize_token_embeddings(vocabulary.size, mean_resizing=False)
    weight: Tensor = backbone.get_input_embeddings().weight  # type: ignore[assignment]
    with torch.no_grad():
        weight[rows:] = weight[vocabulary.end_id]


def dropouts_of(model: nn.Module) -> list[tuple[nn.Module, str, float]]:
    """Return every probability of dropout, also in attention: the module that keeps it, its name there, its value."""
    return [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()  # modules of attention keep the number themselves, XLM's all do
        if isinstance(value, float) and (name == "p" or ("drop" in name and "layerdrop" not in name))
    ]


def choose_trained_layers(backbone: "transformers.PreTrainedModel", which: str) -> None:
    """Freeze the weights that `--train-layers` excludes (paper Table 3): those used before the first layer that learns.

    An InputError says if the backbone has no list of layers.
    """
    if which == "all":
        return
    count: int = getattr(backbone.config, "num_hidden_layers", 0)
    lists: list[str] = []  # XLM has one for each part of a layer
    for name, module in backbone.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count > 0 and not name.startswith(tuple(lists)):
            lists.append(f"{name}.")
    first_trained = {"all_but_embeddings": 0, "top4": max(count - 4, 0), "top": count - 1}[which]
    layer, started = tuple(f"{name}{first_trained}." for name in lists), running_order(backbone) if lists else {}
    begins = [order for name, order in started.items() if f"{name}.".startswith(layer)]  # the layer, or its parts
    if not begins:
        raise InputError(
            f"--train-layers {which}: {backbone.config.model_type} has no list of its layers (ALBERT shares one); use "
            f"--train-layers all."
        )
    for name, parameter in backbone.named_parameters():
        owner = name.rpartition(".")[0]
        while owner not in started:  # read by the module around it, which has begun
            owner = owner.rpartition(".")[0]
        parameter.requires_grad_(started[owner] >= min(begins))


@torch.no_grad()
def running_order(backbone: "transformers.PreTrainedModel") -> dict[str, int]:
    """Number the modules of a backbone, by name, in the order in which they begin; those that never do have none.

    An InputError says if the backbone cannot read a short text.
    """
    started: dict[str, int] = {"": -1}

    def note(name: str) -> Any:
        return lambda *_: started.setdefault(name, len(started)) and None

    hooks = [module.register_forward_pre_hook(note(name)) for name, module in backbone.named_modules() if name]
    training = backbone.training
    backbone.eval()
    ids = torch.ones((1, 8), dtype=torch.long, device=backbone.device)
    try:
        backbone(input_ids=ids, attention_mask=torch.ones_like(ids))
    except Exception as error:  # each family has its own reasons
        raise unusable(backbone.config.model_type, error) from error
    finally:
        backbone.train(training)
        for hook in hooks:
            hook.remove()
    return started


def unusable(kind: str, error: Exception) -> InputError:
    """Build the error for a backbone that cannot read texts as our agents give them."""
    return InputError(
        f"This backbone ({kind}) cannot encode texts here ({type(error).__name__}: {first_line(error, 120)}); use one "
        f"such as BERT, RoBERTa or ModernBERT."
    )
