"""Cohere's and OpenAI's own clients, and Haystack's ranker, ask a running server: they get what `Ranker` gives.

test_serve_libraries.py has the libraries that cannot be installed beside ours.
"""

import asyncio
import contextlib
import inspect
import math
import typing

import cohere
import numpy as np
import openai
import pytest
from stand import REPLIES, Stand
from starlette.testclient import TestClient
from web import running

from polyagents import Match
from polyagents.serving.cohere_messages import RerankRequest, relevance
from polyagents.serving.openai_messages import EmbeddingsRequest
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

TURNS = ["your persona: i ski .", "what do you do in winter ?"]
CONTEXT = "\n".join(TURNS)
LONG = "i like red and blue and " * 800  # as long as a document may be, and far beyond what the model reads of it
DOCUMENTS = ["i ski", "", "so you like red", LONG, "i ski", "tell me more"]
TOKEN = "a-secret"


@contextlib.contextmanager
def serving(model_file, replies, **limits):
    """A model, and the address of its server."""
    served = Sources(model_file, str(replies)).read()
    with running(create_app(served, **limits)) as url:
        yield served.ranker, url


@pytest.fixture(scope="module")
def candidates_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("clients") / "replies.txt"
    path.write_text("\n".join(REPLIES))
    return path


@pytest.fixture(scope="module", params=["bi", "poly", "uni", "cross"])
def each(request, trained, candidates_file):
    """A ranker of each architecture, and its server."""
    with serving(trained(request.param), candidates_file) as both:
        yield both


@pytest.fixture(scope="module")
def poly(trained, candidates_file):
    with serving(trained("poly"), candidates_file) as both:
        yield both


@pytest.fixture(scope="module")
def bi(trained, candidates_file):
    with serving(trained("bi"), candidates_file) as both:
        yield both


def cohere_client(url, version=2, key="none"):
    """Cohere's client of one of its API's versions; it asks once."""
    client = cohere.Client if version == 1 else cohere.ClientV2
    return client(key, base_url=url, max_retries=0)


def openai_client(url, key="none"):
    """OpenAI's client; it asks once."""
    return openai.OpenAI(api_key=key, base_url=f"{url}/v1", max_retries=0)


def found(response):
    """Place and score of each result."""
    return [(result.index, result.score) for result in response.results]


def expected(matches):
    """The same of what a ranker returned."""
    return [(match.index, pytest.approx(match.score, abs=1e-4)) for match in matches]


# ---- Cohere's client -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_cohere_gets_what_the_ranker_gives(each, version):
    ranker, url = each
    answer = cohere_client(url, version).rerank(model="any", query=CONTEXT, documents=DOCUMENTS)
    matches = ranker.rank(CONTEXT, DOCUMENTS, top_k=len(DOCUMENTS))
    assert found(answer) == expected(matches)
    assert [r.relevance_score for r in answer.results] == [relevance(r.score) for r in answer.results]
    assert answer.meta.api_version.version == str(version) and answer.id


def test_equal_documents_keep_their_places(poly):
    _, url = poly
    results = cohere_client(url).rerank(model="any", query="hi !", documents=["b", "a", "b", "a", "b"]).results
    place = {result.index: position for position, result in enumerate(results)}
    assert place[0] + 2 == place[2] + 1 == place[4] and place[1] + 1 == place[3]
    assert len({result.relevance_score for result in results}) == 2


@pytest.mark.parametrize(("top_n", "many"), [(1, 1), (4, 4), (6, 6), (7, 6), (10**6, 6)])
def test_as_many_as_are_wanted_and_there_are(poly, top_n, many):
    ranker, url = poly
    answer = cohere_client(url).rerank(model="any", query=CONTEXT, documents=DOCUMENTS, top_n=top_n)
    assert found(answer) == expected(ranker.rank(CONTEXT, DOCUMENTS, top_k=many))


def test_more_than_rank_returns_at_once(poly):
    _, url = poly
    documents = [str(number) for number in range(1_000)]
    assert len(cohere_client(url).rerank(model="any", query="hi !", documents=documents).results) == 1_000


