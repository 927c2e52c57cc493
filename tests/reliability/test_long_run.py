"""A long life in minutes: an index that changes all the time, two servers of it, and processes that are killed.

One server lives from the first request to the last; the other one is killed now and then. Every answer names the
generation of the index that it is from, so each is compared with what a plain dict held then.

    LONG_RUN=1 python -m pytest tests/reliability/test_long_run.py -m release -rP
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import time
from pathlib import Path

import forks
import pytest
from commands import copy_model

from polyagents.benchmarks import replicas
from polyagents.benchmarks.clients import Clients
from polyagents.index.manifest import Manifest
from polyagents.index.store import CandidateStore

SHARE = float(os.environ.get("LONG_RUN", "1"))  # of the whole run
CHANGES, RELOADS, KILLS, REQUESTS = (max(int(count * SHARE), 2) for count in (10_000, 200, 20, 100_000))
EARLY = REQUESTS // 5  # after these requests the memory must not grow by more than 5 %
GROUPS, OF_GROUP, TOP_K = 100, 10, 100  # an answer may have all candidates of a group
CLIENTS = 2  # of the server that lives; the other one has one
PAUSE = 0.05  # seconds of that one after each answer: the first one matters
IDLE = 2.0  # seconds after which a connection is opened anew: a server closes one that nobody uses for 5
TOKEN = "operator"
STEPS = 16  # a change of a folder has about as many

# Runs a command that is killed just before its n-th change of a name in the folder, or opening of a file to write.
KILLED = (
    """
import os, signal, sys
left, folder = int(sys.argv.pop(1)), sys.argv[-1]
def hook(event, given):
    global left
    writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
    if (writes or event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir")) and str(given[0]).startswith(folder):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""
    + forks.COMMAND
)


class Truth:
    """What the index holds in each generation: by group, text by id. The group "" has all."""

    def __init__(self):
        self.now, self.generation, self.states = {}, 0, {}

    def note(self, generation, now):
        """The folder's manifest was written; what it holds is this, (group, text) by id."""
        state = {str(group): {} for group in range(GROUPS)} | {"": {}}
        for one, (group, text) in now.items():
            state[group][one] = state[""][one] = text
        self.now, self.generation, self.states[generation] = now, generation, state

    def of(self, generation, group):
        """What a generation holds, which may have been written this moment and not be noted yet."""
        deadline = time.monotonic() + 60
        while generation not in self.states and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.states[generation][group]


class Folder:
    """The index, changed by the command, which may be killed; `truth` has each of its generations."""

    def __init__(self, folder, model, draw):
        self.folder, self.model, self.draw, self.index = folder, model, draw, folder / "index"
        self.truth, self.next, self.killed = Truth(), 0, 0
        self.change("build", {self.new_id(): self.candidate(number) for number in range(GROUPS * OF_GROUP)})

    def new_id(self):
        """An id that nobody has had."""
        self.next += 1
        return f"id {self.next}"

    def candidate(self, group):
        """Group and text of a candidate; the text is another one each time."""
        return str(group % GROUPS), f"text {self.draw.random()}"

    def change(self, what, content, is_killed=False):
        """Build with, add, or remove candidates; after a kill, again."""
        file, own = self.folder / "candidates.jsonl", [] if what == "remove" else ["--model-file", self.model]
        own += ["--fields", "group"] if what == "build" else []
        flags = [*own, "--candidates-file", file, "--index-dir", self.index]
        rows = [{"id": one, "group": group, "text": text} for one, (group, text) in content.items()]
        file.write_text("\n".join(map(json.dumps, rows)))
        kept = {one: candidate for one, candidate in self.truth.now.items() if one not in content}
        after = kept if what == "remove" else kept | content
        if is_killed:
            ended = forks.run(KILLED, self.draw.randint(1, STEPS), "index", what, *flags)
            assert ended.returncode in (0, -9), ended.stderr
            self.killed += ended.returncode == -9
            self.note(after)
            if ended.returncode == 0:
                return
        ended = forks.run(forks.COMMAND, "index", what, *flags)
        assert ended.returncode == 0, ended.stderr
        self.note(after)
        assert self.truth.now == after

    def note(self, after):
        """Note what the folder holds, if its manifest was written."""
        manifest = Manifest.read(str(self.index))
        assert manifest is not None and manifest.generation - self.truth.generation in (0, 1)
        if manifest.generation > self.truth.generation:
            self.truth.note(manifest.generation, after)

    def batch(self, count, is_killed):
        """Remove, add and replace candidates, a third each, by two commands; one of them may be killed."""
        third, now = count // 3, sorted(self.truth.now)
        drawn = self.draw.sample(now, count - third)
        gone, replaced = drawn[:third], drawn[third:]
        names = [*replaced, *(self.new_id() for _ in gone)]
        first = self.draw.random() < 0.5
        self.change("remove", {one: self.truth.now[one] for one in gone}, is_killed and first)
        added = {one: self.candidate(self.draw.randrange(GROUPS)) for one in names}
        self.change("add", added, is_killed and not first)


