"""`--backend auto`: the runtime that computes a model's encoders fastest on this machine, measured once and kept.

The arithmetic stays that of `--precision`: scores differ from torch's by the order of sums alone. A runtime computes
from an export: the one beside the model's file, or one that is made here in the cache folder (timings.py). Whatever
fails leaves torch, and one line says why.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import os
import time
from collections.abc import Callable
from typing import Any

import filelock
import torch

from polyagents.arguments import AUTO
from polyagents.backends.export_folder import NOT_COMPUTED, backbone_fingerprint, read_manifest
from polyagents.backends.exported_backbone import ExportedBackbone, use_runtime
from polyagents.backends.exporting import export_model
from polyagents.backends.runtimes import RUNTIMES, TORCH, find_runtime
from polyagents.backends.tracing import encoders_of
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint
from polyagents.models.backbone import config_values
from polyagents.ranking.candidate_set import shared_set
from polyagents.ranking.ranking_model import RankingModel
from polyagents.timings import ROUNDS, Times, folder, has_bf16, measured_once

# Chosen here: below it, torch itself takes most of a call, as with a scratch:tiny, and an export of seconds, whose
# loading takes a second in each process, gains nothing that anybody would notice.
WORTH = 0.005  # seconds of a call
CONTEXT = " ".join(["i like to ski in winter ."] * 9)  # some 64 tokens
CANDIDATES = [f"and where do you go , if you do it {place} times ?" for place in range(20)]  # of a joint model
PATIENCE = 300.0  # seconds to wait for another process that exports


def use_backend(model: RankingModel, model_file: str, backend: str) -> None:
    """Let torch, another runtime, or the fastest one compute a model's encoders.

    Args:
        model: with the weights of `model_file`.

    Raises:
        InputError: the backend does not exist or is not installed, or lacks the precision; there is no export, or it is
            damaged or of other weights. Never for `auto`.
    """
    if backend == AUTO:
        tune(model, model_file)
    elif backend != TORCH:
        use_runtime(model, model_file, find_runtime(backend))


@torch.no_grad()
def tune(model: RankingModel, model_file: str, anew: bool = False) -> Times:
    """Let the fastest runtime compute a model's encoders from now on.

    Args:
        anew: measure, even if it was measured before for such a model.

    Returns:
        The seconds of a call in each runtime, infinity if it cannot be used; empty if there is nothing to choose: no
        other runtime, a GPU, or an encoder that takes less than `WORTH`.
    """
    names = runtimes_for(model)
    if not names:
        return {}
    trial = Trial(model, model_file)
    if min(seconds_of(trial.call) for _ in range(ROUNDS)) < WORTH:  # whatever else keeps the machine busy
        return {}
    ways = {name: functools.partial(trial.run, name) for name in (TORCH, *names)}
    times = measured_once(trial.describe(names), ways, anew)
    try:
        trial.use(min(times, key=lambda name: times[name]))
    except InputError as error:
        trial.use(TORCH)
        say(f"--backend {AUTO}: {error} torch computes.")
    return times


def runtimes_for(model: RankingModel) -> list[str]:
    """Return the names of the installed runtimes, apart from torch, that have a model's arithmetic."""
    if model.device.type != "cpu" or model.precision == "fp16" or (model.precision == "bf16" and not has_bf16()):
        return []
    fitting = [one for one in RUNTIMES.values() if model.precision == "fp32" or one.has_bf16]
    return [one.name for one in fitting if all(importlib.util.find_spec(name) for name in one.computes_with)]


def seconds_of(call: Callable[[], object]) -> float:
    """Measure one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


class Trial:
    """A model whose encoders are computed by one runtime after the other."""

    def __init__(self, model: RankingModel, model_file: str):
        self.model, self.model_file = model, model_file
        self.encoders = encoders_of(model.module)
        self.opened: dict[str, dict[str, ExportedBackbone]] = {}
        self.ids = model.context_ids([CONTEXT])
        self.given = shared_set(model.candidates(CANDIDATES), None)

    def describe(self, names: list[str]) -> str:
        """Name what is measured: the kind of call, the backbone without its weights, and the versions of runtimes."""
        config = config_values(self.model.context_encoder.backbone)
        config = {name: value for name, value in config.items() if name not in NOT_COMPUTED}
        digest = fingerprint([json.dumps(config, sort_keys=True, default=str)])[:8]
        packages = [package for name in names for package in RUNTIMES[name].computes_with]
        versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
        what = "a context" if self.model.version() is not None else f"a context with {len(CANDIDATES)} candidates"
        return f"{what} in {self.model.precision}, {config.get('model_type')} {digest}; {versions}"

    def call(self) -> None:
        """Compute what a request does: encode a context, or read it with candidates."""
        if self.model.version() is None:
            self.model.scores(self.ids, self.given)
        else:
            self.model.context_encoder(self.model.tokens(self.ids))

    def run(self, name: str) -> None:
        """Compute a call by a runtime; an InputError says why it cannot, which a line repeats."""
        try:
            self.use(name)
            self.call()
        except InputError as error:
            say(f"--backend {AUTO} leaves {name} out: {error}")
            raise

    def use(self, name: str) -> None:
        """Let torch or another runtime compute the encoders."""
        if name != TORCH and name not in self.opened:
            self.opened[name] = self._open(name)
        for place, encoder in self.encoders.items():
            encoder.backend = None if name == TORCH else self.opened[name][place]
        self.model.forget()

    def _open(self, name: str) -> dict[str, ExportedBackbone]:
        """Load an export; all of its graphs, so that no answer depends on what becomes of its files."""
        try:
            opened = use_runtime(self.model, self._exported(name), RUNTIMES[name])
            for backend in opened.values():
                backend.load_all()
        except (OSError, filelock.Timeout) as error:
            raise InputError(f"its export cannot be made or read ({error}).") from error
        return opened

    def _exported(self, name: str) -> str:
        """Return the path that an export belongs to: the model's file, or, if it has none that fits, the cache's."""
        runtime = RUNTIMES[name]
        prints = {place: backbone_fingerprint(encoder) for place, encoder in self.encoders.items()}

        def is_there(path: str) -> bool:
            with contextlib.suppress(InputError):
                found = read_manifest(path, runtime)
                return found.encoders == prints and not found.int8  # whose scores are others
            return False

        if is_there(self.model_file):
            return self.model_file
        decides: list[Any] = [self.model.architecture, dataclasses.asdict(self.model.settings.ranking), prints]
        digest = fingerprint([json.dumps(decides, sort_keys=True, default=str)])[:16]
        path = os.path.join(folder(), "exports", digest)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with filelock.FileLock(f"{path}.{name}.lock", timeout=PATIENCE):
            if not is_there(path):
                say(f"Exporting the encoder for {runtime.label} into {os.path.dirname(path)}, once for this model.")
                export_model(self.model, path, name)
        return path
