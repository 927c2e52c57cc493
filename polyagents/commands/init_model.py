"""`polyagents init_model`: make a ranker of an encoder as it is."""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.errors import InputError


def parser() -> argparse.ArgumentParser:
    """Declare the flags: an encoder, and the model file to write."""
    parser = CommandParser(
        "polyagents init_model",
        "Write the model file of an encoder as it is, without training: for rank, serve, evaluate, --rerank, as a "
        "teacher, or as the --init-model of a training.",
    )
    parser.add_argument(
        "--backbone",
        required=True,
        help="a folder or hub name of a Hugging Face or sentence-transformers model, or zoo:minilm",
    )
    parser.add_argument(
        "-mf", "--model-file", required=True, help="the model file to write; nothing that exists is overwritten"
    )
    parser.add_argument(
        "-m",
        "--model",
        default="bi",
        help="bi; or cross, for a model for sequence classification with one output",
    )
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Make the ranker and write it."""
    file = opt["model_file"]
    for path in (file, f"{file}.opt", f"{file}.dict"):
        if os.path.lexists(path):
            raise InputError(f"{path} exists, and nothing is overwritten; give another --model-file.")

    from polyagents.ranker import Ranker  # imports torch: errors in flags are reported before

    ranker = Ranker.from_encoder(opt["backbone"], opt["model"], no_cuda=True)
    ranker.save(file)
    print(f"{file} is a {ranker.model.label}: polyagents rank -mf {file} --candidates-file FILE")
