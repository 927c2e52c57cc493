"""Checks that no two modules, classes or functions of polyagents/ share a public name, part of `make lint`.

pyproject.toml lists the names that mean the same wherever they stand, each with what they mean.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

from lint_docstrings import ROOT, Function
from lint_prose import settings


def places(package: Path) -> dict[str, list[str]]:
    """Find where each public name of a module, or of a class or function of its own, stands in a package."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package.parent).as_posix()
        names = [] if path.stem.startswith("__") else [path.name]
        body = ast.parse(path.read_text(encoding="utf-8")).body
        names += [node.name for node in body if isinstance(node, ast.ClassDef | Function)]
        for name in names:
            if not name.startswith("_"):
                found[name].append(where)
    return found


def shared_names(found: dict[str, list[str]], same: dict[str, str]) -> list[str]:
    """Describe the names that several modules have, and those listed in `same` that no longer are shared.

    Args:
        found: the places of each name.
        same: the names that may be shared, with what they mean.
    """
    shared = {name: where for name, where in found.items() if len(where) > 1}
    lines = [f"{name}: {', '.join(shared[name])}" for name in sorted(shared.keys() - same.keys())]
    return lines + [f"{name}: listed in pyproject.toml, and not shared" for name in sorted(same.keys() - shared.keys())]


def main() -> int:
    """Check all names; the exit code is 1 if two that mean different things are the same."""
    lines = shared_names(places(ROOT / "polyagents"), settings()["names"])
    print("\n".join([*lines, f"{len(lines)} names are wrongly shared."]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
