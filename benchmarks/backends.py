"""The fastest runtime for a model's encoders on this CPU (torch, ONNX Runtime, OpenVINO), and the quality of int8.

    python -m polyagents.benchmarks.backends -mf M --candidates-file replies.txt -t convai2 -dp DATAPATH --work-dir W

Every way has a copy of the model in W, exported there. All but those of 8 bits, whose vectors are others, search the
same indexes, which are there too: what a search costs does not depend on which of them has made the vectors. Contexts
are real examples, one at a time. sentence-transformers computes the same encoder with its own backends, if the packages
that they need are installed.
"""

import functools
import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser

from polyagents.arguments import CommandParser, positive_int
from polyagents.backends.exporting import export_model
from polyagents.backends.tracing import encoders_of
from polyagents.benchmarks import report
from polyagents.benchmarks.inference import two_towers
from polyagents.benchmarks.measure import side_by_side
from polyagents.benchmarks.study.measuring import Example, examples_of
from polyagents.benchmarks.study.text_ranking import is_right, rank_of
from polyagents.index.approximate import search_shortlist
from polyagents.index.exact import search
from polyagents.index.store import CandidateStore
from polyagents.index.texts import FileTexts
from polyagents.model_files.saving import save_model, write_hugging_face
from polyagents.models.two_towers import Query
from polyagents.parlai_patches import patches
from polyagents.ranker import Ranker

LENGTHS = (16, 32, 64, 128)  # tokens, with [S]: contexts of about these lengths are timed separately
NEAR = 0.15  # how far a length may be off
ENCODED = 2_048  # candidates whose encoding is timed
INDEXES = {"exact": ("bf16", None), "exact, int8": ("int8", None), "hnsw": ("bf16", "hnsw")}
PARTS = ("context", "candidates", "reply", "quality")
Row = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """A way to compute the encoders.

    Attributes:
        name: its name in the tables.
        int8: whether the export has 8 bits.
        compiled: whether torch compiles the encoders, with their weights as constants; needs a C++ compiler.
    """

    name: str
    backend: str
    precision: str = "fp32"
    int8: bool = False
    compiled: bool = False

    @property
    def copy(self) -> str:
        """The name of the model's copy for this way."""
        return f"{self.backend}{'-int8' if self.int8 else ''}{'-compiled' if self.compiled else ''}"


WAYS = (
    Way("torch fp32", "torch"),
    Way("torch bf16", "torch", "bf16"),
    Way("torch compiled fp32", "torch", compiled=True),
    Way("torch compiled bf16", "torch", "bf16", compiled=True),
    Way("onnx fp32", "onnx"),
    Way("onnx int8", "onnx", int8=True),
    Way("openvino fp32", "openvino"),
    Way("openvino bf16", "openvino", "bf16"),
    Way("openvino int8", "openvino", int8=True),
    Way("openvino int8, bf16", "openvino", "bf16", int8=True),
)


def rankers(model_file: str, folder: str, ways: Sequence[Way]) -> dict[str, Ranker]:
    """Load the model once for each way; it is exported first if necessary."""
    original = Ranker.load(model_file, no_cuda=True)
    made = {}
    for way in ways:
        file = os.path.join(folder, way.copy, "M")
        if not os.path.exists(file):
            save_model(original.model, file)
        if way.backend != "torch" and not os.path.exists(f"{file}.{way.backend}"):
            export_model(Ranker.load(file, no_cuda=True).model, file, way.backend, way.int8)
        made[way.name] = Ranker.load(file, no_cuda=True, backend=way.backend, precision=way.precision)
        if way.compiled:  # at the first call
            import torch._inductor.config  # for these ways only

            torch._inductor.config.freezing = True
            for encoder in encoders_of(made[way.name].model.module).values():
                encoder.compile_backbone()
    return made


def turns(run: Callable[[Any], Any], items: Sequence[Any]) -> Callable[[], Any]:
    """Return a function that handles the next of some items at each call.

    Args:
        items: the items, from which it starts again at the end.
    """
    turn: Iterator[Any] = itertools.cycle(items)
    return lambda: run(next(turn))


# ---- time ------------------------------------------------------------------------------------------------------------


