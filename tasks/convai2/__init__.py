"""ConvAI2 (Persona-Chat): which of 20 replies fits persona and history? ParlAI's teacher, but valid is not called test.

`-t polyagents.tasks.convai2`, from the files that ParlAI downloads. A dialogue:

    your persona: i have two cats .
    your persona: i work at night .
    hi , how are you today ?
        -> a bit tired , i just came home from work .

`-t polyagents.tasks.convai2:sample` is a few made-up dialogues in the same format, without a download.
"""

from parlai.tasks.convai2.worlds import InteractiveWorld, SelfChatWorld  # from which a chat gets its personas

from .agents import DefaultTeacher, Sample

__all__ = ["DefaultTeacher", "InteractiveWorld", "Sample", "SelfChatWorld"]
