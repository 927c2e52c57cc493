"""CandidateStore: millions of candidates on disk, mapped into memory, and never stale.

A folder has `manifest.json` and the shards (shard.py) that it names. The manifest names the model that encoded the
vectors and the file of the texts, and is replaced atomically once all its shards are there: a reader sees the store
before or after a change, never in between. A shard is named by its place, its model and its texts, so a build that was
killed finds the shards that it had finished, and a changed candidates file costs only the shards that differ.

Vectors belong to the weights that encoded them: a store of another model is refused when opened, and rebuilt by `build`
(ParlAI keys its caches by file name alone).
"""

import bisect
import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint, stream_digest, text_key, utf8
from polyagents.files.own_folder import refuse_foreign
from polyagents.files.python_arguments import texts_of
from polyagents.index.approximate import search_shortlist
from polyagents.index.builder import ALONE, CandidateEncoder, Cluster, Encode, Worker, write_shards
from polyagents.index.candidate_records import candidates_of, has_ids, read_candidates
from polyagents.index.exact import ScannedIndex
from polyagents.index.filters import Fields, Filter
from polyagents.index.in_memory import InMemoryCandidates, ListedCandidates
from polyagents.index.interface import DIGITS, Hits, Index
from polyagents.index.manifest import Manifest, index_folder, is_index
from polyagents.index.shard import SHARD, Shard
from polyagents.index.stored_vectors import STORED_AS, VectorBlock
from polyagents.index.texts import Texts, key_columns, open_candidates, places_among
from polyagents.models.two_towers import Query
from polyagents.ranking.ranking_model import RankingModel
from polyagents.ranking.two_tower_model import TwoTowerModel

ENGINES = ("milvus:", "milvus+https:", "postgres:", "postgresql:")  # a folder of such a name may have a password in it


