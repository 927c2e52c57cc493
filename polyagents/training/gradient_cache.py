"""Vectors now, their backward pass later: how a batch of 512 trains in the memory of one chunk.

The loss of in-batch negatives wants the vectors of the whole batch at once, but not the graphs behind them. So the
batch is encoded without graphs, the loss gives each vector its gradient, and then chunk after chunk is encoded once
more, with a graph that takes the chunk's gradient and is gone before the next (Gao et al. 2021, arXiv 2101.06983). The
gradients are those of the plain batch; the price is one more forward pass.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from polyagents.models.reduction import ContextVectors
from polyagents.models.tokens import Tokens

Part = Any  # what an encoder makes of a chunk: vectors [b, D], context vectors, or scores [r, K]


class GradientCache:
    """Vectors of a batch, cut off from the graph behind them until their gradient is known.

    Attributes:
        encoded: the batch in its order, vectors [B, ...]. `loss.backward()` leaves their gradient with them.
    """

    def __init__(
        self,
        encode: Callable[[Tokens], Part],
        join: Callable[[list[Part], list[Tensor]], Part],
        chunks: Iterable[tuple[Tensor, Tokens]],
        keep_graph: bool,
    ):
        """Encode the batch.

        Args:
            encode: a chunk [b, T] -> its vectors.
            join: the chunks' vectors and their rows in the batch -> those of the batch.
            chunks: rows [b] of the batch, and their texts.
            keep_graph: keep all graphs (the plain way), or encode every chunk again in `backward`.
        """
        self._encode, self._keep_graph = encode, keep_graph
        self._rows: list[Tensor] = []
        self._graphs: list[Tensor] = []
        self._again: list[tuple[Tokens, Tensor]] = []
        parts = []
        for rows, chunk in chunks:
            if not keep_graph:
                self._again.append((chunk, random_state(chunk.ids.device)))
            with torch.set_grad_enabled(keep_graph):
                part = encode(chunk)
            if keep_graph:
                self._graphs.append(vectors_of(part))
            parts.append(with_vectors(part, vectors_of(part).detach()))
            self._rows.append(rows)
        joined = join(parts, self._rows)
        self._widths = [vectors_of(part).shape[1:2] for part in parts]
        self._leaf = vectors_of(joined).requires_grad_()
        self.encoded: Part = with_vectors(joined, self._leaf)

    def backward(self) -> None:
        """From the vectors' gradients to those of the encoder's weights, added to what these have."""
        gradient = self._leaf.grad
        if gradient is None:  # nothing was made of these vectors
            return
        # A chunk of short texts has fewer context vectors than the batch.
        parts = [
            gradient[rows][:, : width[0]] if width else gradient[rows]
            for rows, width in zip(self._rows, self._widths, strict=True)
        ]
        if self._keep_graph:
            torch.autograd.backward(self._graphs, parts)
            return
        device = gradient.device
        now = random_state(device)
        for (chunk, state), part in zip(self._again, parts, strict=True):
            set_random_state(state, device)  # the same dropout as before
            torch.autograd.backward([vectors_of(self._encode(chunk))], [part])
        set_random_state(now, device)


def vectors_of(part: Any) -> Tensor:
    """The tensor that has a gradient."""
    return part.vectors if isinstance(part, ContextVectors) else part


def with_vectors(part: Any, vectors: Tensor) -> Any:
    """The same with other vectors."""
    return part._replace(vectors=vectors) if isinstance(part, ContextVectors) else vectors


def random_state(device: torch.device) -> Tensor:
    """Of the generator that dropout draws from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Put it back."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
