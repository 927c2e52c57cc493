"""The formulas of the paper: attention and scores, red() and context vectors (section 4, appendix C), and the loss.

Letters: B examples, C candidates, T tokens, M context vectors, D width. Texts are padded on the right; masks are True
where something is real. Scores and loss are computed in fp32, whatever the precision of the encoder (low-precision
scores collapse into ties: sentence-transformers #3894).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

REDUCTIONS = ("first", "mean", "first_m")
# Cosines lie between -1 and 1, too flat for a softmax: training multiplies them by 20, as sentence-transformers does.
COSINE_SCALE = 20.0
CONTEXT_VECTORS = ("codes", "n_first", "n_last", "n_last_and_first")


def masked_softmax(logits: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Compute a softmax over the real entries of `dim`; all others get 0, as does a row without a real entry."""
    # The lowest finite number, not -inf: a row without a real entry would be a softmax of nothing, which is NaN.
    # Its weights are equal here, and the second mask sets them to 0.
    logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return logits.softmax(dim).masked_fill(~mask, 0.0)


def attend(queries: Tensor, states: Tensor, mask: Tensor) -> Tensor:
    """Section 4.4: y_i = sum_j w_ij h_j with w_i = softmax_j(c_i . h_j), for every query (context code) c_i.

    Queries c [M, D], states h [B, T, D], mask [B, T] -> [B, M, D]; zeros for an example without any real token.
    """
    weights = masked_softmax(queries.float() @ states.float().transpose(1, 2), mask.unsqueeze(1), dim=-1)  # [B, M, T]
    return weights @ states.float()


def dot_products(context: Tensor, candidates: Tensor) -> Tensor:
    """d_i = y_ctxt^i . y_cand: context [B, M, D], candidates [C, D] or [B, C, D] -> [B, M, C] fp32."""
    return context.float() @ candidates.float().transpose(-1, -2)


def bi_scores(context: Tensor, candidates: Tensor) -> Tensor:
    """Section 4.2: s = y_ctxt . y_cand, unbounded: context [B, D], candidates [C, D] or [B, C, D] -> [B, C] fp32."""
    return dot_products(context.unsqueeze(1), candidates).squeeze(1)


def poly_scores(context: Tensor, mask: Tensor, candidates: Tensor, sharpness: float = 1.0) -> Tensor:
    """Section 4.4: s = y_ctxt . y_cand, where y_ctxt is the candidate's attention over the context vectors.

    With d_i = y_ctxt^i . y_cand and w = softmax(d), the score is sum_i w_i d_i. So the attended context [B, C, D] is
    never built: half the arithmetic and a tenth of the memory traffic.

    Context [B, M, D], mask [B, M], candidates [C, D] or [B, C, D] -> [B, C] fp32; 0 for a row without any real vector.

    Args:
        sharpness: multiplies d inside the softmax; 1 in the paper, 1/sqrt(D) for scaled attention. Whatever it is,
            the score lies between the least and the largest of d.
    """
    products = dot_products(context, candidates)  # [B, M, C]
    weights = masked_softmax(products * sharpness, mask.unsqueeze(-1), dim=1)
    return (weights * products).sum(1)


def ranking_loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Compute -log softmax(scores)[label] over the candidates that count: [B] fp32, in nats.

    Args:
        scores: [B, C].
        labels: the column of the right candidate, [B].
        mask: [B, C], False for padding and for other copies of the label, which must not be its negatives.
    """
    logits = scores.float().masked_fill(~mask, torch.finfo(torch.float32).min)
    return functional.cross_entropy(logits, labels, reduction="none")


class ContextVectors(NamedTuple):
    """The M vectors of each context: `vectors` [B, M, D], and `mask` [B, M], False if the text was shorter."""

    vectors: Tensor
    mask: Tensor

    def rows(self, index: slice | list[int] | Tensor) -> "ContextVectors":
        """Select contexts; an index may occur repeatedly."""
        return ContextVectors(self.vectors[index], self.mask[index])

    def to(self, device: torch.device) -> "ContextVectors":
        """Copy the contexts to another device."""
        return ContextVectors(self.vectors.to(device), self.mask.to(device))


def stacked(parts: Sequence[ContextVectors], rows: Sequence[Tensor] | None = None) -> ContextVectors:
    """Join chunks of contexts as `in_order` does."""
    # What is added is masked: it takes no part in a softmax, so a context scores as in a chunk of its own.
    vectors, mask = ([getattr(part, name) for part in parts] for name in ContextVectors._fields)
    return ContextVectors(in_order(vectors, rows), in_order(mask, rows))


def in_order(parts: Sequence[Tensor], rows: Sequence[Tensor] | None = None) -> Tensor:
    """Join results [b, n, ...] of chunks, in the order of the batch if their rows [b] in it are given.

    Chunks of short texts or lists have a smaller n, and are padded with 0.
    """
    widest = max(part.size(1) for part in parts)
    alike = []
    for part in parts:
        lacking = widest - part.size(1)
        alike.append(functional.pad(part, (0, 0) * (part.ndim - 2) + (0, lacking)) if lacking else part)
    # The rows of all chunks are a permutation of the batch; its argsort is the way back.
    return torch.cat(alike)[slice(None) if rows is None else torch.cat(list(rows)).argsort()]


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Average the states of the real tokens, zeros without any: [B, T, D], mask [B, T] -> [B, D]."""
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1.0)


