"""Texts as bytes, and what tells texts, files and models apart."""

import hashlib
from collections.abc import Iterable
from typing import BinaryIO

KEY_BYTES = 16  # of a text's hash: at 10 million texts, two of them agree by chance once in 10^24 builds


def utf8(text: str) -> bytes:
    """A text's bytes. A lone surrogate (undecodable bytes on a terminal) has none, and becomes a question mark."""
    return text.encode("utf-8", "replace")


def text_key(text: bytes) -> bytes:
    """What tells texts apart where they are not all in memory: 128 bits of BLAKE2b of the UTF-8 bytes."""
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()


def file_digest(path: str) -> str:
    """SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return stream_digest(file)


def stream_digest(file: BinaryIO) -> str:
    """SHA-256 of what an open file holds from here on."""
    sha = hashlib.sha256()
    while block := file.read(1 << 20):
        sha.update(block)
    return sha.hexdigest()


def fingerprint(parts: Iterable[str | bytes]) -> str:
    """SHA-256 over texts and bytes, in order."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
