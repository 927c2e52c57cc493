"""The pages of a source, whatever its format, each with the place after it."""

import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from polyagents.errors import InputError

from ..streaming.source import Place, Source


class Site(NamedTuple):
    """What the pages of a wiki have in common.

    Attributes:
        language: its code, such as "en".
        hidden: in lower case, the prefixes of links that are no part of the text ("file", "category").
    """

    language: str
    hidden: frozenset[str] = frozenset()


class Page(NamedTuple):
    """One page.

    Attributes:
        id: of the page in its wiki; the same in a dump and in what WikiExtractor makes of it.
        title: as people read it.
        text: its wikitext, or its plain text with a line for each paragraph.
        site: the wiki.
        is_wikitext: which of the two `text` is.
        is_redirect: it only sends readers to another page; `text` is empty.
        is_article: False for talk, templates, categories and so on; `text` is empty.
    """

    id: str
    title: str
    text: str
    site: Site
    is_wikitext: bool
    is_redirect: bool = False
    is_article: bool = True


def open_source(path: str) -> Source:
    """The file, or those that WikiExtractor has left below a folder, in the order of their names.

    Raises:
        InputError: there is nothing of the kind.
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
    """Every page from a place on, and the place after it.

    Raises:
        Damaged: the source cannot be read to its end.
        InputError: it is neither a MediaWiki dump nor WikiExtractor's JSON lines.
    """
    from . import dump, extracted  # they import Page

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
