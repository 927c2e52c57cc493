"""`polyagents init_model`: make a ranker without training, from an encoder or from several models."""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.console import command
from polyagents.errors import InputError


def parser() -> argparse.ArgumentParser:
    """Declare the flags: an encoder or models, and the model file to write."""
    parser = CommandParser(
        "polyagents init_model",
        "Write a model file without training, of an encoder as it is or of the mean of several models: for rank, "
        "serve, evaluate, --rerank, as a teacher, or as the --init-model of another model.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--backbone", help="a folder or hub name of a Hugging Face or sentence-transformers model, or zoo:minilm"
    )
    source.add_argument(
        "--average",
        nargs="+",
        action="extend",
        metavar="M",
        help="the models of one training with other seeds: the mean of their weights is as fast as one of them, and "
        "usually ranks better than each",
    )
    parser.add_argument(
        "-mf", "--model-file", required=True, help="the model file to write; nothing that exists is overwritten"
    )
    parser.add_argument(
        "-m",
        "--model",
        help="of --backbone: bi, the default; or cross, for a model for sequence classification with one output",
    )
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Make the ranker and write it."""
    file = opt["model_file"]
    if opt["average"] and opt["model"]:
        raise InputError(
            f"--model {opt['model']} is for --backbone; the models of --average have their own: remove it."
        )
    for path in (file, f"{file}.opt", f"{file}.dict"):
        if os.path.lexists(path):
            raise InputError(f"{path} exists, and nothing is overwritten; give another --model-file.")

    from polyagents.ranker import Ranker  # imports torch: errors in flags are reported before

    if opt["average"]:
        ranker = Ranker.average(opt["average"], no_cuda=True)
    else:
        ranker = Ranker.from_encoder(opt["backbone"], opt["model"] or "bi", no_cuda=True)
    ranker.save(file)
    print(f"{file} is a {ranker.model.label}: {command('rank', '-mf', file, '--candidates-file', 'FILE')}")
