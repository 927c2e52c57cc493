"""The measurements of `polyagents bench_inference`: scoring, whole replies, encoding, a large index, re-ranking.

Every part returns rows for a table. ParlAI's side is in peers.py; vectors are a trained model's, the same on
both sides. The letters of shapes are as in docs/architecture.md: B, C, M, D.
"""

import contextlib
import functools
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser
from torch import Tensor, nn

from polyagents.benchmarks import peers
from polyagents.benchmarks.measure import copy_time, peak_memory, resident, side_by_side
from polyagents.console import Bar
from polyagents.errors import InputError
from polyagents.index.approximate import search_shortlist
from polyagents.index.exact import score_all, search
from polyagents.index.faiss_index import measured_recall
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.shard import SHARD
from polyagents.index.store import CandidateStore
from polyagents.index.stored_vectors import Coarse, StoredVectors, VectorBlock
from polyagents.model_files.saving import save_model
from polyagents.models.bi import BiEncoder
from polyagents.models.formulas import ContextVectors
from polyagents.models.model_options import PolyOptions, TowerOptions
from polyagents.models.poly import PolyEncoder
from polyagents.models.two_towers import Query
from polyagents.parlai_agents.fixed_candidates import FixedCandidates
from polyagents.parlai_agents.ranker_agent import RankerAgent
from polyagents.parlai_patches.compat import quiet
from polyagents.ranker import Ranker
from polyagents.ranking.two_tower_model import TwoTowerModel

CODES = (16, 64, 360)
LENGTHS, TOKENS = (5, 15, 60, 140, 256), 8_192  # of texts, [S] counted, and of all texts of a length together
Row = dict[str, Any]


class Blocks:
    """Candidate vectors in memory in the form in which a store maps them, in bf16 with a coarse copy."""

    def __init__(self, blocks: Sequence[VectorBlock]):
        self.list = list(blocks)

    def __len__(self) -> int:
        return sum(len(block.vectors) for block in self.list)

    def blocks(self) -> Iterator[VectorBlock]:
        """Yield all of them."""
        yield from self.list

    def rows(self, indices: Sequence[int] | np.ndarray) -> Tensor:
        """Return some of them, [r, D] fp32."""
        return self.matrix()[torch.as_tensor(indices)]

    def matrix(self) -> Tensor:
        """Return them as [C, D] fp32, as ParlAI keeps them."""
        return torch.cat([block.vectors for block in self.list]).float()


def filled(vectors: Tensor, count: int, doubled: bool) -> Blocks:
    """Make any number of vectors from real ones [C, D].

    Beyond C they are real ones with noise of a tenth of their length. Doubled, a vector v becomes [v, R v] / sqrt(2)
    with R orthogonal: twice as wide, and all dot products stay what they are.

    Args:
        doubled: whether to double the width, keeping all dot products.
    """
    generator = torch.Generator().manual_seed(0)
    blocks, scale = [], float(vectors.norm(dim=1).mean()) / vectors.size(1) ** 0.5
    for start in range(0, count, SHARD):
        rows = torch.arange(start, min(start + SHARD, count))
        part = vectors[rows % len(vectors)].float()
        if start >= len(vectors):
            part += 0.1 * scale * torch.randn(part.shape, generator=generator)
        part = (wider(part) if doubled else part).bfloat16()
        norms = torch.linalg.vector_norm(part.float(), dim=1)
        blocks.append(VectorBlock(start, part, norms, coarse=Coarse.of(StoredVectors(part))))
    return Blocks(blocks)


def wider(vectors: Tensor) -> Tensor:
    """Map [..., D] to [..., 2 D] with the same dot products."""
    rotation = torch.linalg.qr(
        torch.randn(vectors.size(-1), vectors.size(-1), generator=torch.Generator().manual_seed(1))
    )[0]
    return torch.cat([vectors, vectors @ rotation], -1) / 2**0.5


