"""`polyagents build_index`: encode a file of candidates once, for every later `rank` and chat."""

import argparse
import contextlib
import datetime
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.arguments import INDEX_URL, CommandParser, add_backend_flag, add_precision_flag
from polyagents.errors import InputError

if TYPE_CHECKING:
    from polyagents.index.builder import Cluster, Worker
    from polyagents.index.store import CandidateStore
    from polyagents.index.texts import FileTexts
    from polyagents.ranker import Ranker


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, a file, a folder."""
    parser = CommandParser(
        "polyagents build_index",
        "Encode candidates into an index, which rank --index-dir searches. A build that was stopped resumes when it is "
        "started again. Several processes or machines that share the folder: torchrun --nproc-per-node 4 -m polyagents "
        "build_index ...",
    )
    parser.add_argument("-mf", "--model-file", required=True, help="a trained bi- or poly-encoder")
    parser.add_argument("--candidates-file", required=True, help="UTF-8 text, one candidate per line")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--index-dir", help="folder of the index; created if it is missing")
    place.add_argument("--index-url", help=f"{INDEX_URL}; the candidates join those of the name")
    # Literal, as the modules that define these choices import torch.
    parser.add_argument(
        "--index-type",
        choices=("exact", "hnsw", "ivfpq"),
        help="exact search (default in a folder), or an approximate one by FAISS as well: hnsw, or the smaller ivfpq; "
        "in a vector database: hnsw (its default) or exact",
    )
    parser.add_argument(
        "--stored-as",
        choices=("bf16", "fp32", "int8"),
        help="how vectors are kept in a folder: 2 bytes a number (bf16, default), 4 (fp32), or 1 (int8, scores off by "
        "about 1 percent)",
    )
    parser.add_argument(
        "--contexts-file",
        help="contexts, one per line, to measure an approximate index with; by default 200 candidates",
    )
    add_precision_flag(parser)
    add_backend_flag(parser)
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="have a Ray cluster encode: auto for the one that this machine is part of, HOST:PORT, ray://HOST:PORT, or "
        "local for all cores of this machine. Its machines see the model, the file and the folder where this one does",
    )
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--append", action="store_true", help="add the candidates to an existing index")
    change.add_argument("--delete", action="store_true", help="remove the candidates from an index")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Build an index, add to it or remove from it; then report its content.

    Raises:
        InputError: flags do not go together, or the index or the engine fails.
    """
    import torch  # imports torch: errors in flags are reported before

    from polyagents.ranker import Ranker

    refuse_contradictions(opt)
    overrides: dict[str, Any] = {"backend": opt["backend"]}
    overrides |= {"precision": opt["precision"]} if opt["precision"] else {}
    if torch.cuda.is_available() and torch.distributed.is_torchelastic_launched():
        overrides["gpu"] = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
    ranker = Ranker.load(opt["model_file"], **overrides)
    with contextlib.ExitStack() as stack:
        cluster = None
        if opt["ray"]:
            from polyagents.ray_cluster import RayCluster

            cluster = stack.enter_context(RayCluster(opt["ray"], opt["model_file"], overrides))
        build = build_in_engine if opt["index_url"] else build_in_folder
        build(ranker, opt, cluster)


def refuse_contradictions(opt: Mapping[str, Any]) -> None:
    """Refuse flags that do not go together.

    Raises:
        InputError: some do not.
    """
    if opt["index_url"]:
        for name in ("stored_as", "contexts_file", "append", "delete"):
            if opt[name]:
                raise InputError(
                    f"--{name.replace('_', '-')} is for --index-dir; polyagents index add and remove change what "
                    f"--index-url names."
                )
    if opt["contexts_file"] and opt["index_type"] in (None, "exact"):
        raise InputError("--contexts-file measures what an approximate index finds; give --index-type, too.")
    if opt["ray"] and (opt["append"] or opt["delete"]):
        raise InputError("--ray is for building; --append and --delete do their work on this machine.")
    if opt["ray"] and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("--ray starts processes of its own; run it without torchrun, or torchrun without --ray.")


def build_in_folder(ranker: "Ranker", opt: Mapping[str, Any], cluster: "Cluster | None") -> None:
    """Build an index in a folder, add to it or remove from it.

    Args:
        cluster: the machines that encode; None for this one.
    """
    from polyagents.index.texts import FileTexts

    worker = this_worker()
    file, folder = opt["candidates_file"], opt["index_dir"]
    if opt["append"]:
        ranker.append(ranker.open_index(folder, exact=True), FileTexts(file))
    elif opt["delete"]:
        delete(ranker.open_index(folder, exact=True), FileTexts(file))
    else:
        ranker.index(file, folder, opt["stored_as"] or "bf16", worker, cluster)
    if worker.rank == 0:
        report(ranker, folder, opt["index_type"] or "exact", opt["contexts_file"])


def build_in_engine(ranker: "Ranker", opt: Mapping[str, Any], cluster: "Cluster | None") -> None:
    """Build in a vector database; print one JSON line: the number of candidates, and the collection that is searched.

    Args:
        cluster: the machines that encode; None for this one.
    """
    from polyagents.index.texts import FileTexts

    index_type = opt["index_type"] or "hnsw"
    worker = this_worker()
    texts = FileTexts(opt["candidates_file"])
    made = ranker.index_in_engine(texts, opt["index_url"], index_type, worker, cluster)
    if worker.rank == 0:
        print(json.dumps({"candidates": len(made), "index_type": index_type}))


def delete(store: "CandidateStore", texts: "FileTexts") -> None:
    """Remove the lines of a file from an index; lines that it lacks are counted, not refused."""
    found = [store.find(text) for text in texts.part(0, len(texts))]
    there = [index for index in found if index is not None]
    store.delete(there)
    if len(there) < len(found):
        sys.stderr.write(f"{len(found) - len(there):,} of {len(found):,} were not in the index.\n")


def report(ranker: "Ranker", folder: str, index_type: str, contexts_file: str | None) -> None:
    """Print one JSON line: candidates, bytes, and the recall of an approximate index.

    Args:
        contexts_file: the contexts for recall; None to use candidates.
    """
    from polyagents.index.texts import FileTexts  # imports torch

    store = ranker.open_index(folder, exact=True)
    line = {"candidates": len(store), "stored_as": store.manifest.stored_as, "width": store.width}
    if index_type != "exact":
        contexts = None
        if contexts_file:
            texts = FileTexts(contexts_file)
            contexts = texts.part(0, len(texts))
        made = ranker.approximate(store, index_type, contexts)
        line |= {
            "index_type": index_type,
            "recall@1": round(made.recall_at_1, 4),
            "recall@10": round(made.recall_at_10, 4),
        }
        line["contexts"] = made.contexts
    line["bytes"] = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))
    print(json.dumps(line))


def this_worker() -> "Worker":
    """Return this process's part under torchrun, or all of the work."""
    from torch import distributed  # imports torch: errors in flags are reported before

    from polyagents.index.builder import Worker

    if not distributed.is_torchelastic_launched():
        return Worker()
    # The fastest worker may wait for hours; torchrun itself ends all of them when one dies.
    distributed.init_process_group("gloo", timeout=datetime.timedelta(days=30))
    return Worker(distributed.get_rank(), distributed.get_world_size(), distributed.barrier)
