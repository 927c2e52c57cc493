"""Makes a ranker of an encoder without training: the encoder's own files decide how it reads and scores."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import transformers

from polyagents.backbone_files import located_backbone, read_config
from polyagents.console import command, say
from polyagents.errors import InputError
from polyagents.files.python_arguments import path_text
from polyagents.files.tensors import is_finite
from polyagents.model_files import classifiers, hub, initial_weights, model_folder, sentence_transformers_import
from polyagents.model_files.building import build_encoder, build_model, settings_of
from polyagents.models.architecture import architecture_named, find, options_of
from polyagents.models.model_options import SCRATCH
from polyagents.ranking.joint_model import JointModel, Row
from polyagents.ranking.ranking_model import RankingModel
from polyagents.surroundings import OwnDraws, silent_transformers, undisturbed
from polyagents.text.pretrained import load_tokenizer

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
PROBES = ("hello there", "yes, it is"), ("which of these is longer, this or that? " * 20, "no, " * 500)
ROUNDING = 1e-3  # of a score, in fp32


@undisturbed(gradients=True)
def model_from_encoder(encoder: Any, architecture: str, tokenizer: Any) -> RankingModel:
    """Build a ranker of an encoder, on the CPU; the arguments are those of `Ranker.from_encoder`.

    Raises:
        InputError: there is no such encoder, or it cannot be such a ranker as it is.
    """
    kind = architecture_named(str(architecture))
    with folder_with(encoder, tokenizer) as (folder, name):
        refuse_other_modules(folder, name)
        classifier = classifiers.classifier_in(weights_in(folder))
        if "Pooling" in sentence_transformers_import.modules_in(folder):
            classifier = None  # its head is not used there
        if classifier is not None:  # or -m cross would be named, which cannot take it either
            classifiers.refuse_other_heads(classifier, name)
        if kind == "BiEncoder" and classifier is None:
            return with_finite_weights(bi_encoder(folder, name), name)
        if kind == "CrossEncoder" and classifier is not None:
            return with_finite_weights(cross_encoder(folder, name, classifier), name)
    if kind == "BiEncoder" and classifier is not None:
        raise InputError(
            f"{name} reads a context together with a candidate ({classifier.name}), so it is a cross-encoder as it is "
            f"(-m cross, architecture='cross'); a bi-encoder of its encoder has to be trained, with --backbone."
        )
    as_is = "bi" if classifier is None else "cross"
    train = command("train_model", "-m", find(kind).short_name, "--backbone", name)
    raise InputError(
        f"{name} has no trained head of a {find(kind).label}: what is not in it would be random, and so would the "
        f"scores. Take it as it is (-m {as_is}, architecture={as_is!r}), or train: {train}."
    )


def with_finite_weights(model: RankingModel, name: str) -> RankingModel:
    """Return a model; refuse one with weights that are not finite, which training would find by its rehearsal."""
    for part, weight in model.module.named_parameters():
        if weight.is_floating_point() and not is_finite(weight.detach()):
            raise InputError(f"{name}: {part} has numbers that are not finite; give another model.")
    return model


@contextlib.contextmanager
def folder_with(encoder: Any, tokenizer: Any) -> Iterator[tuple[str, str]]:
    """Give the folder of an encoder, and its name for messages and options; refuse a ranker, or none."""
    if not isinstance(encoder, str | os.PathLike):
        with tempfile.TemporaryDirectory() as folder:
            write_encoder(encoder, tokenizer, folder)
            name = type(encoder).__name__
            try:
                yield folder, name
            except InputError as error:  # the folder is gone before anybody reads the sentence
                raise InputError(str(error).replace(folder, name)) from error
        return
    name = path_text(encoder, "encoder")
    if tokenizer is not None:
        raise InputError(f"A tokenizer belongs to a model in memory; {name} has its own. Remove one of the two.")
    folder = located_backbone(name)
    if name.startswith(SCRATCH):
        raise InputError(f"{name} has random weights, so its scores would be random; train it, with --backbone {name}.")
    is_ranker = os.path.exists(os.path.join(folder, model_folder.CONFIG)) and model_folder.is_own_folder(folder)
    if folder.startswith("zoo:") or os.path.isfile(folder) or is_ranker:
        raise InputError(f"{name} is not an encoder; if it is a ranker, load it: Ranker.load({name!r}).")
    if not os.path.isdir(folder):
        if not HUB_NAME.fullmatch(name):
            raise InputError(f"There is no folder {name}; give an encoder's folder, zoo:minilm, or a name on the hub.")
        folder = hub.download_encoder(name)
    yield folder, name


def write_encoder(encoder: Any, tokenizer: Any, folder: str) -> None:
    """Write a model in memory, of sentence-transformers or transformers, to a folder; refuse other objects."""
    if isinstance(encoder, transformers.PreTrainedModel) and not hasattr(tokenizer, "save_pretrained"):
        raise InputError(
            f"A {type(encoder).__name__} reads token ids; give its tokenizer, too: from_encoder(model, tokenizer=...)."
        )
    if isinstance(encoder, type) or not hasattr(encoder, "save_pretrained"):
        raise InputError(
            f"A {type(encoder).__name__} is not an encoder; give a name, a folder, or a model of "
            f"sentence-transformers or transformers."
        )
    with silent_transformers():
        encoder.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def refuse_other_modules(folder: str, name: str) -> None:
    """Refuse a folder of sentence-transformers that has no single encoder, cuts vectors, or keeps the end of texts."""
    kinds = sentence_transformers_import.modules_in(folder)
    if kinds and "Transformer" not in kinds:
        raise InputError(
            f"{name} is made of {', '.join(kinds)}, and polyagents takes one Transformer with its pooling as it is; "
            f"train from the folder of an encoder in it, with --backbone."
        )
    if length := sentence_transformers_import.settings_in_folder(folder).get("truncate_dim"):
        raise InputError(
            f"{name} compares the first {length} numbers of each vector (truncate_dim), and polyagents compares whole "
            f"vectors; set truncate_dim to null, which is None in Python, to do so."
        )
    if sentence_transformers_import.truncation_side_of(weights_in(folder)) != "right":
        raise InputError(
            f"{name} keeps the end of a long text (truncation_side of its tokenizer), and polyagents the beginning, "
            f"where a model is taken as it is; set truncation_side to right to do so all the same."
        )


def weights_in(folder: str) -> str:
    """Return the folder of the weights: sentence-transformers' module Transformer, if there is one."""
    modules = sentence_transformers_import.modules_in(folder)
    return os.path.normpath(os.path.join(folder, modules.get("Transformer", "")))


