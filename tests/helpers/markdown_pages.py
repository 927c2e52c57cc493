"""Links, headings and toctrees of Markdown files, as GitHub and the documentation site read them."""

import re
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

PARSER = MarkdownIt("commonmark").enable("table")


@cache
def tokens(path):
    """What markdown-it makes of a file."""
    return PARSER.parse(Path(path).read_text("utf-8"))


def links(path):
    """The targets of links and pictures."""
    inline = [child for token in tokens(path) for child in token.children or ()]
    return [child.attrs.get("href") or child.attrs["src"] for child in inline if child.type in ("link_open", "image")]


def anchors(path):
    """What a link to a heading may name, by GitHub's rule: small letters, hyphens for spaces, a number for doubles."""
    found = []
    for heading, content in zip(tokens(path), tokens(path)[1:], strict=False):
        if heading.type == "heading_open":
            text = "".join(child.content for child in content.children if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def toctrees(path):
    """The entries of a page's toctrees."""
    blocks = [token.content for token in tokens(path) if token.type == "fence" and token.info == "{toctree}"]
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
