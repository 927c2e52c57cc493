"""The interface of architectures that read context and candidates together: cross- and uni-encoder."""

import abc
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from polyagents.errors import InputError
from polyagents.models.base import Architecture
from polyagents.models.encoder import Encoder, pad_id
from polyagents.models.formulas import COSINE_SCALE, ContextVectors, in_order, reduce_places, stacked
from polyagents.models.model_options import CLASSIFIERS, JointOptions, RankingOptions, is_similarity
from polyagents.models.tokens import JointTokens, TextsApart, Tokens, pad, to_device, true_places

Encode = Callable[[list[tuple[int, ...]]], Sequence[Tensor]]
"""Token ids of texts -> their states [t, D], each text read by itself."""

# The factor of the late interaction, a cosine, beside a trained bi-encoder's dot products, whose deviation among the
# candidates of a context is 3. Of 5 to 100, 40 to 100 were best and alike on 1,024 contexts of ConvAI2.
LATE_SCALE = 40.0


class Joint(Architecture):
    """One encoder over contexts with their candidates, and a head. It has no vectors that could be stored.

    A head with a similarity may have a second encoder: a bi-encoder's for candidates, which it reads by themselves.

    Attributes:
        candidate_tokens: how many tokens of candidates may follow a context in one row; 0 means one candidate a row.
        candidate_encoder: reads candidates by themselves, if they have an encoder of their own; otherwise None.
        is_late: whether the head adds the late interaction of texts that are read by themselves.
        linear: maps a vector to a score; it starts at 0 if the head has a similarity, too.
        dense: the layer before it in a classifier's head; None in others.
        joins_pairs: whether plain texts are joined as their tokenizer joins a pair, which such a head has learnt.
    """

    options_type: ClassVar[type[RankingOptions]] = JointOptions
    candidate_tokens: ClassVar[int] = 0

    def __init__(self, encoder: Encoder, options: JointOptions):
        super().__init__(encoder, options)
        self.head, _, late = options.joint_head.partition("+")
        self.is_late = late == "late"
        self.encoder = encoder
        self.candidate_encoder = encoder.twin() if self.compares and not options.share_encoders else None
        self.kind, self.m = options.reduction_type, options.poly_n_codes
        self.linear = nn.Linear(encoder.width, 1)
        self.dense = nn.Linear(encoder.width, encoder.width) if self.head in CLASSIFIERS else None
        dropouts = [part.p for part in encoder.backbone.modules() if isinstance(part, nn.Dropout)]
        self.dropout = nn.Dropout(dropouts[0] if dropouts else 0.0)  # the backbone's own
        self.joins_pairs = self.dense is not None and self.candidate_tokens == 0
        if self.compares:
            nn.init.zeros_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)

    def linear_scores(self, vectors: Tensor) -> Tensor:
        """Map vectors [..., D] to scores [..., 1]."""
        if self.dense is not None:
            activation = torch.tanh if self.head == "tanh" else getattr(functional, self.head)
            vectors = self.dropout(activation(self.dense(vectors)))
        scores: Tensor = self.linear(vectors)
        return scores

    @property
    def compares(self) -> bool:
        """Whether a score has the similarity of the two texts, each read by itself, as a part."""
        return is_similarity(self.head)

    @property
    def encoders_apart(self) -> tuple[Encoder, Encoder]:
        """What reads contexts by themselves, and candidates by themselves."""
        return self.encoder, self.candidate_encoder or self.encoder

    def similarities(self, rows: JointTokens, states: Tensor, texts: TextsApart, again: bool = False) -> Tensor:
        """Score the texts of rows [R, T] by the states [N, D] of their tokens, each text read by itself: [R, K] fp32.

        Args:
            again: compute everything again in the backward pass, which then needs the memory of one chunk only.
        """
        where, places, parts = to_device(texts.places, states.device), [], []
        for place, chunk in self.encoder.chunks(rows):
            own = where[place, : chunk.ids.size(1)]
            inputs = (states, own, chunk)
            parts.append(
                checkpoint(self.similarity, *inputs, use_reentrant=False) if again else self.similarity(*inputs)
            )
            places.append(place)
        return in_order(parts, places)

    def similarity(self, states: Tensor, own: Tensor, chunk: JointTokens) -> Tensor:
        """Score each context and its candidates as a bi-encoder does, given which of the states are own: [r, K]."""
        states = states[own]  # [r, T, D]
        vectors = reduce_places(states, chunk.places, chunk.longest_list, self.kind, self.m, self.encoder.causal)
        if self.head == "cosine":
            vectors = functional.normalize(vectors, dim=-1) * COSINE_SCALE**0.5
        scores = (vectors[:, :1] * vectors[:, 1:]).sum(-1)
        return scores + LATE_SCALE * late_interaction(states, chunk) if self.is_late else scores

    def check_backbone(self) -> None:
        """Refuse a backbone in which texts of one row cannot be masked from each other."""
        if not self.encoder.keeps_apart:
            kind = self.encoder.backbone.config.model_type
            raise InputError(
                f"A {self.label} reads several texts in one row, and this backbone ({kind}) does not support a mask "
                f"that separates them; use one such as BERT, RoBERTa or ModernBERT."
            )

    @abc.abstractmethod
    def chunk_scores(self, chunk: JointTokens) -> Tensor:
        """Score a chunk of rows [r, T], without the similarity: [r, K] for lists of up to K candidates.

        What is in the place of a candidate that a shorter list lacks is not read (`JointTokens.there`).
        """

    def forward(self, rows: JointTokens, encode: Encode | None = None) -> Tensor:
        """Score rows [R, T], chunk by chunk: [R, K] fp32.

        Args:
            encode: knows the states of candidates; None encodes them.
        """
        chunks = self.encoder.chunks(rows)
        places, parts = zip(*((place, self.chunk_scores(chunk)) for place, chunk in chunks), strict=True)
        scores = in_order(parts, places)
        if not self.compares:
            return scores
        texts, (own, other) = rows.apart(), self.encoders_apart
        states = [*encode_apart(own, texts.contexts), *(encode or partial(encode_apart, other))(texts.candidates)]
        return scores + self.similarities(rows, torch.cat(states), texts)


