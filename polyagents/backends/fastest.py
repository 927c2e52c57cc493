"""`--backend auto`: the fastest runtime for a model's encoders on this machine, as `polyagents tune` measured it.

`--precision` still decides the arithmetic: scores differ from torch's by the order of sums alone. A runtime computes
from an export: the one next to the model, or the one that tune has made in the cache folder (timings.py). Nothing is
exported or measured for an answer, and whatever is missing leaves torch.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping

import torch

from polyagents.arguments import AUTO
from polyagents.backends.export_folder import deciding_config, export_folder_of, fingerprints, read_manifest
from polyagents.backends.exported_backbone import use_runtime
from polyagents.backends.exporting import export_model
from polyagents.backends.runtimes import RUNTIMES, TORCH, Runtime, find_runtime
from polyagents.backends.tracing import encoders_of
from polyagents.console import command, say
from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint
from polyagents.models.encoder import Backend
from polyagents.ranking.candidate_set import shared_set
from polyagents.ranking.ranking_model import RankingModel
from polyagents.timings import Times, folder, has_bf16, measured_once, remembered

CONTEXT = " ".join(["i like to ski in winter ."] * 9)  # some 64 tokens
CANDIDATES = [f"and where do you go , if you do it {place} times ?" for place in range(20)]  # of a joint model


def use_backend(model: RankingModel, model_file: str, backend: str) -> None:
    """Let torch, another runtime, or the fastest one compute a model's encoders.

    Args:
        model: with the weights of `model_file`.

    Raises:
        InputError: the backend does not exist or is not installed, or lacks the precision; there is no export, or it is
            damaged or of other weights. Never for `auto`.
    """
    if backend == AUTO:
        use_fastest(model, model_file)
    elif backend != TORCH:
        use_runtime(model, model_file, find_runtime(backend))


def use_fastest(model: RankingModel, model_file: str) -> None:
    """Let the runtime compute that was measured to be the fastest; torch, if none was, or on a GPU."""
    times = remembered(what_is_measured(model)) if model.device.type == "cpu" else {}
    name = min(times, key=lambda one: times[one], default=TORCH)
    if name not in RUNTIMES:  # torch's
        return
    runtime = RUNTIMES[name]
    try:
        if (path := exported_path(model, model_file, runtime)) is None:
            raise InputError(f"these weights have no export; run {command('tune', '-mf', model_file)}.")
        use_export(model, path, model_file, runtime)
    except InputError as error:
        for encoder in encoders_of(model.module).values():
            encoder.backend = None
        say(f"--backend {AUTO}: {runtime.label} is the fastest here, but torch computes: {error}")


@torch.no_grad()
def tune(model: RankingModel, model_file: str) -> tuple[Times, dict[str, str]]:
    """Measure the runtimes that are installed, and remember the result for models of the same kind.

    Exports are made in the cache folder.

    Args:
        model: with the weights of `model_file`, on a CPU.

    Returns:
        The seconds of a call in each runtime, torch's among them; and of each other one, why it cannot be used.
    """
    encoders = encoders_of(model.module)
    ways: dict[str, Callable[[], object]] = {}
    refused = {}

    def use(backends: Mapping[str, Backend]) -> None:
        for name, encoder in encoders.items():
            encoder.backend = backends.get(name)
        call(model)

    ways[TORCH] = functools.partial(use, {})
    for name, runtime in RUNTIMES.items():
        try:
            if model.precision == "fp16" or (model.precision == "bf16" and not (runtime.has_bf16 and has_bf16())):
                raise InputError(f"It does not compute in {model.precision} on this machine.")
            runtime.require()
            backends = use_good_export(model, model_file, runtime)
            use(backends)
            ways[name] = functools.partial(use, backends)
        except (InputError, OSError) as error:
            refused[name] = str(error)
    times = measured_once(what_is_measured(model), ways, anew=True)
    ways[min(times, key=lambda one: times[one])]()
    return times, refused


def use_good_export(model: RankingModel, model_file: str, runtime: Runtime) -> Mapping[str, Backend]:
    """Let a runtime compute from a model's export; without one, or if the cache's is damaged, export into the cache."""
    path = exported_path(model, model_file, runtime)
    if path is not None:
        try:
            return use_export(model, path, model_file, runtime)
        except InputError:
            if path == model_file:  # which is not ours to replace
                raise
    path = cache_path(model, fingerprints(encoders_of(model.module)))
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    export_model(model, path, runtime.name)
    return use_export(model, path, model_file, runtime)


def use_export(model: RankingModel, path: str, model_file: str, runtime: Runtime) -> Mapping[str, Backend]:
    """Let a runtime compute from an export, all of which is read now: no answer depends on what becomes of its files.

    An InputError names the command that exports again: `tune`, if the export is the cache's.
    """
    backends = use_runtime(model, path, runtime, None if path == model_file else command("tune", "-mf", model_file))
    for backend in backends.values():
        backend.load_all()
    return backends


def call(model: RankingModel) -> None:
    """Compute what a request does: encode a context, or read it with candidates."""
    ids = model.context_ids([CONTEXT])
    if model.encodes_candidates:
        model.context_encoder(model.tokens(ids))
    else:
        model.scores(ids, shared_set(model.candidates(CANDIDATES), None))


def what_is_measured(model: RankingModel) -> str:
    """Name the kind of a model: its architecture, arithmetic, and backbone without its weights."""
    encoder = model.context_encoder
    kind, digest = encoder.backbone.config.model_type, fingerprint([deciding_config(encoder)])[:8]
    return f"a request to a {model.label} in {model.precision}, {kind} {digest}"


def exported_path(model: RankingModel, model_file: str, runtime: Runtime) -> str | None:
    """Return the path next to which a model's export is: its own file's, or the cache's; None if none fits."""
    prints = fingerprints(encoders_of(model.module))
    for path in (model_file, cache_path(model, prints)):
        with contextlib.suppress(InputError):
            found = read_manifest(path, runtime, again="")
            is_ours = path == model_file or belongs_to_user(export_folder_of(path, runtime))
            if is_ours and found.encoders == prints and not found.int8:  # whose scores are others
                return path
    return None


def belongs_to_user(path: str) -> bool:
    """Tell whether nobody else but root has made a folder: for a user without a home, the cache is below /tmp."""
    return not hasattr(os, "getuid") or os.stat(path).st_uid in (os.getuid(), 0)


def cache_path(model: RankingModel, prints: Mapping[str, str]) -> str:
    """Return the path next to which tune exports a model, whose backbones have these fingerprints."""
    decides = [model.architecture, str(getattr(model.settings.ranking, "joint_head", "")), *prints.values()]
    return os.path.join(folder(), "exports", fingerprint(decides)[:16])
