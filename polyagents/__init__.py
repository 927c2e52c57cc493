"""Bi-, Poly-, Uni- and Cross-encoder rankers (Humeau et al., arXiv 1905.01969), as a library and as ParlAI agents.

`Ranker` is the Python API; it needs no ParlAI:

>>> from polyagents import Ranker
>>> ranker = Ranker.load("runs/poly")
>>> ranker.rank("do you have a dog ?", ["hello", "yes , i have two dogs"], top_k=1)
[Match(index=1, text='yes , i have two dogs', score=...)]

`-m polyagents:PolyEncoder` names an agent in any ParlAI command: the agents `BiEncoder`, `CrossEncoder`, `PolyEncoder`,
`UniEncoder` and `Pretrain` are imported, with ParlAI, when they are first asked for. Importing `polyagents` itself
imports neither torch nor ParlAI, so that a command starts at once.
"""

import importlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

from polyagents.errors import InputError

if TYPE_CHECKING:
    from polyagents.decisions.calibration import Calibration
    from polyagents.decisions.deciding import Decision
    from polyagents.index.store import CandidateStore
    from polyagents.pipeline import Pipeline
    from polyagents.pretraining.pretrain_agent import PretrainAgent as Pretrain
    from polyagents.ranker import Match, Ranker

if "ipykernel" in sys.modules:  # in a notebook without ipywidgets, transformers' import of it would warn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("tqdm.auto")

__version__ = "0.2.0"  # the one place: setup.py reads it here
__all__ = [
    "BiEncoder",
    "Calibration",
    "CandidateStore",
    "CrossEncoder",
    "Decision",
    "InputError",
    "Match",
    "Pipeline",
    "PolyEncoder",
    "Pretrain",
    "Ranker",
    "UniEncoder",
]

# Public name -> the module that defines it, and its name there.
LIBRARY = {
    "Calibration": ("polyagents.decisions.calibration", "Calibration"),
    "Decision": ("polyagents.decisions.deciding", "Decision"),
    "CandidateStore": ("polyagents.index.store", "CandidateStore"),
    "Match": ("polyagents.ranker", "Match"),
    "Pipeline": ("polyagents.pipeline", "Pipeline"),
    "Ranker": ("polyagents.ranker", "Ranker"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used; the name of an architecture names its agent.

    Raises:
        AttributeError: there is no such name.
        ImportError: the name is an agent's, and ParlAI is not installed; the message says how to install it.
    """
    if not name[:1].isupper():  # a submodule, which `from polyagents import` asks for here before it imports it
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in LIBRARY:
        module, attribute = LIBRARY[name]
        value = getattr(importlib.import_module(module), attribute)
    else:
        value = agent(name)
    globals()[name] = value
    return value


def agent(name: str) -> Any:
    """Return the agent that ParlAI finds by `-m polyagents:NAME`; raises as `__getattr__` does."""
    if name != "Pretrain" and not importlib.import_module("polyagents.models.architecture").is_known(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module("polyagents.parlai_patches.patches").apply()  # no agent runs on an unpatched ParlAI
    if name == "Pretrain":
        return importlib.import_module("polyagents.pretraining.pretrain_agent").PretrainAgent
    return importlib.import_module("polyagents.parlai_agents.ranker_agent").agent_class(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
