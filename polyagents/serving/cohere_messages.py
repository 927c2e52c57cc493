"""A rerank request and its response in the shape of Cohere's API, as its clients use it."""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from polyagents.files.json_files import json_number
from polyagents.index.columns import Columns, Record
from polyagents.index.filters import parse_filter
from polyagents.ranker import Match
from polyagents.serving.limits import CANDIDATES, DOCUMENT_CHARACTERS
from polyagents.serving.messages import A_CONTEXT, Context, Count, GivenFilter, GivenModel, Request, Text, as_whole
from polyagents.serving.problems import Unanswerable


def with_text(document: dict[str, str]) -> dict[str, str]:
    """Refuse a document without a text, or with too long a one."""
    if "text" not in document or len(document["text"]) > DOCUMENT_CHARACTERS:
        raise ValueError("no text, or too long")
    return document


Document = (
    Annotated[Text, Field(max_length=DOCUMENT_CHARACTERS)]
    | Annotated[
        dict[Text, Text],
        AfterValidator(with_text),
        Field(
            json_schema_extra={
                "required": ["text"],
                "properties": {"text": {"type": "string", "maxLength": DOCUMENT_CHARACTERS}},
            }
        ),
    ]
)


class NoSpans(BaseModel):
    """Cohere's way to say that no parts of the documents are wanted."""

    mode: Literal["disabled"]


UNREAD = "the model reads the same number of tokens of every document, --label-truncate, whatever this says"


class RerankRequest(Request):
    """Order documents by how well they answer a query, as Cohere's clients ask for it."""

    query: Annotated[
        Context,
        Field(
            description=f"what /rank calls a context: {A_CONTEXT}; the lines of a text are turns as well",
            examples=["your persona: i ski .\nwhat do you do in winter ?"],
        ),
    ]
    documents: Annotated[
        list[Document],
        Field(
            min_length=1,
            max_length=CANDIDATES,
            description=f"a list of 1 to {CANDIDATES:,} documents, each a text, or an object of texts of which `text` "
            f"is read; at most {DOCUMENT_CHARACTERS:,} characters each",
            examples=[["i ski", {"text": "i swim", "source": "b.txt"}]],
        ),
    ]
    model: GivenModel = None
    top_n: Annotated[
        Count | None,
        Field(
            description="a whole number from 1 on: how many to return; all by default, or if there are fewer documents"
        ),
    ] = None
    return_documents: Annotated[
        bool | None, Field(description="true or false: whether the results bring the documents along")
    ] = False
    max_tokens_per_doc: Annotated[
        Count | None, Field(description=f"a whole number from 1 on; fewer than a document has are refused; {UNREAD}")
    ] = None
    max_chunks_per_doc: Annotated[Count | None, Field(description=f"a whole number from 1 on; {UNREAD}")] = None
    rank_fields: Annotated[
        list[Text] | None,
        Field(description="a list of texts; of a document that is an object `text` is read, and no other may be named"),
    ] = None
    relevant_spans: Annotated[
        NoSpans | None, Field(description='an object with "mode": "disabled": parts of documents are not returned')
    ] = None
    priority: Annotated[
        Annotated[int, Field(ge=0), BeforeValidator(as_whole)] | None,
        Field(description="a whole number from 0 on, which nobody reads: clients take turns"),
    ] = None

    filter: GivenFilter = None

    def filtered(self) -> list[int]:
        """Return the places of the documents that meet the filter, whose fields are texts; raises as `parse_filter`."""
        documents = [{"text": one} if isinstance(one, str) else one for one in self.documents]
        fields = dict.fromkeys((name for document in documents for name in document), "text")
        if (where := parse_filter(self.filter, fields)) is None:
            return list(range(len(documents)))
        records = [Record("", "", tuple(map(document.get, fields))) for document in documents]
        return np.flatnonzero(Columns.of(records, fields).mask(where)).tolist()

    def texts(self) -> tuple[str, ...]:
        """Return the documents as the model reads them."""
        return tuple(document if isinstance(document, str) else document["text"] for document in self.documents)

    def check(self, read: int | None) -> None:
        """Refuse fields that would change the answer but are ignored.

        Args:
            read: how many tokens the model reads of a document; None for all.

        Raises:
            Unanswerable: it names fields other than `text`, or wants less of a document to be read.
        """
        if not {"text"}.issuperset(self.rank_fields or ()) and not all(isinstance(one, str) for one in self.documents):
            raise Unanswerable(
                "rank_fields names another field than text, and of a document that is an object only `text` is read; "
                "put into it what is to be ranked, and omit rank_fields."
            )
        longest = max(len(text.encode()) for text in self.texts())  # a token has a byte at least
        read = min(read or longest, longest)
        if self.max_tokens_per_doc is not None and self.max_tokens_per_doc < read:
            raise Unanswerable(
                f"max_tokens_per_doc is {self.max_tokens_per_doc:,}, and the model may read {read:,} tokens of one of "
                f"these documents, whatever a request says; omit it, or shorten the documents."
            )


class RerankResult(BaseModel):
    """A document: its position in the request, and how relevant it is."""

    index: int
    id: Annotated[str | None, Field(description="the document's, if it is an object with `id`; otherwise omitted")] = (
        None
    )
    relevance_score: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="(1 + s / (1 + |s|)) / 2 of the score s: 0.5 if that is 0; not a probability. It depends on "
            "query and document alone",
        ),
    ]
    score: Annotated[float | None, Field(description="the score as in /rank; omitted if the model gives no number")] = (
        None
    )
    document: Annotated[
        dict[str, str] | None,
        Field(description="as it was sent, a text as an object with `text`; omitted unless return_documents is true"),
    ] = None


class ApiVersion(BaseModel):
    """The version of Cohere's API, which decides the shape of the response."""

    version: str


class RerankMeta(BaseModel):
    """Metadata of a response."""

    api_version: ApiVersion


class RerankResponse(BaseModel):
    """The best documents, most relevant first; among equals the lower index."""

    id: Annotated[str, Field(description="unique to this response")]
    results: Annotated[
        list[RerankResult], Field(description="the best, each with index, relevance_score, score and maybe document")
    ]
    meta: Annotated[RerankMeta, Field(description="the version of Cohere's API: api_version")]


class CohereProblem(BaseModel):
    """An error in one sentence, where Cohere's clients look for it."""

    message: str


def result_of(match: Match, request: RerankRequest) -> RerankResult:
    """Convert a match of the Python API; it includes the document if the request asks for it."""
    whole = request.documents[match.index]
    sent = whole if request.return_documents else None
    return RerankResult(
        index=match.index,
        id=None if isinstance(whole, str) else whole.get("id"),
        relevance_score=relevance(match.score),
        score=json_number(match.score),
        document={"text": sent} if isinstance(sent, str) else sent,
    )


def relevance(score: float) -> float:
    """Return a number from 0 to 1 that rises with the score; 0 if the score is not a number.

    The logistic function, which others use, is 1 for every score from 37 on. A model by dot product may give all
    documents more (a tiny bi-encoder of our tests gives 126.8 and 126.9), and sorting by it would find them all alike.
    """
    if not math.isfinite(score):
        return float(score > 0)
    return (1 + score / (1 + abs(score))) / 2
