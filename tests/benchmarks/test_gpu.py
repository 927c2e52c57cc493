"""The command for a GPU: stages that are done stay done, whatever ended the call before."""

import json
import sys

import pytest
import torch

from polyagents.benchmarks.gpu import rows, search
from polyagents.benchmarks.gpu.__main__ import main
from polyagents.benchmarks.gpu.carry_out import carry_out, read_state
from polyagents.benchmarks.gpu.report import PICTURE, REPORT, write
from polyagents.benchmarks.gpu.stages import Data, Stage, stages_of
from polyagents.errors import InputError


def noting(folder, name, end="pass"):
    """A stage that adds a line to a file, and ends as it is told."""
    code = f"open({str(folder / name)!r}, 'a').write('x'); {end}"
    return Stage(name, [sys.executable, "-c", code], [str(folder / f"{name}.jsonl")])


def counted(folder, *names):
    """How often each stage was run."""
    return [len((folder / name).read_text()) if (folder / name).exists() else 0 for name in names]


def states(folder):
    return {name: one["state"] for name, one in read_state(str(folder)).items()}


def test_what_is_done_is_not_done_again_and_what_failed_is_tried_once_in_each_call(tmp_path):
    stages = [noting(tmp_path, "a"), noting(tmp_path, "b", "raise SystemExit(3)"), noting(tmp_path, "c")]
    assert carry_out(stages, str(tmp_path), 60) is True
    assert carry_out(stages, str(tmp_path), 60) is True
    assert counted(tmp_path, "a", "b", "c") == [1, 2, 1]
    assert states(tmp_path) == {"a": "done", "b": "failed", "c": "done"}
    assert carry_out([noting(tmp_path, "b")], str(tmp_path), 60) is False


@pytest.mark.slow
def test_a_stage_that_takes_too_long_is_stopped_with_what_it_has_begun_and_goes_on_in_the_next_call(tmp_path):
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    assert carry_out([noting(tmp_path, "a", child), noting(tmp_path, "b")], str(tmp_path), 4) is False
    assert counted(tmp_path, "a", "b") == [1, 0] and states(tmp_path) == {"a": "stopped"}
    carry_out([noting(tmp_path, "a"), noting(tmp_path, "b")], str(tmp_path), 60)
    assert counted(tmp_path, "a", "b") == [2, 1] and set(states(tmp_path).values()) == {"done"}


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {}}', '{"a": {"state": "done"}}'])
def test_a_state_that_is_not_ours_says_nothing(tmp_path, content):
    (tmp_path / "state.json").write_text(content)
    carry_out([noting(tmp_path, "a")], str(tmp_path), 60)
    assert counted(tmp_path, "a") == [1] and states(tmp_path) == {"a": "done"}


def test_a_row_is_measured_once_and_half_a_line_is_none(tmp_path):
    file, seen = tmp_path / "below" / "rows.jsonl", []

    def measured(case):
        seen.append(case["n"])
        return {"square": case["n"] ** 2}

    rows.measure_missing(str(file), [{"n": 1}, {"n": 2}], measured)
    file.write_text(file.read_text()[:-30])  # killed while it wrote the second
    rows.measure_missing(str(file), [{"n": 1}, {"n": 2}, {"n": 3}], measured)
    assert seen == [1, 2, 2, 3]
    assert [(row["n"], row["square"]) for row in rows.read(str(file))] == [(1, 1), (2, 4), (3, 9)]


def data(folder, **changes):
    given = {"device": "cuda", "backbone": "B", "task": "T", "datapath": None, "studies": [], "settings": []}
    return Data(str(folder), **given | changes)


def test_the_stages_and_what_they_get(tmp_path):
    table = tmp_path / "small.yaml"
    table.write_text("rows: {}\n")
    everything = data(tmp_path / "out", studies=[str(table)], settings=["A=1"], datapath="D")
    stages = {stage.name: stage for stage in stages_of(everything)}
    assert [*stages] == ["tests", "search", "encoding", "ranking", "training", "study small", "pretraining"]
    assert stages["tests"].command[-3:-1] == ["-m", "gpu"]
    assert stages["ranking"].command[-6:] == ["--backbone", "B", "-t", "T", "-dp", "D"]
    assert "32,128,512" in stages["training"].command and stages["training"].command[4:8] == ["-t", "T", "-dp", "D"]
    assert stages["study small"].command[-2:] == ["--set", "A=1"]
    assert (tmp_path / "out" / "studies" / "small.yaml").read_text() == "rows: {}\n"
    for_a_try = {stage.name: stage for stage in stages_of(data(tmp_path, device="cpu"))}
    assert [*for_a_try] == ["tests", "search", "encoding", "ranking", "training"]
    assert "4,8" in for_a_try["training"].command
    with pytest.raises(InputError, match="there is no such file"):
        stages_of(data(tmp_path, studies=["none.yaml"]))


def test_a_search_is_measured_and_finds_what_scoring_all_finds():
    case = {"candidates": 700, "width": 16, "m": 4, "contexts": 2}
    row = search.measured(case, torch.device("cpu"))
    assert row["equal to all scores"] is True
    assert row["of reading"] == pytest.approx(row["search ms"] / row["reading ms"]) and row["search ms"] > 0


@pytest.mark.slow
def test_the_report_has_all_that_there_is(tmp_path):
    carry_out([noting(tmp_path, "search"), noting(tmp_path, "b", "raise SystemExit(3)")], str(tmp_path), 60)
    shape = {"candidates": 1_000, "width": 8, "m": 2, "contexts": 3}
    lines = [shape | {"search ms": 2.0, "reading ms": 1.0}, {"product": "bf16", "TFLOP/s": 3.5}]
    (tmp_path / "search.jsonl").write_text("\n".join(map(json.dumps, lines)))
    text = write(str(tmp_path))
    assert text == (tmp_path / REPORT).read_text()
    assert "| b | failed |" in text and "| 1,000 | 8 | 2 | 3 | 2 | 1 |" in text and "| bf16 | 3.5 |" in text
    assert (tmp_path / PICTURE).read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_sentence_says_how_to_try_it(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "gpu: torch sees no GPU; --device cpu tries all stages with small sizes on this processor."
    assert not (tmp_path / "out").exists()
    assert main(["--out", str(tmp_path / "out"), "--minutes", "0"]) == 2
