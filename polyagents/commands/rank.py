"""`polyagents rank`: contexts in, ranked candidates out."""

import argparse
import io
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.arguments import INDEX_URL, CommandParser, add_backend_flag, add_precision_flag, positive_int
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.context_lines import read_lines
from polyagents.files.json_files import json_number

if TYPE_CHECKING:
    from polyagents.index.in_memory import Candidates
    from polyagents.ranker import Ranker


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, candidates, and how many to return."""
    parser = CommandParser(
        "polyagents rank",
        "Rank candidates for the contexts on standard input: lines of text, or of JSON with context (a text, or a list "
        "of turns) and other keys, which come back. Each gets one JSON line; a line without a context gets an error, "
        "and the exit code is then 2.",
    )
    parser.add_argument("-mf", "--model-file", required=True, help="a trained model")
    candidates = parser.add_mutually_exclusive_group(required=True)
    candidates.add_argument("--candidates-file", help="UTF-8 text, one candidate per line")
    candidates.add_argument("--index-dir", help="candidates encoded earlier by build_index, in place of a file")
    candidates.add_argument("--index-url", help=INDEX_URL)
    parser.add_argument(
        "--exact", action="store_true", help="search exactly, even if the index has an approximate search"
    )
    parser.add_argument("--top-k", type=positive_int, default=10, help="how many candidates to return")
    parser.add_argument("--rerank", help="a second model, such as a uni- or cross-encoder, to re-order the results")
    parser.add_argument(
        "--rerank-top", type=positive_int, default=50, help="how many candidates the second model re-orders"
    )
    add_precision_flag(parser)
    add_backend_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read contexts, rank, write a JSON line for each.

    Raises:
        InputError: a line had no context; it was answered by an error, and those after it by candidates.
    """
    from polyagents.index.in_memory import as_index  # imports torch
    from polyagents.ranker import Ranker

    overrides = {"backend": opt["backend"]} | ({"precision": opt["precision"]} if opt["precision"] else {})
    ranker = Ranker.load(opt["model_file"], **overrides)
    if hasattr(sys.stdout, "reconfigure"):  # whatever the terminal's encoding
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    second = Ranker.load(opt["rerank"], **overrides) if opt["rerank"] else None
    top_k, candidates = opt["top_k"], as_index(prepared(ranker, opt), ranker.model)
    if sys.stdin.isatty():
        say("Type a context and press Enter; Ctrl-D ends.")
    stdin = getattr(sys.stdin, "buffer", None) or io.BytesIO(sys.stdin.read().encode())
    lines = unusable = 0
    for line in read_lines(stdin):
        lines += 1
        if line.context is None:
            unusable += 1
            print(json.dumps({"line": line.number, **line.fields, "error": line.error}, ensure_ascii=False), flush=True)
            continue
        context, answer = line.context, line.fields | {"context": line.context}
        shortlist = top_k if second is None else opt["rerank_top"]
        (matches,), (complete,) = ranker.search([context], candidates, shortlist)
        if candidates.is_approximate:
            answer["complete"] = complete
        if second is not None:
            matches = second.rerank(context, matches, top_k)
        found = [
            {"index": match.index, "text": match.text, "score": json_number(round(match.score, 4))} for match in matches
        ]
        print(json.dumps(answer | {"candidates": found}, ensure_ascii=False), flush=True)
    if unusable:
        raise InputError(f"{unusable:,} of {lines:,} lines have no context; their answers say what is wrong.")


def prepared(ranker: "Ranker", opt: Mapping[str, Any]) -> "Candidates":
    """Return the candidates, encoded as far as possible in advance."""
    from polyagents.index.texts import read_candidates  # imports torch

    if opt["index_url"] is not None:
        if opt["exact"]:
            raise InputError("--exact is for --index-dir; for an engine, build_index --index-type decides.")
        return ranker.open_engine(opt["index_url"])
    if opt["index_dir"] is not None:
        return ranker.open_index(opt["index_dir"], opt["exact"])
    return ranker.prepare(read_candidates(opt["candidates_file"]))
