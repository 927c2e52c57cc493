"""A request for embeddings and its response in the shape of OpenAI's API."""

import base64
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from polyagents.serving.batching import Encoding
from polyagents.serving.limits import CANDIDATES, DOCUMENT_CHARACTERS
from polyagents.serving.messages import Count, GivenModel, Request, Text

InputText = Annotated[Text, Field(max_length=DOCUMENT_CHARACTERS)]


class EmbeddingsRequest(Request):
    """Encode texts, as OpenAI's clients ask for it."""

    input: Annotated[
        InputText | Annotated[list[InputText], Field(min_length=1, max_length=CANDIDATES)],
        Field(
            description=f"a text, or a list of 1 to {CANDIDATES:,} texts, of at most {DOCUMENT_CHARACTERS:,} "
            f"characters each (no token ids); the lines of a context are its turns",
            examples=[["i ski", "i swim"]],
        ),
    ]
    input_type: Annotated[
        Literal["document", "query"],
        Field(
            description='"document" for vectors of candidates, or "query" for vectors of contexts, which only a '
            "bi-encoder has (with OpenAI's client a key of its argument extra_body)"
        ),
    ]
    model: GivenModel = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        Field(description='"float" for lists of numbers, or "base64" for the bytes of little-endian fp32 numbers'),
    ] = "float"
    dimensions: Annotated[
        Count | None,
        Field(description="a whole number, the width of the model's vectors, which are not shortened"),
    ] = None
    user: Annotated[str | None, Field(description="a text, which has no effect")] = None

    def texts(self) -> tuple[str, ...]:
        """Return the texts; a single text becomes a list of one."""
        return (self.input,) if isinstance(self.input, str) else tuple(self.input)


class Embedding(BaseModel):
    """The vector of a text, and the text's index in the request."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """How many tokens the model has read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """The vectors of all texts, in their order."""

    object: Annotated[Literal["list"], Field(description="list")] = "list"
    data: Annotated[list[Embedding], Field(description="one of each text, with index and embedding")]
    model: Annotated[str, Field(description="the file of the server's model")]
    usage: Annotated[Usage, Field(description="tokens that the model has read: prompt_tokens and total_tokens")]

    @classmethod
    def of(cls, encoding: Encoding, model: str, encoding_format: str | None) -> "EmbeddingsResponse":
        """Make the response from encoded texts and the model's name; a format of None means `float`."""
        rows: list[list[float] | str] = encoding.vectors.tolist()
        if encoding_format == "base64":
            little_endian = (vector.astype("<f4").tobytes() for vector in encoding.vectors)
            rows = [base64.b64encode(numbers).decode("ascii") for numbers in little_endian]
        tokens = sum(encoding.tokens)
        return cls(
            data=[Embedding(index=index, embedding=row) for index, row in enumerate(rows)],
            model=model,
            usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
        )


class OpenAIError(BaseModel):
    """An error; the message is one sentence."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: None
    code: None


class OpenAIProblem(BaseModel):
    """An error where OpenAI's clients look for it."""

    error: OpenAIError
