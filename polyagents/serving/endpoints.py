"""The endpoints: POST /rank and /chat; in others' shapes /v1/rerank, /v2/rerank, /v1/embeddings, /v1/systemone."""

from typing import Any

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from polyagents.serving.answering import Answering
from polyagents.serving.cohere_messages import CohereProblem, RerankRequest, RerankResponse
from polyagents.serving.messages import ChatRequest, ChatResponse, Problem, RankRequest, RankResponse
from polyagents.serving.openai_messages import EmbeddingsRequest, EmbeddingsResponse, OpenAIProblem
from polyagents.serving.problems import EMBEDDINGS, MODELS, RERANK_V1, RERANK_V2, SYSTEM_ONE
from polyagents.serving.systemone_messages import Models, SystemOneRequest, SystemOneResponse

PROBLEMS = {
    400: "The body is not JSON, or did not come whole",
    401: "The token is missing or wrong",
    403: "Another site's page asks, or, without a token, the name is not this machine's",
    408: "The body did not arrive in time",
    413: "The body is too large",
    415: "The body is not declared as JSON",
    422: "A field is invalid",
    429: "Too many requests or texts of this client; Retry-After says when to try again",
    500: "The model failed",
    503: "Too many requests wait for the model, or the engine of its candidates does not answer",
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The reply; if Accept asks for text/event-stream, the events queued, ranking, reply "
        "(or error) as they happen",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
EXAMPLES: dict[str, dict[str, Any]] = {  # for the page that describes them
    "/rank": {"context": "hi !", "top_k": 3},
    "/chat": {"history": ["hi !"], "persona": ["your persona: i ski ."], "top_k": 3},
    RERANK_V1: {"query": "hi !", "documents": ["i ski", {"text": "hello"}], "return_documents": True},
    RERANK_V2: {"query": "hi !", "documents": ["i ski", "hello"], "top_n": 1},
    EMBEDDINGS: {"input": ["i ski", "hello"], "input_type": "document"},
    SYSTEM_ONE: {
        "state": "hi !",
        "questions": {"sport": {"type": "choice", "criteria": {"winter": ["i ski", "i skate"], "none": "hello"}}},
    },
}


def problems(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describe all errors of an endpoint, for its documentation, in the shape that they have."""
    return {status: {"model": model, "description": description} for status, description in PROBLEMS.items()}


def add_endpoints(app: FastAPI, answering: Answering) -> None:
    """Add our own endpoints, /rank and /chat."""

    @app.post("/rank", responses=problems(Problem), response_description="The matches")
    async def rank(request: RankRequest, http: HttpRequest) -> RankResponse:
        """Rank candidates for a context: the request's, or those that the server was started with."""
        return await answering.rank(request, http)

    @app.post("/chat", responses=problems(Problem) | STREAMED, response_model=ChatResponse)
    async def chat(request: ChatRequest, http: HttpRequest) -> Any:
        """Reply to a conversation."""
        asked = answering.chat(request, http)
        if "text/event-stream" in http.headers.get("accept", ""):
            return StreamingResponse(asked.events(), media_type="text/event-stream")
        return await asked.response()


def add_compatible_endpoints(app: FastAPI, answering: Answering) -> None:
    """Add the endpoints that clients of Cohere and OpenAI, and libraries on top of them, expect at this address."""
    shape: Any = {"responses": problems(CohereProblem), "response_model_exclude_none": True}

    @app.post(RERANK_V1, response_description="The results", **shape)
    async def rerank_v1(request: RerankRequest, http: HttpRequest) -> RerankResponse:
        """Order documents by their relevance to a query, in the shape of Cohere's API, version 1."""
        return await answering.rerank(request, http, "1")

    @app.post(RERANK_V2, response_description="The results", **shape)
    async def rerank_v2(request: RerankRequest, http: HttpRequest) -> RerankResponse:
        """Order documents by their relevance to a query, in the shape of Cohere's API, version 2."""
        return await answering.rerank(request, http, "2")

    @app.post(EMBEDDINGS, responses=problems(OpenAIProblem), response_description="The vectors")
    async def embeddings(request: EmbeddingsRequest, http: HttpRequest) -> EmbeddingsResponse:
        """Encode candidates, or a bi-encoder's contexts, in the shape of OpenAI's API; a score is a dot product."""
        return await answering.embed(request, http)

    @app.post(SYSTEM_ONE, responses=problems(Problem), response_description="The answers")
    async def systemone(request: SystemOneRequest, http: HttpRequest) -> SystemOneResponse:
        """Decide between options, with probabilities if the model is calibrated, in the shape of TypeSafe's API."""
        return await answering.decide(request, http)

    @app.get(MODELS, include_in_schema=False)
    async def models(http: HttpRequest) -> Models:
        """List the one model of this server, in the shape of TypeSafe's API."""
        return answering.models(http.state.served)
