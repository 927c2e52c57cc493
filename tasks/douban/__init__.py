"""Douban Conversation Corpus (Wu et al. 2017), in Chinese: which of ten replies are right? Several may be.

`-t polyagents.tasks.douban`, from files that must be downloaded by hand (docs/tasks.md). An example:

    周末 想 去 爬山 有 人 一起 吗
    哪 座 山
        -> 香山 早上 八点 出发

`-t polyagents.tasks.douban:sample` is a few made-up lines in the same format.
"""

from .agents import DefaultTeacher, Sample

__all__ = ["DefaultTeacher", "Sample"]
