"""Instead of a model and its candidates: what the servers' tests serve where no model is needed."""

from types import SimpleNamespace

import numpy as np

from polyagents import Match
from polyagents.decisions.score_map import ScoreMap
from polyagents.index.in_memory import ListedCandidates
from polyagents.serving.batching import Batcher, Encoding
from polyagents.serving.served import Served

WIDTH = 2
HERE = "http://127.0.0.1:8008"
REPLIES = ["hi there", "so you like red", "so you like blue", "i do not know", "tell me more", "bye"]


class Stand:
    """Instead of a `Served`: a model that is a function, and reads so many candidates in one piece."""

    kind, candidates, size, reads, document_tokens = "bi-encoder", ListedCandidates(REPLIES, None), len(REPLIES), 1, 72
    generation, stamps, is_closed = "1", None, False
    second, rerank_top = None, 50
    score_map, hand_over, date = (ScoreMap(1.0), False), 0.0, "2026-01-01"
    certainty, option_scores = Served.certainty, Served.option_scores
    ranker = SimpleNamespace(model=SimpleNamespace(module=SimpleNamespace(logit_scale=1.0)))

    def __init__(self, rank, model="M", source="replies.txt", piece=1_000):
        self.answer, self.model, self.source, self.piece = rank, model, source, piece

    def rank(self, contexts, candidates, top_k, where=None):
        """All that the function says, after one piece of candidates after the other."""
        for _ in range(self.piece, len(candidates or ()), self.piece):
            self.answer(contexts, candidates, top_k)
            yield
        return self.answer(contexts, candidates, top_k)

    def count_tokens(self, context, texts):
        return len(" ".join([context, *texts]).split())

    def length_class(self, text):
        return 0

    def encode(self, texts, are_contexts):
        """A text's vector is its length, and whether it is a context."""
        vectors = np.array([[len(text), are_contexts] for text in texts], np.float32)  # [N, WIDTH]
        yield
        return Encoding(vectors, [len(text.split()) for text in texts])

    def check(self):
        pass

    def close(self):
        self.is_closed = True

    @property
    def trace(self):
        return {"model": self.model, "fingerprint": "f", "index": self.source, "generation": self.generation}


class Queue(Batcher):
    """The queue of one model."""

    def __init__(self, model, **limits):
        super().__init__(**limits)
        self.model = model

    def ask(self, job, client=""):
        return super().ask(job, self.model, client)


def echo(contexts, candidates, top_k):
    """The context is the reply; `bad` breaks the model, with all that is ranked at once."""
    if "bad" in contexts:
        raise RuntimeError("out of memory")
    return [([Match(0, context, 1.0)], True) for context in contexts]
