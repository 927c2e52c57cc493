"""Checks the docstrings, part of `make lint`.

Two things are checked, with settings in pyproject.toml; that a section agrees with the signature, ruff checks.

- The first sentence of a public docstring does not begin as a sentence without a subject does ("Of every text, ...").
- The share of public functions with two or more parameters that explain them in an Args section is not below a floor.
"""

import argparse
import ast
import collections
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lint_prose import settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("polyagents", "tasks", "zoo", "benchmarks")
FRAGMENT = re.compile(r"(Of|By|To|As|Where|Which|Those|Such|So|And|But|Or|Than|Because|Alone|Beside|Behind|Again)\b")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Documented:
    """A module, class or function with its docstring.

    Attributes:
        path: where it is, relative to the repository.
        node: its syntax tree.
        text: its docstring, empty where it has none.
        public: whether neither its name nor one around it begins with an underscore.
        method: whether it is a function of a class with self or cls as its first parameter.
    """

    path: Path
    node: ast.Module | ast.ClassDef | Function
    text: str
    public: bool
    method: bool

    @property
    def line(self) -> int:
        """The line on which it begins, 1 for a module."""
        return getattr(self.node, "lineno", 1)

    @property
    def parameters(self) -> int:
        """How many parameters a function has, without self or cls; 0 for everything else."""
        if not isinstance(self.node, Function):
            return 0
        given = self.node.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        return len(named) + (given.vararg is not None) + (given.kwarg is not None) - self.method

    @property
    def room(self) -> str:
        """The package or module that it belongs to, as docs/architecture.md names them."""
        return "/".join(self.path.parts[: 2 if self.path.parts[0] == "polyagents" else 1])


def documented(path: Path, node: ast.AST, public: bool = True, in_class: bool = False) -> Iterator[Documented]:
    """Find what may have a docstring, down to the functions of classes; functions within functions are left out.

    Args:
        path: the file, relative to the repository.
        node: the syntax tree to search.
        public: whether everything around the node is public.
        in_class: whether the node is within a class.

    Yields:
        The node itself, and what is in it.
    """
    assert isinstance(node, ast.Module | ast.ClassDef | Function)
    decorators = {getattr(name, "id", "") for name in getattr(node, "decorator_list", [])}
    method = in_class and isinstance(node, Function) and "staticmethod" not in decorators
    if "overload" not in decorators:  # the implementation has the docstring
        yield Documented(path, node, ast.get_docstring(node) or "", public, method)
    for child in ast.iter_child_nodes(node) if not isinstance(node, Function) else ():
        if isinstance(child, ast.ClassDef | Function):
            visible = public and not child.name.startswith("_")
            yield from documented(path, child, visible, isinstance(node, ast.ClassDef))


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


def shares(found: list[Documented]) -> dict[str, tuple[int, int]]:
    """Count the public functions of two or more parameters.

    Args:
        found: everything that may have a docstring.

    Returns:
        How many of them have an Args section, and how many there are, by room.
    """
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for each in found:
        if each.public and each.parameters >= 2:
            counts[each.room][0] += "Args:" in each.text
            counts[each.room][1] += 1
    return {room: (having, every) for room, (having, every) in sorted(counts.items())}


def main() -> int:
    """Check every docstring; the exit code is 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--all", action="store_true", help="print shares by room, and first sentences without a subject"
    )
    everything = parser.parse_args().all
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    found = [
        each
        for path in paths
        for each in documented(path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8")))
    ]
    limits = settings()["docstrings"]
    counts = shares(found)
    if everything:
        for room, (having, every) in counts.items():
            print(f"{room:28} {having:4} of {every:4}")
    having, every = (sum(column) for column in zip(*counts.values(), strict=True))
    unclear = list(fragments(found))
    many = len(unclear) > limits["without_subject"]
    if many or everything:
        print("\n".join(unclear))
    print(f"{len(unclear)} first sentences have no subject; at most {limits['without_subject']} may.")
    print(
        f"{having} of {every} public functions of two or more parameters have an Args section: "
        f"{having / every:.1%}, at least {limits['args_percent']} %."
    )
    return int(many or having * 100 < limits["args_percent"] * every)


if __name__ == "__main__":
    sys.exit(main())
