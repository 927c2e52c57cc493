"""The core where importing ParlAI fails: load, score, rank, index, re-rank and serve; and what importing it costs."""

import contextlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import forks
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from polyagents.commands.names import OWN_COMMANDS

HERE = Path(__file__).parent / "version_0_1"
EXPECTED = json.loads((HERE / "expected.json").read_text())

CORE = """
import importlib.machinery, io, json, sys
sys.modules["parlai"] = None  # importing it fails from now on
hidden = set(json.loads(sys.argv.pop()))  # as if these were not installed

class Installed(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if path is None and name in hidden else super().find_spec(name, path, target)

places = sys.meta_path
places[places.index(importlib.machinery.PathFinder)] = Installed

import numpy as np
from polyagents import CandidateStore, InputError, Match, Ranker
from polyagents.__main__ import main

models, folder = sys.argv[1:]
expected = json.load(open(f"{models}/expected.json"))
contexts, texts = expected["contexts"], expected["candidates"]
poly, cross = Ranker.load(f"{models}/poly"), Ranker.load(f"{models}/cross")
for name, ranker in (("bi", Ranker.load(f"{models}/bi")), ("poly", poly), ("cross", cross)):
    np.testing.assert_allclose(ranker.score(contexts, texts), expected[name], atol=1e-5, rtol=1e-5)
file = f"{models}/replies.txt"
index = poly.index(file, f"{folder}/index", stored_as="fp32")
poly.approximate(index, "hnsw")
found = poly.rank(contexts, index, 3)
assert [[match.index for match in row] for row in found] == [[i for i, *_ in row] for row in expected["index"]]
assert len(cross.rerank(contexts[0], found[0])) == 3
poly.append(poly.open_index(f"{folder}/index"), ["a new reply"])
pairs = [{"context": text, "label": f"so it is {text}"} for text in contexts]
options = {"max_train_steps": 1, "warmup_updates": 0, "learningrate": 1e-3, "text_truncate": 48, "label_truncate": 16}
taught = Ranker.train(pairs, f"{folder}/M", init_model=f"{models}/poly", valid=pairs, progress=False, **options)
np.testing.assert_allclose(Ranker.load(f"{folder}/M").score(contexts, texts), taught.score(contexts, texts), atol=1e-5)
assert abs(taught.score(contexts, texts) - poly.score(contexts, texts)).max() > 1e-5

def command(*arguments, stdin=""):
    sys.argv, sys.stdin, out, sys.stdout = ["polyagents", *arguments], io.StringIO(stdin), sys.stdout, io.StringIO()
    try:
        main()
    finally:
        out, sys.stdout = sys.stdout, out
    return out.getvalue()

flags = ("--candidates-file", file, "--index-dir", f"{folder}/bi")
told = json.loads(command("build_index", "-mf", f"{models}/bi", *flags))
assert told["candidates"] == len(texts)
line = command("rank", "-mf", f"{models}/poly", "--candidates-file", file, "--top-k", "1", stdin=contexts[0] + "\\n")
assert json.loads(line)["candidates"][0]["text"] == found[0][0].text
assert "poly" in command("zoo", "list") and "convai2/bi/bert" in command("recipe", "list")
command("convert_weights", "-mf", f"{models}/bi", "--to", "huggingface", "--out", f"{folder}/hf")
command("convert_weights", "-mf", f"{models}/bi", "--to", "sentence-transformers", "--out", f"{folder}/st")
poly.save_pretrained(f"{folder}/poly")
assert Ranker.from_pretrained(f"{folder}/poly").rank(contexts[0], texts) == poly.rank(contexts[0], texts)

from starlette.testclient import TestClient
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources
with TestClient(create_app(Sources(f"{models}/poly", file).read()), "http://127.0.0.1:8008") as client:
    assert client.post("/rank", json={"context": contexts[0]}).json()["matches"][0]["text"] == found[0][0].text
    assert client.post("/chat", json={"history": [contexts[0]]}).json()["text"]
try:
    command("train_model", "-m", "poly")
except SystemExit as end:
    assert end.code == 2
assert not [name for name in sys.modules if name.startswith("parlai.")]
"""


def brought(name, extras=(), seen=None):
    """The distributions that installing one brings, by their normalised names."""
    seen = set() if seen is None else seen
    for text in metadata.requires(name) or ():
        needed = Requirement(text)
        applies = not needed.marker or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if applies and (key := canonicalize_name(needed.name)) not in seen:
            seen.add(key)
            with contextlib.suppress(metadata.PackageNotFoundError):  # of another system's marker
                brought(key, needed.extras, seen)
    return seen


def not_brought(*extras):
    """The modules of distributions that neither the core nor these extras bring; here, everything is installed."""
    there = brought("polyagents", extras) | brought("httpx2") | {"polyagents", "httpx2"}  # starlette's test client
    names = metadata.packages_distributions().items()
    return [module for module, found in names if not there & {canonicalize_name(name) for name in found}]


@pytest.fixture(scope="module")
def without_parlai(tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    command = [sys.executable, "-c", CORE, str(HERE), str(folder), json.dumps(not_brought("serve"))]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_core_works_without_parlai(without_parlai):
    assert without_parlai.returncode == 0, without_parlai.stderr


@pytest.mark.slow
def test_a_command_of_parlais_says_how_to_install_it(without_parlai):
    assert "pip install --no-deps parlai==1.7.2" in without_parlai.stderr.splitlines()[-1]


COMMANDS = """
import contextlib, io, json, sys
sys.modules["parlai"] = None
from polyagents.__main__ import main

ends = []
for call in json.loads(sys.argv[1]):
    sys.argv, code, said = ["polyagents", *call], 0, io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    ends.append([code, said.getvalue()])
print(json.dumps(ends))
"""


def test_every_command_works_without_parlai_or_says_that_it_needs_it(tmp_path, monkeypatch):
    model, task = ("-mf", str(HERE / "bi")), ("-t", "polyagents.tasks.sample")
    needs = [
        ("demo", "--output", str(tmp_path / "demo")),
        ("bench_training", *task, "--backbone", "scratch:tiny"),
        ("mine_negatives", *model, *task, "--outfile", str(tmp_path / "mined")),
        ("build_vocabulary", *task, "--out", str(tmp_path / "vocabulary")),
        ("recipe", "run", "convai2/bi/bert", "-mf", str(tmp_path / "M")),
        ("eval_model", *model, *task),
    ]
    works = [(name, "--help") for name in OWN_COMMANDS]
    works.append(("build_pairs", "--source", str(HERE / "replies.txt"), "--outdir", str(tmp_path / "pairs")))
    works.append(("build_vocabulary", str(HERE / "replies.txt"), "--out", str(tmp_path / "vocabulary")))
    monkeypatch.chdir(tmp_path)
    done = forks.run(COMMANDS, json.dumps([*needs, *works]), bare=True)
    assert done.returncode == 0, done.stderr
    for call, (code, said) in zip([*needs, *works], json.loads(done.stdout), strict=True):
        assert code == (2 if call in needs else 0), (call, said)
        assert ("not installed: pip install 'polyagents[parlai]'" in said) == (call in needs), (call, said)


@pytest.mark.parametrize("heavy", ["torch", "parlai", "transformers", "numpy"])
def test_importing_the_package_imports_nothing_heavy(heavy, tmp_path):
    program = f"import sys, polyagents; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=60).returncode == 0
