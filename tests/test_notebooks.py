"""The notebooks of examples/ run from top to bottom in an empty folder, without a network."""

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SAYS = {"1": "R@1/20", "2": "recall@10", "3": "long - short"}
# As printed they train and score for minutes, which is for a release; in CI with fewer updates and examples.
FEWER = {
    "1": {"steps=32,": "steps=2,", "[:160]": "[:20]"},
    "2": {"steps=20,": "steps=2,", "steps=10,": "steps=1,", "[:10_000]": "[:2_000]"},
    "3": {'"short": 8, "long": 32': '"short": 1, "long": 6', "[:300]": "[:40]"},
}


def test_there_are_three():
    assert [path.name[0] for path in NOTEBOOKS] == ["1", "2", "3"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_is_kept(path):
    cells = nbformat.read(path, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    for cell in cells:
        if cell.cell_type == "markdown":
            assert all(len(line) <= 125 for line in cell.source.splitlines())


@pytest.mark.parametrize(
    "fewer", [pytest.param(True, marks=pytest.mark.slow), pytest.param(False, marks=pytest.mark.release)]
)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, fewer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text, number = path.read_text("utf-8"), path.stem[0]
    for printed, less in FEWER[number].items() if fewer else ():
        printed, less = (json.dumps(code)[1:-1] for code in (printed, less))
        assert text.count(printed) == 1
        text = text.replace(printed, less)
    notebook = nbformat.reads(text, as_version=4)
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    errors = [output for output in outputs if output.output_type == "error"]
    assert not errors
    said = "".join(output.get("text", "") for output in outputs)
    assert SAYS[number] in said
    print(said)