def test_the_documents_come_along_as_they_were_sent(poly):
    _, url = poly
    documents = ["i ski", {"text": "i swim", "source": "b.txt"}]
    answer = cohere_client(url, 1).rerank(query="hi !", documents=documents, return_documents=True)
    sent = {result.index: dict(result.document) for result in answer.results}
    assert sent == {0: {"text": "i ski"}, 1: documents[1]}
    more = {"additional_body_parameters": {"return_documents": True}}
    second = cohere_client(url).rerank(model="any", query="hi !", documents=["i ski"], request_options=more)
    assert second.results[0].document == {"text": "i ski"}
    without = cohere_client(url, 1).rerank(query="hi !", documents=documents)
    assert [result.document for result in without.results] == [None, None] and found(without) == found(answer)


def test_a_document_that_is_an_object_is_its_text(poly):
    ranker, url = poly
    documents = [{"source": text[::-1], "text": text} for text in REPLIES]
    answer = cohere_client(url, 1).rerank(query="hi !", documents=documents)
    assert found(answer) == expected(ranker.rank("hi !", REPLIES))


@pytest.mark.parametrize("version", [1, 2])
def test_a_query_is_a_context_and_may_be_its_turns(poly, version):
    ranker, url = poly
    client = cohere_client(url, version)
    turns, text = (found(client.rerank(model="any", query=query, documents=REPLIES)) for query in (TURNS, CONTEXT))
    assert turns == text == expected(ranker.rank(CONTEXT, REPLIES))
    assert turns != found(client.rerank(model="any", query=TURNS[-1], documents=REPLIES))


def test_many_clients_at_once_get_what_each_would_get_alone(bi):
    ranker, url = bi
    queries = ["hi !", "do you like red ?", "bye"] * 4

    async def ask():
        async with cohere.AsyncClientV2("none", base_url=url) as client:
            return await asyncio.gather(
                *(client.rerank(model="any", query=query, documents=REPLIES) for query in queries)
            )

    for query, answer in zip(queries, asyncio.run(ask()), strict=True):
        assert found(answer) == expected(ranker.rank(query, REPLIES))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"documents": []}, "documents must be a list of 1 to 1,000 documents"),
        ({"documents": ["a"] * 1001}, "at most 20,000 characters each; given: a list of 1,001"),
        ({"documents": ["a" * 20_001]}, "given: a text of 20,001 characters"),
        ({"documents": [{"title": "a"}]}, "of which `text` is read"),
        ({"documents": [{"text": "a" * 20_001}]}, "at most 20,000 characters each"),
        ({"documents": [{"text": 5}]}, "an object of texts of which `text` is read"),
        ({"query": " "}, "query must be what /rank calls a context"),
        ({"query": ["a"] * 201}, "1 to 200 turns"),
        ({"query": "a" * 20_001}, "given: a text of 20,001 characters"),
        ({"top_n": 0}, "top_n must be a whole number from 1 on"),
        ({"rank_fields": ["title"], "documents": ["a", {"text": "b"}]}, "rank_fields names another field than text"),
        ({"rank_fields": ["text", "title"], "documents": [{"text": "b", "title": "c"}]}, "and omit rank_fields"),
        ({"rank_fields": "title"}, "rank_fields must be a list of texts"),
        ({"max_chunks_per_doc": 0}, "max_chunks_per_doc must be a whole number from 1 on"),
    ],
)
def test_what_is_wrong_is_in_the_message_that_cohere_shows(poly, fields, said):
    _, url = poly
    with pytest.raises(cohere.UnprocessableEntityError) as caught:
        cohere_client(url, 1).rerank(**{"query": "hi !", "documents": ["a"]} | fields)
    assert set(caught.value.body) == {"message"} and said in caught.value.body["message"]
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc must be a whole number from 1 on"),
        ({"max_tokens_per_doc": 7, "documents": ["a", "b" * 100]}, "tokens of one of these documents, whatever a"),
        ({"max_tokens_per_doc": 3, "documents": ["a", "i ski"]}, "max_tokens_per_doc is 3, and the model may read 5 "),
        ({"relevant_spans": cohere.RerankRelevantSpans(mode="enabled")}, "parts of documents are not returned; given"),
        ({"priority": -1}, "priority must be a whole number from 0 on"),
    ],
)
def test_what_would_change_the_answer_is_refused_in_the_second_version_too(poly, fields, said):
    _, url = poly
    with pytest.raises(cohere.UnprocessableEntityError) as caught:
        cohere_client(url).rerank(**{"model": "any", "query": "hi !", "documents": ["a"]} | fields)
    assert said in caught.value.body["message"]


