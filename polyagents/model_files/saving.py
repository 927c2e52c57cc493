"""Writes a model's three files atomically: `M` (weights), `M.opt` (options) and `M.dict` (tokenizer)."""

import json
import os
from collections.abc import Mapping
from typing import Any

from polyagents.files import model_file
from polyagents.files.atomic import write_text
from polyagents.models.adapters import trained_weights
from polyagents.models.backbone import config_values
from polyagents.ranking.ranking_model import RankingModel
from polyagents.text.dictionary_file import DictionaryFile


def save_model(model: RankingModel, file: str, state: Mapping[str, Any] | None = None) -> None:
    """Write a model that `load_model`, `Ranker.load` and ParlAI's commands open; the weights come last.

    Args:
        state: other tensors and plain values for the weights' file, of a training that may be resumed.

    Raises:
        InputError: the disk is full, or the files may not be written.
    """
    os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
    options = {**model.saved, "model": f"polyagents:{model.architecture}", "dict_file": f"{file}.dict"}
    made_for = {name: options.get(name) for name in ("backbone", "vocabulary", "task")}
    DictionaryFile(model.tokenizer, config_values(model.context_encoder.backbone), made_for).write(f"{file}.dict")
    write_text(f"{file}.opt", json.dumps(options, indent=4) + "\n")
    model_file.write(file, {"model": trained_weights(model.module), "number_training_updates": 0, **(state or {})})
