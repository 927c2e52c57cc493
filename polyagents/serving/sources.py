"""The files or the engine from which a server loads its model and candidates, and whether they have changed.

A file is not read to see whether it has changed: another size, time of change or number of its inode says so, also if a
link leads to another file now.
"""

import glob
import os
import stat
from dataclasses import dataclass, replace
from typing import Any

from polyagents.backends.runtimes import TORCH
from polyagents.errors import InputError
from polyagents.index.candidate_records import candidates_of
from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.faiss_index import DESCRIPTION, builder_of
from polyagents.index.filters import declared_fields
from polyagents.index.in_memory import ListedCandidates, as_index
from polyagents.index.interface import Index
from polyagents.index.manifest import MANIFEST
from polyagents.index.store import CandidateStore
from polyagents.pipeline import RERANK_TOP
from polyagents.ranker import Ranker
from polyagents.ranking.task_candidates import task_candidates_file
from polyagents.serving.served import Served
from polyagents.zoo.resolve import zoo_file

PARTS = ("", ".opt", ".dict", ".calibration.json")  # of a model file


@dataclass(frozen=True)
class Sources:
    """What `serve` was told to serve: a model, and candidates; by default all labels of its task, as `interactive`.

    Attributes:
        candidates_file: one candidate per line; or with ids, JSON lines, CSV or Parquet.
        index_dir: a folder that `index build` has written.
        index_url: an engine and the name of its candidates.
        backend: the runtime of the encoders, as for `Ranker.load`.
        hand_over: the probability below which a person should reply.
        rerank: the file of a second model, which orders the best `rerank_top` candidates anew.
        fields: declared fields of a candidates file with ids, between commas, as for `Ranker.index`.
    """

    model_file: str
    candidates_file: str | None = None
    index_dir: str | None = None
    index_url: str | None = None
    backend: str = TORCH
    hand_over: float = 0.0
    rerank: str | None = None
    rerank_top: int = RERANK_TOP
    fields: str | None = None

    def read(self) -> Served:
        """Load the model and encode its candidates; an InputError says what cannot be read, or that there are none."""
        ranker, second = Ranker.load(self.model_file, backend=self.backend), None
        if self.rerank:
            other = Ranker.load(self.rerank, backend=self.backend)
            second = Served(other, ListedCandidates([], other.model), public_name(self.rerank), "")
        index: Index
        if self.index_url:
            made = index = ranker.open_engine(self.index_url)
            source = made.engine.name
        elif self.index_dir:
            index, source = ranker.open_index(self.index_dir), public_name(self.index_dir)
        else:
            file = self.candidates_file or task_candidates_file(zoo_file(self.model_file), ranker.model.settings.saved)
            prepared = ranker.prepare(candidates_of(file, declared_fields(self.fields)))
            index, source = as_index(prepared, ranker.model), public_name(file)
        return Served(ranker, index, public_name(self.model_file), source, second=second, rerank_top=self.rerank_top)

    def load(self) -> Served:
        """Load a generation (model, candidates, calibration) and try it out; an InputError says what does not fit."""
        stamps, served = self.stamps(), self.read()
        try:
            served = replace(served, hand_over=self.hand_over, stamps=stamps | alias_of(served))
            if self.hand_over and not served.score_map[1]:
                raise InputError(
                    f"--hand-over needs probabilities, and {served.model} has no calibration: run polyagents calibrate."
                )
            served.try_out()
        except BaseException:
            served.close()
            raise
        return served

    def load_after(self, old: Served) -> Served:
        """Load what should replace a generation; an InputError says if it is worse, or its files are changing."""
        found = self.load()
        try:
            store = found.candidates
            if old.candidates.is_approximate and isinstance(store, CandidateStore) and not store.is_approximate:
                raise InputError(
                    f"{self.index_dir} has no approximate index for its present candidates, and an exact search would "
                    f"take longer; run {builder_of(store)} with --index-type, or restart the server."
                )
            if self.stamps() | alias_of(found) != found.stamps:
                raise InputError("The files of the model or its candidates changed while they were read.")
        except BaseException:
            found.close()
            raise
        return found

    def stamps(self) -> dict[str, Any]:
        """Return the state of each file that `load` reads; what is missing is left out."""
        model = zoo_file(self.model_file)
        paths = self.paths_of(model)
        if self.rerank:
            paths += self.paths_of(zoo_file(self.rerank))
        if self.index_dir:
            paths += [os.path.join(self.index_dir, name) for name in (MANIFEST, DESCRIPTION)]
        elif self.candidates_file:
            paths.append(self.candidates_file)
        elif not self.index_url:
            paths += glob.glob(f"{glob.escape(model)}.cands-*.cands")  # of its task, as task_candidates_path names it
        return {path: stamp for path in paths if (stamp := stamp_of(path)) is not None}

    def paths_of(self, model: str) -> list[str]:
        """Return the files of a model, file or folder, and of its export."""
        folder = glob.glob(os.path.join(glob.escape(model), "*"))
        export = glob.glob(os.path.join(glob.escape(f"{model}.{self.backend}"), "*.json"))
        return [*(f"{model}{part}" for part in PARTS), *folder, *export]


def stamp_of(path: str) -> tuple[int, int, int] | None:
    """Return size, time of change and number of a file, or of the one that a link leads to; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def alias_of(served: Served) -> dict[str, Any]:
    """Return which model's collection an engine's name refers to now, or an EngineError; {} without an engine."""
    candidates = served.candidates
    if not isinstance(candidates, EngineCandidates):
        return {}
    return {"alias": [version.model for version in candidates.engine.versions() if version.is_current]}


def public_name(path: str) -> str:
    """Return what clients may see of a path: its last part; a name in the zoo is not a path."""
    return path if path.startswith("zoo:") else os.path.basename(os.path.abspath(path))
