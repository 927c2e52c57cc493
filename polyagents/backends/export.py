"""Export: every encoder of a model as graphs of another runtime, compared with torch before anybody uses them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from polyagents.backends.export_folder import (
    FORMAT,
    GraphFiles,
    Manifest,
    backbone_fingerprint,
    folder_of,
    moved_in,
    publish,
    workshop,
)
from polyagents.backends.runtimes import Graph, Runtime, find_runtime
from polyagents.backends.tracing import Call, Traced, encoders_of, recorded_calls
from polyagents.errors import InputError, first_line
from polyagents.models.encoder import Encoder
from polyagents.ranking.ranking_model import RankingModel

# The largest difference of an output from torch's, as a part of the largest output. fp32 differs in the order of sums:
# MiniLM and the tiny models of the tests by 1e-6. What differs by more computes something else.
SAME = 1e-3


@dataclass(frozen=True)
class Exported:
    """What an export has made.

    Attributes:
        folder: where it lies.
        difference: the largest difference of an encoder's output from torch's, as a part of the largest output.
    """

    folder: str
    difference: float


def export_model(model: RankingModel, model_file: str, to: str, int8: bool = False) -> Exported:
    """Write the encoders of a model for another runtime, beside its file, in place of those that are there.

    Args:
        model: on a CPU.
        model_file: what it was loaded from.
        to: onnx or openvino.
        int8: keep weights in 8 bits, and multiply in them; scores then differ from torch's.

    Raises:
        InputError: packages are missing, the backbone cannot be exported, or the folder not be written.
    """
    runtime = find_runtime(to)
    runtime.require(runtime.exports_with)
    folder, calls = folder_of(model_file, runtime), recorded_calls(model)
    graphs, differences = [], [0.0]
    with workshop(folder) as temporary:
        for name, encoder in encoders_of(model.module).items():
            for number, same_way in enumerate(calls[name].values()):
                path = os.path.join(temporary, f"{name}{number}{runtime.endings[0]}")
                differences.append(write(encoder, same_way, path, runtime, int8))
                axes = {given: value.ndim for given, value in same_way[0].items()}
                graphs.append(moved_in(folder, path, name, axes, runtime))
        publish(folder, manifest_of(model, graphs, int8), runtime)
    return Exported(folder, max(differences))


def manifest_of(model: RankingModel, graphs: Sequence[GraphFiles], int8: bool) -> Manifest:
    """What the folder is to hold."""
    encoders = {name: backbone_fingerprint(encoder) for name, encoder in encoders_of(model.module).items()}
    return Manifest(FORMAT, int8, encoders, [vars(graph) for graph in graphs])


def write(encoder: Encoder, calls: Sequence[Call], path: str, runtime: Runtime, int8: bool) -> float:
    """Write one graph, and compare it with torch.

    Args:
        encoder: whose.
        calls: the first is traced; all are compared.
        path: of the graph's first file.
        runtime: for which.
        int8: whether weights are to have 8 bits.

    Returns:
        The largest difference, as `Exported` has it.

    Raises:
        InputError: the runtime has no such operations, or computes something else.
    """
    backbone, kind = encoder.backbone, encoder.backbone.config.model_type
    try:
        runtime.own.write(Traced(backbone).eval(), calls[0], path, int8)
        graph = runtime.own.open_graph(path)
        off = max(difference(encoder, graph, call) for call in calls)
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:  # each tracer and runtime raises a dozen kinds, by version
        raise InputError(
            f"This backbone ({kind}) cannot be exported to {runtime.label} ({first_line(error)[:200]}); use --backend "
            f"torch, or another --to."
        ) from error
    if not off <= (1.0 if int8 else SAME):
        raise InputError(
            f"This backbone ({kind}), exported to {runtime.label}, computes other numbers than torch does: off by "
            f"{off:.2g} of the largest; use --backend torch, or another --to."
        )
    return off


@torch.no_grad()
def difference(encoder: Encoder, graph: Graph, call: Call) -> float:
    """How far a graph is from torch: the largest difference of a real token's outputs, as a part of the largest."""
    expected = encoder.backbone(**call).last_hidden_state.numpy()
    found = graph({name: value.numpy() for name, value in call.items()}, torch.float32)
    mask = call["attention_mask"]
    real = mask.bool().numpy() if mask.ndim == 2 else np.ones(expected.shape[:2], bool)
    return float(np.abs(found - expected)[real].max() / np.abs(expected[real]).max())
