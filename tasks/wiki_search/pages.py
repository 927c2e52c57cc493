"""The pages of a source, independent of its format, each with the position after it."""

import itertools
import os
from collections.abc import Iterator

from polyagents.errors import InputError

from ..streaming.source import Place, Source
from . import dump, extracted
from .page import Page


def open_source(path: str) -> Source:
    """Open the file, or the files of WikiExtractor below a folder, in the order of their names.

    Raises:
        InputError: there is no such file.
    """
    if not os.path.isdir(path):
        return Source([path])
    found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    paths = sorted(file for file in found if os.path.basename(file).startswith("wiki_"))
    if not paths:
        raise InputError(
            f"--source {path} holds no file wiki_00; give a folder that WikiExtractor --json wrote, or a file."
        )
    return Source(paths)


def pages_of(source: Source, start: Place) -> Iterator[tuple[Page, Place]]:
    """Yield every page from a position on, and the position after it.

    Raises:
        Damaged: the source cannot be read to its end.
        InputError: it is neither a MediaWiki dump nor WikiExtractor's JSON lines.
    """
    first = next((piece.data for piece in source.pieces(Place()) if piece.data.strip()), b"")
    head = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"<doc "):
        raise InputError(f"{source.paths[0]} is WikiExtractor's text; run WikiExtractor with --json.")
    if head.startswith(b"{"):
        files = range(start.file, len(source.paths))
        starts = itertools.chain([start], (Place(file) for file in files[1:]))
        return itertools.chain.from_iterable(extracted.pages(source, place) for place in starts)
    if head.startswith(b"<"):
        return dump.pages(source, start)
    raise InputError(
        f"{source.paths[0]} is neither a MediaWiki dump (pages-articles.xml.bz2) nor WikiExtractor's JSON lines."
    )
