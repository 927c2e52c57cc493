"""The poly-encoder (paper 4.4): a bi-encoder whose context keeps m vectors, to which each candidate attends."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from polyagents.models.attention import poly_scores
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import PolyOptions, RankingOptions
from polyagents.models.reduction import ContextVectors, context_vectors
from polyagents.models.tokens import Tokens
from polyagents.models.two_towers import TwoTowers


class PolyEncoder(TwoTowers):
    """Candidates as in the bi-encoder; the context has m vectors, and one more attention decides between them.

    Attributes:
        codes: the learnt context codes [m, D]; None where the context vectors are outputs of the encoder.
        sharpness: what the dot products are multiplied by inside the attention's softmax.
    """

    short_name: ClassVar[str] = "poly"
    label: ClassVar[str] = "poly-encoder"
    options_type: ClassVar[type[RankingOptions]] = PolyOptions

    def __init__(self, encoder: Encoder, options: PolyOptions):
        super().__init__(encoder, options)
        self.vectors_are = options.polyencoder_type
        self.codes = None
        if self.vectors_are == "codes":
            self.codes = nn.Parameter(torch.empty(self.m, encoder.width))
            if options.codes_init == "uniform":
                nn.init.uniform_(self.codes)
            else:
                nn.init.normal_(self.codes, std=0.02)
        scaled = options.poly_attention_type == "sqrt"
        self.sharpness = self.logit_scale * (encoder.width**-0.5 if scaled else 1.0)

    def context_vectors(self, chunk: Tokens) -> ContextVectors:
        """Encode a chunk of contexts: [b, T] -> vectors [b, M, D] and mask [b, M]."""
        states = self.context_encoder(chunk)
        vectors, mask = context_vectors(states, chunk.mask, self.vectors_are, self.m, self.codes)
        return ContextVectors(self.normalise(vectors), mask)

    def candidate_weights(self) -> dict[str, Tensor]:
        """All weights that decide a candidate's vector, by name; the codes are the context's."""
        return {name: weight for name, weight in super().candidate_weights().items() if name != "codes"}

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score candidates [C, D], or [B, C, D], for context vectors [B, M, D]: [B, C] fp32."""
        return poly_scores(context.vectors, context.mask, candidates, self.sharpness)

    def upper_bound(self, largest: Tensor) -> Tensor:
        """The score is a weighted mean of the dot products (attention.py), so none is above the largest of them."""
        return largest
