"""Encodes token ids [B, T] to states [B, T, D]: a Hugging Face model with its precision and maximal length."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch
import transformers
from torch import Tensor, nn

from polyagents.errors import InputError
from polyagents.models.backbone import unusable
from polyagents.models.dropout import FastDropout
from polyagents.models.model_options import EncoderOptions
from polyagents.models.tokens import AnyTokens, JointTokens, Tokens, pad, pad_joint, to_device
from polyagents.properties import cached_property

# Tokens (padding counted) that go through the encoder at once. Measured on two CPU cores (docs/architecture.md): speed
# is flat from 1,000 up, so small chunks only save padding; a GPU needs large ones. Chosen here. In training chunks are
# half as large: the activations of larger ones are returned to the system each time (docs/speed.md).
CHUNK_TOKENS = {"cpu": 2_048, "cuda": 65_536}
TRAINING_CHUNK_TOKENS = {"cpu": 1_024, "cuda": 65_536}

# Backbones whose tokens all see each other, and which add a mask [B, 1, 1, T] to their logits as it is.
READ_ANY_MASK = frozenset({"bert", "distilbert", "electra", "roberta", "xlm-roberta", "camembert"})

ROUNDING = 2e-5  # states that differ by less, divided by the largest, are equal


def never(width: int) -> bool:
    """Default of `measures`: fp32."""
    return False


class Backend(Protocol):
    """A runtime that computes a backbone's outputs instead of torch, without gradient (polyagents/backends).

    Attributes:
        name: the value of `--backend`.
        quantized: the format of quantised weights, such as "onnx int8", whose outputs differ from torch's by more than
            rounding; None if they are not quantised.
    """

    name: str
    quantized: str | None

    def __call__(self, inputs: Mapping[str, Any]) -> Tensor:
        """Compute the last hidden states [B, T, D] from the backbone's inputs, given by name, on the same device."""
        ...


