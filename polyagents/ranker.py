"""The Python API: load a trained model, rank your candidates, get scores."""

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from parlai.core.agents import create_agent
from parlai.core.build_data import modelzoo_path
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils import logging as parlai_logging

from polyagents.errors import InputError
from polyagents.index.approximate import search_shortlist
from polyagents.index.builder import Worker
from polyagents.index.exact import search
from polyagents.index.faiss_index import Description, build_shortlist, open_shortlist, sample_of
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.store import CandidateStore
from polyagents.index.texts import FileTexts, ListedTexts
from polyagents.index.top_k import top_k as best
from polyagents.models.cross import CrossEncoder
from polyagents.models.query import Query, stack_queries
from polyagents.parlai_agents.agent import RankerAgent
from polyagents.parlai_files import model_options
from polyagents.ranking.candidate_set import columns_of, shared_set

Candidates = Sequence[str] | CandidateStore | InMemoryCandidates
"""What can be ranked: texts, or what `index`, `open_index` and `prepare` return."""

CONTEXTS_AT_ONCE = 64  # chosen here: enough to fill the encoder, little enough to keep [B, C] scores small


@dataclass(frozen=True)
class Match:
    """One ranked candidate.

    Attributes:
        index: its place in the list or index that was ranked.
        text: the candidate.
        score: fp32; an unbounded dot product, or a cosine where the model was trained with `--similarity cosine`.
    """

    index: int
    text: str
    score: float


