"""Evaluates a model in training on other examples."""

import random
from collections import defaultdict
from collections.abc import Sequence

from polyagents.ranking.ranking_model import RankingModel
from polyagents.training.batch_metrics import evaluation_values
from polyagents.training.candidate_sources import evaluation_candidates
from polyagents.training_loop.text_example import TextExample
from polyagents.training_loop.training_data import batches, token_ids_of

RECALL_AT = (1, 5, 10)
SMALLER_IS_BETTER = ("loss", "rank")
METRICS = (*(f"hits@{k}" for k in RECALL_AT), "mrr", *SMALLER_IS_BETTER)


def validate(model: RankingModel, examples: Sequence[TextExample], batchsize: int) -> dict[str, float]:
    """Compute the means of METRICS over all examples; the model is in evaluation mode afterwards.

    Each example ranks its own candidates; without any, the labels of its batch. A label that its list lacks is added.

    Returns:
        The means by name, among them that of how many candidates were ranked; and under no_candidates how many examples
        had none of their own.
    """
    model.module.eval()
    sums: defaultdict[str, float] = defaultdict(float)
    without_own = 0
    for batch in batches(iter(examples), batchsize):
        encoded = token_ids_of(model, batch, random.Random(0))  # the same label each time
        without_own += encoded.without_own
        candidates = evaluation_candidates("inline", encoded, "valid", "the list of examples")
        scores = model.scores(encoded.contexts, candidates).cpu()
        values = evaluation_values(scores, candidates, model.module.logit_scale, RECALL_AT)
        for name, value in values.items():
            sums[name] += float(value.sum())
    means = {name: sums[name] / len(examples) for name in (*METRICS, "candidates")}
    return means | {"no_candidates": float(without_own)}