def take(states: Tensor, positions: Tensor) -> Tensor:
    """Select states by their positions: [B, T, D], [B, M] -> [B, M, D]."""
    return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.size(-1)))


def last_positions(mask: Tensor, m: int) -> Tensor:
    """Return the positions [B, m] of the last m real tokens in text order; negative ones if the text has fewer."""
    return mask.sum(1, keepdim=True) - m + torch.arange(m, device=mask.device)


def reduce(states: Tensor, mask: Tensor, kind: str, m: int, causal: bool = False) -> Tensor:
    """Compute the paper's red(), one vector per text: states [B, T, D], mask [B, T] -> [B, D].

    Args:
        kind: "first" (the special token [S]), "mean" of all outputs, or "first_m", the mean of the first m.
        m: how many outputs "first_m" takes; fewer if the text is shorter.
        causal: whether the backbone is a decoder, whose first output depends on the first token only: "first" is then
            the last real token, the [S] that ends the text.
    """
    if kind == "mean":
        return masked_mean(states, mask)
    if kind == "first_m":
        return masked_mean(states[:, :m], mask[:, :m])
    if causal:
        return take(states, last_positions(mask, 1).clamp(min=0))[:, 0]
    return states[:, 0]


def reduce_places(states: Tensor, places: Tensor, longest_list: int, kind: str, m: int, causal: bool = False) -> Tensor:
    """Compute red() of a context and of each candidate that follows it in a row, as `reduce` does for separate texts.

    States [R, T, D] -> [R, 1 + K, D], zeros if a row has fewer than K candidates.

    Args:
        places: [R, T], 0 for the context, k for its k-th candidate, -1 for padding.
        longest_list: K, the largest of the places.
    """
    # A matrix that says for each text which tokens are its own. What `kind` does not take is removed from it, and one
    # product with the states sums what remains: no loop over texts, whose lengths differ.
    own = places.unsqueeze(1) == torch.arange(longest_list + 1, device=places.device).unsqueeze(1)  # [R, 1+K, T]
    if kind == "first" and causal:
        own &= own.flip(2).cumsum(2).flip(2) == 1  # the first when counted from the end
    elif kind != "mean":
        own &= own.cumsum(2) <= (1 if kind == "first" else m)
    return own.to(states.dtype) @ states / own.sum(2, keepdim=True).clamp(min=1)


def context_vectors(states: Tensor, mask: Tensor, kind: str, m: int, codes: Tensor | None = None) -> ContextVectors:
    """Compute the m context vectors of appendix C; a shorter text has fewer, as the mask shows.

    States [B, T, D], mask [B, T], codes [M, D] (kind "codes" only) -> vectors [B, M, D] and their mask [B, M].

    Args:
        kind: "codes" (section 4.4), "n_first", "n_last" or "n_last_and_first" (the last m and h_1, counted once).
        m: number of vectors; "n_last_and_first" gives m + 1, and "codes" as many as there are codes.
    """
    if kind == "codes":
        assert codes is not None, "kind 'codes' comes with its codes"
        vectors = attend(codes, states, mask)
        return ContextVectors(vectors, mask.any(1, keepdim=True).expand(-1, len(codes)))
    if kind == "n_first":
        return ContextVectors(states[:, :m], mask[:, :m])
    positions = last_positions(mask, min(m, states.size(1)))
    if kind == "n_last_and_first":
        # h_1 is added only if it is not among the last m.
        first = torch.where(positions[:, :1] > 0, 0, -1)
        positions = torch.cat([first, positions], dim=1)
    return ContextVectors(take(states, positions.clamp(min=0)), positions >= 0)
