"""The result of BM25 on the Wikipedia article search: each label among the pool, as trained models rank it.

    python -m polyagents.benchmarks.bm25 DIR test [FILE]      DIR: what polyagents build_wiki_search made
                                                             FILE: other articles, by default DIR/pool.txt

bm25s with its defaults (Lucene's formula, k1 1.5, b .75, English stop words). Document frequencies are those of the
pool and the split's labels. The label loses ties, as in polyagents.
"""

import json
import os
import sys

import bm25s
import numpy as np


def ranks(queries: list[str], labels: list[str], pool: list[str]) -> np.ndarray:
    """Return the rank of each label among the pool, [B], from 1.

    Args:
        queries: B queries.
        labels: the label of each.
        pool: the other articles.
    """
    index = bm25s.BM25()
    index.index(bm25s.tokenize([*pool, *labels], stopwords="en", show_progress=False), show_progress=False)
    found = []
    for number, query in enumerate(queries):
        words = bm25s.tokenize(query, stopwords="en", return_ids=False, show_progress=False)[0]
        scores = index.get_scores(words) if words else np.zeros(len(pool) + len(labels))
        found.append(1 + int((scores[: len(pool)] >= scores[len(pool) + number]).sum()))
    return np.array(found)


def main() -> None:
    """Print R@1 and MRR."""
    folder, split, *others = sys.argv[1:]
    with open(os.path.join(folder, f"{split}.jsonl"), encoding="utf-8") as file:
        examples = [json.loads(line) for line in file]
    with open(others[0] if others else os.path.join(folder, "pool.txt"), encoding="utf-8") as file:
        pool = file.read().splitlines()
    found = ranks([row["text"] for row in examples], [row["label"] for row in examples], pool)
    r_at_1, mrr = (found == 1).mean(), (1 / found).mean()
    error = (r_at_1 * (1 - r_at_1) / len(found)) ** 0.5
    print(f"{len(found)} queries, {len(pool):,} other articles: R@1 {r_at_1:.3f} (s.e. {error:.3f}), MRR {mrr:.3f}")


if __name__ == "__main__":
    main()
