"""`polyagents demo` removes what an earlier demo has made, and nothing else."""

import pytest

from polyagents import InputError
from polyagents.commands import demo
from polyagents.files.own_folder import own_folder


@pytest.mark.parametrize("name", ["poly/thesis.txt", "notes.txt", ".git/config"])
def test_a_folder_of_somebody_elses_stays_as_it_is(name, tmp_path):
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(InputError, match=r"holds other files, such as .*and was not created by polyagents demo; give"):
        demo.run({"output": str(tmp_path), "percent": 1})
    assert mine.read_text() == "mine"


def test_its_own_folder_is_taken_again(tmp_path):
    folder = tmp_path / "out"
    for _ in range(2):
        own_folder(str(folder), "demo", "--output")
        (folder / "poly").mkdir(exist_ok=True)
    with pytest.raises(InputError, match="was not created by polyagents other"):
        own_folder(str(folder), "other", "--output")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        own_folder(str(tmp_path / "file" / "out"), "demo", "--output")
