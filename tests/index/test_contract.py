"""One contract for candidates wherever they are: a store on disk, memory, Milvus Lite and PostgreSQL."""

import contextlib
import functools
import itertools
import json

import engines
import numpy as np
import pytest
import torch
import with_ids
from queries import drawn_query

from polyagents.errors import InputError
from polyagents.index import builder, store
from polyagents.index.builder import CandidateEncoder
from polyagents.index.candidate_records import ListedRecords
from polyagents.index.columns import Columns
from polyagents.index.engines import candidates as engine_candidates
from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.engines.urls import open_engine
from polyagents.index.filters import FilterError
from polyagents.index.in_memory import InMemoryCandidates, ListedCandidates, as_index
from polyagents.index.store import CandidateStore
from polyagents.index.texts import ListedTexts
from polyagents.ranker import Ranker

COUNT, WIDTH, MODEL = 400, 16, "a" * 64
TEXTS = [str(number) for number in range(COUNT)]
KINDS = ["store", "memory", pytest.param("milvus-lite", marks=pytest.mark.slow), "pgvector"]
NUMBER = itertools.count()
query = functools.partial(drawn_query, WIDTH)


def encode(texts):
    """Equal vectors for 7 and 1007, 8 and 1008, ...: they tie."""
    every = torch.randn(1_000, WIDTH, generator=torch.Generator().manual_seed(0))
    return every[[int(text) % 1_000 for text in texts]]


@pytest.fixture(scope="module", params=KINDS)
def opened(request, tmp_path_factory):
    """A function of texts: their index, of one kind, in a place of its own."""
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("contract")
        if request.param == "memory":

            def in_memory(texts):
                return InMemoryCandidates(texts, encode(texts), MODEL)

            def with_columns(rows):
                records = ListedRecords(rows, with_ids.FIELDS, is_update=False).records(0, len(rows))
                texts = [record.text for record in records]
                columns = Columns.of(records, with_ids.FIELDS)
                return InMemoryCandidates(texts, encode(texts), MODEL, columns=columns)

            in_memory.with_ids = with_columns
            yield in_memory
            return
        if request.param == "store":

            def of_file(texts):
                file = folder / f"{next(NUMBER)}.txt"
                file.write_text("\n".join(texts))
                return CandidateStore.build(str(file), f"{file}.index", CandidateEncoder(MODEL, encode, "fp32"))

            def of_rows(rows):
                file = folder / f"{next(NUMBER)}.jsonl"
                file.write_text("\n".join(map(json.dumps, rows)))
                maker = CandidateEncoder(MODEL, encode, "fp32")
                return CandidateStore.build(str(file), f"{file}.index", maker, fields=with_ids.FIELDS)

            of_file.with_ids = of_rows
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for module in (builder, store):
                patch.setattr(module, "SHARD", 64)
            yield of_file
            return
        socket = request.getfixturevalue("postgres_socket") if request.param == "pgvector" else None
        url = stack.enter_context(engines.running(request.param, folder, socket))
        engine = open_engine(url.format(name="contract"), make=True)  # Milvus Lite takes a second to open
        stack.callback(engine.close)

        def in_engine(texts):
            engine.name = f"contract_{next(NUMBER)}"
            return EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(texts), encode)

        def of_records(rows):
            engine.name = f"contract_{next(NUMBER)}"
            return EngineCandidates.build(engine, MODEL, WIDTH, ListedRecords(rows, with_ids.FIELDS, False), encode)

        in_engine.with_ids = of_records
        yield in_engine


@pytest.fixture
def index(opened):
    return opened(TEXTS)


def brute_force(texts, asked, k, ids=None):
    """The texts and scores of the best k, ties in the order of the ids."""
    scores = asked.scores(encode(texts)).numpy()
    order = np.arange(len(texts)) if ids is None else np.array(ids)
    best = [np.lexsort((order, -row))[:k] for row in scores]
    return [[texts[place] for place in row] for row in best], [
        row[some] for row, some in zip(scores, best, strict=True)
    ]


def same(index, texts, asked, k):
    """Whether a search finds what brute force does, in texts, scores and order."""
    found = index.search(asked, k)
    expected, scores = brute_force(texts, asked, k, [index.find(text) for text in texts])
    assert [hits.texts for hits in found] == expected
    for hits, some in zip(found, scores, strict=True):
        np.testing.assert_allclose(hits.scores, some, rtol=1e-5)
        assert hits.texts == index.texts_of(hits.indices) == [index[number] for number in hits.indices]
    return all(hits.complete for hits in found)


