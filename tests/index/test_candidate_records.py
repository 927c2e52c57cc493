"""Candidates with ids and fields: files, columns, filters; each against the obvious loop."""

import csv
import itertools
import json
import os
import pickle
import re

import numpy as np
import pytest
from queries import drawn_query
from with_ids import DECLARED, FIELDS, FILTERS, MODEL, ROWS, WIDTH, encode, meets, same

from polyagents.errors import InputError
from polyagents.index import approximate, builder, exact, store
from polyagents.index.builder import CandidateEncoder
from polyagents.index.candidate_records import ListedRecords, candidates_of, read_candidates, read_ids
from polyagents.index.columns import Columns, Record
from polyagents.index.engines.milvus import expression
from polyagents.index.engines.postgres import conditions_of
from polyagents.index.faiss_index import build_shortlist
from polyagents.index.filters import FilterError, declared_fields, parse_filter
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.shard import Shard
from polyagents.index.store import CandidateStore
from polyagents.index.texts import last_of_each, places_among
from polyagents.ranker import Ranker


def write(path, rows):
    if str(path).endswith(".parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        names = {name: None for one in rows for name in one}
        parquet.write_table(pyarrow.Table.from_pylist([names | one for one in rows]), path, row_group_size=90)
    elif str(path).endswith(("csv", "tsv")):
        with open(path, "w", encoding="utf-8-sig", newline="") as file:  # as Excel writes it
            delimiter = "\t" if path.suffix == ".tsv" else ";"
            writer = csv.DictWriter(file, list({name: None for one in rows for name in one}), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("\n\n".join(json.dumps(one, ensure_ascii=False) for one in rows), encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    for module in (builder, store):
        monkeypatch.setattr(module, "SHARD", 64)


@pytest.fixture
def maker():
    return CandidateEncoder(MODEL, encode, "fp32")


@pytest.fixture
def built(tmp_path, maker):
    return CandidateStore.build(write(tmp_path / "c.jsonl", ROWS), str(tmp_path / "c.index"), maker, fields=FIELDS)


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["jsonl", "ndjson", "json", "csv", "tsv", "parquet"])
def test_a_file_has_the_rows_that_were_written(tmp_path, suffix):
    path = write(tmp_path / f"c.{suffix}", ROWS)
    given = candidates_of(path, FIELDS)
    for texts in (given, pickle.loads(pickle.dumps(given))):
        found = texts.records(0, len(texts))
        assert [(one.id, one.text) for one in found] == [(one["id"], one["text"]) for one in ROWS]
        empty = "" if suffix.endswith("sv") else None  # which a cell of CSV cannot tell from no value
        assert [one.values for one in found] == [
            tuple(None if one.get(name) == empty else one.get(name) for name in FIELDS) for one in ROWS
        ]
        assert texts.records(85, 95) == found[85:95] and texts.part(399, 400) == ["9"]
    assert read_ids(path) == [one["id"] for one in ROWS] and read_candidates(path) == [one["text"] for one in ROWS]
    given.keep(np.array([3, 350]))
    assert [one.id for one in given.records(0, 2)] == ["id 3", "id 350"]
    (tmp_path / "plain.txt").write_text("one\ntwo\n")
    assert read_ids(str(tmp_path / "plain.txt")) == ["one", "two"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "text": "1"}, {"text": "2"}], r"Line 3 of .*c.jsonl has the id None; give a text"),
        ([{"id": 7, "text": "1"}], "Line 1 of .* has the id 7; give a text of at most 1,024 bytes"),
        ([{"id": "", "text": "1"}], "has the id ''"),
        ([{"id": "a\0", "text": "1"}], "without a zero byte"),
        ([{"id": "a" * 1_025, "text": "1"}], "at most 1,024 bytes"),
        ([{"id": "a", "text": " "}], "has the text ' '; give a text that is not blank"),
        ([{"id": "a"}], "has the text None"),
        (["a"], "is 'a'; give an object such as"),
        ([["a", "1"]], "Line 1 of .* is a JSON array; give one object per line"),
        ([{"id": "a", "text": "1", "year": "2020"}], "has the year '2020'; give a whole number of 64 bits, or omit it"),
        ([{"id": "a", "text": "1", "year": True}], "has the year True"),
        ([{"id": "a", "text": "1", "year": -(2**63)}], "of 64 bits"),
        ([{"id": "a", "text": "1", "year": 1.5}], "a whole number"),
        ([{"id": "a", "text": "1", "price": "x"}], "give a number, or omit it"),
        ([{"id": "a", "text": "1", "sale": 1}], "give true or false, or omit it"),
        ([{"id": "a", "text": "1", "tenant": 7}], "has the tenant 7; give a text"),
        ([{"id": "a", "text": "1"}, {"id": "b", "text": "1"}, {"id": "a", "text": "2"}], "has the id 'a' twice"),
        ([], "holds no candidate"),
    ],
)
def test_a_row_that_is_not_a_candidate_is_named_before_anything_is_written(tmp_path, maker, rows, message):
    path, folder = write(tmp_path / "c.jsonl", rows), tmp_path / "c.index"
    with pytest.raises(InputError, match=message):
        CandidateStore.build(path, str(folder), maker, fields=FIELDS)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("id", ["a"]), ("text", ["1"]), ("text", ["2"])], "more than one column text"),
        ([("id", ["a"]), ("text", ["1"]), ("tenant", [["x"]])], "lists or objects in its column tenant"),
        ([("id", ["a"]), ("text", ["1"]), ("tenant", [{"x": "y"}])], "lists or objects in its column tenant"),
    ],
)
def test_a_column_of_parquet_is_there_once_and_has_single_values(columns, said, tmp_path, maker):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names, values = zip(*columns, strict=True)
    table = pyarrow.Table.from_arrays([pyarrow.array(one) for one in values], names)
    parquet.write_table(table, tmp_path / "c.parquet")
    with pytest.raises(InputError, match=said):
        CandidateStore.build(str(tmp_path / "c.parquet"), str(tmp_path / "c.index"), maker, fields=FIELDS)


