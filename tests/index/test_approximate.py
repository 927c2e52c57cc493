"""Approximate search: the stop rule is true for complete lists, and FAISS's are as good as the build says."""

import dataclasses
import functools
import json
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
from queries import drawn_query, poly_query

from polyagents.errors import InputError
from polyagents.index import builder
from polyagents.index.approximate import representatives, search_shortlist
from polyagents.index.builder import CandidateEncoder
from polyagents.index.exact import score_all, search
from polyagents.index.faiss_index import (
    FaissShortlist,
    build_shortlist,
    describe,
    empty_index,
    open_shortlist,
    sample_of,
)
from polyagents.index.store import CandidateStore
from polyagents.index.texts import ListedTexts

COUNT, WIDTH = 3_000, 16


def encode(texts):
    generator = torch.Generator().manual_seed(0)
    every = torch.randn(2 * COUNT, WIDTH, generator=generator)
    return every[[int(text) for text in texts]]


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "SHARD", 512)
    (tmp_path / "replies.txt").write_text("\n".join(map(str, range(COUNT))))
    return CandidateStore.build(
        str(tmp_path / "replies.txt"), str(tmp_path / "index"), CandidateEncoder("model", encode, "fp32")
    )


query = functools.partial(drawn_query, WIDTH)


class Complete:
    """Lists that lack nothing."""

    def __init__(self, store, length):
        self.vectors, self.length = store.rows(range(store.slots)), length

    def nearest(self, vectors, count):
        return tuple(part.numpy() for part in (vectors @ self.vectors.T).topk(count))


@pytest.mark.parametrize("m", [1, 4, 9])
@pytest.mark.parametrize("sharpness", [0.1, 1.0])
@pytest.mark.parametrize("length", [6, 60, 600])
def test_where_the_stop_rule_holds_complete_lists_give_the_exact_answer(store, m, sharpness, length):
    asked = query(m, examples=40, spread=0.5)
    asked = poly_query(asked.context.vectors, asked.context.mask, sharpness)
    found, complete = search_shortlist(asked, Complete(store, length), store, 3)
    exact = search(asked, store, 3)
    for done, ours, best in zip(complete, found.indices, exact.indices, strict=True):
        assert not done or ours.tolist() == best.tolist()
    if (m, sharpness, length) == (9, 0.1, 60):
        assert 0 < sum(complete) < len(complete)  # the score is far from its bound: the rule holds for some
    if m == 1 or length == 600:
        assert all(complete)


