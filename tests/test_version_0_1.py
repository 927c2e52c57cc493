"""What 0.1.0 wrote (version_0_1/README.md) opens, and means what it meant."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import SAMPLE, run, weights

from polyagents import Ranker
from polyagents.human_eval.storage.evaluation_store import EvaluationStore

HERE = Path(__file__).parent / "version_0_1"
EXPECTED = json.loads((HERE / "expected.json").read_text())


@pytest.fixture
def written(tmp_path):
    """A copy, since opening an index notes what was verified."""
    return Path(shutil.copytree(HERE, tmp_path / "version_0_1"))


@pytest.mark.parametrize("kind", ["bi", "poly", "cross"])
def test_a_model_scores_as_it_did(kind, written):
    scores = Ranker.load(written / kind).score(EXPECTED["contexts"], EXPECTED["candidates"])
    np.testing.assert_allclose(scores, EXPECTED[kind], atol=1e-5, rtol=1e-5)


def test_an_index_is_of_the_same_model_and_finds_the_same(written):
    ranker = Ranker.load(written / "poly")
    assert ranker.model.fingerprint() == EXPECTED["fingerprint"]
    index = ranker.open_index(written / "replies.index")
    assert index.shortlist is not None  # the HNSW beside it
    for search in (index, ranker.open_index(written / "replies.index", exact=True)):
        for found, expected in zip(ranker.rank(EXPECTED["contexts"], search, 3), EXPECTED["index"], strict=True):
            assert [(match.index, match.text) for match in found] == [(i, text) for i, text, _ in expected]
            assert [match.score for match in found] == pytest.approx([score for _, _, score in expected], abs=1e-5)
    file = written / "replies.txt"
    before = {path.name for path in (written / "replies.index").iterdir()}
    ranker.index(file, written / "replies.index", stored_as="fp32")  # true as it is: nothing is built
    assert {path.name for path in (written / "replies.index").iterdir()} == before


@pytest.mark.slow
def test_training_is_resumed_from_its_checkpoint(written):
    """Six updates were made; the seventh to ninth follow, with the optimiser's state of then."""
    flags = ("--validation-max-exs", 8, "--short-final-eval", "true", "--validation-every-n-epochs", -1)
    run(
        "train_model",
        "-m",
        "polyagents:PolyEncoder",
        "-mf",
        written / "poly",
        "-t",
        SAMPLE,
        "--max-train-steps",
        9,
        *flags,
    )
    assert weights(written / "poly.checkpoint")["number_training_updates"] == 9


def test_a_human_evaluation_holds_its_judgements(written):
    store = EvaluationStore(str(written / "human_eval.db"))
    found = [[judgement.annotator, judgement.pair, judgement.winner] for judgement in store.judgements()]
    store.close()
    assert found == EXPECTED["judgements"]
