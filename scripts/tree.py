"""Writes the tree of CONTRIBUTING.md, one line per file, from the first sentences of the modules.

    python scripts/tree.py [--check]

With --check nothing is written: the exit code is 1 if the page has another tree, as part of `make lint`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
PACKAGES = ("polyagents", "tasks", "zoo")
TREE = re.compile(r"(<!-- tree: .* -->\n```\n).*?(^```$)", re.DOTALL | re.MULTILINE)
WIDTH = 34  # of names


def lines_of(folder: Path, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a package: its files, then its folders."""
    yield line(folder.name + "/", folder / "__init__.py", depth)
    entries = sorted(folder.iterdir(), key=lambda entry: (entry.is_dir(), entry.name))
    for entry in entries:
        if entry.suffix == ".py" and entry.name != "__init__.py":
            yield line(entry.name, entry, depth + 1)
        elif (entry / "__init__.py").exists():
            yield from lines_of(entry, depth + 1)


def line(name: str, file: Path, depth: int) -> str:
    """Return a name and the first sentence of a file."""
    says = " ".join((ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    return f"{'  ' * depth + name:<{WIDTH}} {re.split(r'(?<=[.!?]) (?=[A-Z])', says)[0].rstrip('.')}".rstrip()


def main() -> int:
    """Write the tree, or check it."""
    tree = "".join(f"{one}\n" for package in PACKAGES for one in lines_of(ROOT / package))
    page = PAGE.read_text(encoding="utf-8")
    written = TREE.sub(lambda found: found[1] + tree + found[2], page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(written, encoding="utf-8")
    elif written != page:
        print("CONTRIBUTING.md has another tree than the packages; run python scripts/tree.py.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