class Server(replicas.Replica):
    """`polyagents serve` of the folder, which may be killed and started again.

    Attributes:
        is_away: it was killed, or has not been seen to answer yet.
        floor: the generation that it must have reached: its last reload was reported done, or it began later.
    """

    def __init__(self, folder, name):
        opt = argparse.Namespace(
            model_file=str(folder.model), index_url=None, index_dir=str(folder.index), work=str(folder.folder)
        )
        super().__init__(opt, name, TOKEN)
        self.command += ["--log-level", "warning"]
        self.environment |= {"OMP_NUM_THREADS": "1"}
        self.folder, self.is_away, self.floor = folder, True, 0
        self.start()

    def start(self):
        """Start, without waiting for it."""
        self.floor = self.folder.truth.generation
        super().start()

    def is_ready(self):
        """Whether it answers, after a start."""
        if self.is_away:
            assert self.process.poll() is None, self.said()
            self.is_away = not super().is_ready()
        return not self.is_away

    def kill(self):
        """Kill it."""
        self.is_away = True
        self.end(signal.SIGKILL)

    def said(self):
        """Its log."""
        return Path(self.log).read_text()

    def connection(self):
        """A connection, which is kept alive."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def reload(self):
        """Reload; all that the folder holds now must be served then."""
        generation = self.folder.truth.generation
        with contextlib.closing(self.connection()) as connection:
            status, answer, _ = sent(connection, "/admin/reload", {})
        assert status == 200, (answer, self.said())
        assert generation_of(answer["generation"]) == generation
        self.floor = generation

    def memory(self):
        """Its memory in MB: its own, without mapped files; and all of it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return tuple(int(status.split(f"{name}:")[1].split()[0]) / 1e3 for name in ("RssAnon", "VmRSS"))


def sent(connection, path, body):
    """Status, content and headers of an answer."""
    connection.request("POST", path, json.dumps(body), replicas.headers(TOKEN))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()), answer.headers


def generation_of(name):
    """The number in the name of a generation."""
    return int(name.partition("-")[0])


class Asking(Clients):
    """Clients that rank on connections that are kept, and check every answer.

    Attributes:
        wrong: what was wrong; all threads end then.
        broken: how many requests a killed server has not answered.
    """

    def __init__(self, servers):
        self.wrong, self.broken = [], 0
        asked = [servers[0]] * CLIENTS + [servers[1]]
        self.counts = [0] * len(asked)
        super().__init__(self.work, enumerate(asked))

    def work(self, number, server):
        """Ask until the end."""
        draw, connection, life, used = random.Random(number), server.connection(), server.process, time.monotonic()
        while not self.over.is_set() and not self.wrong:
            if server.is_away:
                time.sleep(0.2)
                continue
            if server.process is not life or time.monotonic() - used > IDLE:
                connection.close()
            life, used = server.process, time.monotonic()
            try:
                self.ask(draw, connection, server)
                self.counts[number] += 1
                self.over.wait(0 if number < CLIENTS else PAUSE)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self.broken += 1
                if server.process is life and not server.is_away:
                    self.wrong.append((repr(error), server.log, time.monotonic() - used))
            except Exception as error:
                self.wrong.append(repr(error))
        connection.close()

    def ask(self, draw, connection, server):
        """Ask once, mostly for all of a group, and compare."""
        group = draw.choice(["", *map(str, range(GROUPS))])
        context = " ".join(f"word{draw.randrange(10**6)}" for _ in range(draw.randrange(1, 30)))
        body = {"context": context, "top_k": TOP_K} | ({"filter": {"group": group}} if group else {})
        floor = server.floor
        status, answer, headers = sent(connection, "/rank", body)
        if status != 200:
            self.wrong.append((status, answer))
            return
        generation = generation_of(headers["Polyagents-Generation"])
        found = {match["id"]: match["text"] for match in answer["matches"]}
        held = server.folder.truth.of(generation, group)
        if generation < floor or len(found) != min(TOP_K, len(held)) or not found.items() <= held.items():
            self.wrong.append((generation, floor, found, held))

    @property
    def count(self):
        """Requests that the server that lives has answered."""
        return sum(self.counts[:CLIENTS])


def held(index):
    """All that a folder holds: text by id."""
    store = CandidateStore.open(str(index), None)
    places = sorted({*range(store.slots)} - {*store.deleted.tolist()})
    return dict(zip(store.ids_of(places), store.texts_of(places), strict=True))


@pytest.mark.release
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_changes_reloads_kills_and_requests(trained, tmp_path):
    draw, begin = random.Random(0), time.monotonic()
    folder = Folder(tmp_path, copy_model(trained("bi"), tmp_path / "bi"), draw)
    servers, kills, memory = [Server(folder, name) for name in ("lives", "dies")], 0, []
    lives, dies = servers
    try:
        for server in servers:
            server.wait()
        with Asking(servers) as clients:
            for number in range(1, RELOADS + 1):
                folder.batch(CHANGES // RELOADS, is_killed=folder.killed < KILLS / 2 * number / RELOADS)
                if dies.is_ready() and kills < KILLS / 2 * number / RELOADS:
                    dies.kill()
                    dies.start()
                    kills += 1
                for server in servers:
                    if server.is_ready():
                        server.reload()
                while clients.count < REQUESTS * number / RELOADS and not clients.wrong:
                    time.sleep(0.01)
                assert not clients.wrong
                memory.append((clients.count, *lives.memory()))
                if number % max(RELOADS // 20, 1) == 0:
                    seen = "after {:,} requests {:.1f} MB of its own, {:.1f} in all".format(*memory[-1])
                    print(f"{time.monotonic() - begin:.0f} s, {number} reloads: {seen}", flush=True)
        assert not clients.wrong
    finally:
        for server in servers:
            server.kill()
    print(f"killed: {folder.killed} writers, {kills} servers; generations: {folder.truth.generation}")
    print(f"answers of the server that dies: {clients.counts[-1]:,}; unanswered by it: {clients.broken}")
    assert held(folder.index) == folder.truth.states[folder.truth.generation][""]
    assert not [one for one in os.listdir(folder.index) if one.endswith(".tmp")]
    assert "Traceback" not in lives.said() + dies.said()
    early = next(sample for sample in memory if sample[0] >= EARLY)
    assert memory[-1][1] <= 1.05 * early[1]
