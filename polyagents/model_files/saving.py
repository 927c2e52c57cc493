"""Writes a model atomically: `M` (weights), `M.opt` (options) and `M.dict` (tokenizer); or a Hugging Face folder."""

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

import torch
import transformers

from polyagents.errors import InputError
from polyagents.files import model_file
from polyagents.files.atomic import atomic_folder, refuse_no_file, write_text
from polyagents.models.adapters import trained_weights
from polyagents.models.backbone import config_values
from polyagents.ranking.ranking_model import RankingModel
from polyagents.text.dictionary_file import DictionaryFile
from polyagents.text.tokenizer import RankingTokenizer


def save_model(model: RankingModel, file: str, state: Mapping[str, Any] | None = None) -> None:
    """Write a model that `load_model`, `Ranker.load` and ParlAI's commands open; the weights come last.

    Without them, no new `M.opt` or `M.dict` stays, which the same command would not overwrite.

    Args:
        state: other tensors and plain values for the weights' file, of a run that may be resumed.

    Raises:
        InputError: the disk is full, the files may not be written, or M is another file.
    """
    refuse_other_file(file)  # before M.dict and M.opt are written
    options = {**model.settings.saved, "model": f"polyagents:{model.architecture}", "dict_file": f"{file}.dict"}
    made_for = {name: options.get(name) for name in ("backbone", "vocabulary", "task")}
    new = [part for part in (f"{file}.dict", f"{file}.opt") if not os.path.lexists(part)]
    try:
        DictionaryFile(model.tokenizer, config_values(model.context_encoder.backbone), made_for).write(f"{file}.dict")
        write_text(f"{file}.opt", json.dumps(options, indent=4) + "\n")
        model_file.write(file, {"model": trained_weights(model.module), "number_training_updates": 0, **(state or {})})
    except BaseException:
        for part in new:
            with contextlib.suppress(OSError):
                os.remove(part)
        raise


def refuse_other_file(file: str) -> None:
    """Refuse a name that no model file can have, or a file that is not one; M.opt, written before M, tells."""
    refuse_no_file(file)
    if os.path.exists(file) and not os.path.exists(f"{file}.opt"):
        raise InputError(f"{file} is there, and is not a model file ({file}.opt is missing); give another name.")


FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def write_hugging_face(
    model: "transformers.PreTrainedModel", tokenizer: RankingTokenizer, folder: str, again: bool = False
) -> None:
    """Write an encoder and its tokenizer, the weights last, into a new folder, or over an earlier one (`again`)."""
    if tokenizer.parlai is not None:
        # Pieces that ParlAI's dictionary lacks get embeddings, equal to the unknown token's.
        model.resize_token_embeddings(tokenizer.compiled.get_vocab_size(), mean_resizing=False)
        weight: torch.Tensor = model.get_input_embeddings().weight  # type: ignore[assignment]
        with torch.no_grad():
            weight[len(tokenizer) :] = weight[tokenizer.id_of(tokenizer.unknown)]
    with atomic_folder(folder, "convert_weights", lambda there: again and {*os.listdir(there)} <= FILES) as temporary:
        model.save_pretrained(temporary)
        tokenizer.to_transformers().save_pretrained(temporary)
