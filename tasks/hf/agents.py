"""Columns of queries, positives and negatives as a ParlAI teacher."""

from parlai.core.message import Message
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError

from ..streaming.teacher import Stream, StreamTeacher
from .splits import KINDS, open_split


class DefaultTeacher(StreamTeacher):
    """A query, its positive as label, and as candidates the positive and the negatives, if there are any."""

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """ParlAI: add the flag of the task."""
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Data sets of Hugging Face's shape (polyagents)")
        group.add_argument("--hf-dataset", help=f"columns query, positive, negative: {KINDS}")
        return parser

    def open(self, opt: Opt, datatype: str) -> Stream:
        """StreamTeacher: open the split."""
        if not opt.get("hf_dataset"):
            raise InputError(f"-t polyagents.tasks.hf needs --hf-dataset: {KINDS}.")
        return Stream(opt, datatype, open_split(opt["hf_dataset"], DatatypeHelper.fold(datatype)))

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        """FixedDialogTeacher: return the example of `next_episode_idx`."""
        spot, _ = self.data.spot(self.number)
        example = self.data.shards.example(spot)
        message = Message({"text": example["text"], "labels": example["labels"], "episode_done": True})
        if example["negatives"]:
            message["label_candidates"] = [*example["labels"], *example["negatives"]]
        return message
