"""Exports every encoder of a model as graphs for another runtime, and compares them with torch before they are used."""

import errno
import os
import shutil
from collections.abc import Sequence

import numpy as np
import torch

from polyagents.backends.export_folder import (
    FORMAT,
    ExportManifest,
    export_folder_of,
    fingerprints,
    publish,
    store_graph,
    temporary_folder,
)
from polyagents.backends.runtimes import EXPORTS_WITH, Graph, Runtime, find_runtime
from polyagents.backends.tracing import Call, Traced, encoders_of, recorded_calls
from polyagents.errors import InputError, first_line
from polyagents.models.encoder import Encoder
from polyagents.ranking.ranking_model import RankingModel

# The largest difference of an output from torch's, as a part of the largest output. fp32 differs in the order of sums:
# MiniLM and the tiny models of the tests by 1e-6. A larger difference is an error.
SAME = 1e-3
FULL = 2**20  # fewer free bytes are a full disk, for which each runtime has an error of its own


def export_model(model: RankingModel, model_file: str, to: str, int8: bool = False) -> tuple[str, float]:
    """Write the encoders of a model for another runtime next to its file; an earlier export is replaced.

    Args:
        model: on a CPU, loaded from `model_file`.
        int8: keep weights in 8 bits, and multiply in them; scores then differ from torch's.

    Returns:
        The folder, and the largest difference of an output from torch's, over the largest output.

    Raises:
        InputError: packages are missing, the backbone cannot be exported, or the folder cannot be written.
    """
    runtime = find_runtime(to)
    runtime.require(*EXPORTS_WITH)
    if bits := model.settings.ranking.backbone_bits:
        raise InputError(
            f"The weights of this backbone are in {bits} bits (--backbone-bits), which only torch reads; use --backend "
            f"torch."
        )
    folder, calls = export_folder_of(model_file, runtime), recorded_calls(model)
    written: list[tuple[str, str, dict[str, int]]] = []
    differences = [0.0]
    with temporary_folder(folder) as temporary:
        for name, encoder in encoders_of(model.module).items():
            for number, same_way in enumerate(calls[name].values()):
                path = os.path.join(temporary, f"{name}{number}{runtime.endings[0]}")
                differences.append(write_graph(encoder, same_way, path, runtime, int8))
                written.append((path, name, {given: value.ndim for given, value in same_way[0].items()}))
        graphs = [store_graph(folder, *graph, runtime) for graph in written]  # all or none
        encoders = fingerprints(encoders_of(model.module))
        publish(folder, ExportManifest(FORMAT, int8, encoders, [vars(graph) for graph in graphs]), runtime)
    return folder, max(differences)


def write_graph(encoder: Encoder, calls: Sequence[Call], path: str, runtime: Runtime, int8: bool) -> float:
    """Write one graph, tracing the first call, compare it with torch in all, and return the largest difference.

    An InputError says if the runtime lacks an operation, or computes something else.
    """
    backbone, kind = encoder.backbone, encoder.backbone.config.model_type
    try:
        runtime.own.write(Traced(backbone).eval(), calls[0], path, int8)
        graph = runtime.own.open_graph(path)
        off = max(distance(encoder, graph, call) for call in calls)
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:  # each tracer and runtime raises a dozen kinds, by version
        if shutil.disk_usage(os.path.dirname(path)).free < FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise InputError(
            f"This backbone ({kind}) cannot be exported to {runtime.label} ({first_line(cause_of(error))[:200]}); use "
            f"--backend torch, or another --to."
        ) from error
    if not off <= (1.0 if int8 else SAME):
        raise InputError(
            f"This backbone ({kind}), exported to {runtime.label}, does not compute the same as torch: the "
            f"difference is {off:.2g} of the largest output; use --backend torch, or another --to."
        )
    return off


def cause_of(error: BaseException) -> BaseException:
    """Return the first error of a chain: torch's exporter says what is wrong in that one only."""
    return error if error.__cause__ is None else cause_of(error.__cause__)


@torch.no_grad()
def distance(encoder: Encoder, graph: Graph, call: Call) -> float:
    """Measure the largest difference of a real token's outputs from torch's, over the largest output."""
    expected = encoder.backbone(**call).last_hidden_state.numpy()
    found = graph({name: value.numpy() for name, value in call.items()}, torch.float32)
    mask = call["attention_mask"]
    real = mask.bool().numpy() if mask.ndim == 2 else np.ones(expected.shape[:2], bool)
    return float(np.abs(found - expected)[real].max() / np.abs(expected[real]).max())
