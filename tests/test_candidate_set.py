"""What a batch ranks: repetitions, padding, missing labels, ranks."""

import pytest
import torch

from polyagents.errors import InputError
from polyagents.ranking.candidate_set import Candidate, equal_to_label, inline_set, label_ranks, shared_set

A, B, C = Candidate("a", (1,)), Candidate("b", (2, 3)), Candidate("c", (4,))


def test_a_shared_set_holds_every_candidate_once():
    candidates = shared_set([B, A, B], [A, B, A])
    assert candidates.ids == [(2, 3), (1,)]
    assert candidates.texts == ["b", "a"] == candidates.of(2)
    assert candidates.labels.tolist() == [1, 0, 1]
    assert candidates.mask.tolist() == [[True, True]] * 3


def test_labels_that_are_missing_are_added():
    assert shared_set([B], [C]).ids == [(2, 3), (4,)]
    inline = inline_set([[B], []], [C, A])
    assert [inline.of(0), inline.of(1)] == [["b", "c"], ["a"]]
    assert inline.labels.tolist() == [1, 0]


def test_inline_lists_are_padded_and_copies_of_the_label_do_not_count():
    candidates = inline_set([[A, B, A], [C]], [A, C])
    assert candidates.ids == [(1,), (2, 3), (4,)]
    assert candidates.rows.tolist() == [[0, 1, 0], [2, 0, 0]]
    assert candidates.mask.tolist() == [[True, True, False], [True, False, False]]
    assert candidates.real(3).tolist() == [[True, True, True], [True, False, False]]
    assert candidates.labels.tolist() == [0, 0]


def test_without_labels_there_is_nothing_to_point_at():
    assert shared_set([A, B], None).labels is None
    assert inline_set([[A, B]], None).labels is None
    with pytest.raises(InputError, match="neither candidates nor labels"):
        inline_set([[]], None)


def test_a_candidate_that_reads_as_the_label_is_the_label():
    texts = ["Yes!", "the yes", "no"]  # ParlAI's teachers ignore case, punctuation and articles
    given = [Candidate(text, (i,)) for i, text in enumerate(texts)]
    candidates = inline_set([given], [given[0]])
    assert equal_to_label(candidates, ["Yes!"], 3).tolist() == [[True, True, False]]


def test_a_label_loses_ties_and_its_best_copy_counts():
    scores = torch.tensor([[1.0, 1.0, 1.0], [2.0, 1.0, 0.0], [0.0, 1.0, 5.0], [0.0, 1.0, 5.0]])
    equal = torch.tensor([[True, False, False]] * 3 + [[True, False, True]])
    real = torch.tensor([[True, True, True], [True, True, True], [True, True, False], [True, True, True]])
    assert label_ranks(scores, equal, real).tolist() == [3, 1, 2, 1]


def test_scores_that_are_no_numbers_win_nothing():
    equal = torch.tensor([[True, False, False]])
    for scores in ([[torch.nan] * 3], [[torch.nan, 1.0, 2.0]]):
        assert label_ranks(torch.tensor(scores), equal, torch.ones(1, 3).bool()).tolist() == [3]
