"""Ubuntu Dialogue Corpus V2: which of ten replies comes next? Wrong rows are skipped, utterances kept separate.

`-t polyagents.tasks.ubuntu`, from the files that ParlAI downloads. An example:

    hi , my sound is gone since the upgrade
    anybody ?
    did you look whether it is muted in alsamixer ?
        -> it was __eou__ thanks a lot

`-t polyagents.tasks.ubuntu:sample` is a few made-up rows in the same format, without a download.
"""

from .agents import DefaultTeacher, Sample

__all__ = ["DefaultTeacher", "Sample"]
