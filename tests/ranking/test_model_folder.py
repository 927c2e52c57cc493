"""A model as a folder: the same scores to the last bit, and what is read from it is checked."""

import copy
import json
import shutil

import numpy as np
import pytest

from polyagents import InputError, Ranker
from polyagents.ranking.model_card import wilson

CONTEXTS = ["i like red\ndo you like red too ?", "", "where is canada"]
TEXTS = ["so you like red", "canada is in north america", "", "so you like red"]


@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_scores_are_equal_to_the_last_bit(kind, trained, tmp_path):
    ranker = Ranker.load(trained(kind))
    ranker.save_pretrained(tmp_path / "folder")
    again = Ranker.from_pretrained(tmp_path / "folder")
    assert np.array_equal(ranker.score(CONTEXTS, TEXTS), again.score(CONTEXTS, TEXTS))
    again.save_pretrained(tmp_path / "twice")
    for name in ("config.json", "tokenizer.json", "README.md"):
        assert (tmp_path / "folder" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


@pytest.mark.parametrize("variant", ["poly", "bi"])
def test_models_of_parlais_agents(variant, written, tmp_path):
    ranker = Ranker.load(written(variant))
    ranker.save_pretrained(tmp_path / "folder")
    assert np.array_equal(ranker.score(CONTEXTS, TEXTS), Ranker.load(tmp_path / "folder").score(CONTEXTS, TEXTS))


@pytest.mark.parametrize("changed", [{"similarity": "cosine"}, {"share_encoders": True}])
def test_other_models(changed, trained, tmp_path):
    from dataclasses import replace

    from polyagents.ranking.building import build_model, settings_of

    model = Ranker.load(trained("poly")).model
    settings = settings_of("PolyEncoder", {**model.saved, **changed})
    ranker = Ranker(build_model(copy.deepcopy(model.context_encoder), model.tokenizer, replace(settings)))
    ranker.save_pretrained(tmp_path / "folder")
    assert np.array_equal(ranker.score(CONTEXTS, TEXTS), Ranker.load(tmp_path / "folder").score(CONTEXTS, TEXTS))


def test_an_index_belongs_to_the_folder_as_well(trained, replies, tmp_path):
    ranker = Ranker.load(trained("poly"))
    ranker.index(replies, tmp_path / "index")
    ranker.save_pretrained(tmp_path / "folder")
    again = Ranker.from_pretrained(tmp_path / "folder")
    assert again.rank("hi", again.open_index(tmp_path / "index")) == ranker.rank("hi", ranker.open_index(tmp_path / "index"))
