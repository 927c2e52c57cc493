"""The poly-encoder (paper 4.4): a bi-encoder that keeps m vectors of a context, to which each candidate attends."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from polyagents.models.encoder import Encoder
from polyagents.models.formulas import ContextVectors, context_vectors, poly_scores
from polyagents.models.model_options import PolyOptions, RankingOptions
from polyagents.models.tokens import Tokens
from polyagents.models.two_towers import TwoTowers

CODES = "codes"  # the name of a poly-encoder's own weight; no candidate's vector depends on it


def initial_codes(init: str, m: int, width: int) -> Tensor:
    """Draw codes [m, D] in one of the ways that `--codes-init` names."""
    codes = torch.empty(m, width)
    if init == "uniform":
        return nn.init.uniform_(codes)
    if init == "unit":
        return nn.init.normal_(codes, mean=width**-0.5, std=1.0)
    return nn.init.normal_(codes, std=0.02)


class PolyEncoder(TwoTowers):
    """A poly-encoder: a context has m vectors, and a candidate has one, which attends to them.

    Attributes:
        codes: the learnt context codes [m, D]; None if the context vectors are outputs of the encoder.
        sharpness: the factor of the dot products inside the attention's softmax, above 0.
    """

    short_name: ClassVar[str] = "poly"
    label: ClassVar[str] = "poly-encoder"
    options_type: ClassVar[type[RankingOptions]] = PolyOptions

    def __init__(self, encoder: Encoder, options: PolyOptions):
        super().__init__(encoder, options)
        self.vectors_are = options.polyencoder_type
        self.codes = None
        if self.vectors_are == "codes":
            self.codes = nn.Parameter(initial_codes(options.codes_init, self.m, encoder.width))
        # Cosines need the same factor here as in the loss: between -1 and 1, a softmax would weigh all vectors alike.
        scaled = options.poly_attention_type == "sqrt"
        self.sharpness = self.logit_scale * (encoder.width**-0.5 if scaled else 1.0)

    def context_vectors(self, chunk: Tokens) -> ContextVectors:
        """Encode a chunk of contexts: [b, T] -> vectors [b, M, D] and mask [b, M]."""
        first = self.left_out[0]
        states, mask = self.context_encoder(chunk)[:, first:], chunk.mask[:, first:]
        vectors, mask = context_vectors(states, mask, self.vectors_are, self.m, self.codes)
        return ContextVectors(self.normalise(vectors), mask)

    def candidate_weights(self) -> dict[str, Tensor]:
        """Return all weights that decide a candidate's vector, by name; the codes do not."""
        return {name: weight for name, weight in super().candidate_weights().items() if name != CODES}

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score as `TwoTowers.score` says, by the candidate's attention over the context vectors."""
        return poly_scores(context.vectors, context.mask, candidates, self.sharpness)

    def upper_bound(self, largest: Tensor) -> Tensor:
        """Return the largest dot product, which no weighted mean of the dot products exceeds (formulas.py)."""
        return largest
