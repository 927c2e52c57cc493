"""Checks the English of the docs with proselint, part of `make lint`; codespell checks the spelling."""

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


def placeholder(code: re.Match[str]) -> str:
    """Replace a span of code by a distinct word, and a block by blanks; lines and columns do not move."""
    if code[0].startswith("`") and not code[0].startswith("```"):
        return str(code.start()).ljust(len(code[0]), "x")[: len(code[0])]
    return re.sub(r"[^\n]", " ", code[0])


def advice(paths: list[Path], switched: dict[str, bool]) -> Iterator[str]:
    """Ask proselint about the docs.

    Args:
        paths: Markdown files.
        switched: whether each check is used, as in proselint's configuration.

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
    """Check every page; the exit code is 1 if there is anything to change."""
    problems = list(advice(pages(), settings()["proselint"]))
    print("\n".join([*problems, f"{len(problems)} things that proselint would change."]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
