"""The cross-encoder (paper 4.3): one encoder reads context and candidate together."""

from typing import ClassVar

from torch import Tensor

from polyagents.models.formulas import reduce
from polyagents.models.joint import Joint
from polyagents.models.tokens import JointTokens


class CrossEncoder(Joint):
    """A cross-encoder: reads [S] context [S] [S] candidate [S], and maps red() of all outputs linearly to a score."""

    short_name: ClassVar[str] = "cross"
    label: ClassVar[str] = "cross-encoder"

    def chunk_scores(self, chunk: JointTokens) -> Tensor:
        """Score a chunk of pairs: [p, T] -> [p, 1]."""
        vectors = reduce(self.encoder(chunk), chunk.mask, self.kind, self.m, self.encoder.causal)
        return self.linear_scores(vectors)