def states_apart(encoder: Encoder, chunk: Tokens) -> ContextVectors:
    """Encode a chunk of texts, each by itself: [b, T] -> states [b, T, D] and their mask."""
    return ContextVectors(encoder(chunk), chunk.mask)


def encode_apart(encoder: Encoder, texts: Sequence[Sequence[int]]) -> Sequence[Tensor]:
    """Encode token ids of texts, each by itself, to states [t, D]."""
    tokens = pad(texts, pad_id(encoder))
    rows, parts = zip(*((rows, states_apart(encoder, chunk)) for rows, chunk in encoder.chunks(tokens)), strict=True)
    states = without_padding(stacked(parts, rows).vectors, tokens)
    return torch.split(states, list(map(len, texts)))


def without_padding(states: Tensor, tokens: Tokens) -> Tensor:
    """Join the states [B, T, D] of the real tokens of a batch, which is on the CPU, text after text: [N, D]."""
    return states.flatten(0, 1)[to_device(true_places(tokens.mask), states.device)]


def late_interaction(states: Tensor, tokens: JointTokens) -> Tensor:
    """Compute the mean over a candidate's tokens of the largest cosine that each has with a token of the context.

    ColBERT's MaxSim (Khattab and Zaharia 2020, arXiv 2004.12832): a vector for a whole text cannot say that a candidate
    repeats two words of the third line of a persona; the states of its tokens can (docs/results.md).

    States [R, T, D] of contexts followed by candidates -> [R, K] fp32, -1 to 1; 0 if a row has fewer candidates.
    """
    places = tokens.places
    directions = functional.normalize(states.float(), dim=-1)
    cosines = directions @ directions.transpose(1, 2)  # [R, T, T]
    best = cosines.masked_fill((places != 0).unsqueeze(1), -1.0).amax(-1)
    numbers = torch.arange(1, tokens.longest_list + 1, device=places.device)
    own = places.unsqueeze(1) == numbers.unsqueeze(1)  # [R, K, T]
    return (own * best.unsqueeze(1)).sum(-1) / own.sum(-1).clamp(min=1)
