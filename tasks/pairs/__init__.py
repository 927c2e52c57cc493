"""Pairs to pre-train on (paper 4.1): what was said, and what came next, from files of any size.

`-t polyagents.tasks.pairs --pairs-path FILES`; docs/pretraining.md. An example of a Reddit thread:

    Which of the two lakes is warmer in May?
    The small one, it is not as deep.
        -> Then I will take the children there.
"""

from polyagents.tasks import teachers_of

__all__ = ["DefaultTeacher", "Sample"]
__getattr__ = teachers_of(__name__, __all__)
