"""Candidates that a cluster encodes: what it writes is what one process writes, whatever becomes of its actors."""

import os
import pickle
import re
import socket
import sys
from pathlib import Path

import engines
import killing
import numpy as np
import postgres
import pytest
import torch
from commands import own

from polyagents import Ranker, ray_cluster
from polyagents.errors import InputError
from polyagents.faults import users_fault
from polyagents.index import builder
from polyagents.index.builder import BuildPart, CandidateEncoder, ShardWork
from polyagents.index.engines import candidates as engine_candidates
from polyagents.index.engines.urls import open_engine
from polyagents.index.texts import FileTexts

REPLIES = [
    f"i like {colour} {thing}" for colour in ("red", "blue", "green", "grey") for thing in ("cars", "tea", "fish")
]


class Pretended:
    """A cluster of one process, which sends what a real one sends, and has the parts come back in another order."""

    def __init__(self, model):
        self.model, self.parts = model, []

    def map(self, work, texts, parts):
        sent_work, sent_texts = pickle.loads(pickle.dumps((work, texts)))
        for part in reversed(parts):
            sent_work(self.model, sent_texts, part)
            self.parts.append(part)
            yield part


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("\n".join(["", *REPLIES, REPLIES[0]]), encoding="utf-8")
    return path


@pytest.fixture
def ranker(trained):
    return Ranker.load(trained("poly"))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(builder, "SHARD", 3)
    monkeypatch.setattr(engine_candidates, "SHARD", 3)
    monkeypatch.setattr(engine_candidates, "BLOCK", 2)


