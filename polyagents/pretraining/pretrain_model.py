"""A backbone with the two heads of its pre-training (paper 4.1; v1 4.5)."""

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from polyagents.models.encoder import Encoder
from polyagents.models.model_options import EncoderOptions
from polyagents.models.tokens import Tokens
from polyagents.timings import encodes_in_bf16

WORDS, LABELS = "words", "labels"  # the objectives: hidden words, and the classes of labels


class PretrainModel(nn.Module):
    """Guesses hidden words, and the class of a label: whether it is the input's own, or where it comes from.

    Attributes:
        lm: transformers' model for masked words.
        next_utterance: maps the first output to the classes; model files use this name.
    """

    def __init__(self, lm: PreTrainedModel, options: EncoderOptions, classes: int):
        super().__init__()
        self.lm = lm
        self.encoder = Encoder(cast(PreTrainedModel, lm.base_model), options)
        self.encoder.measures = encodes_in_bf16
        self.next_utterance = nn.Linear(self.encoder.width, classes)
        nn.init.normal_(self.next_utterance.weight, std=0.02)
        nn.init.zeros_(self.next_utterance.bias)
        # The model's own head for words is the model around a `PassThrough`, with which it shares all parts. It is in a
        # list, so that its parameters are not registered twice.
        head = copy.copy(lm)
        head._modules = dict(lm._modules) | {lm.base_model_prefix: PassThrough()}
        self._head = [head]

    def forward(
        self, tokens: Tokens, targets: Mapping[str, Tensor], hidden: Tensor | None = None
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Compute loss and right guesses of each objective, both summed over all targets, for tokens [B, T].

        Args:
            targets: for WORDS the hidden tokens [n], for LABELS the class of each example [B]; one or both.
            hidden: [B, T], the positions of the hidden tokens; required for WORDS.

        Returns:
            By objective: the loss in nats, fp32, and the number of right guesses.
        """
        states, measured = self.encoder(tokens), {}
        for objective, target in targets.items():
            if objective == WORDS:  # [n, V], of hidden words only: of all, they would cost more than a small encoder
                low, arithmetic = states.device.type, self.encoder.arithmetic(states.device)
                with torch.autocast(low, arithmetic, enabled=arithmetic != torch.float32, cache_enabled=False):
                    scores: Tensor = self._head[0](inputs_embeds=states[hidden].unsqueeze(0)).logits[0]
            else:
                scores = self.next_utterance(states[:, 0])
            loss = functional.cross_entropy(scores.float(), target, reduction="sum")
            measured[objective] = loss, (scores.detach().argmax(-1) == target).sum()
        return measured


class PassThrough(nn.Module):
    """A backbone that returns its input."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> Any:
        """Return the embeddings [1, n, D] unchanged, and ignore all other arguments."""
        output: Any = BaseModelOutput(last_hidden_state=inputs_embeds)
        output.global_attentions = None  # Longformer's head passes it on
        return output
