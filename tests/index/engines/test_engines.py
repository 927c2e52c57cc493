"""Every engine, as it is: what goes in is found, what is searched is what an exact search of our own finds."""

import contextlib
import functools
import itertools
import re
import socket

import engines
import numpy as np
import postgres
import pymilvus
import pytest
import torch
from queries import drawn_query, poly_query

from polyagents.errors import InputError
from polyagents.index.builder import BLOCK, Worker
from polyagents.index.candidate_records import ListedRecords
from polyagents.index.engines import candidates, milvus
from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.engines.engine import EngineError, candidate_ids
from polyagents.index.engines.postgres import given_up_after
from polyagents.index.engines.urls import open_engine, without_secrets
from polyagents.index.exact import search
from polyagents.index.filters import declared_fields, parse_filter
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.texts import ListedTexts

COUNT, WIDTH, MODEL = 1_200, 16, "a" * 64
NUMBER = itertools.count()


def encode(texts):
    generator = torch.Generator().manual_seed(0)
    every = torch.randn(2 * COUNT, WIDTH, generator=generator)
    return every[[int(text) for text in texts]]


@pytest.fixture(
    scope="module", params=["milvus-lite", pytest.param("milvus-server", marks=pytest.mark.release), "pgvector"]
)
def address(request, tmp_path_factory):
    socket = request.getfixturevalue("postgres_socket") if request.param == "pgvector" else None
    with engines.running(request.param, tmp_path_factory.mktemp("engine"), socket) as url:
        yield url


@pytest.fixture(scope="module")
def kept_open(address):
    """Milvus Lite lets one process write, and takes a second to open: one connection for all tests."""
    engine = open_engine(address.format(name="first"), make=True)
    yield engine
    engine.close()


@pytest.fixture
def engine(kept_open):
    """The engine with a name of the test's own."""
    kept_open.name = f"test_{next(NUMBER)}"
    return kept_open


@pytest.fixture
def built(engine):
    texts = ListedTexts([str(place) for place in range(COUNT)])
    return EngineCandidates.build(engine, MODEL, WIDTH, texts, encode)


query = functools.partial(drawn_query, WIDTH)


def found_texts(candidates, query, k):
    best = candidates.search(query, k)
    return [one.texts for one in best], [one.scores for one in best], [one.complete for one in best]


def exact_texts(texts, query, k):
    found = search(query, InMemoryCandidates(texts, encode(texts)), k)
    return [[texts[place] for place in row] for row in found.indices], found.scores


def test_candidates_come_back_as_they_went_in(engine):
    collection = engine.create(MODEL, WIDTH)
    texts = ["1", "ein Satz — mit \u2028 und 'Zeichen' \\ \"%s\" {id}", "3" * 9_000, "4"]
    ids, vectors = candidate_ids(texts), torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(2))
    collection.upsert(ids, texts, vectors)
    assert collection.count() == 4 and collection.there(np.append(ids, 7)).tolist() == [True] * 4 + [False]
    assert collection.texts([ids[2], 7, ids[1]]) == [texts[2], None, texts[1]]
    found = collection.nearest(vectors, 3, 64)
    assert found.members.tolist() == sorted(ids.tolist())
    assert torch.equal(found.vectors, vectors[np.argsort(ids)])  # to the last bit
    products = (vectors @ vectors.T).topk(3)
    assert (found.lists == ids[products.indices.numpy()]).all()
    np.testing.assert_allclose(found.products, products.values, rtol=1e-5)
    collection.upsert(ids[:1], texts[:1], vectors[1:2])  # replaced
    collection.delete(np.array([ids[3], 7]))
    assert collection.count() == 3 and collection.there(ids).tolist() == [True, True, True, False]
    assert torch.equal(collection.nearest(vectors[1:2], 2, 64).vectors, torch.stack([vectors[1], vectors[1]]))


