"""The articles that WikiExtractor wrote as JSON lines (https://github.com/attardi/wikiextractor).

ParlAI's `wikipedia:full` has this form, too. {"id": "12", "url": "https://en.wikipedia.org/wiki?curid=12", "title":
...,
"text": the title, an empty line, a line for each paragraph}
"""

import functools
import html
from collections.abc import Iterator
from urllib.parse import urlsplit

from polyagents.errors import InputError
from polyagents.files.json_files import parse_json

from ..streaming.lines import lines
from ..streaming.source import Place, Source
from .page import Page, Site


def pages(source: Source, start: Place) -> Iterator[tuple[Page, Place]]:
    """Yield every article of one file from a position on, and the position after it.

    Raises:
        Damaged: a line is not JSON, as where a file ends in the middle.
        InputError: a line has no title or text.
    """
    for line in lines(source, start):
        if not line.data.strip():
            continue
        try:
            fields = parse_json(line.data)
        except ValueError as error:  # it is one, too, where a line is not UTF-8
            raise source.damaged(line.begin, line.offset, "a line that is not JSON") from error
        if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in ("title", "text")):
            path = source.paths[start.file]
            raise InputError(f"{path} is none of WikiExtractor's: a line has no title or no text.")
        yield page_of(fields), line.after


def page_of(fields: dict[str, str]) -> Page:
    """Read WikiExtractor's fields of an article. It keeps the entities of HTML, and repeats the title."""
    title, text = html.unescape(fields["title"]), html.unescape(fields["text"])
    is_redirect = text.lstrip()[:9].lower() == "#redirect"
    head, _, body = text.partition("\n")
    text = body if head.strip() == title else text
    return Page(str(fields.get("id") or title), title, text, site_of(fields.get("url") or ""), False, is_redirect)


@functools.lru_cache(maxsize=16)
def site_of_host(host: str) -> Site:
    """Return the wiki of a host: en.wikipedia.org -> en."""
    return Site(host.split(".")[0] if host.count(".") > 1 else "en")


def site_of(url: str) -> Site:
    """Return the wiki of an article, by its address; the English one if that is none."""
    try:
        return site_of_host(urlsplit(url).hostname or "")
    except ValueError:  # brackets that hold no address
        return site_of_host("")
