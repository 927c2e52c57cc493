"""Rankers under MTEB's own evaluation, on a small retrieval task that is built here."""

import sys

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.models_protocols import CrossEncoderProtocol, SearchProtocol

from polyagents import InputError, Ranker
from polyagents.evaluation.judged import Judged
from polyagents.evaluation.rank_metrics import metrics
from polyagents.mteb_models import mteb_model

COLOURS = ("red", "green", "blue", "black", "white", "pink", "gray", "brown")
DOCUMENTS = [{"id": f"d{i}", "title": "", "text": f"so you like {colour}"} for i, colour in enumerate(COLOURS)]
DOCUMENTS += [{"id": f"t{i}", "title": f"on {colour}", "text": "a long story"} for i, colour in enumerate(COLOURS)]
QUERIES = [{"id": f"q{i}", "text": f"what of {colour} ?"} for i, colour in enumerate(COLOURS)]
CONVERSATIONS = [
    {"id": q["id"], "text": [{"role": "user", "content": "hi"}, {"role": "user", "content": q["text"]}]}
    for q in QUERIES
]
RIGHT = {f"q{i}": {f"d{i}": 1, f"t{(i + 3) % 8}": 1} if i % 2 else {f"d{i}": 1} for i in range(8)}
LISTS = {f"q{i}": [f"d{j}" for j in range(8) if j != (i + 1) % 8] + [f"t{(i + 3) % 8}"] for i in range(8)}


class Colours(AbsTaskRetrieval):
    """Eight queries about colours, sixteen documents, one or two of them right."""

    queries_given, lists_given = QUERIES, None
    metadata = TaskMetadata(
        name="Colours",
        type="Retrieval",
        description="made up",
        reference=None,
        dataset={"path": "none", "revision": "1"},
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2026-01-01", "2026-01-01"),
        domains=[],
        task_subtypes=[],
        license="cc-by-4.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="created",
        bibtex_citation="",
    )

    def load_data(self, num_proc=None, **kwargs):
        """Nothing is downloaded."""
        split = RetrievalSplitData(
            queries=Dataset.from_list(self.queries_given),
            corpus=Dataset.from_list(DOCUMENTS),
            relevant_docs=RIGHT,
            top_ranked=self.lists_given,
        )
        self.dataset, self.data_loaded = {"default": {"test": split}}, True


class ColourLists(Colours):
    """The same, with a list of nine documents for each query."""

    lists_given = LISTS


class Conversations(ColourLists):
    """The same, with what came before each query."""

    queries_given = CONVERSATIONS


def theirs(model, task):
    """What MTEB reports."""
    (result,) = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results
    return result.scores["test"][0]


def ours(ranker, lists, before=""):
    """The same metrics of ours, from the ranker's own scores of the documents that each query ranks."""
    texts = {document["id"]: f"{document['title']} {document['text']}".strip() for document in DOCUMENTS}
    ranks = []
    for query in QUERIES:
        listed = lists.get(query["id"], list(texts))
        scores = ranker.score(before + query["text"], [texts[one] for one in listed])
        right = np.array([one in RIGHT[query["id"]] for one in listed])
        ranks.append(Judged(np.arange(len(listed)), scores, right).right_ranks())
    found = {name: values.mean() for name, values in metrics(ranks, (1, 5, 10, 20)).items()}
    return {
        "ndcg_at_10": found["nDCG@10"],
        "ndcg_at_5": found["nDCG@5"],
        "recall_at_5": found["R@5"],
        "map_at_20": found["MAP"],
        "mrr_at_20": found["MRR"],
        "hit_rate_at_5": found["hits@5"],
    }


def assert_equal(reported, expected):
    """MTEB rounds to five digits."""
    assert {name: reported[name] for name in expected} == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_a_search_over_all_documents(kind, trained):
    ranker = Ranker.load(trained(kind))
    model = mteb_model(ranker)
    assert isinstance(model, SearchProtocol) and not isinstance(model, CrossEncoderProtocol)
    assert_equal(theirs(model, Colours()), ours(ranker, {}))


@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_a_list_for_each_query(kind, trained):
    ranker = Ranker.load(trained(kind))
    model = mteb_model(ranker)
    assert isinstance(model, SearchProtocol if kind in ("bi", "poly") else CrossEncoderProtocol)
    assert_equal(theirs(model, ColourLists()), ours(ranker, LISTS))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_the_turns_of_a_conversation_are_a_contexts_lines(kind, trained):
    ranker = Ranker.load(trained(kind))
    assert_equal(theirs(mteb_model(ranker), Conversations()), ours(ranker, LISTS, before="hi\n"))


def test_a_model_file_is_loaded_and_named(trained):
    meta = mteb_model(trained("poly"), "me/poly").mteb_model_meta
    assert meta.name == "me/poly" and meta.max_tokens == 64 and meta.n_parameters > 0
    cross = mteb_model(trained("cross")).mteb_model_meta
    assert cross.is_cross_encoder and not meta.is_cross_encoder


def test_results_of_other_weights_are_not_taken_for_these(trained):
    """MTEB keeps results by name and revision."""
    ranker = Ranker.load(trained("poly"))
    before = mteb_model(ranker).mteb_model_meta.revision
    assert mteb_model(trained("poly")).mteb_model_meta.revision == before
    assert mteb_model(Ranker.load(trained("poly"), text_truncate=8)).mteb_model_meta.revision != before
    ranker.model.module.codes.data += 1
    assert mteb_model(ranker).mteb_model_meta.revision != before


@pytest.mark.parametrize("name", ["poly", "me/", "/poly", "a/b/c", ""])
def test_a_name_that_mteb_refuses_is_said_before_anything_is_loaded(name):
    with pytest.raises(InputError, match="OWNER/MODEL"):
        mteb_model("nothing", name)


def test_without_mteb_it_is_said_what_to_install(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb.models.model_meta", None)
    with pytest.raises(InputError, match=r"polyagents\[mteb\]"):
        mteb_model(trained("bi"))
