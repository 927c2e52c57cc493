"""Ubuntu Dialogue Corpus V1 as Xu et al. (2017) prepared it: which of ten replies comes next?

`-t polyagents.tasks.ubuntu_v1`, from files that must be downloaded by hand (docs/tasks.md). An example:

    my sound is gone since the upgrade
    is it muted in alsamixer
        -> it was thanks a lot

`-t polyagents.tasks.ubuntu_v1:sample` is a few made-up lines in the same format.
"""

from .agents import DefaultTeacher, Sample

__all__ = ["DefaultTeacher", "Sample"]
