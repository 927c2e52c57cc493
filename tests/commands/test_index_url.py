"""`--index-url`: candidates in a vector database, from the shell, and a server over one that comes and goes."""

import io
import json
import signal
import time
from pathlib import Path

import engines
import forks
import pytest
from commands import SAMPLE, own
from starlette.testclient import TestClient

from polyagents import Ranker
from polyagents.errors import InputError
from polyagents.index.engines.urls import open_engine
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

REPLIES = [
    f"i like {colour} {thing}" for colour in ("red", "blue", "green") for thing in ("cars", "hats", "tea", "fish")
]
HERE = "http://127.0.0.1:8008"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("\n".join(REPLIES))
    return path


@pytest.fixture(scope="module", params=["milvus-lite", "pgvector"])
def address(request, tmp_path_factory):
    socket = request.getfixturevalue("postgres_socket") if request.param == "pgvector" else None
    with engines.running(request.param, tmp_path_factory.mktemp("engine"), socket) as url:
        yield url


@pytest.fixture
def lines(capsys):
    """Run a command; the JSON lines that it prints."""

    def run(*arguments):
        capsys.readouterr()
        own(*arguments)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "build"), [("bi", ["build_index"]), ("poly", ["index", "build"])])
def test_build_rank_add_remove_and_status(kind, build, address, lines, file, trained, tmp_path, monkeypatch):
    where = ("--index-url", address.format(name=f"of_{kind}"))
    model = ("-mf", trained(kind))
    assert lines(*build, *model, "--candidates-file", file, *where) == [
        {"candidates": len(REPLIES), "index_type": "hnsw"}]  # fmt: skip
    ranker = Ranker.load(trained(kind))

    def rank(top_k):
        monkeypatch.setattr("sys.stdin", io.StringIO("i would like tea\n"))
        (line,) = lines("rank", *model, *where, "--top-k", top_k)
        assert line["complete"] is True
        return [(match["text"], match["score"]) for match in line["candidates"]]

    def expected(texts, top_k):
        return [
            (match.text, pytest.approx(match.score, abs=1e-3))
            for match in ranker.rank("i would like tea", texts, top_k)
        ]

    assert rank(3) == expected(REPLIES, 3)
    more = tmp_path / "more.txt"
    more.write_text(f"{REPLIES[0]}\ni would like tea\n")
    (line,) = lines("index", "add", *model, "--candidates-file", more, *where)
    assert line["candidates"] == 13
    assert rank(20) == expected([*REPLIES, "i would like tea"], 20)
    more.write_text(f"{REPLIES[5]}\nnever there\n")
    (line,) = lines("index", "remove", "--candidates-file", more, *where)
    assert line["candidates"] == 12
    assert rank(20) == expected([*REPLIES[:5], *REPLIES[6:], "i would like tea"], 20)
    (status,) = lines("index", "status", *where)
    assert status == {
        "model": ranker.model.fingerprint(), "candidates": 12, "width": 128, "index_type": "hnsw", "current": True
    }  # fmt: skip


