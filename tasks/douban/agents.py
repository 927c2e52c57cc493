"""Douban as a ParlAI teacher."""

import os

from ..selection.teacher import Corpus, SelectionTeacher


class DefaultTeacher(SelectionTeacher):
    """500,000 right replies in training, 25,000 contexts of two candidates in valid, 1,000 of ten in test."""

    corpus = Corpus(
        name="Douban",
        folder="douban",
        source="DoubanConversaionCorpus.zip (the README of MarkWuNLP/MultiTurnResponseSelection on GitHub has a link)",
        files={"train": "train.txt", "valid": "dev.txt", "test": "test.txt"},
        candidates={"valid": 2, "test": 10},
    )


class Sample(DefaultTeacher):
    """Made-up lines in the same files."""

    sample = os.path.join(os.path.dirname(__file__), "sample")
