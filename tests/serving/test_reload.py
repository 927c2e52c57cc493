"""Another generation takes the place of what is served, between two requests, or is refused."""

import asyncio
import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import engines
import httpx2
import postgres
import pytest
from commands import train_more
from prometheus_client.parser import text_string_to_metric_families
from stand import HERE, REPLIES, Stand
from starlette.testclient import TestClient

from polyagents import Match, Ranker
from polyagents.errors import InputError
from polyagents.serving import reloading
from polyagents.serving.ranking_app import create_app
from polyagents.serving.reloading import Reloader, on_hangup
from polyagents.serving.served import Served
from polyagents.serving.sources import Sources, alias_of, stamp_of

OPERATOR = {"Authorization": "Bearer operator", "Content-Type": "application/json"}


class Named(Stand):
    """A generation that gives its name as every reply, and says when it begins; it waits for `go_on`."""

    def __init__(self, generation):
        super().__init__(self.named)
        self.generation, self.begun, self.go_on = generation, threading.Event(), threading.Event()
        self.go_on.set()

    def named(self, contexts, candidates, top_k):
        self.begun.set()
        assert self.go_on.wait(30)
        return [([Match(place, text, 1.0) for place, text in enumerate(candidates or [self.generation])], True)] * len(
            contexts
        )


class Prepared(Sources):
    """Instead of files: the generations to load, one after the other, or errors."""

    def __new__(cls, *found):
        sources = object.__new__(cls)
        object.__setattr__(sources, "found", list(found))
        return sources

    def __init__(self, *found):
        pass

    def load_after(self, old):
        found = self.found.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def stamps(self):
        return {}


def figures(client):
    """Every sample of /metrics without labels, or with one: name or (name, label) -> value."""
    families = text_string_to_metric_families(client.get("/metrics", headers=OPERATOR).text)
    samples = [one for family in families for one in family.samples if one.name.startswith("polyagents_")]
    return {(one.name, *one.labels.values()) if one.labels else one.name: one.value for one in samples}


@contextlib.contextmanager
def serving(served, *found):
    """A client of a server that serves other generations when it is asked to reload."""
    app = create_app(served, "operator\nsomebody", per_minute=10**6, reloader=Reloader(Prepared(*found)))
    with TestClient(app, HERE, headers=OPERATOR) as client:
        yield client


# ---- between two requests --------------------------------------------------------------------------------------------


def test_a_request_ends_on_the_generation_that_it_began_with_and_that_one_is_then_released():
    old, new = Named("old"), Named("new")
    old.go_on.clear()
    with serving(old, new) as client, ThreadPoolExecutor() as others:
        asked = others.submit(client.post, "/rank", json={"context": "hi"})
        assert old.begun.wait(30)
        waiting = others.submit(client.post, "/rank", json={"context": "hi"})
        while figures(client)["polyagents_waiting"] < 1:
            time.sleep(0.01)
        done = client.post("/admin/reload", json={})
        assert done.status_code == 200 and done.json()["generation"] == "new"
        assert not old.is_closed and figures(client)["polyagents_generations"] == 2
        later = others.submit(client.post, "/rank", json={"context": "hi"})
        old.go_on.set()
        answers = [one.result() for one in (asked, waiting, later)]
        while not old.is_closed:
            time.sleep(0.01)
        assert figures(client)["polyagents_generations"] == 1 and not new.is_closed
    said = [(answer.json()["matches"][0]["text"], answer.headers["polyagents-generation"]) for answer in answers]
    assert said == [("old", "old"), ("old", "old"), ("new", "new")]


@pytest.mark.slow
def test_no_answer_mixes_two_generations_however_often_these_change():
    """A decision asks the model twice: for its own options, and for the server's candidates."""
    names = [str(number) for number in range(1, 30)]
    question = {"q": {"type": "choice", "criteria": {"@replies.txt": None}}}
    body = {"state": "hi", "questions": question | {"own": {"type": "choice", "criteria": {"a": None, "b": None}}}}
    seen, ended = [], threading.Event()

    def ask(client):
        while not ended.is_set():
            answer = client.post("/v1/systemone", json=body)
            seen.append((answer.json()["answers"]["q"]["choice"], answer.headers["polyagents-generation"]))

    with serving(Named("0"), *map(Named, names)) as client, ThreadPoolExecutor() as others:
        asking = [others.submit(ask, client) for _ in range(4)]
        for name in names:
            assert client.post("/admin/reload", json={}).json()["generation"] == name
        ended.set()
        for one in asking:
            one.result()
        assert client.post("/rank", json={"context": "hi"}).json()["matches"][0]["text"] == names[-1]
    assert len({name for name, _ in seen}) > 3 and all(said == header for said, header in seen)


