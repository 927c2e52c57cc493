"""`M.dict`: the tokenizer of a model, and the configuration of its backbone, in one JSON file.

With it, `M` and `M.opt` a model is complete: neither the hub nor the backbone's folder is read again.
"""

import json
import os
from dataclasses import dataclass
from typing import Any

from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.json_files import read_json
from polyagents.files.own_folder import make_folder_of
from polyagents.text.tokenizer import RankingTokenizer

FORMAT = "polyagents-dictionary-1"


@dataclass
class DictionaryFile:
    """The content of the file.

    Attributes:
        backbone_config: plain values; None until there is a backbone.
        made_for: the flags `backbone`, `vocabulary` and `task` of the training that wrote it.
    """

    tokenizer: RankingTokenizer
    backbone_config: dict[str, Any] | None
    made_for: dict[str, Any]

    @classmethod
    def read(cls, path: str) -> "DictionaryFile":
        """Read a file that `write` wrote; an InputError says if it is damaged, or no such file."""
        try:
            content = read_json(path)
            if content["format"] != FORMAT:
                raise KeyError("format")
            made_for = {name: content.get(name) for name in ("backbone", "vocabulary", "task")}
            tokenizer = RankingTokenizer.of_content(content | {"tokenizer": json.dumps(content["tokenizer"])})
            return cls(tokenizer, content["backbone_config"], made_for)
        except Exception as error:  # no JSON, or not ours; the tokenizers library raises bare Exceptions
            raise InputError(
                f"{path} is not a dictionary of polyagents (a whole {FORMAT} file). Put the model's own back; a "
                f"training that starts anew builds it again."
            ) from error

    def write(self, path: str) -> None:
        """Write the file atomically."""
        content = self.tokenizer.content()
        known = {
            "format": FORMAT,
            **self.made_for,
            "special_tokens": content["special_tokens"],
            "backbone_config": self.backbone_config,
            "tokenizer": json.loads(content["tokenizer"]),
            "parlai": content["parlai"],
        }
        make_folder_of(path)
        write_text(path, json.dumps(known, ensure_ascii=False))


def dictionary_of(file: str, named: str | None) -> str:
    """Return the path of a model's dictionary: next to the model, or what its options name.

    Args:
        named: `--dict-file`, which a copied model names of the model that it is a copy of.

    Raises:
        InputError: neither exists, or the latter is another model's, which may have been trained again.
    """
    own = f"{file}.dict"
    if os.path.exists(own):
        return own
    if named and os.path.exists(named) and not os.path.exists(named.removesuffix(".dict")):
        return named
    raise InputError(f"{own} is missing; a model is {file}, {file}.opt and {own} together.")
