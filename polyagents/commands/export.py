"""`polyagents export`: export a model's encoders for another runtime, which `--backend` then uses."""

import argparse
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.zoo.datapath import add_datapath_flag, datapath


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, a runtime, and whether weights get 8 bits."""
    parser = CommandParser(
        "polyagents export",
        "Write a model's encoders for ONNX Runtime or OpenVINO into a folder next to the model file, M.onnx or "
        "M.openvino. rank, serve, index build and interactive use them with --backend.",
    )
    parser.add_argument("-mf", "--model-file", required=True, help="a trained model")
    parser.add_argument(
        "--to", required=True, choices=("onnx", "openvino"), help="the runtime; an earlier export for it is replaced"
    )
    parser.add_argument(
        "--int8",
        action="store_true",
        help="weights in 8 bits: faster, with scores that differ a little; index the candidates again",
    )
    add_datapath_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Export, and report where the export is and how exact."""
    from polyagents.backends.exporting import export_model  # imports torch: errors in flags are reported before
    from polyagents.ranker import Ranker
    from polyagents.zoo.resolve import zoo_file

    folder = datapath(opt["datapath"])
    file = zoo_file(opt["model_file"], folder)
    model = Ranker.load(file, no_cuda=True).model
    path, difference = export_model(model, file, opt["to"], opt["int8"])
    print(
        f"{path} holds the encoders of this {model.label}{', in int8' if opt['int8'] else ''}: use them with "
        f"--backend {opt['to']}. Outputs differ from torch's by {difference:.1g} of the largest at most."
    )