class Ranker:
    """A trained bi-, poly- or cross-encoder.

    >>> ranker = Ranker.load("M")
    >>> ranker.rank("where is canada", ["i am here", "canada is in north america"], top_k=1)
    [Match(index=1, text='canada is in north america', score=...)]

    A context is one string; its turns (persona lines first) are divided by line ends, as in ParlAI.
    """

    def __init__(self, agent: RankerAgent):
        self.agent = agent
        agent.model.eval()

    @classmethod
    def load(cls, model_file: str | os.PathLike[str], **overrides: Any) -> "Ranker":
        """Load a model file that `parlai train_model` wrote, with our agents or with ParlAI's own.

        Args:
            model_file: its path; `model_file.opt` and `model_file.dict` lie beside it. Or its name in the zoo, such as
                "zoo:pretrained_transformers/model_poly/model", which is downloaded at first use.
            overrides: flags of the agent with other values, such as precision="bf16" or no_cuda=True.

        Raises:
            InputError: there is no such file, or it was not trained with polyagents.
        """
        model_file = zoo_file(os.fspath(model_file), overrides.get("datapath"))
        if not os.path.exists(model_file) or not os.path.exists(f"{model_file}.opt"):
            raise InputError(
                f"There is no trained model at {model_file}: both {model_file} and {model_file}.opt are needed. Give "
                f"the path that was --model-file of train_model."
            )
        with quiet():
            parser = ParlaiParser(add_parlai_args=True, add_model_args=True)
            # Nothing of the training run but the model: no candidates file, no optimiser, no task.
            neutral = {
                "eval_candidates": "inline",
                "candidates": "inline",
                "interactive_mode": False,
                "init_model": None,
            }
            architecture = model_options.architecture_of(model_options.read(model_file).get("model"))
            model = ["--model", f"polyagents:{architecture}"] if architecture else []
            opt = Opt(parser.parse_args(["--model-file", model_file, *model]))
            overrides |= {"model": opt["model"]} if architecture else {}
            opt["override"] = neutral | {"datatype": "test"} | overrides
            agent = create_agent(opt, requireModelExists=True)
        if not isinstance(agent, RankerAgent):
            raise InputError(f"{model_file} was trained as {agent.opt['model']}; Ranker loads models of polyagents.")
        return cls(agent)

    # ---- scores ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, contexts: str | Sequence[str], candidates: Sequence[str]) -> np.ndarray:
        """Scores of every context with every candidate.

        Args:
            contexts: B contexts, or one.
            candidates: C texts.

        Returns:
            fp32 [B, C], or [C] for one context.
        """
        single = isinstance(contexts, str)
        texts = [contexts] if isinstance(contexts, str) else list(contexts)
        candidates = list(candidates)
        if not texts or not candidates:
            empty = np.zeros((len(texts), len(candidates)), np.float32)
            return empty[0] if single else empty
        given = self.agent.as_candidates(candidates)
        shared = shared_set(given, None)  # equal texts are encoded once and keep their place each
        blocks = [
            self.agent.candidate_scores([self.agent.context_ids(text) for text in block], shared).cpu().numpy()
            for block in in_blocks(texts)
        ]
        scores = np.concatenate(blocks)[:, columns_of(given, shared)]
        return scores[0] if single else scores

    @overload  # a str is a Sequence[str], too; the first that fits is meant
    def rank(  # type: ignore[overload-overlap]
        self, contexts: str, candidates: Candidates, top_k: int = 10
    ) -> list[Match]: ...

    @overload
    def rank(self, contexts: Sequence[str], candidates: Candidates, top_k: int = 10) -> list[list[Match]]: ...

    def rank(
        self, contexts: str | Sequence[str], candidates: Candidates, top_k: int = 10
    ) -> list[Match] | list[list[Match]]:
        """The best candidates, highest score first; among equals the lower index.

        Args:
            contexts: one context, or several.
            candidates: texts, or what `index`, `open_index` or `prepare` returned.
            top_k: how many, at most.

        Returns:
            A list of matches for one context, a list of such lists for several.
        """
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be 1 or more.")
        if isinstance(contexts, str):
            return self.rank([contexts], candidates, top_k)[0]
        blocks = in_blocks(contexts)
        if isinstance(candidates, (CandidateStore, InMemoryCandidates)):
            return [matches for block in blocks for matches in self.search(block, candidates, top_k)[0]]
        texts = list(candidates)
        return [
            [Match(int(i), texts[i], float(row[i])) for i in best(row, top_k)]
            for block in blocks
            for row in self.score(list(block), texts)
        ]

    def search(
        self, contexts: Sequence[str], index: CandidateStore | InMemoryCandidates, top_k: int = 10
    ) -> tuple[list[list[Match]], list[bool]]:
        """`rank` over encoded candidates, and how sure the answers are.

        Returns:
            The matches of each context, and whether they are complete: always so for exact search; for an approximate
            one, whether its stop rule held (shortlist.py).
        """
        query = self.query(contexts)
        if isinstance(index, CandidateStore) and index.shortlist is not None:
            found, complete = search_shortlist(query, index.shortlist, index, top_k)
        else:
            found, complete = search(query, index, top_k), [True] * len(contexts)
        matches = [
            [Match(int(i), index[int(i)], float(score)) for i, score in zip(*row, strict=True)]
            for row in zip(found.indices, found.scores, strict=True)
        ]
        return matches, complete

    @torch.no_grad()
    def query(self, contexts: Sequence[str]) -> Query:
        """B contexts, encoded, as `search.search` takes them."""
        return self.agent.query([self.agent.context_ids(text) for text in contexts])

    def rerank(self, context: str, matches: Sequence[Match], top_k: int = 10) -> list[Match]:
        """Matches of another ranker, in the order of this one: a cross-encoder after a bi- or poly-encoder's shortlist.

        Args:
            context: what they were ranked for.
            matches: the shortlist; places and texts are kept, scores are this ranker's.
            top_k: how many to return, at most.
        """
        ranked = self.rank(context, [match.text for match in matches], top_k)
        return [Match(matches[match.index].index, match.text, match.score) for match in ranked]

    # ---- fixed candidates ------------------------------------------------------------------------------------------

    def prepare(self, candidates: Sequence[str]) -> InMemoryCandidates | list[str]:
        """Candidates to rank for many contexts: encoded once, in memory; as they are for a cross-encoder."""
        if not candidates:
            raise InputError("There are no candidates to prepare; give at least one text.")
        if isinstance(self.agent.module, CrossEncoder):
            return list(candidates)
        return InMemoryCandidates.encode(list(candidates), self.agent.encode_texts)

    def index(
        self,
        candidates_file: str | os.PathLike[str],
        index_dir: str | os.PathLike[str],
        stored_as: str = "bf16",
        worker: Worker = Worker(),  # noqa: B008  frozen
    ) -> CandidateStore:
        """The candidates of a text file, one per line, encoded once.

        The index in `index_dir` is reused if this model made it from the same file, else built and written there; a
        build that was stopped goes on where it was.

        Args:
            candidates_file: UTF-8, one candidate per line; blank lines and repetitions are left out.
            index_dir: a folder, made where it is missing.
            stored_as: bf16; fp32, twice as large; or int8, half as large, with scores that are off by about 1 %.
            worker: this process's part, where several build together.
        """
        self._refuse_cross()
        file, folder = os.fspath(candidates_file), os.fspath(index_dir)
        store = CandidateStore.build(file, folder, self.agent.maker(stored_as), worker)
        with contextlib.suppress(InputError):  # a damaged one is named by open_index, and patched by approximate
            store.shortlist = open_shortlist(store)
        return store

    def open_index(self, index_dir: str | os.PathLike[str], exact: bool = False) -> CandidateStore:
        """An index that `index` wrote, without its text file.

        Args:
            index_dir: its folder.
            exact: search exactly, also where an approximate index is there.
        """
        self._refuse_cross()
        store = CandidateStore.open(os.fspath(index_dir), self.agent.fingerprint())
        store.shortlist = None if exact else open_shortlist(store)
        return store

    def append(self, index: CandidateStore, candidates: Sequence[str] | FileTexts) -> CandidateStore:
        """The index with more candidates at its end; those that it has already are left out."""
        texts = candidates if isinstance(candidates, FileTexts) else ListedTexts(candidates)
        return index.append(texts, self.agent.maker(index.manifest.stored_as).encode)

    def approximate(self, index: CandidateStore, index_type: str, contexts: Sequence[str] | None = None) -> Description:
        """Build a FAISS index over a candidate index, which `rank` uses from then on; what it finds is told.

        Args:
            index: all of its candidates are indexed; it stays as it is, for exact search.
            index_type: hnsw or ivfpq.
            contexts: what recall is measured with; by default candidates stand in for them.
        """
        asked = list(contexts or sample_of(index, 200))
        parts = [self.query(block) for block in in_blocks(asked)]
        return build_shortlist(index, index_type, stack_queries(parts))

    def _refuse_cross(self) -> None:
        if isinstance(self.agent.module, CrossEncoder):
            raise InputError(
                "A cross-encoder cannot encode candidates ahead of the context; index them with a bi- or poly-encoder."
            )


def zoo_file(name: str, datapath: str | None = None) -> str:
    """The path of a model file that is named as ParlAI's commands take it; one of the zoo is downloaded."""
    if not name.startswith("zoo:"):
        return name
    parser = ParlaiParser(add_parlai_args=False, add_model_args=False)
    parser.add_parlai_data_path()
    path: str = modelzoo_path(datapath or parser.parse_args([])["datapath"], name)
    return path


def in_blocks(contexts: Sequence[str]) -> Iterator[Sequence[str]]:
    """A long list in blocks that fit the memory."""
    for start in range(0, len(contexts), CONTEXTS_AT_ONCE):
        yield contexts[start : start + CONTEXTS_AT_ONCE]


def reply_seconds(ranker: Ranker, contexts: Sequence[str], candidates: Candidates) -> float:
    """The median time of a reply: one context after the other, their best candidate."""
    seconds = []
    for context in contexts:
        begin = time.perf_counter()
        ranker.rank(context, candidates, top_k=1)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """ParlAI logs each step of loading; a library says nothing."""
    before = parlai_logging.logger.disabled
    parlai_logging.logger.disabled = True
    try:
        yield
    finally:
        parlai_logging.logger.disabled = before
