"""Runs one of ParlAI's scripts, patched, without importing all the others."""

import importlib
from collections.abc import Sequence
from typing import Any

import parlai.core.script
from torch import distributed

from polyagents.parlai_patches import exchanges, patches


def load_script(script: str) -> None:
    """Import a script of ParlAI's (its module in parlai.scripts), and patch ParlAI."""
    # superscript_main would import all scripts to build one parser, which takes seconds.
    parlai.core.script.setup_script_registry = lambda: None
    importlib.import_module(f"parlai.scripts.{script}")
    patches.apply()
    if script == "eval_model":  # `parlai eval_model` keeps ParlAI's order
        exchanges.patch_eval_model()
    if script == "multiprocessing_eval":
        from polyagents.parlai_patches import launching  # saves every other command the import of ParlAI's launcher

        launching.evaluate_in_order()


def run_script(script: str, arguments: Sequence[str]) -> Any:
    """Run a script of ParlAI's, a module that `load` has imported, with a command line that begins with its name."""
    if script == "train_model" and distributed.is_torchelastic_launched():
        from polyagents.parlai_patches import launching  # saves every other command the import of ParlAI's launcher

        return launching.train_under_torchrun([*arguments[1:]])
    return parlai.core.script.superscript_main([*arguments])
