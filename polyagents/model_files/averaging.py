"""The mean of several models' weights: a model that ranks better than each (Wortsman et al. 2022, arXiv 2203.05482)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

import torch

from polyagents.errors import InputError
from polyagents.model_files.model_card import AVERAGED
from polyagents.models.architecture import options_with
from polyagents.models.model_options import is_similarity
from polyagents.models.poly import CODES
from polyagents.options import Role
from polyagents.ranking.ranking_model import RankingModel

COMMON = 0.5  # the least cosine of weights that come from one start: near 1 if they do, near 0 if not


def average_of(models: Iterable[tuple[str, RankingModel]]) -> RankingModel:
    """Average models, which are taken one by one, so that never all are in memory.

    Args:
        models: each with its name in errors; adapters are merged.

    Returns:
        The first of them, with other weights.

    Raises:
        InputError: two of them differ in more than their weights, or do not come from one start.
    """
    runs = ((name, model.merged()) for name, model in models)
    first, mean = next(runs)
    own, count = dict(mean.module.named_parameters()), 1
    for count, (name, model) in enumerate(runs, 2):
        refuse_another_kind(first, mean, name, model)
        theirs = dict(model.module.named_parameters())
        if {key: weight.shape for key, weight in own.items()} != {key: weight.shape for key, weight in theirs.items()}:
            raise InputError(f"{first} and {name} have weights of other sizes; give runs from the same backbone.")
        for part in parts_with_a_start(mean, own):
            cosine = cosine_of(part, theirs)
            if not cosine >= COMMON:  # nor if it is not a number
                raise InputError(
                    f"{first} and {name} do not come from one start (the cosine of their weights {min(part)} is "
                    f"{cosine:.2f}), so the mean of both would know nothing; give runs from the same backbone or, if "
                    f"they have a head of their own, the same --init-model."
                )
        for key, weight in own.items():  # a running mean; parameters that two encoders share come once
            weight.copy_(weight.float().lerp(theirs[key].float(), 1 / count))
    mean.settings = replace(mean.settings, saved={**mean.settings.saved, AVERAGED: count})
    return mean


def refuse_another_kind(first: str, one: RankingModel, second: str, other: RankingModel) -> None:
    """Refuse models that read or score texts in two ways."""
    if one.architecture != other.architecture:
        raise InputError(f"{first} is a {one.label}, and {second} a {other.label}; give models of one architecture.")
    own, theirs = (asdict(it.ranking) | {"plain_texts": it.plain_texts} for it in (one.settings, other.settings))
    for name in options_with(one.architecture, Role.WEIGHTS | Role.VECTORS | Role.SCORES):
        if name in own and own[name] != theirs[name]:  # which name the backbone has does not matter
            raise InputError(
                f"{first} has --{name.replace('_', '-')} {own[name]}, and {second} {theirs[name]}; give runs that "
                f"differ in their seeds or their training only."
            )
    if one.tokenizer.compiled.to_str() != other.tokenizer.compiled.to_str():
        raise InputError(f"{first} and {second} have other vocabularies; give runs from the same backbone.")


def parts_with_a_start(model: RankingModel, weights: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Split weights into an architecture's parts, without those that need not come from one start.

    A head that is added to a similarity starts at 0. Codes are drawn by each seed, and their mean attends more evenly;
    it ranks better than each run all the same (docs/results.md).
    """
    head = getattr(model.settings.ranking, "joint_head", None)
    skipped = {CODES} if head is None or not is_similarity(head) else {CODES, "linear"}
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for name, weight in weights.items():
        if (part := name.split(".")[0]) not in skipped and weight.ndim > 1:  # layer norms are near 1 in every model
            parts.setdefault(part, {})[name] = weight
    return list(parts.values())


def cosine_of(own: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> float:
    """Return the cosine of some weights and of another model's, all of them together."""
    dot = norm = other = 0.0
    for name, weight in own.items():
        a, b = weight.float().flatten(), theirs[name].float().flatten()
        dot, norm, other = dot + float(a @ b), norm + float(a @ a), other + float(b @ b)
    return dot / max(math.sqrt(norm * other), 1e-30)
