"""Loads a trained model from its files: `M`, `M.opt` and `M.dict` of our agents or of ParlAI's, or a folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn

from polyagents.backbone_files import config_of
from polyagents.console import command, say
from polyagents.errors import InputError, first_line
from polyagents.files import model_file
from polyagents.files.hashing import utf8
from polyagents.files.json_files import read_json
from polyagents.files.tensors import wrong_tensors
from polyagents.model_files import model_folder
from polyagents.model_files.building import build_encoder, build_model, settings_of, vocabulary_of
from polyagents.models.adapters import load_weights, with_frozen_weights
from polyagents.models.architecture import ARCHITECTURES, MISSING, is_known, options_of
from polyagents.models.backbone import scratch_config
from polyagents.models.model_options import history_flags, of_finished_model
from polyagents.parlai_files import bpe_dictionary, parlai_options
from polyagents.parlai_files.parlai_weights import ParlaiModel
from polyagents.ranking.ranking_model import RankingModel
from polyagents.surroundings import OwnDraws, undisturbed
from polyagents.text.dictionary_file import DictionaryFile, dictionary_of
from polyagents.text.tokenizer import RankingTokenizer

PADDING = 64  # ParlAI adds a few rows in fp16, to a multiple of 4 or 8
# Options that decide scores, and that the files of every version have; two towers have the second ones, too.
ALWAYS = ("backbone", "text_truncate", "label_truncate", "reduction_type")
ALWAYS_OF_TOWERS = ("similarity", "share_encoders")
PERSON_TOKENS = ("__p1__", "__p2__")  # ParlAI's, of --person-tokens


@dataclass(frozen=True)
class Parts:
    """The content of a model's files; the options have our names."""

    values: dict[str, Any]
    tokenizer: RankingTokenizer
    config: "transformers.PretrainedConfig"
    weights: Mapping[str, Tensor]


@undisturbed(gradients=True)
def load_model(file: str, device: torch.device, overrides: Mapping[str, Any]) -> RankingModel:
    """Load a model for evaluation, not for training.

    Args:
        file: its path, with the other files in the same folder; or a folder that `model_folder.write_folder` wrote.
        overrides: options with other values than the file's.

    Raises:
        InputError: a file is missing or damaged, or the model is not ours.
    """
    architecture = architecture_of_file(file)
    if os.path.isdir(file):
        parts = folder_parts(file)
    else:
        parts = parlai_parts(file, architecture) if parlai_options.is_parlais(file) else own_parts(file, architecture)
    if marks := history_flags(parts.values):
        say(
            f"{file} was trained with {' '.join(f'{flag} {value!r}' for flag, value in marks.items())}, which ParlAI's "
            f"commands still do to the turns of a dialogue. Ranker reads a context as it is: give it in that form."
        )
    values = parts.values | dict(overrides)
    settings = settings_of(architecture, values)
    try:
        # Adapters are added to the weights of the backbone itself.
        config = None if settings.ranking.lora_rank else parts.config
        with OwnDraws():  # what a file lacks, such as the codes of ParlAI's pretrained poly-encoders
            encoder = build_encoder(settings, parts.tokenizer, training=False, config=config)
            model = build_model(encoder, parts.tokenizer, settings)
    except InputError as error:
        if not settings.ranking.lora_rank or not isinstance(error.__cause__, OSError):
            raise
        raise InputError(
            f"{file} contains only adapters, and there is no model at {settings.encoder.backbone}, to which they "
            f"belong; give its place with Ranker.load(..., backbone=FOLDER), or make a model that needs none: "
            f"{command('convert_weights', '-mf', file, '--backbone', 'FOLDER', '--to', 'model-file', '--out', 'M')}."
        ) from error
    except (MemoryError, OverflowError, RuntimeError, TypeError) as error:  # shapes that no tensor can have
        raise InputError(
            f"{options_file(file)} does not describe a model that can be built ({first_line(error)})."
        ) from error
    load_from_file(model, parts.weights, file)
    model.module.to(device).eval()
    return model


def load_from_file(model: RankingModel, weights: Mapping[str, Tensor], file: str) -> None:
    """Load the weights of a file into a model, completed; refuse those that are not the model's."""
    backbone = model.settings.encoder.backbone
    load_weights(model.module, checked_weights(model.module, weights, file, model.architecture, backbone))


def checked_weights(
    module: nn.Module, weights: Mapping[str, Tensor], file: str, architecture: str, backbone: str
) -> Mapping[str, Tensor]:
    """Return the weights of a file, completed by what it need not hold.

    Raises:
        InputError: some are missing, unknown, not finite, of another shape or type, or two for one.
    """
    own = module.state_dict()
    if getattr(module, "codes", None) is not None and "codes" not in weights and parlai_options.is_parlais(file):
        weights = dict(weights) | {"codes": own["codes"]}  # ParlAI's pretrained poly-encoders have none
    weights = with_frozen_weights(module, weights, file, backbone)
    _, same = model_file.without_copies(own)
    wrong = wrong_tensors(own, weights) or [
        f"{name} is not {other}"  # where the model has one weight of two names, such as those of a shared encoder
        for name, other in same.items()
        if weights[name] is not weights[other] and not torch.equal(weights[name], weights[other])
    ]
    if wrong:
        raise InputError(
            f"{file} cannot be loaded as polyagents:{architecture} with --backbone {backbone} ({wrong[0]}); it was "
            f"trained with other options than {options_file(file)} says."
        )
    return weights