def test_less_than_a_model_reads_may_be_wanted_of_short_documents(poly):
    ranker, url = poly
    documents = ["i ski", "hi", "so you like"]
    answer = cohere_client(url).rerank(model="any", query="hi !", documents=documents, max_tokens_per_doc=11)
    assert found(answer) == expected(ranker.rank("hi !", documents))


VALUES = {  # by the type of a client's argument: what is sent
    str: ["any"],
    int: [4_096, 10**9],
    bool: [True, False],
    typing.Sequence[str]: [["text"], ["a", "b"]],
    typing.get_type_hints(cohere.Client.rerank)["documents"]: [[{"text": "a", "title": "b"}], ["a", {"text": "b"}]],
    cohere.RerankRelevantSpans: [cohere.RerankRelevantSpans(mode="disabled", threshold=0.5, max_spans=3)],
}


@pytest.mark.parametrize("version", [1, 2])
def test_all_that_coheres_client_can_send_is_understood(poly, version):
    """By the types of its own arguments; of each that may be left out, None as well, which is null in JSON."""
    _, url = poly
    client = cohere_client(url, version)
    types = typing.get_type_hints(type(client).rerank)
    names = set(inspect.signature(client.rerank).parameters) - {"request_options"}
    given = {"model": "any", "query": "hi !", "documents": ["a", "b"]}
    assert names > given.keys() and names <= RerankRequest.model_fields.keys()
    right = found(client.rerank(**given))
    for name in sorted(names):
        kinds = typing.get_args(types[name]) if type(None) in typing.get_args(types[name]) else (types[name],)
        for kind in kinds:
            for value in [None] if kind is type(None) else VALUES[kind]:
                answer = client.rerank(**given | {name: value})
                assert answer.results and (name in ("query", "documents") or found(answer) == right), name