@contextlib.contextmanager
def model_files(ranker: Ranker) -> Iterator[str]:
    """Write the files of a model to a temporary folder, so that it does not matter where they were read."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "M")
        save_model(ranker.model, file)
        yield file


def two_towers(ranker: Ranker) -> TwoTowerModel:
    """Return the model, if it is one that encodes candidates separately.

    Raises:
        InputError: it does not.
    """
    if not isinstance(ranker.model, TwoTowerModel):
        raise InputError(f"--model-file is a {ranker.model.label}; give a bi- or poly-encoder.")
    return ranker.model


@torch.no_grad()
def queries(ranker: Ranker, context: str) -> dict[str, Query]:
    """Encode one context for each architecture of the paper's Table 5: bi, poly with learnt codes, poly with first m.

    All have the model's encoder. Where its own number of codes is another, codes are drawn as its own are spread.

    Args:
        ranker: a poly-encoder; all use its encoder, and codes of another number are drawn with the spread of its own.
    """
    model = two_towers(ranker)
    encoder, own = model.context_encoder, getattr(model.module, "codes", None)
    asking: dict[str, BiEncoder | PolyEncoder] = {
        "bi": BiEncoder(encoder, TowerOptions(reduction_type="mean", share_encoders=True))
    }
    for kind, name in (("codes", "learnt codes"), ("n_first", "first outputs")):
        for m in CODES:
            poly = PolyEncoder(encoder, PolyOptions(share_encoders=True, polyencoder_type=kind, poly_n_codes=m))
            if poly.codes is not None and own is not None and len(own) == m:
                poly.codes = own
            elif poly.codes is not None:
                spread = 0.02 if own is None else float(own.std())
                nn.init.normal_(poly.codes, std=spread, generator=torch.Generator().manual_seed(0))
            asking[f"poly {m}, {name}"] = poly
    tokens = model.tokens(model.context_ids([context]))
    return {name: Query(module, module.encode_context(tokens)) for name, module in asking.items()}


def scoring(ranker: Ranker, vectors: Tensor, context: str, counts: Sequence[int], rounds: int) -> list[Row]:
    """Measure scoring of one context with C stored candidates for the best 10: the paper's Tables 5 and 9.

    Args:
        vectors: real candidate vectors [C, D].
        rounds: how often each is measured.
    """
    rows = []
    with model_files(ranker) as file:
        for doubled, count in itertools.product((False, True), counts):
            width = vectors.size(1) * (1 + doubled)
            stored = filled(vectors, count, doubled)
            bound = copy_time([block.vectors for block in stored.list], rounds)
            matrix = stored.matrix() if count <= 100_000 else None
            for name, query in Bar(queries(ranker, context).items(), desc=f"{count:,} x {width}"):
                own = query.context
                asked = Query(query.scorer, ContextVectors(wider(own.vectors), own.mask)) if doubled else query
                row = score_row(name, asked, stored, matrix, f"{file}.dict", rounds)
                rows.append({"width": width} | row | {"bound ms": bound, "of bound": row["ours ms"] / bound})
    return rows


def score_row(name: str, query: Query, stored: Blocks, matrix: Tensor | None, dict_file: str, rounds: int) -> Row:
    """Measure one architecture over one set: ours, and ParlAI's if the vectors fit in memory.

    Args:
        matrix: the same for ParlAI; None to skip it.
        rounds: how often each is measured.
    """
    without = Blocks([block._replace(coarse=None) for block in stored.list])  # as version 0.1.0 stores them
    ways: dict[str, Callable[[], Any]]
    ways = {"ours": lambda: search(query, stored, 10), "without a coarse copy": lambda: search(query, without, 10)}
    context = query.context
    m, width = context.vectors.shape[1:]
    if matrix is not None:
        kind = "bi" if name == "bi" else "poly"
        agent = peers.parlai_agent(kind, 1, width, 4, m, "n_first" if "first" in name else "codes", dict_file=dict_file)
        theirs = context.vectors.squeeze(1) if kind == "bi" else (context.vectors, context.mask)
        ways["parlai"] = lambda: peers.score_and_sort(agent, theirs, matrix)
        ours, parlai = search(query, stored, 10).scores[0], peers.score_and_sort(agent, theirs, matrix)[0].numpy()
        np.testing.assert_allclose(ours, parlai, rtol=1e-3)  # both do the same work
    times = side_by_side(ways, rounds)
    memory = {}
    for way, run in ways.items():
        with peak_memory() as peak:
            run()
        memory[way] = peak[0]
    row: Row = {"model": name, "candidates": len(stored), "m": m, "ours ms": times["ours"], "ours MB": memory["ours"]}
    row |= {"without a coarse copy ms": times["without a coarse copy"]}
    if matrix is not None:
        row |= {"parlai ms": times["parlai"], "parlai MB": memory["parlai"], "ratio": times["parlai"] / times["ours"]}
    return row


def replies(ranker: Ranker, texts: Sequence[str], vectors: Tensor, contexts: Sequence[str], rounds: int) -> list[Row]:
    """Measure message in, text out, with fixed candidates: the whole `act()` on both sides.

    Args:
        vectors: their vectors [C, D].
        rounds: how often each is measured.
    """
    module = ranker.model.module
    kind, m = ("poly", module.m) if isinstance(module, PolyEncoder) else ("bi", 1)
    same = sizes(ranker.model.context_encoder.backbone)
    rows = []
    with model_files(ranker) as file:
        agent = our_agent(file)
        for count in (count for count in (1_000, 100_000) if count <= len(texts)):
            rank_fixed(agent, InMemoryCandidates(texts[:count], vectors[:count].float(), agent.ranking.version()))
            parlai = peers.parlai_agent(kind, *same, m, "codes", dict_file=f"{file}.dict")
            peers.set_fixed_candidates(parlai, texts[:count], vectors[:count])
            turn = itertools.cycle(contexts)
            speakers = {"ours": agent, "parlai": parlai}
            ways = {name: functools.partial(answer, speaker, turn) for name, speaker in speakers.items()}
            times = side_by_side(ways, rounds * 3)
            milliseconds = {f"{name} ms": value for name, value in times.items()}
            ratio = times["parlai"] / times["ours"]
            rows.append({"model": kind, "candidates": count, "m": m} | milliseconds | {"ratio": ratio})
    return rows


def our_agent(model_file: str) -> RankerAgent:
    """Make the agent that ParlAI's commands would make of a model, on the CPU, for a chat."""
    with quiet():
        opt = ParlaiParser(True, True).parse_args(["--model-file", model_file])
        opt["override"] = {"datatype": "valid", "no_cuda": True, "candidates": "inline", "eval_candidates": "inline"}
        agent: RankerAgent = create_agent(opt, requireModelExists=True)
    return agent


