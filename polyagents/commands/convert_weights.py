"""`polyagents convert_weights`: a trained model for other programs, Hugging Face's libraries or ParlAI's own agents."""

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.arguments import CommandParser
from polyagents.errors import InputError
from polyagents.zoo.datapath import add_datapath_flag, datapath

if TYPE_CHECKING:
    from polyagents.ranking.ranking_model import RankingModel

PARTS = (".opt", ".dict", ".dict.codecs")  # beside a model file of ParlAI's; ours has the first two


def parser() -> argparse.ArgumentParser:
    """The flags: a model, and what to write."""
    parser = CommandParser("polyagents convert_weights", "Write a model in another program's format.")
    parser.add_argument(
        "-mf",
        "--model-file",
        required=True,
        help="a model of polyagents or of ParlAI's bi-, poly- or cross-encoder; or zoo:...",
    )
    parser.add_argument(
        "--to",
        required=True,
        choices=("huggingface", "parlai", "merged"),
        help="huggingface: the encoder that reads contexts, with its tokenizer, a folder for AutoModel and for "
        "--backbone; parlai: everything, a model file for `parlai ... -m transformer/polyencoder` and its like; "
        "merged: a model file whose weights have taken up the adapters of --lora-rank, and which needs no --backbone",
    )
    parser.add_argument(
        "--out", required=True, help="the folder or model file to write; nothing that exists is overwritten"
    )
    add_datapath_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Convert."""
    file, target, out = opt["model_file"], opt["to"], opt["out"]
    for path in (out, *(f"{out}{part}" for part in PARTS if target != "huggingface")):
        if os.path.lexists(path):
            raise InputError(f"{path} exists, and nothing is overwritten; give another --out.")

    from polyagents.models.adapters import (  # these import torch, which a wrong flag should not wait for
        is_adapted,
        merge,
    )
    from polyagents.ranker import Ranker
    from polyagents.ranking.hugging_face import write_folder
    from polyagents.ranking.saving import save_model

    model = Ranker.load(file, no_cuda=True, datapath=datapath(opt["datapath"])).model
    if is_adapted(model.module):
        merge(model.module)
        model.settings = dataclasses.replace(model.settings, saved={**model.saved, "lora_rank": None})
    elif target == "merged":
        raise InputError(f"{file} has no adapters to merge: it was not trained with --lora-rank.")
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    if target == "merged":
        save_model(model, out)
        print(f"{out} is a model file: polyagents rank -mf {out} --candidates-file FILE")
    elif target == "huggingface":
        write_folder(model.context_encoder.backbone, model.tokenizer, out)
        scaling = model.context_encoder.output_scaling
        note = "" if scaling == 1 else f" --output-scaling {scaling}, which the folder does not hold"
        print(f"{out} is a Hugging Face folder: use it with --backbone {out}{note}")
    else:
        write_parlai(model, out)
        print(f"{out} is a model file of ParlAI's: parlai eval_model -mf {out} -t TASK")


def write_parlai(model: "RankingModel", file: str) -> None:
    """Write the model file, its options and dictionary; the model file comes last, so where it is, the others are."""
    from polyagents.parlai_agents.parlai_flags import agent_flags
    from polyagents.parlai_files import parlai_options
    from polyagents.parlai_files.parlai_weights import ParlaiModel  # imports torch

    saved = {**model.saved, "output_scaling": model.context_encoder.output_scaling}
    options = parlai_options.for_parlai(saved, model.architecture, model.context_encoder.backbone.config)
    try:
        converted = ParlaiModel.of(model.architecture, model.module.state_dict(), options)
        converted.write(file, model.tokenizer.content(), agent_flags(model.architecture))
    except BaseException:
        for part in PARTS:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{file}{part}")
        raise
