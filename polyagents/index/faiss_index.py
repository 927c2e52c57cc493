"""FAISS indexes in a store's folder: builds, measures, describes and opens them."""

import contextlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from polyagents.console import Bar, number_of, say
from polyagents.errors import InputError
from polyagents.files.atomic import atomic_write, write_text
from polyagents.files.hashing import file_digest
from polyagents.files.json_files import read_fields
from polyagents.index.approximate import search_shortlist
from polyagents.index.builder import BLOCK
from polyagents.index.exact import search
from polyagents.index.manifest import index_folder, remember, stamp, verified
from polyagents.index.store import CandidateStore
from polyagents.models.two_towers import Query

# FAISS is imported where it is used: it takes 0.14 s, and few of ParlAI's commands need it.

INDEX_TYPES = ("exact", "hnsw", "ivfpq")
DESCRIPTION = "shortlist.json"
# Chosen by measurement (docs/speed.md).
HNSW_LINKS, HNSW_BUILD, HNSW_LIST = 32, 80, 512
PQ_NUMBERS = 4  # of a vector, which become one code of 4 bits
IVF_PROBED, IVF_LIST = 1 / 16, 1_024  # the first is of all clusters
TRAINED_ON = 262_144  # vectors, evenly drawn; FAISS needs 39 to 256 a list


