"""Token ids [B, T] to states [B, T, D]: a Hugging Face model with its precision, its trained layers and its length."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, BertConfig, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils import logging as transformers_logging

from polyagents import parlai_model
from polyagents.dropout import FastDropout
from polyagents.errors import InputError
from polyagents.options import BackboneOptions
from polyagents.text import SCRATCH, TextDictionary, Tokens, first_line

# Layers, width, heads: BERT's namesakes (google-research/bert, and Turc et al. 2019 for the small ones).
SCRATCH_SIZES = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "base": (12, 768, 12)}

# Tokens (padding counted) that go through the encoder at once. Measured on two CPU cores (docs/architecture.md): speed
# is flat from 1,000 up, so small chunks win what padding would cost; a GPU wants large ones. Chosen here. In training
# chunks are half as large: the activations of larger ones are handed back to the system each time (docs/speed.md).
CHUNK_TOKENS = {"cpu": 2_048, "cuda": 65_536}
TRAINING_CHUNK_TOKENS = {"cpu": 1_024, "cuda": 65_536}

Part = TypeVar("Part")


class Encoder(nn.Module):
    """A backbone that turns a batch of texts into states.

    Attributes:
        width: D.
        max_tokens: the longest text the backbone has positions for, or None.
    """

    def __init__(self, backbone: PreTrainedModel, options: BackboneOptions):
        super().__init__()
        self.backbone = backbone
        self.output_scaling = options.output_scaling
        self.precision = options.precision
        self.width: int = backbone.config.hidden_size
        self.max_tokens = max_tokens(backbone.config)
        self.has_segments = has_segments(backbone)
        self.compiled = False

    @functools.cached_property
    def causal(self) -> bool:
        """True for decoders such as GPT-2, whose outputs see only what stands before them."""
        return is_causal(self.backbone)

    def compile_backbone(self) -> None:
        """torch.compile, for batches of any shape. It brings dropout of its own."""
        _ = self.causal  # found out by a run of its own, for which nothing should be compiled
        self.backbone.compile(dynamic=True)
        self.compiled = True

    def checkpoint_activations(self) -> None:
        """Keep each layer's input only, and compute the rest again in the backward pass, with the same dropout."""
        # A compiled backbone has dropout of its own, and takes no contexts.
        own: dict[str, Any] = {} if self.compiled else {"context_fn": lambda: (nullcontext(), self._dropout())}
        self.backbone.activation_checkpointing_enable({"use_reentrant": False} | own)

    def _dropout(self) -> AbstractContextManager[Any]:
        """The fast one where it is fast: in training, on a CPU, not compiled."""
        fast = self.training and not self.compiled and self.backbone.device.type == "cpu"
        return FastDropout() if fast else nullcontext()

    def forward(self, tokens: Tokens) -> Tensor:
        """`Tokens` [B, T] -> states [B, T, D] in fp32."""
        inputs = {"input_ids": tokens.ids, "attention_mask": tokens.mask.long()}
        if self.has_segments and tokens.segments is not None:
            inputs["token_type_ids"] = tokens.segments
        # fp32 leaves an autocast around the call as it is (RankerAgent.encode_texts).
        with self.autocast(tokens.ids.device), self._dropout():
            states: Tensor = self.backbone(**inputs).last_hidden_state
        return states.float() * self.output_scaling

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """The arithmetic of `--precision`."""
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]
        return torch.autocast(device.type, dtype) if self.precision != "fp32" else nullcontext()

    def chunks(self, tokens: Tokens, budget: int | None = None) -> Iterator[tuple[Tensor, Tokens]]:
        """The batch in chunks of similar length, each cut to its longest text, with the rows that it holds.

        Padding is work thrown away: with lengths as uneven as dialogue's, sorted chunks do a third less of it. What is
        scored against what does not change.

        Args:
            tokens: [B, T].
            budget: tokens of a chunk, padding counted, but one text at least; by default what suits the device.
        """
        suits = TRAINING_CHUNK_TOKENS if self.training else CHUNK_TOKENS
        budget = budget or suits.get(tokens.ids.device.type, suits["cuda"])
        lengths = tokens.mask.sum(1)
        order = lengths.argsort(descending=True)
        sizes = lengths[order].clamp(min=1).tolist()
        start = 0
        while start < len(sizes):
            stop = start + max(budget // sizes[start], 1)
            rows = order[start:stop]
            yield rows, tokens.rows(rows)
            start = stop


def in_chunks(
    encoder: Encoder,
    encode: Callable[[Tokens], Part],
    join: Callable[[list[Part], list[Tensor]], Part],
    tokens: Tokens,
) -> Part:
    """Encode chunk by chunk and put the results in the order of the batch."""
    parts, rows = [], []
    for index, chunk in encoder.chunks(tokens):
        parts.append(encode(chunk))
        rows.append(index)
    return join(parts, rows)


def in_order(parts: list[Tensor], rows: list[Tensor]) -> Tensor:
    """Results [b, ...] of the chunks -> [B, ...] in the order of the batch."""
    return torch.cat(parts)[torch.cat(rows).argsort()]


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
        elif file := parlai_model.backbone_file(options.name, dictionary.opt.get("datapath")):
            parlai = parlai_model.ParlaiModel.read(file)
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


def max_tokens(config: PretrainedConfig) -> int | None:
    """How many tokens the backbone has positions for."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and config.model_type in {"roberta", "xlm-roberta", "camembert", "mpnet"}:
        return positions - config.pad_token_id - 1  # these count positions from the padding id on
    return positions


def has_segments(backbone: PreTrainedModel) -> bool:
    """Whether the weights know a first and a second text (BERT does; RoBERTa keeps one dead type)."""
    accepts = "token_type_ids" in inspect.signature(backbone.forward).parameters
    return accepts and getattr(backbone.config, "type_vocab_size", 0) > 1


@torch.no_grad()
def is_causal(backbone: PreTrainedModel) -> bool:
    """Whether the first output is blind to what follows; asked of the model itself, since no config field tells."""
    training = backbone.training
    backbone.eval()
    ids = torch.tensor([[1, 2], [1, 3]], device=next(backbone.parameters()).device)
    with torch.autocast(ids.device.type, enabled=False):
        first, second = backbone(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    backbone.train(training)
    return bool(torch.allclose(first, second, atol=1e-6))