def context_rows(rankers: dict[str, Ranker], peers: dict[str, Any], contexts: Sequence[str], rounds: int) -> list[Row]:
    """Measure milliseconds from a context's text to its vectors, one at a time, by its length in tokens.

    Args:
        rounds: how often each is measured.
    """
    first = next(iter(rankers.values())).model
    lengths = np.array([len(ids) for ids in first.context_ids(contexts)])
    rows: dict[str, Row] = {}
    for wanted in LENGTHS:
        near: list[Any] = [
            contexts[place] for place in np.flatnonzero(np.abs(lengths - wanted) <= NEAR * wanted).tolist()
        ][:rounds]
        if not near:
            continue
        ways = {name: turns(ranker.query, near) for name, ranker in rankers.items()}
        ways |= {name: turns(model.encode, near) for name, model in peers.items()}
        for name, value in side_by_side(ways, rounds).items():
            rows.setdefault(name, {"way": name})[f"{wanted} tokens, ms"] = value
    return list(rows.values())


def candidate_rows(rankers: dict[str, Ranker], peers: dict[str, Any], texts: Sequence[str], rounds: int) -> list[Row]:
    """Measure candidates per second, from texts to vectors.

    Args:
        rounds: how often each is measured.
    """
    ways: dict[str, Callable[[], Any]] = {
        name: functools.partial(two_towers(ranker).encode_texts, texts) for name, ranker in rankers.items()
    }
    ways |= {name: functools.partial(model.encode, list(texts)) for name, model in peers.items()}
    return [
        {"way": name, "candidates/s": len(texts) / value * 1e3} for name, value in side_by_side(ways, rounds).items()
    ]


def stores(ranker: Ranker, candidates_file: str, folder: str) -> dict[str, CandidateStore]:
    """Return the candidates in each kind of index, by its name in the tables; missing ones are built.

    Args:
        candidates_file: one candidate per line.
    """
    found = {}
    for name, (stored_as, index_type) in INDEXES.items():
        place = os.path.join(folder, f"index-{index_type or stored_as}")
        store = ranker.index(candidates_file, place, stored_as)
        if index_type and store.shortlist is None:
            ranker.approximate(store, index_type)
            store = ranker.open_index(place)
        found[name] = store
    return found


def reply_rows(
    rankers: dict[str, Ranker], stores: dict[str, CandidateStore], contexts: Sequence[str], rounds: int
) -> list[Row]:
    """Measure milliseconds of a whole reply, text in and the best 10 texts out, over each index; and of its search.

    Args:
        rounds: how often each is measured.
    """
    rows: dict[str, Row] = {name: {"way": name} for name in ("search alone", *rankers)}
    asked = [next(iter(rankers.values())).query([text]) for text in contexts]
    for kind, store in stores.items():
        found = turns(functools.partial(searched, store=store), asked)
        ways = {"search alone": found} | {
            name: turns(functools.partial(ranker.rank, candidates=store), contexts) for name, ranker in rankers.items()
        }
        for name, value in side_by_side(ways, rounds).items():
            rows[name][f"{kind}, ms"] = value
    return list(rows.values())


def searched(query: Query, store: CandidateStore) -> Any:
    """Return the best 10 of an index."""
    return search_shortlist(query, store.shortlist, store, 10) if store.shortlist else search(query, store, 10)


# ---- quality ---------------------------------------------------------------------------------------------------------


def quality_rows(rankers: dict[str, Ranker], examples: Sequence[Example]) -> list[Row]:
    """Measure R@1 among the task's candidates, and how far scores are from the first ranker's."""
    rows: list[Row] = []
    reference: list[np.ndarray] = []
    for name, ranker in rankers.items():
        scores = [ranker.score(example.context, example.candidates) for example in examples]
        reference = reference or scores
        ranks = [
            rank_of(own, is_right(example, example.candidates)) for own, example in zip(scores, examples, strict=True)
        ]
        same = [a.argmax() == b.argmax() for a, b in zip(scores, reference, strict=True)]
        off = np.concatenate(scores) - np.concatenate(reference)
        rows.append(
            {
                "way": name,
                "R@1/20": f"{np.mean(np.array(ranks) == 1):.4f}",
                "same best": f"{np.mean(same):.4f}",
                "mean |difference|": float(np.abs(off).mean()),
                "largest": float(np.abs(off).max()),
                "of a deviation": float(np.abs(off).mean() / np.concatenate(reference).std()),
            }
        )
    return rows


# ---- sentence-transformers -------------------------------------------------------------------------------------------