class Encoder(nn.Module):
    """A backbone that encodes a batch of texts to states.

    Attributes:
        backend: computes instead of the backbone; None if torch does.
        measures: tells for a width whether a CPU trains faster in bf16; set by who builds an encoder, False until then.
        width: D.
        first_position: the backbone's number for the position of a text's first token.
        max_tokens: the longest text that the backbone has positions for, or None.
        backbone_digest: SHA-256 of the frozen weights that adapters are added to, [32] uint8; None without adapters.
    """

    backbone_digest: Tensor | None

    def __init__(self, backbone: "transformers.PreTrainedModel", options: EncoderOptions, output_scaling: float = 1.0):
        super().__init__()
        self.backbone = backbone
        self.output_scaling = output_scaling
        self.precision = options.precision
        self.width: int = backbone.config.hidden_size
        self.first_position = first_position(backbone)
        self.max_tokens = max_tokens(backbone)
        # BERT's weights distinguish a first and a second text; RoBERTa keeps one unused type.
        accepts = "token_type_ids" in inspect.signature(backbone.forward).parameters
        self.has_segments = accepts and getattr(backbone.config, "type_vocab_size", 0) > 1
        self.compiled = False
        self.backend: Backend | None = None
        self.measures: Callable[[int], bool] = never
        self.register_buffer("backbone_digest", None)

    def twin(self) -> "Encoder":
        """Return a copy that starts from the same weights and learns others; frozen weights below adapters are shared.

        Weights of 8 and 4 bits are copied: bitsandbytes keeps a part of them in the layer that computes first.
        """
        kept = [w for w in self.parameters() if not w.requires_grad and type(w) is nn.Parameter]
        shared = kept if self.backbone_digest is not None else []
        return copy.deepcopy(self, {id(weight): weight for weight in shared})

    def compile_backbone(self) -> None:
        """Compile the backbone by torch.compile, for batches of any shape, with the dropout that torch compiles."""
        _ = self.causal, self.sees_padding  # measured by running the backbone, before it is compiled
        self.backbone.compile(dynamic=True)
        self.compiled = True

    def checkpoint_activations(self) -> None:
        """Keep only each layer's input, and compute the rest again in the backward pass, with the same dropout."""

        # A compiled backbone has its own dropout, and does not support context_fn.
        def again() -> tuple[Any, Any]:
            return nullcontext(), FastDropout() if self.backbone.device.type == "cpu" else nullcontext()

        own: dict[str, Any] = {} if self.compiled else {"context_fn": again}
        self.backbone.activation_checkpointing_enable({"use_reentrant": False} | own)

    def forward(self, tokens: Tokens, sees: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Encode texts to states [B, T, D] in fp32.

        Args:
            sees: [B, T, T], True where the row's token may attend to the column's; None lets all attend to all real
                tokens.
            positions: [B, T], from 0, of the tokens; given together with `sees`.
        """
        device = tokens.ids.device
        arithmetic = self.arithmetic(device)
        # Another runtime has an arithmetic of its own, and takes a mask in fp32.
        inputs = self.inputs(tokens, sees, positions, arithmetic if self.backend is None else torch.float32)
        fast = self.training and not self.compiled and device.type == "cpu"
        # In fp32 an autocast around the call stays (TwoTowerModel.encode_texts). A kept cast would live until the
        # outermost autocast ends, which may be the caller's, beyond an update.
        low: Any = nullcontext()
        if arithmetic != torch.float32:
            low = torch.autocast(device.type, arithmetic, cache_enabled=False)
        with low, FastDropout() if fast else nullcontext():
            states: Tensor = self.backend(inputs) if self.backend else self.backbone(**inputs).last_hidden_state
        return states.float() * self.output_scaling

    def inputs(
        self, tokens: Tokens, sees: Tensor | None, positions: Tensor | None, dtype: torch.dtype
    ) -> dict[str, Any]:
        """Build the arguments that the backbone is called with; `dtype`: of a mask that is added to logits."""
        # transformers looks through every mask [B, T] for padding, for which the host waits until a GPU has computed
        # all that was asked of it. So a mask [B, T] is for those who need it: decoders and windows, which make a mask
        # of their own from it, other runtimes, and compiled backbones, which do not look. All others get what is added
        # to the logits of every head, [B, 1, 1, T].
        mask: Tensor | None
        if self.backend is not None or self.compiled or self.backbone.config.model_type not in READ_ANY_MASK:
            mask = tokens.mask.long()
        else:
            mask = None if tokens.is_full else added(tokens.mask.unsqueeze(1), dtype)
        inputs: dict[str, Any] = {"input_ids": tokens.ids, "attention_mask": mask}
        if self.has_segments and isinstance(tokens, JointTokens):  # all 0 for single texts
            inputs["token_type_ids"] = tokens.segments
        if sees is not None and positions is not None:
            inputs["attention_mask"] = self._attention_mask(sees, positions, dtype)
            inputs["position_ids"] = positions + self.first_position
        return inputs

    def _attention_mask(self, sees: Tensor, positions: Tensor, dtype: torch.dtype) -> Any:
        """Build the mask that transformers takes; one for each kind of layer if some attend only to a window."""
        config = self.backbone.config
        window = getattr(config, "sliding_window", None)
        if window is None or getattr(config, "use_sliding_window", True) is False:
            return added(sees, dtype)
        distance = (positions.unsqueeze(2) - positions.unsqueeze(1)).abs()
        near = sees & (distance <= window if config.model_type == "modernbert" else distance < window)
        if getattr(config, "layer_types", None) is None:
            return added(near, dtype)
        return {"full_attention": added(sees, dtype), "sliding_attention": added(near, dtype)}

    def arithmetic(self, device: torch.device) -> torch.dtype:
        """Return the dtype that `--precision` names, or that suits a device."""
        if self.precision != "auto":
            return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]
        if device.type == "cuda":
            faster = torch.cuda.is_bf16_supported(including_emulation=False)
        else:  # in training only, so that scores are in fp32
            faster = self.training and self.measures(self.width)
        return torch.bfloat16 if faster else torch.float32

    def chunks(self, tokens: AnyTokens, budget: int | None = None) -> Iterator[tuple[Tensor, AnyTokens]]:
        """Split a batch into chunks of texts of similar length, each cut to its longest text.

        Padding is wasted work: with lengths as uneven as dialogue's, sorted chunks have a third less of it. The
        results do not change, since a backbone that sees padding gets texts of equal length.

        Args:
            tokens: [B, T] on the CPU, where the chunks are cut.
            budget: tokens of a chunk, padding counted; a chunk has one text at least. By default it suits the device.

        Yields:
            The rows [b] of a chunk in the batch, and the chunk [b, t], both on the encoder's device.
        """
        suits, device = TRAINING_CHUNK_TOKENS if self.training else CHUNK_TOKENS, self.backbone.device
        budget = budget or suits.get(device.type, suits["cuda"])
        lengths = tokens.mask.sum(1)  # on the CPU: a GPU would have to be waited for
        # Descending: the first text of a chunk is its longest, which decides how wide it is and how many texts fit.
        order = lengths.argsort(descending=True)
        sizes = lengths[order].clamp(min=1).tolist()
        start = 0
        while start < len(sizes):
            stop = start + max(budget // sizes[start], 1)
            if self.sees_padding:  # its outputs would depend on the longest text beside it
                stop = min(stop, start + sizes.count(sizes[start]))
            rows = order[start:stop]
            yield to_device(rows, device), tokens.to(device, rows)
            start = stop

    # ---- what is measured ------------------------------------------------------------------------------------------

    @cached_property
    def causal(self) -> bool:
        """Whether the first output ignores what follows, as in GPT-2; measured, since no config says it."""
        ids = torch.tensor([[1, 2], [1, 3]], device=self.backbone.device)
        with torch.no_grad(), in_evaluation(self.backbone), torch.autocast(ids.device.type, enabled=False):
            first, second = self.backbone(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
        return bool(torch.allclose(first, second, atol=1e-6))

    @cached_property
    @torch.no_grad()
    def sees_padding(self) -> bool:
        """Whether a text's outputs depend on the padding after it, so that only texts of equal length go together.

        They do if neighbours or the whole row are mixed unmasked.

        Raises:
            InputError: the backbone cannot read a text, or its outputs differ from call to call.
        """
        if self.backbone.config.model_type in READ_ANY_MASK:
            return False
        device, text, longer = self.backbone.device, text_ids(self, 6), text_ids(self, min(30, self.max_tokens or 30))

        def read(*texts: list[int]) -> Tensor:
            """The states of the last text. Words are under the mask, since a padding token may have a row of zeros."""
            tokens = pad(texts, 0)
            ids = torch.where(tokens.mask, tokens.ids, torch.tensor(text_ids(self, tokens.ids.size(1))))
            inputs = self.inputs(Tokens(ids, tokens.mask).to(device), None, None, torch.float32)
            states: Tensor = self.backbone(**inputs).last_hidden_state
            return states[-1, : len(texts[-1])].float()

        kind = self.backbone.config.model_type
        try:
            with in_evaluation(self), torch.autocast(device.type, enabled=False):
                alone, again, beside = read(text), read(text, text), read(longer, text)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # each family has its own reasons
            raise unusable(kind, error) from error
        if alone.size(-1) != self.width:
            raise InputError(
                f"This backbone ({kind}) has outputs of width {alone.size(-1)} but its configuration says "
                f"{self.width}; use one such as BERT, RoBERTa or ModernBERT."
            )
        noise = relative_difference(alone, again)  # large where a GPU rounds to TF32
        if noise > 0.01:
            raise InputError(
                f"The outputs of this backbone ({kind}) for a text depend on chance, or on the other texts of a batch; "
                f"use one such as BERT, RoBERTa or ModernBERT."
            )
        return relative_difference(alone, beside) > max(ROUNDING, 10 * noise)

    @cached_property
    @torch.no_grad()
    def keeps_apart(self) -> bool:
        """Whether tokens that are masked from each other do not influence each other's outputs in this backbone.

        A backbone with its own kind of attention may read the mask in another way, or derive the distance of two tokens
        from their places in the row: T5, MPNet and DeBERTa do. This is computed in fp32, before the outputs are scaled.
        """
        context, text = text_ids(self, 7), text_ids(self, 5)[1:]
        length = min(64, (self.max_tokens or 512) - len(context))
        beside = [text_ids(self, length)] * 8  # as long as a row may be, and longer than a small window
        device = self.backbone.device

        def read(candidates: list[list[int]]) -> Tensor:
            """The states of the last text."""
            tokens = pad_joint([(context, candidates)], pad_id(self)).to(device)
            inputs = self.inputs(tokens, tokens.together(self.causal), tokens.positions, torch.float32)
            states: Tensor = self.backbone(**inputs).last_hidden_state
            return states[0, -len((context, *candidates)[-1]) :].float()

        try:
            with in_evaluation(self), torch.autocast(device.type, enabled=False):
                tokens = pad([context], pad_id(self)).to(device)
                plain = self.backbone(**self.inputs(tokens, None, None, torch.float32)).last_hidden_state[0].float()
                own, alone, together = read([]), read([text]), read([*beside, text])
        except torch.OutOfMemoryError:
            raise
        except Exception:  # the backbone does not support such a mask, or positions; each in its own way
            return False
        # Its own positions are ours, and candidates are apart.
        return max(relative_difference(plain, own), relative_difference(alone, together)) <= ROUNDING


@contextmanager
def in_evaluation(module: nn.Module) -> Iterator[None]:
    """Switch dropout off, and restore the module's mode afterwards."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def max_tokens(backbone: "transformers.PreTrainedModel") -> int | None:
    """Return how many tokens the backbone has positions for, None if their number is not limited."""
    named = ("max_position_embeddings", "max_seq_len")  # the second is MPT's
    positions = next((getattr(backbone.config, name) for name in named if hasattr(backbone.config, name)), None)
    return None if positions is None or positions < 1 else positions - first_position(backbone)  # XLNet has -1


def first_position(backbone: "transformers.PreTrainedModel") -> int:
    """Return the backbone's number for the position of the first token: some count on from the padding id."""
    for name, module in backbone.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.padding_idx) + 1
    return 0


def pad_id(encoder: Encoder) -> int:
    """Return the token id from which some backbones derive positions and masks of their own."""
    return getattr(encoder.backbone.config, "pad_token_id", None) or 0


def text_ids(encoder: Encoder, count: int) -> list[int]:
    """Return token ids of a text, without the configuration's padding id, and without 0, which is some backbones'."""
    return ([i for i in range(2, 9) if i != pad_id(encoder)] * count)[:count]


def relative_difference(first: Tensor, second: Tensor) -> float:
    """Return how far states are apart, divided by the largest; 0 if some are not finite, which tells nothing."""
    off = float((first - second).abs().max() / first.abs().max().clamp(min=1e-30))
    return off if torch.isfinite(first).all() else 0.0


def added(sees: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a mask [B, T, T] into [B, 1, T, T] to add to logits: 0 for True, else the lowest number of `dtype`."""
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min).unsqueeze(1)
