"""The peer of a bi-encoder: sentence-transformers' MultipleNegativesRankingLoss on the same examples, in the same time.

    python -m polyagents.benchmarks.bi_peer --backbone MINILM -t polyagents.tasks.table --table-path TABLE \
        -dt test --seconds 600

TABLE is one of default_flags.py; any other task with candidates will do. The folder's own pooling and lengths, cosine
times 20, and AdamW with a rate that rises over a tenth of the time and then falls to 0. Prints R@1; labels lose ties.
"""

import random
import time
from collections.abc import Iterator

import torch
from parlai.core.params import ParlaiParser

from polyagents.benchmarks.word_overlap import examples
from polyagents.parlai_patches import patches


def batches(count: int, size: int) -> Iterator[list[int]]:
    """Yield batches of indices without end, all of them in each pass."""
    size = min(size, count)
    while True:
        order = random.sample(range(count), count)
        yield from (order[start : start + size] for start in range(0, count - size + 1, size))


def main() -> None:
    """Train and evaluate."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    patches.apply()
    parser = ParlaiParser(True, False, "sentence-transformers on a task with candidates")
    parser.add_argument("--backbone", required=True, help="a folder of sentence-transformers")
    parser.add_argument("--seconds", type=float, required=True, help="of training")
    parser.add_argument("-lr", "--learningrate", type=float, default=1e-4)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(datatype="test", batchsize=32, interactive_task=False)
    opt = parser.parse_args()
    random.seed(opt["seed"])
    torch.manual_seed(opt["seed"])
    train = examples(opt | {"datatype": "train:evalmode", "batchsize": 1})
    evaluated = examples(opt | {"batchsize": 1})

    model = SentenceTransformer(opt["backbone"], device="cpu")
    loss_of = losses.MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=opt["learningrate"])
    model.train()
    begin, seen = time.monotonic(), 0
    for chosen in batches(len(train), opt["batchsize"]):
        done = (time.monotonic() - begin) / opt["seconds"]
        if done >= 1:
            break
        optimizer.param_groups[0]["lr"] = opt["learningrate"] * min(done / 0.1, (1 - done) / 0.9)
        with torch.autocast("cpu", torch.bfloat16, enabled=opt["precision"] == "bf16"):
            loss = loss_of([model.preprocess([train[i][side] for i in chosen]) for side in (0, 1)], None)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += len(chosen)
    model.eval()
    texts = list(dict.fromkeys(text for _, label, candidates in evaluated for text in (label, *candidates)))
    place = {text: number for number, text in enumerate(texts)}
    vectors, contexts = model.encode(texts), model.encode([context for context, *_ in evaluated])
    right = 0
    for context, (_, label, candidates) in zip(contexts, evaluated, strict=True):
        others = vectors[[place[text] for text in candidates if text != label]] @ context
        right += bool((vectors[place[label]] @ context > others).all())
    print(f"R@1 {right / len(evaluated):.4f} of {len(evaluated):,}, {seen:,} examples seen")


if __name__ == "__main__":
    main()
