"""The text that readers see, from wikitext parsed by mwparserfromhell, with one line per paragraph.

As in WikiExtractor's output, there are no tables, lists, headings, references, formulas and pictures. Templates are
removed, with the text they would show, which is written on other pages.
"""

from collections.abc import Iterator

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, HTMLEntity, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

# Elements whose content is not running text. Extensions' elements, such as math, are what the library calls invisible.
# fmt: off
LEFT_OUT = frozenset((
    "ref", "references", "table", "gallery", "math", "chem", "ce", "score", "timeline", "source", "syntaxhighlight",
    "pre", "ol", "ul", "dl", "li", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6", "noinclude", "includeonly",
))
# Templates that say that a page lists the meanings of a word; in the words of the largest wikis.
DISAMBIGUATION = frozenset((
    "dab", "disamb", "dis", "disambig", "disambiguation", "disambiguation_cleanup", "hndis", "geodis", "numberdis",
    "schooldis", "hospitaldis", "roaddis", "homonymie", "begriffsklärung", "disambigua", "desambiguación",
    "desambiguação", "doorverwijspagina", "ujednoznacznienie", "неоднозначность", "曖昧さ回避", "消歧义", "消歧義",
))
# fmt: on
LISTED = "\x00"  # where a line is part of a list; XML has no such character


def paragraphs(text: str, hidden: frozenset[str]) -> tuple[list[str], bool]:
    """Return the paragraphs of a page, and whether it is a disambiguation page.

    Args:
        hidden: in lower case, the prefixes of links that show nothing in the text, such as "category".

    Raises:
        mwparserfromhell.parser.ParserError, RecursionError: the library failed.
    """
    code = mwparserfromhell.parse(text)
    lines = "".join(shown(code, hidden)).split("\n")
    found = [" ".join(line.split()) for line in lines if LISTED not in line]
    listed = "__DISAMBIG__" in text or any(is_disambiguation(node) for node in code.nodes)
    return [line for line in found if line], listed


def is_disambiguation(node: Node) -> bool:
    """Whether a page with this node lists the meanings of a word."""
    if not isinstance(node, Template):
        return False
    name = "_".join(str(node.name).lower().split())
    return name in DISAMBIGUATION or name.endswith(("_disambiguation", "_disambig"))


def shown(code: Wikicode | None, hidden: frozenset[str]) -> Iterator[str]:
    """Yield the text that readers see of some wikitext, in pieces."""
    for node in code.nodes if code is not None else ():
        if isinstance(node, Text):
            yield node.value.replace(LISTED, "").replace("__NOTOC__", "").replace("__TOC__", "")
        elif isinstance(node, HTMLEntity):
            yield node.normalize()
        elif isinstance(node, Wikilink):
            yield from link(node, hidden)
        elif isinstance(node, ExternalLink):
            yield from shown(node.title, hidden)
        elif isinstance(node, Tag):
            yield from element(node, hidden)


def link(node: Wikilink, hidden: frozenset[str]) -> Iterator[str]:
    """Yield the text of a link to another page; a picture or a category has none."""
    prefix, colon, _ = str(node.title).partition(":")
    if not colon or prefix.strip().lower() not in hidden:
        yield str(node.title).removeprefix(":") if node.text is None else "".join(shown(node.text, hidden))


def element(node: Tag, hidden: frozenset[str]) -> Iterator[str]:
    """Yield the text of an HTML element, or of the wikitext for one."""
    name = str(node.tag).strip().lower()
    if node.wiki_markup is not None and name in ("li", "dt", "dd"):
        yield LISTED
    elif name in ("br", "p", "div", "blockquote"):
        yield "\n"
        yield from shown(node.contents, hidden)
        yield "\n"
    elif name not in LEFT_OUT:
        yield from shown(node.contents, hidden)
