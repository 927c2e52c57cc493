"""Tables of examples as a ParlAI teacher."""

from parlai.core.message import Message
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError

from ..streaming.teacher import Stream, StreamTeacher
from .splits import KINDS, open_split


class DefaultTeacher(StreamTeacher):
    """A context, its labels, and its own candidates with the labels among them, where it has some."""

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """ParlAI: the flag of the task."""
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Tables of your own data (polyagents)")
        group.add_argument("--table-path", help=f"columns context, label and, if you like, candidates: {KINDS}")
        return parser

    def open(self, opt: Opt) -> Stream:
        """StreamTeacher: the split."""
        if not opt.get("table_path"):
            raise InputError(f"-t polyagents.tasks.table needs --table-path: {KINDS}.")
        return Stream(opt, self.datatype, open_split(opt["table_path"], DatatypeHelper.fold(self.datatype)))

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        """FixedDialogTeacher: the example of `next_episode_idx`."""
        spot, _ = self.data.spot(self.number)
        example = self.data.shards.example(spot)
        labels, candidates = example["labels"], example["candidates"]
        message = Message({"text": example["context"], "labels": list(labels), "episode_done": True})
        if candidates:
            message["label_candidates"] = [*(one for one in labels if one not in candidates), *candidates]
        return message
