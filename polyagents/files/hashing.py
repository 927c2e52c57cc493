"""Texts as bytes, and what tells texts, files and models apart."""

import hashlib
from collections.abc import Iterable

from polyagents.errors import InputError

KEY_BYTES = 16  # of a text's hash: at 10 million texts, two of them agree by chance once in 10^24 builds


def utf8(text: str) -> bytes:
    """A text's bytes. A lone surrogate (undecodable bytes on a terminal) has none, and becomes a question mark."""
    return text.encode("utf-8", "replace")


def text_key(text: bytes) -> bytes:
    """What tells texts apart where they are not all in memory: 128 bits of BLAKE2b of the UTF-8 bytes."""
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()


def file_digest(path: str) -> str:
    """SHA-256 of a file: a `FileTexts` of the same content has it as its `digest`."""
    try:
        sha = hashlib.sha256()
        with open(path, "rb") as file:
            if not file.seekable():
                raise not_a_file(path)
            while block := file.read(1 << 20):
                sha.update(block)
        return sha.hexdigest()
    except OSError as error:
        raise cannot_read(path, error) from error


def not_a_file(path: str) -> InputError:
    """The sentence for a pipe."""
    return InputError(f"Candidates file {path} is a stream, and it is read more than once; write it to a file first.")


def cannot_read(path: str, error: OSError) -> InputError:
    """The sentence for a candidates file that is not there."""
    return InputError(
        f"Candidates file {path} cannot be read ({error.strerror}); give an existing text file with one candidate "
        f"per line."
    )


def fingerprint(parts: Iterable[str | bytes]) -> str:
    """SHA-256 over texts and bytes, in order."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