def test_all_that_openais_client_can_send_is_understood():
    sent = set(inspect.signature(openai.resources.Embeddings.create).parameters)
    sent -= {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    assert sent <= EmbeddingsRequest.model_fields.keys()


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/v1/embeddings"])
def test_whatever_may_be_left_out_may_be_null(path):
    kind, given = (EmbeddingsRequest, {"input": "a", "input_type": "query"})
    if "rerank" in path:
        kind, given = RerankRequest, {"query": "a", "documents": ["b"]}
    with TestClient(create_app(Stand(rank_first)), "http://127.0.0.1") as client:
        nulls = {name: None for name, field in kind.model_fields.items() if not field.is_required()}
        assert client.post(path, json=given | nulls).status_code == 200


def rank_first(contexts, candidates, top_k):
    """A model that finds the first candidate best."""
    return [([Match(0, candidates[0], 1.0)], True) for _ in contexts]


@pytest.mark.parametrize("score", [-1e30, -300.0, -2.0, -1e-3, 0.5, 36.0, 37.0, 300.0, 1e30])
def test_relevance_is_between_0_and_1_and_rises_with_the_score(score):
    assert 0 <= relevance(-abs(score)) <= 0.5 <= relevance(abs(score)) <= 1
    assert relevance(score) + relevance(-score) == pytest.approx(1)
    if abs(score) < 1e6:  # the next score that a model can give
        assert relevance(score) < relevance(float(np.nextafter(np.float32(score), np.float32(np.inf))))


@pytest.mark.parametrize(("score", "relevant"), [(math.inf, 1.0), (-math.inf, 0.0), (math.nan, 0.0)])
def test_a_score_that_is_no_number_still_has_a_relevance(score, relevant):
    """All clients want a number, and JSON has no other."""
    app = create_app(Stand(lambda contexts, candidates, top_k: [([Match(0, "a", score)], True)]))
    with running(app) as url:
        (result,) = cohere_client(url).rerank(model="any", query="hi", documents=["a"]).results
    assert result.relevance_score == relevant and not hasattr(result, "score")


# ---- Haystack's ranker -----------------------------------------------------------------------------------------------


def test_haystack_ranks_with_our_server(poly, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")  # before it is imported
    pytest.importorskip("haystack_integrations.components.rankers.cohere", reason="it needs Python 3.11")
    from haystack import Document, Pipeline
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.cohere import CohereRanker

    ranker, url = poly
    pipeline = Pipeline()
    pipeline.add_component("ranker", CohereRanker(api_base_url=url, api_key=Secret.from_token("none"), top_k=3))
    asked = {"query": CONTEXT, "documents": [Document(content=text) for text in REPLIES]}
    ranked = pipeline.run({"ranker": asked})["ranker"]["documents"]
    matches = ranker.rank(CONTEXT, REPLIES, top_k=3)
    assert [document.content for document in ranked] == [match.text for match in matches]
    assert [document.score for document in ranked] == pytest.approx([relevance(match.score) for match in matches])


# ---- OpenAI's client -------------------------------------------------------------------------------------------------


def vectors(client, texts, input_type, **more):
    """Vectors [N, D] by OpenAI's client."""
    answer = client.embeddings.create(model="any", input=texts, extra_body={"input_type": input_type}, **more)
    assert [item.index for item in answer.data] == list(range(len(answer.data)))
    return np.array([item.embedding for item in answer.data], np.float32)


@pytest.mark.parametrize("more", [{}, {"encoding_format": "float"}])  # the client's own choice is base64
@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_vectors_of_documents_are_those_of_an_index(request, kind, more, candidates_file, tmp_path):
    ranker, url = request.getfixturevalue(kind)
    got = vectors(openai_client(url), REPLIES, "document", **more)
    for stored_as, rounding in (("fp32", 1e-6), ("bf16", 2e-2)):  # the latter are made in bf16 as well
        stored = ranker.index(candidates_file, tmp_path / stored_as, stored_as=stored_as)
        np.testing.assert_allclose(got, stored.rows(range(len(REPLIES))).numpy(), rtol=0, atol=rounding)


def test_a_bi_encoders_score_is_the_product_of_both_vectors(bi):
    ranker, url = bi
    contexts, client = ["hi !", CONTEXT], openai_client(url)
    scores = vectors(client, contexts, "query") @ vectors(client, REPLIES, "document").T
    np.testing.assert_allclose(scores, ranker.score(contexts, REPLIES), atol=1e-4, rtol=1e-4)


def test_one_text_is_a_list_of_one_and_base64_is_what_the_list_says(bi):
    _, url = bi
    client = openai_client(url)
    one = vectors(client, "hi !", "query", encoding_format="float")
    np.testing.assert_array_equal(one, vectors(client, ["hi !"], "query"))
    assert one.shape[0] == 1


def test_usage_is_what_the_model_has_read(poly):
    ranker, url = poly
    answer = openai_client(url).embeddings.create(
        model="any", input=["hi !", LONG], extra_body={"input_type": "document"}, user="me"
    )
    read = [len(candidate.ids) for candidate in ranker.model.candidates(["hi !", LONG])]
    assert read[1] == ranker.model.settings.label_truncate
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(read)
    assert answer.object == "list" and answer.data[0].object == "embedding"


def test_single_texts_of_many_clients_are_encoded_as_if_alone(bi):
    _, url = bi
    texts = ["hi !", "do you like red ?", "bye"] * 4

    async def ask():
        async with openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1") as client:
            create, more = client.embeddings.create, {"input_type": "query"}
            return await asyncio.gather(*(create(model="any", input=text, extra_body=more) for text in texts))

    together = np.array([answer.data[0].embedding for answer in asyncio.run(ask())])
    np.testing.assert_allclose(together, vectors(openai_client(url), texts, "query"), atol=1e-5)


def test_the_width_may_be_named_and_not_changed(bi):
    _, url = bi
    client = openai_client(url)
    width = vectors(client, "hi !", "query").shape[1]
    assert vectors(client, "hi !", "query", dimensions=width).shape == (1, width)
    with pytest.raises(
        openai.UnprocessableEntityError, match=f"dimensions is 7, and this model's vectors have {width}"
    ):
        vectors(client, "hi !", "query", dimensions=7)
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        vectors(client, "hi !", "query", dimensions=10**300)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize(
    ("kind", "input_type", "said"),
    [
        ("poly", "query", "A poly-encoder has no single vector of a context"),
        ("cross", "document", "A cross-encoder reads a context and a candidate together and has no vectors of either"),
        ("uni", "query", "A uni-encoder reads a context and a candidate together"),
    ],
)
def test_vectors_that_there_are_not_are_one_sentence(trained, candidates_file, kind, input_type, said):
    with (
        serving(trained(kind), candidates_file) as (_, url),
        pytest.raises(openai.UnprocessableEntityError, match=said) as caught,
    ):
        vectors(openai_client(url), "hi !", input_type)
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, 'input_type must be "document".* it is missing'),
        ({"extra_body": {"input_type": "search_query"}}, "input_type must be .*given: a text of 12 characters"),
        ({"input": [1, 2, 3]}, "no token ids"),
        ({"input": [[1, 2]]}, "no token ids"),
        ({"input": []}, "input must be a text, or a list of 1 to 1,000 texts"),
        ({"input": ["a"] * 1001}, "given: a list of 1,001"),
        ({"input": "a" * 20_001}, "at most 20,000 characters"),
        ({"encoding_format": "int8"}, "encoding_format must be"),
        ({"dimensions": 0}, "dimensions must be"),
    ],
)
def test_what_is_wrong_is_in_the_message_that_openai_shows(bi, fields, said):
    _, url = bi
    asked = {"model": "any", "input": "a"} | ({"extra_body": {"input_type": "query"}} if fields else {}) | fields
    with pytest.raises(openai.UnprocessableEntityError, match=said):
        openai_client(url).embeddings.create(**asked)


