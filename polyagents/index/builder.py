"""How the shards of a candidate store come to be: one builder at a time, in parts that a killed build finds again."""

import functools
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from torch import Tensor
from tqdm import tqdm

from polyagents.console import duration, say
from polyagents.errors import InputError
from polyagents.index.shard import SHARD, Shard, write_shard
from polyagents.index.stored_vectors import BYTES, StoredVectors, packed
from polyagents.index.texts import Texts
from polyagents.ranking.two_tower_model import TwoTowerModel

BLOCK = 2_048  # texts that are tokenised and encoded at once; progress is shown per block
SAMPLE = 512  # texts that are encoded to tell how long all will take
ESTIMATED = 4 * BLOCK  # candidates from which on a build is long enough to be told about before


Encode = Callable[[Sequence[str]], Tensor]
"""Texts -> vectors [C, D], fp32, on the CPU."""


@dataclass(frozen=True)
class Worker:
    """One of several processes that build a store together.

    Attributes:
        rank: 0 to world - 1; writes every `world`-th shard. 0 writes the manifest.
        wait: returns when all workers have called it.
    """

    rank: int = 0
    world: int = 1
    wait: Callable[[], None] = lambda: None


ALONE = Worker()
"""The only one."""


@dataclass(frozen=True)
class CandidateEncoder:
    """What a store's vectors are made with.

    Attributes:
        model: fingerprint of everything but the texts that decides the vectors.
        encode: texts -> vectors.
        stored_as: bf16, fp32 or int8.
    """

    model: str
    encode: Encode
    stored_as: str

    @classmethod
    def of(cls, model: TwoTowerModel, stored_as: str = "bf16") -> "CandidateEncoder":
        """The encoder of a model's candidates; vectors that are rounded anyway are made in low precision."""
        return cls(
            model.fingerprint(), functools.partial(model.encode_texts, low_precision=stored_as != "fp32"), stored_as
        )

    def name(self, place: int, keys: bytes) -> str:
        """The file of the shard at a place, by the texts (their keys) that it holds."""
        digest = hashlib.sha256(f"{self.model}:{self.stored_as}:".encode() + keys).hexdigest()[:16]
        return f"{place:06d}-{digest}.safetensors"


def write_shards(
    folder: str, texts: Texts, encoder: CandidateEncoder, worker: Worker, first: int = 0, last: Shard | None = None
) -> list[tuple[str, int]]:
    """Encode texts into shards, except those that an earlier build has finished.

    Args:
        folder: where they are written.
        texts: distinct.
        encoder: what encodes them.
        worker: whose part is ours.
        first: place of the first new shard.
        last: a shard that is not full, whose candidates go first into the first new one, as they are.

    Returns:
        Name and number of candidates of every shard, those of other workers included.
    """
    kept = 0 if last is None else len(last)
    total = kept + len(texts)
    plan = []
    for place, start in enumerate(range(0, total, SHARD), first):
        stop = min(start + SHARD, total)
        keys = texts.keys[max(start - kept, 0) : stop - kept].tobytes()
        if start < kept and last is not None:
            keys = last.tensors["keys"].numpy().tobytes() + keys
        plan.append((encoder.name(place, keys), start, stop))
    mine = plan[worker.rank :: worker.world]
    todo = [part for part in mine if not is_finished(os.path.join(folder, part[0]))]
    size = sum(stop - start for _, start, stop in mine)
    left = sum(stop - start for _, start, stop in todo)
    if left >= ESTIMATED:
        announce(folder, texts, encoder, left, size - left, worker)
    label = "Encoding candidates" if worker.world == 1 else f"Encoding candidates ({worker.rank + 1}/{worker.world})"
    with tqdm(total=size, initial=size - left, unit=" candidates", desc=label, disable=left < BLOCK) as bar:
        for name, start, stop in todo:
            own = texts.part(max(start - kept, 0), stop - kept)
            parts = [packed(vectors, encoder.stored_as) for vectors in vectors_in_blocks(own, encoder.encode, bar)]
            if start < kept and last is not None:
                own, parts = [*last.texts(), *own], [last.stored(), *parts]
                bar.update(kept)
            write_shard(os.path.join(folder, name), own, concatenated(parts))
    return [(name, stop - start) for name, start, stop in plan]


def vectors_in_blocks(texts: Sequence[str], encode: Encode, bar: tqdm) -> Iterator[Tensor]:
    """Texts -> their vectors, some thousands at a time, with progress."""
    for start in range(0, len(texts), BLOCK):
        part = texts[start : start + BLOCK]
        yield encode(part)
        bar.update(len(part))


def concatenated(parts: Sequence[StoredVectors]) -> StoredVectors:
    """Several, one after the other."""
    columns = zip(*parts, strict=True)
    return StoredVectors(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]


def is_finished(path: str) -> bool:
    """Whether an earlier build has left this shard, whole."""
    try:
        return Shard(path).is_whole()
    except (OSError, SafetensorError):
        return False


def announce(folder: str, texts: Texts, encoder: CandidateEncoder, left: int, done: int, worker: Worker) -> None:
    """Say what is to come: how much, how large, how long. Measured on a sample of the texts, evenly drawn.

    Raises:
        InputError: it will not fit on the disk.
    """
    places = range(0, len(texts), max(len(texts) // SAMPLE, 1))
    sample = [texts.part(place, place + 1)[0] for place in places][:SAMPLE]
    encoder.encode(sample)  # the first call of all is several times slower
    begin = time.perf_counter()
    width = encoder.encode(sample).size(1)
    seconds = (time.perf_counter() - begin) / len(sample) * left
    characters = sum(len(text.encode("utf-8")) for text in sample) / len(sample)
    # Beside vector and text: norm, scale, end and key of each (shard.py).
    size = left * (width * BYTES[encoder.stored_as] + characters + 32)
    free = shutil.disk_usage(folder).free
    if size * worker.world > free:
        raise InputError(
            f"{folder} would take {size * worker.world / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free; choose another "
            f"folder, or --stored-as int8."
        )
    repeated = f" ({texts.repeated:,} repetitions left out)" if texts.repeated else ""
    before = f", {done:,} are there already" if done else ""
    say(f"{left:,} candidates to encode{repeated}{before}: {size / 1e9:.2f} GB, about {duration(seconds)}.")