def test_a_refused_generation_changes_nothing_and_is_said(caplog):
    with serving(Named("old"), InputError("/secret/index is damaged."), RuntimeError("broken"), Named("new")) as client:
        for _ in range(2):
            refused = client.post("/admin/reload", json={})
            assert refused.status_code == 409 and "the old ones stay" in refused.json()["error"]
            assert "secret" not in refused.text
            assert client.post("/rank", json={"context": "hi"}).headers["polyagents-generation"] == "old"
        assert "/secret/index is damaged." in caplog.text and "RuntimeError: broken" in caplog.text
        assert client.get("/readyz").json() == {"status": "ready", "reload": "refused"}
        seen = figures(client)
        assert seen["polyagents_reload_refused"] == 1 and seen["polyagents_reloads_total", "refused"] == 2
        assert client.post("/admin/reload", json={}).status_code == 200
        seen = figures(client)
        assert seen["polyagents_reload_refused"] == 0 and seen["polyagents_reloads_total", "done"] == 1
        assert client.get("/readyz").json() == {"status": "ready", "reload": "current"}
        assert client.get("/healthz").json()["generation"] == "new"


@pytest.mark.parametrize(
    ("token", "given", "status"),
    [
        ("operator\nsomebody", "operator", 200),
        ("operator\nsomebody", "somebody", 403),
        ("operator\nsomebody", "wrong", 401),
        ("operator", "operator", 200),
        (None, "operator", 403),
    ],
)
def test_only_the_first_token_reloads(token, given, status):
    app = create_app(Named("old"), token, reloader=Reloader(Prepared(Named("new"))))
    with TestClient(app, HERE) as client:
        headers = {"Authorization": f"Bearer {given}", "Content-Type": "application/json"}
        assert client.post("/admin/reload", headers=headers).status_code == status
        assert client.get("/healthz").json()["generation"] == ("new" if status == 200 else "old")


def test_those_who_ask_while_one_loads_share_the_next():
    go_on = threading.Event()

    class Slow(Prepared):
        def load_after(self, old):
            assert go_on.wait(30)
            return super().load_after(old)

    async def ask():
        reloader = Reloader(Slow(*map(Named, "abc")))
        async with reloader.running(reloading.Generations(Named("old"))):
            first = reloader.reload()
            while not reloader.is_loading:
                await asyncio.sleep(0)
            others = {reloader.reload() for _ in range(5)}
            go_on.set()
            await asyncio.gather(first, *others)
            return len(others), reloader.generations.current.generation

    assert asyncio.run(ask()) == (1, "b")


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(model, replies, tmp_path):
    """A bi-encoder, `index`, its index, and `foreign`, that of a poly-encoder; both have six replies."""
    Ranker.load(model("poly")).index(replies, tmp_path / "foreign")
    Ranker.load(file := model("bi")).index(replies, tmp_path / "index")
    shutil.copytree(tmp_path / "foreign", tmp_path / "theirs")
    return Path(file), tmp_path / "index"


def add(file, index):
    ranker = Ranker.load(file)
    ranker.append(ranker.open_index(index), ["a new reply"])


def save_trained_more(file, index):
    train_more(ranker := Ranker.load(file))
    ranker.save(file)


def damage(file, index):
    (shard,) = index.glob("*.safetensors")
    content = bytearray(shard.read_bytes())
    content[-8] ^= 1
    os.remove(shard)
    shard.write_bytes(content)


def replace_by_foreign(file, index):
    shutil.rmtree(index)
    shutil.copytree(index.parent / "foreign", index)


def lose(file, index):
    (index / "manifest.json").unlink()


def damage_model(file, index):
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (add, None),
        (save_trained_more, "was encoded by another model"),
        (damage, "was changed or damaged after it was written"),
        (replace_by_foreign, "was encoded by another model"),
        (lose, "holds no finished candidate index"),
        (damage_model, "damaged"),
    ],
)
def test_files_are_read_again_or_refused(folder, change, said, caplog):
    file, index = folder
    sources = Sources(str(file), index_dir=str(index))
    served = sources.load()
    before = served.trace
    with TestClient(create_app(served, "operator", reloader=Reloader(sources)), HERE, headers=OPERATOR) as client:
        change(file, index)
        answer = client.post("/admin/reload", json={})
        assert answer.status_code == (409 if said else 200), caplog.text
        assert (said or "") in caplog.text
        now = client.get("/healthz").json()
        ranked = client.post("/rank", json={"context": "hi", "top_k": 10}).json()
        assert ranked["candidates"]["size"] == len(ranked["matches"]) == (6 if said else 7)
        if said:
            assert now == {"status": "ok", **before}
            with pytest.raises(InputError, match=said):  # at a start as well
                sources.load()
        else:
            assert (now["fingerprint"], now["generation"]) == (before["fingerprint"], now["generation"])
            assert before["generation"].startswith("1-") and now["generation"].startswith("2-")


