"""What `rank` and `decide` share: candidates, and a JSON line for every context on standard input."""

import argparse
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyagents.arguments import (
    INDEX_URL,
    CommandParser,
    add_backend_flag,
    add_precision_flag,
    model_overrides,
    positive_int,
)
from polyagents.console import number_of, say
from polyagents.errors import InputError
from polyagents.files.context_lines import ANSWERED, read_lines

if TYPE_CHECKING:
    from polyagents.index.in_memory import Candidates
    from polyagents.ranker import Ranker


def add_index_flags(parser: CommandParser, others: argparse._MutuallyExclusiveGroup) -> None:
    """Add the flags of an index, one of which may be given instead of `others`."""
    parser.needed["exact"] = "index_dir"
    others.add_argument("--index-dir", help="candidates that `index build` encoded, instead of a file")
    others.add_argument("--index-url", help=INDEX_URL)
    parser.add_argument(
        "--exact", action="store_true", help="search exactly, even if the index has an approximate search"
    )


def add_rerank_flags(parser: CommandParser) -> None:
    """Add the flags of a second model."""
    parser.needed["rerank_top"] = "rerank"
    parser.add_argument("--rerank", help="a second model, such as a uni- or cross-encoder, to re-order the results")
    parser.add_argument(
        "--rerank-top",
        type=positive_int,
        default=50,
        help="how many candidates the second model re-orders; no more are returned",
    )


def add_answering_flags(parser: CommandParser) -> None:
    """Add the flags of `load_rankers`, and how many candidates the second model re-orders."""
    parser.add_argument("-mf", "--model-file", required=True, help="a trained model")
    add_rerank_flags(parser)
    add_precision_flag(parser)
    add_backend_flag(parser)


def load_rankers(opt: Mapping[str, Any]) -> "tuple[Ranker, Ranker | None]":
    """Load the model, and the second one if there is one."""
    from polyagents.ranker import Ranker  # imports torch

    overrides = model_overrides(opt)
    ranker = Ranker.load(opt["model_file"], **overrides)
    return ranker, Ranker.load(opt["rerank"], **overrides) if opt["rerank"] else None


def opened_index(ranker: "Ranker", opt: Mapping[str, Any]) -> "Candidates | None":
    """Open the index that flags name; None if they name none."""
    if opt["index_url"] is not None:
        return ranker.open_engine(opt["index_url"])
    return None if opt["index_dir"] is None else ranker.open_index(opt["index_dir"], opt["exact"])


def answer_as_json(found: dict[str, Any]) -> str:
    """Write an answer; NaN and infinities of the line's own keys, which JSON does not have, become null."""
    try:
        return json.dumps(found, ensure_ascii=False, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(found), parse_constant=lambda _: None)
        return json.dumps(finite, ensure_ascii=False)


def answer_lines(answer: Callable[[str], dict[str, Any]], keys: Sequence[str] = ANSWERED) -> None:
    """Write a JSON line for each line on standard input: its own fields, none of them in `keys`, context and answer.

    A line without a context is answered by an error, and those after it as usual; in the end that is an InputError.
    """
    if hasattr(sys.stdout, "reconfigure"):  # whatever the terminal's encoding
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    if sys.stdin.isatty():
        say("Type a context and press Enter; Ctrl-D ends.")
    stdin = getattr(sys.stdin, "buffer", None) or io.BytesIO(sys.stdin.read().encode())
    lines = unusable = 0
    for line in read_lines(stdin, keys):
        lines += 1
        if line.context is None:
            unusable += 1
            found = {"line": line.number, **line.fields, "error": line.error}
        else:
            found = line.fields | {"context": line.context} | answer(line.context)
        print(answer_as_json(found), flush=True)
    if unusable:
        raise InputError(f"No context in {unusable:,} of {number_of(lines, 'line')}; the answer says what is wrong.")