@pytest.mark.slow
def test_candidates_with_ids_are_filtered_updated_removed_and_served(address, lines, trained, tmp_path, monkeypatch):
    where, model = ("--index-url", address.format(name="with_ids")), ("-mf", trained("poly"))
    rows = [{"id": f"r{n}", "text": text, "colour": text.split()[2], "n": n} for n, text in enumerate(REPLIES)]
    file = tmp_path / "faq.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    built = lines("build_index", *model, "--candidates-file", file, *where, "--fields", "colour,n:int")
    assert built == [{"candidates": 12, "index_type": "hnsw"}]
    with pytest.raises(InputError, match=r"ids and the fields .*colour.*; declare the same, or build .* another name"):
        lines("build_index", *model, "--candidates-file", file, *where, "--fields", "n:int")

    def rank(given):
        monkeypatch.setattr("sys.stdin", io.StringIO("i would like tea\n"))
        (line,) = lines("rank", *model, *where, "--top-k", 20, "--filter", json.dumps(given))
        assert line["complete"] is True
        return {one["id"]: one["text"] for one in line["candidates"]}

    assert rank({"colour": ["red", "green"], "n": {"gt": 2}}) == {f"r{n}": REPLIES[n] for n in (3, 8, 9, 10, 11)}
    assert rank({"colour": "' OR true --"}) == rank({"n": []}) == {}
    with pytest.raises(InputError, match="'size', which is not a field; the fields are colour"):
        rank({"size": 1})
    (tmp_path / "gone.txt").write_text("r8\nnever\n")
    file.write_text(json.dumps({"id": "r3", "text": "i like tea", "colour": "pink"}))
    (line,) = lines("index", "add", *model, "--candidates-file", file, *where)
    assert line["candidates"] == 12
    (line,) = lines("index", "remove", "--candidates-file", tmp_path / "gone.txt", *where)
    assert (line["candidates"], line["fields"]) == (11, {"colour": "text", "n": "int"})
    assert rank({"colour": "pink"}) == {"r3": "i like tea"} and len(rank({})) == 11
    served = Sources(trained("poly"), index_url=where[1]).read()
    with TestClient(create_app(served), HERE) as client:
        asked = {"context": "i would like tea", "filter": {"colour": ["pink", "green"]}}
        matches = client.post("/rank", json=asked).json()["matches"]
        assert {one["id"] for one in matches} == {"r3", "r9", "r10", "r11"}
        assert client.post("/rank", json=asked | {"filter": {"colour": "x"}}).json()["matches"] == []
        refused = client.post("/rank", json=asked | {"filter": {"colour": 1}})
        assert refused.status_code == 422 and "colour is 1; give a text" in refused.json()["error"]
    served.candidates.close()


@pytest.mark.slow
def test_a_chat_over_an_engine_is_that_over_its_file(address, trained, chat, file, tmp_path, ends_with_2):
    url = address.format(name="chat")
    Ranker.load(trained("poly")).index_in_engine(REPLIES, url)
    said = ["i would like tea", "and what else ?", "red ones ?"]
    over_file = chat(trained("poly"), said, "--fixed-candidates-path", file)
    assert chat(trained("poly"), said, "--index-url", url) == over_file
    for flags, sentence in (
        (("--fixed-candidates-path", file), "is for a chat, without --fixed-candidates-path"),
        (("--interactive-candidates", "inline"), "is for a chat"),
    ):
        assert sentence in ends_with_2("interactive", "-mf", trained("poly"), "--index-url", url, *flags)[-1]
    said = ends_with_2("interactive", "-mf", trained("cross"), "--index-url", url)
    assert "--index-url holds vectors, and a cross-encoder has none" in said[-1]
    said = ends_with_2("eval_model", "-mf", trained("poly"), "-t", SAMPLE, "--eval-candidates", "fixed",
                       "--index-url", url)  # fmt: skip
    assert "give their texts, or --fixed-candidates-path" in said[-1]


def test_a_strangers_model_file_does_not_decide_whom_we_ask(model, chat, file):
    copy = model("bi")
    saved = Path(f"{copy}.opt")
    saved.write_text(json.dumps(json.loads(saved.read_text()) | {"index_url": "milvus://127.0.0.1:1/theirs"}))
    assert len(chat(copy, ["tea"], "--fixed-candidates-path", file)) == 1


