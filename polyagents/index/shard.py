"""One file of a candidate store: up to 16,384 candidates, written atomically, mapped into memory when read.

A shard is a safetensors file: `vectors` [n, D], for int8 their `scales` [n], for fp32 their `rest` [n, D]; their
`norms` [n]; for bf16 and fp32 a coarse copy in 8 bits (`coarse` [n, D], `coarse_scales` [n], `coarse_lost` [n]), which
shards of version 0.1.0 lack; the texts one after the other with the `ends` [n] of each, and the `keys` [n, 2] by which
texts are found: of its id, which is the text itself unless the candidates have ids and fields (columns.py).
Its metadata holds a checksum of all of it. A shard never changes once it is written.
"""

import hashlib
import os
from collections.abc import Sequence

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from polyagents.errors import InputError
from polyagents.files.hashing import text_key, utf8
from polyagents.files.lines import opened
from polyagents.files.tensors import write_tensors
from polyagents.index.columns import Columns, Record, Strings
from polyagents.index.filters import Fields
from polyagents.index.stored_vectors import Coarse, StoredVectors, VectorBlock, packed, unpacked
from polyagents.index.texts import key_columns

# Candidates in a shard: 12 MB at width 384 in bf16. Enough rows for a matrix product at full speed (measured from
# 4,096 on), and no more work than a killed build may lose.
SHARD = 16_384
COARSE = ("coarse", "coarse_scales", "coarse_lost")
# What a shard may hold, and as what.
TENSORS = {
    "vectors": (torch.bfloat16, torch.int8),
    "rest": (torch.int16,),
    "scales": (torch.float32,),
    "norms": (torch.float32,),
    "coarse": (torch.int8,),
    "coarse_scales": (torch.float32,),
    "coarse_lost": (torch.float32,),
    "text": (torch.uint8,),
    "ends": (torch.int64,),
    "keys": (torch.int64,),
}


