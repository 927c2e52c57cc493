"""Peers that are trained in the same time, or on as many examples: sentence-transformers' bi- and cross-encoder.

    python -m polyagents.benchmarks.trained_peers bi --backbone MINILM -t polyagents.tasks.table --table-path TABLE \
        -dt test --seconds 600

`cross` instead of `bi` trains its CrossEncoder, `--updates N` as many batches whatever they take. TABLE is one of
default_flags.py; any other task with candidates will do. Both have its MultipleNegativesRankingLoss, bi with cosine
times 20, cross with the number of negatives and the sigmoid that are its defaults. The folder's own pooling and
lengths; AdamW with a rate that rises over a tenth of the run and then falls to 0. Prints R@1; labels lose ties.
"""

import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from parlai.core.params import ParlaiParser

from polyagents.benchmarks.word_overlap import examples
from polyagents.parlai_patches import patches

Example = tuple[str, ...]  # context, label, other candidates


def batches(count: int, size: int) -> Iterator[list[int]]:
    """Yield batches of indices without end, all of them in each pass."""
    size = min(size, count)
    while True:
        order = random.sample(range(count), count)
        yield from (order[start : start + size] for start in range(0, count - size + 1, size))


def task_examples(opt: dict[str, Any]) -> list[Example]:
    """Read a split: of each example the context, the label, and the candidates that are not the label."""
    return [
        (context, label, *(text for text in candidates if text != label))
        for context, label, candidates in examples(opt)
    ]


def trained(model: Any, loss_of: Any, train: list[Example], opt: dict[str, Any]) -> int:
    """Train for a number of seconds or updates, and return the number of examples seen."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=opt["learningrate"])
    model.train()
    begin, seen = time.monotonic(), 0
    for update, chosen in enumerate(batches(len(train), opt["batchsize"])):
        done = update / opt["updates"] if opt["updates"] else (time.monotonic() - begin) / opt["seconds"]
        if done >= 1:
            break
        optimizer.param_groups[0]["lr"] = opt["learningrate"] * min(done / 0.1, (1 - done) / 0.9)
        texts = [[train[i][side] for i in chosen] for side in (0, 1)]
        with torch.autocast("cpu", torch.bfloat16, enabled=opt["precision"] == "bf16"):
            loss = loss_of(texts if opt["kind"] == "cross" else [model.preprocess(column) for column in texts], None)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += len(chosen)
    model.eval()
    return seen


def bi_scores(model: Any, evaluated: list[Example]) -> Iterator[np.ndarray]:
    """Yield for each example the scores of its label and of its other candidates; each text is encoded once."""
    texts = list(dict.fromkeys(text for _, *texts in evaluated for text in texts))
    vectors = dict(zip(texts, model.encode(texts), strict=True))
    for context, (_, *candidates) in zip(model.encode([context for context, *_ in evaluated]), evaluated, strict=True):
        yield np.stack([vectors[text] for text in candidates]) @ context


def cross_scores(model: Any, evaluated: list[Example]) -> Iterator[np.ndarray]:
    """Yield for each example the scores of its label and of its other candidates."""
    for context, *candidates in evaluated:
        yield model.predict([(context, text) for text in candidates], batch_size=64)


def main() -> None:
    """Train and evaluate."""
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from sentence_transformers.cross_encoder import losses as cross_losses
    from sentence_transformers.sentence_transformer import losses

    patches.apply()
    parser = ParlaiParser(True, False, "sentence-transformers on a task with candidates")
    parser.add_argument("kind", choices=("bi", "cross"))
    parser.add_argument("--backbone", required=True, help="a folder of sentence-transformers")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--seconds", type=float, help="of training")
    length.add_argument("--updates", type=int, help="of training")
    parser.add_argument("-lr", "--learningrate", type=float, default=1e-4)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(datatype="test", batchsize=32, interactive_task=False)
    opt = parser.parse_args()
    random.seed(opt["seed"])
    torch.manual_seed(opt["seed"])
    train = task_examples(opt | {"datatype": "train:evalmode", "batchsize": 1})
    evaluated = task_examples(opt | {"batchsize": 1})

    if opt["kind"] == "bi":
        model: Any = SentenceTransformer(opt["backbone"], device="cpu")
        loss_of: Any = losses.MultipleNegativesRankingLoss(model)
        scores_of = bi_scores
    else:
        model = CrossEncoder(opt["backbone"], num_labels=1, device="cpu")
        loss_of = cross_losses.MultipleNegativesRankingLoss(model)
        scores_of = cross_scores
    seen = trained(model, loss_of, train, opt)
    with torch.autocast("cpu", torch.bfloat16, enabled=opt["precision"] == "bf16" and opt["kind"] == "cross"):
        right = sum(bool((scores[0] > scores[1:]).all()) for scores in scores_of(model, evaluated))
    print(f"R@1 {right / len(evaluated):.4f} of {len(evaluated):,}, {seen:,} examples seen")


if __name__ == "__main__":
    main()
