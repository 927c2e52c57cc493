"""Token ids [B, T] to states [B, T, D]: a Hugging Face model with its precision, its trained layers and its length."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
import transformers
from torch import Tensor, nn

from polyagents.models.dropout import FastDropout
from polyagents.models.model_options import EncoderOptions
from polyagents.models.tokens import Tokens

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

    def __init__(self, backbone: "transformers.PreTrainedModel", options: EncoderOptions, output_scaling: float = 1.0):
        super().__init__()
        self.backbone = backbone
        self.output_scaling = output_scaling
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
        # fp32 leaves an autocast around the call as it is (TwoTowerModel.encode_texts).
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


def max_tokens(config: "transformers.PretrainedConfig") -> int | None:
    """How many tokens the backbone has positions for."""
    positions: int | None = getattr(config, "max_position_embeddings", None)
    if positions is not None and config.model_type in {"roberta", "xlm-roberta", "camembert", "mpnet"}:
        return positions - int(config.pad_token_id) - 1  # these count positions from the padding id on
    return positions


def has_segments(backbone: "transformers.PreTrainedModel") -> bool:
    """Whether the weights know a first and a second text (BERT does; RoBERTa keeps one dead type)."""
    accepts = "token_type_ids" in inspect.signature(backbone.forward).parameters
    return accepts and getattr(backbone.config, "type_vocab_size", 0) > 1


@torch.no_grad()
def is_causal(backbone: "transformers.PreTrainedModel") -> bool:
    """Whether the first output is blind to what follows; asked of the model itself, since no config field tells."""
    training = backbone.training
    backbone.eval()
    ids = torch.tensor([[1, 2], [1, 3]], device=next(backbone.parameters()).device)
    with torch.autocast(ids.device.type, enabled=False):
        first, second = backbone(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    backbone.train(training)
    return bool(torch.allclose(first, second, atol=1e-6))
