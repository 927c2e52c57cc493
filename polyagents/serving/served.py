"""The content of a server: one model, and the candidates that it was started with."""

import datetime
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from polyagents.console import say
from polyagents.decisions.calibration import misfit
from polyagents.decisions.score_map import ScoreMap
from polyagents.decisions.scoring import SHORTLIST
from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint
from polyagents.index.filters import Filter
from polyagents.index.in_memory import ListedCandidates
from polyagents.index.interface import DIGITS, Index
from polyagents.models.bi import BiEncoder
from polyagents.models.encoder import CHUNK_TOKENS
from polyagents.pipeline import RERANK_TOP
from polyagents.properties import cached_property
from polyagents.ranker import Match, Ranker, matches_of
from polyagents.ranking.option_texts import OptionTexts
from polyagents.ranking.pieces import Steps, finished, pieces
from polyagents.ranking.two_tower_model import two_towers
from polyagents.serving.batching import Encoding, RankingResult
from polyagents.serving.limits import PIECE_CHUNKS
from polyagents.serving.problems import RERANK_V2, Unanswerable

ContextMatches = tuple[list[Match], bool]
"""The matches of one context, and whether they are complete (Ranker.search)."""

SHORT = 256  # characters, some 60 tokens: up to there a call costs more than the padding


