"""The random states and the pool of random negatives, as a checkpoint stores them for a resumed run."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from polyagents.files.hashing import utf8
from polyagents.training.candidates import TrainingCandidates


def draws(candidates: TrainingCandidates) -> dict[str, Any]:
    """Return the state of all random generators of a run, as tensors and plain values.

    Of several processes only the first one's is stored.
    """
    version, numbers, gauss = candidates.random.getstate()
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": [version, list(numbers), gauss]}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if candidates.seen:
        content, ends = packed_texts(candidates.pool)
        state |= {"seen": candidates.seen, "pool": content, "ends": ends}
    return state


def restore(state: Mapping[str, Any], candidates: TrainingCandidates, rank: int) -> None:
    """Continue the random draws from a checkpoint.

    Args:
        rank: of this process; all except the first continue with a state that is derived from the first's.
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


def packed_texts(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Pack texts as bytes and the end of each: a pool of 100,000 texts is too large for JSON in a header."""
    raw = [utf8(text) for text in texts]
    content = torch.frombuffer(bytearray(b"".join(raw)) or bytearray(1), dtype=torch.uint8)
    return content, torch.tensor([len(text) for text in raw]).cumsum(0)


def unpacked_texts(content: Tensor, ends: Tensor) -> list[str]:
    """Restore the texts that `packed_texts` packed.

    Args:
        content: the bytes.
        ends: the end of each text.
    """
    raw = content.numpy().tobytes()
    return [raw[start:end].decode() for start, end in itertools.pairwise([0, *ends.tolist()])]
