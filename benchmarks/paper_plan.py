"""The figures for the plan of docs/scale.md: compressed vectors that are re-scored, and waiting for the slowest shard.

    polyagents index build -mf M --candidates-file replies.txt --index-dir replies.index --index-type hnsw
    python -m polyagents.benchmarks.paper_plan -mf M --index-dir replies.index --contexts-file contexts.txt

For the first table, FAISS finds candidates by compressed vectors, as an engine does that cannot keep all of them in
memory; they are scored by the full ones, and the answer is compared with our exact search. For the second, the times of
single searches on this machine are measured, and the time of a search over many such shards is the slowest of as many
draws from them, once without and once with a second request to a replica when the first answer is late.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from torch import Tensor

from polyagents.arguments import positive_int
from polyagents.benchmarks.indexed import index_parser, opened
from polyagents.benchmarks.measure import limit_memory, machine
from polyagents.console import Bar, markdown
from polyagents.errors import InputError
from polyagents.index.approximate import search_shortlist
from polyagents.index.exact import search
from polyagents.index.faiss_index import measured_recall
from polyagents.index.store import CandidateStore
from polyagents.models.two_towers import Query

Row = dict[str, Any]
# FAISS's names of the compressed forms; RaBitQ stores one bit per number, and RaBitQ4 four (arXiv 2405.12497).
FORMS = {"fp16": "SQfp16", "int8": "SQ8", "4 bits": "RaBitQ4", "1 bit": "RaBitQ"}
LISTS = (64, 512, 2_048)  # candidates that each context vector finds
SHARDS = (1, 8, 64, 512, 4_096)
LATE = 0.95  # quantile of one shard's times, after which a replica is asked too
DRAWN, SEARCHES_DRAWN = 16_000_000, 20_000  # times and searches for each number of shards, at most


def main() -> None:
    """Measure, and print two tables."""
    parser = index_parser("paper_plan", __doc__.split("\n")[0])
    parser.add_argument("--rounds", type=positive_int, default=100, help="how often each is timed")
    opt = parser.parse_args()
    limit_memory()
    _, store, asked = opened(opt)
    print(machine(), end="\n\n")
    print(markdown(compressed(store, asked)), end="\n\n")
    print(markdown(tails(times_of(store, asked, opt.rounds))))


# ---- compressed vectors ----------------------------------------------------------------------------------------------


@dataclass
class Compressed:
    """All vectors of a store, compressed, each compared with the query: a `Shortlist`.

    Attributes:
        length: the length of a list.
    """

    index: Any
    length: int

    def nearest(self, vectors: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return dot products [Q, count], as far as they are known, and indices.

        Args:
            vectors: the queries [Q, D].
            count: how many candidates for each.
        """
        products, found = self.index.search(vectors.float().cpu().numpy(), min(count, self.index.ntotal))
        return products, found


def compressed(store: CandidateStore, asked: Sequence[Query]) -> list[Row]:
    """Measure how good the ten best are that compressed vectors find, by form and length of the lists."""
    exact = np.concatenate([search(query, store, 10).indices for query in asked])
    vectors = store.rows(range(store.slots)).numpy()
    rows = []
    for form, name in Bar(FORMS.items(), desc="Forms"):
        index = faiss.index_factory(store.width, name, faiss.METRIC_INNER_PRODUCT)
        index.train(vectors)
        index.add(vectors)
        for length in LISTS:
            found = [search_shortlist(query, Compressed(index, length), store, 10)[0].indices for query in asked]
            at_1, at_10 = measured_recall(exact, np.concatenate(found))
            size = index.sa_code_size()
            rows.append({"kept as": form, "bytes a vector": size, "list": length, "recall@1": at_1, "recall@10": at_10})
    return rows


# ---- the slowest of many ---------------------------------------------------------------------------------------------


def times_of(store: CandidateStore, asked: Sequence[Query], rounds: int) -> np.ndarray:
    """Measure milliseconds [B, rounds] of single searches for the ten best, by the index beside the store.

    Args:
        asked: the encoded contexts, which are searched in turn.
        rounds: how often each is measured.

    Raises:
        InputError: there is none.
    """
    shortlist = store.shortlist
    if shortlist is None:
        raise InputError(f"{store.folder} has exact search only; build it with --index-type hnsw.")

    def one(query: Query) -> float:
        begin = time.perf_counter()
        search_shortlist(query, shortlist, store, 10)
        return (time.perf_counter() - begin) * 1e3

    times = []
    for _ in Bar(range(rounds), desc="Rounds"):
        search(asked[0], store, 10)  # reads all vectors, which the system may have dropped from memory
        times.append([one(query) for query in asked])
    return np.array(times).T


def tails(times: np.ndarray) -> list[Row]:
    """Compute quantiles of a search over many shards, whose times are drawn from those [B, rounds] of the same context.

    Contexts differ more in cost than the searches of one: a context sends few vectors or many to every shard. The seed
    is fixed.
    """
    late = float(np.quantile(times, LATE))
    rng = np.random.default_rng(0)
    contexts, rounds = times.shape
    rows = []
    for shards in SHARDS:
        searches = min(DRAWN // shards, SEARCHES_DRAWN)
        context = rng.integers(contexts, size=(searches, 1))
        first, second = (times[context, rng.integers(rounds, size=(searches, shards))] for _ in range(2))
        hedged = np.where(first > late, np.minimum(first, late + second), first)
        row: Row = {"shards": shards}
        for name, drawn in (("", first), (", replica asked too", hedged)):
            row |= {f"p{q} ms{name}": round(float(np.percentile(drawn.max(1), q)), 1) for q in (50, 95, 99)}
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
