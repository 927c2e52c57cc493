"""Pairs to pre-train on (paper 4.1): what was said, and what came next, from files of any size.

`-t polyagents.tasks.pairs --pairs-path FILES`; docs/pretraining.md. An example of a Reddit thread:

    Which of the two lakes is warmer in May?
    The small one, it is not as deep.
        -> Then I will take the children there.
"""

from typing import Any

__all__ = ["DefaultTeacher", "Sample"]


def __getattr__(name: str) -> Any:
    """Import the teachers when ParlAI asks for one: building the data needs no ParlAI."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from . import agents

    return getattr(agents, name)
