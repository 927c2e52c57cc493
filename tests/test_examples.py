"""The examples in the docstrings of the public API, and in the page on Python, are run; each public name has one."""

import ast
import asyncio
import doctest
import inspect
import re
import shutil
from pathlib import Path

import pytest
from commands import PARTS

import polyagents
from polyagents import Pipeline, Ranker, errors, pipeline, ranker
from polyagents.decisions import calibration, deciding
from polyagents.index import store
from polyagents.models import formulas

MODULES = (polyagents, ranker, pipeline, store, errors, formulas, calibration, deciding)
AGENTS = {"BiEncoder", "CrossEncoder", "PolyEncoder", "Pretrain", "UniEncoder"}  # what `-m` names; ParlAI calls them
REPLIES = ("hello", "i ski", "i have two dogs", "i like red", "tell me more", "bye")

FOUND = {
    test.name: test
    for module in MODULES
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__)
    if test.examples
}


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    """The folder that the examples are run in."""
    (tmp_path / "runs").mkdir()
    for kind in ("poly", "cross"):
        for part in PARTS:
            shutil.copy(f"{trained(kind)}{part}", tmp_path / "runs" / f"{kind}{part}")
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES))
    (tmp_path / "faq.jsonl").write_text(
        '{"id": "a", "text": "hello", "language": "en"}\n'
        '{"id": "b", "text": "i ski", "language": "en"}\n'
        '{"id": "c", "text": "hallo", "language": "de"}\n'
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_an_example_gives_what_it_says(name, folder):
    example, one = FOUND[name], Ranker.load("runs/poly")
    one.index("replies.txt", "replies.index")
    example.globs.update(ranker=one, cross=Ranker.load("runs/cross"), Ranker=Ranker, Pipeline=Pipeline)
    told = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(example, out=told.append)
    assert not told, "".join(told)


def test_the_python_of_its_page_runs(folder):
    text = (Path(__file__).parent.parent / "docs" / "python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    code = compile("".join(blocks), "docs/python.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(code, {})
    if waiting is not None:
        asyncio.run(waiting)
    assert blocks


def public_names():
    """Every public name of the package, and the public methods and properties of its classes."""
    for name in polyagents.__all__:
        if name in AGENTS:
            continue
        value = getattr(polyagents, name)
        yield f"{value.__module__}.{name}", value
        for member, what in vars(value).items():
            if not member.startswith("_") and (isinstance(what, property | classmethod) or inspect.isfunction(what)):
                called = getattr(what, "__name__", member)  # `add = append` has the example of `append`
                yield f"{value.__module__}.{name}.{called}", what


@pytest.mark.parametrize("name", dict(public_names()))
def test_every_public_name_has_an_example_and_types(name):
    what = dict(public_names())[name]
    assert name in FOUND, f"{name} has no example"
    function = what.fget if isinstance(what, property) else getattr(what, "__func__", what)
    if inspect.isfunction(function):
        types = function.__annotations__
        assert {*inspect.signature(function).parameters, "return"} - {"self", "cls"} <= types.keys()
