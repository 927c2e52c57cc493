"""The metrics against ir_measures, which computes them with trec_eval's own code."""

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, R, Success, nDCG
from rankings import obvious_ranks, rankings

from polyagents.evaluation.judged import Judged
from polyagents.evaluation.rank_metrics import metrics
from polyagents.evaluation.trec_files import trec_files

CUTOFFS = (1, 2, 5, 10, 50)
THEIRS = {"MRR": RR, "MAP": AP}
for cutoff in CUTOFFS:
    THEIRS |= {f"R@{cutoff}": R @ cutoff, f"hits@{cutoff}": Success @ cutoff, f"nDCG@{cutoff}": nDCG @ cutoff}


def theirs(run, qrels):
    """What ir_measures makes of two files: the values of each metric by our name, in the order of the examples."""
    found = {metric: {} for metric in THEIRS.values()}
    for one in ir_measures.iter_calc([*found], ir_measures.read_trec_qrels(qrels), ir_measures.read_trec_run(run)):
        found[one.measure][int(one.query_id)] = one.value
    return {name: [found[metric][number] for number in sorted(found[metric])] for name, metric in THEIRS.items()}


@pytest.mark.parametrize("seed", range(5))
def test_every_metric_is_that_of_ir_measures_read_from_our_files(seed, tmp_path):
    """Ties and all: the files have none left, so that trec_eval's own rule for them decides nothing."""
    examples = rankings(seed)
    run, qrels = str(tmp_path / "run"), str(tmp_path / "qrels")
    with trec_files(run, qrels, "a run") as write:
        for number, judged in enumerate(examples, 1):
            write(number, judged)
    ours, expected = metrics([one.right_ranks() for one in examples], CUTOFFS), theirs(run, qrels)
    assert ours.keys() == expected.keys()
    for name, values in ours.items():
        np.testing.assert_allclose(values, expected[name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("seed", range(5))
def test_a_right_answer_stands_behind_all_that_is_wrong_and_scores_the_same(seed):
    for judged in rankings(seed, values=3):
        assert judged.right_ranks().tolist() == obvious_ranks(judged)


def test_a_model_whose_scores_have_collapsed_wins_nothing():
    right = np.array([True, False, False, True])
    judged = Judged(np.arange(4), np.zeros(4, np.float32), right)
    assert judged.right_ranks().tolist() == [3, 4]
    found = metrics([judged.right_ranks()], (1, 2, 3))
    assert (found["R@2"], found["hits@3"], found["R@3"], found["MRR"]) == ([0.0], [1.0], [0.5], [1 / 3])
    assert found["MAP"] == [(1 / 3 + 2 / 4) / 2]


def test_with_one_right_answer_recall_is_hits_and_map_is_mrr():
    found = metrics([np.array([rank]) for rank in (1, 4, 2, 30)], CUTOFFS)
    for k in CUTOFFS:
        assert (found[f"R@{k}"] == found[f"hits@{k}"]).all()
    assert (found["MAP"] == found["MRR"]).all()
    assert found["nDCG@5"].tolist() == [1.0, pytest.approx(1 / np.log2(5)), pytest.approx(1 / np.log2(3)), 0.0]
