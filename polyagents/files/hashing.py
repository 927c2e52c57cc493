"""Digests, which identify texts, files and models."""

import hashlib
from collections.abc import Iterable
from typing import BinaryIO

from polyagents.files.lines import opened

KEY_BYTES = 16  # of a text's hash: at 10 million texts, two of them agree by chance once in 10^24 builds


def utf8(text: str) -> bytes:
    """Encode a text as UTF-8; a lone surrogate (undecodable bytes on a terminal) becomes a question mark."""
    return text.encode("utf-8", "replace")


def text_key(text: bytes) -> bytes:
    """Return a key that identifies a text if not all texts are in memory: 128 bits of BLAKE2b of its UTF-8 bytes."""
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file; an OSError says why it cannot be read."""
    with opened(path) as file:
        return stream_digest(file)


def stream_digest(file: BinaryIO) -> str:
    """Return the SHA-256 of an open file's content from the current position on."""
    sha = hashlib.sha256()
    while block := file.read(1 << 20):
        sha.update(block)
    return sha.hexdigest()


def fingerprint(parts: Iterable[str | bytes | memoryview]) -> str:
    """Return the SHA-256 of texts and bytes, in their order."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()
