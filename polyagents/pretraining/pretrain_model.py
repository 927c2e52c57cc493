"""A backbone with the two heads of its pre-training (paper 4.1; v1 4.5)."""

import copy
from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from polyagents.models.encoder import Encoder
from polyagents.models.model_options import EncoderOptions
from polyagents.models.tokens import Tokens


class PretrainModel(nn.Module):
    """Guesses hidden words, and whether a label is the input's own.

    Attributes:
        lm: transformers' model for masked words.
        encoder: its backbone.
        next_utterance: from the first output to two classes; 1 is "the own label".
    """

    def __init__(self, lm: PreTrainedModel, options: EncoderOptions):
        super().__init__()
        self.lm = lm
        self.encoder = Encoder(cast(PreTrainedModel, lm.base_model), options)
        self.next_utterance = nn.Linear(self.encoder.width, 2)
        nn.init.normal_(self.next_utterance.weight, std=0.02)
        nn.init.zeros_(self.next_utterance.bias)
        self._head = [head_of(lm)]  # in a list, since its parts are parts of `lm`

    def forward(self, tokens: Tokens, targets: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Loss and right guesses, both summed over all that is guessed.

        Args:
            tokens: [B, T].
            targets: of hidden words the tokens that were there [n]; else the class of each example [B].
            chosen: [B, T], where hidden words are; None for the classes.

        Returns:
            Loss in nats, fp32, and the number of right guesses.
        """
        states = self.encoder(tokens)
        scores = self.next_utterance(states[:, 0]) if chosen is None else self.word_scores(states[chosen])
        right = (scores.detach().argmax(-1) == targets).sum()
        return functional.cross_entropy(scores.float(), targets, reduction="sum"), right

    def word_scores(self, states: Tensor) -> Tensor:
        """States [n, D] -> scores [n, V]; of hidden words alone, as all would cost more than a small encoder."""
        with self.encoder.autocast(states.device):
            scores: Tensor = self._head[0](inputs_embeds=states.unsqueeze(0)).logits[0]
        return scores


class Given(nn.Module):
    """A backbone that returns what it is given."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> BaseModelOutput:
        """[1, n, D] -> itself."""
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def head_of(lm: PreTrainedModel) -> PreTrainedModel:
    """The model's own head for words, whatever it is made of: the model around `Given`. It shares all its parts."""
    head = copy.copy(lm)
    head._modules = dict(lm._modules) | {lm.base_model_prefix: Given()}
    return head