def test_what_loads_but_does_not_rank_is_not_served(folder, monkeypatch):
    file, index = folder

    def rank(self, *_):
        raise InputError("OpenVINO cannot compute with it.")

    monkeypatch.setattr(Served, "rank", rank)
    with pytest.raises(InputError, match="cannot compute"):
        Sources(str(file), index_dir=str(index)).load()


@pytest.fixture
def no_collector():
    """Garbage in circles stays; the garbage collector would stop every request."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
def test_an_old_generation_leaves_the_memory(folder, no_collector):
    file, index = folder
    sources = Sources(str(file), index_dir=str(index))
    served = sources.load()
    parts = [weakref.ref(served), weakref.ref(served.candidates), weakref.ref(served.ranker.model.module)]
    app = create_app(served, "operator", reloader=Reloader(sources))
    del served
    with TestClient(app, HERE, headers=OPERATOR) as client:
        client.post("/rank", json={"context": "hi"})
        assert client.post("/admin/reload", json={}).status_code == 200
        for _ in range(200):
            if all(part() is None for part in parts):
                break
            time.sleep(0.01)
        assert [part() for part in parts] == [None] * 3


@pytest.mark.slow
def test_a_generation_without_its_approximate_index_does_not_follow_one_that_has_it(folder):
    file, index = folder
    ranker = Ranker.load(file)
    ranker.approximate(ranker.open_index(index), "hnsw")
    sources = Sources(str(file), index_dir=str(index))
    served = sources.load()
    add(file, index)
    with pytest.raises(InputError, match="run polyagents index add with --index-type"):
        sources.load_after(served)
    ranker.approximate(ranker.open_index(index), "hnsw")
    assert sources.load_after(served).size == 7


def test_files_that_change_while_they_are_read_are_refused(folder, monkeypatch):
    file, index = folder
    sources = Sources(str(file), index_dir=str(index))
    served = sources.load()
    loaded = Sources.load

    def load(self):
        found = loaded(self)
        add(file, index)
        return found

    monkeypatch.setattr(Sources, "load", load)
    with pytest.raises(InputError, match="changed while they were read"):
        sources.load_after(served)


@pytest.mark.slow
@pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing() or "")
def test_an_alias_of_an_engine_is_followed_once_its_model_is_there(model, tmp_path):
    """Candidates are seen at once; another model's collection, only with that model."""
    file = str(model("bi"))
    with engines.running("pgvector", tmp_path) as address:
        url = address.format(name="replies")
        Ranker.load(file).index_in_engine(REPLIES, url)
        sources = Sources(file, index_url=url)
        served = sources.load()
        before = sources.stamps() | alias_of(served)
        with TestClient(create_app(served, "operator", reloader=Reloader(sources)), HERE, headers=OPERATOR) as client:

            def trace():
                found = client.get("/healthz").json()
                size = len(client.post("/rank", json={"context": "hi"}).json()["matches"])
                return found["fingerprint"], found["generation"], size

            first = trace()
            ranker = Ranker.load(file)
            ranker.append(ranker.open_engine(url), ["a new reply"])
            assert trace() == (first[0], "live", 7) and sources.stamps() | alias_of(served) == before
            train_more(ranker)
            ranker.index_in_engine(REPLIES[:3], url)  # the alias leads to the new model's candidates now
            assert sources.stamps() | alias_of(served) != before == served.stamps
            assert client.post("/admin/reload", json={}).status_code == 409 and trace() == (first[0], "live", 7)
            ranker.save(file)
            assert client.post("/admin/reload", json={}).status_code == 200
            (fingerprint, generation, size) = trace()
            assert (generation, size) == ("live", 3) and fingerprint != first[0]


OF_MODEL = ["", ".opt", ".dict", ".calibration.json", ".onnx/manifest.json"]


@pytest.mark.parametrize("part", [*OF_MODEL, "candidates", "index", "second"])
def test_every_file_that_is_read_is_watched(folder, part):
    file, index = folder
    of_candidates = {"index": {"index_dir": str(index)}}.get(part, {"candidates_file": f"{file}.txt"})
    others = {"candidates": Path(f"{file}.txt"), "index": index / "manifest.json", "second": Path(f"{file}-2")}
    path = others.get(part, Path(f"{file}{part}"))
    sources = Sources(str(file), **of_candidates, backend="onnx", rerank=f"{file}-2")
    path.parent.mkdir(exist_ok=True)
    before = sources.stamps()
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b" ")
    assert sources.stamps() != before


