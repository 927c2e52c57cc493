"""Token ids [B, T] to states [B, T, D]: a Hugging Face model with its precision, its trained layers and its length."""

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from polyagents.models.adapters import add_adapters
from polyagents.models.devices import to_device
from polyagents.models.dropout import FastDropout
from polyagents.models.model_options import EncoderOptions
from polyagents.models.tokens import AnyTokens, Tokens, pad, pad_joint

# Tokens (padding counted) that go through the encoder at once. Measured on two CPU cores (docs/architecture.md): speed
# is flat from 1,000 up, so small chunks win what padding would cost; a GPU wants large ones. Chosen here. In training
# chunks are half as large: the activations of larger ones are handed back to the system each time (docs/speed.md).
CHUNK_TOKENS = {"cpu": 2_048, "cuda": 65_536}
TRAINING_CHUNK_TOKENS = {"cpu": 1_024, "cuda": 65_536}

Part = TypeVar("Part")


class Backend(Protocol):
    """What computes a backbone's outputs in place of torch, without gradient (polyagents/backends).

    Attributes:
        quantized: what it has made of the weights, where that is another model's answer and no mere rounding of
            torch's, such as "onnx int8"; None where it computes with the weights as they are.
    """

    quantized: str | None

    def __call__(self, inputs: Mapping[str, Any]) -> Tensor:
        """What the backbone would be called with, by name -> its last hidden states [B, T, D], on the same device."""
        ...


