"""The load that `polyagents serve` can answer, with and without ranking waiting requests together.

    python benchmarks/serving.py -mf M --candidates-file replies.txt --contexts-file contexts.txt

There are two servers in processes of their own: one ranks up to 32 waiting requests at once, the other one by one. Over
loopback, clients ask `POST /rank` again as soon as they have an answer. The servers are asked in turns, so that a busy
moment of the machine meets both. The clients share the machine, and are plain sockets so as to take little of it.
"""

import asyncio
import json
import multiprocessing
import statistics
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from parlai.core.params import ParlaiParser

from polyagents.benchmarks.measure import machine
from polyagents.files.context_lines import read_contexts
from polyagents.serving.http_server import address, listening, server_of
from polyagents.serving.limits import TOGETHER
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

UNLIMITED = 1_000_000_000  # requests and texts per minute: all clients of a measurement have one address
TURNS = 4


def serve(model_file: str, candidates_file: str, together: int, ready: Connection) -> None:
    """Run a server until it is killed.

    Args:
        candidates_file: one candidate per line.
        together: the largest number of requests that are ranked at once.
    """
    served = Sources(model_file, candidates_file).read()
    with listening("127.0.0.1", 0) as opened:
        opened.listen()
        ready.send(address(opened))
        app = create_app(served, per_minute=UNLIMITED, together=together, texts_per_minute=UNLIMITED)
        server_of(app).run(sockets=[opened])


async def client(url: str, bodies: list[bytes], times: list[float], sizes: list[int]) -> None:
    """Send one body after the other on one connection.

    Args:
        times: gets the milliseconds of each.
        sizes: gets the number of requests that were ranked together with each.
    """
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /rank HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: "
    for body in bodies:
        begin = time.perf_counter()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise RuntimeError(answer.decode())
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        content = await reader.readexactly(int(length.partition(b":")[2]))
        times.append((time.perf_counter() - begin) * 1e3)
        sizes.append(json.loads(content)["together"])
    writer.close()
    await writer.wait_closed()


@dataclass
class Measured:
    """The measurements of one server's clients, over all turns."""

    times: list[float] = field(default_factory=list)  # ms, one of each request
    sizes: list[int] = field(default_factory=list)  # requests ranked at once
    seconds: float = 0.0

    def row(self) -> str:
        """Return requests per second, p50 and p99 in ms, and the mean number ranked at once."""
        percent = statistics.quantiles(self.times, n=100)
        rate, size = len(self.times) / self.seconds, statistics.mean(self.sizes)
        return f"{rate:10.1f}  {percent[49]:7.1f}  {percent[98]:7.1f}  {size:7.1f}"


async def load(url: str, bodies: list[bytes], clients: int, measured: Measured) -> None:
    """Send all bodies once.

    Args:
        clients: how many are sent at a time.
    """
    begin = time.perf_counter()
    asking = (client(url, bodies[place::clients], measured.times, measured.sizes) for place in range(clients))
    await asyncio.gather(*asking)
    measured.seconds += time.perf_counter() - begin


def main() -> None:
    """Print a table."""
    parser = ParlaiParser(False, False, "Load on polyagents serve")
    parser.add_argument("-mf", "--model-file", required=True)
    parser.add_argument("--candidates-file", required=True)
    parser.add_argument("--contexts-file", required=True, help="as rank takes them")
    parser.add_argument("--clients", default="1,8,32", help="numbers of requests at a time")
    parser.add_argument("--requests", type=int, default=100, help="of each turn; there are four")
    opt = parser.parse_args()
    contexts = read_contexts(opt["contexts_file"])
    wanted = [contexts[place % len(contexts)] for place in range(opt["requests"])]
    bodies = [json.dumps({"context": context}).encode() for context in wanted]

    spawn, urls, processes = multiprocessing.get_context("spawn"), {}, []
    for name, together in (("together", TOGETHER), ("one by one", 1)):
        here, there = spawn.Pipe()
        arguments = (opt["model_file"], opt["candidates_file"], together, there)
        processes.append(spawn.Process(target=serve, args=arguments, daemon=True))
        processes[-1].start()
        urls[name] = here.recv()
    print(machine())
    print(f"{'clients':>7}  {'ranked':10}  {'requests/s':>10}  {'p50 ms':>7}  {'p99 ms':>7}  {'at once':>7}")
    for clients in map(int, opt["clients"].split(",")):
        found = {name: Measured() for name in urls}
        for _ in range(TURNS):
            for name, url in urls.items():
                asyncio.run(load(url, bodies, clients, found[name]))
        for name, measured in found.items():
            print(f"{clients:7}  {name:10}  {measured.row()}", flush=True)
    for process in processes:
        process.terminate()


if __name__ == "__main__":
    main()