# ---- who may ask -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_key_is_the_token(trained, candidates_file):
    with serving(trained("bi"), candidates_file, token=TOKEN, per_minute=4) as (_, url):
        with pytest.raises(cohere.UnauthorizedError) as refused:
            cohere_client(url).rerank(model="any", query="a", documents=["b"])
        assert refused.value.body["message"].startswith("The token is missing or wrong")
        with pytest.raises(openai.AuthenticationError, match="The token is missing or wrong"):
            vectors(openai_client(url), "a", "query")
        for _ in range(2):
            assert cohere_client(url, key=TOKEN).rerank(model="any", query="a", documents=["b"]).results
            assert vectors(openai_client(url, TOKEN), "a", "query").size
        with pytest.raises(cohere.TooManyRequestsError) as busy:
            cohere_client(url, key=TOKEN).rerank(model="any", query="a", documents=["b"])
        assert "ask again in" in busy.value.body["message"] and int(busy.value.headers["retry-after"]) > 0
        with pytest.raises(openai.RateLimitError, match="ask again in"):
            vectors(openai_client(url, TOKEN), "a", "query")


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/v1/embeddings"])
def test_every_error_has_the_shape_of_its_clients(path):
    def broken(*_):
        raise RuntimeError("out of memory")

    stand = Stand(broken)
    stand.encode = broken
    right = {"input": "a", "input_type": "query"} if "emb" in path else {"query": "a", "documents": ["b"]}
    json_body = {"Content-Type": "application/json"}
    with TestClient(create_app(stand), "http://127.0.0.1", raise_server_exceptions=False) as client:
        answers = [
            client.post(path, content=b"\xff", headers=json_body),
            client.get(path),
            client.post(path, content=b" " * 1_000_001, headers=json_body),
            client.post(path, content=b"a=b"),
            client.post(path, json=[]),
            client.post(path, json=right),
        ]
    assert [answer.status_code for answer in answers] == [400, 405, 413, 415, 422, 500]
    for answer in answers:
        (name, value), *more = answer.json().items()
        assert not more and name == ("error" if "emb" in path else "message")
        sentence = value["message"] if "emb" in path else value
        assert sentence.endswith(".") and "out of memory" not in sentence
        if "emb" in path:
            assert value["type"] == ("server_error" if answer.status_code == 500 else "invalid_request_error")
