"""Truncation, special tokens, files, and the vocabulary learnt from a task."""

import json

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers

from polyagents.errors import InputError
from polyagents.models.tokens import pad
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.text.tokenizer import ParlaiVocabulary, RankingTokenizer, SpecialTokens

LINES = ["my dog barks", "the dog sleeps\nmy cat sleeps", "i like my dog"]


@pytest.fixture
def dictionary(tmp_path):
    learnt = TextDictionary({"backbone": "scratch:tiny", "dict_file": str(tmp_path / "M.dict")})
    for text in LINES * 2:
        learnt.observe({"text": text, "labels": ("barks",), "label_candidates": ["barks", "sleeps"]})
        learnt.act()
    learnt.save()
    return learnt


def test_truncation_keeps_the_end_of_a_context_and_the_start_of_a_candidate(dictionary):
    ids = list(range(10, 20))
    start, end = dictionary.ready.start_id, dictionary.ready.end_id
    assert dictionary.ready.context(ids, 5) == [start, 17, 18, 19, end]
    assert dictionary.ready.candidate(ids, 5) == [start, 10, 11, 12, end]
    for limit in (12, 13, None):
        assert dictionary.ready.context(ids, limit) == dictionary.ready.candidate(ids, limit) == [start, *ids, end]
    assert dictionary.ready.context([], 5) == dictionary.ready.candidate([], 5) == [start, end]


def test_truncation_leaves_prompts_whole(dictionary):
    tokenizer, ids = dictionary.ready, list(range(10, 20))
    tokenizer.set_prompts("my dog", "dog my")
    start, end, (before, other) = tokenizer.start_id, tokenizer.end_id, tokenizer.encode(["my dog", "dog my"])
    for limit, kept in ((5, 1), (9, 5), (13, 9), (14, 10), (None, 10)):
        assert tokenizer.context(ids, limit) == [start, *before, *ids[10 - kept :], end]
        assert tokenizer.candidate(ids, limit) == [start, *other, *ids[:kept], end]
    assert len(tokenizer.context(ids, None)) == len(tokenizer.candidate(ids, None)) == 14


def test_line_ends_become_the_newline_token(dictionary):
    first, second = dictionary.ready.encode(["my dog", "barks"])
    assert dictionary.txt2vec("my dog\nbarks") == [*first, dictionary.ready.newline_ids[0], *second]
    assert dictionary.txt2vec("\n") == [dictionary.ready.newline_ids[0]]
    assert dictionary.txt2vec("") == []


def test_many_texts_are_encoded_as_one_by_one(dictionary):
    texts = [*LINES, "", "unseen words \udcff here"]
    assert dictionary.ready.encode(texts) == [dictionary.txt2vec(text) for text in texts]


def test_decoding_gives_the_words_back(dictionary):
    ids = dictionary.ready.context(dictionary.txt2vec("my dog barks"), 360)
    assert dictionary.vec2txt(ids) == "my dog barks"


def test_the_learnt_vocabulary_is_the_same_every_time_and_reloads(dictionary, tmp_path):
    first = (tmp_path / "M.dict").read_text()
    again = TextDictionary({"backbone": "scratch:tiny", "dict_file": str(tmp_path / "other.dict")})
    for text in LINES * 2:
        again.observe({"text": text, "labels": ("barks",), "label_candidates": ["barks", "sleeps"]})
        again.act()
    again.save()
    assert (tmp_path / "other.dict").read_text() == first
    loaded = TextDictionary({"backbone": "scratch:tiny", "dict_file": str(tmp_path / "M.dict")})
    assert loaded.ready.encode(LINES) == dictionary.ready.encode(LINES)
    assert len(loaded) == len(dictionary) > 10
    assert not list(tmp_path.glob("*.tmp"))


def test_user_tokens_are_never_split(dictionary):
    before = len(dictionary)
    dictionary["__p1__"] = 999_999_999  # how TorchAgent adds person tokens
    assert len(dictionary) == before + 1
    assert dictionary.txt2vec("__p1__ dog")[0] == dictionary["__p1__"] == before


def test_pad_marks_what_is_real():
    tokens = pad([[5, 6, 7], [8], []], pad_id=9)
    assert tokens.ids.tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]]
    assert tokens.mask.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    shorter = tokens.to(torch.device("cpu"), tokens.mask.sum(1).argsort()[:2])
    assert shorter.ids.tolist() == [[9], [8]]


def test_a_hundred_thousand_words_are_cut(dictionary):
    context = dictionary.ready.context(dictionary.txt2vec("dog " * 100_000), 360)
    assert len(context) == 360


@pytest.mark.parametrize("content", ["", "{", "{}", json.dumps({"format": "other"}), "hello\t3\nworld\t2\n", "[1]"])
def test_a_foreign_or_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "M.dict"
    path.write_text(content)
    with pytest.raises(InputError, match=r"M\.dict is not a dictionary of polyagents"):
        TextDictionary({"backbone": "scratch:tiny", "dict_file": str(path)})


def test_scratch_without_training_says_what_is_missing():
    untrained = TextDictionary({"backbone": "scratch:tiny"})
    assert not untrained.is_prebuilt()
    with pytest.raises(InputError, match="train_model learns it from the task"):
        untrained.txt2vec("hello")
    with pytest.raises(InputError, match="holds no text"):
        untrained.save("nowhere.dict")


@pytest.mark.parametrize(("number", "parlai"), [(3, None), (2**31, None), (2, ("3", [])), (2, (0, [])), (2, (4, []))])
def test_a_token_that_no_embedding_has_is_refused(number, parlai):
    compiled = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": number}, unk_token="[UNK]"))
    with pytest.raises(InputError, match="The tokenizer"):
        RankingTokenizer(compiled, SpecialTokens("[UNK]", "a", "a", "a"), parlai and ParlaiVocabulary(*parlai))


def test_a_text_on_which_the_tokenizer_panics_is_named(dictionary, monkeypatch):
    """A panic in Rust is no Exception; an expression that backtracks without end is one."""
    monkeypatch.setenv("RUST_BACKTRACE", "0")  # printing one takes a second
    tokenizer, bad = dictionary.ready, "z" * 40 + "!"
    tokenizer.compiled.normalizer = normalizers.Replace(Regex("(z|z)+$"), "")
    for texts in ([bad], ["my dog", f"my cat\n{bad}\nsleeps"]):
        with pytest.raises(InputError, match=r"tokenizer fails on 'z{40}' \(.*Onig: .*\); change the text, or use"):
            tokenizer.encode(texts)
        assert tokenizer.encode(["my dog barks"]) == tokenizer.encode(["my dog barks"])
