"""A page for people who answer customers: three suggested replies to choose from, or to change.

python app.py --model-file runs/support --index-dir replies.index
"""

import argparse
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from polyagents import InputError, Ranker

PAGE = Path(__file__).with_name("page.html")
SUGGESTIONS = 3


class Conversation(BaseModel):
    """What was written so far, by the customer and by the shop, oldest first."""

    turns: list[Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]] = Field(
        min_length=1, max_length=50
    )


class Suggestion(BaseModel):
    """A reply that somebody may send."""

    text: str
    score: float


def create_app(model_file: str, index_dir: str) -> FastAPI:
    """Load the model and its encoded replies, and make the web application.

    Args:
        model_file: a bi- or poly-encoder that train_model wrote.
        index_dir: the folder that `index build` wrote.

    Raises:
        InputError: one of them is not there, or the index belongs to another model.
    """
    ranker = Ranker.load(model_file)
    replies = ranker.open_index(index_dir)
    app = FastAPI(title="Support replies")
    # Pages of other sites that point a name of theirs at this machine are refused.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE, headers={"Content-Security-Policy": "default-src 'self' 'unsafe-inline'"})

    @app.post("/suggest")  # not async: FastAPI then calls it in a thread, and several people are answered at once
    def suggest(conversation: Conversation) -> list[Suggestion]:
        matches = ranker.rank("\n".join(conversation.turns), replies, top_k=SUGGESTIONS)
        return [Suggestion(text=match.text, score=match.score) for match in matches]

    return app


def main() -> None:
    """Read the flags and serve, on this machine only, until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Suggest three replies to customers, on a web page.")
    parser.add_argument("--model-file", default="runs/support")
    parser.add_argument("--index-dir", default="replies.index")
    parser.add_argument("--port", type=int, default=8010)
    given = parser.parse_args()
    try:
        app = create_app(given.model_file, given.index_dir)
    except InputError as error:
        parser.error(str(error))
    uvicorn.run(app, host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