def rank_fixed(agent: RankerAgent, candidates: InMemoryCandidates) -> None:
    """Make our agent rank these candidates from now on, as a chat does."""
    agent.fixed, agent.eval_candidates = FixedCandidates("", agent.ranking, lambda _: candidates), "fixed"


def answer(speaker: Any, contexts: Iterator[str]) -> str:
    """Compute a whole reply to the next context."""
    return peers.reply(speaker, next(contexts))


def sizes(backbone: Any) -> tuple[int, int, int]:
    """Return layers, width and heads of a backbone, to make a peer of the same size."""
    config = backbone.config
    return config.num_hidden_layers, config.hidden_size, config.num_attention_heads


def parlai_encoder(ranker: Ranker) -> Any:
    """Make ParlAI's poly-encoder of the sizes of a model, with its tokens."""
    same = sizes(two_towers(ranker).context_encoder.backbone)
    with model_files(ranker) as file:
        return peers.parlai_agent("poly", *same, 64, "codes", dict_file=f"{file}.dict")


def encoding(ranker: Ranker, texts: Sequence[str], rounds: int) -> list[Row]:
    """Measure candidates per second from text to vector: ours as `index build` does it, ParlAI's for a fixed set.

    Args:
        rounds: how often each is measured.
    """
    model, parlai = two_towers(ranker), parlai_encoder(ranker)
    ways = {
        "ours": lambda: model.encode_texts(texts, low_precision=True),
        "parlai": lambda: peers.encode_candidates(parlai, texts),
    }
    times = side_by_side(ways, rounds)
    rate = {name: len(texts) / value * 1e3 for name, value in times.items()}
    tokens = sum(len(candidate.ids) for candidate in model.candidates(texts)) / len(texts)
    return [
        {"way": name, "candidates/s": value, "tokens each": tokens, "ratio": value / rate["parlai"]}
        for name, value in rate.items()
    ]


def encoding_by_length(ranker: Ranker, texts: Sequence[str], rounds: int) -> list[Row]:
    """Measure texts per second from token ids to vector, for texts of one length, so that nobody has padding.

    The share of the machine's peak counts the products of the encoder's layers, at the rate of a large product.
    """
    model, parlai = two_towers(ranker), parlai_encoder(ranker)
    layers = [part for part in model.module.candidate_encoder.backbone.modules() if isinstance(part, nn.Linear)]
    a_token = 2 * sum(layer.weight.numel() for layer in layers)  # operations
    joined = [token for candidate in model.candidates(texts) for token in candidate.ids[1:-1]]
    before = model.settings.encoder.precision
    peaks = {"fp32": product_rate(torch.float32), "bf16": product_rate(torch.bfloat16)}
    rows: list[Row] = []
    for length in LENGTHS:
        count, inside = TOKENS // length, itertools.cycle(joined)
        around = model.tokenizer.start_id, model.tokenizer.end_id
        ids = [(around[0], *itertools.islice(inside, length - 2), around[1]) for _ in range(count)]
        ways = {
            "fp32": lambda ids=ids: encoded_in(model, "fp32", ids),
            "bf16": lambda ids=ids: encoded_in(model, "bf16", ids),
            "parlai": lambda ids=ids: peers.encode_ids(parlai, ids),
        }
        rate = {name: count / value * 1e3 for name, value in side_by_side(ways, rounds).items()}
        row: Row = {"tokens": length} | {f"{name}/s": value for name, value in rate.items()}
        for name, peak in peaks.items():
            row[f"{name}, times parlai"] = rate[name] / rate["parlai"]
            row[f"{name}, of the peak"] = rate[name] * length * a_token / peak
        rows.append(row)
    model.compute_in(before)
    return rows


