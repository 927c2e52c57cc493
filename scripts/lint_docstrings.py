"""Checks the docstrings, part of `make lint`.

Two things are checked, with settings in pyproject.toml; that a section agrees with the signature, ruff checks.

- The first sentence of a public docstring does not begin as a sentence without a subject does ("Of every text, ...").
- An entry of Args, Returns or Yields says more than the name: a shape, a unit, what None means, an effect, a source.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lint_prose import settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("polyagents", "tasks", "zoo", "benchmarks")
FRAGMENT = re.compile(r"(Of|By|To|As|Where|Which|Those|Such|So|And|But|Or|Than|Because|Alone|Beside|Behind|Again)\b")
SECTION = re.compile(r"^(?P<name>Args|Returns|Yields):\n(?P<entries>(?: {4}.*\n?)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}\S.*\n?(?: {8}.*\n?)*", re.MULTILINE)
FEW = 5  # words
# Shapes, numbers, what None means, defaults, conditions, order, effects, types of files, and references.
WORTH_SAYING = re.compile(
    r"[\[\]0-9=<>%]|\bNone\b|\bTrue\b|\bFalse\b|\b[BCTMDNKRQ]\b|fault|second|byte|token ids|at most|"
    r"at least|order|empty|path|first|last|lower|upper|once|only|must|may|never|unless|if |where |"
    r"until|e\.g|such as|JSON|fp32|bf16|changed|sorted|distinct|without|with |after|before|not |per |"
    r"each|every|arXiv|paper|\||optional|inclusive|absolute|relative|CPU|GPU|mean|sum|best|all |any |"
    r"same|own |other|whether|as for|as in|by (name|index|their)|one of|digest|SHA|UTF|http|copied|"
    r"closed|shared|pattern|regular"
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Documented:
    """A module, class or function with its docstring.

    Attributes:
        path: where it is, relative to the repository.
        text: its docstring, empty if it has none.
        public: whether neither its name nor one around it begins with an underscore.
    """

    path: Path
    node: ast.Module | ast.ClassDef | Function
    text: str
    public: bool

    @property
    def line(self) -> int:
        """The line on which it begins, 1 for a module."""
        return getattr(self.node, "lineno", 1)


def documented(path: Path, node: ast.AST, public: bool = True) -> Iterator[Documented]:
    """Find what may have a docstring, down to the functions of classes; functions within functions are left out.

    Args:
        path: the file, relative to the repository.
        public: whether everything around the node is public.

    Yields:
        The node itself, and what is in it.
    """
    assert isinstance(node, ast.Module | ast.ClassDef | Function)
    decorators = {getattr(name, "id", "") for name in getattr(node, "decorator_list", [])}
    if "overload" not in decorators:  # the implementation has the docstring
        yield Documented(path, node, ast.get_docstring(node) or "", public)
    for child in ast.iter_child_nodes(node) if not isinstance(node, Function) else ():
        if isinstance(child, ast.ClassDef | Function):
            visible = public and not child.name.startswith("_")
            yield from documented(path, child, visible)


def fragments(found: list[Documented]) -> Iterator[str]:
    """Find public docstrings whose first sentence begins as one without a subject does.

    Args:
        found: everything that may have a docstring.

    Yields:
        One line for each of them.
    """
    for each in found:
        if each.public and FRAGMENT.match(each.text):
            first = each.text.splitlines()[0]
            yield f"{each.path}:{each.line}: the first sentence has no subject, and no verb in the imperative: {first}"


def idle(found: list[Documented]) -> Iterator[str]:
    """Find entries of a few words that say nothing that an entry is there for (`WORTH_SAYING`)."""
    for each in found:
        for section in SECTION.finditer(each.text):
            for entry in ENTRY.findall(section["entries"]):
                said = re.sub(r"\A\s*\*{0,2}\w+: ", "", entry) if section["name"] == "Args" else entry
                if len(said.split()) <= FEW and not WORTH_SAYING.search(said):
                    where, entry = f"{each.path}:{each.line}", " ".join(entry.split())
                    yield f"{where}: {section['name']} says what the name says: {entry}"


def main() -> int:
    """Check every docstring; the exit code is 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--all", action="store_true", help="print all findings, even if there are no more than allowed")
    everything = parser.parse_args().all
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    found = [
        each
        for path in paths
        for each in documented(path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8")))
    ]
    limits = settings()["docstrings"]
    wrong = False
    for findings, limit, what in (
        (list(fragments(found)), limits["without_subject"], "first sentences have no subject"),
        (list(idle(found)), limits["idle_entries"], "entries say what the name says"),
    ):
        wrong |= len(findings) > limit
        if everything or len(findings) > limit:
            print("\n".join(findings))
        print(f"{len(findings)} {what}; at most {limit} may.")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
