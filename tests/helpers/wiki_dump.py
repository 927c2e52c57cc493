"""Small MediaWiki dumps, as tests need them: what Wikipedia's pages hold, and what is wrong with some of them."""

import bz2
import json
from xml.sax.saxutils import escape

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Category</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"

MARKUP = """{{Infobox town|name={{nowrap|Old {{lang|de|Stadt}}}}|image=[[File:a.jpg]]}}
{| class="wikitable"
|-
! year !! people
|-
| 1900 || {{formatnum:1200}} in a table:
{| class=x
| cell of a table
|}
|}
'''Althof''' is a ''small'' [[town|market town]] in the [[Kingdom of Nowhere]].<ref name="a">{{cite web|url=http://a.b|title=A reference that nobody reads}}</ref> It was founded by monks &amp; farmers in 1214.
[[File:a.jpg|thumb|A picture of the [[town]] hall.]] [[Datei:b.jpg|A second picture of it.]]

== History and a heading ==
The first church<ref>Another reference.</ref> burnt down in the winter of 1655 &ndash; it was never rebuilt.<br/>A mill stood at the [http://river.org river bank] until the flood.<!-- a comment that nobody reads -->

* an entry of a list with some words
# another [[entry]] of a list
__NOTOC__
<math>x^2</math> <gallery>
File:c.jpg|Another picture
</gallery>
[[Category:Towns]]
"""  # noqa: E501  paragraphs have no line breaks
# What readers see of it.
TEXT = [
    "Althof is a small market town in the Kingdom of Nowhere.",
    "It was founded by monks & farmers in 1214.",
    "The first church burnt down in the winter of 1655 – it was never rebuilt.",
    "A mill stood at the river bank until the flood.",
]
BROKEN = """'''Broken''' has a [[link that does not end and {{a template|that does not either.
It is a page of some use all the same.</div></ref> <b>Somebody forgot to close the bold text.
{| a table that never ends
"""

SPECIAL = [
    ("Althof", MARKUP),
    ("Broken markup", BROKEN),
    ("Empty", ""),
    ("Only a template", "{{stub}}"),
    ("東京", "東京は日本の首都であり、大きな都市のひとつである。江戸という名前で呼ばれていた時代もあった。"),
    ("Mercury", "'''Mercury''' may refer to:\n* [[Mercury (planet)]]\n* [[Mercury (element)]]\n"),
    ("Venus", "Venus is a planet, a goddess and a name. It is a word for many other things.\n{{disambiguation}}"),
    ("Mars", "Mars is the name of some things. It is listed here what these are.\n{{Human name disambiguation|Mars}}"),
    ("Mars (disambiguation)", "Mars is a planet of the solar system. It is a bar of chocolate, too, which is sold."),
    ("List of towns", "This is a list of all the towns that there are. It has an introduction of two sentences."),
    ("Echo", "Nobody knows who said this first here.\nNobody knows who said this first here.\n"),
    ("Tiny", "It is short. So is this."),
]  # fmt: skip
COUNTS = {"disambiguations": 4, "lists": 1, "empty": 1, "short": 2, "repeated_queries": 1, "redirects": 1}
COUNTS["other_namespaces"] = 2
USABLE = 3  # Althof, Broken markup and 東京

SUBJECTS = ("river", "church", "school", "song", "novel", "bridge", "village", "engine", "planet", "museum", "castle")


def articles(count):
    """Titles and wikitext of plain articles, each of its own words."""
    return [
        (
            f"The {SUBJECTS[i % len(SUBJECTS)]} of place {i}",
            f"The {SUBJECTS[i % len(SUBJECTS)]} number {i} was made in the year {1000 + i} by many people. "
            f"It is {i * 7} metres long and {i * 3} metres wide, says a book.\n\n"
            f"Some of them have never seen [[place {i}]] at all. In {1100 + i} it was visited by {i * 11} strangers.",
        )
        for i in range(count)
    ]


def page(number, title, text, namespace=0, redirect=None):
    """The XML of a page."""
    sent = "" if redirect is None else f'    <redirect title="{escape(redirect)}" />\n'
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n{sent}"
        f"    <revision>\n      <id>{number + 70_000}</id>\n      <contributor><username>Somebody</username><id>5</id>"
        f"</contributor>\n      <model>wikitext</model>\n      <text>{escape(text)}</text>\n"
        f"    </revision>\n  </page>\n"
    )


def pages(plain):
    """The XML of some plain articles among which the special ones are."""
    found = [page(number, *given) for number, given in enumerate(SPECIAL, 1)]
    found.append(page(50, "Altenhof", "#REDIRECT [[Althof]]", redirect="Althof"))
    found.append(page(51, "Talk:Althof", "It is a nice town, is it not? I think that it is.", namespace=1))
    found.append(page(52, "Template:Infobox", "A template is no article. It has two sentences all the same.", 10))
    rest = [page(number, *given) for number, given in enumerate(articles(plain), 100)]
    return rest[: plain // 2] + found + rest[plain // 2 :]


def dump(plain):
    """A whole dump as bytes."""
    return (HEAD + "".join(pages(plain)) + TAIL).encode()


def multistream(plain, each=10):
    """A dump as Wikimedia packs it: the head, some pages, ..., the tail, each in a bz2 stream of its own."""
    xml = pages(plain)
    groups = ["".join(xml[i : i + each]) for i in range(0, len(xml), each)]
    return b"".join(bz2.compress(text.encode()) for text in (HEAD, *groups, TAIL))


def extracted(plain):
    """What WikiExtractor would make of plain articles: lines of JSON."""
    lines = []
    for number, (title, text) in enumerate(articles(plain), 100):
        url = f"https://en.wikipedia.org/wiki?curid={number}"
        text = text.replace("[[", "").replace("]]", "").replace("\n\n", "\n")
        lines.append(json.dumps({"id": str(number), "url": url, "title": title, "text": f"{title}\n\n{text}"}))
    return lines
