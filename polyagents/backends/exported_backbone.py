"""A backbone that another runtime computes instead of torch, from its export."""

import functools
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyagents.backends.export_folder import (
    GraphFiles,
    checked_graphs,
    export_command,
    export_folder_of,
    fingerprints,
    read_manifest,
)
from polyagents.backends.runtimes import Graph, Runtime
from polyagents.backends.tracing import Signature, encoders_of, signature
from polyagents.errors import InputError, first_line
from polyagents.models.encoder import Encoder
from polyagents.models.versions import Versions
from polyagents.ranking.ranking_model import RankingModel

TRACES = ("Exception from ", "Check '")  # how lines of OpenVINO's errors begin that name its own code


def use_runtime(
    model: RankingModel, model_file: str, runtime: Runtime, again: str | None = None
) -> "dict[str, ExportedBackbone]":
    """Let a runtime compute a model's encoders.

    Args:
        model_file: next to which the export is; the model has its weights.
        again: the command that errors name, which exports the model; `export`, if not given.

    Returns:
        What computes instead of each encoder's backbone, by the encoder's name.

    Raises:
        InputError: the runtime is not installed, or lacks the precision; there is no export, or it is damaged or of
            other weights.
    """
    precision = model.settings.encoder.precision
    if precision not in ("auto", "fp32") and not runtime.has_bf16:
        raise InputError(
            f"--precision {precision}: {runtime.label} does not support it on a CPU; remove it, export with --int8, or "
            f"give --backend openvino."
        )
    runtime.require()
    again = again or export_command(model_file, runtime)
    manifest = read_manifest(model_file, runtime, again)
    encoders = encoders_of(model.module)
    if manifest.encoders != fingerprints(encoders):
        raise InputError(
            f"{export_folder_of(model_file, runtime)} was exported from other weights than {model_file} has; export "
            f"again with {again}."
        )
    graphs = checked_graphs(model_file, runtime, manifest, again)
    quantized = f"{runtime.name} int8" if manifest.int8 else None
    made = {}
    folder = export_folder_of(model_file, runtime)
    for name, encoder in encoders.items():
        own = [graph for graph in graphs if graph.encoder == name]
        encoder.backend = made[name] = ExportedBackbone(folder, runtime, own, encoder, quantized, again)
    model.weights_changed()
    return made


class ExportedBackbone:
    """A backbone that another runtime computes, with the interface of `Backend`.

    A graph is loaded when it is first called: a search in an index never needs the candidates' encoder.
    """

    def __init__(
        self,
        folder: str,
        runtime: Runtime,
        graphs: list[GraphFiles],
        encoder: Encoder,
        quantized: str | None,
        again: str,
    ):
        self.runtime, self.name, self.width, self.quantized = runtime, runtime.name, encoder.width, quantized
        self.exported = Versions(encoder.backbone)
        self.folder, self.again = folder, again
        self.files = {graph.signature: graph for graph in graphs}
        self.graph = functools.cache(self._loaded)

    def __call__(self, inputs: Mapping[str, Any]) -> Tensor:
        """Compute the last hidden states [B, T, D] from the backbone's inputs, given by name."""
        if self.exported.have_changed():
            raise InputError(
                f"The weights of the model have changed since it was loaded, and {self.runtime.label} computes with "
                f"the exported ones; save the model, and export it again, or load it without backend."
            )
        # As torch's own products, in the precision of an autocast around the call.
        low = torch.is_autocast_enabled("cpu")
        arithmetic = torch.get_autocast_dtype("cpu") if low else torch.float32
        graph = self.graph(signature(inputs))
        ids: Tensor = inputs["input_ids"]
        try:
            states = graph({name: value.cpu().numpy() for name, value in inputs.items()}, arithmetic)
            if states.shape != (*ids.shape, self.width):
                raise ValueError(f"its outputs have shape {states.shape} instead of {(*ids.shape, self.width)}")
        except MemoryError:
            raise
        except Exception as error:  # each runtime raises its own kinds
            raise InputError(self._refusal("compute with", error)) from error
        return torch.from_numpy(states).to(ids.device)

    def load_all(self) -> None:
        """Load all graphs now."""
        for called_with in self.files:
            self.graph(called_with)

    def _loaded(self, called_with: Signature) -> Graph:
        """Return the graph for inputs of given names and axes; an InputError says why there is none."""
        if called_with not in self.files:
            raise InputError(
                f"{self.folder} was exported with other model options, which read texts differently; export "
                f"again with {self.again}."
            )
        path = os.path.join(self.folder, self.files[called_with].stem + self.runtime.endings[0])
        try:
            return self.runtime.own.open_graph(path)
        except Exception as error:  # each runtime raises its own kinds
            raise InputError(self._refusal("read", error)) from error

    def _refusal(self, what: str, error: Exception) -> str:
        lines = [line for line in str(error).split("\n") if line.strip() and not line.startswith(TRACES)]
        said = lines[0].rstrip(". ") if lines else first_line(error)
        return (
            f"{self.runtime.label} cannot {what} the export in {self.folder} ({said[:200]}); export again with "
            f"{self.again}."
        )
