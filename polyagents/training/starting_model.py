"""Builds the model that a training from Python starts from: a new one, another model, or a checkpoint."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from polyagents.arguments import AUTO
from polyagents.errors import InputError
from polyagents.models import output_scaling
from polyagents.models.adapters import trained_weights
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import SCRATCH
from polyagents.options import fields_of
from polyagents.parlai_files import bpe_dictionary, parlai_options
from polyagents.ranking import initial_weights
from polyagents.ranking.building import build_encoder, build_model, settings_of
from polyagents.ranking.loading import Parts, checked_weights, own_parts, parlai_parts
from polyagents.ranking.option_groups import option_groups
from polyagents.ranking.ranking_model import RankingModel, Settings
from polyagents.text.pretrained import load_tokenizer
from polyagents.text.tokenizer import RankingTokenizer
from polyagents.text.word_pieces import learn_word_pieces
from polyagents.training.optimising import align_weights
from polyagents.training.text_examples import TrainingData
from polyagents.training.training_options import TrainingOptions


def starting_model(
    architecture: str,
    given: Mapping[str, Any],
    options: TrainingOptions,
    data: TrainingData,
    file: str | None,
    datapath: str | None,
    resumes: bool = False,
) -> RankingModel:
    """Build a model that learns, on the CPU.

    Args:
        given: options of the model and of its training, as far as they were given; they take precedence over the
            file's.
        options: those of its training; all are written beside the model.
        data: a new model learns its vocabulary from it, or is measured by it, where options say so.
        file: the model that it starts from; None for a new one.
        datapath: the folder of downloads; None for ParlAI's.
        resumes: whether the file is the checkpoint of this training, not another model.

    Raises:
        InputError: an option is not possible, or the file does not fit.
    """
    defaults = {field.name: field.default for group in option_groups(architecture) for field in fields_of(group)}
    values = defaults | asdict(options) | dict(given) | {"override": given, "datapath": datapath}
    parts = None if file is None else parts_of(file, architecture, values, resumes)
    initial_weights.decide_flags(file, values, architecture)
    kept = {name: value for name, value in values.items() if name not in ("override", "datapath") and value is not None}
    settings = settings_of(architecture, kept)
    tokenizer = new_tokenizer(kept, data, datapath) if parts is None else parts.tokenizer
    known = None if parts is None else parts.config
    config, weights = initial_weights.backbone_of(values, known, None, has_file=parts is not None)
    torch.manual_seed(options.seed)
    encoder = build_encoder(settings, tokenizer, True, config, weights)
    if parts is None:
        initial_weights.check_pooling(values, encoder)
    if settings.ranking.output_scaling == AUTO:
        encoder.output_scaling = kept["output_scaling"] = measured_scaling(encoder, tokenizer, settings, data)
    model = build_model(encoder, tokenizer, settings)
    if parts is not None and file is not None:
        load_initial_weights(model, parts, file)
    return model


def parts_of(file: str, architecture: str, values: Mapping[str, Any], resumes: bool) -> Parts:
    """Read the files of a model.

    Args:
        architecture: the name of the class that starts from it.
        values: all options.
        resumes: whether the file is the checkpoint of this training, not another model.

    Raises:
        InputError: a file is missing or damaged, or the architecture cannot start from the model.
    """
    if not os.path.exists(file):
        raise InputError(f"There is no model at {file}; give another init_model.")
    if os.path.isdir(file):
        raise InputError(
            f"{file} is a folder, and init_model takes a model file: make it with polyagents convert_weights "
            f"-mf {file} --to model-file --out M."
        )
    named = {"dict_file": f"{file}.dict"}
    named["model_file" if resumes else "init_model"] = file
    initial_weights.check(file, {**values, **named}, architecture, training=True)
    return parlai_parts(file, architecture) if parlai_options.is_parlais(file) else own_parts(file, architecture)


def load_initial_weights(model: RankingModel, parts: Parts, file: str) -> None:
    """Load the weights of a file into a model; those of another architecture as far as the model has them.

    Args:
        model: changed in place.
        file: its path.

    Raises:
        InputError: the weights do not fit.
    """
    weights = parts.weights
    if initial_weights.trained_as(file) not in (None, model.architecture):
        weights = initial_weights.transferable_weights(weights, trained_weights(model.module))
    model.load_weights(checked_weights(model, weights, file))
    align_weights(model.module)


def new_tokenizer(values: Mapping[str, Any], data: TrainingData, datapath: str | None) -> RankingTokenizer:
    """Load the tokenizer of a backbone, or learn it from the examples for a scratch one without a vocabulary.

    Args:
        values: all options.
        datapath: the folder of downloads; None for ParlAI's.

    Raises:
        InputError: there is no tokenizer, or a vocabulary was given in addition to it.
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


def measured_scaling(encoder: Encoder, tokenizer: RankingTokenizer, settings: Settings, data: TrainingData) -> float:
    """Compute the factor of `output_scaling="auto"`.

    Args:
        encoder: without any scaling.
        data: the examples; some of them are measured.
    """
    examples = data.first(output_scaling.EXAMPLES, f"output_scaling={AUTO!r}")
    texts = context_ids(tokenizer, settings, [one.context for one in examples])
    labels = tokenizer.encode([one.labels[0] for one in examples])
    texts += [tokenizer.candidate(ids, settings.label_truncate) for ids in labels]
    return output_scaling.factor(encoder, texts, tokenizer.pad_id)


def context_ids(tokenizer: RankingTokenizer, settings: Settings, texts: Sequence[str]) -> list[list[int]]:
    """Encode contexts as the model reads them.

    Returns:
        Token ids of each.
    """
    return [tokenizer.context(ids, settings.text_truncate) for ids in tokenizer.encode(texts)]
