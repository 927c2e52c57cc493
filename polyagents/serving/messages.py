"""The JSON messages: requests, with the values that each field may have, and responses.

Here are our own; cohere_messages.py and openai_messages.py have those in other companies' shapes.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from polyagents.decisions.scoring import SHORTLIST
from polyagents.files.json_files import json_number
from polyagents.ranker import Match
from polyagents.serving.batching import RankingResult
from polyagents.serving.limits import (
    CANDIDATE_CHARACTERS,
    CANDIDATES,
    CONTEXT_CHARACTERS,
    FILTERED,
    TOP_K,
    TURNS,
    VALUES,
)


def characters(text: str) -> str:
    """Refuse half a surrogate pair, which JSON can spell but no tokenizer or file accepts."""
    text.encode("utf-8")  # a UnicodeEncodeError is a ValueError
    return text


def as_whole(number: Any) -> Any:
    """Convert 1.0 to 1, which are the same number in JSON and its schemas; every other value stays as it is."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def short_enough(context: str | list[str]) -> str | list[str]:
    """Refuse a context beyond the limit."""
    if sum(map(len, [context] if isinstance(context, str) else context)) > CONTEXT_CHARACTERS:
        raise ValueError("too long")
    return context


def not_blank(context: str | list[str]) -> str | list[str]:
    """Refuse a context, or a last turn, that is blank."""
    if not (context if isinstance(context, str) else context[-1]).strip():
        raise ValueError("blank")
    return context


NOT_BLANK = {"pattern": r"\S"}  # for the schema, which has no such rule for the last item of a list
Text = Annotated[str, AfterValidator(characters)]
Turns = Annotated[list[Text], Field(min_length=1, max_length=TURNS), AfterValidator(short_enough)]
TopK = Annotated[
    int,
    Field(ge=1, le=TOP_K, description=f"a whole number from 1 to {TOP_K}: how many to return"),
    BeforeValidator(as_whole),  # after the limits, which a schema would lose
]


Context = Annotated[
    Annotated[
        Text,
        AfterValidator(short_enough),
        Field(json_schema_extra={"maxLength": CONTEXT_CHARACTERS, **NOT_BLANK}),
    ]
    | Turns,
    AfterValidator(not_blank),
]
A_CONTEXT = (
    f"a text, or a list of 1 to {TURNS} turns, oldest first and persona lines before them; not blank, at most "
    f"{CONTEXT_CHARACTERS:,} characters together"
)


def one_text(context: str | list[str]) -> str:
    """Return a context as the model reads it, with one line per turn."""
    return context if isinstance(context, str) else "\n".join(context)


def few_values(given: dict[str, Any]) -> dict[str, Any]:
    """Refuse a filter of very many values."""
    if any(isinstance(value, list) and len(value) > VALUES for value in given.values()):
        raise ValueError("too many values")
    return given


GivenFilter = Annotated[
    Annotated[dict[Text, Any], AfterValidator(few_values), Field(max_length=FILTERED)] | None,
    Field(
        description=f"an object of at most {FILTERED} fields, each with a value, a list of at most {VALUES:,}, or "
        "bounds (gt, gte, lt, lte), all of which must hold: fields of the server's candidates, or texts of the "
        "documents that are objects",
        examples=[{"tenant": "a", "language": ["de", "en"], "year": {"gte": 2020}}],
    ),
]


GivenModel = Annotated[
    str | None, Field(description="a text; the server has one model and answers with that, whatever this says")
]
Count = Annotated[int, Field(ge=1), BeforeValidator(as_whole)]


class Request(BaseModel):
    """A request: unknown fields are refused, and a number is not accepted as text."""

    model_config = ConfigDict(strict=True, extra="forbid")


class RankRequest(Request):
    """Rank candidates for a context."""

    context: Annotated[
        Context, Field(description=A_CONTEXT, examples=[["your persona: i ski .", "what do you do in winter ?"]])
    ]
    candidates: Annotated[
        list[Annotated[Text, Field(max_length=CANDIDATE_CHARACTERS)]] | None,
        Field(
            min_length=1,
            max_length=CANDIDATES,
            description=f"a list of 1 to {CANDIDATES:,} texts of at most {CANDIDATE_CHARACTERS:,} characters each; "
            f"by default the candidates that the server was started with",
        ),
    ] = None
    top_k: TopK = 10
    filter: GivenFilter = None


class ChatRequest(Request):
    """Reply to a conversation, from the candidates that the server was started with."""

    history: Annotated[
        Turns,
        AfterValidator(not_blank),
        Field(
            description=f"a list of 1 to {TURNS} turns, oldest first; the last one is answered and not blank, all "
            f"together have at most {CONTEXT_CHARACTERS:,} characters",
            examples=[["hi !", "hello , how are you ?", "i am fine"]],
        ),
    ]
    persona: Annotated[
        list[Text],
        Field(max_length=TURNS),
        AfterValidator(short_enough),
        Field(
            description=f"a list of at most {TURNS} lines before the conversation, with at most "
            f"{CONTEXT_CHARACTERS:,} characters together",
            examples=[["your persona: i ski ."]],
        ),
    ] = []
    top_k: TopK = 10


class RankedCandidate(BaseModel):
    """A candidate: index in the list (in an engine: a number made of its id), id, text, and score.

    The score is null if the model gives no number, and the id is omitted if the candidates have none.
    """

    __qualname__ = "Ranked"  # its name in /openapi.json, which clients are made from
    model_config = ConfigDict(title="Ranked")

    index: int
    id: Annotated[str | None, Field(exclude_if=lambda own: own is None)] = None
    text: str
    score: float | None

    @classmethod
    def of(cls, match: Match) -> "RankedCandidate":
        """Convert a match of the Python API; JSON has no infinity."""
        return cls(index=match.index, id=match.id, text=match.text, score=json_number(match.score))


class CandidateSource(BaseModel):
    """The ranked candidates: name of a candidates file or index folder, or `request`, and the number of candidates."""

    __qualname__ = "Source"  # as above
    model_config = ConfigDict(title="Source")

    name: str
    size: int


class RankResponse(BaseModel):
    """The best candidates, highest score first; of equal scores the lower index first."""

    matches: Annotated[list[RankedCandidate], Field(description="the best, each with index, id, text, score")]
    complete: Annotated[bool, Field(description="false if an approximate index may have missed a better one")]
    candidates: Annotated[
        CandidateSource, Field(description="the ranked candidates: name (of a request's own: request) and size")
    ]
    ms: Annotated[float, Field(description="milliseconds from the request to this response, waiting included")]
    together: Annotated[int, Field(description="requests that the model ranked at once, this one counted")]

    @classmethod
    def of(cls, result: RankingResult, source: CandidateSource, ms: float) -> dict[str, Any]:
        """Return the fields of a response, `ms` milliseconds after its request."""
        return {
            "matches": [RankedCandidate.of(match) for match in result.matches],
            "complete": result.complete,
            "candidates": source,
            "ms": round(ms, 2),
            "together": result.together,
        }


class ChatResponse(RankResponse):
    """The reply, which is the first of the matches; lines that the conversation already contains are not among them."""

    text: Annotated[str, Field(description="the reply")]
    probability: Annotated[
        float | None,
        Field(description=f"that the reply is right, among the best {SHORTLIST}; null if the model is not calibrated"),
    ]
    hand_over: Annotated[
        bool, Field(description="whether a person should reply: the probability is too low, or no candidate is right")
    ]


class Problem(BaseModel):
    """An error, in one sentence."""

    error: str