@pytest.mark.slow
def test_what_cannot_be_is_said(address, file, trained, ends_with_2, tmp_path):
    url = address.format(name="refused")
    build = ("build_index", "-mf", trained("bi"), "--candidates-file", file, "--index-url", url)
    if url.startswith("milvus:"):
        (said,) = ends_with_2("rank", "-mf", trained("bi"), "--index-url", f"milvus:{tmp_path}/none.db/refused")
        assert "There is no folder" in said and not (tmp_path / "none.db").exists()
        open_engine(url, make=True).close()
    assert "has no candidates named refused; build them" in ends_with_2("index", "status", "--index-url", url)[-1]
    assert "--exact is for --index-dir" in ends_with_2("rank", "-mf", trained("bi"), "--index-url", url, "--exact")[-1]
    (said,) = ends_with_2("rank", "-mf", trained("bi"), "--index-url", url)
    assert "has no candidates named refused; build them with polyagents index build --index-url" in said
    assert "--append is for --index-dir; polyagents index add and remove" in ends_with_2(*build, "--append")[-1]
    assert "--index-type is for polyagents index build" in ends_with_2(
        "index", "status", "--index-url", url, "--index-type", "hnsw")[-1]  # fmt: skip
    assert "an engine has hnsw and exact" in ends_with_2(*build, "--index-type", "ivfpq")[-1]
    assert "Give one of: polyagents index add, with" in ends_with_2("index", "add", "--index-url", url)[-1]
    own(*build)
    (said,) = ends_with_2("rank", "-mf", trained("poly"), "--index-url", url)
    assert "was encoded by another model" in said
    said = ends_with_2("rank", "-mf", trained("cross"), "--index-url", url)[-1]
    assert "cannot encode candidates in advance" in said
    with pytest.raises(InputError, match="candidates, and top_k is 99,999"):
        Ranker.load(trained("bi")).rank("hi", Ranker.load(trained("bi")).open_engine(url), 99_999)


@pytest.mark.slow
def test_a_killed_build_is_resumed(postgres_socket, trained, tmp_path):
    """A process is killed while it sends candidates; the same command again encodes only what is missing."""
    many = tmp_path / "many.txt"
    many.write_text("\n".join(f"reply number {place}" for place in range(5_000)))
    flags = ("-mf", trained("bi"), "--candidates-file", str(many))
    kill = f"""
import os, sys
from polyagents.index.engines.postgres import PostgresCollection
real, calls = PostgresCollection.upsert, []
def upsert(*arguments):
    real(*arguments)
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), {int(signal.SIGKILL)})
PostgresCollection.upsert = upsert
from polyagents.__main__ import main
main()
"""
    with engines.running("pgvector", tmp_path, postgres_socket) as address:
        url = address.format(name="killed")
        assert forks.run(kill, "build_index", *flags, "--index-url", url).returncode == -signal.SIGKILL
        ranker = Ranker.load(trained("bi"))
        with pytest.raises(InputError, match="only an unfinished build"):
            ranker.open_engine(url)
        encoded = []
        encode = ranker.model.encode_texts
        ranker.model.encode_texts = lambda texts: encoded.extend(texts) or encode(texts)
        made = ranker.index_in_engine(many.read_text().splitlines(), url)
        assert len(made) == 5_000 and len(encoded) == 5_000 - 2 * 2_048 + 1  # one more tells the width


@pytest.mark.slow
def test_a_server_says_that_its_engine_is_away_and_goes_on_when_it_is_back(trained, file, tmp_path):
    ranker = Ranker.load(trained("bi"))
    port, data = engines.free_port(), tmp_path / "data"
    url = f"milvus://127.0.0.1:{port}/replies"
    with engines.milvus_server(data, port):
        ranker.index_in_engine(REPLIES, url)
        served = Sources(trained("bi"), index_url=url).read()
        client = TestClient(create_app(served), HERE)
        client.__enter__()
        first = client.post("/rank", json={"context": "tea", "top_k": 2}).json()
        assert first["matches"][0]["text"] == ranker.rank("tea", REPLIES, 1)[0].text
        assert first["candidates"] == {"name": "replies", "size": len(REPLIES)}
        assert str(port) not in client.get("/openapi.json").text + client.get("/").text
    gone = client.post("/rank", json={"context": "tea", "top_k": 2})
    assert gone.status_code == 503 and gone.json()["error"].startswith("The engine of the candidates does not ans")
    assert str(port) not in gone.text  # where it is, is for the log
    with engines.milvus_server(data, port):
        deadline = time.monotonic() + 30
        while (again := client.post("/rank", json={"context": "tea", "top_k": 2})).status_code == 503:
            assert time.monotonic() < deadline  # gRPC looks for a server that has gone once a second
        assert again.json()["matches"] == first["matches"]
        own("index", "remove", "--candidates-file", file, "--index-url", url)
        none = client.post("/chat", json={"history": ["tea"]})
        assert none.status_code == 503 and "there is nothing to reply" in none.json()["error"]
        assert client.post("/rank", json={"context": "tea"}).json()["matches"] == []
    client.__exit__(None, None, None)