@pytest.mark.slow
def test_an_empty_text_is_a_candidate_and_a_removed_one_is_none(engine, monkeypatch):
    texts = ["", "1", " ", "2", "\t\r\n", "\ufeff3", "4 ", "\u2028", "\x0b\x1c", "e\u0301", "\xe9"]
    vectors = dict(zip(texts, torch.eye(len(texts), WIDTH), strict=True))
    encode = lambda texts: torch.stack([vectors[text] for text in texts])  # noqa: E731
    made = EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(texts), encode)
    assert len(made) == len(texts)
    for best in made.search(query(), len(texts)) + made.search(query(), 100):
        assert sorted(best.texts) == sorted(texts)
    collection, gone = made.collection, candidate_ids([""])[0]
    nearest, read = collection.nearest, collection.texts

    def without(*given):
        found = nearest(*given)
        return found._replace(texts=found.texts and {number: text or None for number, text in found.texts.items()})

    monkeypatch.setattr(collection, "nearest", without)
    monkeypatch.setattr(collection, "texts", lambda ids: [text or None for text in read(ids)])
    for best in made.search(query(), 100):
        assert sorted(best.texts) == sorted(texts[1:]) and gone not in best.indices
        assert len(best.scores) == len(best.indices) == len(texts) - 1


@pytest.mark.slow
@pytest.mark.parametrize("index_type", ["hnsw", "exact"])
def test_a_search_finds_what_our_own_exact_search_finds(engine, index_type):
    every = [str(place) for place in range(COUNT)]
    built = EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(every), encode, index_type)
    assert len(built) == COUNT and engine.versions()[0].index_type == index_type
    texts, scores, complete = found_texts(built, query(), 10)
    expected, exact = exact_texts(every, query(), 10)
    assert texts == expected and all(complete)
    np.testing.assert_allclose(scores, exact, rtol=1e-5)


def test_an_index_whose_answer_was_lost_on_the_way_is_there(engine, monkeypatch):
    """Milvus's client repeats what it had no answer to."""
    if not isinstance(engine, milvus.Milvus):
        pytest.skip("PostgreSQL's client repeats nothing")
    collection = engine.create(MODEL, WIDTH)
    texts = ["1", "2"]
    collection.upsert(candidate_ids(texts), texts, encode(texts))
    create = collection.client.create_index

    def twice(*arguments, **options):
        create(*arguments, **options)
        create(*arguments, **options)

    monkeypatch.setattr(collection.client, "create_index", twice)
    collection.build_index("hnsw")
    assert collection._index_type() == "HNSW" and engine.versions()[0].index_type == "hnsw"
    monkeypatch.setattr(collection.client, "create_index", refused)
    with pytest.raises(EngineError, match="there is no room"):
        collection.build_index("exact")


def refused(*arguments, **options):
    raise pymilvus.MilvusException(message="there is no room")


@pytest.mark.slow
def test_the_stop_rule_says_when_longer_lists_could_change_the_answer(built, monkeypatch):
    monkeypatch.setattr(candidates, "SHORT_LIST", 10)
    monkeypatch.setattr(candidates, "LONG_LIST", 20)
    asked = query(9, examples=20, spread=0.5)
    asked = poly_query(asked.context.vectors, asked.context.mask, 0.1)
    texts, _, complete = found_texts(built, asked, 3)
    expected, _ = exact_texts([str(place) for place in range(COUNT)], asked, 3)
    assert 0 < sum(complete) < 20
    assert all(ours == best for ours, best, done in zip(texts, expected, complete, strict=True) if done)


@pytest.mark.slow
def test_the_list_of_one_vector_brings_its_texts_along_where_that_saves_a_question(built, monkeypatch):
    one = query(1, examples=1)
    found = built.collection.nearest(one.context.vectors[0], 20, 64)
    if isinstance(built.engine, milvus.Milvus):
        assert found.texts == dict(
            zip(found.members.tolist(), built.collection.texts(found.members.tolist()), strict=True)
        )
        monkeypatch.setattr(built.collection, "texts", None)
        monkeypatch.setattr(built.collection, "read", None)
    else:
        assert found.texts is None  # all is in one statement, and of the texts only k are wanted
    texts, scores, complete = found_texts(built, one, 10)
    expected, exact = exact_texts([str(place) for place in range(COUNT)], one, 10)
    assert texts == expected and complete == [True]
    np.testing.assert_allclose(scores, exact, rtol=1e-5)


@pytest.mark.slow
def test_more_candidates_than_the_engine_lists_are_refused(engine):
    few = EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(["5", "6"]), encode)
    with pytest.raises(InputError, match=f"finds at most {few.collection.longest:,} candidates, and top_k is 99,999"):
        few.search(query(), 99_999)


