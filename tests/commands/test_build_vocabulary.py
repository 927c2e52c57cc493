"""`polyagents build_vocabulary`, and `--vocabulary`: the same for the same text, and read by all three agents."""

import json

import forks
import pytest
from commands import KINDS, SAMPLE, TINY, evaluate, options, own, run
from transformers import AutoTokenizer

from polyagents import InputError
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.text import vocabulary

WORDS = "the cat sat on the mat and the dog sat on the cat; what does Été mean, and 😀 or 猫?\n"


def build(folder, *arguments):
    """Run the command; name and content of each file."""
    own("build_vocabulary", *arguments, "--out", folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def text(tmp_path):
    """A file of text in which most words come back."""
    path = tmp_path / "words.txt"
    path.write_text(WORDS * 3)
    return path


@pytest.fixture
def refused(ends_with_2):
    """The sentence that `polyagents build_vocabulary` says last as it ends with code 2."""
    return lambda *arguments: ends_with_2("build_vocabulary", *arguments)[-1]


def test_what_is_written(text, tmp_path, capsys):
    found = build(tmp_path / "V", text, "--vocabulary-size", 290)
    assert set(found) == {"tokenizer.json", "tokenizer_config.json"}
    entries = json.loads(found["tokenizer.json"])["model"]["vocab"]
    assert json.loads(capsys.readouterr().out) == {"entries": 290} and len(entries) == 290
    assert [entries[token] for token in ("[PAD]", "[UNK]", "[S]", "[MASK]", "[NEWLINE]")] == [0, 1, 2, 3, 4]
    loaded = AutoTokenizer.from_pretrained(tmp_path / "V")
    special = (loaded.pad_token, loaded.unk_token, loaded.cls_token, loaded.sep_token, loaded.mask_token)
    assert special == ("[PAD]", "[UNK]", "[S]", "[S]", "[MASK]") and loaded.tokenize("The CAT") == ["Ġthe", "Ġcat"]


def test_any_text_can_be_written_in_it(text, tmp_path):
    build(tmp_path / "V", text)
    dictionary = TextDictionary({"backbone": "scratch:tiny", "vocabulary": str(tmp_path / "V")})
    ids = dictionary.txt2vec("The CAT\n[S] été ∮ 犬 \ud83d")
    assert ids.count(dictionary["[NEWLINE]"]) == 1 and not {0, 1, 2, 3} & set(ids)  # "[S]" that was typed is text
    assert dictionary.vec2txt(ids).split() == ["the", "cat", "[s]", "ete", "∮", "犬", "?"]
    assert dictionary.ready.candidate(dictionary.txt2vec("cat"), None) == [2, dictionary["Ġcat"], 2]


@pytest.mark.parametrize(("threads", "files"), [("4", 3), pytest.param("1", 1, marks=pytest.mark.release)])
def test_the_same_bytes_whatever_the_threads_and_the_files(threads, files, text, tmp_path):
    """A process of its own: the number of threads is read once in each."""
    expected = build(tmp_path / "1", text, "--vocabulary-size", 290)
    for number, line in enumerate(text.read_text().splitlines(keepends=True)):
        (tmp_path / f"{number}.txt").write_text(line)
    given = [text] if files == 1 else [tmp_path / f"{number}.txt" for number in range(files)]
    command = ("build_vocabulary", *given, "--vocabulary-size", 290, "--out", tmp_path / "other")
    done = forks.run(forks.COMMAND, *command, RAYON_NUM_THREADS=threads, TOKENIZERS_PARALLELISM="true")
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()} == expected


def test_a_small_text_says_how_many_there_are(text, tmp_path, capsys):
    build(tmp_path / "V", text)
    said = capsys.readouterr()
    entries = json.loads(said.out)["entries"]
    assert 261 < entries < 400
    assert f"The vocabulary has {entries} entries instead of 54,940" in said.err