def encoded_in(model: TwoTowerModel, precision: str, ids: Sequence[Sequence[int]]) -> Tensor:
    """Encode token ids in a precision."""
    model.compute_in(precision)
    return model.encode_ids(ids)


def product_rate(dtype: torch.dtype) -> float:
    """Measure the operations per second of a large product of matrices."""
    left, right = torch.randn(2048, 1536, dtype=dtype), torch.randn(1536, 1536, dtype=dtype)
    (took,) = side_by_side({"product": lambda: left @ right}, 20).values()
    return 2 * left.numel() * right.size(1) / took * 1e3


def large_index(ranker: Ranker, index_dir: str, contexts: Sequence[str], rounds: int) -> list[Row]:
    """Measure an index on disk, opened as a user opens it: exact search, memory, and FAISS if it is there.

    Args:
        rounds: how often each is measured.
    """
    begin = time.perf_counter()
    store = ranker.open_index(index_dir, exact=True)
    opened = (time.perf_counter() - begin) * 1e3
    asked = [ranker.query([context]) for context in contexts]
    exact = [search(query, store, 10).indices[0] for query in asked]
    memory = resident()
    turn = itertools.cycle(asked)
    times = side_by_side({"exact": lambda: search(next(turn), store, 10)}, rounds * 3)
    equal = [
        is_best(found, score_all(query, store).numpy()[0])
        for query, found in zip(Bar(asked, desc="brute force"), exact, strict=True)
    ]
    stored = [shard.tensors["vectors"] for shard in store.shards]
    rows: list[Row] = [
        {
            "search": "exact",
            "candidates": len(store),
            "ms": times["exact"],
            "bound ms": copy_time(stored, rounds),
            "equal to brute force": f"{sum(equal)}/{len(asked)}",
            "open ms": opened,
            "own MB": memory["RssAnon"],
            "mapped MB": memory["RssFile"],
        }
    ]
    store = ranker.open_index(index_dir)
    if store.shortlist is not None:
        rows.append(approximate(store, asked, exact, times["exact"], rounds))
    return rows


def is_best(found: np.ndarray, scores: np.ndarray) -> bool:
    """Tell whether these are the best candidates, in their order.

    Candidates with equal vectors (texts that differ in case) get scores that differ in their last bits, depending on
    what else is in the matrix product, so the search and a sort of all may swap them.

    Args:
        found: [k], the candidates.
        scores: [C], of all.
    """
    best = np.sort(scores)[::-1][: len(found)]
    return np.allclose(scores[found], best, rtol=1e-5, atol=1e-5)


def approximate(
    store: CandidateStore, asked: Sequence[Query], exact: Sequence[np.ndarray], ms: float, rounds: int
) -> Row:
    """Compare FAISS's shortlist with the exact search.

    Args:
        exact: the results of the exact search.
        ms: its milliseconds.
        rounds: how often each is measured.
    """
    found = [search_shortlist(query, store.shortlist, store, 10) for query in asked]
    at_1, at_10 = measured_recall(np.stack(exact), np.concatenate([got.indices for got, _ in found]))
    turn = itertools.cycle(asked)
    times = side_by_side({"faiss": lambda: search_shortlist(next(turn), store.shortlist, store, 10)}, rounds * 3)
    return {
        "search": type(store.shortlist.index).__name__,
        "candidates": len(store),
        "ms": times["faiss"],
        "recall@1": at_1,
        "recall@10": at_10,
        "stop rule held": float(np.mean([complete[0] for _, complete in found])),
        "part of exact": times["faiss"] / ms,
    }


def reranking(cross: Ranker, uni: Ranker | None, context: str, texts: Sequence[str], rounds: int) -> list[Row]:
    """Measure one context with 100 replies in fp32: cross-encoders of three libraries, and our uni-encoder.

    Args:
        uni: our uni-encoder; None to skip it.
        rounds: how often each is measured.
    """
    theirs = peers.st_cross_encoder(cross)
    same = sizes(cross.model.context_encoder.backbone)
    with model_files(cross) as file:
        parlai = peers.parlai_agent("cross", *same, dict_file=f"{file}.dict")
    pairs = [(context, text) for text in texts]
    np.testing.assert_allclose(cross.score(context, texts), theirs.predict(pairs), rtol=1e-3, atol=1e-4)
    times = side_by_side(
        {
            "ours": lambda: cross.score(context, texts),
            "sentence-transformers": lambda: theirs.predict(pairs),
            "parlai": lambda: peers.rank_pairs(parlai, context, texts),
        }
        | ({} if uni is None else {"uni-encoder": lambda: uni.score(context, texts)}),
        rounds,
    )
    return [
        {"way": name, "replies": len(texts), "ms": value, "ours is faster by": value / times["ours"]}
        for name, value in times.items()
    ]
