"""A model that reads context and candidate together: nothing of a candidate can be kept."""

from collections.abc import Sequence

import torch
from torch import Tensor

from polyagents.models.architecture import PairArchitecture
from polyagents.models.encoder import Encoder
from polyagents.models.tokens import pad_pairs
from polyagents.ranking.candidate_set import CandidateSet
from polyagents.ranking.ranking_model import RankingModel, Settings
from polyagents.text.tokenizer import RankingTokenizer

PAIRS_AT_ONCE = 4_096  # pairs that are padded together: 30 MB of ids; the encoder takes them in chunks

Pairs = list[tuple[Sequence[int], Sequence[int]]]
"""Token ids of contexts and candidates."""


class PairModel(RankingModel):
    """A cross-encoder, or a further architecture that scores pairs."""

    module: PairArchitecture  # type: ignore[assignment]  # it is an nn.Module as well, which a protocol cannot say

    def __init__(self, module: PairArchitecture, tokenizer: RankingTokenizer, settings: Settings):
        super().__init__(tokenizer, settings)
        self.module = module

    @property
    def context_encoder(self) -> Encoder:
        """Its only encoder."""
        return self.module.encoder

    @property
    def longest_input(self) -> int:
        """Tokens of the longest pair, which holds both texts."""
        return (self.settings.text_truncate or 0) + (self.settings.label_truncate or 0)

    @torch.no_grad()
    def scores(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet) -> Tensor:
        """Score a batch's candidates without gradient: [B, C] fp32, 0 for padding."""
        real = candidates.real.expand(len(contexts), -1)  # a shared list without labels has one row
        pairs = pairs_of(contexts, candidates, real)
        parts = [
            self.module.score_pairs(
                pad_pairs(pairs[start : start + PAIRS_AT_ONCE], self.tokenizer.pad_id).to(self.device)
            )
            for start in range(0, len(pairs), PAIRS_AT_ONCE)
        ]
        return in_table(torch.cat(parts), real)


def pairs_of(contexts: Sequence[Sequence[int]], candidates: CandidateSet, wanted: Tensor) -> Pairs:
    """The pairs that `wanted` [B, C] names, row by row."""
    rows = candidates.rows
    return [(contexts[b], candidates.ids[c if rows is None else rows[b, c]]) for b, c in wanted.nonzero().tolist()]


def in_table(scores: Tensor, wanted: Tensor) -> Tensor:
    """Scores of the pairs that were wanted -> [B, C], 0 elsewhere."""
    return torch.zeros(wanted.shape, device=scores.device).masked_scatter(wanted.to(scores.device), scores)