@pytest.mark.slow
def test_a_killed_build_is_resumed_and_never_seen_before_its_end(engine, monkeypatch):
    monkeypatch.setattr(candidates, "BLOCK", 500)
    encoded = []

    def dying(texts):
        if len(encoded) >= 500:
            raise KeyboardInterrupt
        encoded.extend(texts)
        return encode(texts)

    texts = ListedTexts([str(place) for place in range(COUNT)])
    with pytest.raises(KeyboardInterrupt):
        EngineCandidates.build(engine, MODEL, WIDTH, texts, dying)
    with pytest.raises(EngineError, match=r"has no candidates named test_.*, only an unfinished build; build th"):
        EngineCandidates.open(engine, MODEL)

    def going_on(texts):
        encoded.extend(texts)
        return encode(texts)

    EngineCandidates.build(engine, MODEL, WIDTH, texts, going_on)
    assert encoded == texts.texts and len(EngineCandidates.open(engine, MODEL)) == COUNT


def test_a_build_with_its_fields_in_another_order_keeps_each_value_in_its_field(engine):
    given = {"id": "a1", "tenant": "a", "language": "en"}
    for text, fields in (("0", ["tenant", "language"]), ("1", ["language", "tenant"])):
        records = ListedRecords([{**given, "text": text}], declared_fields(fields), False)
        EngineCandidates.build(engine, MODEL, WIDTH, records, encode)
    found = EngineCandidates.open(engine, MODEL)
    hits = found.search(query(1), 1, parse_filter({"tenant": "a", "language": "en"}, found.fields))
    assert [one.texts for one in hits] == [["1"]] * len(hits)


@pytest.mark.slow
def test_a_new_models_candidates_take_the_place_of_the_old_ones_at_their_end(built, engine):
    other = "b" * 64
    with pytest.raises(
        EngineError, match=r"was encoded by another model; give that one, or build the candidates of th"
    ):
        EngineCandidates.open(engine, other)
    new = EngineCandidates.build(engine, other, WIDTH, ListedTexts(["1", "2"]), encode)
    with pytest.raises(EngineError, match=r"was encoded by another model"):
        EngineCandidates.open(engine, MODEL)
    assert len(EngineCandidates.open(engine, other)) == len(new) == 2
    assert len(built) == COUNT and found_texts(built, query(), 1)[0]  # a server that holds the old ones keeps them
    assert candidates.remove(engine, ["1", "1", "never", str(COUNT - 1)]) == 1
    assert len(new) == 1 and len(built) == COUNT - 2  # what is withdrawn is withdrawn from all
    assert [(one.model, one.is_current) for one in engine.versions()] == [(MODEL, False), (other, True)]


@pytest.mark.slow
def test_names_do_not_meet(engine):
    name = engine.name
    EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(["1"]), encode)
    engine.name = f"{name}_more"
    assert engine.versions() == []
    with pytest.raises(EngineError, match=r"has no candidates named test_\d+_more"):
        candidates.remove(engine, ["1"])
    EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(["2", "3"]), encode)
    engine.name = name
    assert [engine.collection(one).count() for one in engine.versions()] == [1]


@pytest.mark.slow
def test_several_processes_build_together(engine, monkeypatch):
    monkeypatch.setattr(candidates, "BLOCK", 100)
    texts = ListedTexts([str(place) for place in range(COUNT)])
    encoded, waited = [[], []], []

    def of(rank):
        def own(texts):
            encoded[rank].extend(texts)
            return encode(texts)

        return own

    def other_first():
        """The first barrier of the first process, at which the second one does all of its work."""
        waited.append(True)
        if len(waited) == 1:
            EngineCandidates.build(engine, MODEL, WIDTH, texts, of(1), worker=Worker(1, 2))
            with pytest.raises(EngineError, match="only an unfinished build"):
                EngineCandidates.open(engine, MODEL)

    EngineCandidates.build(engine, MODEL, WIDTH, texts, of(0), worker=Worker(0, 2, other_first))
    assert sorted(map(int, encoded[0] + encoded[1])) == list(range(COUNT)) and len(encoded[0]) == COUNT / 2
    assert len(EngineCandidates.open(engine, MODEL)) == COUNT


