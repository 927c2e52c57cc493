"""Checks the English of code and docs, part of `make lint`.

Two things are checked, with settings in pyproject.toml: words and phrases that no text of ours should hold, since there
is a plainer or a standard one, in code, messages and docs; and everything that proselint knows, in the docs. codespell
looks for misspelt words beside it.
"""

import argparse
import collections
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proselint.checks import __register__ as checks
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # import-linter brings it

ROOT = Path(__file__).resolve().parent.parent
DIALOGUES = ("tasks/sample/__init__.py", "tasks/sample/tables.py")  # what people say there is not ours to correct
CODE = ("polyagents", "tasks", "zoo", "benchmarks", "scripts", "examples")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
# What is not prose: blocks and spans of code, comments, targets of links.
NO_PROSE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`|<!--.*?-->|(?<=\])\([^)\s]+\)", re.MULTILINE | re.DOTALL)


def settings() -> dict[str, Any]:
    """Read our own tables of pyproject.toml: [tool.polyagents.*]."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        ours: dict[str, Any] = tomllib.load(file)["tool"]["polyagents"]
    return ours


def pages() -> list[Path]:
    """List the Markdown files that people read."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def sources() -> list[Path]:
    """List the files of code and templates that hold comments, docstrings and messages."""
    suffixes = (".py", ".html", ".js")
    every = (path for room in CODE for path in (ROOT / room).rglob("*") if path.suffix in suffixes)
    return sorted(path for path in every if str(path.relative_to(ROOT)) not in DIALOGUES)


def banned(paths: list[Path], words: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Find words that no text of ours should hold.

    Args:
        words: what to write instead, by the regular expression of a word; upper and lower case are the same unless
            the expression says otherwise.

    Yields:
        The regular expression, and a line that says where it was found.
    """
    patterns = {word: re.compile(rf"\b(?:{word})\b") for word in words}
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for word, pattern in patterns.items():
                for match in pattern.finditer(line):
                    where = f"{path.relative_to(ROOT)}:{number}"
                    yield word, f'{where}: "{match[0]}": write {words[word]}'


def placeholder(code: re.Match[str]) -> str:
    """Put something as long in the place of code: a word of its own for a span, nothing for a block.

    Args:
        code: what was found in a page.

    Returns:
        What proselint reads instead; lines and columns stay what they are.
    """
    if code[0].startswith("`") and not code[0].startswith("```"):
        return str(code.start()).ljust(len(code[0]), "x")[: len(code[0])]
    return re.sub(r"[^\n]", " ", code[0])


def advice(paths: list[Path], switched: dict[str, bool]) -> Iterator[str]:
    """Ask proselint about the docs.

    Args:
        paths: Markdown files.
        switched: its checks, and whether they are used, as in its configuration.

    Yields:
        One line for each thing that it would change.
    """
    registry = CheckRegistry()
    if not registry.checks:
        registry.register_many(checks)
    config = DEFAULT | {"checks": switched | DEFAULT["checks"]}  # the first that names a check decides
    for path in paths:
        text = path.read_text(encoding="utf-8")
        prose = NO_PROSE.sub(placeholder, text)
        for result in LintFile(str(path.relative_to(ROOT)), prose).lint(config):
            line, column = result.pos
            yield f"{path.relative_to(ROOT)}:{line}:{column}: {result.check_result.message}"


def main() -> int:
    """Check everything; the exit code is 1 where there is more to change than pyproject.toml allows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--all", action="store_true", help="print them all, even if there are no more than allowed")
    ours = settings()
    found = list(banned(pages() + sources(), ours["words"]))
    problems = list(advice(pages(), ours["proselint"]))
    limits = ours["prose"]
    many = len(found) > limits["banned_words"] or len(problems) > limits["suggestions"]
    if many or parser.parse_args().all:
        print("\n".join([*(line for _, line in found), *problems]))
    counts = collections.Counter(word for word, _ in found)
    for word, count in counts.most_common():
        print(f"{count:5}  {word}")
    print(f"{len(found)} banned words; at most {limits['banned_words']} may be there.")
    print(f"{len(problems)} things that proselint would change; at most {limits['suggestions']} may be there.")
    return int(many)


if __name__ == "__main__":
    sys.exit(main())