def sentence_transformers(ranker: Ranker, folder: str) -> dict[str, Any]:
    """Return the context encoder with mean pooling as `SentenceTransformer`, in each available backend.

    Its onnx and openvino need optimum-onnx and optimum-intel.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    model, path = ranker.model, os.path.join(folder, "sentence-transformers")
    if not os.path.exists(path):
        encoder = os.path.join(folder, "encoder")
        write_hugging_face(model.context_encoder.backbone, model.tokenizer, encoder)
        module = Transformer(encoder, max_seq_length=model.settings.text_truncate)
        SentenceTransformer(modules=[module, Pooling(model.context_encoder.width)], device="cpu").save(path)
    packages = {"torch": "torch", "onnx": "optimum.onnxruntime", "openvino": "optimum.intel"}
    found = {}
    for backend, package in packages.items():
        try:
            there = importlib.util.find_spec(package) is not None
        except ModuleNotFoundError:
            there = False
        if there:
            found[f"sentence-transformers, {backend}"] = SentenceTransformer(
                path, device="cpu", backend=cast(Any, backend)
            )
        else:
            print(f"sentence-transformers' {backend} needs {package}, which is not installed.")
    return found


# ---- the command -----------------------------------------------------------------------------------------------------


def examples_of_task(task: str, datapath: str | None, count: int) -> list[Example]:
    """Return the first examples of a task's valid split that have candidates with a right one among them.

    Args:
        datapath: ParlAI's data folder; None for the default.
    """
    patches.apply()
    given = {"task": task, "datatype": "valid"} | ({"datapath": datapath} if datapath else {})
    opt = Opt(ParlaiParser(True, False).parse_kwargs(**given))
    found, _ = examples_of(Opt(opt | {"evaltask": task, "eval_batchsize": 1}), "valid", count)
    return [example for example in found if is_right(example, example.candidates).any()]


def main() -> None:
    """Measure, print the tables, and write them to a file."""
    parser = CommandParser("python -m polyagents.benchmarks.backends", str(__doc__).partition("\n")[0])
    parser.add_argument("-mf", "--model-file", required=True, help="a trained bi- or poly-encoder")
    parser.add_argument("--candidates-file", required=True, help="UTF-8 text, one candidate per line")
    parser.add_argument("-t", "--task", required=True, help="whose examples are contexts")
    parser.add_argument("-dp", "--datapath", help="where ParlAI keeps its data")
    parser.add_argument(
        "--work-dir", required=True, help="for copies of the model and indexes, which a next run reuses"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--ways", default=",".join(way.copy for way in WAYS if not way.compiled),
                        help="of torch,torch-compiled,onnx,onnx-int8,...")  # fmt: skip
    parser.add_argument("--examples", type=positive_int, default=1_000, help="for quality; the first ones are timed")
    parser.add_argument(
        "--rounds", type=positive_int, default=20, help="measurements per figure, which is their median"
    )
    parser.add_argument("--out", default="bench-output", help="folder for the tables (JSON)")
    opt = vars(parser.parse_args())
    parts, chosen = opt["parts"].split(","), opt["ways"].split(",")
    ours = rankers(opt["model_file"], opt["work_dir"], [way for way in WAYS if way.copy in chosen])
    examples = examples_of_task(opt["task"], opt["datapath"], opt["examples"])
    contexts = [example.context for example in examples[:200]]
    texts = FileTexts(opt["candidates_file"])
    peers = sentence_transformers(next(iter(ours.values())), opt["work_dir"])
    tables: dict[str, list[Row]] = {}
    if "context" in parts:
        tables["context"] = context_rows(ours, peers, contexts, opt["rounds"])
    if "candidates" in parts:
        some = texts.part(0, len(texts))[:: max(len(texts) // ENCODED, 1)][:ENCODED]
        tables["candidates"] = candidate_rows(ours, peers, some, 3)
    if "reply" in parts:
        kept = stores(next(iter(ours.values())), opt["candidates_file"], opt["work_dir"])
        asking = {way.name: ours[way.name] for way in WAYS if way.name in ours and not way.int8}
        tables["reply"] = reply_rows(asking, kept, contexts[:50], opt["rounds"])
    if "quality" in parts:
        tables["quality"] = quality_rows(ours, examples)
    report.publish(tables, os.path.join(opt["out"], "backends.json"))


if __name__ == "__main__":
    main()
