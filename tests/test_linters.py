"""The linters of our own find what they are for."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("proselint")


@pytest.fixture
def linters(monkeypatch, tmp_path):
    """Our linters, which look at an empty folder."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import lint_docstrings
    import lint_names
    import lint_prose

    yield lint_docstrings, lint_prose, lint_names
    for name in ("lint_docstrings", "lint_prose", "lint_names"):
        sys.modules.pop(name)


def found_in(docstrings, source):
    return list(docstrings.documented(Path("polyagents/models/formulas.py"), ast.parse(source)))


def test_a_first_sentence_without_a_subject_is_found_where_it_is_public(linters):
    docstrings, _, _ = linters
    text = '"""Of texts, those that are there."""'
    source = f'"""A module."""\nclass A:\n  """One."""\n  def b(self):\n    {text}\n  def _c(self):\n    {text}\n'
    (line,) = docstrings.fragments(found_in(docstrings, source))
    assert line.startswith("polyagents/models/formulas.py:4: ") and "Of texts" in line


@pytest.mark.parametrize(
    ("entry", "is_idle"),
    [
        ("Args:\n    device: the device.", True),
        ("Args:\n    **options: the options.", True),
        ("Returns:\n    The model.", True),
        ("Yields:\n    The lines.", True),
        ("Args:\n    scores: [B, C].", False),
        ("Args:\n    limit: None for none.", False),
        ("Args:\n    device: the device that holds\n        the weights of the model.", False),
        ("Raises:\n    KeyError: the key.", False),
    ],
)
def test_entries_that_say_what_the_name_says_are_found(linters, entry, is_idle):
    docstrings, _, _ = linters
    text = f"Do it.\n\n{entry}\n".replace("\n", "\n    ")
    assert len(list(docstrings.idle(found_in(docstrings, f'def a(device):\n    """{text}"""')))) == is_idle


def test_proselint_reads_prose_and_no_code(linters, tmp_path, monkeypatch):
    _, prose, _ = linters
    switched = prose.settings()["proselint"]
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text('It is "here" and poly-encoders.\n\n```\nvery very\n```\n\nSay `very`, `a` `a`.\n')
    assert list(prose.advice([page], switched)) == []
    page.write_text("It lasts for ever.\n")
    (line,) = prose.advice([page], switched)
    assert line.startswith("page.md:1:")


def test_public_names_that_two_modules_share_are_found(linters, tmp_path):
    *_, names = linters
    for path, source in {
        "a/rows.py": "def read():\n    def inner(): ...\ndef _own(): ...\nasync def ask(): ...\n",
        "b/rows.py": "class C:\n    def read(self): ...\ndef inner(): ...\ndef _own(): ...\nasync def ask(): ...\n",
        "b/other.py": "def read(): ...\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(source)
    found, where = names.places(tmp_path), tmp_path.name
    assert names.shared_names(found, {"read": "reads", "rows.py": "rows"}) == [
        f"ask: {where}/a/rows.py, {where}/b/rows.py"
    ]
    lines = names.shared_names(found, {"ask": "asks", "inner": "is inner"})
    assert [line.split(":")[0] for line in lines] == ["read", "rows.py", "inner"]
