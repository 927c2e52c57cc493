"""Attention over a uni-encoder's rows: torch's fused one with a mask, plain products, and FlexAttention.

    python -m polyagents.benchmarks.attention [--precision bf16]

One layer of MiniLM's sizes (12 heads of 32), for rows as in re-ranking (a context and 34 candidates) and as in training
(a context and 20). FlexAttention is compiled for blocks of 32 tokens, and leaves out those in which no token sees
another; torch cannot differentiate it on a CPU. Prints each way's largest difference from the fused one.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from polyagents.arguments import CommandParser, positive_int
from polyagents.benchmarks import report
from polyagents.benchmarks.measure import device, side_by_side
from polyagents.models.dropout import attention
from polyagents.models.encoder import added
from polyagents.models.tokens import JointTokens, pad_joint

ROWS = {"re-ranking, 3 rows of 58 + 34 * 15": (3, 58, 34, 15), "training, 4 rows of 118 + 20 * 14": (4, 118, 20, 14)}
HEADS, WIDTH, BLOCK = 12, 32, 32


def flex(rows: JointTokens, inputs: Sequence[Tensor]) -> tuple[Callable[..., Tensor], float]:
    """Return FlexAttention of some rows, compiled for inputs like these, and the seconds that its first call took."""
    sees = rows.together()
    count, length, _ = sees.shape

    def allowed(row: Tensor, head: Tensor, of: Tensor, at: Tensor) -> Tensor:
        return sees[row, of, at]

    blocks = create_block_mask(allowed, count, None, length, length, device=sees.device.type, BLOCK_SIZE=BLOCK)
    compiled = partial(torch.compile(flex_attention, dynamic=False), block_mask=blocks)
    begin = time.perf_counter()
    compiled(*inputs)
    return compiled, time.perf_counter() - begin


def with_gradients(attend: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Callable[[], Any]:
    """Return attention with its backward pass."""
    own = [x.clone().requires_grad_() for x in inputs]
    return lambda: torch.autograd.grad(attend(*own).sum(), own)


def compare(name: str, dtype: torch.dtype, rounds: int) -> list[dict[str, Any]]:
    """Make a row for each way."""
    count, context, candidates, tokens = ROWS[name]
    rows = pad_joint([([1] * context, [[1] * tokens] * candidates)] * count, 0).to(device())
    torch.manual_seed(0)
    inputs = [torch.randn(count, HEADS, rows.ids.size(1), WIDTH, device=device(), dtype=dtype) for _ in range(3)]
    mask = added(rows.together(), dtype)
    fused: Callable[..., Tensor] = partial(functional.scaled_dot_product_attention, attn_mask=mask)
    compiled, seconds = flex(rows, inputs)
    ways: dict[str, Callable[..., Tensor]] = {
        "fused": fused,
        "plain": partial(attention, attn_mask=mask),
        "FlexAttention": compiled,
    }
    times = side_by_side({way: partial(attend, *inputs) for way, attend in ways.items()}, rounds)
    differentiable = {way: one for way, one in ways.items() if way != "FlexAttention" or device().type == "cuda"}
    trained = side_by_side({way: with_gradients(one, inputs) for way, one in differentiable.items()}, rounds)
    expected = fused(*inputs)
    return [
        {
            "rows": name,
            "attention": way,
            "ms": times[way],
            "with gradients, ms": trained.get(way),
            "compiled in, s": seconds if attend is compiled else None,
            "largest difference": float((attend(*inputs) - expected).abs().max()),
        }
        for way, attend in ways.items()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write it as JSON."""
    parser = CommandParser("python -m polyagents.benchmarks.attention", "Compare attention over a uni-encoder's rows.")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=positive_int, default=21, help="calls per figure, which is their median")
    parser.add_argument("--out", default="bench-output", help="folder for the table (JSON)")
    opt = parser.parse_args(arguments)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[opt.precision]
    table = [row for name in ROWS for row in compare(name, dtype, opt.rounds)]
    report.publish({"attention": table}, os.path.join(opt.out, "attention.json"))


if __name__ == "__main__":
    main()