def architecture_of_file(file: str) -> str:
    """Return the architecture with which a model file was trained; refuse a missing file, or another agent's."""
    if os.path.isdir(file):
        return model_folder.read_folder_config(file).architecture
    if not os.path.exists(file) or not os.path.exists(f"{file}.opt"):
        raise InputError(
            f"There is no trained model at {file}: both {file} and {file}.opt are needed. Give the --model-file of "
            f"train_model, or a folder that Ranker.save_pretrained wrote."
        )
    name = str(parlai_options.read_whole(f"{file}.opt").get("model"))
    found = parlai_options.architecture_of_agent(name) or name.split(":")[-1].removesuffix("Agent")
    if not is_known(found):
        if name.startswith("polyagents:"):
            raise InputError(f"{file} was trained as {name}, {MISSING}.")
        raise InputError(
            f"{file} was trained as {name}; Ranker loads models of polyagents ({', '.join(sorted(ARCHITECTURES))})."
        )
    return found


def has_adapters(file: str) -> bool:
    """Tell whether a model file contains only adapters, and needs the weights of its backbone."""
    return not os.path.isdir(file) and parlai_options.read(file).get("lora_rank") is not None


def options_file(file: str) -> str:
    """Return the path of a model's options."""
    return os.path.join(file, model_folder.CONFIG) if os.path.isdir(file) else f"{file}.opt"


def refuse_missing_options(saved: Mapping[str, Any], file: str, architecture: str) -> None:
    """Refuse a model's options if one is missing that decides scores."""
    always = ALWAYS + (ALWAYS_OF_TOWERS if "similarity" in options_of(architecture) else ())
    if missing := [name for name in always if saved.get(name) is None]:
        raise InputError(
            f"{options_file(file)} is damaged: it has no {missing[0]}, without which nothing says what it computes."
        )


def folder_parts(folder: str) -> Parts:
    """Read a model folder; refuse one with a missing or damaged file."""
    config = model_folder.read_folder_config(folder)
    if config.options.get("lora_rank") is not None:  # we write no such folders, and a backbone would be needed
        raise InputError(f"{folder} names adapters (lora_rank), which model folders have merged into their weights.")
    refuse_missing_options(config.options, folder, config.architecture)
    tokenizer = model_folder.read_tokenizer(folder, config)
    weights = read_weights(os.path.join(folder, model_folder.WEIGHTS))["model"]
    values = {**config.training, **of_finished_model(config.options, folder)}
    return Parts(values, tokenizer, config_of(config.backbone), weights)


def own_parts(file: str, architecture: str) -> Parts:
    """Read the files that our agents wrote; refuse missing or damaged ones."""
    saved = of_finished_model(parlai_options.read_whole(f"{file}.opt"), file)
    if odd := sorted(options_of(architecture).keys() & read_json(f"{file}.opt").keys() - saved.keys() - {"codes_init"}):
        raise InputError(f"{file}.opt is damaged: {odd[0]} has no value that an option can have.")
    # The file's architecture, not the given one, which may start from a file of another.
    refuse_missing_options(saved, file, architecture_of_file(file))
    held = DictionaryFile.read(dictionary_of(file, saved.get("dict_file")))
    # The user's own tokens, which ParlAI adds each time that it opens a dictionary.
    listed = utf8(str(saved.get("special_tok_lst") or "")).decode()
    if tokens := [*filter(None, listed.split(",")), *(PERSON_TOKENS if saved.get("person_tokens") else ())]:
        held.tokenizer.add_tokens(tokens)
    if held.backbone_config is None:  # a vocabulary that was learnt before there was a backbone
        config = scratch_config(str(saved.get("backbone")), vocabulary_of(held.tokenizer))
    else:
        config = config_of(held.backbone_config)
    return Parts(saved, held.tokenizer, config, read_weights(file)["model"])


def read_weights(file: str) -> dict[str, Any]:
    """Read a model file of ours, its weights under "model"; refuse a missing or damaged one, or another kind."""
    try:
        return model_file.read(file)
    except InputError:
        raise
    except (FileNotFoundError, PermissionError) as error:
        raise InputError(
            f"{file} cannot be read ({error.strerror}); the model's weights are in it, so put it there, or make it "
            f"readable."
        ) from error
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise InputError(
            f"{file} cannot be loaded: it is damaged, or is not a model file of polyagents; give another --model-file."
        ) from error


def parlai_parts(file: str, architecture: str) -> Parts:
    """Read the files that ParlAI's own agents wrote, for our architecture; refuse missing, damaged or unfit ones."""
    parlai_options.check(file)  # before its dictionary, which may be one of the options that ours do not have
    for part in (f"{file}.dict", f"{file}.dict.codecs"):
        if not os.path.exists(part):
            raise InputError(f"{part} is missing; a model is {file}, {file}.opt and {file}.dict together.")
    model = ParlaiModel.read(file)
    values = {**model.options, **parlai_options.translated(model.options, architecture), "backbone": file}
    content, config = bpe_dictionary.read(f"{file}.dict", model.options), model.config()
    tokens = content["parlai"]["tokens"]
    if not tokens <= config.vocab_size < tokens + PADDING:
        raise InputError(
            f"{file}.dict has {tokens:,} tokens, and {file} has embeddings of {config.vocab_size:,}; give the model's "
            f"own dictionary."
        )
    return Parts(values, RankingTokenizer.of_content(content), config, model.state())
