"""The attention and the scores of the paper (section 4), each as long as its formula.

Letters: B examples, C candidates, T tokens, M context vectors, D width. Masks are True where something is real.
Everything here is computed in fp32, whatever the precision of the encoder (low-precision scores collapse
into ties: sentence-transformers #3894).
"""

import torch
from torch import Tensor


def masked_softmax(logits: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Compute a softmax over the real entries of `dim`; all others get 0, as does a row without a real entry."""
    # The lowest finite number, not -inf: a row without a real entry would be a softmax of nothing, which is no number.
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
