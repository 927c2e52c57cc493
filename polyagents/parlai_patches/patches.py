"""Applies every patch of ParlAI that our agents and tasks rely on, and runs ParlAI's scripts with them."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from torch import distributed

from polyagents.parlai_patches import wrapped


def apply() -> None:
    """Patch ParlAI in this process (idempotent).

    `parlai multiprocessing_train` requires CUDA and hangs when a process dies; `launching` replaces what it calls. That
    imports ParlAI's script, so it is done only if ParlAI's command has imported it.
    """
    wrapped.wrap_all()
    if "parlai.scripts.multiprocessing_train" in sys.modules:
        from polyagents.parlai_patches import launching  # so that other commands need not import that script

        launching.patch_launching()


def load_script(script: str) -> None:
    """Import a script of ParlAI's (its module in parlai.scripts), and patch ParlAI."""
    import parlai.core.script  # not above: compat says what to do if there is no ParlAI

    # superscript_main would import all scripts to build one parser, which takes seconds.
    parlai.core.script.setup_script_registry = lambda: None
    importlib.import_module(f"parlai.scripts.{script}")
    apply()
    if script == "eval_model":  # `parlai eval_model` keeps ParlAI's order
        wrapped.wrap_eval_model()
    if script == "multiprocessing_eval":
        from polyagents.parlai_patches import launching  # saves every other command the import of ParlAI's launcher

        launching.patch_workers()


def run_script(script: str, arguments: Sequence[str]) -> Any:
    """Run a script that `load_script` has imported, with a command line that begins with its name."""
    if script == "train_model" and distributed.is_torchelastic_launched():
        from polyagents.parlai_patches import launching  # saves every other command the import of ParlAI's launcher

        return launching.train_under_torchrun([*arguments[1:]])
    import parlai.core.script

    return parlai.core.script.superscript_main([*arguments])
