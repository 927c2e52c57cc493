"""Disk, memory, times and recall of indexes of several sizes, beside what `polyagents index plan` computes.

    OMP_NUM_THREADS=1 python -m polyagents.benchmarks.sizes --work DIR

Candidates are texts of 60 bytes with drawn vectors (filters.py) in bf16; contexts have one vector, as a bi-encoder's.
The time of a build is without encoding. Each index is opened and searched by a process of its own. What DIR has
of an earlier run is not measured again. At the end are the laws of times that fit the figures best, as they are written
in polyagents/index/plan.py.
"""

import itertools
import json
import multiprocessing
import os
import shutil
import statistics
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from torch import Tensor

from polyagents.arguments import CommandParser, positive_ints
from polyagents.benchmarks import filters
from polyagents.benchmarks.measure import limit_memory, resident
from polyagents.benchmarks.report import publish
from polyagents.console import say
from polyagents.files.atomic import write_text
from polyagents.files.json_files import read_json
from polyagents.index.builder import CandidateEncoder
from polyagents.index.faiss_index import INDEX_TYPES, build_shortlist, open_shortlist
from polyagents.index.plan import TEXT, Law, Plan
from polyagents.index.shard import row_bytes
from polyagents.index.store import CandidateStore

CONTEXTS, WARM = 60, 5
LARGEST_GRAPH = 400_000_000  # numbers, such as a million of width 384, in 16 minutes of one thread; others are computed
Row = dict[str, Any]
LAWS = ("start s", "build s", "ms")


def main() -> None:
    """Measure each size, print the tables, and write them to DIR/sizes.json."""
    parser = CommandParser("python -m polyagents.benchmarks.sizes", __doc__.split("\n")[0])
    parser.add_argument("--work", required=True, help="folder of indexes, which are removed, and of figures")
    parser.add_argument("--candidates", type=positive_ints, default=(100_000, 1_000_000), help="how many")
    parser.add_argument("--widths", type=positive_ints, default=(384, 768))
    opt = parser.parse_args()
    limit_memory()
    os.makedirs(opt.work, exist_ok=True)
    rows: list[Row] = []
    for width, count in itertools.product(opt.widths, opt.candidates):
        done = os.path.join(opt.work, f"{count}-{width}.json")
        if not os.path.exists(done):
            write_text(done, json.dumps({"rows": measured(opt.work, count, width)}, indent=1))
        rows += beside_the_plan(read_json(done)["rows"])
    laws = [fitted(rows, index_type, name) for index_type in INDEX_TYPES for name in LAWS]
    publish({"sizes": rows, "laws": laws}, os.path.join(opt.work, "sizes.json"))


class DrawnVectors:
    """Draws vectors in the place of an encoder, and counts the seconds that it takes for that."""

    def __init__(self, width: int):
        self.width, self.seconds = width, 0.0

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Draw a vector for each text."""
        begin = time.perf_counter()
        vectors = filters.encode(texts, self.width)
        self.seconds += time.perf_counter() - begin
        return vectors


def measured(work: str, count: int, width: int) -> list[Row]:
    """Build the candidates, and each kind of index over them; return a row of figures for each."""
    file, folder = os.path.join(work, "texts.txt"), os.path.join(work, f"{count}-{width}.index")
    with open(file, "w") as out:
        out.writelines(f"{number:0{len(TEXT)}d}\n" for number in range(count))
    draw, begin = DrawnVectors(width), time.perf_counter()
    store = CandidateStore.build(file, folder, CandidateEncoder("drawn", draw, "bf16"))
    stored = time.perf_counter() - begin - draw.seconds
    rows = []
    for index_type in INDEX_TYPES:
        if index_type == "hnsw" and count * width > LARGEST_GRAPH:
            continue
        begin, recall = time.perf_counter(), 1.0
        if index_type != "exact":
            asked = filters.together(filters.contexts(100, 1, width))
            recall = build_shortlist(store, index_type, asked).recall_at_10
        built = stored + time.perf_counter() - begin
        disk = sum(entry.stat().st_size for entry in os.scandir(folder)) / 1e6
        row = {"candidates": count, "width": width, "index": index_type, "by": "measured", "disk MB": disk}
        rows.append(row | in_own_process(folder, width) | {"build s": built, "recall@10": recall})
        say(f"{count:,} candidates of width {width}, {index_type}: {rows[-1]}")
    shutil.rmtree(folder)
    return rows


def beside_the_plan(measured: Sequence[Row]) -> list[Row]:
    """Return each row with a computed one after it."""
    rows = []
    for row in measured:
        each = row_bytes([TEXT], row["width"], "bf16")
        figures = Plan(row["candidates"], row["width"], row["index"], each).figures()
        rows += [row, row | {"by": "computed"} | {name: one for name, one in figures.items() if name in row}]
    return rows


def in_own_process(folder: str, width: int) -> Row:
    """Open and search an index in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=search, args=(folder, width, there), daemon=True)
    process.start()
    row: Row = here.recv()
    process.join()
    return row


def search(folder: str, width: int, done: Connection) -> None:
    """Send the seconds of opening, the MB of the process and of mapped files, and the ms a context."""
    asked = filters.contexts(CONTEXTS + WARM, 1, width)
    begin = time.perf_counter()
    store = CandidateStore.open(folder, "drawn")
    store.shortlist = open_shortlist(store)
    opened, times = time.perf_counter() - begin, []
    for query in asked:
        begin = time.perf_counter()
        store.search(query, 10)
        times.append((time.perf_counter() - begin) * 1e3)
    mapped = sum(os.path.getsize(shard.path) for shard in store.shards) / 1e6
    row = {"own MB": resident()["RssAnon"] * 2**20 / 1e6, "shared MB": mapped}
    done.send(row | {"start s": opened, "ms": statistics.median(times[WARM:])})


def fitted(rows: Sequence[Row], index_type: str, name: str) -> Row:
    """Fit a law to the measured figures of a kind of index, by least squares of logarithms."""
    some = [row for row in rows if row["by"] == "measured" and row["index"] == index_type]
    sizes = [[1.0, np.log(row["candidates"] / 1e6), np.log(row["width"] / 384)] for row in some]
    (constant, *powers), *_ = np.linalg.lstsq(np.array(sizes), np.log([row[name] for row in some]), rcond=None)
    law = Law(float(np.exp(constant)), *map(float, powers))
    worst = max(abs(law(row["candidates"], row["width"]) / row[name] - 1) for row in some)
    return {"index": index_type, "figure": name} | law._asdict() | {"off by at most": worst}


if __name__ == "__main__":
    main()
