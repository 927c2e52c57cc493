"""A built-in task: generated persona dialogues, small enough to learn from scratch in a minute.

`-t polyagents.tasks.sample`. A dialogue:

    your persona: my hobby is knitting .
    your persona: i train judo .
    your persona: i love to eat soup .
    i train golf . what about you ?
        -> throwing opponents over the shoulder .
    oh , go on .
        -> black belt on the mat .

The right reply follows from the persona and what was said before, and shares no word with either. Among the 19 others
are replies of the same persona to other questions, and replies of other people, the partner included, to this one.
"""

from .agents import DefaultTeacher

__all__ = ["DefaultTeacher"]
