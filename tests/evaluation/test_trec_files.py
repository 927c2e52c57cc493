"""Run files and qrels: what is in them, and that they are whole or not there."""

import ir_measures
import numpy as np
import pytest
from rankings import rankings

from polyagents import InputError
from polyagents.evaluation import trec_files as module
from polyagents.evaluation.judged import Judged
from polyagents.evaluation.trec_files import strictly_falling, trec_files

THREE = Judged(np.array([0, 4, 7]), np.array([1.5, 2.25, 1.5], np.float32), np.array([True, False, False]))


def test_the_lines_are_trecs(tmp_path):
    with trec_files(str(tmp_path / "run"), str(tmp_path / "qrels"), "my runs/poly") as write:
        write(1, THREE)
        write(2, Judged(np.array([3]), np.array([-7.0], np.float32), np.array([True])))
    assert (tmp_path / "qrels").read_text() == "1 0 0 1\n2 0 3 1\n"
    assert (tmp_path / "run").read_text() == (
        "1 Q0 4 1 2.25 my_runs/poly\n1 Q0 7 2 1.5 my_runs/poly\n1 Q0 0 3 1.4999999 my_runs/poly\n"
        "2 Q0 3 1 -7.0 my_runs/poly\n"
    )


def test_only_what_is_asked_for_is_written(tmp_path):
    with trec_files(None, str(tmp_path / "qrels"), "x") as write:
        write(1, THREE)
    assert [path.name for path in tmp_path.iterdir()] == ["qrels"]


def test_a_run_that_breaks_off_leaves_nothing_and_the_old_files_alone(tmp_path):
    (tmp_path / "run").write_text("old\n")
    with pytest.raises(ZeroDivisionError), trec_files(str(tmp_path / "run"), str(tmp_path / "qrels"), "x") as write:
        write(1, THREE)
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["run"] and (tmp_path / "run").read_text() == "old\n"


def test_a_file_that_cannot_be_written_is_said_in_one_sentence(tmp_path):
    with pytest.raises(InputError, match="run cannot be written"), trec_files(str(tmp_path / "no" / "run"), None, "x"):
        pass


def test_a_long_list_is_cut_where_trecs_are_with_the_best_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "DEPTH", 5)
    examples = rankings(0, count=20)
    with trec_files(str(tmp_path / "run"), None, "x") as write:
        for number, judged in enumerate(examples, 1):
            write(number, judged)
    run = ir_measures.read_trec_run(str(tmp_path / "run"))
    found = {}
    for line in run:
        found.setdefault(int(line.query_id), []).append(int(line.doc_id))
    for number, judged in enumerate(examples, 1):
        order = sorted(range(len(judged)), key=lambda i: (-judged.scores[i], judged.right[i], i))
        assert found[number] == judged.columns[order[:5]].tolist()


@pytest.mark.parametrize(
    "scores", [[3, 3, 3, 3], [0, 0, 0], [-1, -1, -2], [1e-45, 0, 0, -1e-45], [1e30, 1e30], [5], [2, 1, 1, 1, 0.5]]
)
def test_scores_fall_strictly_and_hardly_move(scores):
    given = np.array(scores, np.float32)
    fallen = strictly_falling(given)
    assert (np.diff(fallen) < 0).all()
    np.testing.assert_allclose(fallen, given, rtol=1e-6, atol=1e-40)
    assert all(np.float32(str(score)) == score for score in fallen)  # as it is written


def test_a_run_has_the_best_thousand(tmp_path):
    judged = Judged(np.arange(1_001), np.arange(1_001, dtype=np.float32), np.arange(1_001) == 0)
    with trec_files(str(tmp_path / "run"), None, "x") as write:
        write(1, judged)
    assert [int(line.split()[2]) for line in (tmp_path / "run").read_text().splitlines()] == [*range(1_000, 0, -1)]
