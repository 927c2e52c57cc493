"""`polyagents decide`: contexts in, one option each out, with its probability."""

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.arguments import CommandParser, positive_int, threshold
from polyagents.commands import context_answers
from polyagents.errors import InputError
from polyagents.files.json_files import read_json

if TYPE_CHECKING:
    from polyagents.decisions.deciding import Decision

KEYS = ("choice", "probability", "probabilities", "none_probability", "margin", "calibrated", "notes", "error")


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, options, and when to choose none of them."""
    parser = CommandParser(
        "polyagents decide",
        "Choose one of your options, or none, for each context on standard input: lines as for rank. Each gets one "
        "JSON line. Probabilities need a calibration (polyagents calibrate).",
    )
    context_answers.add_answering_flags(parser)
    options = parser.add_mutually_exclusive_group(required=True)
    options.add_argument(
        "--options-file",
        help='UTF-8 text, one option per line; or .json: {"NAME": "text", "OTHER": ["text", "another text"]}; or '
        "candidates with ids, whose texts are the options, as for rank",
    )
    context_answers.add_index_flags(parser, options)
    parser.add_argument(
        "--none",
        type=threshold,
        help="choose none if the best option is less probable; by default, what calibrate has learnt decides",
    )
    parser.add_argument("--top-k", type=positive_int, default=5, help="how many probabilities to write")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read contexts, decide, write a JSON line for each."""
    ranker, second = context_answers.load_rankers(opt)
    options: Any = context_answers.opened_index(ranker, opt)
    if options is None:
        options = read_options(opt["options_file"])
    ranker.decide([], options, opt["none"], second, opt["rerank_top"])  # what is wrong is said before a context is read

    def answer(context: str) -> dict[str, Any]:
        """Decide for one context."""
        return decision_as_json(ranker.decide(context, options, opt["none"], second, opt["rerank_top"]), opt["top_k"])

    context_answers.answer_lines(answer, KEYS)


def read_options(path: str) -> Any:
    """Read options: lines, or JSON names with texts."""
    from polyagents.index.candidate_records import read_candidates  # imports torch

    if os.path.splitext(path)[1].lower() != ".json":
        return read_candidates(path)
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"--options-file {path} cannot be read ({reason}); give an existing JSON file (lines of JSON, each "
            f"with id and text, need a name that ends in .jsonl)."
        ) from error
    if not isinstance(found, dict | list):
        raise InputError(f"--options-file {path} is not a JSON object of names and texts, nor a list of texts.")
    return found


def decision_as_json(decision: "Decision", most: int) -> dict[str, Any]:
    """Return a decision for JSON, with its `most` largest probabilities, rounded."""
    fields: dict[str, Any] = {name: getattr(decision, name) for name in ("choice", "probability")}
    if decision.probabilities is not None:
        largest = sorted(decision.probabilities.items(), key=lambda one: (-one[1], one[0]))[:most]
        fields["probabilities"] = {name: round(value, 4) for name, value in largest}
    fields |= {name: getattr(decision, name) for name in ("none_probability", "margin")}
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in fields.items()}
    return rounded | {"calibrated": decision.calibrated} | ({"notes": decision.notes} if decision.notes else {})
