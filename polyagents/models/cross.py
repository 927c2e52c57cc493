"""The cross-encoder (paper 4.3): context and candidate go through one encoder together."""

from torch import Tensor, nn

from polyagents.models.encoder import Encoder, in_chunks, in_order
from polyagents.models.options import ReductionOptions
from polyagents.models.reduction import reduce
from polyagents.models.tokens import Tokens


class CrossEncoder(nn.Module):
    """One encoder over pairs and a linear layer to a score. Nothing can be kept between replies."""

    logit_scale = 1.0

    def __init__(self, encoder: Encoder, reduction: ReductionOptions):
        super().__init__()
        self.encoder = encoder
        self.reduction = reduction
        self.linear = nn.Linear(encoder.width, 1)

    def forward(self, pairs: Tokens) -> Tensor:
        """The same as `score`."""
        return self.score(pairs)

    def score(self, pairs: Tokens) -> Tensor:
        """Pairs [P, T], each [S] context [S] [S] candidate [S] -> scores [P], fp32."""
        return in_chunks(self.encoder, self.score_part, in_order, pairs)

    def score_part(self, chunk: Tokens) -> Tensor:
        """One chunk of pairs, [p, T] -> [p]."""
        states = self.encoder(chunk)
        embedding = reduce(states, chunk.mask, self.reduction.kind, self.reduction.m, self.encoder.causal)
        return self.linear(embedding).squeeze(-1)
