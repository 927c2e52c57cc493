"""Chit-Chat (BYU): what do students say next who chat with one another? It comes as a package, nothing is downloaded.

`-t polyagents.tasks.chitchat`, from the package chitchat-dataset (MIT licence). An example:

    hey hows it going?
    pretty good, just got out of class. you?
    same, im so tired haha
        -> What are you studying?
"""

from .agents import DefaultTeacher

__all__ = ["DefaultTeacher"]
