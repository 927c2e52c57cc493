"""Records how a model calls its encoders, by running it, so that a new architecture is exported like ours.

Each kind of call becomes a graph of its own (a cross-encoder with a similarity reads its texts together, and each
separately).
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from polyagents.errors import InputError
from polyagents.models.encoder import Encoder
from polyagents.ranking.candidate_set import shared_set
from polyagents.ranking.ranking_model import RankingModel

Signature = tuple[tuple[str, int], ...]
"""The kind of a call: the sorted names of the inputs, and how many axes each has."""

Call = dict[str, Tensor]
"""One call's inputs, by name."""

# The texts that the model is run with. Their lengths differ from each other and from the number of texts, so that no
# two axes of the inputs are equal by chance; the second run is compared, with other lengths than the traced ones.
CONTEXTS = (
    ("where is canada , and what is it like over there in winter ?", "hi , how are you ?"),
    ("your persona: i ski .\nwhat do you do in your spare time ?", "hello", "i have two dogs and a cat , do you ?"),
)
CANDIDATES = (
    ("it is in north america , and it is rather cold", "i am fine , thank you", "i do not know"),
    ("no", "what are their names ?", "i like to ski , of course", "bye , see you tomorrow"),
)


class Traced(nn.Module):
    """A backbone as a function of tensors only, for runtimes that trace it."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone
        # The cache that a decoder would keep for its next token.
        knows_cache = "use_cache" in inspect.signature(backbone.forward).parameters
        self.settings: dict[str, bool] = {"use_cache": False} if knows_cache else {}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Compute states [B, T, D] from the inputs of `Encoder.inputs`; the mask may be [B, 1, T, T]."""
        given = {"token_type_ids": token_type_ids, "position_ids": position_ids}
        further = {name: value for name, value in given.items() if value is not None}
        states: Tensor = self.backbone(
            input_ids=input_ids, attention_mask=attention_mask, **further, **self.settings
        ).last_hidden_state
        return states


class Recorder:
    """Records the calls of an encoder's backbone, and computes them."""

    name = "torch"
    quantized: str | None = None

    def __init__(self, encoder: Encoder):
        self.backbone = encoder.backbone
        self.calls: dict[Signature, list[Call]] = {}

    def __call__(self, inputs: Mapping[str, Any]) -> Tensor:
        """Record the inputs, given by name, and compute the last hidden states [B, T, D]."""
        self.calls.setdefault(signature(inputs), []).append(dict(inputs))
        states: Tensor = self.backbone(**inputs).last_hidden_state
        return states


def encoders_of(module: nn.Module) -> dict[str, Encoder]:
    """Return the encoders of a model by their names in it; a shared encoder is there once."""
    return {name: part for name, part in module.named_modules() if isinstance(part, Encoder)}


def signature(inputs: Mapping[str, Any]) -> Signature:
    """Return names and axes of inputs, by which calls differ; an InputError says if layers have masks of their own."""
    if not all(isinstance(value, Tensor) for value in inputs.values()):
        raise InputError(
            "Some layers of this backbone attend only to a window of the text, and a joint model then has a mask for "
            "each kind of layer, which cannot be exported; use --backend torch."
        )
    return tuple(sorted((name, value.ndim) for name, value in inputs.items()))


@torch.no_grad()
def recorded_calls(model: RankingModel) -> dict[str, dict[Signature, list[Call]]]:
    """Record the calls of each encoder of a model, by its name: two or more of each kind."""
    encoders = encoders_of(model.module)
    before = {name: encoder.backend for name, encoder in encoders.items()}
    recorders = {name: Recorder(encoder) for name, encoder in encoders.items()}
    model.forget()  # cached vectors would not be computed
    try:
        for name, recorder in recorders.items():
            encoders[name].backend = recorder
        for contexts, candidates in zip(CONTEXTS, CANDIDATES, strict=True):
            given = shared_set(model.candidates(candidates), None)
            model.scores(model.context_ids(contexts), given)
    finally:
        for name, encoder in encoders.items():
            encoder.backend = before[name]
        model.forget()
    return {name: recorder.calls for name, recorder in recorders.items()}
