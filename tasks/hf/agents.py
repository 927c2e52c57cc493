"""Columns of queries, positives and negatives as a ParlAI teacher."""

from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError

from ..streaming.order import Spot
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

    def fields(self, example: dict[str, Any], spot: Spot, place: int) -> dict[str, Any]:
        """StreamTeacher: return text and labels of an example, and its label_candidates if it has any."""
        fields = {"text": example["text"], "labels": example["labels"]}
        if example["negatives"]:
            fields["label_candidates"] = [*example["labels"], *example["negatives"]]
        return fields