class CandidateStore(ScannedIndex):
    """Candidates and their vectors in a folder, as they were when it was opened.

    It is a long class because reading and changing a store have to agree on one layout.

    >>> store = ranker.index("replies.txt", "replies.index")
    >>> len(store)
    6
    >>> store = ranker.append(store, ["see you"])
    >>> store = store.delete([store.find("bye")])
    >>> len(store), store[6]
    (6, 'see you')

    An index stays what it is for as long as the store lives: a deleted one stands for nothing, later ones do not move.
    """

    shortlist: Any = None
    """What finds candidates approximately (approximate.py); None for exact search."""

    def __init__(self, folder: str, manifest: Manifest):
        self.folder, self.manifest = os.path.abspath(folder), manifest  # valid after os.chdir, too
        self.encoded_by, self.stored_as, self.fields = manifest.model, manifest.stored_as, manifest.fields
        self.shards = manifest.open_shards(self.folder)
        self.starts = np.concatenate([[0], np.cumsum([len(shard) for shard in self.shards])]).tolist()
        self.deleted = np.array(manifest.deleted, np.int64)

    def __repr__(self) -> str:
        """Return its folder and its number of candidates."""
        size = f"{number_of(len(self), 'candidate')} of width {self.width}"
        return f"CandidateStore({self.folder!r}, {size}, {self.stored_as})"

    # ---- reading ---------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, folder: str, model: str | None) -> "CandidateStore":
        """Map a store into memory: fast, whatever its size; `Ranker.open_index` passes the fingerprint, too.

        >>> len(CandidateStore.open("replies.index", ranker.model.fingerprint()))
        6

        Args:
            model: the fingerprint of the model that encodes contexts; None for whichever encoded the store.

        Raises:
            InputError: there is no store, it is damaged, or other weights encoded it.
        """
        while True:
            written, manifest = Manifest.written(folder), Manifest.read(folder)
            if manifest is None:
                raise InputError(f"{folder} holds no finished candidate index; build it (polyagents index build).")
            if model is not None and manifest.model != model:
                raise InputError(
                    f"{folder} was encoded by another model, or by this one before more training; build it again."
                )
            try:
                return cls(folder, manifest)
            except InputError:
                # A builder may have replaced the manifest, perhaps by an equal one, and removed its shards meanwhile.
                if Manifest.written(folder) == written:
                    raise

    def __len__(self) -> int:
        """Return the number of candidates that are not deleted."""
        return self.slots - len(self.deleted)

    @property
    def slots(self) -> int:
        """One more than the highest index.

        >>> store = ranker.open_index("replies.index").delete([1])
        >>> store.slots, len(store)
        (6, 5)
        """
        return int(self.starts[-1])

    @property
    def width(self) -> int:
        """D, the width of its vectors.

        >>> ranker.open_index("replies.index").width
        128
        """
        return int(self.shards[0].tensors["vectors"].size(1))

    @property
    def is_approximate(self) -> bool:
        """Whether it has a shortlist.

        >>> ranker.open_index("replies.index").is_approximate
        False
        """
        return self.shortlist is not None

    def search(self, query: Query, k: int, where: Filter | None = None) -> list[Hits]:
        """Find the k best candidates of each of B contexts, by the shortlist if there is one.

        >>> store = ranker.open_index("replies.index")
        >>> [hits.complete for hits in store.search(ranker.query(["hi", "how are you"]), 3)]
        [True, True]
        """
        if self.shortlist is None:
            return super().search(query, k, where)
        allowed = None if where is None else self.mask(where)
        return self.hits(*search_shortlist(query, self.shortlist, self, k, allowed))

    def mask(self, where: Filter) -> np.ndarray:
        """Tell which candidates are not deleted and meet the conditions: [C] boolean.

        >>> store = ranker.index("faq.jsonl", "faq.index", fields=["language"])
        >>> store.mask(store.filter({"language": "en"}))
        array([ True,  True, False])
        """
        found = np.concatenate([shard.columns.mask(where) for shard in self.shards if shard.columns is not None])
        found[self.deleted] = False
        return found

    def ids_of(self, indices: Sequence[int] | np.ndarray) -> list[str] | None:
        """Return the ids of some candidates, in the order of the indices; None for plain lines.

        >>> ranker.index("faq.jsonl", "faq.index", fields=["language"]).ids_of([2, 0])
        ['c', 'a']
        """
        if self.fields is None:
            return None
        places = [self._place(int(index)) for index in indices]
        return [shard.columns.ids_of([place])[0] for shard, place in places if shard.columns is not None]

    def texts_of(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """Return the texts of some candidates, in the order of the indices.

        >>> ranker.open_index("replies.index").texts_of([5, 0])
        ['bye', 'hello']
        """
        places = map(self._place, map(int, indices))
        return [shard.texts(place, place + 1)[0] for shard, place in places]

    def find(self, name: str) -> int | None:
        """Return the index of a candidate by its id, a plain line's by its text; None if it is not among them.

        >>> store = ranker.open_index("replies.index")
        >>> store.find("bye"), store.find("good night")
        (5, None)
        """
        wanted = key_columns(text_key(utf8(name)))[0]
        for start, shard in zip(self.starts, self.shards, strict=False):
            keys = shard.tensors["keys"].numpy()
            for place in np.flatnonzero(keys[:, 0] == wanted[0]):
                if keys[place, 1] == wanted[1] and start + place not in self.deleted:
                    return int(start + place)
        return None

    def texts(self) -> Iterator[str]:
        """Yield all candidates that are not deleted, in order, reading a shard at a time.

        >>> next(ranker.open_index("replies.index").texts())
        'hello'
        """
        gone = set(self.deleted.tolist())
        for start, shard in zip(self.starts, self.shards, strict=False):
            yield from (text for index, text in enumerate(shard.texts(), start) if index not in gone)

    def blocks(self) -> Iterator[VectorBlock]:
        """Yield all vectors, mapped into memory: [n, D] at a time, as they are stored.

        >>> [block.vectors.shape for block in ranker.open_index("replies.index").blocks()]
        [torch.Size([6, 128])]
        """
        for start, shard in zip(self.starts, self.shards, strict=False):
            first, last = np.searchsorted(self.deleted, [start, start + len(shard)])
            alive = None
            if first < last:
                alive = torch.ones(len(shard)).bool()
                alive[torch.from_numpy(self.deleted[first:last] - start)] = False
            yield shard.block(start, alive)

    @property
    def identity(self) -> str:
        """A digest that differs between stores of different vectors.

        >>> ranker.open_index("replies.index").identity == ranker.open_index("replies.index").identity
        True
        """
        return fingerprint(shard.checksum for shard in self.shards)

    @property
    def generation(self) -> str:
        """The number of its manifest, and a digest of its candidates, so that equal copies of a folder are seen to be.

        >>> ranker.open_index("replies.index").generation[:2]
        '1-'
        """
        content = fingerprint([self.identity, self.deleted.tobytes()])
        return f"{self.manifest.generation}-{content[:DIGITS]}"

    def rows(self, indices: Sequence[int] | np.ndarray) -> Tensor:
        """Return some of the vectors, [r, D] fp32, in the order of the indices.

        >>> ranker.open_index("replies.index").rows([5, 0]).shape
        torch.Size([2, 128])
        """
        wanted = np.asarray(indices, np.int64)
        out = torch.empty(len(wanted), self.width)
        owner = np.searchsorted(self.starts, wanted, side="right") - 1
        for shard in np.unique(owner):
            places = np.flatnonzero(owner == shard)
            local = torch.from_numpy(wanted[places] - self.starts[shard])
            out[torch.from_numpy(places)] = self.shards[shard].block(0, None).exact(local)
        return out

    # ---- changing --------------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        candidates_file: str,
        folder: str,
        encoder: CandidateEncoder,
        worker: Worker = ALONE,
        cluster: Cluster | None = None,
        fields: Fields | None = None,
    ) -> "CandidateStore":
        """Return the store of a file's candidates; it is built or completed unless it is up to date.

        `Ranker.index` calls it, and is what most users call.

        >>> from polyagents.index.builder import CandidateEncoder
        >>> len(CandidateStore.build("replies.txt", "replies.index", CandidateEncoder.of(ranker.model)))
        6

        Args:
            candidates_file: UTF-8, one candidate a line; blank lines and repetitions are skipped. Or JSON lines or
                Parquet, with an id each (candidate_records.py).
            folder: created if it is missing.
            worker: decides this process's part of the work, if several build together.
            cluster: machines that encode, instead of this one.
            fields: name and kind of each field that is kept, of a file with ids.

        Raises:
            InputError: the file cannot be read, the disk is full, the folder is another's, or candidates of it were
                added or deleted by hand.
        """
        if encoder.stored_as not in STORED_AS:
            raise InputError(f"Vectors are stored as {', '.join(STORED_AS)}, not {encoder.stored_as!r}.")
        if folder.startswith(ENGINES):
            raise InputError(
                "The index folder is the URL of an engine; give it as --index-url or, in Python, to index_in_engine."
            )
        with open_candidates(candidates_file) as file:
            source = stream_digest(file)  # the `digest` of its CandidatesFile
        declared = dict(fields or {}) if has_ids(candidates_file) else None
        store = cls._true_store(folder, encoder, source, declared)
        refuse_foreign(folder, "index build", "--index-dir", is_index)
        worker.wait()  # all check before one writes
        if store is not None:
            return store
        texts = candidates_of(candidates_file, fields)  # errors in it are reported before a folder is created
        with index_folder(folder) if worker.rank == 0 else contextlib.nullcontext():
            worker.wait()  # the first worker has waited for other builders, which may remove shards that are not theirs
            store = cls._true_store(folder, encoder, source, declared) if worker.world == 1 else None
            if store is not None:  # the process that we waited for has built just this
                return store
            before = Manifest.read(folder)
            if before is not None and before.source is None:
                raise InputError(
                    f"Candidates were added to or deleted from {folder} since it was built, and building it from "
                    f"{candidates_file} would undo that; use it as it is, give another folder, or remove this one."
                )
            shards = write_shards(folder, texts, encoder, worker, cluster=cluster)
            worker.wait()
            if worker.rank == 0:
                Manifest(encoder.model, texts.digest, encoder.stored_as, shards, fields=declared).commit(folder)
            worker.wait()
            return cls.open(folder, encoder.model)

    @classmethod
    def _true_store(
        cls, folder: str, encoder: CandidateEncoder, source: str, fields: dict[str, str] | None
    ) -> "CandidateStore | None":
        manifest = Manifest.read(folder)
        made = None if manifest is None else (manifest.model, manifest.source, manifest.stored_as, manifest.fields)
        if made != (encoder.model, source, encoder.stored_as, fields):
            return None
        with contextlib.suppress(InputError):  # damaged: building repairs it
            return cls.open(folder, encoder.model)
        return None

    def append(self, texts: Texts, encode: Encode) -> "CandidateStore":
        """Add candidates that the store lacks at its end; a deleted one returns to its old place.

        A candidate with the id of another text or other fields replaces it: the old one is deleted.

        `Ranker.append` calls it, and is what most users call. A killed append leaves the store unchanged, and resumes
        when it is called again.

        >>> from polyagents.index.texts import ListedTexts
        >>> store = ranker.open_index("replies.index").append(ListedTexts(["bye", "see you"]), ranker.encode_candidates)
        >>> len(store)
        7

        Args:
            encode: encodes texts to vectors, by the same model.

        Raises:
            InputError: the disk is full, or the folder may not be written.
        """
        with index_folder(self.folder):
            now = CandidateStore.open(self.folder, self.manifest.model)
            manifest = now.manifest
            gone: dict[bytes, list[int]] = {}
            for index in manifest.deleted:
                gone.setdefault(now._key(index), []).append(index)
            there = now._places(texts.keys)
            fresh, deleted = [], set(manifest.deleted)
            for place, index in enumerate(there.tolist()):
                if index >= 0 and now._has(index, texts, place):
                    continue
                if index >= 0:
                    deleted.add(index)
                same = [old for old in gone.get(texts.keys[place].tobytes(), ()) if now._has(old, texts, place)]
                if same:
                    deleted.discard(same[0])  # another text of the same key may have brought it back
                else:
                    fresh.append(place)
            texts.keep(np.array(fresh, np.int64))
            shards = list(manifest.shards)
            if len(texts):
                last = now.shards[-1] if len(now.shards[-1]) < SHARD else None
                shards = shards[:-1] if last is not None else shards
                encoder = CandidateEncoder(manifest.model, encode, manifest.stored_as)
                shards += write_shards(self.folder, texts, encoder, ALONE, first=len(shards), last=last)
            if len(texts) or deleted != set(manifest.deleted):
                replace(manifest, source=None, shards=shards, deleted=sorted(deleted)).commit(self.folder)
            return CandidateStore.open(self.folder, manifest.model)

    add = append  # as every `Index` calls it

    def remove(self, names: Sequence[str]) -> "CandidateStore":
        """Delete candidates by their ids, plain lines by their texts; missing ones are skipped.

        >>> len(ranker.open_index("replies.index").remove(["bye", "good night"]))
        5
        """
        keys = b"".join(text_key(utf8(name)) for name in texts_of(names, "names"))
        places = self._places(key_columns(keys))
        return self.delete(places[places >= 0].tolist())

    def delete(self, indices: Iterable[int]) -> "CandidateStore":
        """Delete candidates; their vectors stay on disk until the store is rebuilt.

        >>> store = ranker.open_index("replies.index")
        >>> len(store.delete([store.find("bye")]))
        5

        Raises:
            InputError: the store has no such index, or no candidate would remain.
        """
        wanted = {int(index) for index in indices}
        with index_folder(self.folder):
            now = CandidateStore.open(self.folder, self.manifest.model)
            for index in wanted:
                if not 0 <= index < now.slots:
                    raise InputError(f"{index} is not an index of {self.folder}, which has 0 to {now.slots - 1}.")
                if index < self.slots and now._key(index) != self._key(index):
                    raise InputError(f"{self.folder} was rebuilt since it was opened; open it again.")
            deleted = sorted(wanted.union(now.manifest.deleted))
            if len(deleted) == now.slots:
                raise InputError(f"That would leave {self.folder} without any candidate; remove the folder instead.")
            if len(deleted) > len(now.deleted):
                replace(now.manifest, source=None, deleted=deleted).commit(self.folder)
            return CandidateStore.open(self.folder, self.manifest.model)

    def _places(self, keys: np.ndarray) -> np.ndarray:
        """Return the index of the candidate with each key [C, 2]; -1 if there is none, or it was deleted."""
        stored = np.concatenate([shard.tensors["keys"].numpy() for shard in self.shards])
        alive = np.ones(len(stored), bool)
        alive[self.deleted] = False
        indices = np.flatnonzero(alive)
        found = places_among(keys, stored[indices])
        return np.where(found >= 0, indices[found], -1)

    def _has(self, index: int, texts: Texts, place: int) -> bool:
        """Tell whether a candidate of the same id has the same text and fields as one of the texts."""
        shard, own = self._place(index)
        return shard.columns is None or shard.records(own, own + 1) == texts.records(place, place + 1)

    def _key(self, index: int) -> bytes:
        shard, place = self._place(index)
        return bytes(shard.tensors["keys"][place].numpy().tobytes())

    def _place(self, index: int) -> tuple[Shard, int]:
        owner = bisect.bisect_right(self.starts, index) - 1
        return self.shards[owner], index - self.starts[owner]


def candidates_of_file(candidates_file: str, model: RankingModel, model_file: str | None) -> Index:
    """Return the candidates of a file for a model, searched exactly.

    Their vectors are stored next to the model file, as M.NAME.index; in fp32, unless `index build` has put another
    format there. A model without vectors has the texts.

    Args:
        model_file: None, or in a folder that may not be written, keeps the vectors in memory.
    """
    if not isinstance(model, TwoTowerModel):
        return ListedCandidates(read_candidates(candidates_file), model)
    # A label is looked up by its text, so candidates with ids are listed by theirs.
    is_writable = model_file and os.access(os.path.dirname(os.path.abspath(model_file)), os.W_OK)
    if not model_file or not is_writable or has_ids(candidates_file):
        return InMemoryCandidates.encode(read_candidates(candidates_file), model)
    folder = f"{model_file}.{os.path.splitext(os.path.basename(candidates_file))[0]}.index"
    before = Manifest.read(folder)
    stored_as = "fp32" if before is None else before.stored_as
    return CandidateStore.build(candidates_file, folder, CandidateEncoder.of(model, stored_as))
