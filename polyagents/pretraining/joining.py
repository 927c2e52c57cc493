"""Joins the chunks of an update to larger ones if a device computes these faster than one chunk after the other.

What an update consists of, and which words are hidden, is decided in small chunks that are the same on every machine,
so that training on a GPU equals training on a CPU.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from polyagents.models.tokens import JointTokens

Prepared = tuple[JointTokens, dict[str, Tensor], Tensor | None]
"""What `PretrainModel` takes: tokens [B, T], targets by objective, and which words were hidden [B, T]."""


def joined_chunks(chunks: Sequence[Prepared], limit: int, pad_id: int) -> Iterator[Prepared]:
    """Join chunks of an update, all with the same objectives, of similar length, on the CPU, the longest texts first.

    Args:
        limit: the number of tokens of a joined chunk, padding included; a larger chunk stays as it is.
    """
    group: list[Prepared] = []
    texts = width = 0
    for chunk in sorted(chunks, key=lambda chunk: -chunk[0].ids.size(1)):
        count, length = chunk[0].ids.shape
        if group and (texts + count) * width > limit:
            yield one_of(group, width, pad_id)
            group, texts = [], 0
        width = width if group else length
        texts += count
        group.append(chunk)
    if group:
        yield one_of(group, width, pad_id)


def one_of(chunks: Sequence[Prepared], width: int, pad_id: int) -> Prepared:
    """Join one chunk or more to one [B, T]; T is the length of the longest text."""

    def widened(tensors: Sequence[Tensor], padding: int) -> Tensor:
        return torch.cat([functional.pad(one, (0, width - one.size(1)), value=padding) for one in tensors])

    tokens = [chunk for chunk, _, _ in chunks]
    hidden = [chosen for _, _, chosen in chunks if chosen is not None]
    return (
        JointTokens(
            widened([one.ids for one in tokens], pad_id),
            widened([one.mask for one in tokens], False),
            widened([one.places for one in tokens], -1),
        ),
        {name: torch.cat([targets[name] for _, targets, _ in chunks]) for name in chunks[0][1]},
        widened(hidden, False) if hidden else None,
    )
