"""Rankers as models of MTEB: `mteb.evaluate(mteb_model("runs/poly"), tasks)` runs them on its tasks.

A bi- or poly-encoder is a search model (mteb's SearchProtocol): all documents are encoded once and searched exactly; if
a task brings a list of documents for each query, only that list is ranked. A uni- or cross-encoder is a cross-encoder
(mteb's CrossEncoderProtocol), which ranks such lists, as it cannot search.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from polyagents.errors import InputError
from polyagents.faults import missing_module
from polyagents.ranker import Ranker
from polyagents.ranking.ranking_model import RankingModel
from polyagents.ranking.two_tower_model import TwoTowerModel

# A document, a query or a batch of them, as mteb's data sets have them: columns by name.
Columns = Mapping[str, Any]


def mteb_model(ranker: Ranker | str | os.PathLike[str], name: str = "polyagents/model") -> "SearchModel | PairModel":
    """Wrap a ranker, or the model file that it is loaded from, as a model that `mteb.evaluate` accepts.

    >>> import mteb
    >>> mteb.evaluate(mteb_model("runs/poly", "me/poly"), mteb.get_tasks(["NFCorpus"]))  # doctest: +SKIP

    Args:
        name: the name under which mteb keeps the results, "OWNER/MODEL". Their revision is a hash of the weights and of
            all options that decide a score, so that results of another run are not taken for this one's.

    Raises:
        InputError: mteb is not installed, or the name has no "/".
    """
    if name.count("/") != 1 or not all(name.split("/")):
        raise InputError(f"{name!r} is not a name for mteb; give OWNER/MODEL.")
    given = ranker if isinstance(ranker, Ranker) else Ranker.load(ranker)
    described = model_meta(given.model, name)
    return SearchModel(given, described) if isinstance(given.model, TwoTowerModel) else PairModel(given, described)


def model_meta(model: RankingModel, name: str) -> Any:
    """Build mteb's ModelMeta of a model; an InputError says if mteb is not installed."""
    try:
        from mteb.models.model_meta import ModelMeta, ScoringFunction
    except ModuleNotFoundError as error:
        raise InputError(missing_module(error.name or "", "mteb") or str(error)) from error
    settings = model.settings
    limits = [settings.text_truncate, settings.label_truncate]
    options = [model.architecture, dataclasses.asdict(settings.ranking), model.precision, *limits]
    backend = model.context_encoder.backend
    options += [backend.quantized] if backend is not None and backend.quantized else []
    known: dict[str, Any] = {
        "name": name,
        "revision": model.fingerprint_of(model.module.state_dict(), json.dumps(options))[:16],
        "n_parameters": sum(weight.numel() for weight in model.module.parameters()),
        "max_tokens": settings.text_truncate,
        "framework": ["PyTorch"],
    }
    if isinstance(model, TwoTowerModel):
        dot = model.similarity == "dot"
        known["similarity_fn_name"] = ScoringFunction.DOT_PRODUCT if dot else ScoringFunction.COSINE
    else:
        known["model_type"] = ["cross-encoder"]
    return ModelMeta.create_empty(known)


