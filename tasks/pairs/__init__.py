"""Pairs to pre-train on (paper 4.1): what was said, and what came next, from files of any size.

`-t polyagents.tasks.pairs --pairs-path FILES`; docs/pretraining.md. An example of a Reddit thread:

    Which of the two lakes is warmer in May?
    The small one, it is not as deep.
        -> Then I will take the children there.
"""

from .agents import DefaultTeacher, Sample

__all__ = ["DefaultTeacher", "Sample"]
