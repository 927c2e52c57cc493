"""The folder of an export, `M.onnx` or `M.openvino` next to the model file `M`: graphs, and a manifest that names them.

A graph's files are named by their content and never changed, and the manifest is replaced atomically, after them. So an
export that was killed leaves the one before in place, and what the manifest names is complete: each file's size and
SHA-256 are checked before a runtime reads it.
"""

import dataclasses
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from polyagents.backends.runtimes import Runtime
from polyagents.backends.tracing import Signature
from polyagents.console import command
from polyagents.errors import InputError
from polyagents.files.atomic import clear_leftovers, temporary_name, unwritten, write_text
from polyagents.files.hashing import file_digest, fingerprint
from polyagents.files.json_files import fields_of_json, read_fields
from polyagents.files.locks import lock_file
from polyagents.files.own_folder import LOCK, own_folder
from polyagents.models.backbone import config_values
from polyagents.models.encoder import Encoder
from polyagents.ranking.ranking_model import named_bytes

FORMAT = "polyagents-export-1"
MANIFEST = "manifest.json"
GRAPHS = "graphs"  # the names of temporary folders begin so
STEM = re.compile(r"[\w.]+-[0-9a-f]{16}")  # an encoder's name and its content's digest
# Fields of a configuration that say who wrote it and where, and that affect no output.
NOT_COMPUTED = ("transformers_version", "_name_or_path", "architectures", "dtype", "torch_dtype")


@dataclass(frozen=True)
class GraphFiles:
    """A graph of an export.

    Attributes:
        encoder: the name of its encoder in the model.
        inputs: the names of its inputs, and how many axes each has.
        stem: the name of its files, without their endings.
        files: size in bytes and SHA-256 of each of them, in the order of the runtime's endings.
    """

    encoder: str
    inputs: dict[str, int]
    stem: str
    files: list[tuple[int, str]]

    @property
    def signature(self) -> Signature:
        """The names and axes of its inputs, which differ between the graphs of an encoder."""
        return tuple(sorted(self.inputs.items()))


@dataclass(frozen=True)
class ExportManifest:
    """The content of an export.

    Attributes:
        int8: whether weights are in 8 bits, and multiplied in them.
        encoders: the fingerprint of the backbone of each encoder, by the encoder's name in the model.
        graphs: the fields of a `GraphFiles` each.
    """

    format: str
    int8: bool
    encoders: dict[str, str]
    graphs: list[dict[str, Any]]


def export_folder_of(model_file: str, runtime: Runtime) -> str:
    """Return the folder of a model's export, whether or not it exists."""
    return f"{model_file.rstrip(os.sep)}.{runtime.name}"


def backbone_fingerprint(encoder: Encoder) -> str:
    """Compute the SHA-256 of everything that determines a backbone's outputs: its configuration and its weights."""
    return fingerprint(itertools.chain([deciding_config(encoder)], named_bytes(encoder.backbone.state_dict())))


def deciding_config(encoder: Encoder) -> str:
    """Return what of a backbone's configuration determines its outputs, as JSON."""
    config = {name: value for name, value in config_values(encoder.backbone).items() if name not in NOT_COMPUTED}
    return json.dumps(config, sort_keys=True, default=str)


def fingerprints(encoders: Mapping[str, Encoder]) -> dict[str, str]:
    """Return the fingerprint of the backbone of each encoder, by the encoder's name."""
    return {name: backbone_fingerprint(encoder) for name, encoder in encoders.items()}


# ---- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def temporary_folder(folder: str) -> Iterator[str]:
    """Give a temporary folder in an export's, once no other writes; an InputError says if it cannot be had."""
    own_folder(folder, "export", "--model-file")
    graphs = os.path.join(folder, GRAPHS)
    clear_leftovers(graphs)
    temporary = temporary_name(graphs)
    try:
        with lock_file(os.path.join(folder, LOCK), f"{folder} is being written"):
            os.mkdir(temporary)
            yield temporary
    except OSError as error:
        raise unwritten(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def store_graph(folder: str, written: str, encoder: str, inputs: dict[str, int], runtime: Runtime) -> GraphFiles:
    """Move the files of a graph, of which `written` is the first, from the temporary folder to their final names."""
    root, first = os.path.splitext(written)
    paths = [written, *(root + ending for ending in runtime.endings if ending != first)]
    files = [(os.path.getsize(path), file_digest(path)) for path in paths]
    stem = f"{encoder}-{fingerprint(digest for _, digest in files)[:16]}"
    for path, ending in zip(paths, runtime.endings, strict=True):
        os.replace(path, os.path.join(folder, stem + ending))
    return GraphFiles(encoder, inputs, stem, files)


def publish(folder: str, manifest: ExportManifest, runtime: Runtime) -> None:
    """Replace the manifest, and remove the graphs that only the one before named."""
    write_text(os.path.join(folder, MANIFEST), json.dumps(dataclasses.asdict(manifest), indent=1) + "\n")
    named = {graph["stem"] + ending for graph in manifest.graphs for ending in runtime.endings}
    for name in os.listdir(folder):
        stem, ending = os.path.splitext(name)
        if name not in named and ending in runtime.endings and STEM.fullmatch(stem):
            with suppress(OSError):
                os.remove(os.path.join(folder, name))


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_manifest(model_file: str, runtime: Runtime, again: str) -> ExportManifest:
    """Read the manifest of a model's export; an InputError says if there is none, or it is damaged.

    Args:
        again: the command that exports the model.
    """
    folder = export_folder_of(model_file, runtime)
    try:
        manifest = read_fields(os.path.join(folder, MANIFEST), ExportManifest)
        if manifest.format != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
    except FileNotFoundError as error:
        raise InputError(f"{folder} has no export of {model_file}; make one with {again}.") from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"{os.path.join(folder, MANIFEST)} is damaged ({error}); export again with {again}."
        ) from error
    return manifest


def checked_graphs(model_file: str, runtime: Runtime, manifest: ExportManifest, again: str) -> list[GraphFiles]:
    """Return the graphs that a manifest names; an InputError says if a file is missing, or not what was written."""
    folder = export_folder_of(model_file, runtime)
    try:
        graphs = [fields_of_json(graph, GraphFiles) for graph in manifest.graphs]
        for graph in graphs:
            if not STEM.fullmatch(graph.stem) or len(graph.files) != len(runtime.endings):
                raise ValueError("a graph has an invalid name")
            for ending, (size, digest) in zip(runtime.endings, graph.files, strict=True):
                path = os.path.join(folder, graph.stem + ending)
                if not os.path.isfile(path) or os.path.getsize(path) != size or file_digest(path) != digest:
                    raise ValueError(f"{graph.stem}{ending} is missing, or not what was exported")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"The export in {folder} is damaged ({reason}); export again with {again}.") from error
    return graphs


def export_command(model_file: str, runtime: Runtime) -> str:
    """Return the command that exports a model."""
    return command("export", "-mf", model_file, "--to", runtime.name)
