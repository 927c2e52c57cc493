"""One file of a candidate store: up to 16,384 candidates, whole or absent, mapped into memory when read.

A shard is a safetensors file: `vectors` [n, D], for int8 their `scales` [n], for fp32 their `rest` [n, D]; their
`norms` [n]; the texts one after the other with the `ends` [n] of each, and the `keys` [n, 2] that texts are found by.
Its metadata holds a checksum of all of it. Nothing changes a shard once it is written.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from polyagents.candidate_texts import key_columns, text_key, utf8
from polyagents.errors import InputError

# Candidates in a shard: 12 MB at width 384 in bf16. Enough rows for a matrix product at full speed (measured from
# 4,096 on), and no more work than a killed build may lose.
SHARD = 16_384

STORED_AS = ("bf16", "fp32", "int8")
BYTES = {"bf16": 2, "fp32": 4, "int8": 1}


class Block(NamedTuple):
    """Some stored vectors, as they are scanned.

    Attributes:
        start: index of the first of them.
        vectors: [n, D] in bf16 or int8.
        norms: [n] fp32, lengths of the vectors.
        scales: [n] fp32; an int8 vector stands for itself times its scale.
        rest: [n, D] int16, what makes bf16 vectors fp32 again.
        alive: [n], False where a candidate was deleted; None where none was.
    """

    start: int
    vectors: Tensor
    norms: Tensor
    scales: Tensor | None = None
    rest: Tensor | None = None
    alive: Tensor | None = None

    def exact(self, rows: Tensor | slice) -> Tensor:
        """Some of the vectors, [r, D] in fp32."""
        parts = (None if part is None else part[rows] for part in (self.vectors, self.scales, self.rest))
        return decoded(Encoded(*parts))  # type: ignore[arg-type]

    def to(self, device: torch.device) -> "Block":
        """The same block on another device."""
        return Block(self.start, *(None if part is None else part.to(device) for part in self[1:]))  # type: ignore[arg-type]

    def split(self, rows: int) -> Iterator["Block"]:
        """The block in parts of at most so many candidates."""
        for first in range(0, len(self.vectors), rows):
            parts = (None if part is None else part[first : first + rows] for part in self[1:])
            yield Block(self.start + first, *parts)  # type: ignore[arg-type]


class Encoded(NamedTuple):
    """Vectors as they are stored; the fields are those of `Block`."""

    vectors: Tensor
    scales: Tensor | None = None
    rest: Tensor | None = None


def encoded(vectors: Tensor, stored_as: str) -> Encoded:
    """Vectors [n, D] fp32 -> what is stored.

    fp32 is kept in two halves: the upper 16 bits, rounded, are the number in bf16, and the lower ones what was rounded
    away. A scan reads the first half only, as fast as a store in bf16; a decision reads both.
    """
    if stored_as == "int8":
        scales = vectors.abs().amax(1) / 127
        divisor = torch.where(scales > 0, scales, 1.0)
        return Encoded((vectors / divisor.unsqueeze(1)).round().to(torch.int8), scales)
    if stored_as == "bf16":
        return Encoded(vectors.to(torch.bfloat16))
    bits = vectors.contiguous().view(torch.int32)
    upper = (bits + 0x8000) >> 16
    return Encoded(upper.to(torch.int16).view(torch.bfloat16), None, (bits - (upper << 16)).to(torch.int16))


def decoded(stored: Encoded) -> Tensor:
    """What is stored -> vectors [n, D] fp32."""
    if stored.scales is not None:
        return stored.vectors.float() * stored.scales.unsqueeze(1)
    if stored.rest is None:
        return stored.vectors.float()
    return ((stored.vectors.view(torch.int16).int() << 16) + stored.rest.int()).view(torch.float32)


class Shard:
    """A shard on disk, mapped: opening it reads a kilobyte."""

    def __init__(self, path: str):
        """Map a shard.

        Raises:
            SafetensorError, OSError: it is missing, cut short or no shard.
        """
        self.path = path
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            self.tensors = {name: file.get_tensor(name) for name in names}
            self.checksum = (file.metadata() or {}).get("checksum", "")
        if not self.checksum or not {"vectors", "norms", "text", "ends", "keys"} <= names:
            raise SafetensorError(f"{path} is no shard")

    def __len__(self) -> int:
        return self.tensors["vectors"].size(0)

    def block(self, start: int, alive: Tensor | None) -> Block:
        """Its vectors, as a part of a store where its first candidate has index `start`."""
        get = self.tensors.get
        return Block(start, self.tensors["vectors"], self.tensors["norms"], get("scales"), get("rest"), alive)

    def stored(self) -> Encoded:
        """Its vectors, as they are stored."""
        return Encoded(self.tensors["vectors"], self.tensors.get("scales"), self.tensors.get("rest"))

    def texts(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Some of its texts; nothing else is read."""
        stop = len(self) if stop is None else stop
        ends = [int(self.tensors["ends"][start - 1]) if start else 0, *self.tensors["ends"][start:stop].tolist()]
        content = bytes(self.tensors["text"][ends[0] : ends[-1]].numpy())
        return [content[a - ends[0] : b - ends[0]].decode("utf-8") for a, b in itertools.pairwise(ends)]

    def is_whole(self) -> bool:
        """Whether all of it is as it was written. Reads all of it, 1 GB a second."""
        return checksum(self.path, self.tensors) == self.checksum


def write_shard(path: str, texts: Sequence[str], stored: Encoded) -> None:
    """Write a shard, whole or not at all.

    Raises:
        InputError: the disk is full, or not ours to write to.
    """
    raw = [utf8(text) for text in texts]
    tensors = {
        "norms": torch.linalg.vector_norm(decoded(stored), dim=1),
        "text": torch.frombuffer(bytearray(b"".join(raw)) or bytearray(1), dtype=torch.uint8),
        "ends": torch.tensor([len(text) for text in raw]).cumsum(0),
        "keys": torch.from_numpy(key_columns(b"".join(text_key(text) for text in raw)).copy()),
    }
    tensors |= {name: part.contiguous() for name, part in stored._asdict().items() if part is not None}
    with writing(path) as temporary:
        save_file(tensors, temporary, metadata={"checksum": checksum(path, tensors)})


def checksum(path: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 over the name of a shard, which tells what it was made from, and all its tensors."""
    digest = hashlib.sha256(os.path.basename(path).encode())
    for name in sorted(tensors):
        digest.update(f"{name}:{tuple(tensors[name].shape)};".encode())
        digest.update(tensors[name].contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextlib.contextmanager
def writing(path: str):  # type: ignore[no-untyped-def]
    """A temporary name to write to, that becomes `path` once all of it is on the disk."""
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())  # safetensors writes for the owner alone
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
        reason = "the disk is full" if full else getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{path} cannot be written ({reason}); what was finished before is kept, and the same command goes on from "
            f"there."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)


@contextlib.contextmanager
def writing_folder(folder: str) -> Iterator[str]:
    """A temporary folder to write to, whose files go into `folder` once all are there; the weights come last."""
    temporary = f"{os.path.abspath(folder)}.tmp"  # also what a killed process has left
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        yield temporary
        if not os.path.exists(folder):
            os.rename(temporary, folder)
            return
        for name in sorted(os.listdir(temporary), key=lambda name: name.startswith("model")):
            os.replace(os.path.join(temporary, name), os.path.join(folder, name))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: str, text: str) -> None:
    """Write a small file, whole or not at all."""
    with writing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def umask() -> int:
    """The rights that this process withholds from its files; asking for them means setting them."""
    value = os.umask(0)
    os.umask(value)
    return value