@pytest.mark.parametrize(("m", "k"), [(1, 1), (4, 10), (9, 3)])
def test_a_search_finds_what_brute_force_does_and_says_that_it_is_complete(index, m, k):
    assert len(index) == COUNT and index.encoded_by == MODEL and index.stored_as == "fp32"
    assert same(index, TEXTS, query(m), k)


def test_equal_scores_are_in_the_order_of_the_index(opened):
    """On some processors, equal vectors differ in the last bit of their scores, by their places in a product."""
    twins = [str(number) for number in (7, 8, 1_007, 2_007, 1_008, 9)]
    index, asked = opened(twins), query()
    for hits, scores in zip(index.search(asked, 6), asked.scores(encode(twins)).numpy(), strict=True):
        order = list(zip(-hits.scores, hits.indices, strict=True))
        assert order == sorted(order) and sorted(hits.texts) == sorted(twins)
        np.testing.assert_allclose(hits.scores, [scores[twins.index(text)] for text in hits.texts], rtol=1e-5)


def test_every_text_is_found_where_it_is(index):
    places = [index.find(text) for text in TEXTS]
    assert None not in places and len({*places}) == COUNT and index.texts_of(places[::7]) == TEXTS[::7]
    assert index.find("1000") is None and index.find("caf\udce9") is None


def test_added_and_removed_candidates_are_seen_by_the_next_search_and_the_others_stay(index):
    before = {text: index.find(text) for text in TEXTS}
    gone, fresh = brute_force(TEXTS, query(examples=1), 5)[0][0], ["400", "401"]
    fewer = index.remove([*gone, "never there"])
    left = [text for text in TEXTS if text not in gone]
    assert len(fewer) == COUNT - 5 and fewer.find(gone[0]) is None
    assert same(fewer, left, query(), 10)
    more = fewer.add(ListedTexts([*fresh, gone[0], TEXTS[0], left[-1]]), encode)
    assert len(more) == COUNT - 5 + 3
    assert same(more, [*left, *fresh, gone[0]], query(), 10)
    assert [more.find(text) for text in left] == [before[text] for text in left]
    assert len(more.add(ListedTexts([*fresh]), encode)) == len(more)


@pytest.mark.parametrize("wrong", ["hello", [5], None, b"hello"])
def test_what_is_removed_is_a_list_of_texts(index, wrong):
    before = len(index)
    with pytest.raises(InputError, match=r"names (is|has)"):
        index.remove(wrong)
    assert len(index) == before


def test_fewer_candidates_than_asked_for_are_all_of_them(opened):
    few = opened(["5", "6"])
    assert [sorted(hits.texts) for hits in few.search(query(), 10)] == [["5", "6"]] * 6
    assert all(hits.complete for hits in few.search(query(), 10))


def test_an_emptied_index_finds_nothing_and_a_folder_keeps_its_last_candidate(opened):
    few = opened(["5", "6"])
    if isinstance(few, CandidateStore):
        with pytest.raises(InputError, match=r"would leave .* without any candidate; remove the folder instead"):
            few.remove(["5", "6"])
        return
    none = few.remove(["5", "6"])
    assert len(none) == 0 and none.find("5") is None
    assert [hits.texts for hits in none.search(query(), 3)] == [[]] * 6
    assert len(none.add(ListedTexts(["7"]), encode)) == 1


@pytest.mark.parametrize("few", [0, 10_000])
def test_a_filter_leaves_what_a_loop_does_and_a_change_by_id_is_seen_by_the_next_search(opened, monkeypatch, few):
    monkeypatch.setattr(engine_candidates, "FEW", few)  # of an engine: what is fetched and scored
    index, rows = opened.with_ids(with_ids.ROWS), with_ids.ROWS
    assert len(index) == len(rows) and index.fields == with_ids.FIELDS
    for given in [{}, *with_ids.FILTERS]:
        assert with_ids.same(index, rows, query(4, examples=2), 9, given) and with_ids.same(
            index, rows, query(1), 3, given
        )
    numbers = [index.find(row["id"]) for row in rows[::9]]
    assert None not in numbers and index.find(rows[0]["text"]) is None
    assert index.ids_of(numbers) == [row["id"] for row in rows[::9]]
    assert index.texts_of(numbers) == [row["text"] for row in rows[::9]]
    encoded = []

    def counting(texts):
        encoded.extend(texts)
        return encode(texts)

    update = [rows[3], {**rows[5], "text": "700"}, {**rows[6], "tenant": "rare"}, {"id": "new", "text": "701"}]
    fewer = index.remove(["id 7", "never there"])
    changed = fewer.add(ListedRecords(update, with_ids.FIELDS, is_update=True), counting)
    assert encoded == ["700", "6", "701"] and len(changed) == len(rows)
    rows = [row for row in rows if row["id"] not in ("id 5", "id 6", "id 7")] + update[1:]
    for given in ({}, {"tenant": "rare"}, {"sale": True}):
        assert with_ids.same(changed, rows, query(), 7, given)
    encoded.clear()
    changed.add(ListedRecords(update, with_ids.FIELDS, is_update=True), counting)
    assert not encoded
    with pytest.raises(FilterError, match="is not a field"):
        index.filter({"f_tenant) or (1": "a"})


