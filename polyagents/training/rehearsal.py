"""Tries a run before its first step, with two texts whose effect is then undone.

A backbone may lack what an architecture needs. This way it is known after a second, and not after the run.
"""

import json

import torch

from polyagents.backbone_files import config_of
from polyagents.errors import InputError, first_line
from polyagents.model_files.building import build_encoder
from polyagents.models.backbone import config_values
from polyagents.ranking.candidate_set import inline_set
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training.gradient_cache import random_state, set_random_state
from polyagents.training.objective import training_scores

STEP_TOKENS, RANKED_TOKENS = 32, 1_024  # of the longer text, at most: a step takes more time and memory
TOLERANCE = 1e-3  # of the score: far above what rounding does in fp32


def rehearse(model: RankingModel) -> None:
    """Train on two texts, rank them, and rebuild the backbone as a load will, before the model is compiled.

    Weights, gradients and random states are unchanged afterwards.

    Raises:
        InputError: one of these fails, or a score depends on the other texts of its batch.
    """
    module, state, training = model.module, random_state(model.device), model.module.training
    try:
        with torch.enable_grad():
            try_step(model)
        try_ranking(model)
        rebuild(model)
    except (InputError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # each family has its own reasons
        raise refused_run(model, f"{type(error).__name__}: {first_line(error, 120)}") from error
    finally:
        module.train(training)
        module.zero_grad()
        model.weights_changed()
        set_random_state(state, model.device)


def try_step(model: RankingModel) -> None:
    """Compute gradients in training mode, which must be finite; in fp16 they are looked at in the run itself."""
    model.module.train()
    contexts, candidates = model.context_ids(two_texts(STEP_TOKENS)), model.candidates(two_texts(STEP_TOKENS))
    scored = training_scores(model, contexts, inline_set([candidates, candidates], None), None)
    scored.scores.sum().backward()
    for side in scored.sides:
        side.backward()
    gradients = [weight.grad for weight in model.module.parameters() if weight.grad is not None]
    if model.precision != "fp16" and not all(bool(gradient.isfinite().all()) for gradient in gradients):
        raise refused_run(model, "its gradients are not finite")


def try_ranking(model: RankingModel) -> None:
    """Score a short text alone and beside the longest; refuse scores that differ or are not finite."""
    model.module.eval()
    tokens = min(model.settings.text_truncate or RANKED_TOKENS, RANKED_TOKENS)
    contexts, candidates = model.context_ids(two_texts(tokens)), model.candidates(two_texts(tokens))
    alone = model.scores(contexts[:1], inline_set([candidates[:1]], None))[0, 0]
    model.weights_changed()  # the vectors of candidates were kept
    beside = model.scores(contexts, inline_set([candidates, candidates], None))[0, 0]
    if not torch.isfinite(beside):
        raise refused_run(model, "a score is not a finite number")
    if model.precision == "fp32" and (alone - beside).abs() > TOLERANCE * alone.abs().clamp(min=TOLERANCE):
        raise refused_run(model, f"a score is {float(alone):g} alone, and {float(beside):g} beside a longer text")


def rebuild(model: RankingModel) -> None:
    """Build the backbone, without memory for its weights, from what a model's file says of it; refuse other weights."""
    if model.settings.ranking.lora_rank:  # a load reads the backbone itself
        return
    own = model.context_encoder.backbone
    values = json.loads(json.dumps(config_values(own)))
    try:
        config = config_of(values)
    except InputError as error:
        raise refused_run(
            model, f"its configuration cannot be read again: {first_line(error.__cause__ or error)}"
        ) from error
    again = build_encoder(model.settings, model.tokenizer, False, config).backbone  # its weights are not drawn
    if shapes(own) != shapes(again):
        raise refused_run(model, "its saved configuration describes other weights")


def shapes(backbone: torch.nn.Module) -> dict[str, torch.Size]:
    """Return the shape of each weight by its name."""
    return {name: weight.shape for name, weight in backbone.state_dict().items()}


def two_texts(tokens: int) -> list[str]:
    """Return a short text, and one of some number of tokens."""
    return ["a", "a b " * (tokens // 2)]


def refused_run(model: RankingModel, why: str) -> InputError:
    """Build the error for a run that cannot succeed."""
    options, kind = model.settings.encoder, model.context_encoder.backbone.config.model_type
    instead = "" if model.precision == "fp32" else f"--precision fp32 instead of {model.precision}, or "
    return InputError(
        f"--backbone {options.backbone} ({kind}) cannot be trained as a {model.label} ({why}); give {instead}a "
        f"backbone such as BERT, RoBERTa or ModernBERT."
    )
