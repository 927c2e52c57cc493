"""The poly-encoder (paper 4.4): a bi-encoder that keeps m vectors of a context, to which each candidate attends."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from polyagents.models.attention import poly_scores
from polyagents.models.codes_init import drawn
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import PolyOptions, RankingOptions
from polyagents.models.reduction import ContextVectors, context_vectors
from polyagents.models.tokens import Tokens
from polyagents.models.two_towers import TwoTowers

ATTENTION_WEIGHTS = ("codes", "log_sharpness")  # a poly-encoder's own; no candidate's vector depends on them


class PolyEncoder(TwoTowers):
    """A poly-encoder: a context has m vectors, and a candidate has one, which attends to them.

    Attributes:
        codes: the learnt context codes [m, D]; None if the context vectors are outputs of the encoder.
        log_sharpness: the logarithm of the learnt part of the sharpness, []; None if the sharpness is fixed.
    """

    short_name: ClassVar[str] = "poly"
    label: ClassVar[str] = "poly-encoder"
    options_type: ClassVar[type[RankingOptions]] = PolyOptions

    def __init__(self, encoder: Encoder, options: PolyOptions):
        super().__init__(encoder, options)
        self.vectors_are, self.has_mean = options.polyencoder_type, options.codes_mean
        self.codes = None
        if self.vectors_are == "codes":
            self.codes = nn.Parameter(drawn(options.codes_init, self.m, encoder.width))
        scaled = options.poly_attention_type == "sqrt"
        self.fixed_sharpness = self.logit_scale * (encoder.width**-0.5 if scaled else 1.0)
        self.log_sharpness = nn.Parameter(torch.zeros(())) if options.poly_attention_type == "learnt" else None

    @property
    def sharpness(self) -> float | Tensor:
        """The factor of the dot products inside the attention's softmax, above 0."""
        if self.log_sharpness is None:
            return self.fixed_sharpness
        return self.fixed_sharpness * self.log_sharpness.clamp(-20, 20).exp()  # finite, whatever a file holds

    def context_vectors(self, chunk: Tokens) -> ContextVectors:
        """Encode a chunk of contexts: [b, T] -> vectors [b, M, D] and mask [b, M]."""
        first = self.left_out[0]
        states, mask = self.context_encoder(chunk)[:, first:], chunk.mask[:, first:]
        codes: Tensor | None = self.codes
        if codes is not None and self.has_mean:  # a code of zeros attends to all outputs alike
            codes = torch.cat([codes, torch.zeros_like(codes[:1])])
        vectors, mask = context_vectors(states, mask, self.vectors_are, self.m, codes)
        return ContextVectors(self.normalise(vectors), mask)

    def candidate_weights(self) -> dict[str, Tensor]:
        """Return all weights that decide a candidate's vector, by name; those of the attentions do not."""
        weights = super().candidate_weights()
        return {name: weight for name, weight in weights.items() if name not in ATTENTION_WEIGHTS}

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score as `TwoTowers.score` says, by the candidate's attention over the context vectors."""
        return poly_scores(context.vectors, context.mask, candidates, self.sharpness)

    def upper_bound(self, largest: Tensor) -> Tensor:
        """Return the largest dot product, which no weighted mean of the dot products exceeds (attention.py)."""
        return largest