def test_texts_of_parquet_that_are_not_utf_8_are_named(tmp_path, maker):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 1, pyarrow.array([b"a\xff"]).buffers())
    parquet.write_table(pyarrow.table({"id": ["a"], "text": texts}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match=r"c.parquet cannot be read .*0xff"):
        CandidateStore.build(str(tmp_path / "c.parquet"), str(tmp_path / "c.index"), maker)


@pytest.mark.parametrize("is_update", [False, True])
def test_a_field_without_any_value_is_named(tmp_path, capsys, is_update):
    path = write(tmp_path / "c.jsonl", ROWS)
    candidates_of(path, {**FIELDS, "tenent": "text"}, is_update)
    assert "no value in the declared field tenent" in capsys.readouterr().err
    candidates_of(path, FIELDS)
    assert not capsys.readouterr().err


def test_half_a_character_is_refused(tmp_path, maker):
    (tmp_path / "c.jsonl").write_text(r'{"id": "a", "text": "half \ud83d"}')
    with pytest.raises(InputError, match=r"Line 1 of .* without half characters"):
        CandidateStore.build(str(tmp_path / "c.jsonl"), str(tmp_path / "c.index"), maker)


def test_lines_that_are_not_json_and_files_that_are_not_parquet(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "1"}\nhello\n')
    (tmp_path / "c.parquet").write_text("hello")
    (tmp_path / "c.txt").write_text("hello")
    for name, message in (("c.jsonl", "Line 2 of .* is not JSON"), ("c.parquet", "cannot be read as a Parquet file")):
        with pytest.raises(InputError, match=message):
            candidates_of(str(tmp_path / name), {})
        with pytest.raises(InputError, match=message):
            read_ids(str(tmp_path / name))
    with pytest.raises(InputError, match="has plain lines, which have no fields"):
        candidates_of(str(tmp_path / "c.txt"), FIELDS)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello\nbye\n", "has no column id in its first line .'hello'.; name its columns id and text or, for plain"),
        ("id;label\na;b\n", "has no column text"),
        ("id,text,id\na,b,c\n", "more than one column 'id'"),
        ("id,text\na,b,c\n", "Row 1 of .* has 3 cells, and the first line 2"),
        ("id,text,year\na,b,later\n", "Row 1 of .* has the year 'later'; give a whole number"),
        ("id,text,sale\na,b,FALSE\nb,c,no\n", "Row 2 of .* has the sale 'no'; give true or false"),
        ("id,text\n,b\n", "Row 1 of .* has the id ''"),
        ("id,text\na,b\na,c\n", "has the id 'a' twice"),
        ("id,text\n", "holds no candidate"),
        ("", "holds no candidate"),
        ("\n\n", "holds no candidate"),
    ],
)
def test_a_table_that_does_not_fit_is_one_sentence(content, said, tmp_path):
    (tmp_path / "c.csv").write_text(content)
    with pytest.raises(InputError, match=said):
        candidates_of(str(tmp_path / "c.csv"), FIELDS)


