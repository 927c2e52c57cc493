"""Builds the shards of a candidate store, in parts that a resumed build finds again; one builder works at a time."""

import functools
import hashlib
import os
import shutil
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor

from polyagents.console import Bar, duration, file_size, number_of, say
from polyagents.errors import InputError
from polyagents.index.columns import Columns
from polyagents.index.shard import SHARD, Shard, row_bytes, write_shard
from polyagents.index.stored_vectors import StoredVectors, packed
from polyagents.index.texts import Texts
from polyagents.ranking.two_tower_model import TwoTowerModel

BLOCK = 2_048  # texts that are tokenised and encoded at once; progress is shown per block
SAMPLE = 512  # texts that are encoded to estimate how long all will take
SEEN_AFTER = 60.0  # seconds that a network file system may take to show a file of another machine
ESTIMATED = 4 * BLOCK  # candidates from which on a build is long enough to be announced


Encode = Callable[[Sequence[str]], Tensor]
"""Texts -> vectors [C, D], fp32, on the CPU."""


@dataclass(frozen=True)
class Worker:
    """One of several processes that build a store together.

    Attributes:
        rank: 0 to world - 1; writes every `world`-th shard. Rank 0 writes the manifest.
        wait: returns when all workers have called it.
    """

    rank: int = 0
    world: int = 1
    wait: Callable[[], None] = lambda: None


ALONE = Worker()


class BuildPart(NamedTuple):
    """The texts of a build from `start` to `stop`, and the file of the shard that they become, if they do."""

    start: int
    stop: int
    name: str = ""


class Cluster(Protocol):
    """Machines that have the model, and encode parts of a build."""

    def map(
        self, work: Callable[[TwoTowerModel, Texts, BuildPart], None], texts: Texts, parts: Sequence[BuildPart]
    ) -> Iterator[BuildPart]:
        """Do work with each of the parts, on any machine, and yield each as soon as it is done.

        A part may be done twice, which must do no harm. An InputError says if one cannot be done; finished ones stay.
        """
        ...


@dataclass(frozen=True)
class CandidateEncoder:
    """The encoder of a store's vectors.

    Attributes:
        model: the fingerprint of all that determines the vectors but the texts.
        stored_as: bf16, fp32 or int8.
    """

    model: str
    encode: Encode
    stored_as: str

    @classmethod
    def of(cls, model: TwoTowerModel, stored_as: str = "bf16") -> "CandidateEncoder":
        """Return the encoder of a model's candidates; vectors that are rounded anyway are computed in low precision."""
        encode = functools.partial(model.encode_texts, low_precision=stored_as != "fp32")
        return cls(model.fingerprint(), encode, stored_as)

    def name(self, place: int, keys: bytes) -> str:
        """Return the file name of a shard, which depends on the model and on its texts, by their keys in a row."""
        digest = hashlib.sha256(f"{self.model}:{self.stored_as}:".encode() + keys).hexdigest()[:16]
        return f"{place:06d}-{digest}.safetensors"


def write_shards(
    folder: str,
    texts: Texts,
    encoder: CandidateEncoder,
    worker: Worker,
    first: int = 0,
    last: Shard | None = None,
    cluster: Cluster | None = None,
) -> list[tuple[str, int]]:
    """Encode texts into shards, except those that an earlier build has finished.

    Args:
        worker: decides which shards this process writes.
        first: the place of the first new shard.
        last: a shard that is not full, whose candidates are copied to the first new one.
        cluster: machines that do the work, instead of this one; they share the folder.

    Returns:
        Name and number of candidates of every shard, including other workers'.
    """
    kept = 0 if last is None else len(last)
    total = kept + len(texts)
    plan = []
    for place, start in enumerate(range(0, total, SHARD), first):
        stop = min(start + SHARD, total)
        keys = texts.contents[max(start - kept, 0) : stop - kept].tobytes()
        if start < kept and last is not None:
            keys = last.mark + keys
        plan.append(BuildPart(start, stop, encoder.name(place, keys)))
    mine = plan[worker.rank :: worker.world]
    todo = [part for part in mine if not is_finished_shard(os.path.join(folder, part.name))]
    size, left = (sum(part.stop - part.start for part in parts) for parts in (mine, todo))
    if left >= ESTIMATED:
        announce(folder, texts, encoder, left, size - left, worker, alone=cluster is None)
    label = "Encoding candidates" if worker.world == 1 else f"Encoding candidates ({worker.rank + 1}/{worker.world})"
    with Bar(total=size, initial=size - left, unit=" candidates", desc=label, disable=left < BLOCK) as bar:
        if cluster is not None:
            for part in cluster.map(ShardWork(os.path.abspath(folder), encoder.model, encoder.stored_as), texts, todo):
                bar.update(part.stop - part.start)
            require_files(folder, [part.name for part in todo])
            todo = []
        for start, stop, name in todo:
            part = BuildPart(max(start - kept, 0), stop - kept)
            encode_shard(os.path.join(folder, name), texts, part, encoder, bar, last if start < kept else None)
    return [(part.name, part.stop - part.start) for part in plan]


