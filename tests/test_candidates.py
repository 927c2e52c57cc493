"""Stored vectors equal fresh ones, or are not used."""

import numpy as np
import pytest
import torch

from polyagents.candidates import CandidateStore, VectorCache, fingerprint, read_candidates
from polyagents.errors import InputError
from polyagents.search import score_all, top_k

TEXTS = ["a", "bb", "", "déjà vu", "two\twords"]


def encode(texts):
    return torch.tensor([[float(len(text)), float(sum(map(ord, text)))] for text in texts])


def test_a_store_comes_back_as_it_was(tmp_path):
    store = CandidateStore.build_or_reuse(TEXTS, str(tmp_path / "index"), "model", encode)
    again = CandidateStore.open(str(tmp_path / "index"), "model")
    assert again.texts == store.texts == TEXTS
    assert torch.equal(again.vectors, encode(TEXTS))


def test_a_store_is_reused_only_while_it_is_true(tmp_path):
    calls = []

    def counting(texts):
        calls.append(list(texts))
        return encode(texts)

    folder = str(tmp_path / "index")
    for texts, model in [(TEXTS, "a"), (TEXTS, "a"), (TEXTS, "b"), (TEXTS[:3], "b"), (TEXTS[:3], "b")]:
        store = CandidateStore.build_or_reuse(texts, folder, model, counting)
        assert store.texts == texts
    assert calls == [TEXTS, TEXTS, TEXTS[:3]]
    with pytest.raises(InputError, match="encoded by another model"):
        CandidateStore.open(folder, "a")


def test_a_damaged_store_is_rebuilt_or_refused(tmp_path):
    folder = tmp_path / "index"
    CandidateStore.build_or_reuse(TEXTS, str(folder), "model", encode)
    file = folder / "candidates.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match="missing or damaged"):
        CandidateStore.open(str(folder), "model")
    assert CandidateStore.build_or_reuse(TEXTS, str(folder), "model", encode).texts == TEXTS
    with pytest.raises(InputError, match="missing or damaged"):
        CandidateStore.open(str(tmp_path / "nothing"), "model")


def test_a_fingerprint_tells_everything_apart():
    parts = [["a", "b"], ["ab", ""], [b"a", "c"], [torch.zeros(2)], [torch.zeros(3)], [torch.zeros(2).bfloat16()], []]
    assert len({fingerprint(p) for p in parts}) == len(parts)
    assert fingerprint(["a", torch.ones(2)]) == fingerprint(["a", torch.ones(2)])


def test_candidates_files(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes("\ufeffone\r\n\n  two words \n\none\nthree\x85four".encode())
    assert read_candidates(str(path)) == ["one", "two words", "three\x85four"]
    path.write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(InputError, match="not UTF-8 in line 2"):
        read_candidates(str(path))
    for content in (b"", b"\n \n"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="holds no text"):
            read_candidates(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        read_candidates(str(tmp_path / "missing.txt"))


def test_the_cache_encodes_each_candidate_once_until_cleared(monkeypatch):
    seen = []

    def encode_ids(ids):
        seen.extend(map(tuple, ids))
        return torch.tensor([[float(sum(row))] for row in ids])

    cache = VectorCache(encode_ids)
    assert cache.vectors([[1, 2], [3], [1, 2]]).tolist() == [[3.0], [3.0], [3.0]]
    assert cache.vectors([[4], [3]]).tolist() == [[4.0], [3.0]]
    assert seen == [(1, 2), (3,), (4,)]
    cache.clear()
    cache.vectors([[3]])
    assert seen[-1] == (3,)
    monkeypatch.setattr(VectorCache, "LIMIT", 2)
    assert cache.vectors([[5], [6]]).tolist() == [[5.0], [6.0]]
    assert len(cache.known) == 2


@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_top_k_is_a_stable_sort(k):
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores = generator.integers(0, 5, 10).astype(np.float32)
        last = generator.random(10) < 0.3
        expected = sorted(range(10), key=lambda i: (-scores[i], i))[:k]
        assert top_k(scores, k).tolist() == expected
        expected = sorted(range(10), key=lambda i: (-scores[i], last[i], i))[:k]
        assert top_k(scores, k, last).tolist() == expected


def test_top_k_puts_scores_that_are_no_numbers_last():
    assert top_k(np.full(5, np.nan, np.float32), 2).tolist() == [0, 1]
    assert top_k(np.array([np.nan, 1, 2, 3], np.float32), 2).tolist() == [3, 2]


def test_scores_in_blocks_equal_scores_at_once(monkeypatch):
    from types import SimpleNamespace

    from polyagents.attention import poly_scores
    from polyagents.reduction import ContextVectors

    generator = torch.Generator().manual_seed(0)
    vectors, candidates = torch.randn(2, 3, 4, generator=generator), torch.randn(11, 4, generator=generator)
    context = ContextVectors(vectors, torch.ones(2, 3).bool())
    poly = SimpleNamespace(score=lambda context, part: poly_scores(context.vectors, context.mask, part))
    whole = poly_scores(vectors, context.mask, candidates)
    monkeypatch.setattr("polyagents.search.BLOCK_PRODUCTS", 12)
    torch.testing.assert_close(score_all(poly, context, candidates), whole)
