"""The cross-encoder (paper 4.3): context and candidate go through one encoder together."""

from torch import Tensor, nn

from polyagents.encoder import Encoder, in_order
from polyagents.options import ReductionOptions
from polyagents.reduction import reduce
from polyagents.text import Tokens


class CrossEncoder(nn.Module):
    """One encoder over pairs and a linear layer to a score. Nothing can be kept between replies."""

    logit_scale = 1.0

    def __init__(self, encoder: Encoder, reduction: ReductionOptions):
        super().__init__()
        self.encoder = encoder
        self.reduction = reduction
        self.linear = nn.Linear(encoder.width, 1)

    def score(self, pairs: Tokens) -> Tensor:
        """Pairs [P, T], each [S] context [S] [S] candidate [S] -> scores [P], fp32."""
        parts, rows = [], []
        for index, chunk in self.encoder.chunks(pairs):
            states = self.encoder(chunk)
            embedding = reduce(states, chunk.mask, self.reduction.kind, self.reduction.m, self.encoder.causal)
            parts.append(self.linear(embedding).squeeze(-1))
            rows.append(index)
        return in_order(parts, rows)

    def forward(self, pairs: Tokens) -> Tensor:
        """`score`, under the name that training wrappers call."""
        return self.score(pairs)