class FaissShortlist:
    """A FAISS index in memory."""

    def __init__(self, index: Any):
        self.index = index
        self.is_graph = hasattr(index, "hnsw")
        self.length = HNSW_LIST if self.is_graph else IVF_LIST
        if not self.is_graph:
            index.nprobe = max(round(index.nlist * IVF_PROBED), 1)

    def nearest(self, vectors: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return dot products [Q, count], rounded as the index stores vectors, and indices."""
        import faiss

        # A parameter of this search, not of the index, which other threads search at the same time. (It has no stub.)
        params = faiss.SearchParametersHNSW(efSearch=count) if self.is_graph else None  # type: ignore[attr-defined]
        found: tuple[np.ndarray, np.ndarray] = self.index.search(vectors.float().cpu().numpy(), count, params=params)
        return found


@dataclass(frozen=True)
class Description:
    """The content of `shortlist.json`, which describes the FAISS index next to it.

    Attributes:
        identity: the store's from which it was built.
        recall_at_1, recall_at_10: the share of the best 1 and 10 of the exact search that it found when it was built.
        contexts: on how many contexts that was measured.
        sha256: of the index file; None in descriptions of version 0.1.0, which had none.
    """

    index_type: str
    identity: str
    recall_at_1: float
    recall_at_10: float
    contexts: int
    sha256: str | None = None

    @property
    def file(self) -> str:
        """The name of the index's file, which depends on the store, so that both files can be replaced one by one."""
        return f"{self.index_type}-{self.identity[:16]}.faiss"


# ---- building --------------------------------------------------------------------------------------------------------


def build_shortlist(store: CandidateStore, index_type: str, query: Query, measure: bool = False) -> Description:
    """Write a FAISS index into a store's folder, measure it, and let the store use it; one that is there is kept.

    Args:
        index_type: hnsw (better recall, 2 bytes a number) or ivfpq (an eighth of a byte a number, built much faster).
        query: B contexts with which recall is measured.
        measure: whether one that is kept is measured, too.

    Raises:
        InputError: there is no such type, or it cannot contain vectors of this width.
    """
    if index_type not in INDEX_TYPES[1:]:
        raise InputError(f"--index-type {index_type!r}: there are {' and '.join(INDEX_TYPES[1:])}.")
    known = read_description(store.folder)
    if known is not None and (known.index_type, known.identity) == (index_type, store.identity):
        store.shortlist = None
        with contextlib.suppress(InputError):  # damaged: it is built again
            store.shortlist = open_shortlist(store)
        if store.shortlist is not None:
            return write_description(store, measured_shortlist(store, known, query)) if measure else known
    import faiss

    index = empty_index(index_type, store)
    with index_folder(store.folder):
        with Bar(
            total=store.slots, unit=" candidates", desc=f"Building {index_type}", disable=store.slots < BLOCK
        ) as bar:
            for block in store.blocks():
                # Deleted candidates are added as well: FAISS counts places, and they are dropped when they are found.
                index.add(block.exact(slice(None)).numpy())
                bar.update(len(block.vectors))
        store.shortlist = FaissShortlist(index)
        description = measured_shortlist(store, Description(index_type, store.identity, 0, 0, 0), query)
        path = os.path.join(store.folder, description.file)
        with atomic_write(path) as temporary:
            try:
                faiss.write_index(index, temporary)
            except RuntimeError as error:  # FAISS's error for a full disk
                raise OSError(str(error)) from error
            description = replace(description, sha256=file_digest(temporary))
        remember(store.folder, [*(shard.name for shard in store.shards), description.file])
        write_description(store, description)
        # Only now: a build that is killed before leaves the earlier index, with its description.
        for name in os.listdir(store.folder):
            if name.endswith(".faiss") and name != description.file:
                os.remove(os.path.join(store.folder, name))
    return description


def write_description(store: CandidateStore, description: Description) -> Description:
    """Write the description of the FAISS index in a store's folder, and return it."""
    write_text(os.path.join(store.folder, DESCRIPTION), json.dumps(asdict(description)))
    return description


def remove_shortlist(store: CandidateStore) -> None:
    """Remove the FAISS index of a store, if it has one: it is searched exactly from now on."""
    if read_description(store.folder) is None:
        return
    with index_folder(store.folder):
        # The description first: without its file, it would be that of a damaged index.
        for name in sorted(os.listdir(store.folder), key=lambda name: name != DESCRIPTION):
            if name == DESCRIPTION or name.endswith(".faiss"):
                os.remove(os.path.join(store.folder, name))
    store.shortlist = None


def empty_index(index_type: str, store: CandidateStore) -> Any:
    """Create a FAISS index without candidates, trained if its type needs that; an InputError says if it cannot be."""
    import faiss

    if (reason := reason_against(index_type, store.slots, store.width)) is not None:
        raise InputError(reason)
    index: Any
    if index_type == "hnsw":
        # fp16 needs half the memory; what is found so is scored again with the store's own vectors.
        index = faiss.index_factory(store.width, f"HNSW{HNSW_LINKS},SQfp16", faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = HNSW_BUILD
        return index
    # Files are often sorted, so candidates from all of the store: clusters of its beginning would not fit the rest.
    sample = store.rows(np.linspace(0, store.slots - 1, min(store.slots, TRAINED_ON)).astype(np.int64)).numpy()
    lists = clusters(store.slots)
    kind = f"IVF{lists},PQ{store.width // PQ_NUMBERS}x4fs"  # 4 bits, in the order in which SIMD reads them
    index = faiss.index_factory(store.width, kind, faiss.METRIC_INNER_PRODUCT)
    index.pq.cp.min_points_per_centroid = 1  # of few candidates, it would print a warning for each of the codes
    say(f"Learning {number_of(lists, 'cluster')} from {len(sample):,} candidates.")
    index.train(sample)
    return index


def reason_against(index_type: str, candidates: int, width: int) -> str | None:
    """Say why a type cannot index so few candidates, or vectors of this width; None if it can."""
    if index_type == "ivfpq" and candidates < 16:
        return f"--index-type ivfpq needs at least 16 candidates, and there are {candidates}; use exact."
    if index_type == "ivfpq" and width % PQ_NUMBERS:
        return f"--index-type ivfpq needs a width divisible by {PQ_NUMBERS}, and this is {width}; use hnsw."
    return None


def clusters(candidates: int) -> int:
    """Return the number of lists of an ivfpq index."""
    # FAISS's advice for up to a million candidates: 4 to 16 times the root. To learn a list, it wants 39 vectors.
    return max(min(round(4 * math.sqrt(candidates)), min(candidates, TRAINED_ON) // 39), 1)


def measured_shortlist(store: CandidateStore, description: Description, query: Query) -> Description:
    """Return a description with the recall of the store's shortlist for some contexts."""
    found, _ = search_shortlist(query, store.shortlist, store, 10)
    at_1, at_10 = measured_recall(search(query, store, 10).indices, found.indices)
    return replace(description, recall_at_1=at_1, recall_at_10=at_10, contexts=len(query))


def measured_recall(exact: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Compute the share of the best candidate, and of the best 10, that a shortlist has found; indices [B, 10]."""
    shares = [[np.isin(want[:k], got[:k]).mean() for want, got in zip(exact, found, strict=True)] for k in (1, 10)]
    return float(np.mean(shares[0])), float(np.mean(shares[1]))


# ---- opening ---------------------------------------------------------------------------------------------------------


def describe(store: CandidateStore) -> Description | None:
    """Return the description of the index for a store in its present state; None if there is none."""
    description = read_description(store.folder)
    if description is None or description.identity == store.identity:
        return description
    say(
        f"The {description.index_type} index of {store.folder} is older than its candidates or their vectors: "
        f"searching exactly until {builder_of(store)} is run with --index-type {description.index_type} again."
    )
    return None


def read_description(folder: str) -> Description | None:
    """Return the description in a store's folder; None if there is none."""
    try:
        found = read_fields(os.path.join(folder, DESCRIPTION), Description)
    except (OSError, ValueError):
        return None
    return found if found.index_type in INDEX_TYPES[1:] else None


def builder_of(store: CandidateStore) -> str:
    """Return the command that builds an index anew: `index build` would undo changes of the candidates, and refuses."""
    return "polyagents index add" if store.manifest.source is None else "polyagents index build"


def open_shortlist(store: CandidateStore) -> FaissShortlist | None:
    """Open the FAISS index of a store; None if its present state has none. An InputError says if it is damaged."""
    description = describe(store)
    if description is None:
        return None
    import faiss

    path = os.path.join(store.folder, description.file)
    damaged = InputError(
        f"{path} is missing or damaged; run {builder_of(store)} with --index-type {description.index_type} again, or "
        f"remove {DESCRIPTION} next to it to search exactly."
    )
    try:
        if not is_as_written(store, description):
            raise damaged
        index = faiss.read_index(path)
    except (OSError, RuntimeError) as error:
        raise damaged from error
    # The numbers of an index of another size would name other candidates, or none.
    if (index.ntotal, index.d) != (store.slots, store.width):
        raise damaged
    return FaissShortlist(index)


def is_as_written(store: CandidateStore, description: Description) -> bool:
    """Tell whether the file of a FAISS index is unchanged.

    FAISS itself notices few changes: of 90 damaged files it opened 27. A file that was read completely once is read
    again only if its size or time of change differ, as a shard is.
    """
    path = os.path.join(store.folder, description.file)
    if description.sha256 is None or verified(store.folder).get(description.file) == stamp(path):
        return True
    if file_digest(path) != description.sha256:
        return False
    with contextlib.suppress(InputError, OSError):  # the folder may not be written
        remember(store.folder, [*(shard.name for shard in store.shards), description.file])
    return True


def sample_of(store: CandidateStore, count: int) -> Sequence[str]:
    """Return some candidates, at most `count`, evenly spaced."""
    places = np.unique(np.linspace(0, store.slots - 1, min(count, store.slots)).astype(np.int64))
    return [store[int(place)] for place in places]