class Shard:
    """A shard on disk, mapped into memory: opening it reads a kilobyte."""

    def __init__(self, path: str):
        """Map a shard into memory; a SafetensorError or an OSError says if it is missing, truncated or no shard."""
        self.path = path
        with opened(path), safe_open(path, "pt") as file:
            names = set(file.keys())
            self.tensors = {name: file.get_tensor(name) for name in names}
            self.checksum = (file.metadata() or {}).get("checksum", "")
        try:
            self.columns = Columns.among(self.tensors)
        except ValueError as error:
            raise SafetensorError(f"{path} has {error}") from error
        own = {name: one for name, one in self.tensors.items() if name in TENSORS}
        others = {} if self.columns is None else self.columns.tensors
        if not self.checksum or self.tensors.keys() != own.keys() | others.keys() or not is_shard(own):
            raise SafetensorError(f"{path} is not a shard")
        if self.columns is not None and len(self.columns) != len(self):
            raise SafetensorError(f"{path} has another number of ids than of vectors")

    def __len__(self) -> int:
        return len(self.tensors["vectors"])

    @property
    def name(self) -> str:
        """The name of its file."""
        return os.path.basename(self.path)

    def block(self, start: int, alive: Tensor | None) -> VectorBlock:
        """Return its vectors as a block of a store, from the index `start` on; for `alive` see `VectorBlock`."""
        get = self.tensors.get
        coarse = Coarse(*(self.tensors[name] for name in COARSE)) if "coarse" in self.tensors else None
        return VectorBlock(
            start, self.tensors["vectors"], self.tensors["norms"], get("scales"), get("rest"), alive, coarse
        )

    @property
    def form(self) -> tuple[str, int]:
        """The format in which its vectors are stored, and their width."""
        kind = "int8" if "scales" in self.tensors else "fp32" if "rest" in self.tensors else "bf16"
        return kind, self.tensors["vectors"].size(1)

    def stored(self) -> StoredVectors:
        """Its vectors, as they are stored."""
        return StoredVectors(self.tensors["vectors"], self.tensors.get("scales"), self.tensors.get("rest"))

    def texts(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Return its texts from one place to another, without the last; nothing else is read.

        Raises:
            InputError: a text is not UTF-8, so another program has written it.
        """
        raw = Strings(self.tensors["text"], self.tensors["ends"]).part(start, len(self) if stop is None else stop)
        try:
            return [one.decode("utf-8") for one in raw]
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path} holds a text that is not UTF-8, which index build does not write; build the index again."
            ) from error

    def records(self, start: int = 0, stop: int | None = None) -> list[Record] | None:
        """Return its candidates from one place to another with ids and fields; None for plain lines."""
        if (columns := self.columns) is None:
            return None
        return columns.records(self.texts(start, stop), start)

    @property
    def mark(self) -> bytes:
        """Return what the name of a shard that begins with these candidates depends on."""
        return bytes(self.tensors["keys"].numpy().tobytes()) if self.columns is None else self.checksum.encode()

    def is_whole(self) -> bool:
        """Tell whether it is unchanged; this reads all of it, at about 1 GB a second."""
        return bool(checksum(self.path, self.tensors) == self.checksum)


def is_shard(tensors: dict[str, Tensor]) -> bool:
    """Tell whether these are a shard's tensors, of the right shapes and types, with texts that end within the file."""
    if not {"vectors", "norms", "text", "ends", "keys"} <= tensors.keys() <= TENSORS.keys():
        return False
    vectors, ends, text = (tensors[name] for name in ("vectors", "ends", "text"))
    if vectors.ndim != 2 or 0 in vectors.shape or text.ndim != 1:
        return False
    n, width = vectors.shape
    wide = dict.fromkeys(("vectors", "rest", "coarse"), (n, width))
    shapes = {**wide, "keys": (n, 2), "text": tuple(text.shape)}
    for name, tensor in tensors.items():
        if tensor.shape != shapes.get(name, (n,)) or tensor.dtype not in TENSORS[name]:
            return False
    if ("scales" in tensors) != (vectors.dtype == torch.int8) or ("rest" in tensors and "scales" in tensors):
        return False
    if len(tensors.keys() & set(COARSE)) not in (0, len(COARSE)) or {"coarse", "scales"} <= tensors.keys():
        return False
    return Strings(text, ends).is_sound()


def write_shard(path: str, texts: Sequence[str], stored: StoredVectors, columns: Columns | None = None) -> None:
    """Write a shard atomically, with `columns` (None for plain lines); an InputError says if it cannot be."""
    tensors = shard_tensors(texts, stored, columns)
    write_tensors(path, tensors, {"checksum": checksum(path, tensors)})


def shard_tensors(texts: Sequence[str], stored: StoredVectors, columns: Columns | None) -> dict[str, Tensor]:
    """Return all that a shard holds of its candidates; for the arguments see `write_shard`."""
    raw = [utf8(text) for text in texts]
    packed_texts = Strings.of(raw)
    ids = raw if columns is None else columns.ids.part(0, len(columns))
    tensors = {
        "norms": torch.linalg.vector_norm(unpacked(stored), dim=1),
        "text": packed_texts.content,
        "ends": packed_texts.ends,
        "keys": torch.from_numpy(key_columns(b"".join(map(text_key, ids))).copy()),
    }
    tensors |= {} if columns is None else columns.tensors
    tensors |= {name: part.contiguous() for name, part in stored._asdict().items() if part is not None}
    if (coarse := Coarse.of(stored)) is not None:
        tensors |= dict(zip(COARSE, coarse, strict=True))
    return tensors


def row_bytes(
    texts: Sequence[str],
    width: int,
    stored_as: str,
    records: Sequence[Record] | None = None,
    fields: Fields | None = None,
) -> float:
    """Count the bytes that a candidate takes in a shard, by what a shard of these would hold.

    A shard has each different text of a field once, so of fewer candidates than a shard has, the figure may be too
    high.

    Args:
        texts: one or more; those beyond a full shard are not looked at.
        records: the same candidates with ids and fields; None for plain lines.
    """
    vectors = torch.empty(len(texts[:SHARD]), width, device="meta")  # which has a size, and no numbers
    columns = None if records is None else Columns.of(records[:SHARD], fields or {})
    tensors = shard_tensors(texts[:SHARD], packed(vectors, stored_as), columns)
    return sum(tensor.nbytes for tensor in tensors.values()) / len(vectors)


def checksum(path: str, tensors: dict[str, Tensor]) -> str:
    """Compute the SHA-256 of a shard's tensors and of its name, which depends on its model and texts."""
    digest = hashlib.sha256(os.path.basename(path).encode())
    for name in sorted(tensors):
        digest.update(f"{name}:{tuple(tensors[name].shape)};".encode())
        digest.update(tensors[name].contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
