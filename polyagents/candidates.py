"""Candidate vectors that are kept: on disk for a fixed set, in memory during an evaluation. Never stale.

A vector belongs to the weights that made it. What is stored carries a fingerprint of the weights, the tokenisation and
the texts, and is used only where all of them are still the same (ParlAI keys its caches by file name alone).
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from polyagents.errors import InputError

FILE = "candidates.safetensors"
BLOCK = 2_048  # texts that are tokenised and encoded at once; progress is shown per block

Encode = Callable[[Sequence[str]], Tensor]
"""Texts -> vectors [C, D], fp32, on the CPU."""


def read_candidates(path: str) -> list[str]:
    """The candidates of a UTF-8 text file, one per line; blank lines and repetitions are left out.

    Raises:
        InputError: the file is missing, no text, or empty.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise InputError(
            f"Candidates file {path} cannot be read ({error.strerror}); give an existing text file with one candidate "
            f"per line."
        ) from error
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"Candidates file {path} is not UTF-8 in line {line}; save it as UTF-8.") from error
    texts = list(dict.fromkeys(stripped for line in lines if (stripped := line.strip())))
    if not texts:
        raise InputError(f"Candidates file {path} holds no text; it needs one candidate per line.")
    return texts


def fingerprint(parts: Iterable[str | bytes | Tensor]) -> str:
    """SHA-256 over texts and tensors, in order."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            part = part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if part.numel() else b""
        content = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


@dataclass(frozen=True)
class CandidateStore:
    """A fixed set of candidates: `texts`, and `vectors` [C, D] in fp32."""

    texts: list[str]
    vectors: Tensor

    @classmethod
    def build(cls, texts: list[str], encode: Encode) -> "CandidateStore":
        """Encode all texts, with a progress bar."""
        blocks = []
        with tqdm(total=len(texts), unit=" candidates", desc="Encoding candidates", disable=len(texts) < BLOCK) as bar:
            for start in range(0, len(texts), BLOCK):
                blocks.append(encode(texts[start : start + BLOCK]))
                bar.update(len(blocks[-1]))
        return cls(texts, torch.cat(blocks))

    @classmethod
    def build_or_reuse(cls, texts: list[str], folder: str, model: str, encode: Encode) -> "CandidateStore":
        """The store in `folder` if it was made from these texts by this model, else a new one, written there.

        Args:
            model: fingerprint of everything but the texts that decides the vectors.
        """
        wanted = {"model": model, "texts": fingerprint(texts)}
        if stored_manifest(folder) == wanted:
            return cls.open(folder, model)
        store = cls.build(texts, encode)
        store.save(folder, wanted)
        return store

    @classmethod
    def open(cls, folder: str, model: str) -> "CandidateStore":
        """Read a store.

        Raises:
            InputError: there is none, it is damaged, or other weights made it.
        """
        manifest = stored_manifest(folder)
        if manifest is None:
            raise InputError(f"{folder} holds no usable candidate index (missing or damaged); build it anew.")
        if manifest["model"] != model:
            raise InputError(
                f"{folder} was encoded by another model, or by this one before it was trained further; build it anew."
            )
        with safe_open(os.path.join(folder, FILE), "pt") as file:
            content, ends = bytes(file.get_tensor("text").numpy()), file.get_tensor("ends").tolist()
            vectors = file.get_tensor("vectors")
        starts = [0, *ends[:-1]]
        return cls([content[a:b].decode("utf-8") for a, b in zip(starts, ends, strict=True)], vectors)

    def save(self, folder: str, manifest: dict[str, str]) -> None:
        """Write the store, whole or not at all."""
        encoded = [text.encode("utf-8") for text in self.texts]
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, FILE)
        tensors = {
            "vectors": self.vectors.contiguous(),
            "text": torch.frombuffer(bytearray(b"".join(encoded)), dtype=torch.uint8),
            "ends": torch.tensor([len(text) for text in encoded]).cumsum(0),
        }
        save_file(tensors, f"{path}.tmp", metadata=manifest)
        os.replace(f"{path}.tmp", path)


def stored_manifest(folder: str) -> dict[str, str] | None:
    """The fingerprints that a store was written with; None where there is none that can be read whole."""
    try:
        with safe_open(os.path.join(folder, FILE), "pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return None


class VectorCache:
    """Vectors of candidates already met, for as long as the weights stay as they are.

    In an evaluation the same replies come back as distractors again and again (each about 20 times on ConvAI2).
    """

    LIMIT = 200_000  # vectors; 300 MB at width 384. Chosen here: ten times the distinct replies of the ParlAI tasks

    def __init__(self, encode: Callable[[Sequence[Sequence[int]]], Tensor]):
        self.encode = encode
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.fixed: CandidateStore | None = None  # of --fixed-candidates-path

    def vectors(self, candidates: Sequence[Sequence[int]]) -> Tensor:
        """Token ids of U candidates -> [U, D], on the model's device."""
        keys = [tuple(candidate) for candidate in candidates]
        new = [key for key in dict.fromkeys(keys) if key not in self.known]
        if len(self.known) + len(new) > self.LIMIT:
            self.known.clear()
            new = list(dict.fromkeys(keys))
        if new:
            self.known.update(zip(new, self.encode(new), strict=True))
        return torch.stack([self.known[key] for key in keys])

    def clear(self) -> None:
        """Forget all: the weights have changed."""
        self.known.clear()
        self.fixed = None