def test_a_task_gives_its_texts_and_labels(tmp_path, monkeypatch):
    seen = []
    learn = vocabulary.learn_bpe
    monkeypatch.setattr(
        vocabulary, "learn_bpe", lambda texts, size: learn((seen.append(text) or text for text in texts), size)
    )
    build(tmp_path / "V", "-t", "polyagents.tasks.pairs:sample")
    assert len(seen) == 48 and "There is the reason, yeast dies in a year." in seen


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "uni"])
def test_a_scratch_backbone_takes_it(kind, tmp_path):
    build(tmp_path / "V", "-t", SAMPLE, "--vocabulary-size", 400)
    flags = ("-m", KINDS[kind], "-mf", tmp_path / "M", "-t", SAMPLE, *TINY, "--validation-max-exs", 8)
    flags += ("--short-final-eval", "true", "--max-train-steps", 2)
    run("train_model", *flags, "--vocabulary", tmp_path / "V")
    content = json.loads((tmp_path / "M.dict").read_text())
    assert content["special_tokens"] == {"pad": "[PAD]", "start": "[S]", "end": "[S]", "newline": "[NEWLINE]"}
    assert content["backbone_config"]["vocab_size"] == 400 and options(tmp_path / "M")["vocabulary"]
    (tmp_path / "V").rename(tmp_path / "moved")  # a model is complete without it
    assert evaluate(tmp_path / "M", "-t", SAMPLE, "--num-examples", 8)["exs"] == 8


def test_vocabularies_that_do_not_fit(text, tmp_path):
    build(tmp_path / "V", text)
    with pytest.raises(InputError, match="bert-base-uncased has a vocabulary of its own; remove --vocabulary"):
        TextDictionary({"backbone": "bert-base-uncased", "vocabulary": str(tmp_path / "V")})
    with pytest.raises(InputError, match=r"--vocabulary .*none is not a folder here .*build_vocabulary makes"):
        TextDictionary({"backbone": "scratch:tiny", "vocabulary": str(tmp_path / "none")})
    opt = {"backbone": "scratch:tiny", "vocabulary": str(tmp_path / "V"), "dict_file": str(tmp_path / "M.dict")}
    TextDictionary(opt | {"task": "one"}).save()
    opt["model_file"] = str(tmp_path / "M")
    assert len(TextDictionary(opt | {"task": "another"})) > 261  # it was not learnt from the task
    with pytest.raises(InputError, match=r"M\.dict was made for --vocabulary .*V, not None"):
        TextDictionary(opt | {"vocabulary": None, "task": "one"})


def test_a_second_vocabulary_is_refused_without_saying_that_the_first_is_not_ours(text, tmp_path, refused):
    once = build(tmp_path / "V", text, "--vocabulary-size", 290)
    said = refused(text, "--vocabulary-size", 270, "--out", tmp_path / "V")
    assert "V holds a tokenizer already; give another --out" in said
    assert {path.name: path.read_bytes() for path in (tmp_path / "V").iterdir()} == once


def test_bad_input(text, tmp_path, refused):
    out = ("--out", tmp_path / "V")
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    assert "arguments are required: --out" in refused(text)
    assert "needs --out, and text files or --task" in refused(text, "-t", SAMPLE, *out)
    assert "needs --out, and text files or --task" in refused(*out)
    assert "260 is too small: 261 entries are the 256 bytes and [PAD]" in refused(text, *out, "--vocabulary-size", 260)
    assert "is too large: a vocabulary has at most 10,000,000" in refused(text, *out, "--vocabulary-size", 10_000_001)
    assert "nothing cannot be read (No such file or directory)" in refused(tmp_path / "nothing", *out)
    assert "latin.txt is not in UTF-8" in refused(tmp_path / "latin.txt", *out)
    assert "no text to learn a vocabulary from" in refused(tmp_path / "empty.txt", *out)
    assert "holds other files" in refused(text, "--out", tmp_path)
    assert "--fromfile-datapath nowhere: there is no file" in refused(
        "-t", "fromfile:parlaiformat", "--fromfile-datapath", "nowhere", *out
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "latin.txt", "words.txt"]
