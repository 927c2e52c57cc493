"""The gradient cache: a large batch trains in the memory of one chunk.

The loss of in-batch negatives needs the vectors of the whole batch at once, but not their graphs. So the batch is
encoded without graphs, the loss computes a gradient for each vector, and then one chunk after the other is encoded
again, with a graph that takes the chunk's gradient and is freed before the next (Gao et al. 2021, arXiv 2101.06983).
The gradients equal the plain batch's; the price is one more forward pass.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyagents.models.encoder import Encoder
from polyagents.models.formulas import ContextVectors
from polyagents.models.tokens import Tokens

Part = Any  # what an encoder makes of a chunk: vectors [b, D], context vectors, or scores [r, K]


class GradientCache:
    """The vectors of a batch, detached from their graphs until their gradients are known.

    Attributes:
        encoded: the vectors [B, ...] in the order of the batch. `loss.backward()` adds their gradient.
    """

    def __init__(
        self,
        encoder: Encoder,
        encode: Callable[[Any], Part],
        join: Callable[[list[Part], list[Tensor]], Part],
        tokens: Tokens,
        chunk_tokens: int | None,
    ):
        """Encode the batch.

        Args:
            encode: encodes a chunk [b, T] to its vectors, with the encoder.
            join: puts the chunks' vectors in order, given them and their rows in the batch.
            chunk_tokens: tokens of a chunk that is encoded again in `backward`; None keeps all graphs (the plain way).
        """
        self._encode, keep_graph = encode, chunk_tokens is None
        self._rows: list[Tensor] = []
        self._graphs: list[Tensor] = []
        self._again: list[tuple[Tokens, Tensor]] = []
        parts = []
        for rows, chunk in encoder.chunks(tokens, chunk_tokens):
            if not keep_graph:
                self._again.append((chunk, random_state(chunk.ids.device)))
            with torch.set_grad_enabled(keep_graph):
                part = encode(chunk)
            if keep_graph:
                self._graphs.append(vectors_of(part))
            # Cut off here: the loss must not reach the chunk's graph, which `backward` continues with its own gradient.
            parts.append(with_vectors(part, vectors_of(part).detach()))
            self._rows.append(rows)
        joined = join(parts, self._rows)
        self._widths = [vectors_of(part).shape[1:2] for part in parts]
        # A leaf, so the loss leaves its gradient here and goes no further.
        self._leaf = vectors_of(joined).requires_grad_()
        self.encoded: Part = with_vectors(joined, self._leaf)

    def backward(self) -> None:
        """Add the gradients of the encoder's weights, computed from the vectors' gradients."""
        gradient = self._leaf.grad
        if gradient is None:  # these vectors were not used
            return
        # A chunk of short texts has fewer context vectors than the batch.
        parts = [
            gradient[rows][:, : width[0]] if width else gradient[rows]
            for rows, width in zip(self._rows, self._widths, strict=True)
        ]
        # The plain way: all graphs were kept, and continue in one pass.
        if self._graphs:
            torch.autograd.backward(self._graphs, parts)
            return
        # Chunk by chunk: each graph is built again, takes its gradient, and is freed before the next.
        device = gradient.device
        now = random_state(device)
        for (chunk, state), part in zip(self._again, parts, strict=True):
            set_random_state(state, device)  # the same dropout as before
            torch.autograd.backward([vectors_of(self._encode(chunk))], [part])
        set_random_state(now, device)


def vectors_of(part: Any) -> Tensor:
    """Return the tensor that has a gradient."""
    return part.vectors if isinstance(part, ContextVectors) else part


def with_vectors(part: Any, vectors: Tensor) -> Any:
    """Replace the vectors of a chunk's result."""
    return part._replace(vectors=vectors) if isinstance(part, ContextVectors) else vectors


def random_state(device: torch.device) -> Tensor:
    """Return the state of the generator that dropout draws from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Restore the state of the generator that dropout draws from."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
