"""The linters of our own find what they are for."""

import ast
from pathlib import Path

import pytest

lint_docstrings = pytest.importorskip("lint_docstrings")  # reads the settings by lint_prose, which imports proselint
lint_names = pytest.importorskip("lint_names")
lint_prose = pytest.importorskip("lint_prose")


def found_in(source):
    return list(lint_docstrings.documented(Path("polyagents/models/formulas.py"), ast.parse(source)))


def test_a_first_sentence_without_a_subject_is_found_where_it_is_public():
    text = '"""Of texts, those that are there."""'
    source = f'"""A module."""\nclass A:\n  """One."""\n  def b(self):\n    {text}\n  def _c(self):\n    {text}\n'
    (line,) = lint_docstrings.fragments(found_in(source))
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
def test_entries_that_say_what_the_name_says_are_found(entry, is_idle):
    text = f"Do it.\n\n{entry}\n".replace("\n", "\n    ")
    assert len(list(lint_docstrings.idle(found_in(f'def a(device):\n    """{text}"""')))) == is_idle


def test_proselint_reads_prose_and_no_code(tmp_path, monkeypatch):
    switched = lint_prose.settings()["proselint"]
    monkeypatch.setattr(lint_prose, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text('It is "here" and poly-encoders.\n\n```\nvery very\n```\n\nSay `very`, `a` `a`.\n')
    assert list(lint_prose.advice([page], switched)) == []
    page.write_text("It lasts for ever.\n")
    (line,) = lint_prose.advice([page], switched)
    assert line.startswith("page.md:1:")


def test_public_names_that_two_modules_share_are_found(tmp_path):
    for path, source in {
        "a/rows.py": "def read():\n    def inner(): ...\ndef _own(): ...\nasync def ask(): ...\n",
        "b/rows.py": "class C:\n    def read(self): ...\ndef inner(): ...\ndef _own(): ...\nasync def ask(): ...\n",
        "b/other.py": "def read(): ...\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(source)
    found, where = lint_names.places(tmp_path), tmp_path.name
    assert lint_names.shared_names(found, {"read": "reads", "rows.py": "rows"}) == [
        f"ask: {where}/a/rows.py, {where}/b/rows.py"
    ]
    lines = lint_names.shared_names(found, {"ask": "asks", "inner": "is inner"})
    assert [line.split(":")[0] for line in lines] == ["read", "rows.py", "inner"]
