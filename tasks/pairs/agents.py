"""Pairs of texts from files as a ParlAI teacher."""

import copy
import os
from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError, NoTestSplit

from ..streaming.data_manifest import MANIFEST, files_of
from ..streaming.order import Shards
from ..streaming.teacher import Stream, StreamTeacher
from .build_pairs import PairsPlan, build, read_manifest
from .portions import stamp
from .source_files import files_below

SAMPLE = os.path.join(os.path.dirname(__file__), "sample")


class DefaultTeacher(StreamTeacher):
    """What was said, and what came next; the batch gives the candidates."""

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """ParlAI: add the flag of the task."""
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Pairs (polyagents)")
        group.add_argument(
            "--pairs-path",
            help="folder that polyagents build_pairs made; or a file, or a folder of files, to make it from "
            "(JSON lines, plain text, a dump of Reddit's comments): below --datapath, once. Relative to where the "
            "command runs, or to --datapath",
        )
        return parser

    def open(self, opt: Opt, datatype: str) -> Stream:
        """StreamTeacher: open the split."""
        folder = finished(opt)
        split = DatatypeHelper.fold(datatype)
        made = read_manifest(folder)
        if not made["examples"][split]:
            raise (NoTestSplit if split == "test" else InputError)(
                f"{folder} has no pairs in {split}: all are for training ({MANIFEST} counts them); evaluate with -et "
                f"on another task."
            )
        return Stream(opt, datatype, Shards(list(files_of(folder, made, split))))


class Sample(DefaultTeacher):
    """`-t polyagents.tasks.pairs:sample`: some short conversations, in the folder next to this file."""

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        opt = copy.copy(opt)
        opt["pairs_path"] = SAMPLE
        super().__init__(opt, shared)


def finished(opt: Opt) -> str:
    """Return the folder of finished data; if `--pairs-path` names source files, the data are built first.

    Raises:
        InputError: there is no source.
    """
    given = opt.get("pairs_path")
    if not given:
        raise InputError("-t polyagents.tasks.pairs needs --pairs-path: a file, or a folder of files or of pairs.")
    found = [path for path in (given, os.path.join(opt["datapath"], given)) if os.path.exists(path)]
    if not found:
        raise InputError(f"--pairs-path {given} exists neither as given nor below --datapath {opt['datapath']}.")
    path = found[0]
    if os.path.exists(os.path.join(path, MANIFEST)):
        return path
    name = os.path.basename(os.path.abspath(path))
    folder = os.path.join(opt["datapath"], "pairs", f"{name}-{stamp(files_below(path))[:16]}")
    build(PairsPlan(path, folder), "--datapath")
    return folder
