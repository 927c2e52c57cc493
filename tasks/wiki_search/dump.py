"""The pages of a MediaWiki dump (https://www.mediawiki.org/wiki/Help:Export), read as a stream."""

from collections import deque
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from polyagents.errors import InputError

from ..streaming.source import Piece, Place, Source
from .page import Page, Site

ROOT = b"<mediawiki>"  # the beginning of a dump, for a parser that starts in its middle
END = b"</page>"
FIELDS = ("page/title", "page/ns", "page/id", "page/revision/model", "page/revision/text")
# Namespaces of files (-2, 6) and categories (14), which every wiki also knows by these names.
HIDDEN = {"-2": "media", "6": "file", "14": "category"}
ALSO_HIDDEN = ("media", "file", "image", "category")


def pages(source: Source, start: Place) -> Iterator[tuple[Page, Place]]:
    """Yield every page from a position on, and the position after it; pages that are not articles have an empty text.

    Raises:
        Damaged: the dump is not whole XML.
    """
    parser = PageParser(site_of(source))
    if start != Place():
        parser.begin_in_the_middle()
    for piece in source.pieces(start):
        try:
            yield from parser.feed(piece)
        except expat.ExpatError as error:
            why = expat.errors.messages[error.code]
            raise source.damaged(parser.place(parser.error_index), piece.offset, why) from error
    try:
        parser.close()
    except expat.ExpatError as error:
        raise source.ends_early(start.file) from error


class PageParser:
    """Parses bytes into pages. Nothing of a page is kept once it is returned."""

    def __init__(self, site: Site):
        self.site = site
        self.parser = parser_of(self)
        self.path: list[str] = []
        self.fields: dict[str, str] = {}
        self.text: list[str] = []
        self.redirect = False
        self.done: deque[tuple[Page, int]] = deque()
        self.fed = 0
        self.recent: deque[tuple[int, Place]] = deque()  # positions in the source of the parser's bytes

    @property
    def error_index(self) -> int:
        """The byte of the parser's input at which it failed."""
        return max(self.parser.ErrorByteIndex, 0)

    def begin_in_the_middle(self) -> None:
        """Give the parser the beginning of a dump, so that it accepts bytes from the middle of one."""
        self.parser.Parse(ROOT)
        self.fed = len(ROOT)

    def feed(self, piece: Piece) -> Iterator[tuple[Page, Place]]:
        """Yield the pages that end in a piece."""
        self.recent.append((self.fed, piece.place))
        self.fed += len(piece.data)
        try:
            self.parser.Parse(piece.data)
        finally:  # the pages that were complete before the error
            while self.done:
                page, index = self.done.popleft()
                yield page, self.place(index)

    def close(self) -> None:
        """End the parsing."""
        self.parser.Parse(b"", True)

    def place(self, index: int) -> Place:
        """Return the position of a byte of the parser's input."""
        while len(self.recent) > 1 and self.recent[1][0] <= index:
            self.recent.popleft()
        begin, place = self.recent[0]
        return place.later(index - begin)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Expat: an element begins."""
        if not self.path and name != "mediawiki":
            raise InputError(f"--source is not a MediaWiki dump: its first element is <{name}>.")
        self.path.append(name)
        self.text = []
        if self.path == ["mediawiki", "page"]:
            self.fields, self.redirect = {}, False
        self.redirect |= self.path == ["mediawiki", "page", "redirect"]

    def characters(self, text: str) -> None:
        """Expat: text between elements."""
        if len(self.path) > 2:
            self.text.append(text)

    def end(self, name: str) -> None:
        """Expat: an element ends."""
        field = "/".join(self.path[1:])
        self.path.pop()
        if field in FIELDS:
            self.fields[field] = "".join(self.text)
        elif field == "page":
            self.done.append((self.page(), self.parser.CurrentByteIndex + len(END)))
        self.text = []

    def page(self) -> Page:
        """Return the page that has just ended."""
        title, namespace, number, model, text = (self.fields.pop(field, "") for field in FIELDS)
        is_article = namespace in ("", "0") and model in ("", "wikitext")
        text = text if is_article and not self.redirect else ""
        return Page(number or title, title, text, self.site, True, self.redirect, is_article)


class SiteParser:
    """Parses the beginning of a dump: the language, and the wiki's names of its namespaces."""

    def __init__(self) -> None:
        self.parser = parser_of(self)
        self.language, self.key = "en", ""
        self.hidden = set(ALSO_HIDDEN)
        self.complete = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Expat: an element begins."""
        self.language = attributes.get("xml:lang", self.language) if name == "mediawiki" else self.language
        self.key = attributes.get("key", "") if name == "namespace" else ""
        self.complete |= name == "page"

    def characters(self, text: str) -> None:
        """Expat: text between elements."""
        if self.key in HIDDEN:
            self.hidden.add(text.strip().lower())

    def end(self, name: str) -> None:
        """Expat: an element ends."""
        self.key = ""
        self.complete |= name == "siteinfo"


def site_of(source: Source) -> Site:
    """Read the beginning of a dump, as far as it can be read: the reader of pages reports what is wrong."""
    parser = SiteParser()
    try:
        for piece in source.pieces(Place()):
            parser.parser.Parse(piece.data)
            if parser.complete:
                break
    except expat.ExpatError:
        pass
    return Site(parser.language, frozenset(parser.hidden))


def parser_of(handlers: Any) -> expat.XMLParserType:
    """An expat parser that calls an object's start, characters and end."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = handlers.start
    parser.CharacterDataHandler = handlers.characters
    parser.EndElementHandler = handlers.end
    return parser
