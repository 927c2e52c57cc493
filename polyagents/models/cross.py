"""The cross-encoder (paper 4.3): context and candidate go through one encoder together."""

from typing import ClassVar

from torch import Tensor, nn

from polyagents.models.encoder import Encoder, in_chunks, in_order
from polyagents.models.model_options import RankingOptions
from polyagents.models.reduction import reduce
from polyagents.models.tokens import Tokens


class CrossEncoder(nn.Module):
    """One encoder over pairs and a linear layer to a score. Nothing can be kept between replies.

    Attributes:
        logit_scale: what the training loss multiplies the scores by.
    """

    short_name: ClassVar[str] = "cross"
    label: ClassVar[str] = "cross-encoder"
    options_type: ClassVar[type[RankingOptions]] = RankingOptions

    def __init__(self, encoder: Encoder, options: RankingOptions):
        super().__init__()
        self.encoder = encoder
        self.kind, self.m = options.reduction_type, options.poly_n_codes
        self.logit_scale = 1.0
        self.linear = nn.Linear(encoder.width, 1)

    def forward(self, pairs: Tokens) -> Tensor:
        """The same as `score_pairs`."""
        return self.score_pairs(pairs)

    def score_pairs(self, pairs: Tokens) -> Tensor:
        """Score pairs [P, T], each [S] context [S] [S] candidate [S], chunk by chunk: [P] fp32."""
        return in_chunks(self.encoder, self.pair_scores, in_order, pairs)

    def pair_scores(self, chunk: Tokens) -> Tensor:
        """Score a chunk of pairs: [p, T] -> [p]."""
        embedding = reduce(self.encoder(chunk), chunk.mask, self.kind, self.m, self.encoder.causal)
        scores: Tensor = self.linear(embedding)
        return scores[:, 0]
