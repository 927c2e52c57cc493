"""The candidates of an engine, as a set that a model searches, adds to and removes from."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyagents.console import Bar
from polyagents.errors import InputError
from polyagents.files.python_arguments import texts_of
from polyagents.index.approximate import Found, search_one
from polyagents.index.builder import ALONE, BLOCK, BuildPart, Cluster, Encode, Worker, require_model
from polyagents.index.columns import Record
from polyagents.index.engines.engine import (
    INDEX_TYPES,
    LONG_LIST,
    SHORT_LIST,
    Collection,
    EngineError,
    VectorEngine,
    Version,
    candidate_ids,
)
from polyagents.index.exact import Best
from polyagents.index.filters import Filter
from polyagents.index.interface import Hits, Index
from polyagents.index.shard import SHARD
from polyagents.index.texts import Texts
from polyagents.models.two_towers import Query
from polyagents.ranking.two_tower_model import TwoTowerModel

FEW = 10_000  # candidates that a filter leaves: up to here all are fetched and scored, whatever the engine's index


class EngineCandidates(Index):
    """The candidates that one model encoded into an engine, in its collection of this model."""

    is_approximate, scores_all = True, False

    def __init__(self, engine: VectorEngine, model: str, collection: Collection):
        self.engine, self.encoded_by, self.collection = engine, model, collection
        self.fields = collection.fields

    @classmethod
    def open(cls, engine: VectorEngine, model: str) -> "EngineCandidates":
        """Open the candidates that an engine's name refers to.

        Raises:
            EngineError: there are none, or another model encoded them.
        """
        versions = engine.versions()
        currents = [version for version in versions if version.is_current]
        current = next(iter(currents), None)
        if len(currents) > 1:
            raise EngineError(
                f"{engine.where} has several current collections {engine.name}; build the candidates again."
            )
        if current is None:
            begun = ", only an unfinished build" if versions else ""
            raise EngineError(
                f"{engine.where} has no candidates named {engine.name}{begun}; build them with polyagents index build "
                f"--index-url."
            )
        if current.model != model:
            raise EngineError(
                f"{engine.name} at {engine.where} was encoded by another model; give that one, or build the "
                f"candidates of this model with polyagents index build --index-url, which replaces them at its end."
            )
        return cls(engine, model, engine.collection(current))

    @classmethod
    def build(
        cls,
        engine: VectorEngine,
        model: str,
        width: int,
        texts: Texts,
        encode: Encode,
        index_type: str = "hnsw",
        worker: Worker = ALONE,
        cluster: Cluster | None = None,
    ) -> "EngineCandidates":
        """Encode texts into a model's collection, and let the engine's name refer to it.

        Texts that are there already are not encoded again, so that a build that was killed is resumed; candidates that
        are there and not among the texts stay.

        Args:
            model: the fingerprint of the model that encodes.
            texts: distinct; their fields are the collection's.
            index_type: hnsw, or exact if the engine should compare with every vector.
            worker: decides this process's part of the work, if several build together.
            cluster: machines that encode, instead of this one; they reach the engine by its URL.
        """
        if index_type not in INDEX_TYPES:
            raise InputError(f"--index-type {index_type!r}: an engine has {' and '.join(INDEX_TYPES)}.")
        if cluster is not None and not engine.is_shared:
            raise InputError(f"{engine.where} is open in one process at a time; give a cluster the URL of a server.")
        if worker.rank > 0:
            worker.wait()  # until the first one has made it
        fields = None if texts.fields is None else dict(texts.fields)
        made = cls(engine, model, engine.create(model, width, fields))
        if worker.rank == 0:
            worker.wait()
        if cluster is None:
            made.add(texts, encode, worker)
        else:
            parts = [BuildPart(start, min(start + SHARD, len(texts))) for start in range(0, len(texts), SHARD)]
            size = len(texts)
            with Bar(total=size, unit=" candidates", desc="Encoding candidates", disable=size < BLOCK) as bar:
                for part in cluster.map(EngineWork(engine, model, width, fields), texts, parts):
                    bar.update(part.stop - part.start)
        worker.wait()
        if worker.rank == 0:
            made.collection.build_index(index_type)
            engine.switch(model)
        worker.wait()
        return made

    def __len__(self) -> int:
        return self.collection.count()

    def add(self, texts: Texts, encode: Encode, worker: Worker = ALONE) -> "EngineCandidates":
        """Add candidates that are missing or differ, for the next search; a worker adds its part of them."""
        parts = range(worker.rank * BLOCK, len(texts), worker.world * BLOCK)
        size = sum(min(BLOCK, len(texts) - start) for start in parts)
        with Bar(total=size, unit=" candidates", desc="Encoding candidates", disable=size < BLOCK) as bar:
            for start in parts:
                stop = min(start + BLOCK, len(texts))
                self.add_block(texts, start, stop, encode)
                bar.update(stop - start)
        return self

    def add_block(self, texts: Texts, start: int, stop: int, encode: Encode) -> None:
        """Add the texts of a block that are missing, or whose record has changed."""
        part, records = texts.part(start, stop), texts.records(start, stop)
        if records is None:
            ids = candidate_ids(part)
            missing = np.flatnonzero(~self.collection.there(ids))
        else:
            ids = candidate_ids([record.id for record in records])
            pairs = zip(records, self.collection.records(ids), strict=True)
            missing = np.flatnonzero([record != stored for record, stored in pairs])
        if len(missing):
            wanted = [part[place] for place in missing]
            own = None if records is None else [records[place] for place in missing]
            self.collection.upsert(ids[missing], wanted, encode(wanted), own)

    def search(self, query: Query, k: int, where: Filter | None = None) -> list[Hits]:
        """Find the k best candidates of every context by their fp32 scores.

        Raises:
            InputError: the engine returns no lists that long.
        """
        if k > self.collection.longest:
            raise InputError(
                f"{self.engine.where} finds at most {self.collection.longest:,} candidates, and top_k is {k:,}."
            )
        each = [query.one(example) for example in range(len(query))]
        if where is None:
            return [self._search_one(one, k) for one in each]
        few = self.collection.those(where, FEW + 1)
        if len(few) <= FEW:
            members, vectors = self.collection.vectors(few)
            return [self._best_of(one, k, members, vectors) for one in each]
        share = self.collection.count(where) / max(self.collection.count(), 1)
        return [self._search_one(one, k, where, share) for one in each]

    def _best_of(self, query: Query, k: int, members: np.ndarray, vectors: Tensor) -> Hits:
        """Score all that a filter leaves."""
        best = Best(k)
        if len(members):
            best.merge(members, query.scores(vectors.to(query.device))[0].cpu().numpy())
        return self._hits(best, True)

    def _search_one(self, query: Query, k: int, where: Filter | None = None, share: float = 1.0) -> Hits:
        """Search with short lists, or long ones if the stop rule does not hold; a `share` of all meets `where`."""
        best, complete, found = search_one(query, functools.partial(self._nearest, SHORT_LIST, 2 * k, where, share), k)
        if not complete:
            long = functools.partial(self._nearest, LONG_LIST, LONG_LIST, where, share)
            best, complete, found = search_one(query, long, k)
        return self._hits(best, complete, found.texts)

    def _nearest(self, length: int, of_one: int, where: Filter | None, share: float, vectors: Tensor, k: int) -> Found:
        """Find neighbours in lists of a length, `of_one` if one vector asks, whose list is the answer; longer for k."""
        wanted = of_one if len(vectors) == 1 else length
        count = min(max(wanted, 2 * k), self.collection.longest)
        depth = min(int(max(LONG_LIST, count) / share), self.collection.longest)
        found = self.collection.nearest(vectors, count, depth, where)
        distinct = (found.members >= 0).all() and (np.diff(found.members) > 0).all()
        # Squares, since the products of large vectors would be infinite, too, and their scores in no order.
        if not distinct or not torch.isfinite(found.vectors.square().sum()):
            raise changed_rows("The collection")
        lists = np.where(np.isin(found.lists, found.members), found.lists, -1)  # one was removed between two questions
        short = lists.shape[1] < count or bool((lists < 0).any())
        return found._replace(lists=lists, are_all=short and len(found.members) >= self.collection.count(where))

    def _hits(self, best: Best, complete: bool, came_along: Mapping[int, str] | None = None) -> Hits:
        """Return the best with texts, asked for unless they `came_along`, and ids, without those removed meanwhile."""
        if self.fields is None:
            found = best.indices.tolist()
            plain = self.collection.texts(found) if came_along is None else [came_along[number] for number in found]
            records = [None if text is None else Record(text, text) for text in plain]
        else:
            records = self.collection.records(best.indices)
        left = [place for place, record in enumerate(records) if record is not None]
        ids, texts = [one.id for one in records if one is not None], [one.text for one in records if one is not None]
        is_text = all(isinstance(one, str) for one in (*ids, *texts))
        if not is_text or (candidate_ids(ids) != best.indices[left]).any():
            raise changed_rows(f"{self.engine.name} at {self.engine.where}")
        own = None if self.fields is None else ids
        return Hits(best.indices[left], best.scores[left], lambda _: texts, complete, lambda _: own)

    def scores(self, query: Query) -> Tensor:
        """Refuse: an engine finds only the best candidates."""
        raise InputError(
            "An engine finds the best candidates only; for all scores, give their texts, or --fixed-candidates-path."
        )

    def texts_of(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """Return the texts of candidates, in the order of their ids; an EngineError says if one was removed."""
        found = self.collection.texts([int(index) for index in indices])
        texts = [text for text in found if text is not None]
        if len(texts) < len(found):
            raise EngineError(f"{self.engine.where} has no candidate {indices[found.index(None)]}.")
        return texts

    def ids_of(self, indices: Sequence[int] | np.ndarray) -> list[str] | None:
        """Return the users' own ids of candidates; an EngineError says if one was removed, None is for plain lines."""
        if self.fields is None:
            return None
        found = [record.id for record in self.collection.records(np.asarray(indices)) if record is not None]
        if len(found) < len(indices):
            raise EngineError(f"{self.engine.where} lacks one of the candidates {list(indices)[:3]}.")
        return found

    def find(self, name: str) -> int | None:
        """Return the number of a candidate by its id, a plain line's by its text; None if it is not among them."""
        number = candidate_ids([name])
        return int(number[0]) if self.collection.there(number)[0] else None

    def remove(self, names: Sequence[str]) -> "EngineCandidates":
        """Remove candidates from every model's collection, as `remove` below."""
        remove(self.engine, texts_of(names, "names"))
        return self

    def check(self) -> None:
        """Ask a question that costs nothing."""
        self.collection.there(np.array([0]))

    def close(self) -> None:
        """Close the connection."""
        if vars(self):
            self.engine.close()
        super().close()


