"""What other requests notice of a reload of `polyagents serve`: their p50 and p99 with and without one.

    OMP_NUM_THREADS=1 python -m polyagents.benchmarks.reloading -mf M --contexts-file contexts.txt --work DIR

The candidates are random vectors, as wide as the model's, in two folders of equal content; nothing is encoded.
A link leads to one of the folders, and for each reload to the other one, so that a reload maps, checks and reads files
that the server has not open. The server is a process of its own. Clients ask `POST /rank` of it again as soon as they
have an answer; they share the machine. A request counts as one during a reload if it was under way at any moment from
the order to reload to a second after the switch, in which the old generation is released. The others came in the
pauses between two reloads, which are as long.
"""

import argparse
import contextlib
import http.client
import itertools
import multiprocessing
import os
import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch

from polyagents import Ranker
from polyagents.arguments import positive_int
from polyagents.benchmarks.clients import Clients
from polyagents.benchmarks.indexed import context_parser
from polyagents.benchmarks.replicas import requests_of
from polyagents.benchmarks.report import publish
from polyagents.benchmarks.serving import UNLIMITED
from polyagents.console import say
from polyagents.index.builder import CandidateEncoder
from polyagents.index.store import CandidateStore
from polyagents.ranking.two_tower_model import two_towers
from polyagents.serving.http_server import address, listening, server_of
from polyagents.serving.observing import METRICS
from polyagents.serving.ranking_app import create_app
from polyagents.serving.reloading import Reloader, freeze, on_hangup
from polyagents.serving.sources import Sources

AFTER = 1.0  # seconds after the switch that count as part of the reload
DONE = 'polyagents_reloads_total{result="done"} '
Span = tuple[float, float]


def main() -> None:
    """Measure, print a table, and write it to DIR/reloading.json."""
    parser = context_parser("reloading", __doc__.split("\n")[0])
    parser.add_argument("--work", required=True, help="folder for the indexes, which stay, and for figures")
    parser.add_argument("--size", type=positive_int, default=1_000_000, help="candidates")
    parser.add_argument("--clients", type=positive_int, default=2, help="requests at a time")
    parser.add_argument("--reloads", type=positive_int, default=10)
    opt = parser.parse_args()
    publish({"reloading": measured(opt)}, os.path.join(opt.work, "reloading.json"))


def measured(opt: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row of the requests during a reload, and one of the others."""
    folders = prepared(opt)
    link = os.path.join(opt.work, "served")
    lead(link, folders[0])
    bodies = requests_of(opt.contexts_file)
    reloads: list[Span] = []
    with serving(opt.model_file, link) as (process, url), asking(url, bodies, opt.clients) as spans:
        time.sleep(5)
        begun = time.perf_counter()
        pause = 5.0
        for number in range(1, opt.reloads + 1):
            time.sleep(pause)
            begin = time.perf_counter()
            lead(link, folders[number % 2])
            os.kill(process, signal.SIGHUP)
            while reloads_of(url) < number:
                time.sleep(0.25)  # to ask more often would be a load of its own
            reloads.append((begin, time.perf_counter() + AFTER))
            say(f"Reload {number} took {reloads[-1][1] - AFTER - begin:.1f} s.")
            time.sleep(AFTER)
            pause = reloads[-1][1] - begin
    kinds: dict[bool, list[float]] = {False: [], True: []}
    for begin, end in spans:
        if begin > begun:
            kinds[any(begin < stop and end > start for start, stop in reloads)].append((end - begin) * 1e3)
    rows: list[dict[str, Any]] = []
    for is_during, found in kinds.items():
        percent = statistics.quantiles(found, n=100, method="inclusive")
        row = {"meanwhile": "a reload" if is_during else "nothing", "requests": len(found)}
        rows.append(row | {"p50 ms": percent[49], "p99 ms": percent[98], "longest ms": max(found)})
    rows[1]["s a reload"] = statistics.median(end - begin - AFTER for begin, end in reloads)
    return rows


def prepared(opt: argparse.Namespace) -> list[str]:
    """Write random vectors, and a copy of the folder, unless they are there."""
    model = two_towers(Ranker.load(opt.model_file).model)
    width = model.encode_texts(["hi"]).size(1)
    draws = torch.Generator().manual_seed(0)

    def encode(texts: Any) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.randn(len(texts), width, generator=draws), dim=1)

    os.makedirs(opt.work, exist_ok=True)
    file, folders = os.path.join(opt.work, "texts.txt"), [os.path.join(opt.work, name) for name in ("a", "b")]
    with open(file, "w") as out:
        out.writelines(f"candidate {number}\n" for number in range(opt.size))
    CandidateStore.build(file, folders[0], CandidateEncoder(model.fingerprint(), encode, "bf16"))
    if not os.path.exists(folders[1]):
        shutil.copytree(folders[0], folders[1])
        CandidateStore.open(folders[1], model.fingerprint())  # its files are read whole, as after a build
    return folders


def lead(link: str, folder: str) -> None:
    """Let a link lead to a folder, in one step."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(f"{link}.new")
    os.symlink(os.path.abspath(folder), f"{link}.new")
    os.replace(f"{link}.new", link)


@contextlib.contextmanager
def serving(model_file: str, index_dir: str) -> Iterator[tuple[int, str]]:
    """Serve in a process of its own: its number and address."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=serve, args=(model_file, index_dir, there), daemon=True)
    process.start()
    try:
        yield process.pid or 0, here.recv()
    finally:
        process.terminate()


def serve(model_file: str, index_dir: str, ready: Connection) -> None:
    """Serve an index until the process is killed, as the command does."""
    reloader = Reloader(Sources(model_file, index_dir=index_dir))
    on_hangup(reloader.reload_soon)
    with listening("127.0.0.1", 0) as opened:
        app = create_app(reloader.sources.load(), per_minute=UNLIMITED, texts_per_minute=UNLIMITED, reloader=reloader)
        freeze()
        opened.listen()
        ready.send(address(opened))
        server_of(app).run(sockets=[opened])


@contextlib.contextmanager
def asking(url: str, bodies: list[bytes], clients: int) -> Iterator[list[Span]]:
    """Ask until the end of the `with`; the list has the begin and end of each request."""
    spans = list[Span]()

    def ask(first: int) -> None:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        for body in itertools.islice(itertools.cycle(bodies), first, None):
            if asked.over.is_set():
                return
            begin = time.perf_counter()
            connection.request("POST", "/rank", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status} instead of an answer")
            spans.append((begin, time.perf_counter()))

    asked = Clients(ask, ((number,) for number in range(clients)))
    with asked:
        yield spans


def reloads_of(url: str) -> int:
    """Return how many reloads a server has done."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.request("GET", METRICS)
    said = connection.getresponse().read().decode()
    connection.close()
    return int(float(said.partition(DONE)[2].split()[0]))


if __name__ == "__main__":
    main()
