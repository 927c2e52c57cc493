"""What a resumed run draws from, as a checkpoint keeps it: torch's random states, and the pool of random negatives."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from polyagents.files.hashing import utf8
from polyagents.training.candidates import TrainingCandidates


def draws(candidates: TrainingCandidates) -> dict[str, Any]:
    """The state of everything that training draws from, as tensors and plain values.

    Of several processes only the first one's is kept.
    """
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": plain_state(candidates.random.getstate())}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if candidates.seen:
        content, ends = packed_texts(candidates.pool)
        state |= {"seen": candidates.seen, "pool": content, "ends": ends}
    return state


def restore(state: Mapping[str, Any], candidates: TrainingCandidates, rank: int) -> None:
    """Draw from where a checkpoint was.

    Args:
        state: what `draws` gave.
        candidates: gets the pool back.
        rank: of this process; others than the first continue with a state of their own that follows from the first's.
    """
    if rank:
        torch.manual_seed(int(state["torch"].sum()) + rank)
        return
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(state["cuda"])
    version, numbers, gauss = state["python"]
    candidates.random.setstate((version, tuple(numbers), gauss))
    if "seen" in state:
        candidates.seen, candidates.pool = state["seen"], unpacked_texts(state["pool"], state["ends"])


def plain_state(state: tuple[Any, ...]) -> list[Any]:
    """The state of Python's generator, as JSON can hold it."""
    version, numbers, gauss = state
    return [version, list(numbers), gauss]


def packed_texts(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Texts as bytes, one after the other, and where each ends: a pool of 100,000 is too much for JSON in a header."""
    raw = [utf8(text) for text in texts]
    content = torch.frombuffer(bytearray(b"".join(raw)) or bytearray(1), dtype=torch.uint8)
    return content, torch.tensor([len(text) for text in raw]).cumsum(0)


def unpacked_texts(content: Tensor, ends: Tensor) -> list[str]:
    """What `packed_texts` was given."""
    raw = content.numpy().tobytes()
    return [raw[start:end].decode() for start, end in itertools.pairwise([0, *ends.tolist()])]
