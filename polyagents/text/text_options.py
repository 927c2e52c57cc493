"""The options of texts: how long they may be, and where a scratch backbone's vocabulary comes from."""

from dataclasses import dataclass
from typing import ClassVar

from polyagents.arguments import token_limit
from polyagents.options import Options, option


@dataclass(frozen=True)
class TextOptions(Options):
    """The maximal lengths (the paper's, v1 5.1) in tokens, special tokens included; -1 for no limit."""

    title: ClassVar[str] = "Text (polyagents)"

    text_truncate: int = option(360, "context length in tokens; its end is kept", token_limit)
    label_truncate: int = option(72, "candidate length in tokens; its beginning is kept", token_limit)
    vocabulary: str | None = option(
        None,
        "for a scratch backbone: folder or hub name of a Hugging Face tokenizer, such as polyagents build_vocabulary "
        "writes; by default the vocabulary is learnt from the task",
    )
