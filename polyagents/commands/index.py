"""`polyagents index add | remove | status`: change candidates in a vector database while others search them."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import INDEX_URL, CommandParser, add_backend_flag, add_precision_flag
from polyagents.errors import InputError

USAGE = (
    "polyagents index add, with --model-file and --candidates-file; polyagents index remove, with --candidates-file; "
    "or polyagents index status"
)


def parser() -> argparse.ArgumentParser:
    """Declare the arguments: what to do, where, and with which candidates."""
    parser = CommandParser(
        "polyagents index",
        "Change the candidates that polyagents build_index --index-url has put into a vector database, or see what is "
        "there, for each model that has encoded them. Whoever searches them sees a change at once.",
    )
    parser.add_argument("what", nargs="?", help="add, remove or status")
    parser.add_argument("--index-url", required=True, help=INDEX_URL)
    parser.add_argument("-mf", "--model-file", help="the model that encoded the candidates, to add some")
    parser.add_argument("--candidates-file", help="UTF-8 text, one candidate per line: what is added or removed")
    add_precision_flag(parser)
    add_backend_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Do one step, and print a JSON line for each model that has encoded the candidates.

    Raises:
        InputError: the step does not exist, or lacks a flag.
    """
    needed = {"add": ("model_file", "candidates_file"), "remove": ("candidates_file",), "status": ()}.get(opt["what"])
    given = {name for name in ("model_file", "candidates_file") if opt[name]}
    if needed is None or given != {*needed}:
        raise InputError(f"Give one of: {USAGE}.")
    from polyagents.index.engines.candidates import remove  # these import torch: errors in flags are reported before
    from polyagents.index.engines.urls import open_engine
    from polyagents.index.texts import FileTexts
    from polyagents.ranker import Ranker

    if opt["what"] == "add":
        precision = {"precision": opt["precision"]} if opt["precision"] else {}
        ranker = Ranker.load(opt["model_file"], backend=opt["backend"], **precision)
        ranker.append(ranker.open_engine(opt["index_url"]), FileTexts(opt["candidates_file"]))
    engine = open_engine(opt["index_url"])
    if opt["what"] == "remove":
        texts = FileTexts(opt["candidates_file"])
        remove(engine, texts.part(0, len(texts)))
    versions = engine.versions()
    if not versions:
        raise InputError(f"{engine.where} has no candidates; build them with polyagents build_index --index-url.")
    for one in versions:
        line = {"model": one.model, "candidates": engine.collection(one).count(), "width": one.width}
        print(json.dumps({**line, "index_type": one.index_type, "current": one.is_current}))
    engine.close()
