"""The initial weights of a run: checks that the file fits, and applies the options that it decides.

A file is the model itself (`--model-file`), one to start from (`--init-model`, or the checkpoint of a run that was
stopped), or none. Each may be ParlAI's own.

Everywhere here, `opt` has all options of the run, those that the user gave under "override", and `architecture` is the
one that the user asked for.
"""

import os
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import PretrainedConfig

from polyagents.arguments import AUTO
from polyagents.backbone_files import located_backbone
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.model_files import sentence_transformers_import
from polyagents.models.architecture import is_known, options_of, options_with
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import SCRATCH, is_similarity, of_finished_model
from polyagents.options import Role
from polyagents.parlai_files import parlai_options
from polyagents.parlai_files.parlai_weights import ParlaiModel
from polyagents.zoo.resolve import zoo_file

CHECKPOINT = ".checkpoint"  # M.checkpoint is the last state of a run that trains M

# The names of encoders in all architectures; one that a model lacks starts as the first of them that it has.
ENCODERS = ("context_encoder", "encoder", "candidate_encoder")


def is_own_state(file: str | None, opt: Mapping[str, Any]) -> bool:
    """Return whether a file is the run's own model or its checkpoint, from which it is resumed."""
    model = opt.get("model_file")
    return file is not None and file in (model, f"{model}{CHECKPOINT}")


def check_file(file: str, opt: Mapping[str, Any], architecture: str, training: bool) -> None:
    """Refuse a file that is incomplete, another agent's, or ParlAI's if it would be overwritten.

    Args:
        training: whether it will be trained.
    """
    is_parlais = parlai_options.is_parlais(file)
    parlai_options.check(file)
    saved, given = parlai_options.read(file), opt.get("override", {})
    if not is_parlais:
        of_finished_model(saved, file)
    needed = [f"{file}.opt"] if not training else []
    needed += [opt["dict_file"]] if opt["backbone"].startswith(SCRATCH) else []
    needed += [f"{file}.dict", f"{file}.dict.codecs"] if is_parlais else []
    for part in needed:
        if not os.path.exists(part):
            raise InputError(f"{part} is missing; a model is {file}, {file}.opt and {file}.dict together.")
    for fixed in ("special_tok_lst", "person_tokens"):
        if fixed in given and (given[fixed] or None) != (saved.get(fixed) or None):
            raise InputError(f"--{fixed.replace('_', '-')} cannot be changed for a trained model ({file}); omit it.")
    source = trained_as(file)
    if training and is_own_state(file, opt) and not is_parlais:
        refuse_another_training(file, opt, architecture)
    starts_another = training and file == opt.get("init_model") and not is_parlais and is_known(str(source))
    if source not in (None, architecture) and not (starts_another and is_known(architecture)):
        name = saved.get("model")
        start = f"give --backbone {file} to start from its encoder"
        hint = start if is_parlais else "remove --model, or train from it with --init-model"
        raise InputError(
            f"{file} was trained as {name} and cannot be loaded as polyagents:{architecture}; {hint}, or give another "
            f"--model-file."
        )
    if is_parlais and training and file == opt.get("model_file"):
        raise InputError(
            f"{file} is a model of ParlAI's own agent, which training would overwrite; give --init-model {file} and "
            f"another --model-file."
        )


def refuse_another_training(file: str, opt: Mapping[str, Any], architecture: str) -> None:
    """Refuse to continue training a model, from its file or checkpoint, with flags for a model of other weights."""
    saved, given = parlai_options.read(file), opt.get("override", {})
    shapes = options_with(architecture, Role.WEIGHTS)
    wanted = {name: given[name] for name in shapes if given.get(name) is not None and name in saved}
    if may_be_backbone(wanted.get("backbone"), saved):
        wanted.pop("backbone", None)
    other = {name: value for name, value in wanted.items() if value != saved[name]}
    source = trained_as(file)
    was, now = ([f"--{name.replace('_', '-')} {values[name]}" for name in other] for values in (saved, wanted))
    model, start = file.removesuffix(CHECKPOINT), ""
    if source not in (None, architecture):
        was, now = [f"polyagents:{source}", *was], [f"polyagents:{architecture}", *now]
        start = f" (and --init-model {model} to train from it)"
    if was:
        raise InputError(
            f"{model} was trained as {', '.join(was)} and cannot be trained as {', '.join(now)}: give another "
            f"--model-file for a new model{start}, or the flags of the first run to resume it."
        )


def may_be_backbone(given: str | None, saved: Mapping[str, Any]) -> bool:
    """Return whether a backbone may be the one of a file's options, maybe in another folder.

    Adapters belong to it wherever it is now: a digest of its weights is in their file, and decides when it is read.
    """
    known = saved.get("backbone")
    return bool(
        saved.get("lora_rank") or None in (given, known) or os.path.basename(str(given)) == os.path.basename(str(known))
    )