def test_close_context_vectors_ask_once():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(3, WIDTH, generator=generator) * 5
    vectors = (centres.unsqueeze(1) + 0.01 * torch.randn(3, 8, WIDTH, generator=generator)).flatten(0, 1)
    asking, stand_in = representatives(vectors)
    assert sorted(place // 8 for place in asking) == [0, 1, 2]
    assert [asking[one] // 8 for one in stand_in] == [place // 8 for place in range(24)]
    apart, itself = representatives(centres)
    assert sorted(apart) == [0, 1, 2] and [apart[one] for one in itself] == [0, 1, 2]


@pytest.mark.parametrize("k", [1, 3, 50])
def test_lists_are_twice_as_long_as_the_answer_at_least(store, k):
    complete, asked = Complete(store, 6), []

    class Recording:
        length = 6

        def nearest(self, vectors, count):
            asked.append(count)
            return complete.nearest(vectors, count)

    search_shortlist(query(), Recording(), store, k)
    assert set(asked) == {max(6, 2 * k)}


def test_the_first_candidate_is_found_as_any_other(store):
    own = store.rows([0, 1, 2])
    asked = poly_query(own.unsqueeze(1), torch.ones(3, 1).bool())
    found, complete = search_shortlist(asked, Complete(store, 6), store, 1)
    assert found.indices.tolist() == search(asked, store, 1).indices.tolist()
    assert 0 in found.indices and all(complete)


def test_where_all_that_lists_hold_was_deleted_the_search_is_exact(store):
    asked = query(1)
    fewer = store.delete({int(index) for index in search(asked, store, 30).indices.flatten()})
    found, complete = search_shortlist(asked, Complete(fewer, 6), fewer, 10)
    exact = search(asked, fewer, 10)
    assert found.indices.tolist() == exact.indices.tolist() and all(complete)
    np.testing.assert_array_equal(found.scores, exact.scores)


def test_a_context_that_is_no_number_is_answered_as_by_the_exact_search(store):
    """FAISS finds nothing for the vectors of a model that has diverged."""

    class Nothing:
        length = 6

        def nearest(self, vectors, count):
            return np.full((len(vectors), count), -np.inf, np.float32), np.full((len(vectors), count), -1)

    asked = query(1)
    found, complete = search_shortlist(asked, Nothing(), store, 5)
    assert found.indices.tolist() == search(asked, store, 5).indices.tolist() and all(complete)


def small_store(tmp_path, vectors):
    """A store of these vectors, and after them some that are far from everything."""
    vectors = torch.tensor([*vectors, *([-1.0, 0.0] for _ in range(9))])
    (tmp_path / "few.txt").write_text("\n".join(map(str, range(len(vectors)))))
    maker = CandidateEncoder("model", lambda texts: vectors[[int(text) for text in texts]], "fp32")
    return CandidateStore.build(str(tmp_path / "few.txt"), str(tmp_path / "few"), maker)


@dataclasses.dataclass
class Listed:
    """A shortlist that knows one answer."""

    values: list
    indices: list
    length: int = 4

    def nearest(self, vectors, count):
        assert (len(vectors), count) == (1, len(self.values))
        return np.array([self.values], np.float32), np.array([self.indices])


def test_a_context_vector_that_did_not_ask_may_have_better_ones_outside_of_the_list(tmp_path):
    """(10, .9) lies so close to (10, 0) that only the latter asks. The fifth is its best, and stands in no list.

    Outside of the list it may find 10 + .9 * .3; the second best of the list, 10.25, is a little below.
    """
    store = small_store(tmp_path, [[1.025, 0.0], [1.0, 0.3], [1.005, 0.0], [1.004, 0.0], [0.95, 1.0]])
    asked = poly_query(torch.tensor([[[10.0, 0.0], [10.0, 0.9]]]), torch.ones(1, 2).bool(), 100.0)
    found, complete = search_shortlist(asked, Listed([10.25, 10.05, 10.04, 10.0], [0, 2, 3, 1]), store, 2)
    assert found.indices.tolist() == [[1, 0]] and complete == [False]


@pytest.mark.parametrize("rounded", [False, True])
def test_where_a_list_is_rounded_a_better_one_may_stand_outside_of_it(tmp_path, rounded):
    """The first one's product is 6, and listed as 4.5: by as much the last of the list may be wrong, 4.2 for 5.7."""
    store = small_store(tmp_path, [[6.0, 0.0], [5.6, 0.0], [4.3, 0.0], [4.2, 0.0], [5.69 if rounded else 4.0, 0.0]])
    asked = poly_query(torch.tensor([[[1.0, 0.0]]]), torch.ones(1, 1).bool())
    values, indices = [4.5 if rounded else 6.0, 5.6, 4.3, 4.2], [0, 1, 2, 3]
    found, complete = search_shortlist(asked, Listed(values, indices), store, 2)
    assert found.indices.tolist() == [[0, 1]] and complete == [not rounded]


@pytest.mark.parametrize("missing", [4.0, 5.5])
def test_a_list_with_gaps_says_no_more_than_what_it_holds(tmp_path, missing):
    """-1 where an index has no more: neither a candidate, nor a bound that all others lie below."""
    store = small_store(tmp_path, [[6.0, 0.0], [4.4, 0.0], [4.3, 0.0], [missing, 0.0]])
    asked = poly_query(torch.tensor([[[1.0, 0.0]]]), torch.ones(1, 1).bool())
    values = [6.0 if missing == 4.0 else 4.5, 4.4, 4.3, -9e9]  # 4.5 is wrong by 1.5, and so may be what is missing
    found, complete = search_shortlist(asked, Listed(values, [0, 1, 2, -1]), store, 2)
    assert found.indices.tolist() == [[0, 1]] and complete == [missing == 4.0]


def test_which_context_vectors_ask():
    one, apart = torch.zeros(16), torch.eye(16)
    one[0] = 1.0
    # 0.085 from each other, of length 1: one asks for all; 0.17: each for itself.
    assert len(representatives(one + 0.06 * apart[1:])[0]) == 1
    assert len(representatives(one + 0.12 * apart[1:])[0]) == 15
    # The one in the middle asks first, and no other has to: 0.09 from all of them, which are 0.13 from each other.
    around = one + 0.09 * apart[1:]
    asking, stand_in = representatives(torch.cat([around[:5], one.unsqueeze(0), around[5:]]))
    assert asking == [5] and stand_in.tolist() == [0] * 16
    assert representatives(torch.zeros(3, 4))[0] == [0]


def test_lists_of_everything_are_complete(store):
    found, complete = search_shortlist(query(9), Complete(store, COUNT), store, 10)
    assert all(complete) and found.indices.tolist() == search(query(9), store, 10).indices.tolist()


def test_scores_are_those_of_the_exact_search(store):
    made = build_shortlist(store, "hnsw", query())
    found, _ = search_shortlist(query(), open_shortlist(store), store, 10)
    every = score_all(query(), store).numpy()
    np.testing.assert_allclose(found.scores, np.take_along_axis(every, found.indices, 1), rtol=1e-5, atol=1e-4)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert made.recall_at_10 >= 0.99 and made.contexts == 6


@pytest.mark.parametrize(("index_type", "least"), [("hnsw", 0.99), ("ivfpq", 0.5)])
def test_recall_is_told_and_kept(store, index_type, least):
    made = build_shortlist(store, index_type, query(examples=30))
    assert made == describe(store)
    exact, shortlist = search(query(examples=30), store, 10).indices, open_shortlist(store)
    found, _ = search_shortlist(query(examples=30), shortlist, store, 10)
    shares = [np.isin(want, got).mean() for want, got in zip(exact, found.indices, strict=True)]
    assert made.recall_at_10 == pytest.approx(np.mean(shares)) and made.recall_at_10 >= least
    assert made.recall_at_1 >= least
    (file,) = Path(store.folder).glob("*.faiss")
    before = file.stat().st_mtime_ns
    build_shortlist(store, index_type, query())
    assert file.stat().st_mtime_ns == before  # it is there already


def test_what_was_deleted_is_not_found(store):
    build_shortlist(store, "hnsw", query())
    best = search(query(), store, 1).indices[:, 0].tolist()
    fewer = store.delete(best)
    found, _ = search_shortlist(query(), open_shortlist(fewer), fewer, 10)
    assert not set(best) & set(found.indices.flatten().tolist())


def test_where_most_of_a_list_was_deleted_the_search_is_exact(store):
    build_shortlist(store, "hnsw", query())
    gone = search(query().one(0), store, 1_000).indices[0].tolist()
    fewer = store.delete(gone)
    found, complete = search_shortlist(query(), open_shortlist(fewer), fewer, 10)
    assert found.indices.shape == (6, 10) and complete[0]
    assert found.indices[0].tolist() == search(query(), fewer, 10).indices[0].tolist()


def test_an_index_of_other_candidates_is_not_used(store, capsys):
    build_shortlist(store, "ivfpq", query())
    longer = store.append(ListedTexts([str(COUNT)]), encode)
    assert open_shortlist(longer) is None
    told = capsys.readouterr().err
    assert "is older than its candidates or their vectors" in told
    assert "polyagents index add is run with --index-type ivfpq again" in told  # build_index refuses what was added to
    made = build_shortlist(longer, "ivfpq", query())
    assert open_shortlist(longer) is not None
    assert "older" not in capsys.readouterr().err
    (Path(longer.folder) / made.file).unlink()
    with pytest.raises(InputError, match="run polyagents index add with --index-type ivfpq again"):
        open_shortlist(longer)


def test_a_damaged_index_is_refused(store, tmp_path):
    made = build_shortlist(store, "hnsw", query())
    file = tmp_path / "index" / made.file
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(InputError, match="missing or damaged; run polyagents index build"):
        open_shortlist(store)
    file.unlink()
    with pytest.raises(InputError, match="missing or damaged"):
        open_shortlist(store)
    build_shortlist(store, "hnsw", query())  # mends it
    assert open_shortlist(store) is not None
    (tmp_path / "index" / "shortlist.json").write_text(json.dumps({"index_type": "x"}))
    assert open_shortlist(store) is None


@pytest.mark.parametrize("index_type", ["hnsw", "ivfpq"])
def test_a_changed_byte_of_an_index_is_noticed(store, tmp_path, index_type):
    """FAISS reads most damaged files without a word."""
    file = tmp_path / "index" / build_shortlist(store, index_type, query()).file
    content = file.read_bytes()
    assert open_shortlist(store) is not None
    for place in range(0, len(content), len(content) // 20):
        file.write_bytes(content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :])
        with pytest.raises(InputError, match="missing or damaged"):
            open_shortlist(store)
    file.write_bytes(content)
    assert open_shortlist(store) is not None


def test_an_index_without_a_checksum_must_at_least_be_of_as_many_candidates(store, tmp_path):
    """Those of 0.1.0 have none."""
    made = build_shortlist(store, "hnsw", query())
    description = tmp_path / "index" / "shortlist.json"
    fields = json.loads(description.read_text())
    del fields["sha256"]
    description.write_text(json.dumps(fields))
    assert open_shortlist(store) is not None
    other = empty_index("hnsw", store)
    other.add(store.rows(range(5)).numpy())
    faiss.write_index(other, str(tmp_path / "index" / made.file))
    with pytest.raises(InputError, match="missing or damaged"):
        open_shortlist(store)


def test_types_and_widths_that_cannot_be(store):
    with pytest.raises(InputError, match="there are hnsw and ivfpq"):
        build_shortlist(store, "flat", query())
    store.shards[0].tensors["vectors"] = store.shards[0].tensors["vectors"][:, :15]
    with pytest.raises(InputError, match="a width divisible by 4"):
        build_shortlist(store, "ivfpq", query())


def test_a_sample_is_even_and_whole(store):
    assert sample_of(store, 3) == ["0", str((COUNT - 1) // 2), str(COUNT - 1)]
    assert len(sample_of(store, 10 * COUNT)) == COUNT


def test_faiss_lists_that_end_early(store):
    """FAISS fills a list with -1 where the clusters that it looked into hold no more."""
    index = faiss.index_factory(WIDTH, "IVF64,Flat", faiss.METRIC_INNER_PRODUCT)
    vectors = store.rows(range(COUNT)).numpy()
    index.train(vectors)
    index.add(vectors)
    found, _ = search_shortlist(query(), FaissShortlist(index), store, 100)
    assert found.indices.min() >= 0


@pytest.mark.parametrize("index_type", ["hnsw", "ivfpq"])
def test_the_length_of_a_list_is_of_one_search_only(store, index_type):
    """Other threads search the same index at the same time, with lists of other lengths."""
    index = empty_index(index_type, store)
    index.add(store.rows(range(COUNT)).numpy())
    shortlist, settings = FaissShortlist(index), index.hnsw if index_type == "hnsw" else index
    before = getattr(settings, "efSearch", None), getattr(settings, "nprobe", None)
    vectors = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(0))
    few, many = (shortlist.nearest(vectors, count)[1] for count in (16, 600))
    assert (getattr(settings, "efSearch", None), getattr(settings, "nprobe", None)) == before
    assert few.shape == (2, 16) and many.shape == (2, 600)


def test_few_candidates_are_clustered_without_a_warning(tmp_path, capfd):
    """FAISS prints its warnings itself, one for each code of a vector."""
    (tmp_path / "few.txt").write_text("\n".join(map(str, range(100))))
    encoder = CandidateEncoder("model", encode, "fp32")
    few = CandidateStore.build(str(tmp_path / "few.txt"), str(tmp_path / "few"), encoder)
    build_shortlist(few, "ivfpq", query())
    assert "WARNING" not in "".join(capfd.readouterr())
