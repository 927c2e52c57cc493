"""Bi-, Cross- and Poly-encoder rankers (Humeau et al., arXiv 1905.01969), as a library and as ParlAI agents.

`Ranker` is the Python API; it needs no ParlAI. `-m polyagents:PolyEncoder` names an agent in any ParlAI command: the
agents `BiEncoder`, `CrossEncoder`, `PolyEncoder` and `Pretrain` are imported, with ParlAI, when they are first asked
for. Importing `polyagents` itself imports neither torch nor ParlAI, so that a command starts at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

from polyagents.errors import InputError

if TYPE_CHECKING:
    from polyagents.index.store import CandidateStore
    from polyagents.parlai_agents.agent import BiEncoderAgent as BiEncoder
    from polyagents.parlai_agents.agent import CrossEncoderAgent as CrossEncoder
    from polyagents.parlai_agents.agent import PolyEncoderAgent as PolyEncoder
    from polyagents.pretraining.agent import PretrainAgent as Pretrain
    from polyagents.ranker import Match, Ranker

__version__ = "0.1.0"
__all__ = ["BiEncoder", "CandidateStore", "CrossEncoder", "InputError", "Match", "PolyEncoder", "Pretrain", "Ranker"]

# Public name -> where it is defined.
LIBRARY = {
    "CandidateStore": ("polyagents.index.store", "CandidateStore"),
    "Match": ("polyagents.ranker", "Match"),
    "Ranker": ("polyagents.ranker", "Ranker"),
}
AGENTS = {  # ParlAI resolves -m polyagents:NAME by this name
    "BiEncoder": ("polyagents.parlai_agents.agent", "BiEncoderAgent"),
    "CrossEncoder": ("polyagents.parlai_agents.agent", "CrossEncoderAgent"),
    "PolyEncoder": ("polyagents.parlai_agents.agent", "PolyEncoderAgent"),
    "Pretrain": ("polyagents.pretraining.agent", "PretrainAgent"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for.

    Raises:
        ImportError: it is an agent, and ParlAI is not installed; the error says how to install it.
    """
    if name in AGENTS:
        patches = importlib.import_module("polyagents.parlai_agents.patches")
        patches.apply()  # an agent cannot run on an unpatched ParlAI
    elif name not in LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = (AGENTS | LIBRARY)[name]
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
