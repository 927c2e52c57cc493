"""The memory and seconds of `polyagents build_pairs` on generated dumps of comments of several sizes.

python -m polyagents.benchmarks.pairs --sizes 100000,1000000,3000000 --folder /tmp/pairs
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from random import Random

from polyagents.benchmarks.measure import machine
from polyagents.benchmarks.wiki_search import measured, words
from polyagents.console import Bar, markdown
from polyagents.tasks.streaming.zstandard import zstd

OPEN = 3_000  # threads that are answered at the same time
WINDOW: dict[int, int] = {
    zstd.CompressionParameter.window_log: 27,
    zstd.CompressionParameter.enable_long_distance_matching: 1,
}


def comments(count: int) -> Iterator[dict[str, object]]:
    """Yield comments in the order of time: each answers an earlier one, or a post, of an open thread."""
    rng, vocabulary = Random(2), words()
    threads: list[tuple[str, list[str]]] = []
    for number in Bar(range(count), desc="Generating", unit=" comments"):
        if not threads or rng.random() < 0.02:
            threads.append((f"t3_{number:x}", []))
            if len(threads) > OPEN:
                threads.pop(0)
        link, ids = threads[int(rng.random() * len(threads))]
        parent = "t1_" + ids[int(rng.random() * len(ids))] if ids and rng.random() < 0.7 else link
        ids.append(f"c{number:x}")
        body = " ".join(vocabulary[int(rng.random() ** 3 * 20_000)] for _ in range(5 + int(rng.random() * 50)))
        fields = {"id": ids[-1], "parent_id": parent, "link_id": link, "author": "someone", "body": body}
        yield fields | {"subreddit": "all", "score": 1, "created_utc": 1451606400 + number, "gilded": 0}


def main() -> None:
    """Generate, build, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100000,1000000", help="numbers of comments, with commas")
    parser.add_argument("--folder", required=True, help="for sources and data; 6 GB for 3 million comments")
    given = parser.parse_args()
    os.makedirs(given.folder, exist_ok=True)
    rows: list[dict[str, object]] = []
    for size in map(int, given.sizes.split(",")):
        source, folder = (os.path.join(given.folder, name) for name in (f"RC_{size}.zst", f"{size}-data"))
        with zstd.open(source, "wb", options=WINDOW) as file:
            file.writelines(json.dumps(fields).encode() + b"\n" for fields in comments(size))
        rows.append({"comments": size, "MB of source": os.path.getsize(source) / 1e6})
        rows[-1] |= measured("build_pairs", "--source", source, "--outdir", folder)
        print(markdown(rows[-1:]), file=sys.stderr)
    print(f"{machine()}\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()
