"""`polyagents convert_weights`: convert a trained model for Hugging Face's libraries or ParlAI's agents."""

import argparse
import contextlib
import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.arguments import CommandParser
from polyagents.console import command
from polyagents.errors import InputError
from polyagents.files.own_folder import make_folder_of
from polyagents.zoo.datapath import add_datapath_flag, datapath

if TYPE_CHECKING:
    from polyagents.ranking.ranking_model import RankingModel

PARTS = (".opt", ".dict", ".dict.codecs")  # next to a model file of ours or of ParlAI's


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, and what to write."""
    parser = CommandParser("polyagents convert_weights", "Write a model in another program's format.")
    parser.add_argument(
        "-mf",
        "--model-file",
        required=True,
        help="a model of polyagents, a folder of Ranker.save_pretrained, a model of ParlAI's bi-, poly- or "
        "cross-encoder; or zoo:...",
    )
    parser.add_argument(
        "--to",
        required=True,
        choices=("huggingface", "sentence-transformers", "parlai", "model-file"),
        help="huggingface: the encoder that reads contexts, with its tokenizer, a folder for AutoModel and for "
        "--backbone; sentence-transformers: a bi- or cross-encoder, a folder for SentenceTransformer or CrossEncoder; "
        "parlai: everything, a model file for `parlai ... -m transformer/polyencoder` and similar agents; model-file: "
        "everything, as training writes it, of a folder or of a model with adapters. Adapters (--lora-rank) are merged",
    )
    parser.add_argument(
        "--out", required=True, help="the folder or model file to write; an existing one is not overwritten"
    )
    parser.add_argument("--backbone", help="for a model with adapters: the current place of its backbone")
    add_datapath_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Convert."""
    file, target, out = opt["model_file"], opt["to"], opt["out"]
    for path in (out, *(f"{out}{part}" for part in PARTS if target in ("parlai", "model-file"))):
        if os.path.lexists(path):
            raise InputError(f"{path} exists and is not overwritten; give another --out.")

    from polyagents.ranker import Ranker  # imports torch: errors in flags are reported before

    moved = {} if opt["backbone"] is None else {"backbone": opt["backbone"]}
    model = Ranker.load(file, no_cuda=True, datapath=datapath(opt["datapath"]), **moved).model.merged()
    make_folder_of(out)
    print(WRITERS[target](model, out))


def write_huggingface(model: "RankingModel", folder: str) -> str:
    """Write the encoder that reads contexts to a folder, and say how it is used."""
    from polyagents.model_files.saving import write_hugging_face

    write_hugging_face(model.context_encoder.backbone, model.tokenizer, folder)
    ranking, scaling = model.settings.ranking, model.context_encoder.output_scaling
    both = zip(("context", "candidate"), ranking.prompts, strict=True)
    given = [f"--{of}-prompt {shlex.quote(prompt)}" for of, prompt in both if prompt]
    given += [f"--output-scaling {scaling}"] if scaling != 1 else []
    note = f" {' '.join(given)}, which the folder does not hold" if given else ""
    return f"{folder} is a Hugging Face folder: use it with --backbone {shlex.quote(folder)}{note}"


def write_sentence_transformers(model: "RankingModel", folder: str) -> str:
    """Write a bi- or cross-encoder for sentence-transformers to a folder, and say how it is used."""
    from polyagents.model_files.sentence_transformers_export import write_as_sentence_transformers

    write_as_sentence_transformers(model, folder)
    kind = "CrossEncoder" if model.architecture == "CrossEncoder" else "SentenceTransformer"
    return f"{folder} is a folder of sentence-transformers: {kind}({folder!r})"


def write_model_file(model: "RankingModel", file: str) -> str:
    """Write a model file as training does, and say how it is used."""
    from polyagents.model_files.saving import save_model

    save_model(model, file)
    return f"{file} is a model file: {command('interactive', '-mf', file)}"


def write_parlai(model: "RankingModel", file: str) -> str:
    """Write a model file of ParlAI's after its options and dictionary, so that it never lacks them; say its use."""
    from parlai.core.params import ParlaiParser

    from polyagents.models.architecture import options_of
    from polyagents.parlai_files import parlai_options
    from polyagents.parlai_files.parlai_weights import ParlaiModel  # imports torch

    saved = {**model.settings.saved, "output_scaling": model.context_encoder.output_scaling}
    table, config = options_of(model.architecture), model.context_encoder.backbone.config
    options = parlai_options.options_for_parlai(saved, table, model.architecture, config)
    try:
        converted = ParlaiModel.of(model.architecture, model.module.state_dict(), options)
        theirs = ParlaiParser(True, True).parse_args(["--model", parlai_options.AGENTS[model.architecture]])
        converted.write(file, model.tokenizer.content(), dict(theirs))
    except BaseException:
        for part in PARTS:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{file}{part}")
        raise
    return f"{file} is a model file of ParlAI's: parlai eval_model -mf {shlex.quote(file)} -t TASK"


WRITERS = {
    "huggingface": write_huggingface,
    "sentence-transformers": write_sentence_transformers,
    "parlai": write_parlai,
    "model-file": write_model_file,
}