def content(folder):
    """The files of an index that hold candidates."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.safetensors"))}


@pytest.mark.parametrize("stored_as", ["bf16", "fp32", "int8"])
def test_a_cluster_writes_what_one_process_writes(stored_as, ranker, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths are sent whole: another process is elsewhere
    cluster = Pretended(ranker.model)
    store = ranker.index("replies.txt", "theirs", stored_as, cluster=cluster)
    ranker.index("replies.txt", "ours", stored_as)
    assert content("theirs") == content("ours") and len(content("ours")) == 4
    assert list(store.texts()) == REPLIES
    assert [part.start for part in cluster.parts] == [9, 6, 3, 0]


def test_what_is_there_is_not_handed_out_again(ranker, file, tmp_path):
    class Stopped(Pretended):
        def map(self, work, texts, parts):
            for place, part in enumerate(super().map(work, texts, parts)):
                if place == 2:
                    raise InputError("stopped")
                yield part

    with pytest.raises(InputError, match="stopped"):
        ranker.index(file, tmp_path / "index", cluster=Stopped(ranker.model))
    cluster = Pretended(ranker.model)
    assert list(ranker.index(file, tmp_path / "index", cluster=cluster).texts()) == REPLIES
    assert [part.start for part in cluster.parts] == [0]  # of four, three were there


def test_a_machine_with_another_model_is_refused(ranker, trained, file, tmp_path):
    other = Pretended(Ranker.load(trained("bi")).model)
    with pytest.raises(InputError, match="has another model under that name; give a --model-file that is the same"):
        ranker.index(file, tmp_path / "index", cluster=other)
    assert not content(tmp_path / "index")


def test_a_copy_of_the_file_serves_and_another_file_is_refused(file):
    sent = pickle.dumps(FileTexts(str(file)))
    os.utime(file, (1, 1))  # a copy
    there = pickle.loads(sent)
    assert there.part(1, 3) == REPLIES[1:3]
    os.utime(file, (2, 2))
    with pytest.raises(InputError, match="was changed while it was being encoded"):
        there.part(0, 1)
    file.write_text("of another length\n")
    with pytest.raises(InputError, match=r"has 18 bytes here and \d+ where the work was planned; share it, or copy it"):
        pickle.loads(sent)
    file.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        pickle.loads(sent)


def test_what_a_lost_machine_leaves_is_cleared(ranker, file, tmp_path):
    class Lost(Pretended):
        def map(self, work, texts, parts):
            (Path(work.folder) / f"{parts[0].name}.abcdef-4242-01234567.tmp").mkdir()
            yield from super().map(work, texts, parts)

    ranker.index(file, tmp_path / "index", cluster=Lost(ranker.model))
    assert len(content(tmp_path / "index")) == 4 and not list((tmp_path / "index").glob("*.tmp"))


def test_a_folder_that_is_not_shared_is_said(ranker, file, tmp_path, monkeypatch):
    class Elsewhere:
        def map(self, work, texts, parts):
            return iter(parts)

    monkeypatch.setattr(builder, "SEEN_AFTER", 0.0)
    with pytest.raises(InputError, match="is not visible here; give an --index-dir that all machines"):
        ranker.index(file, tmp_path / "index", cluster=Elsewhere())
    assert not (tmp_path / "index" / "manifest.json").exists()


@pytest.fixture(scope="module", params=["pgvector", pytest.param("milvus-server", marks=pytest.mark.release)])
def address(request, tmp_path_factory):
    """The URL of an engine that several processes may open."""
    socket = request.getfixturevalue("postgres_socket") if request.param == "pgvector" else None
    with engines.running(request.param, tmp_path_factory.mktemp("engine"), socket) as url:
        yield url


def test_a_cluster_fills_an_engine(address, ranker, trained):
    cluster = Pretended(ranker.model)
    url = address.format(name="filled")
    made = ranker.index_in_engine(REPLIES, url, cluster=cluster)
    assert len(made) == len(REPLIES) and [part.start for part in cluster.parts] == [9, 6, 3, 0]
    assert ranker.rank("i would like tea", made, 3) == ranker.rank("i would like tea", ranker.open_engine(url), 3)
    best, direct = (ranker.rank("i would like tea", where, 3) for where in (made, REPLIES))
    assert [match.text for match in best] == [match.text for match in direct]
    ranker.index_in_engine([*REPLIES, "one more"], url, cluster=cluster)
    assert len(made) == len(REPLIES) + 1
    other = Pretended(Ranker.load(trained("bi")).model)
    with pytest.raises(InputError, match="has another model under that name"):
        ranker.index_in_engine(REPLIES, address.format(name="other"), cluster=other)


def test_what_the_environment_says_of_an_engine_is_sent_along(postgres_socket, monkeypatch):
    """A machine of the cluster knows neither PGPASSWORD nor PGUSER; where the engine is shows neither."""
    url = postgres.new_database(postgres_socket).replace("?", "/sent?", 1)
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    monkeypatch.setenv("PGUSER", postgres.USER)
    monkeypatch.setenv("PGAPPNAME", "ours")
    engine = open_engine(url.replace(f"{postgres.USER}@", ""))
    sent = pickle.dumps(engine)
    for name in ("PGPASSWORD", "PGUSER", "PGAPPNAME"):
        monkeypatch.delenv(name)
    again = pickle.loads(sent)
    found = again.connection.info
    assert (found.password, found.user) == ("s3cret", postgres.USER) and again.name == engine.name
    assert found.get_parameters()["application_name"] == "ours"
    assert "s3cret" not in again.where


def test_a_folder_of_milvus_lite_is_refused(ranker, tmp_path):
    with pytest.raises(InputError, match="is open in one process at a time; give a cluster the URL of a server"):
        ranker.index_in_engine(REPLIES, f"milvus:{tmp_path}/c.db/replies", cluster=Pretended(ranker.model))


def test_flags_that_do_not_go_together(trained, file, tmp_path, ends_with_2, monkeypatch):
    command = ("build_index", "-mf", trained("poly"), "--candidates-file", file, "--index-dir", tmp_path, "--ray")
    assert "--ray is for polyagents index build" in ends_with_2(*command, "local", "--append")[-1]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "run it without torchrun" in ends_with_2(*command, "local")[-1]


def test_without_the_extra_it_says_what_to_install():
    said = users_fault(ModuleNotFoundError("No module named 'ray'", name="ray"))
    assert said == "This needs ray, which is not installed: pip install 'polyagents[ray]'"


# ---- Ray ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "ray://127.0.0.1:1",
            "--ray ray://127.0.0.1:1: Ray Data does not run through Ray's client; run this on",
        ),
        (
            "127.0.0.1:1",
            "No Ray cluster at 127.0.0.1:1 ([Errno 111] Connection refused); start one with",
        ),
        ("[::1]:1", "No Ray cluster at [::1]:1 ("),
        ("127.0.0.1:x", "No Ray cluster at 127.0.0.1:x (invalid literal"),
        ("127.0.0.1:99999", "No Ray cluster at 127.0.0.1:99999 ("),
    ],
)
def test_an_address_where_no_cluster_is(address, said, trained):
    with pytest.raises(InputError, match=re.escape(said)):
        ray_cluster.RayCluster(address, trained("poly"))


def raising(error):
    def work(model, texts, part):
        raise error

    return work


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ((raising(InputError("The disk is full.")), None), "The disk is full."),
        ((raising(RuntimeError("CUDA out of memory.\nAnd more")), None), "not enough memory (CUDA out of memory)"),
        (InputError("Candidates file F cannot be read."), "Candidates file F cannot be read."),
        (ModuleNotFoundError("no psycopg", name="psycopg"), "pip install 'polyagents[postgres]'"),
    ],
)
def test_an_actor_says_what_went_wrong_and_where(sent, said, trained, monkeypatch):
    def get(_):
        if isinstance(sent, Exception):
            raise sent
        return sent

    monkeypatch.setattr("ray.get", get)
    actor = ray_cluster.Actor([None], [BuildPart(0, 1)], trained("poly"), {})
    fault = actor({"place": 0})["fault"]
    assert fault.startswith(f"On {socket.gethostname()}: ") and said in fault and "\n" not in fault


class Answers:
    """As much of `ray` and `ray.data` as `map` asks; the rows come from a list, an error in it is raised."""

    def __init__(self, rows):
        self.rows = rows
        self.data = self.util = self.annotations = self.ActorPoolStrategy = self
        self.RayDeprecationWarning = DeprecationWarning

    def __call__(self, **options):
        return self

    def put(self, sent):
        pickle.dumps(sent)

    def from_items(self, items, override_num_blocks):
        return self

    def map(self, actor, **options):
        return self

    def cluster_resources(self):
        return {}

    def iter_rows(self):
        for row in self.rows:
            if isinstance(row, BaseException):
                raise row
            yield row


class Surprise(dict):
    """A row of a class of somebody's own."""

    def __getitem__(self, key):
        raise ZeroDivisionError

    get = __getitem__


