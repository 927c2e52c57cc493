"""The common input of search and server benchmarks: a model, contexts, and the model's index."""

import argparse

from polyagents.arguments import CommandParser, positive_int
from polyagents.files.context_lines import read_contexts
from polyagents.index.store import CandidateStore
from polyagents.models.two_towers import Query
from polyagents.ranker import Ranker


def context_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Make a parser with the flags that name the model and the contexts."""
    parser = CommandParser(f"python -m polyagents.benchmarks.{name}", description)
    parser.add_argument("-mf", "--model-file", required=True, help="a bi- or poly-encoder")
    parser.add_argument("--contexts-file", required=True, help="contexts, one per line")
    return parser


def index_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Make a parser with the flags that name the index and the contexts."""
    parser = context_parser(name, description)
    parser.add_argument("--index-dir", required=True, help="its index, with hnsw beside it")
    parser.add_argument("--contexts", type=positive_int, default=50, help="how many contexts are asked")
    return parser


def opened(opt: argparse.Namespace) -> tuple[Ranker, CandidateStore, list[Query]]:
    """Open the model and its index, and encode each context separately."""
    ranker = Ranker.load(opt.model_file)
    asked = [ranker.query([context]) for context in read_contexts(opt.contexts_file)[: opt.contexts]]
    return ranker, ranker.open_index(opt.index_dir), asked
