"""What an encoder made of candidates: once for each, of the present weights, and a copy's own."""

import copy

import pytest
import torch

from polyagents import Ranker
from polyagents.ranking import ranking_model
from polyagents.ranking.candidate_set import shared_set


@pytest.fixture
def model(trained):
    return Ranker.load(trained("bi")).model


def test_each_candidate_is_encoded_once_until_all_are_forgotten(model, monkeypatch):
    seen = []

    def encode_ids(ids):
        seen.extend(map(tuple, ids))
        return torch.tensor([[float(sum(row))] for row in ids])

    monkeypatch.setattr(model, "encode_ids", encode_ids)
    assert torch.stack(model.encoded([(1, 2), (3,), (1, 2)])).tolist() == [[3.0], [3.0], [3.0]]
    assert torch.stack(model.encoded([(4,), (3,)])).tolist() == [[4.0], [3.0]]
    assert seen == [(1, 2), (3,), (4,)]
    model.forget()
    model.encoded([(3,)])
    assert seen[-1] == (3,)
    monkeypatch.setattr(ranking_model, "CACHED_BYTES", 2)
    assert torch.stack(model.encoded([(5,), (6,)])).tolist() == [[5.0], [6.0]]
    assert len(model._encoded) == 2
    seen.clear()
    monkeypatch.setattr(ranking_model, "CACHED_BYTES", 1)
    model.encoded([(5,), (6,)])
    assert not seen  # more than the limit in one call stay as long as nothing new comes


def test_what_is_remembered_is_of_one_device(model, monkeypatch):
    monkeypatch.setattr(model, "encode_ids", lambda ids: torch.ones(len(ids), 2, device=model.device))
    model.encoded([(1,), (2,)])
    model.module.to("meta")
    assert model.encoded([(1,), (3,)])[0].device.type == "meta" and len(model._encoded) == 2


def test_a_call_answers_even_if_another_thread_forgets_all(model, monkeypatch):
    def encode_ids(ids):
        return torch.tensor([[float(sum(row))] for row in ids])

    monkeypatch.setattr(model, "encode_ids", encode_ids)
    model.encoded([(1, 2)])
    monkeypatch.setattr(model, "encode_ids", lambda ids: (model.forget(), encode_ids(ids))[1])
    assert torch.stack(model.encoded([(1, 2), (3,)])).tolist() == [[3.0], [3.0]]
    assert not model._encoded


@pytest.mark.parametrize("kind", ["bi", "uni"])
def test_a_copy_encodes_with_its_own_weights(kind, trained):
    model = Ranker.load(trained(kind), **({"joint_head": "dot"} if kind == "uni" else {})).model
    contexts, given = model.context_ids(["hi there"]), shared_set(model.candidates(["so you like red", "bye"]), None)
    before = model.scores(contexts, given)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.module.parameters():
            weight.mul_(1.5)
    changed = other.scores(contexts, given)
    torch.testing.assert_close(model.scores(contexts, given), before)
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.mul_(1.5)
    torch.testing.assert_close(changed, model.scores(contexts, given))
    assert not torch.allclose(changed, before, rtol=1e-3)
