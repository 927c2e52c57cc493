"""`polyagents bench_inference`: speed and memory, compared with ParlAI's and others', in one run on this machine."""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, positive_int, positive_ints
from polyagents.errors import InputError

PARTS = ("scoring", "reply", "encoding", "index", "rerank")


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, texts, and what to measure."""
    parser = CommandParser("polyagents bench_inference", "Measure speed and memory against peers, in one run.")
    parser.add_argument("-mf", "--model-file", required=True, help="a trained bi- or poly-encoder")
    parser.add_argument("--candidates-file", required=True, help="UTF-8 text, one candidate per line")
    parser.add_argument(
        "--contexts-file", required=True, help="JSON lines or plain text, one context per line, as rank takes them"
    )
    parser.add_argument("--parts", default="scoring,reply,encoding", help=f"of {','.join(PARTS)}")
    parser.add_argument("--sizes", type=positive_ints, default="1000,100000", help="numbers of candidates to score")
    parser.add_argument("--index-dir", help="an index of the candidates file; built if it is missing")
    parser.add_argument("--cross-model-file", help="part rerank: a trained cross-encoder")
    parser.add_argument("--uni-model-file", help="part rerank: a trained uni-encoder, measured as well")
    parser.add_argument(
        "--rounds", type=positive_int, default=7, help="measurements per figure; the figure is their median"
    )
    parser.add_argument("--out", default="bench-output", help="folder for the tables (JSON) and the picture")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Measure, print tables, write files."""
    parts = set(opt["parts"].split(","))
    if unknown := parts - set(PARTS):
        raise InputError(f"--parts {','.join(sorted(unknown))}: there are {', '.join(PARTS)}.")
    if {"scoring", "reply", "index"} & parts and not opt["index_dir"]:
        raise InputError("--parts scoring, reply and index need --index-dir; the index is built if it is missing.")
    if "rerank" in parts and not opt["cross_model_file"]:
        raise InputError("--parts rerank needs --cross-model-file.")
    import torch  # these import torch and the peers: errors in flags are reported before

    from polyagents.benchmarks import inference, report
    from polyagents.files.context_lines import read_contexts
    from polyagents.index.candidate_records import candidates_of
    from polyagents.ranker import Ranker

    ranker, rounds = Ranker.load(opt["model_file"], no_cuda=True), opt["rounds"]
    texts = candidates_of(opt["candidates_file"], None)
    contexts = read_contexts(opt["contexts_file"])
    tables: dict[str, list[dict[str, Any]]] = {}
    first = texts.part(0, min(len(texts), 100_000))
    vectors = torch.empty(0)
    if {"scoring", "reply", "index"} & parts:
        vectors = ranker.index(opt["candidates_file"], opt["index_dir"]).rows(range(len(first)))
    if "scoring" in parts:
        tables["scoring"] = inference.scoring(ranker, vectors, contexts[0], list(opt["sizes"]), rounds)
    if "reply" in parts:
        tables["reply"] = inference.replies(ranker, first, vectors, contexts, rounds)
    if "encoding" in parts:
        some = first[:: max(len(first) // 4096, 1)]
        tables["encoding"] = inference.encoding(ranker, some, min(rounds, 3))
        tables["encoding by length"] = inference.encoding_by_length(ranker, some, min(rounds, 3))
    if "index" in parts:
        tables["index"] = inference.large_index(ranker, opt["index_dir"], contexts, rounds)
    if "rerank" in parts:
        cross = Ranker.load(opt["cross_model_file"], no_cuda=True)
        uni = Ranker.load(opt["uni_model_file"], no_cuda=True) if opt["uni_model_file"] else None
        tables["rerank"] = inference.reranking(cross, uni, contexts[0], first[:100], rounds)
    report.publish(tables, os.path.join(opt["out"], "inference.json"))
    if "scoring" in tables:
        report.scoring_picture(tables["scoring"], os.path.join(opt["out"], "scoring.png"))
