"""`polyagents build_pairs`: make a folder of shuffled pairs from files, in memory that does not grow with them.

Files are read once, in portions: pairs go into sorted runs as they are, and comments into runs in the order of their
threads; these are merged, thread by thread, into pairs. All pairs are in the order of a hash, so that merging their
runs shuffles them. A killed build resumes after the last finished portion.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from polyagents.console import Bar, number_of, say
from polyagents.errors import InputError
from polyagents.files.atomic import TEMPORARY, atomic_write, write_text
from polyagents.files.locks import exclusive_folder
from polyagents.files.own_folder import LOCK

from ..streaming import data_manifest
from ..streaming.data_manifest import MANIFEST, is_finished
from ..streaming.runs import Runs, merged, watched, write_shards
from ..streaming.source import Damaged
from .comments import pairs_of
from .held_out import Cut, HeldOut
from .pair import example_of, line_of, thread_of
from .portions import FORMAT, Portion, comment_in, portions_of, read_portion, stamp
from .source_files import PARTS, files_below

OURS = re.compile(rf"((train-\d{{5}}|valid|test)\.jsonl|manifest\.json)({TEMPORARY})?")
NOUNS = re.compile(r"\b(answer|bot|comment|file|line|pair|url)s\b")  # in the names of counts
SHARD = 65_536  # pairs of a shard of the training set, which a teacher has in memory: about 30 MB
VALID_EXAMPLES = 10_000  # chosen here; the paper does not say how many it held out
CONTEXT_LINES = 1  # of plain text: "the input is one sentence and the label the next sentence" (4.1)
QUIET = 1_000_000  # lines that are merged in some seconds


@dataclass(frozen=True)
class PairsPlan:
    """What is to be built.

    Attributes:
        source: a file, or a folder of files.
        folder: the folder of the data; it is created if it is missing.
        context_lines: the largest number of lines in a context of plain text.
        valid_examples: about this many pairs are for valid, and for test; at most a tenth of all pairs.
    """

    source: str
    folder: str
    context_lines: int = CONTEXT_LINES
    valid_examples: int = VALID_EXAMPLES

    @property
    def options(self) -> dict[str, Any]:
        """What the data depend on, besides the source."""
        return {"format": FORMAT, "context_lines": self.context_lines, "valid_examples": self.valid_examples}

    @property
    def parts(self) -> str:
        """The folder of unfinished work."""
        return os.path.join(self.folder, PARTS)


def build(plan: PairsPlan, flag: str = "--outdir") -> dict[str, Any]:
    """Make the data, or resume making them.

    Raises:
        InputError: the source or the folder cannot be used, or the folder holds other data.
    """
    source = {"path": os.path.abspath(plan.source), "stamp": stamp(files_below(plan.source))}
    with exclusive_folder(plan.folder, "build_pairs", flag, is_own):
        if not os.path.exists(os.path.join(plan.folder, MANIFEST)):
            prepare(plan)
            made = build_anew(plan, source)
            write_text(os.path.join(plan.folder, MANIFEST), json.dumps(made, indent=1, ensure_ascii=False))
        else:
            made = read_manifest(plan.folder)
            if made["options"] != plan.options or made["source"]["stamp"] != source["stamp"]:
                raise InputError(
                    f"{plan.folder} holds pairs that were made from other files or with other flags ({MANIFEST} says "
                    f"which); give another {flag}."
                )
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(plan.parts)
        return made


def read_manifest(folder: str) -> dict[str, Any]:
    """Read the manifest of finished pairs.

    Raises:
        InputError: there is none, or it is damaged.
    """
    missing = (
        "There are no pairs in {folder} (manifest.json: {reason}); make them with polyagents build_pairs --source "
        "FILES --outdir {folder}."
    )
    return data_manifest.read_manifest(folder, FORMAT, "context_lines", missing)


def is_own(folder: str) -> bool:
    """Tell whether a folder holds pairs, or the work of an interrupted build."""
    there = set(os.listdir(folder)) - {LOCK}
    return is_finished(folder) or (PARTS in there and all(map(OURS.fullmatch, there - {PARTS})))


def prepare(plan: PairsPlan) -> None:
    """Prepare the folder, which may hold the work of an interrupted build."""
    for name in set(os.listdir(plan.folder)) - {LOCK, PARTS}:
        os.remove(os.path.join(plan.folder, name))
    os.makedirs(plan.parts, exist_ok=True)


def build_anew(plan: PairsPlan, source: dict[str, Any]) -> dict[str, Any]:
    """Read, pair, split and shuffle."""
    portions = all_portions(plan)
    counts = sum((Counter(portion.counts) for portion in portions), Counter[str]())
    runs = [os.path.join(plan.parts, name) for portion in portions for name in portion.pairs]
    runs += pair_comments(plan, portions, counts)
    if not counts["pairs"]:
        raise InputError(
            f"{plan.source} holds no pair that can be used ({describe_counts(counts) or 'no line follows another'})."
        )
    if counts["malformed_lines"]:
        first = next(portion.malformed for portion in portions if portion.malformed)
        say(f"Skipped: {number_of(counts['malformed_lines'], 'line')} that could not be read (the first: {first}).")
    cut = held_out(runs, plan.valid_examples)
    examples, shards = write_splits(plan, runs, cut, counts["pairs"])
    sha256 = {name: digest for portion in portions for name, digest in portion.sha256.items()}
    return {
        "options": plan.options,
        "source": source | {"sha256": sha256},
        "examples": examples,
        "counts": dict(sorted(counts.items())),
        "shards": shards,
    }


def describe_counts(counts: dict[str, int]) -> str:
    """Describe counts: 5 bots, 3 malformed lines."""
    said = ((name.replace("_", " "), count) for name, count in sorted(counts.items()) if count)
    return ", ".join(number_of(count, NOUNS.sub(r"\1", name), name) for name, count in said)


def all_portions(plan: PairsPlan) -> list[Portion]:
    """Return the finished portions, and read those that are missing."""
    files = files_below(plan.source)
    found = []
    size = sum(os.path.getsize(file.path) for file in files)
    with Bar(total=size, unit="B", unit_scale=True, desc="Reading", delay=2) as bar:
        for part in portions_of(files):
            bar.set_postfix_str(part[0].name[-30:], refresh=False)
            try:
                found.append(read_portion(part, plan.parts, plan.context_lines, bar.update))
            except Damaged as error:
                raise InputError(
                    f"{error}; the data before it are kept in {plan.folder}, and with a whole file the same "
                    f"command resumes."
                ) from error
    return found


def pair_comments(plan: PairsPlan, portions: list[Portion], counts: Counter[str]) -> list[str]:
    """Merge the comments, and pair them thread by thread.

    Args:
        counts: is increased by what became of the comments.

    Returns:
        The names of the runs of pairs.
    """
    runs = Runs(os.path.join(plan.parts, "threads"))
    paths = [os.path.join(plan.parts, name) for portion in portions for name in portion.comments]
    total = counts["comments"]
    with Bar(total=total, unit=" comments", desc="Pairing", disable=total < QUIET) as bar:
        lines = watched(merged(paths, os.path.join(plan.parts, "merged-comments")), bar)
        for _, group in itertools.groupby(lines, lambda line: line[:32]):
            for pair in pairs_of(map(comment_in, group)):
                if isinstance(pair, str):
                    counts[pair] += 1
                else:
                    counts["pairs"] += 1
                    runs.add(line_of(pair))
    runs.write()
    return [os.path.join(plan.parts, name) for name in runs.names]


def held_out(runs: list[str], valid_examples: int) -> Cut:
    """Choose the threads of valid and test."""
    threads = HeldOut(2 * valid_examples)
    for path in runs:
        with open(path, "rb") as file:
            for line in file:
                threads.add(thread_of(line))
    cut = threads.cut()
    if not cut.valid or not cut.test:
        say(
            f"All pairs ({threads.total:,}) are for training: there are too few, or most are of one conversation or "
            f"document, and none is in two splits. A blank line in plain text begins a new document."
        )
    return cut


def write_splits(
    plan: PairsPlan, runs: list[str], cut: Cut, total: int
) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """Write all pairs in the order of their keys.

    Returns:
        The number of pairs in each split, and the training set's shards.
    """
    with contextlib.ExitStack() as stack:
        held = {}
        for name in ("valid", "test"):
            temporary = stack.enter_context(atomic_write(os.path.join(plan.folder, f"{name}.jsonl")))
            held[name] = stack.enter_context(open(temporary, "wb"))
        examples = Counter[str](train=0, valid=0, test=0)
        bar = stack.enter_context(Bar(total=total, unit=" pairs", desc="Shuffling", disable=total < QUIET))

        def training() -> Iterator[bytes]:
            for line in watched(merged(runs, os.path.join(plan.parts, "merged-pairs")), bar):
                split = cut.split_of(thread_of(line))
                examples[split] += 1
                if split == "train":
                    yield example_of(line)
                else:
                    held[split].write(example_of(line))

        shards = write_shards(plan.folder, training(), SHARD)
    return dict(examples), shards