def encode_shard(
    path: str, texts: Texts, part: BuildPart, encoder: CandidateEncoder, bar: Bar, last: Shard | None = None
) -> None:
    """Encode a part of the texts and write its shard; `last` is one that is not full, whose candidates come first."""
    own, records = texts.part(part.start, part.stop), texts.records(part.start, part.stop)
    parts = [packed(vectors, encoder.stored_as) for vectors in vectors_in_blocks(own, encoder.encode, bar)]
    if last is not None:
        own, parts = [*last.texts(), *own], [last.stored(), *parts]
        records = None if records is None else [*(last.records() or ()), *records]
        bar.update(len(last))
    columns = zip(*parts, strict=True)
    joined = (None if column[0] is None else torch.cat(column) for column in columns)
    described = None if records is None else Columns.of(records, texts.fields or {})
    write_shard(path, own, StoredVectors(*joined), described)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ShardWork:
    """The work of a `Cluster` that writes a part of a build as a shard.

    Attributes:
        folder: the store's, at the same path on every machine.
        model: the fingerprint of the model that has to encode.
    """

    folder: str
    model: str
    stored_as: str

    def __call__(self, model: TwoTowerModel, texts: Texts, part: BuildPart) -> None:
        """Write the shard, unless it is there; an InputError says if the machine has another model or cannot write."""
        path = os.path.join(self.folder, part.name)
        if is_finished_shard(path):  # by a machine that was killed before it could report it
            return
        encoder = CandidateEncoder.of(model, self.stored_as)
        require_model(encoder.model, self.model)
        with Bar(disable=True) as bar:
            encode_shard(path, texts, part, encoder, bar)


def require_files(folder: str, names: Sequence[str]) -> None:
    """Wait until this machine sees files that other machines have written; refuse if some do not appear."""
    deadline = time.monotonic() + SEEN_AFTER
    while missing := set(names).difference(os.listdir(folder)):  # which a network file system looks up again
        if time.monotonic() > deadline:
            raise InputError(
                f"{os.path.join(folder, min(missing))} was written by another machine and is not visible here; give an "
                f"--index-dir that all machines of the cluster share."
            )
        time.sleep(1)


def require_model(found: str, wanted: str) -> None:
    """Refuse, with an InputError, a machine of a cluster whose model has another fingerprint."""
    if found != wanted:
        raise InputError(
            f"{socket.gethostname()} has another model under that name; give a --model-file that is the same file on "
            f"every machine of the cluster."
        )


def vectors_in_blocks(texts: Sequence[str], encode: Encode, bar: Bar) -> Iterator[Tensor]:
    """Encode texts in blocks of some thousands, with progress, and yield the vectors [n, D] of each."""
    blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
    for vectors in results(encode, blocks):
        yield vectors
        bar.update(len(vectors))


def results(encode: Encode, blocks: Iterable[Sequence[str]]) -> Iterator[Tensor]:
    """Yield the vectors of blocks; two at a time on a GPU, so that one is tokenised while the other is computed."""
    if not torch.cuda.is_available():  # tokenising and computing would take the same cores
        yield from map(encode, blocks)
        return
    with ThreadPoolExecutor(2) as threads:
        coming: deque[Future[Tensor]] = deque()
        for block in blocks:
            coming.append(threads.submit(encode, block))
            if len(coming) == 2:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def encoded(texts: Sequence[str], encode: Encode, show_progress: bool) -> Tensor:
    """Encode one text or more block by block: [C, D]."""
    with Bar(total=len(texts), unit=" candidates", desc="Encoding candidates", disable=not show_progress) as bar:
        return torch.cat(list(vectors_in_blocks(texts, encode, bar)))


def seconds_to_encode(texts: Sequence[str], encode: Encode) -> tuple[float, int]:
    """Return how long encoding takes for a text, measured on some, and the width of the vectors."""
    encode(texts)  # the first call of all is several times slower
    begin = time.perf_counter()
    width = encode(texts).size(1)
    return (time.perf_counter() - begin) / len(texts), width


def is_finished_shard(path: str) -> bool:
    """Tell whether an earlier build has written this shard completely."""
    try:
        return Shard(path).is_whole()
    except (OSError, SafetensorError):
        return False


def announce(
    folder: str, texts: Texts, encoder: CandidateEncoder, left: int, done: int, worker: Worker, alone: bool = True
) -> None:
    """Say how many texts are left, how large they will be, and how long a machine alone takes, measured on a sample.

    An InputError says if they will not fit on the disk.
    """
    places = range(0, len(texts), max(len(texts) // SAMPLE, 1))[:SAMPLE]
    sample = [texts.part(place, place + 1)[0] for place in places]
    records = [one for place in places for one in texts.records(place, place + 1) or ()]  # none of plain lines
    each, width = seconds_to_encode(sample, encoder.encode)
    seconds, size = each * left, left * row_bytes(sample, width, encoder.stored_as, records or None, texts.fields)
    free = shutil.disk_usage(folder).free
    if size * worker.world > free:
        raise InputError(
            f"{folder} would take {file_size(size * worker.world)}, and {file_size(free)} are free; choose another "
            f"folder, or --stored-as int8."
        )
    repeated = f" ({number_of(texts.repeated, 'repetition')} left out)" if texts.repeated else ""
    before = f", {done:,} encoded before" if done else ""
    here = "" if alone else " on this machine alone"
    candidates = number_of(left, "candidate")
    say(f"{candidates} to encode{repeated}{before}: {file_size(size)}, about {duration(seconds)}{here}.")
