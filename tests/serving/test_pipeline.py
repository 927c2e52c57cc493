"""A second model orders what the first one finds: in Python, in `rank`, and in every endpoint of `serve`."""

import re

import numpy as np
import pytest
from stand import HERE, REPLIES
from starlette.testclient import TestClient

from polyagents import InputError, Pipeline, Ranker
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

TOP = 4


@pytest.fixture(scope="module")
def rankers(trained):
    return Ranker.load(trained("bi")), Ranker.load(trained("cross"))


@pytest.fixture(scope="module")
def client(trained, tmp_path_factory):
    """A client of a bi-encoder with a cross-encoder for its best four."""
    path = tmp_path_factory.mktemp("pipeline") / "replies.txt"
    path.write_text("\n".join(REPLIES))
    served = Sources(trained("bi"), str(path), rerank=trained("cross"), rerank_top=TOP).read()
    served.try_out()
    with TestClient(create_app(served, per_minute=10**6, texts_per_minute=10**6), HERE) as client:
        yield client


def slowly(first, second, context, candidates, top_k):
    """The pipeline in a loop: index, text and the second model's score of each."""
    scores = first.score(context, candidates)
    shortlist = sorted(range(len(candidates)), key=lambda place: (-scores[place], place))[:TOP]
    again = [float(second.score(context, [candidates[place]])[0]) for place in shortlist]
    order = sorted(range(len(shortlist)), key=lambda place: (-again[place], place))[:top_k]
    return [(shortlist[place], candidates[shortlist[place]], pytest.approx(again[place], abs=1e-4)) for place in order]


@pytest.mark.parametrize("top_k", [1, 3, 10])
@pytest.mark.parametrize("context", ["hi !", "do you like red ?\nyes"])
def test_a_pipeline_ranks_as_its_stages_do_one_after_the_other(rankers, context, top_k, client):
    first, second = rankers
    expected = slowly(first, second, context, REPLIES, top_k)
    pipeline = Pipeline(first, second, rerank_top=TOP)
    for candidates in (REPLIES, first.prepare(REPLIES)):
        found = pipeline.rank(context, candidates, top_k)
        assert [(match.index, match.text, match.score) for match in found] == expected
        (listed,) = pipeline.rank([context], candidates, top_k)
        assert listed == found
    for own in ({}, {"candidates": REPLIES}):
        matches = client.post("/rank", json={"context": context, "top_k": top_k, **own}).json()["matches"]
        assert [(match["index"], match["text"], match["score"]) for match in matches] == expected


def test_without_a_second_model_a_pipeline_is_the_first(rankers):
    first, _ = rankers
    found = Pipeline(first, None, rerank_top=1).search(["hi !", "yes"], REPLIES, top_k=3)
    assert found.matches == first.rank(["hi !", "yes"], REPLIES, top_k=3)
    assert found.seconds.keys() == {"search"} and found.complete == [True, True]


def test_what_a_pipeline_cannot_do_is_one_sentence(rankers):
    with pytest.raises(InputError, match="rerank_top is 0"):
        Pipeline(*rankers, rerank_top=0)
    with pytest.raises(InputError, match="Options of several texts"):
        Pipeline(*rankers).rank("hi", {"a": ["b", "c"]})


def test_a_pipeline_decides_as_its_first_model_does_with_the_second(rankers):
    first, second = rankers
    options = {"a": ["hi there", "bye"], "b": "i do not know", "c": "tell me more"}
    assert Pipeline(first, second, 2).decide("hi", options) == first.decide("hi", options, rerank=second, rerank_top=2)


# ---- serve -----------------------------------------------------------------------------------------------------------


def test_a_chat_replies_by_the_second_model(client, rankers):
    history = ["hi !"]
    best = slowly(*rankers, "hi !", REPLIES, TOP)
    answer = client.post("/chat", json={"history": history, "top_k": TOP}).json()
    assert answer["text"] == best[0][1]
    assert [(match["index"], match["text"], match["score"]) for match in answer["matches"]] == best
    streamed = client.post("/chat", json={"history": history}, headers={"Accept": "text/event-stream"})
    assert f'"text": "{best[0][1]}"' in streamed.text


def test_documents_are_ordered_by_the_second_model_alone(client, rankers):
    _, second = rankers
    results = client.post("/v2/rerank", json={"query": "hi !", "documents": REPLIES}).json()["results"]
    expected = second.rank("hi !", REPLIES, top_k=len(REPLIES))
    assert [one["index"] for one in results] == [match.index for match in expected]
    assert [one["score"] for one in results] == pytest.approx([match.score for match in expected], abs=1e-4)


def test_vectors_are_those_of_the_first_model(client, rankers):
    first, _ = rankers
    body = {"input": REPLIES, "input_type": "document"}
    found = [item["embedding"] for item in client.post("/v1/embeddings", json=body).json()["data"]]
    assert np.allclose(found, first.encode_candidates(REPLIES).numpy(), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("top", [1, 2, 10])
def test_decisions_are_those_of_python_with_the_calibration_of_both(model, trained, replies, top):
    """Options of several texts; and the server's own candidates, each of which is an option."""
    file = str(model("bi"))
    first, second = Ranker.load(file), Ranker.load(trained("cross"))
    examples = [{"context": f"{n} plus 1", "label": "more" if n % 3 else "less"} for n in range(100)]
    first.calibrate(examples, rerank=second, rerank_top=top)
    served = Sources(file, str(replies), rerank=trained("cross"), rerank_top=top).read()
    assert served.score_map[1]
    criteria = {"a": ["hi there", "bye"], "b": "i do not know", "c": "tell me more"}
    questions = {"own": {"type": "choice", "criteria": {f"@{served.source}": None}}}
    questions["given"] = {"type": "choice", "criteria": criteria}
    with TestClient(create_app(served), HERE) as client:
        answers = client.post("/v1/systemone", json={"state": "hi", "questions": questions}).json()["answers"]
        reply = client.post("/chat", json={"history": ["hi"]}).json()
    for name, options in (("given", criteria), ("own", REPLIES)):
        decision = first.decide("hi", options, none=False, rerank=second, rerank_top=top)
        assert answers[name]["calibrated"] and answers[name]["probabilities"] == pytest.approx(
            decision.probabilities, abs=1e-4
        )
    assert reply["probability"] == pytest.approx(answers["own"]["probabilities"][reply["text"]], abs=1e-4)


def test_each_stage_is_in_the_answer_and_in_the_figures(client):
    both, only = r"search;dur=[\d.]+, rerank;dur=[\d.]+", r"rerank;dur=[\d.]+"
    for path, body, timing in (
        ("/rank", {"context": "hi"}, both),
        ("/chat", {"history": ["hi"]}, both),
        ("/v1/systemone", {"state": "hi", "questions": {"q": {"type": "choice", "criteria": {"a": "b"}}}}, both),
        ("/v2/rerank", {"query": "hi", "documents": ["a", "b"]}, only),
        ("/v1/embeddings", {"input": "hi", "input_type": "document"}, r"encode;dur=[\d.]+"),
    ):
        assert re.fullmatch(timing, client.post(path, json=body).headers["server-timing"]), path
    assert "server-timing" not in client.get("/healthz").headers
    assert "server-timing" not in client.post("/rank", json={}).headers
    said = client.get("/metrics").text
    assert all(f'polyagents_batch_seconds_count{{stage="{one}"}}' in said for one in ("search", "rerank", "encode"))
    assert re.fullmatch(rf"cross-[0-9a-f]{{12}}-{TOP}", client.get("/healthz").json()["reranker"])
