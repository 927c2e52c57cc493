"""Chit-Chat (BYU): what does a student who chats with another one say next? The data come as a package.

`-t polyagents.tasks.chitchat`, from the package chitchat-dataset (MIT licence). An example:

    hey hows it going?
    pretty good, just got out of class. you?
    same, im so tired haha
        -> What are you studying?
"""

from .agents import DefaultTeacher

__all__ = ["DefaultTeacher"]
