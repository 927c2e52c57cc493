"""Reports and logs of ParlAI's commands: checked before the work, and one for each task."""

import pytest
from commands import SAMPLE, copy_model, run

from polyagents import InputError

FEW = ("-t", SAMPLE, "--num-examples", "2")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("eval_model", (*FEW, "--report-filename", "{M}")),
        ("eval_model", (*FEW, "--report-filename", ".opt")),
        ("eval_model", (*FEW, "--world-logs", "{M}", "--save-format", "parlai")),
        ("eval_model", ("-t", "jsonfile", "--jsonfile-datapath", "{F}", "--world-logs", "{F}")),
        ("interactive", ("--fixed-candidates-path", "{F}", "--outfile", "{F}")),
        ("self_chat", ("--outfile", "{M}.dict", "--save-format", "parlai")),
    ],
)
def test_no_report_or_log_replaces_what_is_read(command, flags, trained, tmp_path):
    names = {"M": copy_model(trained("bi"), tmp_path / "M"), "F": tmp_path / "F.jsonl"}
    names["F"].write_text("kept")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="would replace what is read"):
        run(command, "-mf", names["M"], *(flag.format(**names) for flag in flags))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_report_that_cannot_be_written_is_refused_and_its_folder_is_made(trained, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        run("eval_model", "-mf", trained("bi"), *FEW, "--report-filename", tmp_path)
    run("eval_model", "-mf", trained("bi"), *FEW, "--report-filename", tmp_path / "new" / "report.json")
    assert (tmp_path / "new" / "report.json").stat().st_size


def test_a_report_beside_or_above_has_its_own_name(trained, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("./report.json", "../report.json"):
        run("eval_model", "-mf", trained("bi"), *FEW, "--report-filename", name)
        assert (tmp_path / "here" / name).stat().st_size


@pytest.mark.parametrize("form", ["conversations", "parlai"])
def test_each_of_several_tasks_has_a_log(form, trained, tmp_path):
    tasks, logs = f"{SAMPLE},polyagents.tasks.dstc7:sample", tmp_path / "logs"
    run("eval_model", "-mf", trained("bi"), *FEW, "-t", tasks, "--world-logs", logs, "--save-format", form)
    written = [path for path in tmp_path.iterdir() if path.suffix != ".metadata"]
    assert len(written) == 2 and all(path.stat().st_size for path in written)
