"""The options of texts: how long they may be, and where a scratch backbone's vocabulary comes from."""

from dataclasses import dataclass
from typing import ClassVar

from polyagents.arguments import boolean, token_limit
from polyagents.options import Options, option


@dataclass(frozen=True)
class TextOptions(Options):
    """How texts are read, and their maximal lengths (v1 5.1) in tokens, special tokens counted; -1 is no limit."""

    title: ClassVar[str] = "Text (polyagents)"

    text_truncate: int = option(360, "context length in tokens; its end is kept", token_limit)
    label_truncate: int = option(72, "candidate length in tokens; its beginning is kept", token_limit)
    plain_texts: bool = option(
        False,
        "read a text as Hugging Face's libraries do: a line end is what the tokenizer makes of it (BERT's: white "
        "space), and a context keeps its beginning, too. The models of polyagents init_model do, and what starts from "
        "them",
        boolean,
    )
    vocabulary: str | None = option(
        None,
        "of a scratch backbone: folder or hub name of a Hugging Face tokenizer, such as polyagents build_vocabulary "
        "writes; by default the vocabulary is learnt from the task",
    )