def all_options(kind: str, weights: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return all options of a model, defaults included; the encoder's folder, `weights`, decides its lengths."""
    known = {name: field.default for name, field in options_of(kind).items()}
    text, label = (-1 if length is None else length for length in sentence_transformers_import.lengths_of(weights))
    return known | {"backbone": weights, "plain_texts": True, "text_truncate": text, "label_truncate": label} | options


def bi_encoder(folder: str, name: str) -> RankingModel:
    """Build a bi-encoder as sentence-transformers computes it."""
    library, weights = sentence_transformers_import, weights_in(folder)
    pooled = library.is_folder(folder)
    options = {
        "reduction_type": library.reduction_of(folder) if pooled else "mean",
        "include_prompt": not pooled or library.includes_prompt(folder),
        "similarity": library.similarity_of(folder),
        "share_encoders": True,
    }
    if not pooled:
        say(f"{name} says neither how its outputs are pooled nor how they are compared: by mean and cosine.")
    model = built("BiEncoder", name, all_options("BiEncoder", weights, options | library.prompts_of(folder)))
    if pooled:
        initial_weights.check_pooling({"backbone": folder, **options}, model.context_encoder)
    return model


def cross_encoder(folder: str, name: str, found: classifiers.Classifier) -> RankingModel:
    """Build a cross-encoder of a model for sequence classification, and compare their scores."""
    weights = weights_in(folder)
    if others := sorted(sentence_transformers_import.modules_in(folder).keys() - {"Transformer"}):
        raise InputError(
            f"{name} has modules that polyagents does not have in a cross-encoder ({', '.join(others)}); give one that "
            f"is a model of transformers for sequence classification."
        )
    theirs = classifiers.load_classifier(weights, found)
    head = classifiers.HEADS[found.name.removesuffix(classifiers.KIND)]
    settings = sentence_transformers_import.settings_in_folder(folder)
    prompt = (settings.get("prompts") or {}).get(str(settings.get("default_prompt_name"))) or ""
    options = {"joint_head": head.activation, "reduction_type": "first", "context_prompt": prompt}
    model = built("CrossEncoder", name, all_options("CrossEncoder", weights, options), theirs.base_model)
    assert isinstance(model, JointModel)
    classifiers.copy_head(model, theirs, to_theirs=False)
    refuse_other_scores(model, theirs, weights, name)
    return model


def built(kind: str, name: str, options: dict[str, Any], theirs: Any = None) -> RankingModel:
    """Build a model.

    Args:
        name: of the encoder, instead of a folder that may be temporary.
        theirs: the backbone with its weights; None to load it.
    """
    settings = settings_of(kind, options)
    tokenizer = load_tokenizer(options["backbone"])
    config = weights = None
    if theirs is not None:
        config = read_config(options["backbone"])
        weights = {key: weight for key, weight in theirs.state_dict().items() if not key.startswith("pooler.")}
    with OwnDraws():
        encoder = build_encoder(settings, tokenizer, training=False, config=config, weights=weights)
        lengths = {key: options[key] for key in ("text_truncate", "label_truncate")}
        if encoder.max_tokens is not None:  # some name more positions than there are for tokens
            lengths = {k: min(n, encoder.max_tokens) if n > 0 else encoder.max_tokens for k, n in lengths.items()}
        options = options | lengths
        settings = replace(settings_of(kind, options), saved=options | {"backbone": name})
        model = build_model(encoder, tokenizer, settings)
    model.settings = replace(settings, encoder=replace(settings.encoder, backbone=name))
    model.module.eval()
    return model


def refuse_other_scores(model: JointModel, theirs: Any, folder: str, name: str) -> None:
    """Refuse a model whose scores differ from transformers' own, with its own tokenizer."""
    with silent_transformers():
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, config=theirs.config, use_fast=True, trust_remote_code=False
        )
    longest = model.settings.text_truncate
    for context, candidate in PROBES:
        pair = model.tokenizer.prompts[0] + context, candidate
        with torch.no_grad():
            read = tokenizer(*pair, truncation=longest is not None, max_length=longest, return_tensors="pt")
            expected = float(theirs(**read).logits)
            row: Row = model.context_ids([context])[0], [model.candidates([candidate])[0].ids]
            score = float(model.module(model.joint_tokens([row])))
        if not abs(score - expected) <= ROUNDING:
            raise InputError(
                f"{name} scores a pair of texts by {expected:.4f}, and polyagents, which would compute it as a "
                f"{model.label}, by {score:.4f}; so it cannot be taken as it is. Train from its encoder (--backbone)."
            )
