"""The procedure of docs/scale.md, "Rolling changes": two processes over one folder, HAProxy, and clients meanwhile."""

import argparse
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from commands import copy_model, train_more

from polyagents import Ranker
from polyagents.benchmarks import replicas
from polyagents.benchmarks.clients import Clients
from polyagents.errors import InputError

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes" / "folder.yaml"
VERSIONS = ("1", "2")
SMALL = {"context": "i like red", "top_k": 3}
LARGE = {**SMALL, "candidates": [f"{number} {'long ' * 390}" for number in range(100)]}  # HAProxy can't send it again


@pytest.fixture
def files(trained, tmp_path):
    """A folder of two versions, whose models and candidates differ; a candidate names its version."""
    files = tmp_path / "files"
    for version in VERSIONS:
        (files / version).mkdir(parents=True)
        texts = [f"version {version}, reply {number}" for number in range(300)]
        (files / version / "replies.txt").write_text("\n".join(texts))
        copy_model(trained("bi"), files / version / "M")
    train_more(ranker := Ranker.load(files / "2" / "M"))
    ranker.save(files / "2" / "M")
    return files


def publish(files, version):
    """Run the script of the Job in deploy/kubernetes/folder.yaml, on a folder of the test."""
    (job,) = (one for one in yaml.safe_load_all(FOLDER.read_text()) if one["kind"] == "Job")
    shell, how, script = job["spec"]["template"]["spec"]["containers"][0]["command"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = script.replace("/files/", f"{files}/")
    subprocess.run([shell, how, script], check=True, env={**os.environ, "VERSION": version, "PATH": path})


def ask(connection, token, body=SMALL):
    """Return an answer's status, its model and generation by its headers, and the version that its candidates name."""
    connection.request("POST", "/rank", json.dumps(body), replicas.headers(token))
    answer = connection.getresponse()
    content = json.loads(answer.read())
    if answer.status != 200:
        return answer.status, content, None, None
    if "candidates" in body:
        return 200, answer.headers["Polyagents-Fingerprint"], answer.headers["Polyagents-Generation"], None
    (version,) = {match["text"].split(",")[0] for match in content["matches"]}
    return 200, answer.headers["Polyagents-Fingerprint"], answer.headers["Polyagents-Generation"], version


def wait(is_so):
    """Wait until something is so."""
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Asking(Clients):
    """Clients that ask the proxy, each on one connection; one of them sends large requests."""

    def __init__(self, port, token, count=4):
        self.answers = []
        super().__init__(self.ask_on, ((port, token, body) for body in [LARGE] + [SMALL] * count))

    def ask_on(self, port, token, body):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            while not self.over.is_set():
                try:
                    self.answers.append(ask(connection, token, body))
                except Exception as error:  # a request without an answer is what the test is about
                    self.answers.append((type(error).__name__, str(error), None, None))
                    connection.close()


@pytest.mark.release
def test_new_versions_and_new_processes_lose_no_request_and_mix_no_answer(files, tmp_path):
    try:
        program = replicas.haproxy()
    except InputError as error:
        pytest.skip(str(error))
    publish(files, "1")
    current = files / "current"
    opt = argparse.Namespace(
        model_file=str(current / "M"), index_url=None, index_dir=str(current / "replies.index"), work=str(tmp_path)
    )
    with (
        replicas.two_replicas(opt, "replica") as servers,
        replicas.proxy_for(program, servers, str(tmp_path / "proxy.log")) as proxy,
        Asking(proxy.port, servers[0].token) as clients,
    ):

        def version_of(server):
            with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
                return ask(connection, server.token)[3]

        def wait_for(version):
            wait(lambda: {version_of(server) for server in servers} == {f"version {version}"})

        wait_for("1")
        publish(files, "2")  # candidates and a model
        wait_for("2")
        before = proxy.retries()
        for name, server in zip(("replica-1", "replica-2"), servers, strict=True):  # a program, or flags
            assert not proxy.command(f"set server replicas/{name} state drain")
            wait(lambda name=name: proxy.figure("haproxy_server_current_sessions", server=name) == 0)
            server.end(signal.SIGTERM)
            server.start()
            server.wait()
            assert not proxy.command(f"set server replicas/{name} state ready")
            wait(lambda name=name: proxy.figure("haproxy_server_status", server=name, state="UP"))
        assert proxy.retries() == before  # nobody was at a replica that ended
        publish(files, "1")  # back
        wait_for("1")
    assert [one for one in clients.answers if one[0] != 200] == []
    kinds = {one[1:] for one in clients.answers if one[3]}
    assert {one[1:3] for one in clients.answers} == {one[:2] for one in kinds}
    assert len(kinds) == 2 and {version for _, _, version in kinds} == {"version 1", "version 2"}
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in itertools.combinations(kinds, 2))
    assert len(clients.answers) > 100
