"""What is installed: every package of the tree, and for each extra what a missing module is said to come with."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from polyagents.faults import EXTRAS

BROUGHT_BY_FASTAPI = {"starlette", "pydantic"}


def normal(name):
    """The name of a distribution, as packaging compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(extra):
    """The distributions that an extra requires; None is the core."""
    found = set()
    for line in metadata.requires("polyagents"):
        name = re.match(r"[\w.-]+", line).group()
        given = re.search(r"extra == [\"']([\w-]+)[\"']", line)
        if (given.group(1) if given else None) == extra:
            found.add(normal(name))
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_module_is_said_to_come_with_the_extra_that_brings_it(extra):
    known, brought = metadata.packages_distributions(), required(extra)
    brought_by = {module: {*map(normal, known[module])} for module in EXTRAS[extra] - BROUGHT_BY_FASTAPI}
    assert all(distributions & brought for distributions in brought_by.values())
    if extra != "dev":  # which holds the tools as well, that no command imports
        assert brought <= set().union(*brought_by.values()) and not brought & required(None)


def test_dev_is_all_extras():
    assert set().union(*map(required, EXTRAS)) <= required("dev")


def test_every_folder_with_python_is_a_package(request):
    """`pip install .` would leave out a folder without `__init__.py`."""
    root = Path(request.config.rootpath)
    folders = {
        path.parent for top in ("polyagents", "tasks", "zoo", "benchmarks") for path in (root / top).rglob("*.py")
    }
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
    assert (root / "polyagents" / "py.typed").exists()
