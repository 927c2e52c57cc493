"""Ubuntu Dialogue Corpus V1 as Xu et al. (2017) prepared it: which of ten replies comes next?

`-t polyagents.tasks.ubuntu_v1`, from files that must be downloaded by hand (docs/tasks.md). An example:

    my sound is gone since the upgrade
    is it muted in alsamixer
        -> it was thanks a lot

`-t polyagents.tasks.ubuntu_v1:sample` is a few made-up lines in the same format.
"""

import os

from ..selection import Corpus, SelectionTeacher


class DefaultTeacher(SelectionTeacher):
    """500,000 right replies in training, 50,000 contexts of ten candidates in valid and in test."""

    corpus = Corpus(
        name="Ubuntu V1",
        folder="ubuntu_v1",
        source="ubuntu_data.zip (Xu et al. 2017; the README of taesunwhang/UMS-ResSel on GitHub has a link)",
        files={"train": "train.txt", "valid": "valid.txt", "test": "test.txt"},
        candidates={"valid": 10, "test": 10},
    )


class Sample(DefaultTeacher):
    """Made-up lines in the same files."""

    sample = os.path.join(os.path.dirname(__file__), "sample")
