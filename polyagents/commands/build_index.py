"""`polyagents build_index`: encode a file of candidates once, for every later `rank` and chat."""

import datetime
import json
import os
import sys

import torch
from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.errors import InputError
from polyagents.index.builder import Worker
from polyagents.index.faiss_index import INDEX_TYPES
from polyagents.index.store import CandidateStore
from polyagents.index.stored_vectors import STORED_AS
from polyagents.index.texts import FileTexts
from polyagents.models.options import PRECISIONS
from polyagents.ranker import Ranker


@register_script("build_index")
class BuildIndex(ParlaiScript):
    """Encode candidates into an index."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """A model, a file, a folder."""
        parser = ParlaiParser(
            False,
            False,
            "Encode candidates into an index, which rank --index-dir searches (polyagents). A build that was stopped "
            "goes on when it is started again. Several processes or machines that share the folder: torchrun "
            "--nproc-per-node 4 -m polyagents build_index ...",
        )
        # Not `required`: ParlAI parses every command's flags with an empty line to write its list of commands.
        parser.add_argument("-mf", "--model-file", help="a trained bi- or poly-encoder")
        parser.add_argument("--candidates-file", help="UTF-8 text, one candidate per line")
        parser.add_argument("--index-dir", help="folder of the index; made where it is missing")
        parser.add_argument(
            "--index-type",
            choices=INDEX_TYPES,
            default="exact",
            help="exact search, or an approximate one by FAISS as well: hnsw, or the smaller ivfpq",
        )
        parser.add_argument(
            "--stored-as",
            choices=STORED_AS,
            default="bf16",
            help="how vectors are kept: 2 bytes a number (bf16), 4 (fp32), or 1 (int8, scores off by about 1 percent)",
        )
        parser.add_argument(
            "--contexts-file",
            help="contexts, one per line, to measure an approximate index with; by default 200 candidates",
        )
        parser.add_argument("--precision", choices=PRECISIONS, default=None, help="by default as in training")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--append", action="store_true", help="add the candidates to an index, build nothing anew")
        change.add_argument("--delete", action="store_true", help="take the candidates out of an index")
        return parser

    def run(self) -> None:
        """Build, add or take out; then say what the index holds."""
        opt = self.opt
        if not all(opt.get(name) for name in ("model_file", "candidates_file", "index_dir")):
            raise InputError("build_index needs --model-file, --candidates-file and --index-dir.")
        overrides = {"precision": opt["precision"]} if opt.get("precision") else {}
        if torch.cuda.is_available() and torch.distributed.is_torchelastic_launched():
            overrides["gpu"] = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
        ranker = Ranker.load(opt["model_file"], **overrides)
        worker = this_worker()  # now: ParlAI wraps a model for training where it finds several processes
        file, folder = opt["candidates_file"], opt["index_dir"]
        if opt["append"]:
            ranker.append(ranker.open_index(folder, exact=True), FileTexts(file))
        elif opt["delete"]:
            delete(ranker.open_index(folder, exact=True), FileTexts(file))
        else:
            ranker.index(file, folder, opt["stored_as"], worker=worker)
        if worker.rank == 0:
            report(ranker, folder, opt["index_type"], opt.get("contexts_file"))


def delete(store: CandidateStore, texts: FileTexts) -> None:
    """Take the lines of a file out of an index; those that it lacks are counted, not refused."""
    found = [store.find(text) for text in texts.part(0, len(texts))]
    there = [index for index in found if index is not None]
    store.delete(there)
    if len(there) < len(found):
        sys.stderr.write(f"{len(found) - len(there):,} of {len(found):,} were not in the index.\n")


def report(ranker: Ranker, folder: str, index_type: str, contexts_file: str | None) -> None:
    """One JSON line: candidates, bytes, and the recall of an approximate index."""
    store = ranker.open_index(folder, exact=True)
    line = {"candidates": len(store), "stored_as": store.manifest.stored_as, "width": store.width}
    if index_type != "exact":
        contexts = None
        if contexts_file:
            texts = FileTexts(contexts_file)
            contexts = texts.part(0, len(texts))
        made = ranker.approximate(store, index_type, contexts)
        line |= {"index_type": index_type, "recall@1": made.recall_at_1, "recall@10": made.recall_at_10}
        line["contexts"] = made.contexts
    line["bytes"] = sum(entry.stat().st_size for entry in os.scandir(folder))
    print(json.dumps(line))


def this_worker() -> Worker:
    """This process's part under torchrun; all of the work otherwise."""
    if not torch.distributed.is_torchelastic_launched():
        return Worker()
    distributed = torch.distributed
    # The fastest worker may wait for hours; torchrun itself ends all of them when one dies.
    distributed.init_process_group("gloo", timeout=datetime.timedelta(days=30))
    return Worker(distributed.get_rank(), distributed.get_world_size(), distributed.barrier)
