"""Pages of documentation stay readable in a terminal and in a diff: prose has at most 100 characters a line."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")], key=str)


def prose(text):
    """Numbered lines of a page outside of code blocks and tables."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|"):
            yield number, line


def too_long(line):
    """A line of more than 100 characters; a word that cannot be broken, such as an address, may stand by itself."""
    return len(line) > 100 and len(re.sub(r"^[\s\-*>]*", "", line).split()) > 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_has_at_most_100_characters_a_line(page):
    long = [number for number, line in prose(page.read_text(encoding="utf-8")) if too_long(line)]
    assert not long, f"{page.name}: lines {long} have more than 100 characters; break them"


def test_a_long_line_is_found():
    assert too_long("word " * 21) and not too_long("- " + "x" * 101)
    assert [number for number, _ in prose("a\n```\ncode\n```\n| table |\nb")] == [1, 6]
