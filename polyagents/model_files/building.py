"""Builds a model from its settings: the backbone, the encoder around it, and the architecture around that."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import transformers
from torch import Tensor

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.models.adapters import add_adapters
from polyagents.models.architecture import find
from polyagents.models.backbone import Vocabulary, load_backbone
from polyagents.models.encoder import Encoder
from polyagents.models.joint import Joint
from polyagents.models.model_options import SCRATCH, EncoderOptions, TextOptions
from polyagents.models.two_towers import TwoTowers
from polyagents.ranking.joint_model import JointModel
from polyagents.ranking.ranking_model import RankingModel, Settings
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.text.tokenizer import RankingTokenizer
from polyagents.timings import encodes_in_bf16


def settings_of(architecture: str, values: Mapping[str, Any]) -> Settings:
    """Read the settings of a model from an agent's flags or from the options file of a trained model.

    Args:
        values: options by name; unknown ones are ignored, missing ones have their defaults.

    Raises:
        InputError: there is no such architecture, or a value is not possible.
    """
    texts = TextOptions.read(values)
    return Settings(
        architecture,
        EncoderOptions.read(values),
        find(architecture).options_type.read(values),
        limit(texts.text_truncate),
        limit(texts.label_truncate),
        texts.plain_texts,
        values,
    )


def limit(tokens: int) -> int | None:
    """Convert a number of tokens: -1, which means no limit, to None."""
    return None if tokens < 0 else tokens


def vocabulary_of(tokenizer: RankingTokenizer) -> Vocabulary:
    """Return the facts about a tokenizer that a backbone needs."""
    return Vocabulary(len(tokenizer), tokenizer.pad_id, tokenizer.end_id)


def build_encoder(
    settings: Settings,
    tokenizer: RankingTokenizer,
    training: bool,
    config: "transformers.PretrainedConfig | None" = None,
    weights: Mapping[str, Tensor] | None = None,
) -> Encoder:
    """Build the encoder of a model, on the CPU, and set how the tokenizer reads; arguments as for `load_backbone`.

    Raises:
        InputError: there is no such backbone, or a prompt leaves no room for texts.
    """
    if settings.plain_texts and (tokenizer.parlai is not None or settings.encoder.backbone.startswith(SCRATCH)):
        raise InputError(
            f"--plain-texts reads texts as a pretrained tokenizer of Hugging Face does, and --backbone "
            f"{settings.encoder.backbone} has none; remove it."
        )
    tokenizer.set_prompts(*settings.ranking.prompts, settings.plain_texts)
    check_prompts(tokenizer, settings)
    bits, options = settings.ranking.backbone_bits, settings.encoder
    if settings.ranking.lora_rank:
        options = dataclasses.replace(options, train_layers="all")  # adapters freeze every one of them
    backbone = load_backbone(options, vocabulary_of(tokenizer), training, config, weights, bits=bits)
    encoder = Encoder(backbone, settings.encoder, settings.ranking.scale)
    encoder.measures = encodes_in_bf16
    if settings.ranking.lora_rank:
        encoder.backbone_digest = add_adapters(backbone, settings.ranking.lora_rank)
    return encoder


def build_model(encoder: Encoder, tokenizer: RankingTokenizer, settings: Settings) -> RankingModel:
    """Build the model around an encoder, on the CPU.

    Raises:
        InputError: texts may become longer than the encoder has positions for.
        TypeError: the architecture is of neither kind.
    """
    module = find(settings.architecture)(encoder, settings.ranking)
    if isinstance(module, TwoTowers) and not getattr(settings.ranking, "include_prompt", True):
        context, candidate = len(tokenizer.context_prompt), len(tokenizer.candidate_prompt)
        start = len(tokenizer.before)
        module.left_out = context and start + context, candidate and start + candidate
    model: RankingModel
    if isinstance(module, TwoTowers):
        model = TwoTowerModel(module, tokenizer, settings)
    elif isinstance(module, Joint):
        model = JointModel(module, tokenizer, settings)
    else:
        raise TypeError(f"{settings.architecture} extends neither TwoTowers nor Joint.")
    texts, labels = settings.text_truncate, settings.label_truncate
    check_lengths(encoder, settings.encoder.backbone, texts, labels, model.longest_input)
    return model


def check_lengths(encoder: Encoder, backbone: str, texts: int | None, labels: int | None, longest: int) -> None:
    """Refuse lengths, None for no limit, that allow longer inputs than the encoder has positions for."""
    if encoder.max_tokens is None:
        return
    if texts is None or labels is None or longest > encoder.max_tokens:
        text, label = (-1 if length is None else length for length in (texts, labels))
        raise InputError(
            f"--text-truncate {text} and --label-truncate {label} let texts grow longer than the {encoder.max_tokens} "
            f"tokens that {backbone} has positions for; lower them."
        )


def check_prompts(tokenizer: RankingTokenizer, settings: Settings) -> None:
    """Refuse prompts that leave no token for a text."""
    for what, prompt, flag, limit in (
        ("context", tokenizer.context_prompt, "--text-truncate", settings.text_truncate),
        ("candidate", tokenizer.candidate_prompt, "--label-truncate", settings.label_truncate),
    ):
        if limit is not None and len(prompt) + 3 > limit:
            raise InputError(
                f"--{what}-prompt has {number_of(len(prompt), 'token')}, which leaves none of the {limit} of {flag} "
                f"for a {what}; give a shorter prompt, or {flag} {len(prompt) + 3} or more."
            )
