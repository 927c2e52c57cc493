"""What a user would write to rank candidates with sentence-transformers over HTTP, for benchmarks/load.py."""

import os

from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer


class Question(BaseModel):
    """A request."""

    context: str
    top_k: int = 10


def app() -> FastAPI:
    """Build the application; the environment names the model, and a file with one candidate per line."""
    model = SentenceTransformer(os.environ["ENCODER"], device="cpu")
    with open(os.environ["CANDIDATES"], encoding="utf-8") as file:
        candidates = file.read().splitlines()
    vectors = model.encode(candidates, convert_to_tensor=True, normalize_embeddings=True)
    service = FastAPI()

    @service.post("/rank")
    def rank(question: Question) -> dict[str, list[dict[str, object]]]:
        vector = model.encode(question.context, convert_to_tensor=True, normalize_embeddings=True)
        best = (vectors @ vector).topk(min(question.top_k, len(candidates)))
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return {"matches": [{"index": at, "text": candidates[at], "score": score} for at, score in found]}

    return service