@pytest.mark.slow
def test_vectors_of_another_width_are_refused_in_a_sentence(built, engine):
    with pytest.raises(EngineError, match=r"(Milvus|PostgreSQL) at .* did not take candidates: .*\.$"):
        built.collection.upsert(np.array([1]), ["1"], torch.zeros(1, WIDTH + 1))
    with pytest.raises(EngineError, match=r"(Milvus|PostgreSQL) at .* did not answer: .*\.$"):
        built.collection.nearest(torch.zeros(1, WIDTH + 1), 3, 64)
    assert len(built) == COUNT and BLOCK > COUNT


def test_ids_are_of_the_text_alone_and_no_number_below_zero():
    ids = candidate_ids([str(place) for place in range(20_000)])
    assert (ids >= 0).all() and len(set(ids.tolist())) == 20_000
    assert candidate_ids(["17"]) == ids[17]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("replies", "give something like milvus:candidates.db/replies"),
        ("milvus:candidates.db", "must end in a name for the candidates"),
        ("milvus:folder/replies", "names neither a folder of Milvus Lite, which ends in .db, nor a server"),
        ("milvus:me:secret@host/replies", "names neither a folder of Milvus Lite, which ends in .db, nor a server"),
        ("milvus:nowhere.db/replies", "There is no folder nowhere.db; build the candidates"),
        ("milvus://host:1/Replies", "must end in a name for the candidates: at most 41 lower-case letters"),
        ("milvus://host:1/1a", "digits and underscores, and no digit first"),
        ("milvus://host:1/a;drop", "must end in a name for the candidates"),
        ("milvus://host:1/a?secret", "milvus://host:1/a is not one of an engine; give something like"),
        ("milvus://secret@127.0.0.1:1/replies", "Milvus at http://127.0.0.1:1 cannot be opened"),
        ("http://host/replies", "give something like"),
        ("postgresql://me:secret@host/replies", "give something like"),
        (
            "postgresql://me:100%secret@127.0.0.1:1/db/replies",
            "PostgreSQL at postgresql://127.0.0.1:1/db/replies: the U",
        ),
        (
            "postgresql://127.0.0.1:1/db/replies?password=secret",
            "PostgreSQL at postgresql://127.0.0.1:1/db/replies can",
        ),
        ("postgresql://me:se[cret@h/db/n", "The index URL is not a URL; give something like"),
        ("milvus://secret@h:99999/n", "The index URL is not a URL"),
        ("milvus://h:secret/n", "The index URL is not a URL"),
    ],
)
def test_a_wrong_url_is_refused_in_one_sentence_without_its_password(url, sentence, monkeypatch):
    monkeypatch.setattr(milvus, "SECONDS", 2.0)
    with pytest.raises(InputError, match=re.escape(sentence)) as raised:
        open_engine(url)
    assert "secret" not in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [("a_file.db", "it is a file, not a folder"), ("/proc/none.db", "the folder cannot be made")],
)
def test_why_milvus_lite_opens_no_folder(where, sentence, tmp_path):
    (tmp_path / "a_file.db").write_text("not a folder")
    with pytest.raises(EngineError, match=f"{where} cannot be opened: {sentence}.$"):
        open_engine(f"milvus:{tmp_path / where}/replies", make=True)


def test_a_url_is_shown_without_users_passwords_and_parameters():
    assert without_secrets("postgresql://me:se:cret@h:5/d/n?sslpassword=x") == "postgresql://h:5/d/n"
    assert without_secrets("postgresql:///d/n?host=/run/pg&password=x") == "postgresql:///run/pg/d/n"
    assert without_secrets("milvus://KEY@h/n") == "milvus://h/n" and without_secrets("milvus:a.db/n") == "milvus:a.db/n"


@pytest.mark.slow
@pytest.mark.parametrize("index_type", ["hnsw", "exact"])
def test_the_nearest_removed_leave_the_next_ones(engine, index_type):
    """pgvector's graph keeps what was removed until VACUUM, and looks at no more than it was told to."""
    every = [str(place) for place in range(COUNT)]
    built = EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(every), encode, index_type)
    (nearest,), _ = exact_texts(every, query(1, examples=1), 600)
    candidates.remove(engine, nearest)
    left = [text for text in every if text not in set(nearest)]
    texts, _, complete = found_texts(built, query(1, examples=1), 10)
    assert texts == exact_texts(left, query(1, examples=1), 10)[0] and all(complete)


