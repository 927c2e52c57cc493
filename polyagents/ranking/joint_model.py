"""A model that reads context and candidates together, so that no score of a candidate can be computed in advance."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from polyagents.models.encoder import Encoder
from polyagents.models.joint import Joint, encode_apart
from polyagents.models.tokens import JointTokens, pad_joint, to_device, true_places
from polyagents.models.versions import Versions
from polyagents.ranking.candidate_set import CandidateSet
from polyagents.ranking.pieces import Steps, finished, pieces
from polyagents.ranking.ranking_model import RankingModel, Settings
from polyagents.surroundings import undisturbed
from polyagents.text.tokenizer import RankingTokenizer

TOKENS_AT_ONCE = 2_000_000  # that are padded together, some 30 MB; the encoder splits them into chunks
STATES_AT_ONCE = 100_000  # of width 384, 150 MB

Row = tuple[Sequence[int], list[Sequence[int]]]
"""Token ids of a context and of candidates."""


class JointModel(RankingModel):
    """A cross- or uni-encoder, or another joint architecture."""

    module: Joint

    def __init__(self, module: Joint, tokenizer: RankingTokenizer, settings: Settings):
        super().__init__(module, tokenizer, settings, Versions(module))

    def encode_ids(self, ids: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Encode token ids of C candidates, each by itself: states [t, D]."""
        return encode_apart(self.module.encoders_apart[1], ids)

    @property
    def context_encoder(self) -> Encoder:
        """The encoder of contexts with their candidates."""
        return self.module.encoder

    @property
    def longest_input(self) -> int:
        """The positions of a context followed by a candidate."""
        if self.joins_pairs:
            return self.settings.text_truncate or 0
        return (self.settings.text_truncate or 0) + (self.settings.label_truncate or 0)

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """The lengths of texts, as in other models; a pair is truncated whole, by the lengths that its texts have."""
        text, label = super().limits
        if not self.joins_pairs:
            return text, label
        return None, None if label is None or (text is not None and label >= text) else label

    @property
    def joins_pairs(self) -> bool:
        """Whether `--text-truncate` is the length of a pair, joined as the tokenizer itself joins it."""
        return self.module.joins_pairs and self.settings.plain_texts

    @undisturbed()
    def scores(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet) -> Tensor:
        """Score as `RankingModel.scores` says, with 0 for padding."""
        return finished(self.scores_in_pieces(contexts, candidates, TOKENS_AT_ONCE))

    def scores_in_pieces(
        self, contexts: Sequence[Sequence[int]], candidates: CandidateSet, tokens: int
    ) -> Steps[Tensor]:
        """Score as `scores` does, piece by piece."""
        wanted = candidates.real.expand(len(contexts), -1)  # a shared list without labels has one row
        rows = self.rows(contexts, candidates, wanted)
        scores: dict[int, Tensor] = {}  # of each row
        if self.module.compares:
            tokens = min(tokens, STATES_AT_ONCE)
        for piece in pieces([len(context) + sum(map(len, some)) for context, some in rows], tokens):
            with undisturbed():  # not around the generator, whose caller computes between two pieces
                some = self.joint_tokens([rows[row] for row in piece])
                sizes = [len(rows[row][1]) for row in piece]
                found = flat_scores(self.module(some, self.encoded), some)
                scores |= zip(piece, found.split(sizes), strict=True)
            yield
        # Pieces are of similar length, not in order: the scores return to the order of the rows.
        return in_table(torch.cat([scores[row] for row in range(len(rows))]), wanted)

    def joint_tokens(self, rows: Sequence[Row]) -> JointTokens:
        """Pad rows to a batch on the CPU, from where the encoder takes it chunk by chunk."""
        if self.joins_pairs:
            limit = self.settings.text_truncate
            pairs = (self.tokenizer.pair(context, candidate, limit) for context, (candidate,) in rows)
            rows = [(context, [candidate]) for context, candidate in pairs]
        return pad_joint(rows, self.tokenizer.pad_id)

    def rows(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet, wanted: Tensor) -> list[Row]:
        """Put each context in front of its candidates, as many in a row as the architecture allows.

        Args:
            wanted: [B, C], True for those to score; the rows are in its order.
        """
        rows = []
        for example, context in enumerate(contexts):
            columns = wanted[example].nonzero().flatten()
            if candidates.rows is not None:
                columns = candidates.rows[example, columns]
            own = [candidates.ids[column] for column in columns.tolist()]
            rows += [(context, some) for some in lists_that_fit(own, self.module.candidate_tokens)]
        return rows


def lists_that_fit(candidates: Sequence[Sequence[int]], tokens: int) -> Iterator[list[Sequence[int]]]:
    """Split token ids of candidates, in order, into lists of at most `tokens` tokens; each has one at least."""
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


def flat_scores(scores: Tensor, tokens: JointTokens) -> Tensor:
    """Flatten scores [R, K] of rows to those [N] of candidates that exist, row after row."""
    return scores.flatten()[to_device(true_places(tokens.there), scores.device)]


def in_table(scores: Tensor, wanted: Tensor) -> Tensor:
    """Arrange scores [N] in a table [B, C] where `wanted` [B, C] is True, in its order; 0 elsewhere."""
    places = to_device(true_places(wanted), scores.device)
    return scores.new_zeros(wanted.numel()).index_copy(0, places, scores).view(wanted.shape)