def refuse_another_metric(file: str, metric: str, mode: str | None = None) -> None:
    """Refuse to resume a run whose best model was chosen by another metric, which cannot be compared with this one.

    Args:
        file: the checkpoint, or the model file.
        mode: "max" or "min", the better values of the metric; None if it has only one of these.
    """
    saved, flag = parlai_options.read(file), "--validation-metric"
    before, before_mode = saved.get("validation_metric", metric), saved.get("validation_metric_mode") or "max"
    if before == metric and mode not in (None, before_mode):
        before, metric = f"{metric} {flag}-mode {before_mode}", f"{metric} {flag}-mode {mode}"
    if before != metric:
        model = file.removesuffix(CHECKPOINT)
        raise InputError(
            f"{model} was chosen by {flag} {before} so far, which cannot be compared with {flag} {metric}; give the "
            f"first one to resume its run, or another --model-file and --init-model {model} to start from it."
        )


def trained_as(file: str) -> str | None:
    """Return the architecture with which a model file was trained; None if unknown."""
    name = parlai_options.read(file).get("model")
    if name is None:
        return None
    return parlai_options.architecture_of_agent(name) or str(name).split(":")[-1].removesuffix("Agent")


def transferable_weights(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the weights that a model of another architecture can start from.

    An encoder that reads both texts together takes the weights of the context encoder; in the other direction both
    encoders take its weights, except that for candidates if it has one.

    Args:
        weights: the other model's, by its names.
        own: this model's, by its names; heads and codes that the other one lacks keep their values.

    Raises:
        InputError: the other model lacks a part of the encoder.
    """
    taken = dict(own)
    for name in own:
        part, _, rest = name.partition(".")
        names = [name, *(f"{encoder}.{rest}" for encoder in ENCODERS if part in ENCODERS)]
        found = next((there for there in names if there in weights), None)
        if found is not None:
            taken[name] = weights[found]
        elif part in ENCODERS:
            raise InputError(
                f"The --init-model has no weights for {name}; it is damaged, or belongs to another backbone."
            )
    return taken


def decide_flags(file: str | None, opt: dict[str, Any], architecture: str) -> ParlaiModel | None:
    """Apply to `opt` the flags that the file or the backbone decides, unless the user gave them.

    Returns:
        The file's model, if it is ParlAI's.
    """
    given = opt.get("override", {})
    check_adapter_flags(file, opt)
    if file is None:
        if opt["backbone"].startswith(SCRATCH) and "reduction_type" not in given:
            opt["reduction_type"] = "mean"  # random weights hardly learn by the first output (docs/training.md)
        if sentence_transformers_import.is_folder(located_backbone(opt["backbone"])):
            decide_by_sentence_transformers(opt)
        source = backbone_file(opt["backbone"], opt.get("datapath"))
        if source is not None and "output_scaling" not in given:
            opt["output_scaling"] = parlai_options.read(source).get("output_scaling", 1.0)
        refuse_idle_encoder(opt)
        return None
    is_start = not is_own_state(file, opt)  # a run that is resumed repeats its flags
    if given.get("output_scaling") == AUTO:  # auto is for backbones; a model keeps the factor that it was trained with
        if is_start:
            say(f"--output-scaling auto is for a backbone; the factor that {file} was trained with is kept.")
        given = {name: value for name, value in given.items() if name != "output_scaling"}
    decided = decided_by(file, architecture, is_model=file == opt.get("model_file"))
    if is_start and not may_be_backbone(given.get("backbone"), decided):
        raise InputError(
            f"--init-model {file} has the backbone {decided['backbone']}, and --backbone is {given['backbone']}; give "
            f"one of the two."
        )
    head = given.get("joint_head", decided.get("joint_head", opt.get("joint_head")))
    if head is not None and not is_similarity(head):
        decided.pop("share_encoders", None)  # the file's second encoder is not taken
    opt |= {name: given.get(name, value) for name, value in decided.items()}
    refuse_idle_encoder(opt)
    if opt.get("share_encoders") and not decided.get("share_encoders", True):
        raise InputError(
            f"{file} has an encoder for contexts and one for candidates; remove --share-encoders, or give "
            f"--backbone to start from one encoder for both."
        )
    return ParlaiModel.read(file) if parlai_options.is_parlais(file) else None


def refuse_idle_encoder(opt: Mapping[str, Any]) -> None:
    """Refuse a second encoder for a joint model's candidates that the user asks for and the head would not use."""
    head = opt.get("joint_head")
    if head is not None and not is_similarity(head) and opt.get("override", {}).get("share_encoders") is False:
        raise InputError(
            f"--share-encoders false is for the similarity of --joint-head dot or cosine, and --joint-head {head} has "
            f"none; remove it, or give such a head."
        )


def check_adapter_flags(file: str | None, opt: Mapping[str, Any]) -> None:
    """Refuse `--lora-rank` if the backbone's weights could not be read again, or the file has other adapters."""
    rank, backbone = opt.get("lora_rank"), opt["backbone"]
    if not rank and opt.get("backbone_bits") and file is None:
        raise InputError("--backbone-bits is for frozen weights below adapters; give --lora-rank, or remove it.")
    if not rank:
        return
    saved = None if file is None else parlai_options.read(file).get("lora_rank")
    if file is not None and saved != rank:
        has = f"has adapters of rank {saved}" if saved else "has no adapters"
        raise InputError(f"{file} {has}, and --lora-rank is {rank}; remove --lora-rank, or start from a --backbone.")
    if opt.get("train_layers"):
        raise InputError("--lora-rank freezes all layers of the backbone; remove it, or --train-layers.")
    if backbone.startswith(SCRATCH) or backbone_file(backbone, opt.get("datapath")) is not None:
        raise InputError(
            f"--lora-rank adds adapters to a pretrained backbone, which is read again whenever the model is loaded, "
            f"and --backbone {backbone} is not pretrained; give a folder or a hub name."
        )


def decide_by_sentence_transformers(opt: dict[str, Any]) -> None:
    """Apply pooling, similarity and prompts of a sentence-transformers folder, unless the user gave others."""
    folder, given = located_backbone(opt["backbone"]), opt.get("override", {})
    if "reduction_type" not in given:
        opt["reduction_type"] = sentence_transformers_import.reduction_of(folder)
    if "similarity" not in given and "similarity" in opt:
        opt["similarity"] = sentence_transformers_import.similarity_of(folder, otherwise=opt["similarity"])
    if "include_prompt" not in given and "include_prompt" in opt:
        opt["include_prompt"] = sentence_transformers_import.includes_prompt(folder)
    for flag, prompt in sentence_transformers_import.prompts_of(folder).items():
        if flag not in opt:
            say(f"{folder} was trained with {prompt!r} before its texts; polyagents does not add that.")
        elif flag not in given:
            opt[flag] = prompt


def check_pooling(opt: Mapping[str, Any], encoder: Encoder) -> None:
    """Refuse a sentence-transformers folder that pools another token than `--reduction-type first` takes.

    That is the last token of an encoder that sees both sides, or the first of a decoder.

    Args:
        encoder: with the weights of the folder.
    """
    folder = located_backbone(opt["backbone"])
    if not sentence_transformers_import.is_folder(folder) or "reduction_type" in opt.get("override", {}):
        return
    mode = sentence_transformers_import.pooling_of(folder)
    if mode is not None and opt["reduction_type"] == "first" and encoder.causal != (mode == "lasttoken"):
        takes = "last token of a decoder" if encoder.causal else "first token of an encoder"
        raise InputError(
            f"--backbone {folder} pools its outputs by {mode}, and polyagents takes the {takes}; give --reduction-type "
            f"first or mean to start from its weights anyway."
        )


def decided_by(file: str, architecture: str, is_model: bool) -> dict[str, Any]:
    """Return the flags that a file decides, which is the model itself (`is_model`), or one to start from."""
    saved = parlai_options.read(file)
    if parlai_options.is_parlais(file):
        flags = (
            parlai_options.translated(saved, architecture)
            if is_model
            else parlai_options.decided_options(saved, architecture)
        )
        return flags | {"backbone": file}
    possible = options_of(architecture)
    if "joint_head" in possible:  # the head starts as the similarity of the model that it starts from
        similarity = saved.get("similarity")
        saved = {"joint_head": f"{similarity}+late" if similarity in ("dot", "cosine") else "linear"} | saved
    elif "similarity" in possible and "joint_head" in saved:  # and in the other direction, where one becomes two
        similarity = {"similarity": "cosine"} if str(saved["joint_head"]).startswith("cosine") else {}
        saved = similarity | {name: value for name, value in saved.items() if name != "share_encoders" or not value}
    decided = options_with(architecture, Role.WEIGHTS | Role.VECTORS | Role.SCORES)
    return {name: saved[name] for name in decided if name in saved}


def backbone_file(backbone: str, datapath: str | None) -> str | None:
    """Return the path of the ParlAI model that `--backbone` names, also by its name in the zoo; None for others."""
    file = zoo_file(backbone, datapath)
    return file if parlai_options.is_parlais(file) else None


def backbone_of(
    opt: Mapping[str, Any], known: PretrainedConfig | None, has_file: bool
) -> tuple[PretrainedConfig | None, dict[str, Tensor] | None]:
    """Return the configuration and the weights of an encoder, each None if `--backbone` decides it.

    Args:
        known: the backbone's configuration, if a model's files have it.
        has_file: whether a model file's weights will follow.
    """
    if has_file and known is not None and not opt.get("lora_rank"):
        return known, None
    if file := backbone_file(opt["backbone"], opt.get("datapath")):
        source = ParlaiModel.read(file)
        return source.config(), source.backbone()
    return None, None
