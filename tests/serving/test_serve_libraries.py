"""LangChain, LlamaIndex, LiteLLM and Pydantic AI ask a running server: they get what `Ranker` gives.

Each is installed in an environment of its own, because what they ask for cannot be met beside ours: an older cohere,
pydantic or huggingface_hub. Haystack, which can stand beside ours, is in test_serve_clients.py.
"""

import json
import math
import subprocess
import tempfile
from pathlib import Path

import pytest
from environments import installed
from stand import REPLIES
from web import running

from polyagents.serving.cohere_messages import relevance
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

pytestmark = pytest.mark.release

READ = "import json, sys; url, query, documents = json.load(sys.stdin)"
LANGCHAIN = """
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

reranker = CohereRerank(model="any", base_url=url, cohere_api_key="none", top_n=3)
ranked = reranker.compress_documents([Document(text) for text in documents], query)
found = [[document.page_content, document.metadata["relevance_score"]] for document in ranked]
"""
LLAMA_INDEX = """
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank

reranker = CohereRerank(model="any", base_url=url, api_key="none", top_n=3)
nodes = [NodeWithScore(node=TextNode(text=text)) for text in documents]
found = [[node.text, node.score] for node in reranker.postprocess_nodes(nodes, query_str=query)]
"""
LLAMA_INDEX_CUTOFF = f"""{LLAMA_INDEX}
from llama_index.core.postprocessor import SimilarityPostprocessor

ranked = [NodeWithScore(node=TextNode(text=text), score=score) for text, score in found]
cutoff = SimilarityPostprocessor(similarity_cutoff=found[1][1])
assert [node.text for node in cutoff.postprocess_nodes(ranked)] == [found[0][0], found[1][0]]
"""
LITELLM = """
import litellm

asked = {"query": query, "documents": documents, "top_n": 3, "api_base": url, "api_key": "none"}
first, second = (litellm.rerank(model="cohere/any", **asked, **more) for more in ({"max_chunks_per_doc": 1}, {}))
assert first.results == second.results  # by /v1/rerank and by /v2/rerank
assert all(result["document"]["text"] == documents[result["index"]] for result in second.results)
found = [[documents[result["index"]], result["relevance_score"]] for result in second.results]
"""
ASKED = '{"which": {"type": "choice", "instructions": "which ?", "criteria": {"ski": "i ski", "swim": "i swim"}}}'
DECIDE_LITELLM = f"""
import litellm

asked = {{"state": query, "questions": json.loads({ASKED!r}), "api_base": url, "api_key": "none"}}
found = dict(litellm.systemone(model="typesafe/any", **asked).answers["which"].probabilities)
"""
DECIDE_LANGCHAIN = f"""
from langchain_typesafe import Choice, TypeSafeClassifier

questions = {{name: Choice(**question) for name, question in json.loads({ASKED!r}).items()}}
asked = {{"state": query, "questions": questions}}
found = TypeSafeClassifier(api_key="none", base_url=url).invoke(asked).choices["which"].probabilities
"""
DECIDE_PYDANTIC = """
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.providers.system_one import SystemOneProvider

class Sport(BaseModel):
    which: Literal["i ski", "i swim"] = Field(description="which ?")

model = SystemOneModel("any", provider=SystemOneProvider(base_url=url, api_key="none"))
found = Agent(model, output_type=Sport).run_sync(query).output.which
"""
DECIDERS = {
    "litellm==1.110.2": DECIDE_LITELLM,
    "langchain-typesafe==0.0.1a3": DECIDE_LANGCHAIN,
    "pydantic-ai-slim==2.68.0": DECIDE_PYDANTIC,
}
# The versions that were tried; a test of their newest ones would fail for reasons of theirs.
LIBRARIES = {
    "langchain-cohere==0.6.0": LANGCHAIN,
    "llama-index-postprocessor-cohere-rerank==0.10.0": LLAMA_INDEX_CUTOFF,
    "litellm==1.106.2": LITELLM,
}


@pytest.fixture(scope="module")
def poly(trained, tmp_path_factory):
    """A ranker, and the address of its server."""
    path = tmp_path_factory.mktemp("libraries") / "replies.txt"
    path.write_text("\n".join(REPLIES))
    served = Sources(trained("poly"), str(path)).read()
    with running(create_app(served)) as url:
        yield served.ranker, url


def answered(requirement, code, url, query):
    """What a library gets from a server, in an environment of its own."""
    script = f"{READ}\n{code}\nprint(json.dumps(found))"
    with tempfile.TemporaryDirectory() as folder:  # pytest would keep hundreds of megabytes
        done = subprocess.run(
            [installed(requirement, Path(folder, "environment")), "-c", script],
            input=json.dumps([url, query, REPLIES]),
            env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": folder},  # asks nobody but our server
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("requirement", LIBRARIES)
def test_a_library_ranks_with_our_server(requirement, poly):
    ranker, url = poly
    query = "your persona: i ski .\nwhat do you do in winter ?"
    found = answered(requirement, LIBRARIES[requirement], url, query)
    matches = ranker.rank(query, REPLIES, top_k=3)
    assert [text for text, _ in found] == [match.text for match in matches]
    assert [score for _, score in found] == pytest.approx([relevance(match.score) for match in matches], abs=1e-6)


@pytest.mark.parametrize("requirement", DECIDERS)
def test_a_library_decides_with_our_server(requirement, poly):
    ranker, url = poly
    query = "what do you do in winter ?"
    found = answered(requirement, DECIDERS[requirement], url, query)
    ski, swim = ranker.score(query, ["i ski", "i swim"]) * ranker.model.module.logit_scale
    share = 1 / (1 + math.exp(swim - ski))
    if isinstance(found, str):
        assert found == ("i ski" if ski > swim else "i swim")
    else:
        assert found == pytest.approx({"ski": share, "swim": 1 - share}, abs=1e-4)
