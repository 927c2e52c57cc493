"""Exact and approximate searches with filters of several shares, beside the same searches without.

Vectors are drawn: normal in 64 dimensions, mapped to the width, with a tenth of noise, of length 1; contexts likewise,
with their vectors near one another. A candidate has a number from 0 to 999 and a tenant, one of a thousand, evenly.
"""

import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from polyagents.arguments import CommandParser, positive_int
from polyagents.benchmarks.gpu.search import PolyScorer
from polyagents.benchmarks.measure import limit_memory, side_by_side
from polyagents.console import markdown
from polyagents.index import approximate, exact
from polyagents.index.builder import CandidateEncoder
from polyagents.index.faiss_index import build_shortlist
from polyagents.index.store import CandidateStore
from polyagents.models.formulas import ContextVectors
from polyagents.models.two_towers import Query, TwoTowers
from polyagents.timings import machine

FIELDS = {"tenant": "text", "number": "int"}
WIDTH, LATENT, NOISE, NEAR = 384, 64, 0.1, 0.3
SHARES = (0.001, 0.01, 0.03, 0.1, 0.2, 0.5, 1.0)
LARGE = 0.1  # shares up to which candidates are gathered, and from which on the graph is asked, whatever the default
TOP = 10
ALWAYS, NEVER = 2.0, 0.0  # shares below which candidates are gathered
GRAPH = 0  # instead of approximate.SCANNED: the graph is always asked
Row = dict[str, Any]


def vectors_of(latent: Tensor, width: int = WIDTH) -> Tensor:
    """Map [..., LATENT] to vectors of length 1, [..., width]."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.randn(LATENT, width, generator=generator) / LATENT**0.5
    noise = torch.randn(*latent.shape[:-1], width, generator=generator)
    return functional.normalize(latent @ spread + NOISE * noise, dim=-1)


def encode(texts: Sequence[str], width: int = WIDTH) -> Tensor:
    """Draw the vectors of a block of texts, which are numbers."""
    return vectors_of(torch.randn(len(texts), LATENT, generator=torch.Generator().manual_seed(int(texts[0]))), width)


def contexts(count: int, m: int, width: int = WIDTH) -> list[Query]:
    """Draw contexts of m vectors, one query each."""
    generator = torch.Generator().manual_seed(-1)
    centres = torch.randn(count, 1, LATENT, generator=generator)
    vectors = vectors_of(centres + NEAR * torch.randn(count, m, LATENT, generator=generator), width)
    scorer = cast(TwoTowers, PolyScorer())  # a search asks for its two methods only
    return [Query(scorer, ContextVectors(one[None], torch.ones(1, m).bool())) for one in vectors]


def together(asked: Sequence[Query]) -> Query:
    """Make one query of contexts with one vector each."""
    vectors = torch.cat([query.context.vectors for query in asked])
    return Query(asked[0].scorer, ContextVectors(vectors, torch.ones(len(asked), 1).bool()))


def built(folder: str, count: int) -> CandidateStore:
    """Build the store with its graph, or open the one that is there."""
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, f"{count}.jsonl")
    if not os.path.exists(file):
        drawn = np.random.default_rng(0).integers(0, 1_000, (count, 2)).tolist()
        with open(file, "w") as out:
            for number, (tenant, share) in enumerate(drawn):
                row = {"id": f"c{number}", "text": str(number), "tenant": f"t{tenant}", "number": share}
                out.write(f"{json.dumps(row)}\n")
    store = CandidateStore.build(file, file + ".index", CandidateEncoder("drawn", encode, "bf16"), fields=FIELDS)
    described = build_shortlist(store, "hnsw", together(contexts(100, 1)))
    print(f"HNSW without a filter: recall@1 {described.recall_at_1:.3f}, recall@10 {described.recall_at_10:.3f}\n")
    return store


def searched(store: CandidateStore, asked: Sequence[Query], share: float, few: float, scanned: int) -> np.ndarray:
    """Search for each context, with other values of exact.FEW and approximate.SCANNED."""
    exact.FEW, approximate.SCANNED = few, scanned
    given = {"tenant": "t1"} if share == SHARES[0] else {"number": {"lt": round(1_000 * share)}}
    where = None if share == 1.0 else store.filter(given)
    return np.concatenate([store.search(query, TOP, where)[0].indices for query in asked])


def measured(store: CandidateStore, asked: Sequence[Query], share: float, rounds: int) -> Row:
    """Measure milliseconds a context: with few gathered or all scanned, and by the graph."""
    shortlist, defaults = store.shortlist, (exact.FEW, approximate.SCANNED)
    row: Row = {"share": share}
    store.shortlist = None
    ways = {"scanned": NEVER, "exact": defaults[0]} | ({"gathered": ALWAYS} if share <= LARGE else {})
    calls = {name: functools.partial(searched, store, asked, share, few, GRAPH) for name, few in ways.items()}
    row |= side_by_side(calls, rounds)
    right = searched(store, asked, share, *defaults)
    store.shortlist = shortlist
    by_graph: dict[str, Callable[[], np.ndarray]] = {"hnsw": lambda: searched(store, asked, share, *defaults)}
    if share >= LARGE:
        by_graph["graph"] = lambda: searched(store, asked, share, defaults[0], GRAPH)
    row |= side_by_side(by_graph, rounds)
    row = {name: value / len(asked) if name != "share" else value for name, value in row.items()}
    for name, call in by_graph.items():
        row[f"{name} recall@10"] = float(np.mean([np.isin(*pair).mean() for pair in zip(right, call(), strict=True)]))
    exact.FEW, approximate.SCANNED = defaults
    return row


def main() -> None:
    """Measure, and print a table for each number of context vectors."""
    parser = CommandParser("python -m polyagents.benchmarks.filters", __doc__.split("\n")[0])
    parser.add_argument("--work", required=True, help="folder of the candidates and their index, which is kept")
    parser.add_argument("--candidates", type=positive_int, default=1_000_000, help="how many")
    parser.add_argument("--contexts", type=positive_int, default=10, help="how many contexts are asked")
    parser.add_argument("--rounds", type=positive_int, default=4, help="how often each search is timed")
    opt = parser.parse_args()
    limit_memory()
    store = built(opt.work, opt.candidates)
    print(machine(), end="\n\n")
    for m in (1, 16):
        asked = contexts(opt.contexts, m)
        print(f"Contexts of {m} vectors, ms a context:\n")
        print(markdown([measured(store, asked, share, opt.rounds) for share in SHARES]), end="\n\n")


if __name__ == "__main__":
    main()
