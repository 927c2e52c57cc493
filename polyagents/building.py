"""How the shards of a candidate store come to be: one builder at a time, in parts that a killed build finds again."""

import contextlib
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import filelock
import torch
from safetensors import SafetensorError
from torch import Tensor
from tqdm import tqdm

from polyagents.candidate_texts import Texts
from polyagents.errors import InputError
from polyagents.shards import BYTES, SHARD, Encoded, Shard, encoded, write_shard

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


@dataclass(frozen=True)
class Maker:
    """What a store's vectors are made with.

    Attributes:
        model: fingerprint of everything but the texts that decides the vectors.
        encode: texts -> vectors.
        stored_as: bf16, fp32 or int8.
    """

    model: str
    encode: Encode
    stored_as: str

    def name(self, place: int, keys: bytes) -> str:
        """The file of the shard at a place, by the texts (their keys) that it holds."""
        digest = hashlib.sha256(f"{self.model}:{self.stored_as}:".encode() + keys).hexdigest()[:16]
        return f"{place:06d}-{digest}.safetensors"


@contextlib.contextmanager
def alone(folder: str, flag: str = "--index-dir") -> Iterator[None]:
    """Be the only builder in a folder; wait for another one to end. The system frees the lock of a killed process."""
    try:
        os.makedirs(folder, exist_ok=True)
        lock = acquired(os.path.join(folder, ".lock"), f"{folder} is being built")
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written to ({error.strerror}); give a folder of your own with {flag}."
        ) from error
    with lock:
        yield


def acquired(path: str, busy: str) -> contextlib.AbstractContextManager[filelock.BaseFileLock]:
    """A lock file that nobody else holds from now on; it is released at the end of its `with`.

    Args:
        path: of the file, in a folder that exists.
        busy: what another process that holds it is doing, for whoever waits.

    Raises:
        OSError: the file cannot be written.
    """
    lock = filelock.FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        say(f"{busy} by another process; waiting for it to end.")
        return lock.acquire()


def write_shards(
    folder: str, texts: Texts, maker: Maker, worker: Worker, first: int = 0, last: Shard | None = None
) -> list[tuple[str, int]]:
    """Encode texts into shards, except those that an earlier build has finished.

    Args:
        folder: where they are written.
        texts: distinct.
        maker: what encodes them.
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
        plan.append((maker.name(place, keys), start, stop))
    mine = plan[worker.rank :: worker.world]
    todo = [part for part in mine if not is_finished(os.path.join(folder, part[0]))]
    size = sum(stop - start for _, start, stop in mine)
    left = sum(stop - start for _, start, stop in todo)
    if left >= ESTIMATED:
        announce(folder, texts, maker, left, size - left, worker)
    label = "Encoding candidates" if worker.world == 1 else f"Encoding candidates ({worker.rank + 1}/{worker.world})"
    with tqdm(total=size, initial=size - left, unit=" candidates", desc=label, disable=left < BLOCK) as bar:
        for name, start, stop in todo:
            own = texts.part(max(start - kept, 0), stop - kept)
            parts = [encoded(vectors, maker.stored_as) for vectors in vectors_in_blocks(own, maker.encode, bar)]
            if start < kept and last is not None:
                own, parts = [*last.texts(), *own], [last.stored(), *parts]
                bar.update(kept)
            write_shard(os.path.join(folder, name), own, joined(parts))
    return [(name, stop - start) for name, start, stop in plan]


def vectors_in_blocks(texts: Sequence[str], encode: Encode, bar: tqdm) -> Iterator[Tensor]:
    """Texts -> their vectors, some thousands at a time, with progress."""
    for start in range(0, len(texts), BLOCK):
        part = texts[start : start + BLOCK]
        yield encode(part)
        bar.update(len(part))


def joined(parts: Sequence[Encoded]) -> Encoded:
    """Several, one after the other."""
    columns = zip(*parts, strict=True)
    return Encoded(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]


def is_finished(path: str) -> bool:
    """Whether an earlier build has left this shard, whole."""
    try:
        return Shard(path).is_whole()
    except (OSError, SafetensorError):
        return False


def announce(folder: str, texts: Texts, maker: Maker, left: int, done: int, worker: Worker) -> None:
    """Say what is to come: how much, how large, how long. Measured on a sample of the texts, evenly drawn.

    Raises:
        InputError: it will not fit on the disk.
    """
    places = range(0, len(texts), max(len(texts) // SAMPLE, 1))
    sample = [texts.part(place, place + 1)[0] for place in places][:SAMPLE]
    maker.encode(sample)  # the first call of all is several times slower
    begin = time.perf_counter()
    width = maker.encode(sample).size(1)
    seconds = (time.perf_counter() - begin) / len(sample) * left
    characters = sum(len(text.encode("utf-8")) for text in sample) / len(sample)
    # Beside vector and text: norm, scale, end and key of each (shards.py).
    size = left * (width * BYTES[maker.stored_as] + characters + 32)
    free = shutil.disk_usage(folder).free
    if size * worker.world > free:
        raise InputError(
            f"{folder} would take {size * worker.world / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free; choose another "
            f"folder, or --stored-as int8."
        )
    repeated = f" ({texts.repeated:,} repetitions left out)" if texts.repeated else ""
    before = f", {done:,} are there already" if done else ""
    say(f"{left:,} candidates to encode{repeated}{before}: {size / 1e9:.2f} GB, about {duration(seconds)}.")


def duration(seconds: float) -> str:
    """41 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def say(sentence: str) -> None:
    """To standard error, where progress goes: standard output is for results."""
    tqdm.write(sentence, file=sys.stderr)
