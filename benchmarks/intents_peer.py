"""The peer of a bi-encoder on a task with intents: sentence-transformers' MultipleNegativesRankingLoss, same examples.

    python -m polyagents.benchmarks.intents_peer --backbone MINILM -t polyagents.tasks.banking77 -dp DATAPATH \
        --few-shot 10 --few-shot-seed 1 -dt test

Its own defaults (cosine times 20, the folder's own pooling) and loop of AdamW with a rate that falls to 0. Prints R@1.
"""

import random
from collections.abc import Iterator

import torch
from parlai.core.params import ParlaiParser
from torch.optim.lr_scheduler import LambdaLR

from polyagents.benchmarks.word_overlap import examples
from polyagents.parlai_patches import patches


def batches(count: int, size: int, updates: int) -> Iterator[list[int]]:
    """Yield batches of indices, each drawn anew, as ParlAI draws examples.

    Args:
        updates: how many batches.
    """
    for _ in range(updates):
        yield [random.randrange(count) for _ in range(size)]


def main() -> None:
    """Train and evaluate."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    patches.apply()
    parser = ParlaiParser(True, False, "sentence-transformers on intents")
    parser.add_argument("--backbone", required=True, help="a folder of sentence-transformers")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--warmup-updates", type=int, default=20)
    parser.add_argument("-lr", "--learningrate", type=float, default=3e-4)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(datatype="valid", batchsize=77, interactive_task=False)
    opt = parser.parse_args()
    random.seed(opt["seed"])
    torch.manual_seed(opt["seed"])
    train = examples(opt | {"datatype": "train:evalmode", "batchsize": 1})
    evaluated = examples(opt | {"batchsize": 1})

    model = SentenceTransformer(opt["backbone"], device="cpu")
    loss_of = losses.MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=opt["learningrate"])
    warmup, updates = opt["warmup_updates"], opt["updates"]
    schedule = LambdaLR(optimizer, lambda done: min((done + 1) / warmup, (updates - done) / (updates - warmup)))
    model.train()
    for chosen in batches(len(train), opt["batchsize"], updates):
        with torch.autocast("cpu", torch.bfloat16, enabled=opt["precision"] == "bf16"):
            loss = loss_of([model.preprocess([train[i][side] for i in chosen]) for side in (0, 1)], None)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    intents = evaluated[0][2]
    scores = model.encode([text for text, *_ in evaluated]) @ model.encode(intents).T
    best = scores.argmax(1).tolist()
    right = sum(intents[place] == label for place, (_, label, _) in zip(best, evaluated, strict=True))
    print(f"R@1 {right / len(evaluated):.4f} of {len(evaluated):,}, {opt['batchsize'] * updates:,} examples")


if __name__ == "__main__":
    main()
