"""The random states and the pool of random negatives, as a checkpoint stores them for a resumed run."""

import itertools
from collections.abc import Mapping
from typing import Any

import torch

from polyagents.files.hashing import utf8
from polyagents.training.candidate_sources import TrainingCandidates


def draws(candidates: TrainingCandidates) -> dict[str, Any]:
    """Return the state of all that a training draws from; of several processes, that of the first."""
    version, numbers, gauss = candidates.random.getstate()
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": [version, list(numbers), gauss]}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if candidates.seen:
        # Bytes, and the end of each text: a pool of 100,000 texts is too large for JSON in a header.
        raw = [utf8(text) for text in candidates.pool]
        content = torch.frombuffer(bytearray(b"".join(raw)) or bytearray(1), dtype=torch.uint8)
        state |= {"seen": candidates.seen, "pool": content, "ends": torch.tensor([len(text) for text in raw]).cumsum(0)}
    return state


def restore(state: Mapping[str, Any], candidates: TrainingCandidates, rank: int) -> None:
    """Continue the random draws from a checkpoint; the processes after the first derive their state from it."""
    if rank:
        torch.manual_seed(int(state["torch"].sum()) + rank)
        return
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(state["cuda"])
    version, numbers, gauss = state["python"]
    candidates.random.setstate((version, tuple(numbers), gauss))
    if "seen" in state:
        content, ends = state["pool"].numpy().tobytes(), state["ends"].tolist()
        candidates.pool = [content[start:end].decode() for start, end in itertools.pairwise([0, *ends])]
        candidates.seen = state["seen"]
