"""`polyagents build_index` and what `rank` makes of an index: from the shell, with real processes where it matters."""

import io
import json
from concurrent.futures import ThreadPoolExecutor

import forks
import pytest
import torch
from commands import own
from engines import free_port

from polyagents import Ranker
from polyagents.errors import InputError

REPLIES = [
    f"i like {colour} {thing}" for colour in ("red", "blue", "green") for thing in ("cars", "hats", "tea", "fish")
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("\n".join(REPLIES))
    return path


@pytest.fixture
def build(trained, file, tmp_path, capsys):
    """Run the command; the JSON line that it prints."""

    def run(*arguments, kind="poly", candidates=file):
        flags = ("-mf", trained(kind), "--candidates-file", candidates, "--index-dir", tmp_path / "index")
        capsys.readouterr()
        own("build_index", *flags, *arguments)
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def rank(trained, tmp_path, monkeypatch, capsys):
    """Rank one context over the index; the JSON line that it prints."""

    def run(*arguments, kind="poly"):
        monkeypatch.setattr("sys.stdin", io.StringIO("i would like tea\n"))
        capsys.readouterr()
        own("rank", "-mf", trained(kind), "--index-dir", tmp_path / "index", *arguments)
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_build_and_rank(kind, build, rank, trained, tmp_path):
    line = build("--stored-as", "fp32", kind=kind)
    assert line["candidates"] == len(REPLIES) and line["stored_as"] == "fp32" and line["width"] == 128
    assert line["bytes"] == sum(path.stat().st_size for path in (tmp_path / "index").iterdir())
    expected = Ranker.load(trained(kind)).rank("i would like tea", REPLIES, 3)
    found = rank("--top-k", 3, kind=kind)
    assert "complete" not in found
    assert [(m["index"], m["text"]) for m in found["candidates"]] == [(m.index, m.text) for m in expected]
    assert [m["score"] for m in found["candidates"]] == pytest.approx([m.score for m in expected], abs=1e-3)


def test_append_and_delete(build, rank, file, tmp_path):
    build()
    more = tmp_path / "more.txt"
    more.write_text(f"{REPLIES[0]}\ni would like tea\n")
    assert build("--append", candidates=more)["candidates"] == len(REPLIES) + 1
    assert len(REPLIES) in [match["index"] for match in rank("--top-k", 99)["candidates"]]
    more.write_text("i would like tea\nnever there\n")
    assert build("--delete", candidates=more)["candidates"] == len(REPLIES)
    assert len(REPLIES) not in [match["index"] for match in rank("--top-k", 99)["candidates"]]
    with pytest.raises(InputError, match="would undo that"):
        build()


def test_the_group_does_to_a_folder_what_its_other_name_does(build, rank, file, trained, tmp_path, capsys):
    (tmp_path / "more.txt").write_text("i would like tea\nnever there\n")
    here, more = ("--index-dir", tmp_path / "index"), ("--candidates-file", tmp_path / "more.txt")
    model = ("-mf", trained("poly"))

    def group(*arguments):
        capsys.readouterr()
        own("index", *arguments, *here)
        done = capsys.readouterr()
        return json.loads(done.out), done.err

    line = group("build", *model, "--candidates-file", file, "--stored-as", "int8")[0]
    assert line == build("--stored-as", "int8") == group("status")[0] and line["stored_as"] == "int8"
    added, _ = group("add", *model, *more)
    found = {match["text"] for match in rank("--top-k", 99)["candidates"]}
    assert added["candidates"] == len(found) == len(REPLIES) + 2 and "never there" in found
    (tmp_path / "more.txt").write_text("i would like tea\nwho ?\n")
    removed, said = group("remove", *more)
    assert removed["candidates"] == len(REPLIES) + 1 and said.endswith("Not in the index: 1 of 2.\n")
    group("add", *model, *more, "--index-type", "hnsw")
    status, _ = group("status")
    assert (status["index_type"], status["recall@10"], status["candidates"]) == ("hnsw", 1.0, len(REPLIES) + 3)


def test_what_the_group_cannot_do(file, trained, tmp_path, ends_with_2):
    here, one = ("--index-dir", tmp_path / "none"), ("-mf", trained("poly"), "--candidates-file", file)
    assert "holds no finished candidate index" in ends_with_2("index", "status", *here)[-1]
    for given in (("remove", *one), ("status", "-mf", trained("poly"))):
        assert f"--model-file is not for polyagents index {given[0]}" in ends_with_2("index", *given, *here)[-1]
    for given in (("add", "--candidates-file", file), ("x",)):
        assert "Give one of: polyagents index add, with" in ends_with_2("index", *given, *here)[-1]
    assert "required: build|add|remove|status" in ends_with_2("index", *here)[-1]
    for given in (("add", *one, "--stored-as", "int8"), ("status", "--stored-as", "int8")):
        assert "--stored-as is for polyagents index build." in ends_with_2("index", *given, *here)[-1]
    assert "--ray is for polyagents index build." in ends_with_2("index", "add", *one, *here, "--ray", "local")[-1]
    assert "give --index-type, too" in ends_with_2("index", "build", *one, *here, "--contexts-file", file)[-1]


@pytest.mark.slow
def test_an_approximate_index_tells_its_recall_and_is_used(build, rank, tmp_path):
    contexts = tmp_path / "contexts.txt"
    contexts.write_text("hello\nhow are you\n")
    line = build("--index-type", "hnsw", "--contexts-file", contexts)
    assert line["recall@1"] == line["recall@10"] == 1.0 and line["contexts"] == 2
    assert build("--index-type", "hnsw")["contexts"] == 2  # there already
    contexts.write_text("hello\n")
    assert build("--index-type", "hnsw", "--contexts-file", contexts)["contexts"] == 1  # measured again
    approximate, exact = rank("--top-k", 3), rank("--top-k", 3, "--exact")
    assert approximate["complete"] is True and "complete" not in exact
    assert approximate["candidates"] == exact["candidates"]
    assert "index_type" not in build("--index-type", "exact")
    assert rank("--top-k", 3) == exact and not list((tmp_path / "index").glob("*.faiss"))


def test_a_second_model_reorders_the_shortlist(build, rank, trained):
    build()
    shortlist = [match["index"] for match in rank("--top-k", 5)["candidates"]]
    scores = Ranker.load(trained("cross")).score("i would like tea", REPLIES)
    found = rank("--rerank", trained("cross"), "--rerank-top", 5, "--top-k", 3)["candidates"]
    assert [match["index"] for match in found] == sorted(shortlist, key=lambda i: -scores[i])[:3]
    assert [match["score"] for match in found] == pytest.approx([scores[m["index"]] for m in found], abs=1e-3)
    assert all(match["text"] == REPLIES[match["index"]] for match in found)


def test_what_build_index_cannot_do(build, file, tmp_path):
    with pytest.raises(InputError, match="cannot encode candidates in advance"):
        build(kind="cross")
    with pytest.raises(InputError, match="holds no finished candidate index"):
        build("--append")
    file.write_text("")
    with pytest.raises(InputError, match="holds no text"):
        build()
    assert not (tmp_path / "index").exists()


SMALL_SHARDS = """
from polyagents.index import builder, store
from polyagents.__main__ import main
builder.SHARD = store.SHARD = 64
main()
"""


@pytest.mark.slow
def test_several_processes_build_one_index(trained, file, tmp_path):
    """As torchrun starts them, on several machines that share a folder."""
    file.write_text("\n".join(f"reply {i}" for i in range(100)))  # two shards
    flags = ("build_index", "-mf", trained("poly"), "--candidates-file", file, "--index-dir", tmp_path / "both")
    both = {"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(forks.run, SMALL_SHARDS, *flags, **both, RANK=rank, LOCAL_RANK=rank) for rank in ("0", "1")]
    done, other = (run.result() for run in runs)
    assert done.returncode == other.returncode == 0, done.stderr + other.stderr
    assert json.loads(done.stdout)["candidates"] == 100 and not other.stdout
    assert len(sorted((tmp_path / "both").glob("*.safetensors"))) == 2
    ranker = Ranker.load(trained("poly"))
    index = ranker.open_index(tmp_path / "both")
    texts = file.read_text().splitlines()
    assert list(index.texts()) == texts
    for places in (range(20), range(80, 100)):  # of both shards, as one process encodes them
        alone = ranker.encode_candidates([texts[place] for place in places])
        torch.testing.assert_close(index.rows(places), alone, rtol=0.01, atol=0.01 * float(alone.abs().max()))


@pytest.mark.release
def test_the_benchmark_measures_and_reports(trained, file, tmp_path, capsys):
    """Small: every part but sentence-transformers', whose import alone takes seconds. Ours and ParlAI's scores are
    compared within."""
    (tmp_path / "contexts.txt").write_text("i would like tea\nhello\n")
    flags = ("-mf", trained("poly"), "--candidates-file", file, "--contexts-file", tmp_path / "contexts.txt")
    more = ("--index-dir", tmp_path / "index", "--out", tmp_path / "out", "--rounds", 1, "--sizes", "12,20")
    own("bench_inference", *flags, *more, "--parts", "scoring,encoding,index")
    out = capsys.readouterr().out
    assert "| 256 | poly 64, learnt codes | 20 |" in out and f"| exact | {len(REPLIES)} |" in out
    tables = json.loads((tmp_path / "out" / "inference.json").read_text())
    assert len(tables["scoring"]) == 2 * 2 * 7 and all(row["ours ms"] > 0 for row in tables["scoring"])
    assert all(row["fp32, of the peak"] > 0 for row in tables["encoding by length"])
    assert tables["index"][0]["equal to brute force"] == "2/2"
    assert (tmp_path / "out" / "scoring.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="there are scoring, reply"):
        own("bench_inference", *flags, "--parts", "speed")
    with pytest.raises(InputError, match="need --index-dir"):
        own("bench_inference", *flags)


@pytest.mark.slow
def test_candidates_with_ids_are_built_filtered_updated_and_removed(build, rank, trained, tmp_path, capsys):
    rows = [{"id": f"r{n}", "text": text, "colour": text.split()[2], "n": n} for n, text in enumerate(REPLIES)]
    file, more, gone = (tmp_path / name for name in ("faq.jsonl", "more.jsonl", "gone.txt"))
    file.write_text("\n".join(map(json.dumps, rows)))
    line = build("--fields", "colour,n:int", candidates=file)
    assert line["candidates"] == 12 and line["fields"] == {"colour": "text", "n": "int"}
    found = rank("--filter", '{"colour": ["red", "green"], "n": {"gt": 2}}')["candidates"]
    assert {one["id"]: one["text"] for one in found} == {f"r{n}": REPLIES[n] for n in (3, 8, 9, 10, 11)}
    assert rank("--filter", '{"colour": "pink"}')["candidates"] == []
    for given, message in (
        ('{"size": 1}', "'size', which is not a field"),
        ('{"n": "1"}', "whole number"),
        ("[", "JSON"),
        ('{"n": 1, "n": 2}', "it has 'n' twice"),
    ):
        with pytest.raises(InputError, match=message):
            rank("--filter", given)
    more.write_text(json.dumps({"id": "r3", "text": "i like tea", "colour": "pink"}))
    gone.write_text("r8\nr9\nnever\n")
    index = ("--index-dir", tmp_path / "index")
    own("index", "add", "-mf", trained("poly"), "--candidates-file", more, *index)
    own("index", "remove", "--candidates-file", gone, *index)
    assert "Not in the index: 1 of 3." in capsys.readouterr().err
    gone = tmp_path / "gone.jsonl"
    gone.write_text('{"id": "r10"}\n{"id": "r10"}\n')
    own("index", "remove", "--candidates-file", gone, *index)
    assert "were not in" not in capsys.readouterr().err
    for content, message in (("", "has no ids"), ('{"id": "r1", "id": "r2"}', "it has 'id' twice")):
        gone.write_text(content)
        with pytest.raises(InputError, match=message):
            own("index", "remove", "--candidates-file", gone, *index)
    left = {one["id"]: one["text"] for one in rank("--top-k", 20)["candidates"]}
    assert left == {f"r{n}": REPLIES[n] for n in range(12) if n not in (8, 9, 10)} | {"r3": "i like tea"}
    assert [one["id"] for one in rank("--filter", '{"colour": "pink"}')["candidates"]] == ["r3"]
    with pytest.raises(InputError, match="--fields is for polyagents index build"):
        own("build_index", "-mf", trained("poly"), "--candidates-file", more, *index, "--append", "--fields", "n:int")
    (tmp_path / "plain.txt").write_text("hello")
    for names in ("plain.txt", "replies.txt"):
        with pytest.raises(InputError, match="plain lines"):
            own("index", "add", "-mf", trained("poly"), "--candidates-file", tmp_path / names, *index)


def test_a_file_of_candidates_with_ids_is_ranked_without_an_index(trained, tmp_path, monkeypatch, capsys):
    (tmp_path / "faq.jsonl").write_text('{"id": "a", "text": "tea", "n": 1}\n{"id": "b", "text": "tea", "n": 2}')
    for kind in ("poly", "cross"):
        monkeypatch.setattr("sys.stdin", io.StringIO("i would like tea\n"))
        flags = ("-mf", trained(kind), "--candidates-file", tmp_path / "faq.jsonl", "--fields", "n:int")
        capsys.readouterr()
        own("rank", *flags, "--filter", '{"n": 2}')
        (found,) = json.loads(capsys.readouterr().out)["candidates"]
        assert (found["id"], found["index"], found["text"]) == ("b", 1, "tea")
