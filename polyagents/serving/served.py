"""What a server offers: one model, and the candidates that it was started with."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyagents.errors import InputError
from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.texts import read_candidates
from polyagents.models.bi import BiEncoder
from polyagents.ranker import Encoded, Ranker
from polyagents.ranking.task_candidates import task_candidates_file
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.serving.batching import ContextMatches, Encoding
from polyagents.serving.paths import RERANK_V2
from polyagents.zoo.resolve import zoo_file

SHORT = 256  # characters, some 60 tokens: up to there a call costs more than the padding


@dataclass(frozen=True)
class Served:
    """A model and its candidates.

    Attributes:
        ranker: the model.
        candidates: the candidates, encoded as far as possible in advance.
        model: the model file, as the user named it.
        source: the candidates file, the index folder, or the name in an engine (whose address stays private).
    """

    ranker: Ranker
    candidates: Sequence[str] | Encoded
    model: str
    source: str

    @classmethod
    def load(
        cls,
        model_file: str,
        candidates_file: str | None = None,
        index_dir: str | None = None,
        index_url: str | None = None,
        backend: str = "torch",
    ) -> "Served":
        """Load a model and encode its candidates; without any source, all labels of its task, as `interactive`.

        Args:
            model_file: the model.
            candidates_file: one candidate per line.
            index_dir: a folder that `build_index` has written.
            index_url: an engine and the name of its candidates.
            backend: the runtime of the encoders: torch, onnx or openvino.

        Returns:
            The model with its candidates, encoded.

        Raises:
            InputError: something of it cannot be read, or there are no candidates.
        """
        ranker = Ranker.load(model_file, backend=backend)
        if index_url:
            candidates = ranker.open_engine(index_url)
            return cls(ranker, candidates, model_file, candidates.engine.name)
        if index_dir:
            return cls(ranker, ranker.open_index(index_dir), model_file, index_dir)
        file = candidates_file or task_candidates_file(zoo_file(model_file), ranker.model.saved)
        return cls(ranker, ranker.prepare(read_candidates(file)), model_file, file)

    @functools.cached_property
    def size(self) -> int:
        """Return the number of candidates when this was first asked: an engine of billions takes a while to count."""
        return len(self.candidates)

    @property
    def kind(self) -> str:
        """Return the usual name of the architecture: bi-, poly-, uni- or cross-encoder."""
        return self.ranker.model.label

    def check(self) -> None:
        """Check that the engine of the candidates, if there is one, answers.

        Raises:
            EngineError: it does not.
        """
        if isinstance(self.candidates, EngineCandidates):
            self.candidates.collection.there(np.array([0]))

    def length_class(self, text: str) -> int:
        """Return the class of a text's length; texts of one class are worth encoding together.

        A batch is padded to its longest text. On a GPU padding costs little; on a CPU it is wasted work, and was
        measured
        to cost more than a common call saves, except for short texts (benchmarks/serving.py).
        """
        if self.ranker.model.device.type != "cpu":
            return 0
        return max(round(2 * math.log2(max(len(text), 1) / SHORT)), 0)

    def rank(self, contexts: Sequence[str], candidates: tuple[str, ...] | None, top_k: int) -> list[ContextMatches]:
        """Rank a request's candidates, or the server's own if there are none, by `Ranker.rank`.

        Args:
            contexts: the contexts to rank for.
            candidates: the texts to rank; None for the server's own candidates.
            top_k: how many matches to return for each context.

        Returns:
            The matches of each context, and whether they are complete.
        """
        ranked = self.candidates if candidates is None else candidates
        if isinstance(ranked, Encoded):
            return list(zip(*self.ranker.search(contexts, ranked, top_k), strict=True))
        return [(matches, True) for matches in self.ranker.rank(contexts, ranked, top_k)]

    def encode(self, texts: Sequence[str], are_contexts: bool) -> Encoding:
        """Encode candidates, with the vectors that an index has of them, or a bi-encoder's contexts.

        Args:
            texts: the texts to encode.
            are_contexts: True for contexts, False for candidates.

        Returns:
            One vector per text.

        Raises:
            InputError: the model has no such vectors.
        """
        model = self.ranker.model
        if not isinstance(model, TwoTowerModel):
            raise InputError(
                f"A {model.label} reads a context and a candidate together and has vectors of neither; serve a bi- or "
                f"poly-encoder, or rank with POST {RERANK_V2}."
            )
        if are_contexts and not isinstance(model.module, BiEncoder):
            raise InputError(
                f"A {model.label} has no single vector of a context; ask for those of candidates (input_type "
                f"document), serve a bi-encoder, or rank with POST {RERANK_V2}."
            )
        if are_contexts:
            ids: Sequence[Sequence[int]] = model.context_ids(texts)
            vectors = model.query(ids).context.vectors[:, 0]  # [B, 1, D] -> [B, D]
        else:
            ids = [candidate.ids for candidate in model.candidates(texts)]
            vectors = model.encode_ids(ids)
        return Encoding(vectors.cpu().numpy(), list(map(len, ids)))
