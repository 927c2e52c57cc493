"""Ubuntu V1 as a ParlAI teacher."""

import os

from ..selection.teacher import Corpus, SelectionTeacher


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
