"""What a server serves: one model, and the candidates that it was started with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.store import CandidateStore
from polyagents.index.texts import read_candidates
from polyagents.ranker import Candidates, Match, Ranker
from polyagents.ranking.task_candidates import task_candidates_file
from polyagents.zoo.resolve import zoo_file

SHORT = 256  # characters, some 60 tokens: up to there a call costs more than the padding


@dataclass(frozen=True)
class Served:
    """A model and its candidates.

    Attributes:
        ranker: the model.
        candidates: encoded as far as that can be done ahead.
        model: its file, as the user named it.
        source: the candidates file or index folder.
    """

    ranker: Ranker
    candidates: Candidates
    model: str
    source: str

    @classmethod
    def load(cls, model_file: str, candidates_file: str | None = None, index_dir: str | None = None) -> "Served":
        """Load a model and encode its candidates; without either source, all labels of its task, as `interactive`.

        Raises:
            InputError: something of it cannot be read, or there are no candidates.
        """
        ranker = Ranker.load(model_file)
        if index_dir:
            return cls(ranker, ranker.open_index(index_dir), model_file, index_dir)
        file = candidates_file or task_candidates_file(zoo_file(model_file), ranker.model.saved)
        return cls(ranker, ranker.prepare(read_candidates(file)), model_file, file)

    @property
    def kind(self) -> str:
        """What people call the architecture: bi-, poly- or cross-encoder."""
        return self.ranker.model.label

    def length_class(self, context: str) -> int:
        """Contexts of one class are worth encoding together.

        A batch is padded to its longest text. A GPU hardly minds; on a CPU that is work thrown away, and measured to
        cost more than a common call saves, but for short texts (benchmarks/serving.py).
        """
        if self.ranker.model.device.type != "cpu":
            return 0
        return max(round(2 * math.log2(max(len(context), 1) / SHORT)), 0)

    def rank(
        self, contexts: Sequence[str], candidates: tuple[str, ...] | None, top_k: int
    ) -> list[tuple[list[Match], bool]]:
        """`Ranker.rank` over a request's candidates, or over the server's where it brings none; and if complete."""
        ranked = self.candidates if candidates is None else candidates
        if isinstance(ranked, (CandidateStore, InMemoryCandidates)):
            return list(zip(*self.ranker.search(contexts, ranked, top_k), strict=True))
        return [(matches, True) for matches in self.ranker.rank(contexts, ranked, top_k)]
