"""`polyagents index build | add | remove | status | plan`: candidates in a folder or a vector database."""

import argparse
import contextlib
import datetime
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyagents.arguments import (
    INDEX_URL,
    CommandParser,
    Whole,
    add_backend_flag,
    add_fields_flag,
    add_precision_flag,
    amounts,
    model_overrides,
    refuse_given,
)
from polyagents.commands.index_plan import plan
from polyagents.errors import InputError

if TYPE_CHECKING:
    from polyagents.index.builder import Cluster, Worker
    from polyagents.index.faiss_index import Description
    from polyagents.index.store import CandidateStore
    from polyagents.ranker import Ranker

USAGE = (
    "polyagents index add, with --model-file and --candidates-file; polyagents index build, with the same; polyagents "
    "index remove, with --candidates-file; polyagents index status; or polyagents index plan"
)
NEEDED: Mapping[str, set[str]] = {
    "build": {"model_file", "candidates_file"},
    "add": {"model_file", "candidates_file"},
    "remove": {"candidates_file"},
    "status": set(),
}
OF_BUILDS = ("stored_as", "index_type", "contexts_file", "ray", "fields")
OF_PLANS = ("candidates", "width")


def parser() -> argparse.ArgumentParser:
    """Declare the arguments: what to do, where, and with which candidates."""
    parser = CommandParser(
        "polyagents index",
        "Build an index of candidates, add or remove candidates, or show its status, in a folder or in a vector "
        "database; or plan one: compute what folders take. Searches in a database see a change at once. To resume a "
        "stopped build, start it again. Several processes or machines that share a folder or a database: torchrun "
        "--nproc-per-node 4 -m polyagents index build ...",
    )
    parser.add_argument("what", metavar="build|add|remove|status|plan", help="what to do")
    add_flags(parser, required=False)
    parser.add_argument(
        "--candidates",
        type=amounts,
        help="to plan: how many candidates, such as 100k,5m; by default as many as --candidates-file has, whose texts, "
        "ids and fields are otherwise a sample",
    )
    parser.add_argument(
        "--width",
        type=Whole(1, 65_536),
        help="to plan: how wide the vectors are; or give --model-file, whose rate of encoding is then measured",
    )
    return parser


def add_flags(parser: CommandParser, required: bool) -> None:
    """Add the flags that `index build` has, too; there a model and a file are required."""
    parser.add_argument("-mf", "--model-file", required=required, help="a trained bi- or poly-encoder")
    parser.add_argument(
        "--candidates-file",
        required=required,
        help="UTF-8 text, one candidate per line; or candidates with ids and fields: JSON lines (.jsonl, .json), CSV "
        "(.csv, .tsv) or Parquet (.parquet) with id and text. To remove: the lines, or the ids",
    )
    add_fields_flag(parser)
    place = parser.add_mutually_exclusive_group(required=required)
    place.add_argument("--index-dir", help="folder of the index; created if it is missing")
    place.add_argument("--index-url", help=f"{INDEX_URL}; candidates are added to that name's")
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
        help="how a folder stores vectors: 2 bytes a number (bf16, default), 4 (fp32), or 1 (int8, scores off by "
        "about 1 percent)",
    )
    parser.add_argument(
        "--contexts-file",
        help="contexts, lines as for rank, to measure an approximate index with; by default 200 candidates",
    )
    add_precision_flag(parser)
    add_backend_flag(parser, "torch")
    parser.needed |= {"precision": "model_file", "backend": "model_file"}
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="encode on a Ray cluster: auto for the cluster of this machine, the HOST:PORT of its head, or local for "
        "all cores of this machine. Its machines must see the model, the file and the folder at the same paths",
    )


def run(opt: Mapping[str, Any]) -> None:
    """Do one step, and report its result; an InputError says if it does not exist, or which flag is wrong."""
    what = opt["what"]
    if what == "plan":
        plan(opt)
        return
    given = {name for name in ("model_file", "candidates_file") if opt[name]}
    refuse_given(opt, sorted(given - NEEDED.get(what, given)), f"is not for polyagents index {what}; remove it.")
    if NEEDED.get(what) != given:
        raise InputError(f"Give one of: {USAGE}.")
    refuse_given(opt, OF_PLANS, "is for polyagents index plan.")
    if not (opt["index_dir"] or opt["index_url"]):
        raise InputError(f"polyagents index {what} needs --index-dir or --index-url.")
    do(what, opt)