@pytest.mark.slow
def test_a_removal_goes_on_where_one_collection_refuses(built, engine, monkeypatch):
    new = EngineCandidates.build(engine, "b" * 64, WIDTH, ListedTexts(["1", "2"]), encode)
    current = type(new.collection)
    refusing, real = new.collection.table, current.delete

    def delete(self, ids):
        if self.table == refusing:
            raise EngineError("It is locked.")
        real(self, ids)

    monkeypatch.setattr(current, "delete", delete)
    with pytest.raises(
        EngineError, match=r"remain in the current collection, of the model b+ \(It is locked.\); run the c"
    ):
        candidates.remove(engine, ["1"])
    assert len(built) == COUNT - 1


@pytest.mark.slow
def test_a_collection_that_was_dropped_by_hand_is_not_there(built, engine):
    if isinstance(engine, milvus.Milvus):
        engine.client.drop_alias(engine.name)
        engine.client.drop_collection(built.collection.table)
    else:
        engine.connection.execute(f"DROP TABLE {built.collection.table}")
    assert engine.versions() == []
    begun = engine.create(MODEL, WIDTH)
    assert begun.count() == 0 and [one.is_current for one in engine.versions()] == [False]


@pytest.mark.slow
def test_a_name_that_is_a_collection_of_somebody_else_is_refused_before_anything_is_encoded(engine):
    if not isinstance(engine, milvus.Milvus):
        pytest.skip("names of PostgreSQL's tables are ours")
    engine.client.create_collection(engine.name, dimension=4)
    with pytest.raises(EngineError, match=r"has another collection test_\d+; give another name"):
        EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(["1"]), None)


def test_a_server_that_says_nothing_is_given_up():
    """What waits for its answer, as libpq does, is told that the connection has ended."""
    here, there = socket.socketpair()
    with here, there, given_up_after(0.05, Connection(here)):
        here.settimeout(30)
        assert here.recv(1) == b""


class Connection:
    """As much of psycopg's as is asked."""

    def __init__(self, own):
        self.own, self.closed = own, False

    def fileno(self):
        return self.own.fileno()


