"""Token ids of a ParlAI model's dictionary: ours against ParlAI's own, on the lines of text files.

    python -m polyagents.benchmarks.tokenizing M texts.txt ...     M: a model of ParlAI's own, with --dict-tokenizer bpe

Equal ids are counted first; the times are of one pass over all distinct lines, each side's caches empty at its start.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from parlai.core.dict import DictionaryAgent
from parlai.core.opt import Opt

from polyagents.benchmarks import measure
from polyagents.console import markdown
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.parlai_files import parlai_options


def compare(file: str, lines: Sequence[str]) -> dict[str, Any]:
    """Make a row: the number of tokens, the lines that differ, and the time of both."""
    options = parlai_options.read(file) | {"dict_file": f"{file}.dict"}
    theirs = DictionaryAgent(Opt(options))
    ours = TextDictionary(Opt({"backbone": file, "dict_file": f"{file}.dict"})).ready
    expected, slow = timed(lambda: [theirs.txt2vec(line) for line in lines])
    found, quick = timed(lambda: ours.encode(lines))
    return {
        "lines": len(lines),
        "tokens": sum(map(len, expected)),
        "lines that differ": sum(a != b for a, b in zip(expected, found, strict=True)),
        "ParlAI, tokens/s": round(sum(map(len, expected)) / slow),
        "polyagents, tokens/s": round(sum(map(len, found)) / quick),
        "ratio": slow / quick,
    }


def timed(work: Callable[[], list[list[int]]]) -> tuple[list[list[int]], float]:
    """Return the result of some work, and its seconds."""
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def main() -> None:
    """Compare the distinct lines of all files."""
    file, *texts = sys.argv[1:]
    lines: dict[str, None] = {}
    for path in texts:
        with open(path, encoding="utf-8", errors="replace") as text:
            lines.update(dict.fromkeys(line.rstrip("\n") for line in text))
    print(measure.machine())
    print(markdown([compare(file, list(lines))]))


if __name__ == "__main__":
    main()
