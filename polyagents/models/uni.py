"""The uni-encoder (Song et al. 2023, arXiv 2106.01263): one pass over a context and all of its candidates.

A candidate sees the context and itself, and the context sees no candidate. So each candidate is read with the context,
as by a cross-encoder, and the context is read once; a score does not depend on what else is ranked.
"""

from typing import ClassVar

from torch import Tensor

from polyagents.models.formulas import reduce_places
from polyagents.models.joint import Joint
from polyagents.models.model_options import RankingOptions, UniOptions
from polyagents.models.tokens import JointTokens


class UniEncoder(Joint):
    """A uni-encoder: reads a context with all its candidates, and maps red() of each candidate linearly to a score."""

    short_name: ClassVar[str] = "uni"
    label: ClassVar[str] = "uni-encoder"
    options_type: ClassVar[type[RankingOptions]] = UniOptions
    candidate_tokens: ClassVar[int] = 512

    def chunk_scores(self, chunk: JointTokens) -> Tensor:
        """Score a chunk of rows [r, T]: [r, K], the place of a candidate that a shorter list lacks included."""
        self.check_backbone()
        causal = self.encoder.causal
        # No candidate sees another, and each has the positions that directly follow the context: its states are those
        # of a row in which it is alone.
        states = self.encoder(chunk, chunk.together(causal), chunk.positions)
        vectors = reduce_places(states, chunk.places, chunk.longest_list, self.kind, self.m, causal)
        return self.linear_scores(vectors[:, 1:])[..., 0]  # the first is the context's