def test_a_file_that_changes_is_noticed(tmp_path):
    path = write(tmp_path / "c.jsonl", ROWS)
    texts = candidates_of(path, FIELDS)
    with open(path, "a") as out:
        out.write("\n")
    with pytest.raises(InputError, match="was changed while it was being encoded"):
        texts.part(0, 2)


def test_declarations():
    assert declared_fields(DECLARED) == declared_fields(",".join(DECLARED)) == FIELDS and declared_fields("") == {}
    for wrong in ("id", "text:int", "a b", "a.b", "x:y", "a,a", "é", "", '"', "a" * 42):
        with pytest.raises(InputError):
            declared_fields([wrong] if wrong != "a,a" else ["a", "a"])


# ---- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", FILTERS, ids=json.dumps)
def test_a_mask_is_what_a_loop_finds(given):
    records = [Record(one["id"], one["text"], tuple(one.get(name) for name in FIELDS)) for one in ROWS]
    columns = Columns.of(records, FIELDS)
    assert columns.mask(parse_filter(given, FIELDS)).tolist() == [meets(one, given) for one in ROWS]
    assert columns.records([one.text for one in records]) == records


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tenant", "give an object such as"),
        ([], "give an object"),
        ({"colour": "red"}, r"names 'colour', which is not a field; the fields are tenant \(text\), year \(int\)"),
        ({"id": "a"}, "which is not a field"),
        ({'tenant" or 1 == 1 or "': "a"}, "which is not a field"),
        ({"tenant": 7}, "tenant is 7; give a text"),
        ({"tenant": None}, "tenant is None; give a text"),
        ({"tenant": ["a", ["b"]]}, "give a text"),
        ({"tenant": "a\0"}, "without a zero byte"),
        ({"tenant": "\ud800"}, "of UTF-8"),
        ({"tenant": {}}, "give bounds"),
        ({"tenant": {"like": "a"}}, "give bounds"),
        ({"tenant": {"gte": 1}}, "give a text"),
        ({"year": "2020"}, "give a whole number"),
        ({"year": True}, "give a whole number"),
        ({"year": 2020.5}, "give a whole number"),
        ({"year": 2**63}, "of 64 bits"),
        ({"year": float("nan")}, "give a whole number"),
        ({"price": float("inf")}, "give a number"),
        ({"price": 10**400}, "give a number"),
        ({"sale": 1}, "give true or false"),
        ({"sale": {"gte": False}}, "give bounds of a text or number"),
    ],
)
def test_a_filter_that_is_wrong_is_refused_in_a_sentence(built, given, message):
    with pytest.raises(FilterError, match=message):
        built.filter(given)
    with pytest.raises(FilterError, match=r"no fields|give an object"):
        parse_filter(given, None)


@pytest.mark.parametrize("few", [0.0, 0.1, 1.1])
@pytest.mark.parametrize("given", FILTERS, ids=json.dumps)
def test_a_search_finds_what_a_loop_does_gathered_or_scanned(built, monkeypatch, given, few):
    monkeypatch.setattr(exact, "FEW", few)
    for m, k in ((1, 3), (4, 400)):
        assert same(built, ROWS, drawn_query(WIDTH, m, examples=2), k, given)


@pytest.mark.parametrize(("kind", "scanned"), [("hnsw", 0), ("hnsw", 1), ("hnsw", 10**9), ("ivfpq", 10**9)])
def test_an_approximate_search_with_a_filter_finds_what_the_exact_one_does(built, monkeypatch, kind, scanned):
    monkeypatch.setattr(approximate, "SCANNED", scanned)
    asked = drawn_query(WIDTH, 4)
    build_shortlist(built, kind, asked)
    built.shortlist.length = 16
    for given in FILTERS:
        assert same(built, ROWS, asked, 5, given)
    fewer = built.remove([one["id"] for one in ROWS if one.get("tenant") == "a"])
    fewer.shortlist = built.shortlist
    rows = [one for one in ROWS if one.get("tenant") != "a"]
    for given in ({"tenant": "a"}, {"tenant": {"lte": "b"}}, {"sale": [True, False]}):
        assert same(fewer, rows, asked, 5, given)


def test_candidates_in_memory_are_filtered_changed_and_named():
    records = ListedRecords(ROWS, FIELDS, is_update=False).records(0, len(ROWS))
    texts = [one.text for one in records]
    held = InMemoryCandidates(texts, encode(texts), MODEL, columns=Columns.of(records, FIELDS))
    for given in FILTERS:
        assert same(held, ROWS, drawn_query(WIDTH), 9, given)
    update = [ROWS[3], {**ROWS[6], "tenant": "rare"}, {"id": "new", "text": "701", "tenant": "rare"}]
    changed = held.remove(["id 7", "none"]).add(ListedRecords(update, FIELDS, is_update=True), encode)
    assert len(changed) == 400 and changed.find("id 6") == 400 and changed.find("id 7") is None
    rows = [one for one in ROWS if one["id"] not in ("id 6", "id 7")] + update[1:]
    for given in ({}, {"tenant": "rare"}):
        assert same(changed, rows, drawn_query(WIDTH), 9, given)


