"""Examples from pages: a sentence, drawn by a hash, and the article without that sentence."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mwparserfromhell.parser import ParserError
from sentencex import segment as split_into_sentences

from polyagents.files.hashing import text_key, utf8

from .page import Page
from .time_limit import TooSlow, time_limit
from .wikitext import paragraphs

# Bytes of UTF-8, chosen here: below are headings, entries of lists and half sentences. Bytes, not words: a Chinese
# sentence has no spaces, and of its characters, of three bytes each, fewer say as much.
SHORTEST_QUERY = 30
# Excluded as in DrQA (Chen et al. 2017, scripts/retriever/prep_wikipedia.py), whose articles StarSpace was tried on.
LISTS = ("list of ", "lists of ", "index of ", "outline of ")


class WikiExample(NamedTuple):
    """The example of a page.

    Attributes:
        id: the id of the page.
        title: the title of the page.
        label: title and all other sentences, in one line.
    """

    id: str
    title: str
    text: str
    label: str


def examples_of(pages: Sequence[Page], seed: int) -> tuple[list[bytes], Counter[str]]:
    """Return the lines (`line_of`) of the pages' examples, and the number of pages of each kind."""
    lines, counts = [], Counter[str]()
    for page in pages:
        made = example_of(page, seed)
        counts["pages"] += 1
        counts["examples" if isinstance(made, WikiExample) else made] += 1
        if isinstance(made, WikiExample):
            lines.append(line_of(made, seed))
    return lines, counts


def line_of(example: WikiExample, seed: int) -> bytes:
    """Return the key by which examples are split and ordered, a tab, and the example as JSON."""
    fields = json.dumps(example._asdict(), ensure_ascii=False)
    return f"{drawn('article', example.id, seed):032x}\t".encode() + utf8(fields) + b"\n"


def drawn(what: str, id: str, seed: int) -> int:
    """Return a number below 2^128 that follows from the seed and an article alone.

    Args:
        what: the purpose, so that numbers for different purposes are independent.
    """
    return int.from_bytes(text_key(utf8(f"{what}\n{seed}\n{id}")), "big")


def example_of(page: Page, seed: int) -> WikiExample | str:
    """Return the example of a page, or why there is none (the name of its count in the manifest)."""
    if not page.is_article:
        return "other_namespaces"
    if page.is_redirect:
        return "redirects"
    if page.title.lower().startswith(LISTS):
        return "lists"
    if not page.text.strip():
        return "empty"
    try:
        with time_limit():
            found, is_disambiguation = text_of(page)
            lines = () if is_disambiguation else found
            parts = [part for line in lines for part in sentences(line, page.site.language)]
    except (ParserError, RecursionError):
        return "unreadable"
    except TooSlow:
        return "too_slow"
    return "disambiguations" if is_disambiguation else with_drawn_query(page, parts, seed)


def text_of(page: Page) -> tuple[list[str], bool]:
    """Return the paragraphs of a page, and whether it is a disambiguation page ("Mercury may refer to:" and a list)."""
    if page.is_wikitext:
        found, listed = paragraphs(page.text, page.site.hidden)
    else:
        found, listed = [line for line in page.text.split("\n") if line.strip()], False
    return found, listed or "(disambiguation)" in page.title.lower() or (found[:1] or [""])[0].endswith("refer to:")


def sentences(paragraph: str, language: str) -> list[str]:
    """Return the sentences of a paragraph, each with single spaces."""
    parts = split_into_sentences(language, without_halves(paragraph))
    return [one for part in parts if (one := " ".join(part.split()))]


def without_halves(text: str) -> str:
    """Replace half characters, which JSON and &#xD800; may hold, by question marks, for the sentence splitter."""
    return utf8(text).decode()


def with_drawn_query(page: Page, parts: Sequence[str], seed: int) -> WikiExample | str:
    """Draw the query among the sentences that are long enough; the others are the label."""
    able = [place for place, part in enumerate(parts) if len(utf8(part)) >= SHORTEST_QUERY]
    if not able or len(parts) < 2:
        return "short"
    query = able[drawn("query", page.id, seed) % len(able)]
    text, title = parts[query], " ".join(without_halves(page.title).split())
    label = " ".join([title, *parts[:query], *parts[query + 1 :]])
    return "repeated_queries" if text in label else WikiExample(page.id, title, text, label)
