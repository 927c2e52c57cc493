"""What people wait for: a reply over many candidates, a hundred replies ranked again, an evaluation beside ParlAI's."""

import json
import os
import tempfile
from collections.abc import Sequence

from polyagents.benchmarks import evaluating
from polyagents.benchmarks.gpu import rows
from polyagents.benchmarks.gpu.encoding import ranker_of, texts_of
from polyagents.benchmarks.measure import side_by_side

REPLY, AGAIN, EVALUATION = "a reply", "re-ranking", "evaluation"
COUNTS = {"cuda": 100_000, "cpu": 500}  # candidates of a reply
HUNDRED = 100
TURNS = 4  # of a context
EXAMPLES = {"cuda": [], "cpu": ["-ne", "8", "--peer-examples", "8"]}  # of an evaluation; without flags all
CASES = [
    {"work": work, "model": model, "precision": precision}
    for work, model in ((REPLY, "bi"), (REPLY, "poly"), (AGAIN, "cross"), (EVALUATION, "poly"))
    for precision in ("bf16", "fp32")
]


def measured(case: rows.Row, device: str, backbone: str, task: Sequence[str]) -> rows.Row:
    """Measure a case; an evaluation of `task`, flags of ParlAI's, has the rate of ParlAI's agent beside it."""
    with tempfile.TemporaryDirectory() as folder:
        ranker = ranker_of(f"{folder}/M", case["model"], device, backbone=backbone, precision=case["precision"])
        if case["work"] == EVALUATION:
            flags = ["-mf", f"{folder}/M", "-dt", "valid", "-bs", "32", "--out", folder, *task, *EXAMPLES[device]]
            flags += ["--precisions", case["precision"], *(["--no-cuda"] if device == "cpu" else [])]
            evaluating.main(flags)
            with open(os.path.join(folder, "evaluating.json"), encoding="utf-8") as file:
                ours = json.load(file)["evaluating"][-1]
            return {"ms": ours["ms an example"], "times ParlAI's rate": ours["times ParlAI's rate"]}
        texts = texts_of(COUNTS[device] if case["work"] == REPLY else HUNDRED)
        context = "\n".join(texts[:TURNS])
        candidates = ranker.prepare(texts)  # for a cross-encoder the texts
        times = side_by_side({"ranking": lambda: ranker.rank(context, candidates, top_k=10)})
        (encoded,) = ranker.model.context_ids([context])
        return {"tokens": len(encoded), "candidates": len(texts), "ms": times["ranking"]}


def main() -> None:
    """Measure what is missing."""
    parser = rows.parser("gpu.ranking", "Replies, re-ranking and an evaluation on a device.")
    parser.add_argument("--backbone", required=True, help="an encoder")
    opt, task = parser.parse_known_args()
    rows.measure_missing(opt.rows, CASES, lambda case: measured(case, opt.device, opt.backbone, task))


if __name__ == "__main__":
    main()