def test_who_may_only_read_searches_and_is_refused_the_rest(postgres_socket):
    url = postgres.new_database(postgres_socket).replace("?", "/some?", 1)
    made = EngineCandidates.build(open_engine(url), MODEL, WIDTH, ListedTexts(["1", "2"]), encode)
    made.engine.connection.execute("CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    reader = url.replace("postgres@", "reader@")
    reading = EngineCandidates.open(open_engine(reader), MODEL)
    assert sorted(found_texts(reading, query(examples=1), 2)[0][0]) == ["1", "2"] and len(reading) == 2
    for change in (
        lambda: reading.add(ListedTexts(["3"]), encode),
        lambda: candidates.remove(reading.engine, ["1"]),
        lambda: EngineCandidates.build(open_engine(reader), "n" * 64, WIDTH, ListedTexts(["3"]), encode),
    ):
        with pytest.raises(EngineError, match=r"permission denied for (table|schema)"):
            change()
    assert len(made) == 2 and len(made.engine.versions()) == 1


# ---- rows that somebody else changed ---------------------------------------------------------------------------------

TINY = [str(place) for place in range(8)]
LIST = "polyagents_collections"
# What is done to the table {t} of the name {n}, and what is said; None where the right answer comes, in spite of it.
NOT, CHANGED = "is not as polyagents made it", "whose id, text or vector was changed"
TAMPERED_SQL = [
    ("ALTER TABLE {t} DROP COLUMN vector", NOT),
    ("ALTER TABLE {t} DROP COLUMN text", NOT),
    ("ALTER TABLE {t} DROP COLUMN id", NOT),
    ("ALTER TABLE {t} RENAME vector TO v", NOT),
    ("ALTER TABLE {t} ALTER text TYPE bytea USING text::bytea", NOT),
    ("ALTER TABLE {t} ALTER text TYPE integer USING text::integer", NOT),
    ("ALTER TABLE {t} ALTER text TYPE jsonb USING text::jsonb", NOT),
    ("ALTER TABLE {t} ALTER text DROP NOT NULL; UPDATE {t} SET text = NULL", NOT),
    ("UPDATE {t} SET text = 'another ' || text", CHANGED),
    ("UPDATE {t} SET text = repeat('x', 1000000)", CHANGED),
    ("UPDATE {t} SET text = ''", CHANGED),
    ("ALTER TABLE {t} ALTER vector DROP NOT NULL; UPDATE {t} SET vector = NULL", NOT),
    ("ALTER TABLE {t} ALTER vector DROP NOT NULL; UPDATE {t} SET vector = NULL WHERE text = '3'", NOT),
    ("ALTER TABLE {t} ALTER vector TYPE vector(8) USING subvector(vector, 1, 8)", NOT),
    ("DROP INDEX {t}_hnsw; ALTER TABLE {t} ALTER vector TYPE halfvec(16)", NOT),
    ("DROP INDEX {t}_hnsw; ALTER TABLE {t} ALTER vector TYPE real[] USING vector::real[]", NOT),
    ("DROP INDEX {t}_hnsw; ALTER TABLE {t} ALTER vector TYPE text USING vector::text", NOT),
    ("DROP INDEX {t}_hnsw; ALTER TABLE {t} ALTER vector TYPE vector", NOT),
    ("DROP INDEX {t}_hnsw; ALTER TABLE {t} ALTER vector TYPE vector; "
        "UPDATE {t} SET vector = '[1,2]' WHERE text = '3'", NOT),
    ("DROP INDEX {t}_hnsw; ALTER TABLE {t} ALTER vector TYPE vector; UPDATE {t} SET vector = '[1,2]'", NOT),
    ("ALTER TABLE {t} ALTER id TYPE text", NOT),
    ("ALTER TABLE {t} ALTER id TYPE numeric", NOT),
    ("ALTER TABLE {t} ALTER id TYPE double precision", NOT),
    ("UPDATE {t} SET id = - id - 1", CHANGED),
    ("UPDATE {t} SET id = id - 1", CHANGED),
    ("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; INSERT INTO {t} SELECT * FROM {t}", NOT),
    ("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ALTER id DROP NOT NULL; UPDATE {t} SET id = NULL", NOT),
    ("DROP TABLE {t}", "has no candidates"),
    ("ALTER TABLE {t} RENAME TO kept_{t}; CREATE VIEW {t} AS SELECT * FROM kept_{t}", NOT),
    ("ALTER TABLE {t} RENAME TO kept_{t}; CREATE VIEW {t} AS SELECT 1 AS a", NOT),
    ("ALTER TABLE {t} RENAME TO kept_{t}; CREATE TABLE {t} (a integer)", NOT),
    ("DROP INDEX {t}_hnsw", None),
    ("DROP INDEX {t}_hnsw; CREATE INDEX {t}_hnsw ON {t} USING hnsw (vector vector_l2_ops)", None),
    ("ALTER TABLE {t} ADD COLUMN more integer", None),
    ("ALTER TABLE {t} ADD COLUMN more integer NOT NULL DEFAULT 7", None),
    ("ALTER TABLE {t} ADD COLUMN t2 text; UPDATE {t} SET t2 = text; "
        "ALTER TABLE {t} DROP COLUMN text; ALTER TABLE {t} RENAME t2 TO text", NOT),
    ("DELETE FROM {t}", None),
    ("UPDATE {t} SET vector = array_fill(3e38::real, ARRAY[16])::vector WHERE text = '3'", CHANGED),
    ("UPDATE {t} SET vector = array_fill(-3e38::real, ARRAY[16])::vector", CHANGED),
    ("CREATE RULE r AS ON INSERT TO {t} DO INSTEAD NOTHING", "a rule or a trigger"),
    ("CREATE RULE r AS ON DELETE TO {t} DO INSTEAD NOTHING", "a rule or a trigger"),
    ("CREATE FUNCTION {t}_f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
        "CREATE TRIGGER g BEFORE INSERT OR DELETE ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_f()", "a rule or a trigger"),
    ("UPDATE {l} SET width = 8 WHERE name = '{n}'", NOT),
    ("UPDATE {l} SET width = -1 WHERE name = '{n}'", NOT),
    ("UPDATE {l} SET width = 0 WHERE name = '{n}'", NOT),
    ("UPDATE {l} SET model = 'another' WHERE name = '{n}'", "has no candidates"),
    ("UPDATE {l} SET model = model || 'x' WHERE name = '{n}'", "another model"),
    ("UPDATE {l} SET model = '{m}\".\"x' WHERE name = '{n}'", "no candidates|another model"),
    ("UPDATE {l} SET is_current = false WHERE name = '{n}'", "unfinished build"),
    ("INSERT INTO {l} SELECT name, model || 'x', width, index_type, true FROM {l} WHERE name = '{n}'", "current"),
    ("UPDATE {l} SET index_type = 'x' WHERE name = '{n}'", None),
    ("DELETE FROM {l} WHERE name = '{n}'", "has no candidates"),
    ("ALTER TABLE {l} DROP COLUMN width", "does not exist"),
    ("ALTER TABLE {l} ALTER width TYPE text", "width"),
    ("ALTER TABLE {l} ALTER width DROP NOT NULL; UPDATE {l} SET width = NULL", "width"),
    ("ALTER TABLE {l} ALTER is_current TYPE text", "is_current"),
    ("ALTER TABLE {l} RENAME TO kept; CREATE VIEW {l} AS SELECT * FROM kept", None),
    ("DROP TABLE {l}", "has no candidates"),
    ("ALTER TABLE {l} ADD COLUMN more integer", None),
]  # fmt: skip


def used(engine):
    """Open, search, add and remove, as commands do; texts of a search, None where there are none."""
    there = EngineCandidates.open(engine, MODEL)
    count = len(there)
    best = there.search(query(), 8)
    one = there.search(query(1, examples=1), 8)
    assert all(np.isfinite(each.scores).all() for each in best + one)
    assert all(sorted(each.texts) == (TINY if count else []) for each in best + one), [each.texts for each in best]
    there.add(ListedTexts(["3", "9"]), encode)
    assert len(there) == (9 if count else 2)
    candidates.remove(engine, ["9"])
    assert len(there) == (8 if count else 1)


def test_rows_of_postgresql_that_somebody_changed_are_right_or_one_sentence(engine):
    if isinstance(engine, milvus.Milvus):
        pytest.skip("the next test")
    made = EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(TINY), encode)
    used(engine)
    for change, said in TAMPERED_SQL:
        with engine.connection.transaction(force_rollback=True):
            engine.connection.execute(change.format(t=made.collection.table, n=engine.name, l=LIST, m=MODEL[:16]))
            check_use(engine, change, said)


