"""The files of a data set of intents: downloaded if they are missing, and the examples that are taken of them."""

import os
import random
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from polyagents.errors import InputError
from polyagents.files.locks import exclusive_folder
from polyagents.zoo.download import download

PARTS = 5  # of a training set without a valid split, by a checksum of the text: one is valid


class Example(NamedTuple):
    """A text in one line, and its intent in words."""

    text: str
    intent: str

    @classmethod
    def of(cls, text: str, intent: str) -> "Example":
        """Make an example of the cells of a file."""
        return cls(" ".join(text.split()), " ".join(intent.replace("_", " ").split()))


class PublicFile(NamedTuple):
    """A published file: its address, which names a commit, and the SHA-256 of its content."""

    url: str
    sha256: str


def obtain(files: Iterable[PublicFile], folder: str) -> str:
    """Download the files that a folder lacks, once for all processes that ask together.

    Raises:
        InputError: a file cannot be downloaded, or is not the published one.
    """
    paths = {file: os.path.join(folder, os.path.basename(file.url)) for file in files}
    if not all(map(os.path.exists, paths.values())):
        # Whatever else is in the folder of the data set's name stays: only files that are missing are written.
        with exclusive_folder(folder, "intents", "--datapath", lambda _: True):
            for file, path in paths.items():
                if not os.path.exists(path):
                    download(file.url, path, file.sha256)
    return folder


def is_held_out(example: Example) -> bool:
    """Return whether a training example is in valid, whatever else the file holds."""
    return zlib.crc32(example.text.encode()) % PARTS == 0


def few(examples: Sequence[Example], count: int, seed: int) -> list[Example]:
    """Draw as many examples of each intent; the draws of one intent do not depend on the others.

    Raises:
        InputError: an intent has fewer.
    """
    by_intent: dict[str, list[Example]] = {}
    for example in examples:
        by_intent.setdefault(example.intent, []).append(example)
    rarest = min(by_intent, key=lambda intent: len(by_intent[intent]))
    if len(by_intent[rarest]) < count:
        raise InputError(
            f"--few-shot {count}: the intent {rarest!r} has {len(by_intent[rarest])} training examples; give a smaller "
            f"number."
        )
    return [one for intent, own in by_intent.items() for one in random.Random(f"{seed} {intent}").sample(own, count)]
