"""`polyagents build_wiki_search`: make a folder of data from a source, with a manifest that says how they were made."""

import json
import os
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from polyagents.console import Bar, number_of, say
from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.locks import exclusive_folder
from polyagents.files.own_folder import LOCK

from ..streaming.data_manifest import MANIFEST, is_finished
from ..streaming.source import Damaged, Source
from .pages import open_source
from .parallel_reading import read_on
from .parts import FOLDER, PART, QUIET_BYTES, Part, all_counts, delete_parts, finished_parts, there
from .splitting import FORMAT, SMALLEST, Sizes, WikiSplit, count_articles, read_manifest, split


@dataclass(frozen=True)
class WikiPlan:
    """What is to be built.

    Attributes:
        source: a dump, a file of JSON lines, or a folder of such.
        folder: the folder of the data; it is created if it is missing.
        seed: decides which sentence is the query, and which article is in which split.
        sizes: how many articles are held out, if there are enough.
        workers: the number of processes, which changes only the time.
    """

    source: str
    folder: str
    seed: int
    sizes: Sizes
    workers: int

    @property
    def options(self) -> dict[str, Any]:
        """What the data depend on, besides the source."""
        return making(self.seed) | {f"{name}_examples": size for name, size in asdict(self.sizes).items()}


def making(seed: int) -> dict[str, Any]:
    """Return what the examples depend on, besides the source; the libraries, too, decide what a sentence is."""
    return {"format": FORMAT, "seed": seed} | {name: version(name) for name in ("mwparserfromhell", "sentencex")}


def build(plan: WikiPlan) -> dict[str, Any]:
    """Make the data, or resume making them.

    Raises:
        InputError: the source or the folder cannot be used, or the folder holds other data.
    """
    source = open_source(plan.source)
    with exclusive_folder(plan.folder, "build_wiki_search", "--outdir", is_own):
        made = read_manifest(plan.folder) if os.path.exists(os.path.join(plan.folder, MANIFEST)) else None
        if made is None:
            made = build_anew(plan, source)
        elif made["options"] != plan.options or made["source"]["sha256"] != whole_sha256(source):
            raise InputError(
                f"{plan.folder} holds data that were made from another source, with other options or libraries "
                f"({MANIFEST} says which); give another --outdir."
            )
        delete_parts(os.path.join(plan.folder, FOLDER))
        return made


def is_own(folder: str) -> bool:
    """Tell whether a folder holds the data, or the work of an interrupted build."""
    parts = os.path.join(folder, FOLDER)
    names = os.listdir(parts) if os.path.isdir(parts) else []
    only_parts = {*os.listdir(folder)} <= {LOCK, FOLDER}
    return is_finished(folder) or (all(map(PART.fullmatch, names)) and (bool(names) or only_parts))


def build_anew(plan: WikiPlan, source: Source) -> dict[str, Any]:
    """Read what has not been read yet, split it, and write the manifest, which completes the data."""
    parts = all_parts(plan, source)
    counts = all_counts(parts)
    articles = count_articles(parts, counts["examples"])
    if articles < SMALLEST:
        raise InputError(
            f"--source {plan.source} has {number_of(articles, 'article')} that can be used, of "
            f"{number_of(counts['pages'], 'page')}; {SMALLEST} are needed at least."
        )
    sizes = plan.sizes.within(articles)
    if sizes.all >= articles:
        raise InputError(
            f"--source {plan.source} has {number_of(articles, 'article')} that can be used, and --valid-examples, "
            f"--test-examples and --eval-pool are {sizes.all:,} together; give smaller numbers, so that some "
            f"are left to train on."
        )
    if sizes != plan.sizes:
        say(
            f"{articles:,} articles are few: {sizes.valid:,} for validation, {sizes.test:,} for the test and "
            f"{sizes.pool:,} for the pool, instead of {plan.sizes.valid:,}, {plan.sizes.test:,} and "
            f"{plan.sizes.pool:,}; at most a tenth, a tenth and three tenths."
        )
    made = manifest(plan, source, dict(counts), split(parts, articles, sizes, plan.folder))
    write_text(os.path.join(plan.folder, MANIFEST), json.dumps(made, indent=1, ensure_ascii=False))
    return made


def all_parts(plan: WikiPlan, source: Source) -> list[Part]:
    """Return the finished parts, and make those that are missing."""
    folder = os.path.join(plan.folder, FOLDER)
    os.makedirs(folder, exist_ok=True)
    parts = finished_parts(folder, source, making(plan.seed))
    if parts:
        found = all_counts(parts)["examples"]
        say(f"{plan.folder} has {number_of(found, 'article')} from an earlier build, which is resumed.")
    try:
        for part in read_on(source, parts, folder, making(plan.seed), plan.workers):
            parts.append(part)
    except Damaged as error:
        kept = all_counts(there(folder))["examples"]
        raise InputError(
            f"{error}; what was read before it, {number_of(kept, 'article')}, is kept in {plan.folder}, and with a "
            f"whole file the same command resumes."
        ) from error
    return parts


def whole_sha256(source: Source) -> str:
    """Return the checksum of the whole source."""
    with Bar(
        total=source.size, unit="B", unit_scale=True, desc="Checking the source", disable=source.size < QUIET_BYTES
    ) as bar:
        for count in source.hash_up_to(source.size):
            bar.update(count)
    return source.sha256


def manifest(plan: WikiPlan, source: Source, counts: dict[str, int], made: WikiSplit) -> dict[str, Any]:
    """Describe the data."""
    train = sum(count for _, count in made.shards)
    return {
        "options": plan.options,
        "source": {"path": os.path.abspath(plan.source), "bytes": source.size, "sha256": source.sha256},
        "examples": {"train": train} | asdict(made.sizes),
        "pages": dict(sorted(counts.items())) | {"repeated_articles": made.repeated},
        "shards": made.shards,
    }
