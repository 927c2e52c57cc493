"""What is installed: every package of the tree, and for each extra what a missing module is said to come with."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import option_types
import pytest
import yaml

from polyagents import __version__
from polyagents.faults import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
BROUGHT_BY_FASTAPI = {"starlette"}
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

# Every source given on standard input, with a syntax that other Pythons only warn of as an error.
COMPILE = """
import sys, warnings
warnings.simplefilter("error")
for path in sys.stdin.read().splitlines():
    with open(path, encoding="utf-8") as file:
        compile(file.read(), path, "exec")
"""


def normal(name):
    """The name of a distribution, as packaging compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def distributions():
    """Modules, and the distributions that bring them: it takes a while to ask all that are installed."""
    return metadata.packages_distributions()


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
    known, brought = distributions(), required(extra)
    brought_by = {module: {*map(normal, known[module])} for module in EXTRAS[extra] - BROUGHT_BY_FASTAPI}
    assert all(bringing & brought for bringing in brought_by.values())
    if extra != "dev":  # which holds the tools as well, that no command imports
        assert brought <= set().union(*brought_by.values()) and not brought & required(None)


def test_dev_is_all_extras():
    assert set().union(*map(required, EXTRAS)) <= required("dev")


def sources():
    """Every Python file that is installed."""
    return [path for top in ("polyagents", "tasks", "zoo", "benchmarks") for path in (ROOT / top).rglob("*.py")]


def test_every_folder_with_python_is_a_package():
    """`pip install .` would leave out a folder without `__init__.py`."""
    folders = {path.parent for path in sources()}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
    assert (ROOT / "polyagents" / "py.typed").exists()


@pytest.mark.slow
def test_an_installation_has_the_measurements_that_commands_need_and_says_where_others_run(tmp_path):
    built = tmp_path / "polyagents"
    make = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
    files, needed = [*(built / "commands").glob("bench_*.py")], set()
    while files:  # which import others of them
        for names in re.findall(r"from polyagents\.benchmarks import (.+?)(?:  #.*)?\n", files.pop().read_text()):
            fresh = set(names.split(", ")) - needed
            files += [built / "benchmarks" / f"{name}.py" for name in fresh]
            needed |= fresh
    there = {path.relative_to(built / "benchmarks").as_posix() for path in (built / "benchmarks").rglob("*.py")}
    assert there == {"__init__.py", *(f"{name}.py" for name in needed)}
    # -S: without what leads from this environment to the clone.
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for name in ("walk", "study"):
        asked = [sys.executable, "-S", "-m", f"polyagents.benchmarks.{name}"]
        done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 2 and "in a clone of the repository" in done.stderr and done.stderr.count("\n") == 1


def test_a_clone_has_every_measurement_that_the_pages_name():
    pages = "".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    named = set(re.findall(r"-m (polyagents\.benchmarks\.\w+)", pages))
    assert len(named) > 10 and all(map(importlib.util.find_spec, named))


def told_by_setup(*asked):
    """What setup.py says of itself."""
    command = [sys.executable, "setup.py", *asked]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_the_version_is_the_packages_own():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert told_by_setup("--version") == [__version__] == [cited]
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_oldest_python_is_the_tools_oldest():
    tools = (ROOT / "pyproject.toml").read_text()
    oldest = re.search(r'^python_version = "(.+)"$', tools, re.MULTILINE).group(1)  # mypy's
    assert f'target-version = "py{oldest.replace(".", "")}"' in tools  # ruff's
    assert f'python_requires=">={oldest}"' in (ROOT / "setup.py").read_text()
    assert f"Programming Language :: Python :: {oldest}" in " ".join(told_by_setup("--classifiers"))


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_every_source_is_in_the_grammar_of(version):
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version} here")
    listed = "\n".join(map(str, sources()))
    done = subprocess.run([python, "-c", COMPILE], input=listed, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- types -----------------------------------------------------------------------------------------------------------

CALLS = """
from typing import Any

from polyagents import Ranker
from polyagents.tasks.table.splits import open_split

pairs = [{"context": "hi", "label": "hello"}]
Ranker.train(pairs, "M", model="bi", backbone="scratch:tiny", num_epochs=1, similarity="cosine")
of_another_package: dict[str, Any] = {"nearest": 2}
Ranker.train(pairs, model="max", **of_another_package)
score: float = Ranker.load("M").rank("hi", {"greeting": ["hello", "hi"]})[0].score
open_split("F", "train").nothing_of_it
Ranker.train(pairs, bachsize=3)
Ranker.train(pairs, batchsize="x")
Ranker.train(pairs, similarity="cosin")
"""
WRONG = [(CALLS.splitlines().index(line) + 1) for line in CALLS.splitlines()[-4:]]
CHECKERS = {"mypy": ["mypy", "--no-incremental", "--python-executable"], "pyright": ["pyright", "--pythonpath"]}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_type_checkers_find_the_package_and_its_options_after_make_install(checker, tmp_path):
    """In an environment that sees the package by no other way than the links of `make install`."""
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, ROOT / "scripts" / "link_tree.py"], check=True)
    (tmp_path / "calls.py").write_text(CALLS)
    command = [sys.executable, "-m", *CHECKERS[checker], python, "calls.py"]
    done = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True)
    errors = re.findall(r"calls\.py:(\d+)(?::\d+)?(?: -|:) error: (.*)", done.stdout)
    assert [int(line) for line, _ in errors] == WRONG, done.stdout + done.stderr
    assert "nothing_of_it" in errors[0][1] and "bachsize" in errors[1][1]


def test_the_typed_options_are_those_of_the_tables(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["option_types.py", "--check"])
    option_types.main()
    changed = tmp_path / "option_types.py"
    changed.write_text(option_types.FILE.read_text().replace("    seed: int\n", "    seed: str\n"))
    monkeypatch.setattr(option_types, "FILE", changed)
    with pytest.raises(SystemExit, match="the tables of options differ"):
        option_types.main()