class Encoder(nn.Module):
    """A backbone that turns a batch of texts into states.

    Attributes:
        backend: computes in place of the backbone; None where torch does.
        width: D.
        first_position: what the backbone calls the position of a text's first token.
        max_tokens: the longest text the backbone has positions for, or None.
        backbone_digest: SHA-256 of the weights that adapters stand beside, [32] uint8; None where there are none.
    """

    backbone_digest: Tensor | None

    def __init__(self, backbone: "transformers.PreTrainedModel", options: EncoderOptions, output_scaling: float = 1.0):
        super().__init__()
        self.backbone = backbone
        self.output_scaling = output_scaling
        self.precision = options.precision
        self.width: int = backbone.config.hidden_size
        self.first_position = first_position(backbone.config)
        self.max_tokens = max_tokens(backbone.config)
        self.has_segments = has_segments(backbone)
        self.compiled = False
        self.backend: Backend | None = None
        self.register_buffer("backbone_digest", None)

    def adapt(self, rank: int) -> None:
        """Have low-rank adapters learn in the place of the backbone's weights, which stay as they are.

        Raises:
            InputError: peft is not installed.
        """
        self.backbone_digest = add_adapters(self.backbone, rank)

    def twin(self) -> "Encoder":
        """A copy that starts from the same weights, and learns others; what adapters stand beside is shared.

        But for weights of 8 and 4 bits, of which bitsandbytes keeps a part in the layer that computes first.
        """
        kept = [w for w in self.parameters() if not w.requires_grad and type(w) is nn.Parameter]
        shared = kept if self.backbone_digest is not None else []
        return copy.deepcopy(self, {id(weight): weight for weight in shared})

    @functools.cached_property
    def causal(self) -> bool:
        """True for decoders such as GPT-2, whose outputs see only what stands before them."""
        return is_causal(self.backbone)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

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

    @functools.cached_property
    def keeps_apart(self) -> bool:
        """Whether tokens that do not see each other do not matter to each other, when `forward` is told so."""
        return keeps_apart(self)

    def forward(self, tokens: Tokens, sees: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Encode texts.

        Args:
            tokens: [B, T].
            sees: [B, T, T], True where the token of the row may look at that of the column; None: at all real ones.
            positions: [B, T], from 0, of the tokens; they come with `sees`.

        Returns:
            States [B, T, D] in fp32.
        """
        inputs = self.inputs(tokens, sees, positions, self.arithmetic if self.backend is None else torch.float32)
        # fp32 leaves an autocast around the call as it is (TwoTowerModel.encode_texts).
        with self.autocast(tokens.ids.device), self._dropout():
            states: Tensor = self.backend(inputs) if self.backend else self.backbone(**inputs).last_hidden_state
        return states.float() * self.output_scaling

    def inputs(
        self, tokens: Tokens, sees: Tensor | None, positions: Tensor | None, dtype: torch.dtype
    ) -> dict[str, Any]:
        """What the backbone is called with; the first three are those of `forward`, a mask of our own has a dtype."""
        inputs: dict[str, Any] = {"input_ids": tokens.ids, "attention_mask": self._padding_mask(tokens, dtype)}
        if self.has_segments and tokens.segments is not None:
            inputs["token_type_ids"] = tokens.segments
        if sees is not None and positions is not None:
            inputs["attention_mask"] = self._attention_mask(sees, positions, dtype)
            inputs["position_ids"] = positions + self.first_position
        return inputs

    def _padding_mask(self, tokens: Tokens, dtype: torch.dtype) -> Tensor | None:
        """What tells padding: None where there is none, else what is added to the logits of every head, [B, 1, 1, T].

        transformers looks through every mask [B, T] for padding, for which the host waits until a GPU has computed
        all that was asked of it. So a mask [B, T] is for those who need it: decoders and windows, which make a mask of
        their own from it, other runtimes, and compiled backbones, which do not look.
        """
        if self.backend is not None or self.compiled or not self._takes_any_mask:
            return tokens.mask.long()
        return None if tokens.is_full else added(tokens.mask.unsqueeze(1), dtype)

    @functools.cached_property
    def _takes_any_mask(self) -> bool:
        return getattr(self.backbone.config, "sliding_window", None) is None and not self.causal and self.keeps_apart

    def _attention_mask(self, sees: Tensor, positions: Tensor, dtype: torch.dtype) -> Any:
        """What transformers takes for a mask of our own; one for each kind of layers where some see a window only."""
        config = self.backbone.config
        window = getattr(config, "sliding_window", None)
        if window is None or getattr(config, "use_sliding_window", True) is False:
            return added(sees, dtype)
        distance = (positions.unsqueeze(2) - positions.unsqueeze(1)).abs()
        near = sees & (distance <= window if config.model_type == "modernbert" else distance < window)
        if getattr(config, "layer_types", None) is None:
            return added(near, dtype)
        return {"full_attention": added(sees, dtype), "sliding_attention": added(near, dtype)}

    @property
    def arithmetic(self) -> torch.dtype:
        """What `--precision` names."""
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """The arithmetic of `--precision`."""
        return torch.autocast(device.type, self.arithmetic) if self.precision != "fp32" else nullcontext()

    def chunks(self, tokens: AnyTokens, budget: int | None = None) -> Iterator[tuple[Tensor, AnyTokens]]:
        """The batch in chunks of similar length, each cut to its longest text, with the rows that it holds.

        Padding is work thrown away: with lengths as uneven as dialogue's, sorted chunks do a third less of it. What is
        scored against what does not change.

        Args:
            tokens: [B, T] on the CPU, where the chunks are cut.
            budget: tokens of a chunk, padding counted, but one text at least; by default what suits the device.

        Yields:
            The rows [b] of a chunk, and the chunk [b, t], both on the encoder's device.
        """
        suits, device = TRAINING_CHUNK_TOKENS if self.training else CHUNK_TOKENS, self.device
        budget = budget or suits.get(device.type, suits["cuda"])
        lengths = tokens.mask.sum(1)
        order = lengths.argsort(descending=True)
        sizes = lengths[order].clamp(min=1).tolist()
        start = 0
        while start < len(sizes):
            stop = start + max(budget // sizes[start], 1)
            rows = order[start:stop]
            yield to_device(rows, device), tokens.rows(rows).to(device)
            start = stop


def in_chunks(
    encoder: Encoder,
    encode: Callable[[AnyTokens], Part],
    join: Callable[[list[Part], list[Tensor]], Part],
    tokens: AnyTokens,
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


def lists_in_order(parts: list[Tensor], rows: list[Tensor]) -> Tensor:
    """Scores [r, k] of the chunks -> [R, K] in the order of the batch; chunks of short lists have fewer columns."""
    longest = max(part.size(1) for part in parts)
    return in_order([functional.pad(part, (0, longest - part.size(1))) for part in parts], rows)


@contextmanager
def in_evaluation(module: nn.Module) -> Iterator[None]:
    """Compute without dropout, and go on as before."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


@torch.no_grad()
def token_states(encoder: Encoder, texts: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    """The states of all tokens of all texts, without dropout, whether or not the encoder is training.

    Args:
        encoder: on a CPU or GPU.
        texts: token ids; one text at least.
        pad_id: of the vocabulary.

    Returns:
        [N, D] fp32, for N tokens.
    """
    tokens = pad(texts, pad_id)
    with in_evaluation(encoder):
        return torch.cat([encoder(chunk)[chunk.mask] for _, chunk in encoder.chunks(tokens)])


def max_tokens(config: "transformers.PretrainedConfig") -> int | None:
    """How many tokens the backbone has positions for."""
    positions: int | None = getattr(config, "max_position_embeddings", None)
    return None if positions is None else positions - first_position(config)


def first_position(config: "transformers.PretrainedConfig") -> int:
    """What the backbone calls the position of a text's first token: some count from the padding id on."""
    if config.model_type in {"roberta", "xlm-roberta", "camembert", "mpnet"}:
        return int(config.pad_token_id) + 1
    return 0


def has_segments(backbone: "transformers.PreTrainedModel") -> bool:
    """Whether the weights know a first and a second text (BERT does; RoBERTa keeps one dead type)."""
    accepts = "token_type_ids" in inspect.signature(backbone.forward).parameters
    return accepts and getattr(backbone.config, "type_vocab_size", 0) > 1


@torch.no_grad()
def is_causal(backbone: "transformers.PreTrainedModel") -> bool:
    """Whether the first output is blind to what follows; asked of the model itself, since no config field tells."""
    ids = torch.tensor([[1, 2], [1, 3]], device=next(backbone.parameters()).device)
    with in_evaluation(backbone), torch.autocast(ids.device.type, enabled=False):
        first, second = backbone(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    return bool(torch.allclose(first, second, atol=1e-6))


def added(sees: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, T, T] -> what is added to the logits of every head, [B, 1, T, T], 0 or the lowest number."""
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min).unsqueeze(1)


@torch.no_grad()
def keeps_apart(encoder: Encoder) -> bool:
    """Whether a text is read alike beside others that it does not see, wherever it stands; asked of the model itself.

    A backbone with an attention of its own may read the mask in another way, or tell by itself how far two tokens are
    from each other: T5, MPNet and DeBERTa do. In fp32, before the outputs are scaled.
    """
    context, text = list(range(1, 8)), list(range(2, 6))
    length = min(64, (encoder.max_tokens or 512) - len(context))
    beside = [[1 + i % 5 for i in range(length)]] * 8  # as long as a row may be, and longer than a small window
    device = encoder.device

    def read(candidates: list[list[int]]) -> Tensor:
        """The states of the last candidate."""
        tokens = pad_joint([(context, candidates)], 0).to(device)
        inputs = encoder.inputs(tokens, tokens.together(encoder.causal), tokens.positions, torch.float32)
        states: Tensor = encoder.backbone(**inputs).last_hidden_state
        return states[0, -len(text) :].float()

    try:
        with in_evaluation(encoder), torch.autocast(device.type, enabled=False):
            alone, together = read([text]), read([*beside, text])
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, RuntimeError, IndexError):  # such a mask, or positions, are unknown to it
        return False
    return bool((alone - together).abs().max() <= 2e-5 * alone.abs().max()) or not bool(torch.isfinite(alone).all())
