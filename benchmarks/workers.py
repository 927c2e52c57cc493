"""What a second process brings: `serve` with two threads, two processes on one socket, and two servers.

    OMP_NUM_THREADS=1 python -m polyagents.benchmarks.workers -mf M --contexts-file contexts.txt --work DIR

All map the same index folder, of random vectors (reloading.py), and are asked through HAProxy with deploy/haproxy.cfg.
Requests arrive at random times (load.py), the same for all set-ups. These take turns, so that a busy moment of the
machine meets all of them; those that are not asked are idle.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from typing import Any

from polyagents.arguments import positive_int, positive_ints
from polyagents.benchmarks.indexed import context_parser
from polyagents.benchmarks.load import Answer, Server, arrivals, figures, opened
from polyagents.benchmarks.reloading import prepared
from polyagents.benchmarks.replicas import Replica, haproxy, proxy_for, requests_of
from polyagents.benchmarks.report import publish

# `polyagents`, whose socket a second process shares, as a flag of `serve` would do it; killed with the first one.
SHARED = """
import ctypes, os
from polyagents import __main__
from polyagents.commands import serve

def shared(*where):
    opened = bound(*where)
    opened.listen()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 9)
    return opened

bound, serve.listening = serve.listening, shared
__main__.main()
"""
ALONE = ["-m", "polyagents"]
SETUPS = {  # servers, how each is started, threads of each process
    "one process, two threads": (1, ALONE, 2),
    "two processes on one socket, one thread each": (1, ["-c", SHARED], 1),
    "two servers, one thread each": (2, ALONE, 1),
}


def main() -> None:
    """Measure, print a table, and write it to DIR/workers.json."""
    parser = context_parser("workers", __doc__.split("\n")[0])
    parser.add_argument("--work", required=True, help="folder for the index, logs and figures")
    parser.add_argument("--rates", type=positive_ints, default=(10, 20, 30), help="requests a second, such as 10,20")
    parser.add_argument("--size", type=positive_int, default=200_000, help="candidates")
    parser.add_argument("--seconds", type=positive_int, default=10, help="of a turn")
    parser.add_argument("--turns", type=positive_int, default=4)
    opt = parser.parse_args()
    publish({"workers": measured(opt)}, os.path.join(opt.work, "workers.json"))


def measured(opt: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each rate and set-up."""
    opt.index_url, opt.index_dir = None, prepared(opt)[0]
    bodies, rows = requests_of(opt.contexts_file), []
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(serving(opt, name, *SETUPS[name])) for name in SETUPS]
        for server in servers:  # not counted: the first requests read the index
            asyncio.run(opened(server, bodies, [0.2 * number for number in range(20)]))
        for rate in opt.rates:
            found: list[list[Answer]] = [[] for _ in servers]
            for turn in range(opt.turns):
                for server, answers in zip(servers, found, strict=True):
                    answers += asyncio.run(opened(server, bodies, arrivals(rate, opt.seconds, turn)))
            for server, answers in zip(servers, found, strict=True):
                rows.append({"requests/s": rate, "set-up": server.name} | figures(answers))
    return rows


@contextlib.contextmanager
def serving(opt: argparse.Namespace, name: str, servers: int, program: list[str], threads: int) -> Iterator[Server]:
    """Start servers and a proxy in front of them, which end with the `with`."""
    token = secrets.token_hex(16)
    replicas = [Replica(opt, f"{name}-{number}", token) for number in range(servers)]
    try:
        for replica in replicas:
            replica.environment["OMP_NUM_THREADS"] = str(threads)
            replica.command[1:3] = program  # instead of ALONE
            replica.start()
        for replica in replicas:
            replica.wait()
        log = os.path.join(opt.work, f"{name}-proxy.log")
        # The configuration has two servers: one is both.
        with proxy_for(haproxy(), (replicas * 2)[:2], log) as proxy:
            time.sleep(3)  # its checks have found them ready
            yield Server(name, (), proxy.port, {"POLYAGENTS_TOKEN": token}, log)
    finally:
        for replica in replicas:
            replica.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
