"""The memory and seconds of `polyagents build_wiki_search` on generated sources of several sizes.

python -m polyagents.benchmarks.wiki_search --sizes 10000,50000 --kind dump --folder /tmp/wiki
"""

import argparse
import bz2
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random
from xml.sax.saxutils import escape

from polyagents.benchmarks.measure import machine
from polyagents.console import Bar, markdown

PARAGRAPHS = 6  # of 4 sentences: 3,000 characters, as the articles of English Wikipedia have on average
STREAM = 100  # pages in each bz2 stream of a multistream dump
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words() -> list[str]:
    """Return twenty thousand made-up words."""
    rng = Random(1)
    return ["".join(LETTERS[int(rng.random() * 26)] for _ in range(2 + int(rng.random() * 9))) for _ in range(20_000)]


def article(rng: Random, vocabulary: list[str]) -> str:
    """Write wikitext with links, references and a template."""
    lines = ["{{Infobox thing|name=x|made={{start date|1900}}}}"]
    for number in range(PARAGRAPHS):
        sentences = []
        for _ in range(4):
            found = [vocabulary[int(rng.random() ** 3 * len(vocabulary))] for _ in range(18)]
            found[5] = f"[[{found[5]}|{found[6]}]]"
            sentences.append(f"{' '.join(found).capitalize()}.<ref>{{{{cite web|title={found[7]}}}}}</ref>")
        lines.append(f"== Part {number} ==\n" + " ".join(sentences))
    return "\n\n".join([*lines, "[[Category:Things]]"])


def pages(count: int) -> Iterator[tuple[int, str, str]]:
    """Yield number, title and wikitext of pages."""
    rng, vocabulary = Random(2), words()
    for number in Bar(range(count), desc="Generating", unit=" articles"):
        yield number, f"Thing {number}", article(rng, vocabulary)


def write_dump(path: str, count: int) -> None:
    """Write a dump, compressed like Wikimedia's.

    Args:
        count: how many pages.
    """
    with open(path, "wb") as file:
        file.write(bz2.compress(b'<mediawiki xml:lang="en">'))
        group: list[str] = []
        for number, title, text in pages(count):
            group.append(
                f"<page><title>{title}</title><ns>0</ns><id>{number}</id><revision><id>{number}</id>"
                f"<text>{escape(text)}</text></revision></page>"
            )
            if len(group) == STREAM or number == count - 1:
                file.write(bz2.compress("".join(group).encode(), 1))
                group = []
        file.write(bz2.compress(b"</mediawiki>"))


def write_lines(path: str, count: int) -> None:
    """Write the output of WikiExtractor; the markup stays in, since nothing looks for it there.

    Args:
        count: how many pages.
    """
    with open(path, "w", encoding="utf-8") as file:
        for number, title, text in pages(count):
            file.write(json.dumps({"id": str(number), "url": "", "title": title, "text": f"{title}\n\n{text}"}) + "\n")


def measured(*arguments: str) -> dict[str, float]:
    """Run a command; return its seconds, and peak MB of its own process, and of all with shared memory counted once."""
    begin, own, together = time.perf_counter(), 0.0, 0.0
    with subprocess.Popen([sys.executable, "-m", "polyagents", *arguments], stdout=subprocess.DEVNULL) as build:
        while build.poll() is None:
            own = max(own, kilobytes(f"/proc/{build.pid}/status", "VmHWM"))
            family = [build.pid, *children(build.pid)]
            together = max(together, sum(kilobytes(f"/proc/{pid}/smaps_rollup", "Pss") for pid in family))
            time.sleep(0.2)
    if build.returncode:
        raise SystemExit(build.returncode)
    return {"seconds": time.perf_counter() - begin, "MB, own": own / 1024, "MB, with workers": together / 1024}


def children(pid: int) -> list[int]:
    """Return the worker processes."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def kilobytes(path: str, name: str) -> float:
    """Return a line of a file of /proc; 0 if the process has just ended."""
    try:
        with open(path) as file:
            return next((float(line.split()[1]) for line in file if line.startswith(f"{name}:")), 0.0)
    except OSError:
        return 0.0


def main() -> None:
    """Generate, build, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,50000", help="numbers of articles, with commas")
    parser.add_argument("--kind", choices=("dump", "lines"), default="dump")
    parser.add_argument("--folder", required=True, help="for sources and data; 2 GB for 200,000 articles")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    os.makedirs(given.folder, exist_ok=True)
    rows = []
    for size in map(int, given.sizes.split(",")):
        source, folder = (os.path.join(given.folder, f"{given.kind}-{size}{end}") for end in ("", "-data"))
        (write_dump if given.kind == "dump" else write_lines)(source, size)
        rows.append({"articles": size, "MB of source": os.path.getsize(source) / 1e6})
        flags = ("--source", source, "--outdir", folder, "--workers", str(given.workers))
        rows[-1] |= measured("build_wiki_search", *flags)
        print(markdown(rows[-1:]), file=sys.stderr)
    print(f"{machine()}; --kind {given.kind} --workers {given.workers}\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()
