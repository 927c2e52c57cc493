"""From the scores of a batch to every example's ranking."""

import numpy as np
import pytest
import torch

from polyagents import InputError
from polyagents.evaluation.judged import judge
from polyagents.ranking.candidate_set import Candidate, Label, inline_set, label_ranks, shared_set

WORDS = ("yes", "no", "maybe", "never", "a lot", "so so")


def candidate(text):
    """A text with token ids that follow from it."""
    return Candidate(text, tuple(text.encode()))


def label(*texts):
    """The labels of an example, the first of which was drawn."""
    return Label(candidate(texts[0]), texts)


def test_right_candidates_that_read_alike_are_one_answer_with_the_best_of_their_scores():
    own = [candidate(text) for text in ("Yes!", "no", "the yes", "maybe", "yes")]
    candidates = inline_set([own], [label("yes", "maybe")])
    (judged,) = judge(np.array([[1, 5, 3, 4, 2]], np.float32), candidates, [label("yes", "maybe")])
    assert judged.columns.tolist() == [0, 1, 3] and judged.scores.tolist() == [3, 5, 4]
    assert judged.right.tolist() == [True, False, True] and judged.right_ranks().tolist() == [2, 3]


def test_wrong_candidates_that_read_alike_each_count():
    own = [candidate(text) for text in ("no", "No!", "yes")]
    candidates = inline_set([own], [label("yes")])
    (judged,) = judge(np.array([[2, 2, 1]], np.float32), candidates, [label("yes")])
    assert judged.right_ranks().tolist() == [3]


def test_what_is_right_by_its_token_ids_is_the_label_that_was_drawn():
    labels = [Label(Candidate("other", (9,)), ("other",))]
    candidates = inline_set([[Candidate("[UNK] one", (9,)), Candidate("other", (9,)), Candidate("a", (1,))]], labels)
    (judged,) = judge(np.array([[3, 3, 4]], np.float32), candidates, labels)
    assert judged.columns.tolist() == [0, 2] and judged.right_ranks().tolist() == [2]


def test_padding_and_examples_without_a_label_are_left_out():
    given = [[candidate("yes"), candidate("no")], [candidate("so")], [candidate("no")]]
    labels = [label("yes"), None, label("maybe")]  # the last one's list lacks it
    candidates = inline_set(given, labels)
    first, second, third = judge(np.array([[1, 2], [7, 0], [3, 4]], np.float32), candidates, labels)
    assert second is None
    assert first.right_ranks().tolist() == [2] and len(first) == 2
    assert third.columns.tolist() == [0, 1] and third.right_ranks().tolist() == [1]


@pytest.mark.parametrize("make", ["inline", "shared"])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_right_answer_has_the_rank_that_eval_model_reports(make, seed):
    draw = np.random.default_rng(seed)
    labels = [label(*draw.choice(WORDS, 2, replace=False).tolist()) for _ in range(8)]
    own = [[candidate(word) for word in draw.choice(WORDS, 4)] for _ in labels]
    candidates = inline_set(own, labels) if make == "inline" else shared_set(own[0], labels)
    scores = draw.integers(0, 4, candidates.right.shape).astype(np.float32)
    ranks = label_ranks(torch.from_numpy(scores), candidates.right, candidates.real)
    assert [one.right_ranks()[0] for one in judge(scores, candidates, labels)] == ranks.tolist()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_are_refused_but_for_padding(wrong):
    labels = [label("yes"), label("no")]
    candidates = inline_set([[candidate("yes")], [candidate("no"), candidate("so")]], labels)
    assert all(judge(np.array([[1, wrong], [1, 2]], np.float32), candidates, labels))
    with pytest.raises(InputError, match="no ranking to evaluate"):
        judge(np.array([[1, 1], [wrong, 2]], np.float32), candidates, labels)
