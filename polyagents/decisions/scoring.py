"""Scores of options: by one model, or by a second one for the shortlist of the first."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyagents.decisions.examples import DecisionExamples
from polyagents.decisions.named_options import NamedOptions, named_options
from polyagents.decisions.score_map import Scored
from polyagents.errors import InputError
from polyagents.evaluation.intervals import Floats
from polyagents.index.in_memory import ListedCandidates, ListedOptions
from polyagents.index.interface import Index
from polyagents.index.top_k import top_k
from polyagents.ranking.ranking_model import RankingModel, in_blocks

OptionScores = tuple[NamedOptions, Floats, str | None]
"""Options, their scores [O] for one context, and a sentence about what they are; None if they are as given."""

READ = 10_000  # options that a joint model reads with one context, at most
LISTED, SHORTLIST = 10_000, 100  # of an index with more than LISTED candidates, the best SHORTLIST are the options


def option_scores(model: RankingModel, contexts: Sequence[str], options: NamedOptions) -> Floats:
    """Return the scores [B, O] of options; an InputError says if they are too many for a joint model, or not finite."""
    if not model.encodes_candidates and len(options.texts) > READ:
        raise InputError(
            f"A {model.label} reads each option together with the context, and these are {len(options.texts):,}; "
            f"decide by a bi- or poly-encoder, with this one as rerank."
        )
    listed = ListedOptions(options, model) if options.names != options.texts else ListedCandidates(options.texts, model)
    parts = [listed.scores(model.context_ids(block)).cpu().numpy() for block in in_blocks(contexts)]
    return finite(np.concatenate([np.zeros((0, len(options.names))), *parts]).astype(np.float64))


def finite(scores: Floats) -> Floats:
    """Refuse scores that are not numbers."""
    if not np.isfinite(scores).all():
        raise InputError("The model gives infinite or NaN scores, from which nothing can be decided; train it again.")
    return scores


def rerank_scores(second: RankingModel, context: str, options: NamedOptions, scores: Floats, top: int) -> Floats:
    """Return the second model's scores [O] of the `top` best options by scores [O], -inf for the others."""
    found = np.full(len(scores), -np.inf)
    chosen = top_k(scores, top)
    found[chosen] = option_scores(second, [context], options.part(chosen.tolist()))[0]
    return found


def scores_of(model: RankingModel, examples: DecisionExamples, second: RankingModel | None, rerank_top: int) -> Scored:
    """Score the options of all examples, and by `second`, if there is one, the `rerank_top` best of them anew."""
    if examples.shared is not None:
        lists = [examples.shared] * len(examples)
        scores = option_scores(model, examples.contexts, examples.shared)
    else:
        assert examples.own is not None
        lists = [NamedOptions.plain(own) for own in examples.own]
        scores = np.full((len(lists), max(map(len, examples.own))), -np.inf)
        for row, own in enumerate(model.scores_in_lists(examples.contexts, examples.own)):
            scores[row, : len(own)] = finite(own)
    right = np.zeros(scores.shape, bool)
    for example, options in enumerate(lists):
        right[example, options.right(examples.labels[example])] = True
    reranked = None
    if second is not None:
        reranked = np.full(scores.shape, -np.inf)
        for example, (context, options) in enumerate(zip(examples.contexts, lists, strict=True)):
            count = len(options.names)
            reranked[example, :count] = rerank_scores(second, context, options, scores[example, :count], rerank_top)
    return Scored(scores, right, np.array(examples.groups), reranked)


def scores_of_options(model: RankingModel, contexts: Sequence[str], given: Any) -> list[OptionScores]:
    """Score the options that a caller gives, as `named_options` takes them or as an index, for each context."""
    if isinstance(given, Index):
        given.check_model(model)
        if not len(given):
            raise InputError("There are no candidates in this index; add some.")
        return [index_scores(model, context, given) for context in contexts]
    options = named_options(given)
    return [(options, scores, None) for scores in option_scores(model, contexts, options)]


def index_scores(model: RankingModel, context: str, index: Index) -> OptionScores:
    """Return the candidates of an index, or the best of many, as options."""
    count = len(index)
    wanted = count if count <= LISTED else SHORTLIST
    query = index.query(model, model.context_ids([context]))
    if wanted == count and index.scores_all:  # sorting would cost more
        every = index.scores(query)[0].cpu().numpy().astype(np.float64)
        there = np.flatnonzero(every != -np.inf)  # without removed ones
        return *distinct_options(index.texts_of(there), every[there]), None
    (hits,) = index.search(query, wanted)
    note = f"Probabilities are over the {wanted:,} best of {count:,} candidates." if wanted < count else None
    return *distinct_options(hits.texts, hits.scores.astype(np.float64)), note


def distinct_options(texts: Sequence[str], scores: Floats) -> tuple[NamedOptions, Floats]:
    """Return candidates as options: those with the same text, under several ids, are one."""
    places: dict[str, int] = {}
    for place, text in enumerate(texts):
        places.setdefault(text, place)
    return NamedOptions.plain(list(places)), finite(scores[list(places.values())])