@dataclass(frozen=True, eq=False)
class Served:
    """A model and its candidates: one generation of what a server serves, which is replaced as a whole.

    Attributes:
        candidates: encoded as far as possible in advance.
        model: the name of the model, which clients see: the model file's without its folder.
        source: the name of the candidates file or index folder, likewise, or the name in an engine.
        hand_over: the probability below which a person should reply.
        second: a model that orders the best `rerank_top` candidates anew; None for none. Its own candidates are none.
        stamps: of the files that it was loaded from, before they were read (sources.py); None for one in memory.
    """

    ranker: Ranker
    candidates: Index
    model: str
    source: str
    hand_over: float = 0.0
    second: "Served | None" = None
    rerank_top: int = RERANK_TOP
    stamps: Mapping[str, Any] | None = None

    @cached_property
    def size(self) -> int:
        """Return the number of candidates when this was first asked: an engine of billions takes a while to count."""
        return len(self.candidates)

    @cached_property
    def trace(self) -> dict[str, str]:
        """What answers, by names for headers, probes, metrics and logs; equal on all servers that answer alike."""
        known = self.ranker.calibration if self.score_map[1] else None
        return {
            "model": self.model,
            "fingerprint": self.digest,
            "index": self.source,
            "generation": self.candidates.generation,
            "backend": self.ranker.model.backend,
            "calibration": "none" if known is None else fingerprint([repr(known.map)])[:DIGITS],
        } | ({} if self.second is None else {"reranker": f"{self.second.model}-{self.second.digest}-{self.rerank_top}"})

    @cached_property
    def digest(self) -> str:
        """The first digits of a digest of the model's weights and settings."""
        return str(self.ranker.identity)[:DIGITS]

    def try_out(self) -> None:
        """Rank once, which also reads the vectors from the disk, so that no request waits for these.

        Raises:
            InputError: the model or its candidates give no numbers, or something of it is damaged.
        """
        _, _ = self.trace, self.size
        ((matches, _),) = finished(self.rank(["hi"], None, SHORTLIST))
        scores = [match.score for match in matches]
        if self.second is not None and matches:
            listed = tuple(match.text for match in matches[: self.rerank_top])
            ((matches, _),) = finished(self.second.rank(["hi"], listed, SHORTLIST))
            scores += [match.score for match in matches]
        if not np.isfinite(scores).all():
            raise InputError(f"{self.model} gives scores that are not numbers for candidates of {self.source}.")

    def close(self) -> None:
        """Release the candidates' files, memory or connection, and the model; neither can be used afterwards."""
        self.candidates.close()
        if self.second is not None:
            self.second.close()
        vars(self.ranker.model).clear()  # its memory is free at once, whoever still holds the model

    @property
    def kind(self) -> str:
        """Return the usual name of the architecture: bi-, poly-, uni- or cross-encoder."""
        return self.ranker.model.label

    @cached_property
    def score_map(self) -> tuple[ScoreMap, bool]:
        """The map from scores to probabilities, and whether it is a calibration of this model.

        Otherwise it is the softmax of the training loss, whose numbers are not probabilities.
        """
        ranker = self.ranker
        known = ranker.calibration
        if known is not None:
            second = None if self.second is None else self.second.ranker.identity
            problem = misfit(known, ranker.identity, second, self.rerank_top)
            if problem is None:
                return known.map, True
            say(problem)
        last = None if self.second is None else 1 / self.second.ranker.model.module.logit_scale
        return ScoreMap(1 / ranker.model.module.logit_scale, last), False

    def certainty(self, ranked: RankingResult, reply: str) -> dict[str, Any]:
        """Return the probability of a reply among matches, None without a calibration, and whether a person should."""
        used, calibrated = self.score_map
        if not calibrated:
            return {"probability": None, "hand_over": False}
        names, scores = scores_by_text(ranked.shortlist or ranked.matches)
        last = None
        if ranked.shortlist is not None:
            again = dict(zip(*scores_by_text(ranked.matches), strict=True))
            last = np.array([again.get(name, -np.inf) for name in names])
        probabilities, none = used.probabilities_of(scores, last)
        probability = float(probabilities[names.index(reply)])
        return {"probability": probability, "hand_over": probability < max(self.hand_over, none)}

    @property
    def date(self) -> str:
        """The day on which the model was written, YYYY-MM-DD; today for one in memory."""
        file = self.ranker.file
        changed = os.path.getmtime(file) if file is not None and os.path.exists(file) else time.time()
        return datetime.date.fromtimestamp(changed).isoformat()

    def option_scores(self, options: OptionTexts, scores: Mapping[str, float]) -> np.ndarray:
        """Return the scores [O] of options from the scores of all texts."""
        of_texts = torch.tensor([[scores[text] for text in options.texts]], dtype=torch.float64)
        return options.scores(of_texts, self.ranker.model.module.logit_scale)[0].numpy()

    def count_tokens(self, context: str, texts: Sequence[str]) -> int:
        """Count the tokens that the model reads of a context and of candidates."""
        model = self.ranker.model
        read = model.candidates(texts) if texts else []
        return len(model.context_ids([context])[0]) + sum(len(candidate.ids) for candidate in read)

    @property
    def reads(self) -> int:
        """Return how many texts the model encodes to rank the server's own candidates for one context."""
        return self.candidates.reads

    @property
    def document_tokens(self) -> int | None:
        """Return how many tokens the model reads of a candidate, at most; None for all."""
        return self.ranker.model.settings.label_truncate

    @property
    def piece_tokens(self) -> int:
        """Return how many tokens the model reads before it is another client's turn."""
        return PIECE_CHUNKS * CHUNK_TOKENS.get(self.ranker.model.device.type, CHUNK_TOKENS["cuda"])

    def check(self) -> None:
        """Raise an EngineError if the candidates are in an engine that does not answer."""
        self.candidates.check()

    def length_class(self, text: str) -> int:
        """Return the class of a text's length; texts of one class are worth encoding together.

        A batch is padded to its longest text. On a GPU padding costs little; on a CPU it is wasted work, and was
        measured to cost more than a common call saves, except for short texts (benchmarks/serving.py).
        """
        if self.ranker.model.device.type != "cpu":
            return 0
        return max(round(2 * math.log2(max(len(text), 1) / SHORT)), 0)

    def rank(
        self, contexts: Sequence[str], candidates: tuple[str, ...] | None, top_k: int, where: Filter | None = None
    ) -> Steps[list[ContextMatches]]:
        """Rank a request's candidates, or the server's own if they are None, as `Ranker.rank` does.

        Args:
            where: conditions that the server's own must meet.

        Returns:
            The `top_k` matches of each context, and whether they are complete.
        """
        model = self.ranker.model
        index = self.candidates if candidates is None else ListedCandidates(candidates, model)
        found = yield from index.search_in_pieces(model, model.context_ids(contexts), top_k, self.piece_tokens, where)
        return [(matches_of(hits), hits.complete) for hits in found]

    def encode(self, texts: Sequence[str], are_contexts: bool) -> Steps[Encoding]:
        """Encode candidates as an index does, or a bi-encoder's contexts; Unanswerable if there are no such vectors."""
        model = self.ranker.model
        if not model.encodes_candidates:
            raise Unanswerable(
                f"A {model.label} reads a context and a candidate together and has no vectors of either; serve a bi- "
                f"or poly-encoder, or rank with POST {RERANK_V2}."
            )
        model = two_towers(model)
        if are_contexts and not isinstance(model.module, BiEncoder):
            raise Unanswerable(
                f"A {model.label} has no single vector of a context; ask for candidates' vectors (input_type "
                f"document), serve a bi-encoder, or rank with POST {RERANK_V2}."
            )
        ids: list[Sequence[int]]
        ids = [*(model.context_ids(texts) if are_contexts else (given.ids for given in model.candidates(texts)))]
        places: list[int] = []  # of the vectors, in the order in which they are computed
        vectors = []
        for piece in pieces(list(map(len, ids)), self.piece_tokens):
            some = [ids[place] for place in piece]
            encoded = model.query(some).context.vectors[:, 0] if are_contexts else model.encode_ids(some)  # [n, D]
            places += piece
            vectors.append(encoded.cpu().numpy())
            yield
        return Encoding(np.concatenate(vectors)[np.argsort(places)], list(map(len, ids)))


def scores_by_text(matches: Sequence[Match]) -> tuple[list[str], np.ndarray]:
    """Return the different texts of matches, and the score of each."""
    found = {match.text: match.score for match in matches}
    return list(found), np.array(list(found.values()), np.float64)