def do(what: str, opt: Mapping[str, Any]) -> None:
    """Build, add, remove or report, once flags that do not go together are refused."""
    if opt["index_url"]:
        of_folders = "is for --index-dir; polyagents index add and remove change what --index-url has."
        refuse_given(opt, ("stored_as", "contexts_file", "append", "delete"), of_folders)
    changing = ("index_type", "contexts_file") if opt["index_dir"] and opt["model_file"] else ()
    allowed = {"build": OF_BUILDS, "add": changing, "remove": changing}.get(what, ())
    refuse_given(opt, (name for name in OF_BUILDS if name not in allowed), "is for polyagents index build.")
    if opt["contexts_file"] and opt["index_type"] in (None, "exact"):
        raise InputError("--contexts-file measures an approximate index; give --index-type, too.")
    if opt["ray"] and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("--ray starts processes of its own; run it without torchrun, or torchrun without --ray.")
    import torch  # takes seconds, as the next one does: errors in flags are reported before

    from polyagents.ranker import Ranker

    overrides = model_overrides(opt)
    if torch.cuda.is_available() and torch.distributed.is_torchelastic_launched():  # each process has a GPU of its own
        overrides["gpu"] = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
    with contextlib.ExitStack() as stack:
        ranker: Any = Ranker.load(opt["model_file"], **overrides) if opt["model_file"] else None
        cluster = None
        if opt["ray"]:
            from polyagents.ray_cluster import RayCluster

            cluster = stack.enter_context(RayCluster(opt["ray"], opt["model_file"], overrides))
        (in_engine if opt["index_url"] else in_folder)(what, ranker, opt, cluster)


def in_engine(what: str, ranker: "Ranker", opt: Mapping[str, Any], cluster: "Cluster | None") -> None:
    """Work on a vector database; print a JSON line of a build, or one for each model that has encoded candidates."""
    from polyagents.index.candidate_records import candidates_of, read_ids
    from polyagents.index.engines.candidates import remove
    from polyagents.index.engines.urls import open_engine
    from polyagents.index.filters import declared_fields

    url, file = opt["index_url"], opt["candidates_file"]
    if what == "build":
        index_type, worker = opt["index_type"] or "hnsw", this_worker()
        texts = candidates_of(file, declared_fields(opt["fields"]))
        made = ranker.index_in_engine(texts, url, index_type, worker, cluster)
        if worker.rank == 0:
            print(json.dumps({"candidates": len(made), "index_type": index_type}))
        return
    if what == "add":
        index = ranker.open_engine(url)
        ranker.append(index, candidates_of(file, index.fields, is_update=True))
    engine = open_engine(url)
    if what == "remove":
        names = read_ids(file)
        report_missing(remove(engine, names), names)
    versions = engine.versions()
    if not versions:
        raise InputError(
            f"{engine.where} has no candidates named {engine.name}; build them with polyagents index build --index-url."
        )
    for one in versions:
        line = {"model": one.model, "candidates": engine.collection(one).count(), "width": one.width}
        line |= {} if one.fields is None else {"fields": one.fields}
        print(json.dumps({**line, "index_type": one.index_type, "current": one.is_current}))
    engine.close()


def in_folder(what: str, ranker: "Ranker | None", opt: Mapping[str, Any], cluster: "Cluster | None") -> None:
    """Work on an index in a folder, of whichever model encoded it if there is no ranker; print one JSON line."""
    from polyagents.files.context_lines import read_contexts
    from polyagents.index.candidate_records import candidates_of, read_ids
    from polyagents.index.faiss_index import describe, remove_shortlist
    from polyagents.index.store import CandidateStore

    worker, file, folder = this_worker(), opt["candidates_file"], opt["index_dir"]
    contexts = read_contexts(opt["contexts_file"]) if opt["contexts_file"] else None
    if ranker is None:
        store = CandidateStore.open(folder, None)
    elif what == "build":
        store = ranker.index(file, folder, opt["stored_as"] or "bf16", worker, cluster, opt["fields"])
    else:
        store = ranker.open_index(folder, exact=True)
    if what == "add" and ranker is not None:
        store = ranker.append(store, candidates_of(file, store.fields, is_update=True))
    elif what == "remove":
        names, before = read_ids(file), len(store)
        store = store.remove(names)
        report_missing(len(names) - (before - len(store)), names)
    if worker.rank > 0:
        return
    if ranker is None:
        report_content(store, describe(store) if what == "status" else None)
    elif opt["index_type"] in (None, "exact"):
        if opt["index_type"]:
            remove_shortlist(store)
        report_content(store, None)
    else:
        report_content(store, ranker.approximate(store, opt["index_type"], contexts))


def report_missing(missing: int, names: Sequence[str]) -> None:
    """Say how many of the names that were to be removed were not there."""
    if missing > 0:
        sys.stderr.write(f"Not in the index: {missing:,} of {len(names):,}.\n")


def report_content(store: "CandidateStore", approximate: "Description | None") -> None:
    """Print one JSON line: candidates, bytes, and the recall of an approximate index."""
    line: dict[str, Any] = {"candidates": len(store), "stored_as": store.stored_as, "width": store.width}
    if approximate is not None:
        recall = {"recall@1": approximate.recall_at_1, "recall@10": approximate.recall_at_10}
        line |= {"index_type": approximate.index_type} | {name: round(value, 4) for name, value in recall.items()}
        line["contexts"] = approximate.contexts
    line |= {} if store.fields is None else {"fields": dict(store.fields)}
    line["bytes"] = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(store.folder))
    print(json.dumps(line))


def this_worker() -> "Worker":
    """Return this process's part under torchrun, or all of the work."""
    from torch import distributed

    from polyagents.index.builder import Worker

    if not distributed.is_torchelastic_launched():
        return Worker()
    # The fastest worker may wait for hours; torchrun itself ends all of them when one dies.
    distributed.init_process_group("gloo", timeout=datetime.timedelta(days=30))
    return Worker(distributed.get_rank(), distributed.get_world_size(), distributed.barrier)