def answer(place, fault=""):
    return {"place": place, "fault": fault}


GOOD = [answer(0), answer(1), answer(2)]
NOT_OURS = "no actor of polyagents gave"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (GOOD, None),
        (GOOD[::-1], None),
        ([answer(np.int64(place), np.str_("")) for place in (1, 0, 2)], None),
        ([{**row, "more": object()} for row in GOOD], None),
        ([], "ended without 3 of 3 parts; run the same command again"),
        (GOOD[:2], "ended without 1 of 3 parts"),
        ([*GOOD, answer(0)], NOT_OURS),
        ([GOOD[0], GOOD[0], GOOD[1]], NOT_OURS),
        *(([answer(place)], NOT_OURS) for place in (
            3, -1, 10**30, "0", b"0", None, True, 0.0, float("nan"), float("inf"), [0], (0,), {}, object(),
            np.float32(0), np.array(0), np.array([0]), np.array([]), np.datetime64(0, "s"), torch.tensor(0))),
        *(([answer(0, fault)], NOT_OURS) for fault in (None, 0, False, b"", b"x", ["x"], {}, float("nan"), object())),
        *(([row], NOT_OURS) for row in (
            None, ..., 0, "row", [], [0, ""], {}, {"place": 0}, {"fault": ""}, {0: ""}, (0, ""), np.array([0]),
            np.array({"place": 0}), Surprise(answer(0)), object())),
        ([answer(0, "On m: no.\nTraceback\n\x1b")], "^On m: no. Traceback"),
        ([answer(0, "x" * 10**6)], "^x{1000}$"),
        ([answer(99, "On m: full.")], "^On m: full"),
        *(([GOOD[0], error], "The Ray cluster gave up: ") for error in (
            ValueError("wrong"), TypeError(), KeyError("place"), EOFError(), pickle.UnpicklingError("no"),
            ConnectionResetError("reset"), TimeoutError(), RuntimeError("a\nb"), MemoryError(), RecursionError("deep"),
            ImportError("none"), StopAsyncIteration(), AssertionError("x" * 10**5))),
    ],
)  # fmt: skip
def test_answers_that_no_actor_gives_are_one_sentence(rows, said, monkeypatch):
    for module in ("ray", "ray.data", "ray.util", "ray.util.annotations"):
        monkeypatch.setitem(sys.modules, module, Answers(rows))
    cluster = object.__new__(ray_cluster.RayCluster)
    cluster.model_file, cluster.overrides = "M", {}
    parts, done = [BuildPart(place, place + 1) for place in range(3)], []
    if said is None:
        assert sorted(cluster.map(ShardWork("I", "m", "bf16"), None, parts)) == parts
        return
    with pytest.raises(InputError, match=said) as raised:
        done.extend(cluster.map(ShardWork("I", "m", "bf16"), None, parts))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 1_300


