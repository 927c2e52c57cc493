"""ParlAI's `bpe` dictionary (subword-nmt's merges) as one tokenizer of the `tokenizers` library, with the same ids.

ParlAI splits a text into words in Python, merges each word's letters in Python, and looks the pieces up; a piece that
its dictionary lacks is the unknown token. Here all of that is compiled. A piece of the dictionary that ends a word
has `</w>` at its end, as subword-nmt's merges have it; ParlAI marks the others, with `@@`.
"""

import functools
import io
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from polyagents.errors import InputError, first_line
from polyagents.files.atomic import atomic_write
from polyagents.files.lines import opened

END = "</w>"  # written by subword-nmt and the tokenizers library after the last letter of a word
CONTINUES = "@@"  # written by ParlAI's dictionary after a piece that does not end a word
NEWLINE = "__newln__"  # ParlAI puts this word where a line ends
ESCAPES = (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))  # of a dictionary file
VERSION = "#version: 0.2"


def is_dictionary(path: str) -> bool:
    """Tell whether ParlAI wrote this dictionary for `--dict-tokenizer bpe`: its merges are in a file next to it."""
    return os.path.exists(path) and os.path.exists(f"{path}.codecs")


def read(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Read ParlAI's dictionary as the content of a tokenizer of ours (`RankingTokenizer.of_content`).

    Args:
        path: `M.dict`, with `M.dict.codecs` next to it.
        options: ParlAI's of the model: whether it is lower case, and the names of the special tokens.

    Raises:
        InputError: the options are missing, or the dictionary is damaged or of another kind.
    """
    if not options:
        raise InputError(
            f"{path} is ParlAI's dictionary, which does not say how it was built; put the model's options at "
            f"{path.removesuffix('.dict')}.opt."
        )
    special = {name: options.get(f"dict_{name}token") or f"__{name}__" for name in ("null", "start", "end", "unk")}
    try:
        with io.TextIOWrapper(opened(path), "utf-8", "ignore") as file:  # as ParlAI reads it
            lines = [line.rstrip("\n\r").split("\t") for line in file]
        with io.TextIOWrapper(opened(f"{path}.codecs"), "utf-8") as file:
            version, *merges = file.read().rstrip("\n").split("\n")
        counts = {unescaped_token(line[0]): int(line[1]) for line in lines if len(line) > 1}
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} and {path}.codecs are not a dictionary of ParlAI's ({first_line(error)}); give a model whose "
            f"dictionary is."
        ) from error
    # ParlAI's constructor numbers these before the file's tokens, whose order starts with them.
    tokens = dict.fromkeys(special.values()) | dict.fromkeys(unescaped_token(line[0]) for line in lines)
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if version != VERSION or not lines or not pairs or any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise InputError(
            f"{path} and {path}.codecs are not a complete dictionary of ParlAI's --dict-tokenizer bpe ({VERSION} in "
            f"the first line of the codecs); give a model whose dictionary is."
        )
    try:
        compiled = tokenizer(
            list(tokens), [(pair[0], pair[1]) for pair in pairs], special["unk"], lower=bool(options.get("dict_lower"))
        ).to_str()
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise InputError(
            f"{path}.codecs holds merges that do not make up pieces ({first_line(error)}); give a model whose "
            f"dictionary is whole."
        ) from error
    names = {"pad": special["null"], "start": special["start"], "end": special["end"], "newline": NEWLINE}
    return {
        "special_tokens": {name: f"{token}{END}" for name, token in names.items()},
        "tokenizer": compiled,
        "parlai": {"tokens": len(tokens), "counts": [counts.get(token, 0) for token in tokens]},
    }


def tokenizer(tokens: list[str], merges: list[tuple[str, str]], unknown: str, lower: bool) -> Tokenizer:
    """Build the compiled tokenizer of a dictionary, whose tokens are in the order of their ids, from merges in order.

    Ids from `len(tokens)` on are pieces that result from merging but are not in the dictionary: ParlAI's unknown token.
    """
    vocabulary = {as_merged(token): index for index, token in enumerate(tokens)}
    for left, right in merges:
        for piece in (left, right, left + right):
            vocabulary.setdefault(piece, len(vocabulary))
    compiled = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=as_merged(unknown), end_of_word_suffix=END, fuse_unk=False)
    )
    lines = normalizers.Replace("\n", f" {NEWLINE} ")
    compiled.normalizer = normalizers.Sequence([lines, normalizers.Lowercase()] if lower else [lines])
    # ParlAI's `\w+|[^\w\s]` with Python's own idea of \w and \s spelt out: regex libraries differ in marks.
    word, space = letters(re.compile(r"\w").match), letters(re.compile(r"\s").match)
    pattern = Regex(f"[{word}]+|[^{word}{space}]")
    compiled.pre_tokenizer = pre_tokenizers.Split(pattern, "removed", invert=True)
    compiled.decoder = decoders.Sequence([decoders.Replace(f"{NEWLINE}{END}", "\n"), decoders.BPEDecoder(END)])
    return compiled


def write(content: dict[str, Any], path: str) -> dict[str, Any]:
    """Write a dictionary that `read` returned as ParlAI's two files, `M.dict` at `path`.

    Returns:
        ParlAI's options of the model that concern its dictionary.
    """
    compiled, special, parlai = json.loads(content["tokenizer"]), content["special_tokens"], content["parlai"]
    model = compiled["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)[: parlai["tokens"]]
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        for token, count in zip(tokens, parlai["counts"], strict=True):
            listed = as_listed(token)
            for plain, written in ESCAPES:
                listed = listed.replace(plain, written)
            file.write(f"{listed}\t{count}\n")
    with atomic_write(f"{path}.codecs") as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(f"{VERSION}\n")
        file.writelines(f"{left} {right}\n" for left, right in model["merges"])
    names = {"null": special["pad"], "start": special["start"], "end": special["end"], "unk": model["unk_token"]}
    normal = compiled["normalizer"]["normalizers"]
    return {
        "dict_tokenizer": "bpe",
        "dict_lower": any(step["type"] == "Lowercase" for step in normal),
        **{f"dict_{name}token": as_listed(token) for name, token in names.items()},
    }


def as_merged(token: str) -> str:
    """Convert ParlAI's name of a piece to subword-nmt's."""
    return token.removesuffix(CONTINUES) if token.endswith(CONTINUES) else f"{token}{END}"


def as_listed(token: str) -> str:
    """Convert subword-nmt's name of a piece to ParlAI's."""
    return token.removesuffix(END) if token.endswith(END) else f"{token}{CONTINUES}"


def unescaped_token(token: str) -> str:
    """Restore a token of a dictionary file."""
    for plain, written in ESCAPES:
        token = token.replace(written, plain)
    return token


@functools.cache
def letters(wanted: Callable[[str], Any]) -> str:
    """List the characters that pass a test, as the inside of a regular expression's brackets."""
    taken = [i for i in range(sys.maxunicode + 1) if not 0xD800 <= i <= 0xDFFF and wanted(chr(i))]
    starts = [i for i, before in zip(taken, [-2, *taken], strict=False) if i != before + 1]
    ends = [i for i, after in zip(taken, [*taken[1:], -2], strict=True) if i + 1 != after]
    return "".join(f"\\x{{{start:x}}}-\\x{{{end:x}}}" for start, end in zip(starts, ends, strict=True))
