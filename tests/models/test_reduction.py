"""red() and the four kinds of context vectors against loops over the real tokens of each text; chunks of them."""

import pytest
import torch

from polyagents.models.formulas import (
    CONTEXT_VECTORS,
    REDUCTIONS,
    ContextVectors,
    context_vectors,
    in_order,
    masked_mean,
    reduce,
    reduce_places,
    stacked,
)

LENGTHS = [7, 1, 3, 0, 5, 4, 2]


@pytest.fixture
def batch():
    states = torch.randn(len(LENGTHS), 7, 4, generator=torch.Generator().manual_seed(1))
    return states, torch.arange(7) < torch.tensor(LENGTHS).unsqueeze(1)


def real(vectors, example):
    """The vectors of one example that its mask calls real."""
    return vectors.vectors[example][vectors.mask[example]]


@pytest.mark.parametrize("m", [1, 2, 7, 360])
@pytest.mark.parametrize("kind", ["mean", "first_m"])
def test_means_count_real_tokens_only(batch, kind, m):
    states, mask = batch
    result = reduce(states, mask, kind, m)
    for example, length in enumerate(LENGTHS):
        kept = states[example, : min(length, m) if kind == "first_m" else length]
        expected = kept.mean(0) if length else torch.zeros(4)
        torch.testing.assert_close(result[example], expected)


def test_first_is_the_first_token_and_for_a_decoder_the_last(batch):
    states, mask = batch
    assert torch.equal(reduce(states, mask, "first", 1), states[:, 0])
    last = reduce(states, mask, "first", 1, causal=True)
    for example, length in enumerate(LENGTHS):
        assert torch.equal(last[example], states[example, max(length - 1, 0)])


@pytest.mark.parametrize("m", [1, 3, 7, 360])
def test_n_first_and_n_last_take_what_is_there(batch, m):
    states, mask = batch
    first, last = context_vectors(states, mask, "n_first", m), context_vectors(states, mask, "n_last", m)
    for example, length in enumerate(LENGTHS):
        assert torch.equal(real(first, example), states[example, : min(m, length)])
        assert torch.equal(real(last, example), states[example, max(length - m, 0) : length])


@pytest.mark.parametrize("m", [1, 3, 7, 360])
def test_n_last_and_first_counts_the_first_once(batch, m):
    states, mask = batch
    result = context_vectors(states, mask, "n_last_and_first", m)
    for example, length in enumerate(LENGTHS):
        last = states[example, max(length - m, 0) : length]
        expected = torch.cat([states[example, :1], last]) if length > m else last
        assert torch.equal(real(result, example), expected)


@pytest.mark.parametrize("m", [1, 16])
def test_codes_give_m_vectors_and_ignore_padding(batch, m):
    states, mask = batch
    codes = torch.randn(m, 4, generator=torch.Generator().manual_seed(2))
    result = context_vectors(states, mask, "codes", m, codes)
    garbage = context_vectors(states.masked_fill(~mask.unsqueeze(-1), 99.0), mask, "codes", m, codes)
    assert result.vectors.shape == (len(LENGTHS), m, 4)
    assert result.mask.all(1).tolist() == [length > 0 for length in LENGTHS]
    torch.testing.assert_close(result.vectors, garbage.vectors)


def test_codes_at_zero_start_as_the_mean(batch):
    states, mask = batch
    result = context_vectors(states, mask, "codes", 3, torch.zeros(3, 4))
    torch.testing.assert_close(result.vectors, masked_mean(states, mask).unsqueeze(1).expand(-1, 3, -1))


@pytest.mark.parametrize("kind", CONTEXT_VECTORS)
def test_more_padding_changes_nothing(batch, kind):
    states, mask = batch
    codes = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    padded, longer = torch.cat([states, torch.randn(len(LENGTHS), 5, 4)], 1), torch.cat([mask, mask[:, :5] & False], 1)
    short, long = context_vectors(states, mask, kind, 3, codes), context_vectors(padded, longer, kind, 3, codes)
    for example in range(len(LENGTHS)):
        torch.testing.assert_close(real(short, example), real(long, example))


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_texts_of_a_row_are_reduced_as_separate_ones(kind, causal):
    """The second row has one candidate fewer than the first, and padding."""
    states = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    places = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 0, 0, 1, -1, -1]])
    found = reduce_places(states, places, 2, kind, 2, causal)
    for row, its in enumerate(places):
        for place in range(3):
            own = states[row, its == place].unsqueeze(0)
            expected = (
                reduce(own, torch.ones(own.shape[:2], dtype=torch.bool), kind, 2, causal)[0]
                if own.size(1)
                else torch.zeros(4)
            )
            torch.testing.assert_close(found[row, place], expected)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_chunks_are_joined_as_a_loop_over_their_rows_joins_them(is_ordered):
    """A chunk of short texts is narrower; what is added there is 0, and masked."""
    draw = torch.Generator().manual_seed(3)
    rows = [torch.tensor([4, 0]), torch.tensor([2]), torch.tensor([3, 5, 1])]
    parts = []
    for its, width in zip(rows, (3, 1, 2), strict=True):
        mask = torch.rand(len(its), width, generator=draw) > 0.3
        parts.append(ContextVectors(torch.randn(len(its), width, 4, generator=draw), mask))
    found = stacked(parts, rows if is_ordered else None)
    vectors, mask = torch.zeros(6, 3, 4), torch.zeros(6, 3, dtype=torch.bool)
    place = 0
    for part, its in zip(parts, rows, strict=True):
        for i, row in enumerate(its.tolist()):
            to, width = row if is_ordered else place, part.mask.size(1)
            vectors[to, :width], mask[to, :width] = part.vectors[i], part.mask[i]
            place += 1
    assert torch.equal(found.vectors, vectors) and torch.equal(found.mask, mask)
    assert torch.equal(in_order([part.vectors for part in parts], rows if is_ordered else None), vectors)
    flat = in_order([part.vectors[:, 0] for part in parts], rows)  # vectors [b, D], which are equally wide
    assert torch.equal(flat[torch.cat(rows)], torch.cat([part.vectors[:, 0] for part in parts]))