def test_plain_lines_have_no_ids_and_no_filter(index):
    (hits,) = index.search(query(examples=1), 2)
    assert index.fields is None and hits.ids is None and index.ids_of([index.find("7")]) is None
    with pytest.raises(FilterError, match="have no fields"):
        index.filter({"tenant": "a"})


def test_what_is_closed_is_refused_in_one_sentence(opened, monkeypatch):
    index, closed = opened(["1", "2"]), []
    if isinstance(index, EngineCandidates):  # whose connection other tests share
        monkeypatch.setattr(index.engine, "close", lambda: closed.append(True))
    calls = [
        lambda: len(index),
        lambda: index.search(query(), 1),
        lambda: index.find("1"),
        lambda: index[0],
        lambda: index.add(ListedTexts(["3"]), encode),
        lambda: index.remove(["1"]),
    ]
    index.close()
    index.close()
    for call in calls:
        with pytest.raises(InputError, match=r"^This index was closed; open it again\.$"):
            call()
    assert not closed or closed == [True]


def test_another_models_candidates_are_refused(index, trained):
    ranker = Ranker.load(trained("poly"))
    for call in (lambda: ranker.rank("hi", index), lambda: ranker.append(index, ["401"])):
        with pytest.raises(InputError, match="encoded with other weights than the model has now"):
            call()
    with pytest.raises(InputError, match="cross-encoder cannot encode candidates in advance"):
        Ranker.load(trained("cross")).rank("hi", index)
    assert len(index) == COUNT


def test_every_score_is_there_or_refused(index):
    if isinstance(index, EngineCandidates):
        with pytest.raises(InputError, match="finds the best candidates only; for all scores, give their texts"):
            index.scores(query())
        return
    torch.testing.assert_close(index.scores(query()), query().scores(encode(TEXTS)))
    lacking = index.remove(TEXTS[:2]).scores(query())
    assert torch.isneginf(lacking[:, :2]).all() and torch.isfinite(lacking[:, 2:]).all()


def test_a_repeated_text_is_found_at_its_first_place_and_removed_everywhere():
    held = InMemoryCandidates(["7", "8", "7"], encode(["7", "8", "7"]))
    listed = ListedCandidates(["7", "8", "7"], None)
    assert held.find("7") == listed.find("7") == 0
    assert len(held.remove(["7"])) == len(listed.remove(["7"])) == 1


@pytest.mark.parametrize("kind", ["poly", "uni", "cross"])
def test_a_list_of_texts_is_ranked_behind_the_same_call(kind, trained):
    ranker, texts = Ranker.load(trained(kind)), ["yes", "no", "YES", "perhaps"]
    listed = as_index(texts, ranker.model)
    assert as_index(listed, ranker.model) is listed and isinstance(listed, ListedCandidates)
    scores = ranker.score(["hi", "how are you ?"], texts)
    for candidates in (texts, listed):
        matches, complete = ranker.search(["hi", "how are you ?"], candidates, 3)
        assert complete == [True, True] and matches == ranker.rank(["hi", "how are you ?"], candidates, 3)
        for row, some in zip(scores, matches, strict=True):
            assert [match.index for match in some] == np.lexsort((np.arange(4), -row))[:3].tolist()
            np.testing.assert_allclose([match.score for match in some], np.sort(row)[::-1][:3], rtol=1e-5)
    assert listed.find("YES") == 2 and listed.find("never") is None and listed.texts_of([3, 0]) == ["perhaps", "yes"]
    changed = listed.add(ListedTexts(["no", "never"]), None).remove(["yes", "x"])
    assert [changed[place] for place in range(len(changed))] == ["no", "YES", "perhaps", "never"]
    assert ranker.search([], texts) == ([], []) and ranker.rank(["hi"], []) == [[]]
    listed.close()
    with pytest.raises(InputError, match="closed"):
        ranker.rank("hi", listed)
