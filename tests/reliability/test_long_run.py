"""A server over an index that changes all the time: thousands of changes, reloads and requests, and processes killed.

LONG_RUN=1 python -m pytest tests/reliability/test_long_run.py -m slow -rP
"""

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commands import copy_model

from polyagents.benchmarks.ports import free_port
from polyagents.commands import index as index_command
from polyagents.index.store import CandidateStore

SHARE = float(os.environ.get("LONG_RUN", "1"))  # of the whole run
CHANGES, RELOADS, KILLS, REQUESTS = (max(int(count * SHARE), 2) for count in (10_000, 200, 20, 100_000))
CANDIDATES = 96  # an answer may have 100
CLIENTS = 3
TOKEN = "a-token-of-the-test"


class Truth:
    """What the folder holds after each change, texts by id, and which of these states the server has confirmed."""

    def __init__(self, first):
        self.states, self.confirmed = [first], 0

    def holds(self, match, since):
        """Whether a candidate of an answer, with its text, is one of the states from `since` on."""
        return any(state.get(match["id"]) == match["text"] for state in self.states[since:])


class Folder:
    """The index of a model, changed by commands in this process, and by others that are killed."""

    def __init__(self, folder, model, draw):
        self.folder, self.model, self.draw, self.index = folder, str(model), draw, folder / "index"
        self.next = 0
        self.first = {self.new_id(): f"text {number}" for number in range(CANDIDATES)}
        self.do("build", self.first)

    def new_id(self):
        self.next += 1
        return f"id {self.next}"

    def arguments(self, what, content):
        path = self.folder / f"{what}.{'txt' if what == 'remove' else 'jsonl'}"
        lines = content if what == "remove" else [json.dumps({"id": one, "text": content[one]}) for one in content]
        path.write_text("\n".join(lines) + "\n")
        model = [] if what == "remove" else ["--model-file", self.model]
        return [what, *model, "--candidates-file", str(path), "--index-dir", str(self.index)]

    def do(self, what, content):
        with contextlib.redirect_stdout(None):
            index_command.run(vars(index_command.parser().parse_args(self.arguments(what, content))))

    def do_killed(self, what, content, after):
        """Do it in a process that is killed, and then to the end."""
        arguments = self.arguments(what, content)
        process = subprocess.Popen([sys.executable, "-m", "polyagents", "index", *arguments], stdout=subprocess.DEVNULL)
        time.sleep(after)
        process.kill()
        process.wait()
        self.do(what, content)

    def changes(self, state, count):
        """Draw ids to remove, and candidates to replace or add; return both, and what the folder is to hold then."""
        gone = self.draw.sample(sorted(state), count // 3)
        kept = {one: text for one, text in state.items() if one not in gone}
        changed = {one: f"text {self.draw.random()}" for one in self.draw.sample(sorted(kept), count // 3)}
        changed |= {self.new_id(): f"text {self.draw.random()}" for _ in range(count // 3)}
        return gone, changed, kept | changed


class Server:
    """`polyagents serve` over the folder, which can be killed and started again."""

    def __init__(self, folder):
        self.port, self.log = free_port(), folder.folder / "server.log"
        self.command = [sys.executable, "-m", "polyagents", "serve", "-mf", folder.model, "--index-dir", folder.index]
        self.command += ["--port", self.port, "--requests-per-minute", 10**9, "--texts-per-minute", 10**9]
        self.command += ["--log-level", "warning"]

    def start(self):
        environment = {**os.environ, "POLYAGENTS_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*map(str, self.command)], stdout=log, stderr=log, env=environment)
        while True:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError):
                return self.ask("GET", "/readyz")
            time.sleep(0.1)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, method, path, **body):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            return sent(connection, method, path, body)

    def memory(self):
        """Return its own memory in MB, without mapped files."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) / 1e3


def sent(connection, method, path, body):
    """Return status and content of an answer."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if method == "POST" else None, headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


class Clients:
    """Threads that rank again and again, and check every answer; a killed server is asked again."""

    def __init__(self, server, truth):
        self.server, self.truth, self.wrong, self.over = server, truth, [], threading.Event()
        self.counts, self.down = [0] * CLIENTS, threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(CLIENTS)]

    @property
    def count(self):
        return sum(self.counts)

    def work(self, number):
        draw = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        while not self.over.is_set() and not self.wrong:
            since = self.truth.confirmed
            context = " ".join(f"word{draw.randrange(99)}" for _ in range(draw.randrange(1, 30)))
            try:
                status, answer = sent(connection, "POST", "/rank", {"context": context, "top_k": 5})
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not self.down.is_set():
                    self.wrong.append(repr(error))
                time.sleep(0.05)
                continue
            # Not older than what the server had confirmed before the request; it may be newer.
            if status != 200 or not all(self.truth.holds(match, since) for match in answer["matches"]):
                self.wrong.append((status, answer, since))
            self.counts[number] += 1
        connection.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_changes_reloads_kills_and_requests_without_end(trained, tmp_path):
    folder = Folder(tmp_path, copy_model(trained("bi"), tmp_path / "bi"), random.Random(0))
    truth, server, begin = Truth(folder.first), Server(folder), time.monotonic()
    server.start()
    early = RELOADS // 5  # servers are killed until then, and their memory is compared from then on
    servers_killed = {*range(1, early, max(2 * early // KILLS, 1))}
    writers_killed = {*range(0, RELOADS, max(2 * RELOADS // KILLS, 1))}
    memory = []
    with Clients(server, truth) as clients:
        for number in range(RELOADS):
            gone, changed, state = folder.changes(truth.states[-1], CHANGES // RELOADS)
            truth.states.append(state)  # before it is written: the server looks at the folder by itself, too
            folder.do("remove", gone)
            if number in writers_killed:
                folder.do_killed("add", changed, folder.draw.uniform(1, 6))
            else:
                folder.do("add", changed)
            if number in servers_killed:
                clients.down.set()
                server.kill()
                server.start()
                clients.down.clear()
            status, reloaded = server.ask("POST", "/admin/reload")
            assert status == 200, reloaded
            truth.confirmed += 1
            status, answer = server.ask("POST", "/rank", context="all", top_k=CANDIDATES)
            assert {match["id"]: match["text"] for match in answer["matches"]} == state
            while clients.count < REQUESTS * (number + 1) // RELOADS and not clients.wrong:
                time.sleep(0.01)
            assert clients.wrong == []
            if number >= early:
                memory.append(server.memory())
        clients.down.set()
        server.kill()
    store = CandidateStore.open(str(folder.index), None)
    assert len(store) == CANDIDATES == len(truth.states[-1])
    curve = ", ".join(f"{one:.1f}" for one in memory[:: max(len(memory) // 10, 1)])
    print(f"{clients.count:,} requests and {RELOADS} reloads in {time.monotonic() - begin:.0f} s")
    print(f"killed: {len(servers_killed)} servers, {len(writers_killed)} writers")
    print(f"memory in MB, from the first fifth on: {curve}, {memory[-1]:.1f}")
    assert memory[-1] <= 1.05 * memory[0]
