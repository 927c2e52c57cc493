"""What a batch ranks: repetitions, padding, missing labels, ranks."""

import math
import random

import pytest
import torch
from parlai.core.metrics import normalize_answer

from polyagents.errors import InputError
from polyagents.ranking.candidate_set import (
    Candidate,
    Label,
    columns_in,
    inline_set,
    label_ranks,
    shared_set,
    shared_set_with_own,
)

A, B, C = Candidate("a", (1,)), Candidate("b", (2, 3)), Candidate("c", (4,))
SEEDS = range(40)


def candidate(text):
    """Of a tokenizer that ignores case: "yes" and "YES" have the same ids, "Yes!" only reads as they do."""
    return Candidate(text, tuple(text.lower().encode()))


def drawn(draw, least, most):
    """Candidates, some of which are equal, and some of which read alike."""
    words = ["yes", "YES", "Yes!", "the yes", "no", "No .", "maybe", "a maybe", "so", "well", "never"]
    return [candidate(draw.choice(words)) for _ in range(draw.randint(least, most))]


def labels_of(candidates):
    """Labels of examples that have one each."""
    return None if candidates is None else [Label(one, (one.text,)) for one in candidates]


def reads_alike(text, other):
    return normalize_answer(text) == normalize_answer(other)


def test_a_shared_set_holds_every_candidate_once():
    candidates = shared_set([B, A, B], labels_of([A, B, A]))
    assert candidates.ids == [(2, 3), (1,)]
    assert candidates.texts == ["b", "a"] == candidates.of(2)
    assert candidates.labels.tolist() == [1, 0, 1]
    assert candidates.mask.tolist() == [[True, True]] * 3


def test_a_label_is_meant_for_its_example_though_no_list_has_it():
    candidates = shared_set_with_own([A], [[B], []], [], labels_of([C, B]))
    assert candidates.texts == ["a", "b", "c"]
    assert candidates.real.tolist() == [[True, True, True], [True, True, False]]


def test_labels_that_are_missing_are_added():
    assert shared_set([B], labels_of([C])).ids == [(2, 3), (4,)]
    inline = inline_set([[B], []], labels_of([C, A]))
    assert [inline.of(0), inline.of(1)] == [["b", "c"], ["a"]]
    assert inline.labels.tolist() == [1, 0]


def test_inline_lists_are_padded_and_copies_of_the_label_do_not_count():
    candidates = inline_set([[A, B, A], [C]], labels_of([A, C]))
    assert candidates.ids == [(1,), (2, 3), (4,)]
    assert candidates.rows.tolist() == [[0, 1, 0], [2, 0, 0]]
    assert candidates.mask.tolist() == [[True, True, False], [True, False, False]]
    assert candidates.real.tolist() == [[True, True, True], [True, False, False]]
    assert candidates.labels.tolist() == [0, 0]


def test_without_labels_there_is_nothing_to_point_at():
    assert shared_set([A, B], None).labels is None
    assert inline_set([[A, B]], None).labels is None
    with pytest.raises(InputError, match="neither candidates nor labels"):
        inline_set([[]], None)


def test_a_candidate_that_reads_as_the_label_is_the_label():
    texts = ["Yes!", "the yes", "no"]  # ParlAI's teachers ignore case, punctuation and articles
    given = [Candidate(text, (i,)) for i, text in enumerate(texts)]
    candidates = inline_set([given], labels_of([given[0]]))
    assert candidates.right.tolist() == [[True, True, False]]


def test_a_label_loses_ties_and_its_best_copy_counts():
    scores = torch.tensor([[1.0, 1.0, 1.0], [2.0, 1.0, 0.0], [0.0, 1.0, 5.0], [0.0, 1.0, 5.0]])
    equal = torch.tensor([[True, False, False]] * 3 + [[True, False, True]])
    real = torch.tensor([[True, True, True], [True, True, True], [True, True, False], [True, True, True]])
    assert label_ranks(scores, equal, real).tolist() == [3, 1, 2, 1]


def test_scores_that_are_no_numbers_win_nothing():
    equal = torch.tensor([[True, False, False]])
    for scores in ([[torch.nan] * 3], [[torch.nan, 1.0, 2.0]]):
        assert label_ranks(torch.tensor(scores), equal, torch.ones(1, 3).bool()).tolist() == [3]