@dataclass(frozen=True)
class EngineWork:
    """The work of a `Cluster` that adds a part of a build to an engine, which connects again on each machine."""

    engine: VectorEngine
    model: str
    width: int
    fields: dict[str, str] | None = None

    def __call__(self, model: TwoTowerModel, texts: Texts, part: BuildPart) -> None:
        """Add the candidates that are not there yet; refuse a machine that has another model."""
        require_model(model.fingerprint(), self.model)
        # Not `create`, which would build an index if the first machine is just exchanging one.
        collection = self.engine.collection(Version(self.model, self.width, "", False, self.fields))
        candidates = EngineCandidates(self.engine, self.model, collection)
        for start in range(part.start, part.stop, BLOCK):
            candidates.add_block(texts, start, min(start + BLOCK, part.stop), model.encode_texts)


def changed_rows(where: str) -> EngineError:
    """Return the error for rows that `add` did not write."""
    return EngineError(
        f"{where} has candidates whose id, text or vector was changed; build them again under another name."
    )


def remove(engine: VectorEngine, names: Sequence[str]) -> int:
    """Remove candidates by their ids, plain lines by their texts, from every model's collection, for the next search.

    Returns:
        How many of the names are in no collection.

    Raises:
        EngineError: nothing has been built under the engine's name; or they could not be removed from a collection,
            which the message names, and were from all others.
    """
    versions = sorted(engine.versions(), key=lambda version: not version.is_current)
    if not versions:
        raise EngineError(f"{engine.where} has no candidates named {engine.name}.")
    ids, left = np.unique(candidate_ids(names)), []
    found = np.zeros(len(ids), bool)
    for version in versions:
        try:
            collection = engine.collection(version)
            found |= collection.there(ids)
            collection.delete(ids)
        except EngineError as error:
            kind = "the current collection" if version.is_current else "one that is not searched"
            left.append(f"{kind}, of the model {version.model[:16]} ({error})")
    if left:
        raise EngineError(f"They remain in {' and in '.join(left)}; run the command again.")
    return int((~found).sum())