class SearchModel:
    """A two-tower model that implements mteb's SearchProtocol, whose `others` it does not need.

    Attributes:
        mteb_model_meta: what mteb writes with the results.
        ids: the names of the documents of the last `index`.
        encoded: the same, encoded; None before the first `index`.
    """

    def __init__(self, ranker: Ranker, described: Any):
        self.ranker, self.mteb_model_meta = ranker, described
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.encoded: Any = None

    def index(self, corpus: Iterable[Columns], **others: Any) -> None:
        """Encode the documents of a task."""
        documents = list(corpus)
        self.ids = [str(document["id"]) for document in documents]
        # As mteb gives documents to models.
        self.texts = [f"{document.get('title') or ''} {document['text']}".strip() for document in documents]
        self.encoded = self.ranker.prepare(self.texts)

    def search(
        self,
        queries: Iterable[Columns],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **others: Any,
    ) -> dict[str, dict[str, float]]:
        """Find the best documents of every query.

        Args:
            top_k: how many documents are found for a query, at most.
            top_ranked: the names of the documents that each query ranks; by default it ranks all.

        Returns:
            The scores of the documents that were found, by query and document name.
        """
        asked = {str(query["id"]): query_text(query) for query in queries}
        if top_ranked is not None:
            return self.rerank(asked, top_ranked, top_k)
        found = self.ranker.rank(list(asked.values()), self.encoded, top_k)
        return {
            query: {self.ids[match.index]: match.score for match in matches}
            for query, matches in zip(asked, found, strict=True)
        }

    def rerank(
        self, asked: Mapping[str, str], top_ranked: Mapping[str, Sequence[str]], top_k: int
    ) -> dict[str, dict[str, float]]:
        """Rank the documents that `top_ranked` names for each query; a query without any finds nothing.

        Returns:
            The scores of at most `top_k` documents, by query and document name.
        """
        text_of = dict(zip(self.ids, self.texts, strict=True))
        lists = {query: list(top_ranked.get(query, ())) for query in asked}
        own = [[text_of[document] for document in listed] for listed in lists.values()]
        ranked = self.ranker.model.scores_in_lists(list(asked.values()), own)
        found = {}
        for (query, listed), scores in zip(lists.items(), ranked, strict=True):
            order = np.argsort(-scores, kind="stable")[:top_k]
            found[query] = {listed[place]: float(scores[place]) for place in order}
        return found


class PairModel:
    """A joint model that implements mteb's CrossEncoderProtocol; mteb writes `mteb_model_meta` next to the results."""

    def __init__(self, ranker: Ranker, described: Any):
        self.ranker, self.mteb_model_meta = ranker, described

    def predict(self, inputs1: Iterable[Columns], inputs2: Iterable[Columns], **others: Any) -> np.ndarray:
        """Score N pairs of a query and a document, both in batches: scores [N] fp32, in the order of the pairs."""
        contexts = [text for batch in inputs1 for text in query_texts(batch)]
        documents = [text for batch in inputs2 for text in batch["text"]]
        pairs = zip(contexts, documents, strict=True)
        # A query's documents follow each other, so that one row of a uni-encoder holds several.
        asked, listed = [], []
        for context, own in itertools.groupby(pairs, lambda pair: pair[0]):
            asked.append(context)
            listed.append([document for _, document in own])
        return np.concatenate([np.zeros(0, np.float32), *self.ranker.model.scores_in_lists(asked, listed)])


# ---- texts -----------------------------------------------------------------------------------------------------------


def query_text(query: Columns) -> str:
    """Return a query as a context: turns are separated by line ends; mteb would write "role: turn; ..."."""
    text, instruction = query["text"], query.get("instruction")
    if isinstance(text, str):
        return f"{text} {instruction}" if instruction else text  # the order is mteb's
    return with_instruction(turns(text), instruction)


def query_texts(batch: Columns) -> list[str]:
    """Return a batch of queries as contexts; mteb has joined the turns of each to one text, but kept them as well."""
    if "conversation" not in batch:
        return list(batch["text"])
    instructions = batch.get("instruction") or [None] * len(batch["conversation"])
    return [
        with_instruction(turns(conversation), instruction)
        for conversation, instruction in zip(batch["conversation"], instructions, strict=True)
    ]


def turns(conversation: Sequence[str | Columns]) -> str:
    """Join the turns of a conversation, one a line."""
    return "\n".join(turn if isinstance(turn, str) else str(turn["content"]) for turn in conversation)


def with_instruction(context: str, instruction: str | None) -> str:
    """Put an instruction, if there is one, before a conversation, as mteb does, but on a line of its own."""
    return f"{instruction}\n{context}" if instruction else context
