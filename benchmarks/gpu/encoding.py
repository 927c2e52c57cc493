"""Candidates a second from text to vector, by backbone and precision; and what the chip can do at most."""

import tempfile
from typing import Any

import torch

from polyagents.benchmarks.gpu import rows
from polyagents.benchmarks.measure import side_by_side
from polyagents.ranker import Ranker
from polyagents.tasks.sample.generate import replies

COUNTS = {"cuda": 32_768, "cpu": 64}
SQUARE = {"cuda": 8_192, "cpu": 512}  # of the matrices whose product says what the chip can do


def texts_of(count: int) -> list[str]:
    """Return texts of a reply's length, all of them different."""
    known = replies()
    return [f"{known[place % len(known)]} {known[place * 7 % len(known)]} {place}" for place in range(count)]


def ranker_of(file: str, model: str, device: str, **options: Any) -> Ranker:
    """Train a ranker for one update, as an encoder alone has no codes or head; its times are those of any other."""
    pairs = [{"context": "hi", "label": "hello"}, {"context": "bye", "label": "good bye"}]
    options |= {"reduction_type": "mean", "max_train_steps": 1}
    return Ranker.train(pairs, file, model, no_cuda=device == "cpu", progress=False, **options)


def measured(case: rows.Row, device: str) -> rows.Row:
    """Measure the encoding of texts."""
    texts = texts_of(COUNTS[device])
    with tempfile.TemporaryDirectory() as folder:
        ranker = ranker_of(f"{folder}/M", "bi", device, backbone=case["backbone"], precision=case["precision"])
        times = side_by_side({"encoding": lambda: ranker.encode_candidates(texts)}, rounds=3)
    tokens = sum(len(candidate.ids) for candidate in ranker.model.candidates(texts)) / len(texts)
    return {"candidates/s": len(texts) / times["encoding"] * 1e3, "tokens each": tokens}


def dense_rate(device: str) -> rows.Row:
    """Measure the rate of one large product in bf16, in TFLOP/s."""
    size = SQUARE[device]
    left = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    times = side_by_side({"product": lambda: left @ left})
    return {"TFLOP/s": 2 * size**3 / times["product"] / 1e9}


def main() -> None:
    """Measure what is missing."""
    parser = rows.parser("gpu.encoding", "Candidates a second on a device.")
    parser.add_argument("--backbone", required=True, help="an encoder, measured beside one of BERT-base's size")
    opt = parser.parse_args()
    rows.measure_missing(opt.rows, [{"product": "bf16"}], lambda _: dense_rate(opt.device))
    names = [opt.backbone, *(["scratch:base"] if opt.device == "cuda" else [])]
    cases = [{"backbone": name, "precision": kind} for name in names for kind in ("bf16", "fp32")]
    rows.measure_missing(opt.rows, cases, lambda case: measured(case, opt.device))


if __name__ == "__main__":
    main()