def test_a_list_that_a_model_reads_is_filtered_changed_and_named(trained):
    ranker = Ranker.load(trained("cross"))
    rows = [{"id": f"{n}", "text": f"text {n % 3}", "year": n} for n in range(6)]
    listed = ranker.prepare(rows, fields=["year:int"])
    every = {match.id: match for match in ranker.rank("hi", listed)}
    assert sorted(every) == list("012345") and every["4"].text == "text 1"
    found = ranker.rank("hi", listed, filter={"year": {"gte": 2, "lt": 5}})
    assert [match.index for match in found] == [int(match.id) for match in found] and {*"234"} == {m.id for m in found}
    assert [match.score for match in found] == pytest.approx([every[match.id].score for match in found])
    assert ranker.rank("hi", listed, filter={"year": 9}) == []
    update = ListedRecords([{"id": "2", "text": "text 9", "year": 4}], listed.fields, is_update=True)
    changed = listed.add(update, None).remove(["0"])
    assert {m.id: m.text for m in ranker.rank("hi", changed, filter={"year": 4})} == {"2": "text 9", "4": "text 1"}


# ---- the store -------------------------------------------------------------------------------------------------------


def test_a_store_has_ids_and_opens_again(tmp_path, built):
    for index in (built, CandidateStore.open(built.folder, MODEL)):
        assert index.fields == FIELDS and list(index.fields) == list(FIELDS) and len(index) == 400
        assert [index.find(one["id"]) for one in ROWS[::17]] == list(range(0, 400, 17)) and index.find("0") is None
        assert index.ids_of([399, 0]) == ["id 399", "id 0"] and index.texts_of([399, 0]) == ["9", "0"]
    for files in (list(built.shards), [Shard(shard.path) for shard in built.shards]):
        assert all(shard.is_whole() for shard in files)


def test_it_is_built_again_only_if_something_differs(tmp_path, built):
    seen = []

    def counting(texts):
        seen.extend(texts)
        return encode(texts)

    maker = CandidateEncoder(MODEL, counting, "fp32")
    path = str(tmp_path / "c.jsonl")
    CandidateStore.build(path, built.folder, maker, fields=FIELDS)
    assert not seen
    changed = [*ROWS[:399], {**ROWS[399], "tenant": "other"}]
    CandidateStore.build(write(tmp_path / "c.jsonl", changed), built.folder, maker, fields=FIELDS)
    assert seen == [one["text"] for one in ROWS[384:]]  # of the last shard
    fewer = CandidateStore.build(path, built.folder, maker, fields={"tenant": "text"})
    assert fewer.fields == {"tenant": "text"} and fewer.search(drawn_query(WIDTH), 1, fewer.filter({"tenant": "other"}))


def test_an_update_replaces_what_differs_and_keeps_the_rest(built):
    seen = []

    def counting(texts):
        seen.extend(texts)
        return encode(texts)

    update = [
        ROWS[3],  # as it is
        {**ROWS[5], "text": "700"},
        {**ROWS[6], "tenant": "rare"},
        {"id": "new", "text": "701", "tenant": "rare"},
        {"id": "twice", "text": "702"},
        {"id": "twice", "text": "703"},
    ]
    after = built.append(ListedRecords(update, FIELDS, is_update=True), counting)
    assert seen == ["700", "6", "701", "703"] and len(after) == 402
    assert [after.find(name) for name in ("id 3", "id 5", "id 6", "new", "twice")] == [3, *range(400, 404)]
    rows = [one for one in ROWS if one["id"] not in ("id 5", "id 6")] + [*update[1:4], update[5]]
    for given in ({}, {"tenant": "rare"}, {"year": {"gte": 2**60}}):
        assert same(after, rows, drawn_query(WIDTH), 7, given)
    assert len(CandidateStore.open(built.folder, MODEL)) == 402
    seen.clear()
    again = after.append(ListedRecords(update[1:], FIELDS, is_update=True), counting)
    assert not seen and len(again) == 402
    back = again.append(ListedRecords([ROWS[5]], FIELDS, is_update=True), counting)  # the deleted one, as it was
    assert not seen and back.find("id 5") == 5 and len(back) == 402


