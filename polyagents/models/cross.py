"""The cross-encoder (paper 4.3): context and candidate go through one encoder together."""

from typing import ClassVar

from torch import Tensor

from polyagents.models.joint import Joint
from polyagents.models.reduction import reduce
from polyagents.models.tokens import JointTokens


class CrossEncoder(Joint):
    """One encoder over pairs, each [S] context [S] [S] candidate [S], and a linear layer from red() of all outputs."""

    short_name: ClassVar[str] = "cross"
    label: ClassVar[str] = "cross-encoder"

    def chunk_scores(self, chunk: JointTokens) -> Tensor:
        """Score a chunk of pairs: [p, T] -> [p, 1]."""
        scores: Tensor = self.linear(reduce(self.encoder(chunk), chunk.mask, self.kind, self.m, self.encoder.causal))
        return scores if self.head == "linear" else scores + self.similarity(chunk)