# ---- against loops ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shared_set_is_what_a_loop_makes_of_it(seed):
    draw = random.Random(seed)
    given, labels = drawn(draw, 0, 8), drawn(draw, 1, 5)
    candidates = shared_set(given, labels_of(labels))
    distinct = {}
    for text, ids in [*given, *labels]:
        distinct.setdefault(ids, text)
    assert candidates.ids == list(distinct) and candidates.rows is None
    assert candidates.texts == list(distinct.values())
    for label, column, mask in zip(labels, candidates.labels.tolist(), candidates.mask.tolist(), strict=True):
        assert candidates.ids[column] == label.ids
        for place, (text, counts) in enumerate(zip(candidates.texts, mask, strict=True)):
            assert counts == (place == column or not reads_alike(text, label.text))
    assert columns_in(given, candidates) == [candidates.ids.index(one.ids) for one in given]


@pytest.mark.parametrize("seed", SEEDS)
def test_inline_lists_are_what_a_loop_makes_of_them(seed):
    draw = random.Random(seed)
    lists, labels = [drawn(draw, 0, 6) for _ in range(4)], drawn(draw, 4, 4)
    for wanted in (labels, None) if any(lists) else (labels,):
        candidates = inline_set(lists, labels_of(wanted))
        assert len(set(candidates.ids)) == len(candidates.ids)
        width = max(len(candidates.of(example)) for example in range(4))
        assert candidates.rows.shape == candidates.mask.shape == (4, width)
        assert (candidates.labels is None) == (wanted is None)
        for example, own in enumerate(lists):
            lacks = wanted is not None and labels[example].ids not in [one.ids for one in own]
            expected = [*own, labels[example]] if lacks else own
            assert candidates.of(example) == [one.text for one in expected]
            rows, mask = candidates.rows[example].tolist(), candidates.mask[example].tolist()
            assert [candidates.ids[row] for row in rows[: len(expected)]] == [one.ids for one in expected]
            column = None
            if wanted is not None:
                column = candidates.labels[example].item()
                alike = [place for place, one in enumerate(expected) if one.ids == labels[example].ids]
                by_its_text = [place for place in alike if expected[place].text == labels[example].text]
                assert column == (by_its_text or alike)[0]
            for place, one in enumerate(expected):
                alike = wanted is not None and reads_alike(one.text, labels[example].text)
                assert mask[place] == (place == column or not alike)
            assert not any(mask[len(expected) :])
            assert candidates.real[example].tolist() == [place < len(expected) for place in range(width)]


@pytest.mark.parametrize("seed", SEEDS)
def test_own_lists_beside_shared_ones_are_what_a_loop_makes_of_them(seed):
    draw = random.Random(seed)
    given, others, labels = drawn(draw, 0, 4), drawn(draw, 0, 4), drawn(draw, 3, 3)
    own = [drawn(draw, 0, 3) for _ in range(3)]
    candidates = shared_set_with_own(given, own, others, labels_of(labels))
    everything = [*given, *others, *(one for listed in own for one in listed), *labels]
    assert candidates.ids == list(dict.fromkeys(one.ids for one in everything))
    for example, label in enumerate(labels):
        meant = {one.ids for one in (*given, *own[example], label)}
        column = candidates.labels[example].item()
        assert candidates.ids[column] == label.ids
        for place, (ids, text) in enumerate(zip(candidates.ids, candidates.texts, strict=True)):
            counts = ids in meant and (place == column or not reads_alike(text, label.text))
            assert candidates.mask[example, place].item() == counts