def test_candidates_are_removed_by_their_ids_and_return(built):
    fewer = built.remove(["id 7", "id 107", "never there", "7"])
    assert len(fewer) == 398 and fewer.find("id 7") is None
    rows = [one for one in ROWS if one["id"] not in ("id 7", "id 107")]
    assert same(fewer, rows, drawn_query(WIDTH), 9, {"tenant": "rare"})
    more = fewer.append(ListedRecords([ROWS[7]], FIELDS, is_update=True), None)
    assert more.find("id 7") == 7 and len(more) == 399


@pytest.mark.parametrize("number", range(6))
def test_a_shard_whose_columns_were_changed_is_refused(tmp_path, number):
    records = [Record(one["id"], one["text"], tuple(one.get(name) for name in FIELDS)) for one in ROWS[:9]]
    tensors = dict(Columns.of(records, FIELDS).tensors)
    changes = [
        ("field.tenant", tensors["field.tenant"] + 9),
        ("field.tenant", tensors["field.tenant"] - 9),
        ("field.year", tensors["field.year"][:5]),
        ("id_ends", tensors["id_ends"] + 1_000),
        ("word_ends.tenant", tensors["word_ends.tenant"].flip(0)),
        ("field.price", tensors["field.price"].unsqueeze(1)),
    ]
    with pytest.raises(ValueError, match=r"ids or fields|code"):
        Columns.among({**tensors, changes[number][0]: changes[number][1]})


def test_a_manifest_with_other_fields_than_its_shards_is_damaged(built):
    path = os.path.join(built.folder, "manifest.json")
    with open(path) as file:
        written = json.load(file)
    for fields in ({"tenant": "text"}, {**FIELDS, "year": "float"}, None):
        with open(path, "w") as file:
            json.dump({**written, "fields": fields}, file)
        with pytest.raises(InputError, match="has other fields than the index"):
            CandidateStore.open(built.folder, MODEL)
    wrong = [{"fields": fields} for fields in ({"a.b": "text"}, {"a": "date"}, {"id": 1}, [])]
    for change in [*wrong, {"deleted": list(range(len(built)))}]:
        with open(path, "w") as file:
            json.dump({**written, **change}, file)
        with pytest.raises(InputError, match="holds no finished candidate index"):
            CandidateStore.open(built.folder, MODEL)


def test_plain_lines_have_no_fields_in_their_manifest(tmp_path, maker):
    (tmp_path / "c.txt").write_text("\n".join(str(number) for number in range(100)))
    built = CandidateStore.build(str(tmp_path / "c.txt"), str(tmp_path / "c.index"), maker)
    with open(tmp_path / "c.index" / "manifest.json") as file:
        assert "fields" not in json.load(file)
    (hits,) = built.search(drawn_query(WIDTH, examples=1), 1)
    assert built.fields is None and hits.ids is None and built.ids_of([0]) is None
    with pytest.raises(FilterError, match="have no fields"):
        built.filter({"tenant": "a"})
    assert built.filter({}) is built.filter(None) is None


def test_keys_are_found_among_others():
    generator = np.random.default_rng(0)
    others = np.unique(generator.integers(0, 9, (40, 2)), axis=0)
    keys = generator.integers(0, 9, (60, 2))
    by_key = {tuple(one): place for place, one in enumerate(others.tolist())}
    assert places_among(keys, others).tolist() == [by_key.get(tuple(one), -1) for one in keys.tolist()]
    assert places_among(keys, others[:0]).tolist() == [-1] * 60 and places_among(keys[:0], others).tolist() == []
    last = {tuple(one): place for place, one in enumerate(keys.tolist())}
    assert last_of_each(keys).tolist() == sorted(last.values())
    assert list(itertools.islice(last_of_each(keys[:0]), 1)) == []


@pytest.mark.parametrize("given", FILTERS, ids=json.dumps)
def test_no_engine_is_sent_what_somebody_wrote_as_part_of_its_language(given):
    where = parse_filter(given, FIELDS)
    words = r'f_(tenant|year|price|sale)|in|and|true|false|id|"[0-9a-f]*"|-?[0-9.]+(e[+-]?[0-9]+)?'
    assert re.fullmatch(rf"(({words}|[<>]=?|[\[\],]) ?)*", expression(where))
    conditions, values = conditions_of(where)
    written = conditions.as_string(None)
    wanted = [value for own in given.values() for value in (own.values() if isinstance(own, dict) else [own])]
    assert not any(isinstance(value, str) and value and value in written for value in wanted if value not in ("a", "b"))
    assert len(values) == len(wanted) == written.count("%(")
