"""A model as one folder, as model hubs keep them: config.json, model.safetensors, tokenizer files, README.md.

Such a folder usually comes from somebody else. Only JSON and safetensors are read from it, and each value is checked
for the expected type; there are no pickles, and nothing in it names code. It contains what the model needs and what its
card says, but no paths of the machine that wrote it.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyagents import __version__
from polyagents.errors import InputError, first_line
from polyagents.files import model_file
from polyagents.files.atomic import atomic_folder
from polyagents.files.json_files import fields_of_json, fits, read_json
from polyagents.model_files.model_card import AVERAGED, model_card
from polyagents.models.architecture import MISSING, is_known, options_of
from polyagents.models.backbone import config_values
from polyagents.parlai_files.parlai_options import Plain
from polyagents.ranking.ranking_model import RankingModel
from polyagents.text.tokenizer import RankingTokenizer

FORMAT = "polyagents-folder-1"
CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "README.md"
CALIBRATION = "calibration.json"  # of decisions/calibration.py

# Options of a training run on the card, and those by which ParlAI's commands read a dialogue; none names a file.
TRAINING_FLAGS = (
    *("task", "seed", "num_epochs", "max_train_steps", "max_train_time", "batchsize", "update_freq", "fp16"),
    *("optimizer", "learningrate", "lr_scheduler", "lr_scheduler_patience", "lr_scheduler_decay", "warmup_updates"),
    *("weight_decay", "gradient_clip", "validation_metric", "validation_patience", "candidates", "eval_candidates"),
    *("cross_negatives", "every_utterance", "history_size", "person_tokens", "delimiter", "split_lines"),
    *("history_reversed", "history_add_global_end_token"),
    AVERAGED,
)
NAME_FILES = ("backbone", "vocabulary")  # options that may be paths
SHOWN = ("exs", "candidates", "hits@", "mrr", "loss")  # prefixes of the metrics on the card


@dataclass(frozen=True)
class FolderConfig:
    """The content of config.json.

    Attributes:
        format: the number of our format.
        options: the model's own options.
        backbone: the configuration of the Hugging Face model within.
        parlai: set if the tokenizer was built from ParlAI's own dictionary.
        results: split -> metric -> value, of the evaluations that ended its training.
        machine: the machine that it was trained on; None if nothing says so.
    """

    format: str
    polyagents_version: str
    architecture: str
    options: dict[str, Plain]
    special_tokens: dict[str, str]
    backbone: dict[str, Any]
    parlai: dict[str, Any] | None = None
    training: dict[str, Plain | list[Plain]] = field(default_factory=dict)
    results: dict[str, dict[str, float]] = field(default_factory=dict)
    machine: str | None = None


def is_own_folder(folder: str) -> bool:
    """Tell whether a folder is one of ours, or the clone of a repository that has nothing but a README.md."""
    try:
        found = read_json(os.path.join(folder, CONFIG))
    except (OSError, ValueError):
        return all(name == CARD or name.startswith(".git") for name in os.listdir(folder))
    return isinstance(found, dict) and found.get("format") == FORMAT


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_folder_config(folder: str) -> FolderConfig:
    """Read config.json of a folder; refuse a missing one, or another kind of file."""
    path = os.path.join(folder, CONFIG)
    try:
        found = read_json(path)
        if not isinstance(found, Mapping) or found.get("format") != FORMAT:
            raise ValueError(f"it is not a {FORMAT}")
        config = fields_of_json(found, FolderConfig)
    except OSError as error:
        raise InputError(
            f"{folder} is not a model: {path} cannot be read ({error.strerror}); give a folder that "
            f"Ranker.save_pretrained wrote, or the --model-file of train_model."
        ) from error
    except ValueError as error:
        raise InputError(
            f"{path} is not the configuration of a ranker ({first_line(error)}); give a folder that "
            f"Ranker.save_pretrained wrote. An encoder of another library ranks as it is with Ranker.from_encoder "
            f"(polyagents init_model); to train from it, give it as --backbone."
        ) from error
    if not is_known(config.architecture):
        raise InputError(f"{path} names {config.architecture!r:.80}, {MISSING}.")
    return config


def read_tokenizer(folder: str, config: FolderConfig) -> RankingTokenizer:
    """Read the tokenizer of a folder; refuse a missing or damaged file."""
    path = os.path.join(folder, TOKENIZER)
    try:
        content = {"special_tokens": config.special_tokens, "parlai": config.parlai}
        return RankingTokenizer.of_content(content | {"tokenizer": json.dumps(read_json(path))})
    except Exception as error:  # no JSON, or not ours; the tokenizers library raises bare Exceptions
        raise InputError(f"{path} is missing, or is not the tokenizer that {CONFIG} describes.") from error


def outcome_of(file: str | None) -> tuple[dict[str, dict[str, float]], str | None]:
    """Return the results of a model's training, and its machine, as far as `.trainstats` or a folder says them."""
    if file is not None and os.path.isdir(file):
        config = read_folder_config(file)
        return config.results, config.machine
    try:
        found = read_json(f"{file}.trainstats") if file is not None else None
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        return {}, None
    results: dict[str, dict[str, float]] = {}
    for split in ("valid", "test"):
        report = found.get(f"final_{split}_report")
        for name, value in report.items() if isinstance(report, dict) else ():
            if name.startswith(SHOWN) and fits(value, float):
                results.setdefault(split, {})[name] = value
    machine = found.get("machine")
    return results, machine if isinstance(machine, str) else None


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_folder(model: RankingModel, folder: str, file: str | None, license: str | None) -> None:
    """Write a model as a folder; each file is written atomically, and the weights come last.

    A README.md that is there is kept: somebody may have written it.

    Args:
        folder: created if it is missing; one that holds another kind of files is left as it is.
        file: the file that the model was loaded from, for the results of its training; None if that is not known.
        license: the licence in the card, such as "mit"; None if nobody has decided.

    Raises:
        InputError: the folder is another's, or cannot be written.
    """
    model = model.merged()  # a folder must be complete without a backbone
    config = config_of_model(model, file)
    keeps_card = os.path.exists(os.path.join(folder, CARD))
    with atomic_folder(folder, "save_pretrained", is_own_folder) as temporary:
        os.makedirs(temporary)
        model.tokenizer.to_transformers().save_pretrained(temporary)
        texts = {TOKENIZER: model.tokenizer.compiled.to_str(pretty=True)}  # in an index's fingerprint, so never changed
        texts[CONFIG] = json.dumps(dataclasses.asdict(config), indent=2, ensure_ascii=False) + "\n"
        if not keeps_card:
            texts[CARD] = model_card(model, dataclasses.asdict(config), license)
        for name, text in texts.items():
            with open(os.path.join(temporary, name), "w", encoding="utf-8", errors="replace") as out:
                out.write(text)
        model_file.write(os.path.join(temporary, WEIGHTS), {"model": model.module.state_dict()})


def config_of_model(model: RankingModel, file: str | None) -> FolderConfig:
    """Build the configuration of a model in memory."""
    table, saved = options_of(model.architecture), model.settings.saved
    options = {name: saved.get(name, option.default) for name, option in table.items()}
    options |= {name: without_path(options[name]) for name in NAME_FILES}
    options["output_scaling"] = model.context_encoder.output_scaling
    training = {name: saved[name] for name in TRAINING_FLAGS if saved.get(name) is not None}
    content = model.tokenizer.content()
    return FolderConfig(
        FORMAT,
        __version__,
        model.architecture,
        options,
        content["special_tokens"],
        config_values(model.context_encoder.backbone),
        content["parlai"],
        training,
        *outcome_of(file),
    )


def without_path(name: Any) -> Any:
    """Return a backbone's name without the folders of this machine that lead to it."""
    if not isinstance(name, str) or not (os.path.isabs(name) or os.path.exists(name)):
        return name
    return os.path.basename(os.path.normpath(name))