@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_are_those_of_a_loop(seed):
    draw = random.Random(seed)
    b, c = draw.randint(1, 4), draw.randint(1, 6)
    scores = [[draw.choice([-1.0, 0.0, 0.5, 2.0, -math.inf, math.nan]) for _ in range(c)] for _ in range(b)]
    real = [[place < size for place in range(c)] for size in (draw.randint(1, c) for _ in range(b))]
    equal = [[draw.random() < 0.3 and counts for counts in row] for row in real]
    for row in equal:
        row[0] = True  # the label itself
    expected = []
    for row, same, counts in zip(scores, equal, real, strict=True):
        own = [score for score, one in zip(row, same, strict=True) if one]
        best = math.nan if any(map(math.isnan, own)) else max(own)
        rivals = [score for score, one, there in zip(row, same, counts, strict=True) if there and not one]
        expected.append(1 + sum(not score < best for score in rivals))
    ranks = label_ranks(torch.tensor(scores), torch.tensor(equal), torch.tensor(real))
    assert ranks.tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_what_reads_as_the_label_is_what_a_loop_finds(seed):
    draw = random.Random(seed)
    lists, labels = [drawn(draw, 0, 5) for _ in range(3)], drawn(draw, 3, 3)
    texts = [label.text for label in labels]
    for candidates in (inline_set(lists, labels_of(labels)), shared_set(lists[0], labels_of(labels))):
        equal = candidates.right.tolist()
        for example, row in enumerate(equal):
            for place, found in enumerate(row):
                there = place < len(candidates.of(example))
                is_label = place == candidates.labels[example]
                assert found == (is_label or (there and reads_alike(candidates.of(example)[place], texts[example])))


def test_labels_that_read_alike_are_no_negatives_of_each_other():
    """Not even where their token ids differ: ParlAI's teachers count either as the right answer to both."""
    labels = [candidate("Yes!"), candidate("the yes"), candidate("no")]
    assert shared_set(labels, labels_of(labels)).mask.tolist() == [
        [True, False, True],
        [False, True, True],
        [True, True, True],
    ]
    inline = inline_set([labels, labels, labels], labels_of(labels))
    assert inline.mask.tolist() == [[True, False, True], [False, True, True], [True, True, True]]


def test_a_shared_list_without_labels_has_one_row_for_all():
    candidates = shared_set([A, B, A], None)
    assert candidates.ids == [(1,), (2, 3)] and candidates.texts == ["a", "b"]
    assert candidates.mask.tolist() == [[True, True]]


def test_a_label_given_with_another_text_of_the_same_ids():
    """The label column points at what its ids say, and the copy keeps the text that came first."""
    candidates = shared_set([candidate("YES"), candidate("no")], labels_of([candidate("yes")]))
    assert candidates.texts == ["YES", "no"] and candidates.labels.tolist() == [0]
    assert candidates.right.tolist() == [[True, False]]


def test_the_label_is_equal_to_itself_however_it_reads():
    """Where only the token ids agree (an unknown word, a truncated text), the label's column is still the label."""
    candidates = shared_set([Candidate("[UNK] one", (9,)), A], labels_of([Candidate("other", (9,))]))
    assert candidates.right.tolist() == [[True, False]]


# ---- several labels --------------------------------------------------------------------------------------------------


def several(*texts):
    """An example's labels, of which the first one was drawn."""
    return Label(candidate(texts[0]), texts)


@pytest.mark.parametrize("make", ["inline", "shared"])
def test_every_label_of_an_example_is_right_and_none_is_a_negative(make):
    given = [candidate(text) for text in ("no", "Maybe!", "yes", "so")]
    labels = [several("yes", "maybe"), several("so")]
    candidates = inline_set([given, given], labels) if make == "inline" else shared_set(given, labels)
    assert candidates.right.tolist() == [[False, True, True, False], [False, False, False, True]]
    assert candidates.mask.tolist() == [[True, False, True, True], [True, True, True, True]]
    assert candidates.labels.tolist() == [2, 3]
    scores = torch.tensor([[3.0, 9.0, 0.0, 2.0], [3.0, 9.0, 0.0, 2.0]])
    assert label_ranks(scores, candidates.right, candidates.real).tolist() == [1, 3]


def test_a_list_with_another_right_label_gets_none_added():
    candidates = inline_set([[candidate("no"), candidate("maybe")]], [several("yes", "maybe")])
    assert candidates.of(0) == ["no", "maybe"] and candidates.labels.tolist() == [1]


def test_examples_without_a_label_beside_others():
    given = [candidate("no"), candidate("yes")]
    for candidates in (inline_set([given, given], [several("yes"), None]), shared_set(given, [several("yes"), None])):
        assert candidates.labels.tolist() == [1, -1]
        assert candidates.right.tolist() == [[False, True], [False, False]]
        assert candidates.mask.tolist() == [[True, True], [True, True]]


def test_no_examples_of_our_own_beside_those_of_other_processes():
    candidates = shared_set([A, B], [])
    assert candidates.mask.shape == (0, 2) and candidates.labels.shape == (0,) and candidates.ids == [A.ids, B.ids]