def check_use(engine, change, said):
    """The right answer where nothing is said, or one sentence."""
    try:
        used(engine)
        assert said is None, f"nothing was said of {change}"
    except InputError as error:
        assert said is not None and re.search(said, str(error)) and "\n" not in str(error), (change, str(error))


def put(client, table, texts=TINY, vectors=None, ids=None):
    """Rows of any content in a collection."""
    rows = zip(
        candidate_ids(TINY) if ids is None else ids, encode(TINY) if vectors is None else vectors, texts, strict=True
    )
    client.upsert(table, data=[{"id": int(one), "vector": vector.numpy(), "text": text} for one, vector, text in rows])


def moved(ids):
    """Replace candidates by some of other ids."""
    return lambda client, table, _: (
        client.delete(table, ids=candidate_ids(TINY).tolist()),
        put(client, table, ids=ids),
    )


def elsewhere(client, table, name):
    client.create_collection(f"other_{table}", dimension=4)
    client.alter_alias(f"other_{table}", name)


def remade(properties=None, **columns):
    """Replace a collection by one of other columns; DTYPE, or one with options."""
    made = {"id": ("INT64", {"is_primary": True}), "vector": ("FLOAT_VECTOR", {"dim": WIDTH})}
    made = made | {"text": ("VARCHAR", {"max_length": 99})} | columns

    def change(client, table, name):
        client.drop_alias(name)
        client.drop_collection(table)
        schema, index = client.create_schema(auto_id=False), client.prepare_index_params()
        for column, (kind, options) in (one for one in made.items() if one[1]):
            schema.add_field(column, getattr(pymilvus.DataType, kind), **options)
            if "VECTOR" in kind:
                index.add_index(column, index_type="FLAT", metric_type="IP")
        properties_of = properties or {milvus.MODEL: MODEL, milvus.INDEX: "exact"}
        client.create_collection(table, schema=schema, properties=properties_of, index_params=index)
        client.create_alias(table, name)

    return change


