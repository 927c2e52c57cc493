"""What an agent starts from: whether the file fits, and which flags it decides.

A file is the model itself (`--model-file`), one to start from (`--init-model`, or the checkpoint of a run that was
stopped), or none. Each may be ParlAI's own.
"""

import os
from typing import TYPE_CHECKING, Any

from parlai.core.opt import Opt
from torch import Tensor
from transformers import PretrainedConfig

from polyagents.arguments import AUTO
from polyagents.errors import InputError
from polyagents.models.model_options import SCRATCH
from polyagents.parlai_files import parlai_options
from polyagents.parlai_files.parlai_weights import ParlaiModel
from polyagents.zoo.resolve import zoo_file

if TYPE_CHECKING:
    from polyagents.parlai_agents.dictionary import TextDictionary

# What weights were trained with, and mean nothing without.
DECIDED = (
    *("backbone", "output_scaling", "reduction_type", "share_encoders", "similarity"),
    *("polyencoder_type", "poly_n_codes", "poly_attention_type"),
)


def check(file: str, opt: Opt, architecture: str, training: bool) -> None:
    """Refuse a file that is not whole, another agent's, or ParlAI's where it would be overwritten.

    Args:
        file: a model file.
        opt: the agent's options.
        architecture: the agent's.
        training: whether it is to be trained.
    """
    is_parlais = parlai_options.is_parlais(file)
    parlai_options.check(file)
    needed = [f"{file}.opt"] if not training else []
    needed += [opt["dict_file"]] if opt["backbone"].startswith(SCRATCH) else []
    needed += [f"{file}.dict", f"{file}.dict.codecs"] if is_parlais else []
    for part in needed:
        if not os.path.exists(part):
            raise InputError(f"{part} is missing; a model is {file}, {file}.opt and {file}.dict together.")
    name = parlai_options.read(file).get("model")
    trained_as = parlai_options.architecture_of(name) or str(name).split(":")[-1].removesuffix("Agent")
    if name is not None and trained_as != architecture:
        hint = f"give --backbone {file} to start from its encoder" if is_parlais else "remove --model"
        raise InputError(
            f"{file} was trained as {name} and cannot be loaded as polyagents:{architecture}; {hint}, or give another "
            f"--model-file."
        )
    if is_parlais and training and file == opt.get("model_file"):
        raise InputError(
            f"{file} is a model of ParlAI's own agent, which training would overwrite; give --init-model {file} and "
            f"another --model-file."
        )


def decide_flags(file: str | None, opt: Opt, architecture: str) -> ParlaiModel | None:
    """Let the file, or the backbone, decide the flags that were not given.

    Args:
        file: a model file, or None.
        opt: the agent's options, which are changed.
        architecture: the agent's.

    Returns:
        The model, where it is ParlAI's.
    """
    given = opt.get("override", {})
    if file is None:
        source = backbone_file(opt["backbone"], opt.get("datapath"))
        if source is not None and "output_scaling" not in given:
            opt["output_scaling"] = parlai_options.read(source).get("output_scaling", 1.0)
        return None
    if given.get("output_scaling") == AUTO:  # is for backbones; a model was trained with its factor
        given = {name: value for name, value in given.items() if name != "output_scaling"}
    decided = decided_by(file, architecture, is_model=file == opt.get("model_file"))
    opt |= {name: given.get(name, value) for name, value in decided.items()}
    if opt.get("share_encoders") and not decided.get("share_encoders", True):
        raise InputError(
            f"{file} has an encoder for contexts and one for candidates; remove --share-encoders, or give "
            f"--backbone to start from one encoder for both."
        )
    return ParlaiModel.read(file) if parlai_options.is_parlais(file) else None


def decided_by(file: str, architecture: str, is_model: bool) -> dict[str, Any]:
    """The flags that a file decides; those of the model itself have come with its M.opt, if it is ours."""
    saved = parlai_options.read(file)
    if parlai_options.is_parlais(file):
        flags = (
            parlai_options.translated(saved, architecture) if is_model else parlai_options.decided(saved, architecture)
        )
        return flags | {"backbone": file}
    return {name: saved[name] for name in DECIDED if name in saved}


def backbone_file(backbone: str, datapath: str | None) -> str | None:
    """The ParlAI model file that `--backbone` names: its path, or its name in the zoo; None for other backbones."""
    file = zoo_file(backbone, datapath)
    return file if parlai_options.is_parlais(file) else None


def backbone_of(
    opt: Opt, dictionary: "TextDictionary", model: ParlaiModel | None, has_file: bool
) -> tuple[PretrainedConfig | None, dict[str, Tensor] | None]:
    """The shape and the weights that an encoder starts from, where `--backbone` does not say it all.

    Args:
        opt: the agent's options.
        dictionary: the agent's; it may know the shape of a backbone.
        model: ParlAI's own model that is to be loaded.
        has_file: whether a model file's weights will follow.
    """
    if model is not None:
        return model.config(), None
    if has_file and dictionary.config is not None:
        return dictionary.config, None
    if file := backbone_file(opt["backbone"], opt.get("datapath")):
        source = ParlaiModel.read(file)
        return source.config(), source.backbone()
    return None, None
