"""The start of a training run, in ParlAI's loop and in Ranker.train: a new model, another one, or a checkpoint."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from polyagents.arguments import AUTO
from polyagents.console import command
from polyagents.errors import InputError
from polyagents.model_files import initial_weights
from polyagents.model_files.building import build_encoder, build_model, settings_of
from polyagents.model_files.loading import Parts, load_from_file, load_model, own_parts, parlai_parts
from polyagents.models import output_scaling
from polyagents.models.adapters import trained_weights
from polyagents.models.architecture import options_of
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import SCRATCH
from polyagents.parlai_files import bpe_dictionary, parlai_options
from polyagents.ranking.ranking_model import RankingModel
from polyagents.text.pretrained import load_tokenizer
from polyagents.text.tokenizer import RankingTokenizer
from polyagents.text.vocabulary import learn_word_pieces
from polyagents.training import distributed
from polyagents.training.distillation import Distillation
from polyagents.training.optimising import align_weights
from polyagents.training.rehearsal import rehearse
from polyagents.training_loop.budget import fitting_rate
from polyagents.training_loop.training_data import TrainingData
from polyagents.training_loop.training_options import TrainingOptions
from polyagents.zoo.resolve import zoo_file

Reader = Callable[[int], Sequence[tuple[str, str]]]
"""Returns this many of the first training examples, at most: their contexts and labels, "" without one."""


def starting_model(
    architecture: str,
    values: dict[str, Any],
    tokenizer: RankingTokenizer,
    known: PretrainedConfig | None,
    has_file: bool,
    training: bool,
    read: Reader,
) -> RankingModel:
    """Build a model as ParlAI's loop and Ranker.train start from it, on the CPU; a file's weights are loaded later.

    Args:
        values: all options, the file's own included. A measured `output_scaling` replaces "auto" in them, and a rate
            that fits the backbone replaces None.
        tokenizer: gets its prompts here, [S] prompt text [S].
        known: the backbone's configuration, if a model's files have it.
        has_file: whether a file's weights will follow.
        training: whether gradients will be needed.
        read: asked only if something has to be measured.

    Raises:
        InputError: an option is not possible.
    """
    if values.get("seed") is not None:
        torch.manual_seed(values["seed"])
    settings = settings_of(architecture, values)
    config, weights = initial_weights.backbone_of(values, known, has_file)
    encoder = build_encoder(settings, tokenizer, training, config, weights)
    if not has_file:
        initial_weights.check_pooling(values, encoder)
    if settings.ranking.output_scaling == AUTO:
        pairs = read(output_scaling.EXAMPLES)
        texts = tokenizer.contexts([context for context, _ in pairs], settings.text_truncate)
        texts += tokenizer.candidates([label for _, label in pairs if label], settings.label_truncate)
        # One factor for all processes: machines round differently.
        factor = distributed.gathered(output_scaling.factor(encoder, texts, tokenizer.pad_id))[0]
        encoder.output_scaling = values["output_scaling"] = factor
    if training and values.get("learningrate") is None:
        values["learningrate"] = fitting_rate(encoder.width)
    return build_model(encoder, tokenizer, settings)


def fitting_weights(
    weights: Mapping[str, Tensor], file: str, architecture: str, module: nn.Module
) -> Mapping[str, Tensor]:
    """Return the weights of a file; if it has another architecture, only those that the module has.

    Raises:
        InputError: the file lacks a part of the encoder.
    """
    if initial_weights.trained_as(file) in (None, architecture):
        return weights
    return initial_weights.transferable_weights(weights, trained_weights(module))


def begin(model: RankingModel, options: Mapping[str, Any], datapath: str | None) -> Distillation | None:
    """Prepare the first step, once a model is on its device; the processes have the same weights then.

    Returns:
        The teacher, if the run has one.

    Raises:
        InputError: a run with this backbone would fail, or there is no such teacher.
    """
    distributed.same_weights(model.module)
    rehearse(model)
    if options["compile"]:
        for encoder in {module for module in model.module.modules() if isinstance(module, Encoder)}:
            encoder.compile_backbone()
    if not (file := options.get("teacher_model_file")):
        return None
    teacher = load_model(zoo_file(file, datapath), model.device, {})
    return Distillation(teacher, options["distillation_loss"], options["teacher_negatives"])


# ---- Ranker.train ----------------------------------------------------------------------------------------------------


def model_of_options(
    architecture: str,
    given: Mapping[str, Any],
    options: TrainingOptions,
    data: TrainingData,
    file: str | None,
    datapath: str | None,
    resumes: bool = False,
) -> RankingModel:
    """Build a model that learns, with the weights of its file, on the CPU.

    Args:
        given: options of the model and of its training that were given; they take precedence over the file's.
        options: of its training; all are written next to the model.
        data: a new model learns its vocabulary from it, or is measured by it, if options say so.
        file: the model that it starts from; None for a new one.
        resumes: whether the file is the checkpoint of this training, not another model.

    Raises:
        InputError: an option is not possible, or the file does not fit.
    """
    defaults = {name: option.default for name, option in options_of(architecture).items()}
    values = defaults | asdict(options) | dict(given) | {"override": given, "datapath": datapath}
    parts = None if file is None else starting_parts(file, architecture, values, resumes)
    initial_weights.decide_flags(file, values, architecture)
    values = {name: value for name, value in values.items() if value is not None}
    tokenizer = new_tokenizer(values, data, datapath) if parts is None else parts.tokenizer

    def read(count: int) -> list[tuple[str, str]]:
        return [(one.context, one.labels[0]) for one in data.first(count, f"output_scaling={AUTO!r}")]

    known = None if parts is None else parts.config
    model = starting_model(architecture, values, tokenizer, known, parts is not None, True, read)
    saved = {name: value for name, value in values.items() if name not in ("override", "datapath")}
    model.settings = replace(model.settings, saved=saved)
    if parts is not None and file is not None:
        load_from_file(model, fitting_weights(parts.weights, file, architecture, model.module), file)
        align_weights(model.module)
    return model


def check_start(file: str) -> None:
    """Refuse, with an InputError, an initial model that is missing or a folder."""
    if not os.path.exists(file):
        raise InputError(f"There is no model at {file}; give another init_model.")
    if os.path.isdir(file):
        raise InputError(
            f"{file} is a folder, and init_model takes a model file: make it with "
            f"{command('convert_weights', '-mf', file, '--to', 'model-file', '--out', 'M')}."
        )


def starting_parts(file: str, architecture: str, values: Mapping[str, Any], resumes: bool) -> Parts:
    """Read the files of a model that an architecture starts from; refuse missing, damaged or unfitting ones."""
    check_start(file)
    named = {"dict_file": f"{file}.dict"}
    named["model_file" if resumes else "init_model"] = file
    initial_weights.check_file(file, {**values, **named}, architecture, training=True)
    return parlai_parts(file, architecture) if parlai_options.is_parlais(file) else own_parts(file, architecture)


def new_tokenizer(values: Mapping[str, Any], data: TrainingData, datapath: str | None) -> RankingTokenizer:
    """Load the tokenizer of a backbone, or learn it from the examples for a scratch one without a vocabulary.

    An InputError says if there is no tokenizer, or a vocabulary in addition to it.
    """
    backbone, vocabulary = values["backbone"], values.get("vocabulary")
    if not backbone.startswith(SCRATCH):
        if vocabulary:
            raise InputError(f"--backbone {backbone} has a vocabulary of its own; remove --vocabulary.")
        if file := initial_weights.backbone_file(backbone, datapath):
            parlai_options.check(file)
            return RankingTokenizer.of_content(bpe_dictionary.read(f"{file}.dict", parlai_options.read(file)))
        return load_tokenizer(backbone)
    if vocabulary:
        return load_tokenizer(vocabulary, "--vocabulary")
    examples = data.first(None, f"backbone={backbone!r} without a vocabulary")
    texts = (text for one in examples for text in (one.context, *one.labels, *(one.candidates or ())))
    return learn_word_pieces(dict.fromkeys(line for text in texts for line in text.split("\n")))
