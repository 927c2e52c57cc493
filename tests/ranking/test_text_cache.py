"""What an encoder made of candidates: once for each, of the present weights, and a copy's own."""

import copy

import pytest
import torch

from polyagents import Ranker
from polyagents.ranking.candidate_set import shared_set
from polyagents.ranking.text_cache import TextCache


def test_the_cache_encodes_each_candidate_once_until_cleared(monkeypatch):
    seen = []

    def encode_ids(ids):
        seen.extend(map(tuple, ids))
        return torch.tensor([[float(sum(row))] for row in ids])

    cache = TextCache(encode_ids, lambda: 0)
    assert torch.stack(cache.of([(1, 2), (3,), (1, 2)])).tolist() == [[3.0], [3.0], [3.0]]
    assert torch.stack(cache.of([(4,), (3,)])).tolist() == [[4.0], [3.0]]
    assert seen == [(1, 2), (3,), (4,)]
    cache.clear()
    cache.of([(3,)])
    assert seen[-1] == (3,)
    monkeypatch.setattr(TextCache, "LIMIT", 2)
    assert torch.stack(cache.of([(5,), (6,)])).tolist() == [[5.0], [6.0]]
    assert len(cache.known) == 2
    seen.clear()
    monkeypatch.setattr(TextCache, "LIMIT", 1)
    cache.of([(5,), (6,)])
    assert not seen  # more than the limit in one call stay as long as nothing new comes


def test_a_cache_holds_vectors_of_one_device():
    model = torch.nn.Embedding(9, 2)
    cache = TextCache(lambda ids: model.weight.detach()[[row[0] for row in ids]], lambda: model.weight.device)
    cache.of([(1,), (2,)])
    model.to("meta")
    assert cache.of([(1,), (3,)])[0].device.type == "meta" and len(cache.known) == 2


def test_a_cache_that_another_thread_clears_still_answers():
    cache = TextCache(lambda ids: torch.tensor([[float(sum(row))] for row in ids]), lambda: 0)
    cache.of([(1, 2)])
    encode = cache.encode
    cache.encode = lambda ids: (cache.clear(), encode(ids))[1]
    assert torch.stack(cache.of([(1, 2), (3,)])).tolist() == [[3.0], [3.0]]
    assert not cache.known


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