NAN, INFINITE, HUGE = (torch.full((len(TINY), WIDTH), float(value)) for value in ("nan", "inf", "3e38"))
TAMPERED_MILVUS = [
    (lambda client, table, _: put(client, table, [f"another {text}" for text in TINY]), CHANGED),
    (lambda client, table, _: put(client, table, [""] * 8), CHANGED),
    (lambda client, table, _: put(client, table, ["x" * 65_535] * 8), CHANGED),
    (lambda client, table, _: put(client, table, ["a\0b"] * 8), CHANGED),
    (lambda client, table, _: put(client, table, vectors=NAN), CHANGED),
    (lambda client, table, _: put(client, table, vectors=INFINITE), CHANGED),
    (lambda client, table, _: put(client, table, vectors=torch.cat([encode(TINY[:7]), NAN[:1]])), CHANGED),
    (lambda client, table, _: put(client, table, vectors=HUGE), CHANGED),
    (lambda client, table, _: put(client, table, vectors=torch.cat([encode(TINY[:7]), -HUGE[:1]])), CHANGED),
    (moved(-candidate_ids(TINY) - 1), CHANGED),
    (moved(range(8)), CHANGED),
    (lambda client, table, _: client.delete(table, ids=candidate_ids(TINY).tolist()), None),
    (lambda client, table, name: client.drop_alias(name), "unfinished build"),
    (lambda client, table, _: client.release_collection(table), None),
    (lambda client, table, _: (client.release_collection(table), client.drop_index(table, "vector")), None),
    (lambda client, table, _: client.alter_collection_properties(table, {milvus.MODEL: "x"}), "has no candidates"),
    (lambda client, table, _: client.alter_collection_properties(table, {milvus.MODEL: ""}), "has no candidates"),
    (lambda client, table, _: client.alter_collection_properties(table, {milvus.MODEL: f"{MODEL}x"}), "another model"),
    (lambda client, table, _: client.alter_collection_properties(table, {milvus.INDEX: "x"}), None),
]
REMADE_MILVUS = [
    (remade(text=("VARCHAR", {"max_length": 9, "nullable": True})), NOT),
    (remade(vector=None, v=("FLOAT_VECTOR", {"dim": WIDTH})), NOT),
    (lambda client, table, name: (client.drop_alias(name), client.drop_collection(table)), "has no candidates"),
    (elsewhere, "unfinished build"),
    (remade(text=None), NOT),
    (remade(text=("INT64", {})), NOT),
    (remade(text=("JSON", {})), NOT),
    (remade(id=("VARCHAR", {"is_primary": True, "max_length": 30})), NOT),
    (remade(id=("INT64", {}), key=("INT64", {"is_primary": True})), NOT),
    (remade(vector=("INT64", {}), v=("FLOAT_VECTOR", {"dim": WIDTH})), NOT),
    (remade(vector=("FLOAT_VECTOR", {"dim": 8})), "expected dim 8, got 16|dimension"),
    (remade(more=("INT64", {})), "more"),
    (remade(more=("FLOAT_VECTOR", {"dim": 4})), "more|multiple"),
    (remade(more=("INT64", {"nullable": True})), None),
    (remade({"x": "y"}), "has no candidates"),
    (remade({milvus.INDEX: "exact"}), "has no candidates"),
    (remade({milvus.MODEL: MODEL}), None),
]


@pytest.mark.slow
def test_rows_of_milvus_that_somebody_changed_are_right_or_one_sentence(engine):
    if not isinstance(engine, milvus.Milvus):
        pytest.skip("the test before")
    for place, (change, said) in enumerate(TAMPERED_MILVUS):
        made = EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(TINY), encode, "exact")
        table = made.collection.table
        change(engine.client, table, engine.name)
        check_use(engine, place, said)
        engine.client.alter_collection_properties(table, {milvus.MODEL: MODEL, milvus.INDEX: "exact"})
        engine.create(MODEL, WIDTH).delete(
            np.array([row["id"] for row in engine.client.query(table, "id > -1 or id < 0")])
        )


@pytest.mark.release
@pytest.mark.parametrize(("change", "said"), REMADE_MILVUS)
def test_a_collection_of_milvus_that_somebody_made_is_right_or_one_sentence(change, said, engine):
    if not isinstance(engine, milvus.Milvus):
        pytest.skip("the test before")
    made = EngineCandidates.build(engine, MODEL, WIDTH, ListedTexts(TINY), encode, "exact")
    change(engine.client, made.collection.table, engine.name)
    with contextlib.suppress(pymilvus.MilvusException, pymilvus.exceptions.ParamError):
        put(engine.client, made.collection.table)
    check_use(engine, said, said)
