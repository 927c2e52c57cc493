"""DSTC7 track 1 (Ubuntu, subtask 1): which of 100 messages comes next? In training, each message is a target.

`-t polyagents.tasks.dstc7`, from the files that ParlAI downloads. An example:

    participant 1: hello, how do i mount a second disk ?
    participant 2: is it formatted already ?
    participant 1: yes, as ext3
        -> then add a line for it to /etc/fstab

`-t polyagents.tasks.dstc7:sample` is a few made-up dialogues in the same format, without a download.
"""

from .agents import DefaultTeacher, Sample

__all__ = ["DefaultTeacher", "Sample"]
