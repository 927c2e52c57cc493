"""A model that reads context and candidates together: nothing of a candidate can be kept."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from polyagents.models.architecture import JointArchitecture
from polyagents.models.devices import to_device
from polyagents.models.encoder import Encoder
from polyagents.models.tokens import JointTokens, pad_joint
from polyagents.ranking.candidate_set import CandidateSet
from polyagents.ranking.ranking_model import RankingModel, Settings
from polyagents.text.tokenizer import RankingTokenizer

ROWS_AT_ONCE = 4_096  # rows that are padded together: 30 MB of a cross-encoder's ids; the encoder takes them in chunks

Row = tuple[Sequence[int], list[Sequence[int]]]
"""Token ids of a context and of candidates."""


class JointModel(RankingModel):
    """A cross- or uni-encoder, or a further architecture that reads both together."""

    module: JointArchitecture  # type: ignore[assignment]  # it is an nn.Module as well, which a protocol cannot say

    def __init__(self, module: JointArchitecture, tokenizer: RankingTokenizer, settings: Settings):
        super().__init__(tokenizer, settings)
        self.module = module

    @property
    def context_encoder(self) -> Encoder:
        """Its only encoder."""
        return self.module.encoder

    @property
    def longest_input(self) -> int:
        """Positions of a context with a candidate behind it."""
        return (self.settings.text_truncate or 0) + (self.settings.label_truncate or 0)

    @torch.no_grad()
    def scores(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet) -> Tensor:
        """Score a batch's candidates without gradient: [B, C] fp32, 0 for padding."""
        wanted = candidates.real.expand(len(contexts), -1)  # a shared list without labels has one row
        rows = self.rows(contexts, candidates, wanted)
        parts = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            tokens = self.joint_tokens(rows[start : start + ROWS_AT_ONCE])
            parts.append(listed(self.module.joint_scores(tokens), tokens))
        return in_table(torch.cat(parts), wanted)

    def joint_tokens(self, rows: Sequence[Row]) -> JointTokens:
        """Rows as a padded batch on the CPU, from where the encoder takes it chunk by chunk."""
        return pad_joint(rows, self.tokenizer.pad_id)

    def rows(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet, wanted: Tensor) -> list[Row]:
        """The candidates that `wanted` [B, C] names, in its order, as many behind each context as a row may have."""
        rows = []
        for example, context in enumerate(contexts):
            columns = wanted[example].nonzero().flatten()
            if candidates.rows is not None:
                columns = candidates.rows[example, columns]
            own = [candidates.ids[column] for column in columns.tolist()]
            rows += [(context, some) for some in split(own, self.module.candidate_tokens)]
        return rows


def split(candidates: Sequence[Sequence[int]], tokens: int) -> Iterator[list[Sequence[int]]]:
    """Candidates in their order, in lists of at most so many tokens; one at least in each."""
    some: list[Sequence[int]] = []
    left = tokens
    for candidate in candidates:
        if some and len(candidate) > left:
            yield some
            some, left = [], tokens
        some.append(candidate)
        left -= len(candidate)
    if some:
        yield some


def listed(scores: Tensor, tokens: JointTokens) -> Tensor:
    """Scores [R, K] of rows -> one after the other, without those that are not there; the tokens are on the CPU."""
    return scores.flatten()[to_device(places_of(tokens.there), scores.device)]


def in_table(scores: Tensor, wanted: Tensor) -> Tensor:
    """Scores of the candidates that were wanted -> [B, C], 0 elsewhere.

    Args:
        scores: one after the other, as many as are wanted.
        wanted: [B, C], on the CPU.
    """
    places = to_device(places_of(wanted), scores.device)
    return scores.new_zeros(wanted.numel()).index_copy(0, places, scores).view(wanted.shape)


def places_of(mask: Tensor) -> Tensor:
    """Where a mask is True, counted through it row by row."""
    return mask.flatten().nonzero().flatten()
