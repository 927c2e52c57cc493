"""`--output-scaling auto`: the factor that gives an encoder's outputs the deviation of BERT's (paper 5.3).

A transformer that was trained without weight decay ends in larger outputs than BERT's, and the softmax over their dot
products then puts all its weight on one of them. The paper divided that out, "which we found necessary".
"""

from collections.abc import Sequence

import torch

from polyagents.errors import InputError
from polyagents.models.encoder import Encoder, in_evaluation
from polyagents.models.tokens import pad

# Of BERT-base's last outputs, by element: 3,840 of them, all of five tokens that google-research's extract_features.py
# wrote for a pair of sentences (github.com/BiaoLiu2017/bert, output.jsonl), have .555; a token .51 to .60. Norms of the
# first token over BookCorpus, 13 to 16 for most sentences (cardona.co, 2021-05-14), are .47 to .58 by element.
BERT_DEVIATION = 0.55
EXAMPLES = 64  # number of measured texts: some 5,000 tokens, a few seconds of a base-sized encoder


@torch.no_grad()
def deviation(encoder: Encoder, texts: Sequence[Sequence[int]], pad_id: int) -> float:
    """Measure the standard deviation of the outputs' elements over all tokens of all texts, before any scaling.

    It is 0 or not a number if the outputs are of no use.
    """
    with in_evaluation(encoder):
        states = [encoder(chunk)[chunk.mask] for _, chunk in encoder.chunks(pad(texts, pad_id))]
    return float(torch.cat(states).std()) / encoder.output_scaling


def factor(encoder: Encoder, texts: Sequence[Sequence[int]], pad_id: int) -> float:
    """Compute the factor by which the outputs should be multiplied; refuse outputs that are all alike or not finite."""
    measured = deviation(encoder, texts, pad_id)
    if not 0 < measured < float("inf"):
        raise InputError(
            f"--output-scaling auto measures the standard deviation of the encoder's outputs, which is {measured} for "
            f"this --backbone; give a number."
        )
    return float(f"{BERT_DEVIATION / measured:.4g}")
