"""Douban Conversation Corpus (Wu et al. 2017), in Chinese: which of ten replies are right? Several may be.

`-t polyagents.tasks.douban`, from files that must be downloaded by hand (docs/tasks.md). An example:

    周末 想 去 爬山 有 人 一起 吗
    哪 座 山
        -> 香山 早上 八点 出发

`-t polyagents.tasks.douban:sample` is a few made-up lines in the same format.
"""

import os

from ..selection import Corpus, SelectionTeacher


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
