"""The pages of a source, independent of its format, each with the position after it."""

import html
import itertools
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from polyagents.errors import InputError
from polyagents.files.json_files import parse_json

from ..streaming.source import Place, Source, source_lines
from . import dump
from .page import Page, Site


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
        return itertools.chain.from_iterable(extracted_pages(source, place) for place in starts)
    if head.startswith(b"<"):
        return dump.pages(source, start)
    raise InputError(
        f"{source.paths[0]} is neither a MediaWiki dump (pages-articles.xml.bz2) nor WikiExtractor's JSON lines."
    )


def extracted_pages(source: Source, start: Place) -> Iterator[tuple[Page, Place]]:
    """Yield every article of one of WikiExtractor's files from a position on, and the position after it.

    Its lines (https://github.com/attardi/wikiextractor; ParlAI's `wikipedia:full` has them, too) keep HTML's entities
    and repeat the title: {"id": "12", "url": "https://en.wikipedia.org/wiki?curid=12", "title": ..., "text": the title,
    an empty line, a line for each paragraph}.

    Raises:
        Damaged: a line is not JSON, as where a file ends in the middle.
        InputError: a line has no title or text.
    """
    for line in source_lines(source, start):
        if not line.data.strip():
            continue
        try:
            fields = parse_json(line.data)
        except ValueError as error:  # it is one, too, where a line is not UTF-8
            raise source.damaged(line.begin, line.offset, "a line that is not JSON") from error
        if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in ("title", "text")):
            path = source.paths[start.file]
            raise InputError(f"{path} is not WikiExtractor's: a line has no title or no text.")
        title, text = html.unescape(fields["title"]), html.unescape(fields["text"])
        is_redirect = text.lstrip()[:9].lower() == "#redirect"
        head, _, rest = text.partition("\n")
        text, site = rest if head.strip() == title else text, site_of_address(fields.get("url") or "")
        yield Page(str(fields.get("id") or title), title, text, site, False, is_redirect), line.after


def site_of_address(url: str) -> Site:
    """Return the wiki of an article: https://en.wikipedia.org/wiki?curid=12 -> en; the English one if there is none."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:  # brackets that hold no address
        host = ""
    return Site(host.split(".")[0] if host.count(".") > 1 else "en")
