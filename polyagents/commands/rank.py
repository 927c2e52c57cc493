"""`polyagents rank`: contexts in, ranked candidates out."""

import argparse
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, add_fields_flag, positive_int
from polyagents.commands import context_answers
from polyagents.errors import InputError
from polyagents.files.json_files import json_fault, json_number, parse_json


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, candidates, and how many to return."""
    parser = CommandParser(
        "polyagents rank",
        "Rank candidates for the contexts on standard input: lines of text, or of JSON with context (a text, or a list "
        "of turns) and other keys, which come back. Each gets one JSON line; a line without a context gets an error, "
        "and the exit code is then 2.",
    )
    context_answers.add_answering_flags(parser)
    candidates = parser.add_mutually_exclusive_group(required=True)
    candidates.add_argument(
        "--candidates-file",
        help="UTF-8 text, one candidate per line; or with id and text: JSON lines (.jsonl, .json), CSV (.csv, .tsv) or "
        "Parquet (.parquet)",
    )
    add_fields_flag(parser)
    context_answers.add_index_flags(parser, candidates)
    parser.add_argument(
        "--filter",
        metavar="JSON",
        help="which candidates may be found, by their fields: a value, a list of values, or bounds (gt, gte, lt, lte), "
        """such as '{"tenant": "a", "year": {"gte": 2020}}'""",
    )
    parser.add_argument("--top-k", type=positive_int, default=10, help="how many candidates to return")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read contexts, rank, write a JSON line for each."""
    from polyagents.index.candidate_records import candidates_of
    from polyagents.index.filters import declared_fields  # these import torch
    from polyagents.index.in_memory import as_index
    from polyagents.pipeline import Pipeline

    where, fields = given_filter(opt["filter"]), declared_fields(opt["fields"])
    ranker, second = context_answers.load_rankers(opt)
    index = context_answers.opened_index(ranker, opt)
    if index is None:
        index = ranker.prepare(candidates_of(opt["candidates_file"], fields))
    candidates, pipeline = as_index(index, ranker.model), Pipeline(ranker, second, opt["rerank_top"])
    candidates.filter(where)  # what is wrong with it is said once, before the first context

    def answer(context: str) -> dict[str, Any]:
        """Rank the candidates for one context."""
        (matches,), (complete,), _ = pipeline.search([context], candidates, opt["top_k"], where)
        found = []
        for match in matches:
            own = {} if match.id is None else {"id": match.id}
            score = json_number(round(match.score, 4))
            found.append({"index": match.index, **own, "text": match.text, "score": score})
        return ({"complete": complete} if candidates.is_approximate else {}) | {"candidates": found}

    context_answers.answer_lines(answer)


def given_filter(given: str | None) -> Any:
    """Parse --filter; an InputError says if it is not JSON."""
    try:
        return None if given is None else parse_json(given)
    except ValueError as error:
        raise InputError(
            f"""--filter {given!r:.60} is not JSON{json_fault(error)}; give an object such as '{{"tenant": "a"}}'."""
        ) from error
