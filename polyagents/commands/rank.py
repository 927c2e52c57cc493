"""`polyagents rank`: contexts in, ranked candidates out."""

import argparse
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, positive_int
from polyagents.commands.context_answers import (
    add_index_flags,
    add_ranker_flags,
    answer_lines,
    load_rankers,
    opened_index,
)
from polyagents.files.json_files import json_number


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, candidates, and how many to return."""
    parser = CommandParser(
        "polyagents rank",
        "Rank candidates for the contexts on standard input: lines of text, or of JSON with context (a text, or a list "
        "of turns) and other keys, which come back. Each gets one JSON line; a line without a context gets an error, "
        "and the exit code is then 2.",
    )
    add_ranker_flags(parser)
    candidates = parser.add_mutually_exclusive_group(required=True)
    candidates.add_argument("--candidates-file", help="UTF-8 text, one candidate per line")
    add_index_flags(parser, candidates)
    parser.add_argument("--top-k", type=positive_int, default=10, help="how many candidates to return")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read contexts, rank, write a JSON line for each."""
    from polyagents.index.in_memory import as_index  # imports torch
    from polyagents.index.texts import read_candidates
    from polyagents.pipeline import Pipeline

    ranker, second = load_rankers(opt)
    index = opened_index(ranker, opt)
    if index is None:
        index = ranker.prepare(read_candidates(opt["candidates_file"]))
    candidates, pipeline = as_index(index, ranker.model), Pipeline(ranker, second, opt["rerank_top"])

    def answer(context: str) -> dict[str, Any]:
        """Rank the candidates for one context."""
        (matches,), (complete,), _ = pipeline.search([context], candidates, opt["top_k"])
        found = [
            {"index": match.index, "text": match.text, "score": json_number(round(match.score, 4))} for match in matches
        ]
        return ({"complete": complete} if candidates.is_approximate else {}) | {"candidates": found}

    answer_lines(answer)