# ---- Ray itself ------------------------------------------------------------------------------------------------------


@pytest.mark.release
def test_an_actor_that_is_killed_costs_nothing(trained, ranker, file, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(killing.__file__).parent))  # Ray's own processes import the work
    begun = tmp_path / "begun"
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    theirs.mkdir()
    ranker.index(file, ours)
    encoder = CandidateEncoder.of(ranker.model)
    texts = FileTexts(str(file))
    parts = [
        BuildPart(start, start + 3, encoder.name(place, texts.keys[start : start + 3].tobytes()))
        for place, start in enumerate(range(0, len(texts), 3))
    ]
    work = killing.KilledOnce(str(theirs), encoder.model, encoder.stored_as, str(begun))
    with ray_cluster.RayCluster("local", trained("poly")) as cluster:
        done = list(cluster.map(work, texts, parts))
        assert sorted(done) == parts and content(theirs) == content(ours)
        tries = [line.split() for line in begun.read_text().splitlines()]
        assert len(tries) > len(parts) and len({process for process, _ in tries}) > 1  # another went on
        with pytest.raises(InputError, match=r"^On \S+: .* cannot be written"):
            list(cluster.map(ShardWork(str(tmp_path / "gone"), encoder.model, "bf16"), texts, parts[:1]))
        with pytest.raises(InputError, match=r"The Ray cluster gave up: .* dies 4 times .* too little memory"):
            list(cluster.map(killing.Deadly(str(theirs), encoder.model, "bf16"), texts, parts[:1]))


@pytest.mark.release
def test_the_command_builds_with_a_cluster(trained, file, tmp_path, capsys, ends_with_2):
    command = ("build_index", "-mf", trained("poly"), "--candidates-file", file, "--index-dir")
    own(*command, tmp_path / "ours")
    own(*command, tmp_path / "theirs", "--ray", "local")
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and content(tmp_path / "ours") == content(tmp_path / "theirs")
    said = ends_with_2(*command, tmp_path / "other", "--ray", "127.0.0.1:1")[-1]
    assert "No Ray cluster at 127.0.0.1:1" in said and "ray start --head" in said
