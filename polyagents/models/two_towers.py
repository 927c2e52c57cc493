"""The interface of architectures that encode context and candidate separately: bi- and poly-encoder.

An architecture of this kind defines a context's vectors, their score with a candidate, and the bound that a search may
rely on.
"""

import abc
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from polyagents.models.base import Architecture
from polyagents.models.encoder import Encoder
from polyagents.models.formulas import COSINE_SCALE, ContextVectors, in_order, reduce, stacked
from polyagents.models.model_options import RankingOptions, TowerOptions
from polyagents.models.tokens import Tokens
from polyagents.surroundings import undisturbed


class TwoTowers(Architecture):
    """Two encoders that start from the same weights (or one that is shared), and red() for candidates.

    Attributes:
        candidate_encoder: the same object as the context encoder if it is shared.
        left_out: how many outputs at the beginning of a context and of a candidate are in none of its vectors.
    """

    options_type: ClassVar[type[RankingOptions]] = TowerOptions

    def __init__(self, encoder: Encoder, options: TowerOptions):
        super().__init__(encoder, options)
        self.context_encoder = encoder
        # Both start from the same pretrained weights, and are tuned apart (paper 4.2), unless one is shared.
        self.candidate_encoder = encoder if options.share_encoders else encoder.twin()
        self.kind, self.m = options.reduction_type, options.poly_n_codes
        self.cosine = options.similarity == "cosine"
        # Dot products are sharp enough for a softmax; cosines, between -1 and 1, are not.
        self.logit_scale = COSINE_SCALE if self.cosine else 1.0
        self.left_out = 0, 0

    @abc.abstractmethod
    def context_vectors(self, chunk: Tokens) -> ContextVectors:
        """Encode a chunk of contexts: [b, T] -> vectors [b, M, D] and mask [b, M]."""

    @abc.abstractmethod
    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score every candidate for every context: candidates [C, D], or [B, C, D] -> [B, C] fp32."""

    def upper_bound(self, largest: Tensor) -> Tensor | None:
        """Bound scores from above, given the largest dot product of a candidate with a context's vectors.

        A search scans for that product only, and scores every candidate that its bound does not rule out. The bound
        must not fall when the product rises.

        Args:
            largest: [n, B], of n candidates.

        Returns:
            [n, B], or None if no such bound is known: then every candidate is scored.
        """
        return None

    def candidate_vectors(self, chunk: Tokens) -> Tensor:
        """Encode a chunk of candidates: [c, T] -> [c, D]."""
        encoder, first = self.candidate_encoder, self.left_out[1]
        reduced = reduce(encoder(chunk)[:, first:], chunk.mask[:, first:], self.kind, self.m, encoder.causal)
        return self.normalise(reduced)

    def candidate_weights(self) -> dict[str, Tensor]:
        """Return all weights that decide a candidate's vector, by name, without the context encoder's."""
        return {name: weight for name, weight in self.state_dict().items() if not name.startswith("context_encoder.")}

    def encode_context(self, tokens: Tokens) -> ContextVectors:
        """Encode contexts [B, T], chunk by chunk, to vectors [B, M, D] and their mask [B, M]."""
        chunks = self.context_encoder.chunks(tokens)
        rows, parts = zip(*((rows, self.context_vectors(chunk)) for rows, chunk in chunks), strict=True)
        return stacked(parts, rows)

    def encode_candidates(self, tokens: Tokens) -> Tensor:
        """Encode candidates [C, T], chunk by chunk, to vectors [C, D], which depend on no context and can be stored."""
        chunks = self.candidate_encoder.chunks(tokens)
        rows, parts = zip(*((rows, self.candidate_vectors(chunk)) for rows, chunk in chunks), strict=True)
        return in_order(parts, rows)

    def forward(self, context: Tokens, candidates: Tokens) -> Tensor:
        """Score all candidates [C, T] for all contexts [B, T]: [B, C] fp32."""
        return self.score(self.encode_context(context), self.encode_candidates(candidates))

    def normalise(self, vectors: Tensor) -> Tensor:
        """Scale vectors to length 1 if the similarity is a cosine."""
        return functional.normalize(vectors, dim=-1) if self.cosine else vectors


# Dot products [B, M, C] held at once. In fp32, 16 million are 64 MB.
PRODUCTS = 16_000_000


@dataclass(frozen=True)
class Query:
    """Encoded contexts, vectors [B, M, D] and mask [B, M], with the architecture that scores candidates for them."""

    scorer: TwoTowers
    context: ContextVectors

    def __len__(self) -> int:
        return self.context.vectors.size(0)

    @property
    def products(self) -> int:
        """The number of dot products that one candidate takes, B times M."""
        return self.context.mask.numel()

    @property
    def device(self) -> torch.device:
        """The device of the context vectors."""
        return self.context.vectors.device

    @undisturbed()
    def scores(self, candidates: Tensor) -> Tensor:
        """Score candidates [C, D] for every context, in blocks that fit the memory: [B, C] fp32, without gradient."""
        # An architecture holds all dot products [B, M, C] at once, so a large set of candidates goes through in parts;
        # a candidate's scores do not depend on the others.
        rows = max(PRODUCTS // max(self.context.mask.numel(), 1), 1)
        if len(candidates) <= rows:
            return self.scorer.score(self.context, candidates)
        return torch.cat([self.scorer.score(self.context, part) for part in candidates.split(rows)], dim=1)

    def one(self, example: int) -> "Query":
        """Return the query of one context."""
        return Query(self.scorer, self.context.rows(slice(example, example + 1)))
