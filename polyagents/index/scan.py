"""Bounds the largest dot product of each candidate with a context's vectors by one matrix product in low precision."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from polyagents.index.stored_vectors import VectorBlock
from polyagents.models.formulas import ContextVectors
from polyagents.timings import has_bf16, has_int8, measured_once

ROWS, MANY = 4_096, 64  # candidates and context vectors of a product that is measured: a poly-encoder's
NARROWEST = 16  # context vectors; measured: one takes 11.1 ms over 100,000 x 768 in bf16, sixteen 6.5 ms
# What may be lost, as a part of the whole: by rounding a product to bf16 (8 bits), by scanning only the upper half of
# a vector stored in fp32, and by sums of some thousand terms in fp32.
BF16_ROUNDING = 2.0**-7.9
BF16_STORED = 2.0**-8
FP32_SUMS = 2.0**-13


class Lowered(NamedTuple):
    """Context vectors in a low precision.

    Attributes:
        vectors: [B, M, D].
        scales: [B]; the true vector is the stored one times the scale of its context.
        lost: [B], the largest error of a dot product for a candidate of length 1 (Cauchy-Schwarz).
    """

    vectors: Tensor
    scales: Tensor
    lost: Tensor


class Scan:
    """Upper bounds of dot products, by a matrix product in the precision in which the machine is fastest.

    A search skips candidates whose bound is too low, so a bound must never be below the true product: whatever rounding
    may lose is added to it, not estimated.
    """

    def __init__(self, context: ContextVectors):
        vectors = context.vectors.float()
        # A vector that a short text does not have repeats its first one, which changes no maximum.
        self.vectors = torch.where(context.mask.unsqueeze(-1), vectors, vectors[:, :1])  # [B, M, D]
        self.longest = torch.linalg.vector_norm(self.vectors, dim=2).amax(1)  # [B]
        self.lowered: dict[torch.dtype, Lowered] = {}

    def largest_products(self, block: VectorBlock) -> Tensor:
        """Bound the dot products of the block's candidates with each context's vectors: [n, B] fp32."""
        kind = scan_precision(block, self.vectors.size(0) * self.vectors.size(1))
        low = self._low(kind)
        coarse = block.coarse if kind == torch.int8 else None
        scanned, scales = (block.vectors, block.scales) if coarse is None else (coarse.vectors, coarse.scales)
        products = multiply(scanned, low.vectors.flatten(0, 1))
        # The maximum over a context's M vectors, before any scale: one scale holds for all of a context, and scales are
        # not negative, so the same vector stays the largest.
        highest = products.unflatten(1, self.vectors.shape[:2]).amax(2).float()
        if kind == torch.int8:
            highest = highest * low.scales
        if products.dtype == torch.bfloat16:  # the product itself was rounded, up or down
            highest = highest.add(highest.abs(), alpha=BF16_ROUNDING)
        if scales is not None:
            highest = highest * scales.unsqueeze(1)
        # Now what the operands had lost before they were multiplied, by Cauchy-Schwarz: a vector's length times the
        # length of the other one's error.
        if coarse is not None:
            # For v = s + e and c = t + f, rounded and lost: v.c <= s.t + |s| |f| + |e| |c|, and |s| <= |v| + |e|.
            gone = coarse.lost.unsqueeze(1)
            return torch.addcmul(highest, block.norms.unsqueeze(1) + gone, low.lost).addcmul_(gone, self.longest)
        # Only the upper half of a vector in fp32 was read.
        lost = low.lost if block.rest is None else low.lost + BF16_STORED * self.longest
        return torch.addcmul(highest, block.norms.unsqueeze(1), lost)

    def _low(self, kind: torch.dtype) -> Lowered:
        if kind not in self.lowered:
            scales = torch.ones_like(self.longest)
            if kind == torch.int8:
                # One scale for all vectors of a context, so that their products can be compared as integers.
                scales = self.vectors.abs().amax((1, 2)) / 127
                divisor = torch.where(scales > 0, scales, 1.0)[:, None, None]
                # NaN has no integer; its error below is NaN, so that the bound says nothing.
                low = (self.vectors / divisor).round().nan_to_num(0.0).to(kind)
            else:
                low = self.vectors.to(kind)
            # The error that was made, which is known for these few vectors, and not the largest possible one.
            error = torch.linalg.vector_norm(low.float() * scales[:, None, None] - self.vectors, dim=2).amax(1)
            self.lowered[kind] = Lowered(low, scales, error + FP32_SUMS * self.longest)
        return self.lowered[kind]


def multiply(candidates: Tensor, context: Tensor) -> Tensor:
    """Multiply candidates [n, D] with context vectors [Q, D] in the precision of the latter.

    Returns:
        [n, Q]: int32 for int8, fp32 on a GPU, and the precision of the vectors otherwise.
    """
    asked = len(context)
    context = functional.pad(context, (0, 0, 0, max(NARROWEST - asked, 0)))
    if context.dtype == torch.int8:
        products = torch._int_mm(candidates, context.T)  # there is no public name for it
    elif context.is_cuda:  # otherwise parts of the sums may be rounded to bf16, too, by more than the bound allows
        products = torch.mm(candidates.to(context.dtype), context.T, out_dtype=torch.float32)
    else:
        products = candidates.to(context.dtype) @ context.T
    return products[:, :asked]


def scan_precision(block: VectorBlock, asked: int) -> torch.dtype:
    """Return the precision in which this machine scans a block fastest, for that many context vectors."""
    if block.vectors.device.type != "cpu":
        return torch.bfloat16  # holds an int8 exactly, too
    times = scan_times(block.vectors.size(1), asked > NARROWEST)
    may_be_int8 = block.coarse is not None or block.vectors.dtype == torch.int8
    return min((kind for kind in times if may_be_int8 or kind != torch.int8), key=times.__getitem__)


@functools.cache
def scan_times(width: int, wide: bool) -> dict[torch.dtype, float]:
    """Return how long scanning takes in each precision that may be fast, for MANY context vectors or the NARROWEST."""
    generator = torch.Generator().manual_seed(0)
    vectors, asked = torch.randn(ROWS, width, generator=generator), MANY if wide else NARROWEST
    context = vectors[:asked]
    # Stored vectors are in bf16 or int8: in fp32, a scan has to convert them first, which is a part of its time.
    operands = {torch.float32: (vectors.bfloat16(), context)}
    if has_bf16():
        operands[torch.bfloat16] = (vectors.bfloat16(), context.bfloat16())
    if has_int8():  # times 20: a normal number then fits into an int8
        operands[torch.int8] = ((vectors * 20).to(torch.int8), (context * 20).to(torch.int8))
    ways = {str(kind): functools.partial(multiply, *given) for kind, given in operands.items()}
    times = measured_once(f"a scan of {ROWS} x {width} for {asked} context vectors", ways)
    return {kind: times[str(kind)] for kind in operands}
