"""Tasks to train and evaluate on, named `-t polyagents.tasks.NAME` in ParlAI's commands.

Loading one of them in ParlAI patches ParlAI as our agents need it. The builders of data next to them need no ParlAI.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any


def teachers_of(package: str, names: list[str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which imports a teacher when ParlAI asks for it: the data need no ParlAI."""

    def teacher(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package} has no attribute {name}")
        return getattr(importlib.import_module(f"{package}.agents"), name)

    return teacher


if "parlai.core.params" in sys.modules:
    from polyagents.parlai_patches import patches  # which imports ParlAI

    patches.apply()
