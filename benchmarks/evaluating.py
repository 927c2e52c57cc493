"""How long an evaluation takes: `python -m polyagents.benchmarks.evaluating -mf M -t TASK`.

Our ranker, by `polyagents evaluate`, and ParlAI's agent of the same sizes, with random weights and our tokens, by
ParlAI's own loop: texts and candidates in, R@1 out. Ours ranks all examples, in each arithmetic; ParlAI's the first.
"""

import os
import time
from collections.abc import Sequence
from typing import Any

import torch
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.worlds import create_task

from polyagents.arguments import positive_int
from polyagents.benchmarks import peers, report
from polyagents.benchmarks.inference import sizes
from polyagents.parlai_agents import evaluating
from polyagents.parlai_patches.compat import quiet
from polyagents.ranker import Ranker

Row = dict[str, Any]


def ours(opt: Opt, precision: str) -> Row:
    """Evaluate our ranker in an arithmetic; loading it is not counted."""
    given = Opt(opt | {"precision": precision, "override": opt["override"] | {"precision": precision}})
    agent, world = evaluating.ranker_and_world(given, opt["num_examples"])
    begin = time.perf_counter()
    found = evaluating.evaluated(given, agent, world, lambda *_: None)
    seconds = time.perf_counter() - begin
    first = [ranks[0] == 1 for ranks in found.right_ranks]
    return row(f"polyagents, {precision}", len(first), seconds) | {"R@1": sum(first) / len(first)}


def parlais(opt: Opt, ranker: Ranker, count: int) -> Row:
    """Evaluate ParlAI's agent of a ranker's sizes on the first examples of its world."""
    kind = ranker.model.module.short_name
    layers, width, heads = sizes(ranker.model.context_encoder.backbone)
    m = getattr(ranker.model.settings.ranking, "poly_n_codes", 64)
    file = f"{opt['model_file']}.dict"
    agent = peers.parlai_agent(
        kind, layers, width, heads, m, dict_file=file, eval_candidates="inline", no_cuda=opt["no_cuda"]
    )
    flags = {"datatype": "valid", "batchsize": opt["batchsize"], "override": {}, "model_file": None}
    with quiet():
        world = create_task(Opt(opt | flags), agent)
        begin, done = time.perf_counter(), 0
        while done < count and not world.epoch_done():
            world.parley()
            done = int(float(world.report()["exs"]))
        seconds = time.perf_counter() - begin
    return row("ParlAI, fp32", done, seconds)


def row(name: str, examples: int, seconds: float) -> Row:
    """Return a row of the table."""
    return {"": name, "examples": examples, "seconds": seconds, "ms an example": 1000 * seconds / examples}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write it as JSON."""
    parser = ParlaiParser(True, True, "Measure how long an evaluation takes.")
    parser.add_argument("-ne", "--num-examples", type=positive_int, help="that ours evaluates; by default all")
    parser.add_argument("--peer-examples", type=positive_int, default=320, help="that ParlAI's agent evaluates")
    parser.add_argument("--precisions", default="fp32,bf16", help="that ours is measured in, with commas between")
    parser.add_argument("--out", default="bench-output", help="folder for the table (JSON)")
    opt = parser.parse_args(arguments)
    ranker = Ranker.load(opt["model_file"])
    rows = [ours(opt, precision) for precision in opt["precisions"].split(",")]
    if ranker.model.module.short_name in peers.PARLAI:
        rows.insert(0, parlais(opt, ranker, opt["peer_examples"]))
        for one in rows:
            one["times ParlAI's rate"] = rows[0]["ms an example"] / one["ms an example"]
    print(f"{torch.get_num_threads()} threads")
    report.publish({"evaluating": rows}, os.path.join(opt["out"], "evaluating.json"))


if __name__ == "__main__":
    main()