def test_a_link_to_another_file_is_a_change(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("same")
        os.utime(tmp_path / name, (1, 1))
    link = tmp_path / "link"
    link.symlink_to("a")
    before = stamp_of(str(link))
    link.unlink()
    link.symlink_to("b")
    assert before is not None and stamp_of(str(link)) not in (before, None)
    assert stamp_of(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("looks", "loads"),
    [
        ("aaaa", ""),
        ("bbbb", "b"),  # and not again
        ("bcdefg", "g"),  # once nobody writes any more
        ("bbcc", "bc"),
        ("bbaa", "ba"),
        ("xxxx", "x"),  # is refused
        ("xxxaa", "x"),
        ("xxxbb", "xb"),
    ],
)
def test_what_has_changed_is_loaded_once_nobody_writes(looks, loads, monkeypatch):
    """Each letter is what a look at the files sees; the last one stays. Nothing changes during a load."""
    monkeypatch.setattr(reloading, "WATCH_SECONDS", 0)
    to_come, loaded = list(looks), []

    class Watched(Prepared):
        seen = "a"

        def stamps(self):
            if to_come and not reloader.is_loading:
                Watched.seen = to_come.pop(0)
            return {"file": Watched.seen}

        def load_after(self, old):
            loaded.append(Watched.seen)
            if Watched.seen == "x":
                raise InputError("damaged")
            found = Named(Watched.seen)
            found.stamps = self.stamps()
            return found

    reloader, old = Reloader(Watched()), Named("a")
    old.stamps = {"file": "a"}

    async def watch():
        async with reloader.running(reloading.Generations(old)):
            for _ in range(100):
                await asyncio.sleep(0.001)

    asyncio.run(watch())
    assert "".join(loaded) == loads
    assert reloader.state == ("refused" if looks.endswith("x") else "current")


def test_a_look_during_a_load_does_not_ask_for_another(monkeypatch):
    monkeypatch.setattr(reloading, "WATCH_SECONDS", 0)
    looks, loaded = [], []

    class Slow(Prepared):
        def stamps(self):
            looks.append("b")
            return {"file": "b"}

        def load_after(self, old):
            loaded.append("b")
            time.sleep(0.2)
            found = Named("b")
            found.stamps = {"file": "b"}
            return found

    async def watch():
        reloader, old = Reloader(Slow()), Named("a")
        old.stamps = {"file": "a"}
        reloader._thread = Unqueued()
        async with reloader.running(reloading.Generations(old)):
            await reloader.reload()
            for _ in range(20):
                await asyncio.sleep(0.001)

    asyncio.run(watch())
    assert loaded == ["b"] and len(looks) > 5


class Unqueued:
    """Instead of a worker thread: calls do not wait for each other."""

    def do(self, call, *args):
        return asyncio.get_running_loop().run_in_executor(None, call, *args)

    def end(self):
        pass


# ---- the process -----------------------------------------------------------------------------------------------------


def test_a_hangup_reloads_and_the_end_of_the_terminal_ends(monkeypatch):
    happened, before = [], signal.getsignal(signal.SIGHUP)
    terminal = {"is there": True}
    monkeypatch.setattr(reloading, "has_terminal", lambda: terminal["is there"])
    monkeypatch.setattr(signal, "raise_signal", happened.append)
    try:
        for usual in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGHUP, usual)
            terminal["is there"] = True
            on_hangup(lambda: happened.append("reload"))
            for there in (True, False):
                terminal["is there"] = there
                os.kill(os.getpid(), signal.SIGHUP)
        terminal["is there"] = False  # as in a container
        on_hangup(lambda: happened.append("reload"))
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert happened == ["reload", signal.SIGTERM, "reload", "reload"]


@pytest.mark.slow
def test_a_process_serves_what_was_added_beside_it_on_a_hangup_and_by_itself(folder):
    file, index = folder
    command = [Path(sys.executable).with_name("polyagents"), "serve", "-mf", file, "--index-dir", index, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        url = next(line for line in process.stderr if "http://" in line).partition("http://")[2].partition("/ ")[0]

        def generation():
            return httpx2.get(f"http://{url}/healthz", timeout=60).json()["generation"]

        try:
            assert generation().startswith("1-")
            add(file, index)
            process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 60
            while generation().startswith("1-") and time.monotonic() < deadline:
                time.sleep(0.05)
            assert generation().startswith("2-")
            ranker = Ranker.load(file)
            ranker.open_index(index).remove(["bye"])
            while generation().startswith("2-") and time.monotonic() < deadline:
                time.sleep(0.05)
            assert generation().startswith("3-")
            body = json.dumps({"context": "hi", "top_k": 100})
            answer = httpx2.post(f"http://{url}/rank", content=body, headers={"Content-Type": "application/json"})
        finally:
            process.send_signal(signal.SIGINT)
        process.stderr.read()
    found = [match["text"] for match in answer.json()["matches"]]
    assert sorted(found) == sorted({*REPLIES, "a new reply"} - {"bye"}) and process.returncode == 0
