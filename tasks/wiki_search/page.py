"""A page of a wiki, independent of the format that it is read from."""

from typing import NamedTuple


class Site(NamedTuple):
    """What the pages of a wiki have in common.

    Attributes:
        language: its code, such as "en".
        hidden: in lower case, the prefixes of links that are not part of the text ("file", "category").
    """

    language: str
    hidden: frozenset[str] = frozenset()


class Page(NamedTuple):
    """One page.

    Attributes:
        id: of the page in its wiki; the same in a dump and in what WikiExtractor makes of it.
        text: its wikitext, or its plain text with a line for each paragraph.
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
