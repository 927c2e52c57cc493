"""Models that ParlAI's own agents wrote, in our agents: equal scores, equal reports, and back again bit for bit."""

import json
import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import parlai_models
import pytest
import torch
from commands import KINDS, SAMPLE, evaluate, forked, options, own, run, weights
from parlai.core.dict import DictionaryAgent
from parlai.core.opt import Opt
from parlai_models import AGENTS, VARIANTS
from transformers import AutoConfig, AutoModel, AutoTokenizer

from polyagents import InputError, Ranker
from polyagents.commands.parlai_command import with_our_agent
from polyagents.model_files.saving import save_model
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.text.pretrained import load_tokenizer

PARTS = ("", ".opt", ".dict", ".dict.codecs")
CONTEXTS = [
    "hi",
    "your persona: i love tea.\nyour persona: i have two cats.\nHello, how ARE you?",
    "what do you do for a living ? " * 12,  # longer than the model takes
    "naïve Ωmega नमस्ते ☃☃ __start__ x_y 12½\n\n\t zzz\u200bq",
]
CANDIDATES = [
    "i am fine",
    "I work at the museum, downtown!",
    "do you like to read books about history or would you rather watch films with friends at home?",
    "☃",
    "x",
]


@pytest.fixture
def copy(written, tmp_path):
    """A copy of such a model in a folder of the test's own."""

    def of(variant, name="M"):
        for part in PARTS:
            shutil.copy(f"{written(variant)}{part}", f"{tmp_path / name}{part}")
        return str(tmp_path / name)

    return of


def ours(variant):
    return KINDS[variant.split()[0]]


def convert(file, target, out):
    own("convert_weights", "-mf", file, "--to", target, "--out", out)


def change(file, **changes):
    """Write other values into M.opt."""
    Path(f"{file}.opt").write_text(json.dumps(options(file) | changes))


# ---- equal -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_score_is_parlais(variant, written):
    theirs = parlai_models.scores(written(variant), CONTEXTS, CANDIDATES)
    mine = Ranker.load(written(variant)).score(CONTEXTS, CANDIDATES)
    np.testing.assert_allclose(mine, theirs, atol=1e-4, rtol=0)
    assert np.ptp(theirs) > 0.01  # there is something to agree on


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_evaluation_reports_what_parlais_does(variant, written):
    flags = ("-t", SAMPLE, "--num-examples", "40", "--eval-candidates", "inline")
    sizes = {AGENTS[variant.split()[0]]: 1, ours(variant): 7}  # in larger batches ParlAI takes other examples first
    theirs, mine = (evaluate(written(variant), "-m", name, "--batchsize", size, *flags) for name, size in sizes.items())
    for name in ("loss", "hits@1", "hits@5", "mrr", "rank"):
        assert mine[name] == pytest.approx(theirs[name], abs=1e-4), name


def random_texts(count):
    """Texts of characters that make trouble, in words that no training has seen."""
    draw = random.Random(0)
    letters = "aabceeiostTHE  .,!?'_-@0½\n\t\r\x1c\x85\u00a0\u200b\u0301éßİǅΩΣσ漢字☃🙂नि\U0001d7d8"
    return ["".join(draw.choices(letters, k=draw.randrange(1, 60))) for _ in range(count)]


def test_token_ids_are_parlais(written):
    opt = Opt(options(written("bi")))
    theirs = DictionaryAgent(opt | {"dict_file": f"{written('bi')}.dict"})
    mine = TextDictionary({"backbone": "", "dict_file": f"{written('bi')}.dict"})
    tokens = [token.replace("@@", "") for token in list(theirs.tok2ind)[:200]]
    texts = [*CONTEXTS, *CANDIDATES, *tokens, *random_texts(3_000), "__null__ __unk__ __newln__", ""]
    assert mine.ready.encode(texts) == [theirs.txt2vec(text) for text in texts]
    assert len(mine) == len(theirs) and mine.ready.pad_id == 0
    assert sum(ids.count(theirs[theirs.unk_token]) for ids in mine.ready.encode(texts)) > 100


def test_a_newline_that_is_no_single_token(tmp_path, written):
    """A dictionary that was learnt from single lines takes the word for a line end apart."""
    for part in (".opt", ".dict", ".dict.codecs"):
        shutil.copy(f"{written('bi')}{part}", f"{tmp_path / 'M'}{part}")
    codecs = Path(f"{tmp_path / 'M'}.dict.codecs")
    kept = [line for line in codecs.read_text().splitlines() if not set(line) & set("_w") or line.startswith("#")]
    codecs.write_text("\n".join(kept) + "\n")
    theirs = DictionaryAgent(Opt(options(tmp_path / "M")) | {"dict_file": f"{tmp_path / 'M'}.dict"})
    mine = TextDictionary({"backbone": "", "dict_file": f"{tmp_path / 'M'}.dict"})
    assert len(theirs.txt2vec("\n")) > 1 and mine.ready.encode(["hi\nyou"]) == [theirs.txt2vec("hi\nyou")]


# ---- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_there_and_back_is_bit_identical(variant, written, tmp_path):
    """ParlAI's file -> ours -> ParlAI's."""
    save_model(Ranker.load(written(variant)).model, str(tmp_path / "ours"))
    np.testing.assert_array_equal(
        Ranker.load(tmp_path / "ours").score(CONTEXTS, CANDIDATES),
        Ranker.load(written(variant)).score(CONTEXTS, CANDIDATES),
    )
    convert(tmp_path / "ours", "parlai", tmp_path / "back")
    before, after = (torch.load(file, weights_only=True)["model"] for file in (written(variant), tmp_path / "back"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    for part in (".dict", ".dict.codecs"):
        assert Path(f"{tmp_path / 'back'}{part}").read_bytes() == Path(f"{written(variant)}{part}").read_bytes()
    np.testing.assert_allclose(
        parlai_models.scores(tmp_path / "back", CONTEXTS, CANDIDATES),
        parlai_models.scores(written(variant), CONTEXTS, CANDIDATES),
        atol=1e-4,
    )


@pytest.mark.parametrize("variant", ["poly", "bi first", "cross"])
def test_a_hugging_face_folder_encodes_alike(variant, written, tmp_path):
    """What `--backbone FOLDER` starts from, with transformers' own tokenizer."""
    convert(written(variant), "huggingface", tmp_path / "folder")
    ranking = Ranker.load(written(variant)).model
    ours = ranking.tokenizer
    model, tokenizer = (
        AutoModel.from_pretrained(tmp_path / "folder"),
        AutoTokenizer.from_pretrained(tmp_path / "folder"),
    )
    for text in CONTEXTS[:2] + CONTEXTS[3:]:
        given = ours.encode([text])[0]
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == len(given) and all(a == b or a >= len(ours) for a, b in zip(ids, given, strict=True))
        with torch.no_grad():
            theirs = model(torch.tensor([ids])).last_hidden_state * 0.5
            mine = ranking.context_encoder(ranking.tokens([given]))
        torch.testing.assert_close(theirs, mine, atol=1e-4, rtol=0)
    again = load_tokenizer(str(tmp_path / "folder"))
    assert again.id_of(again.special.newline) == ours.newline_ids[0]


def test_what_parlai_cannot_hold_is_said(trained, tmp_path):
    with pytest.raises(InputError, match="layer_norm_eps 1e-12"):
        convert(trained("bi"), "parlai", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_what_parlais_poly_encoder_cannot_compute_is_named(written, tmp_path):
    flags = ("--polyencoder-type", "n_last", "--similarity", "cosine", "--max-train-steps", "1")
    fine_tune("poly", tmp_path / "M", "--backbone", written("poly"), "--reduction-type", "mean", *flags)
    with pytest.raises(InputError, match=r"--similarity cosine .*; --polyencoder-type n_last .*codes, n_first.*"):
        convert(tmp_path / "M", "parlai", tmp_path / "out")


# ---- use -------------------------------------------------------------------------------------------------------------


def fine_tune(variant, file, *flags):
    """A few steps of our agent; its last report on the valid examples."""
    steps = ("--max-train-steps", "10", "-lr", "1e-3", "--optimizer", "adamax", "--warmup-updates", "1", "--seed", "1")
    limits = (
        "--text-truncate",
        "40",
        "--label-truncate",
        "12",
        "--validation-max-exs",
        "8",
        "--short-final-eval",
        "true",
    )
    batch = ("--batchsize", "8", "--eval-candidates", "inline", "--train-layers", "all")
    report, _ = run("train_model", "-m", ours(variant), "-mf", file, *steps, *limits, *batch, "-t", SAMPLE, *flags)
    return {name: float(value) for name, value in report.items()}


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["poly", "cross mean"])
def test_fine_tuning_from_a_parlai_model(variant, colours, tmp_path):
    """Lower loss than from random weights of that shape, the file's options taken over, and M complete by itself."""
    file, folder = str(tmp_path / "theirs"), tmp_path / "folder"
    parlai_models.train(
        variant, file, *colours, "--max-train-steps", "150", "--dropout", "0", *("--embedding-size", "32")
    )
    tuned = fine_tune(variant, tmp_path / "tuned", *colours, "--validation-max-exs", "-1", "--init-model", file)
    convert(file, "huggingface", folder)
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    same = ("--backbone", folder, "--reduction-type", "mean", "--output-scaling", "0.5", "--validation-max-exs", "-1")
    codes = ("--poly-n-codes", "4") if variant == "poly" else ()
    scratch = fine_tune(variant, tmp_path / "scratch", *colours, *same, *codes)
    assert tuned["loss"] < scratch["loss"] / 1.5
    made = options(tmp_path / "tuned")
    assert (made["output_scaling"], made["reduction_type"]) == (0.5, "mean")
    for part in PARTS:
        Path(file + part).unlink()
    assert Ranker.load(tmp_path / "tuned").rank("hi", CANDIDATES, top_k=1)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["poly", "bi", "cross"])
def test_backbone_of_any_parlai_model(variant, written, tmp_path):
    """`--backbone FILE` takes the transformer alone: here a bi-encoder's, under each of our agents."""
    fine_tune(variant, tmp_path / "M", "--backbone", written("bi"), "--max-train-steps", "1", "-lr", "1e-9")
    name = {"cross": "encoder"}.get(variant, "context_encoder") + ".backbone.embeddings.word_embeddings.weight"
    theirs = torch.load(written("bi"), weights_only=True)["model"]["context_encoder.embeddings.weight"]
    torch.testing.assert_close(weights(tmp_path / "M")["model"][name], theirs, atol=1e-6, rtol=0)
    assert options(tmp_path / "M")["output_scaling"] == 0.5  # as the file says


@pytest.mark.slow
def test_the_polyagents_command_takes_our_agent(written):
    done = forked("eval_model", "-mf", written("poly"), "-t", SAMPLE, "--num-examples", 4)
    assert done.code == 0 and "polyagents:PolyEncoder" in done.out + done.err


def test_a_cut_candidate_loses_its_end_as_in_parlai(written):
    dictionary = TextDictionary({"backbone": "", "dict_file": f"{written('bi')}.dict"})
    assert dictionary.ready.candidate([7, 8, 9], 4) == [dictionary.ready.start_id, 7, 8, 9]
    assert dictionary.ready.candidate([7, 8], 4) == [dictionary.ready.start_id, 7, 8, dictionary.ready.end_id]


# ---- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "changes", "named"),
    [
        ("bi", {"variant": "aiayn"}, "--variant aiayn"),
        ("bi", {"embeddings_scale": True}, "--embeddings-scale True"),
        ("bi", {"reduction_type": "max"}, "--reduction-type max"),
        ("bi", {"share_encoders": True}, "--share-encoders True"),
        ("bi", {"dict_tokenizer": "re"}, "--dict-tokenizer re"),
        ("bi", {"person_tokens": True}, "--person-tokens True"),
        ("poly", {"poly_attention_type": "multihead"}, "--poly-attention-type multihead"),
        ("poly", {"codes_attention_type": "sqrt"}, "--codes-attention-type sqrt"),
        ("cross", {"activation": "swish", "variant": "bart"}, "--variant bart .*; --activation swish"),
    ],
)
def test_options_that_we_do_not_have_are_named(variant, changes, named, copy):
    file = copy(variant)
    change(file, **changes)
    with pytest.raises(InputError, match=named):
        Ranker.load(file)


class Evil:
    """What a pickle can do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_no_file_runs_code(copy, tmp_path):
    file, trace = copy("bi"), tmp_path / "trace"
    torch.save({"model": torch.load(file, weights_only=True)["model"], "more": Evil(trace)}, file)
    with pytest.raises(InputError, match="could run code"):
        Ranker.load(file)
    file = copy("bi")
    Path(f"{file}.opt").write_bytes(pickle.dumps({"model": "transformer/biencoder", "more": Evil(trace)}))
    with pytest.raises(InputError, match="no options in JSON"):
        run("eval_model", "-m", KINDS["bi"], "-mf", file, "-t", SAMPLE)
    assert not trace.exists()


@pytest.mark.parametrize(("part", "named"), [("", "damaged"), (".dict.codecs", "not a complete dictionary")])
def test_cut_files_are_named(part, named, copy):
    file = copy("poly")
    content = Path(file + part).read_bytes()
    Path(file + part).write_bytes(content[: len(content) // 2].rpartition(b" ")[0])
    with pytest.raises(InputError, match=named):
        Ranker.load(file)


@pytest.mark.parametrize("part", [".dict", ".dict.codecs"])
def test_missing_parts_are_named(part, copy):
    file = copy("poly")
    Path(file + part).unlink()
    with pytest.raises(InputError, match=f"M{part} is missing"):
        Ranker.load(file)


def test_another_architecture_is_sent_to_backbone(copy, tmp_path):
    with pytest.raises(InputError, match="give --backbone"):
        fine_tune("bi", tmp_path / "new", "--init-model", copy("poly"))


def test_training_does_not_overwrite_parlais_file(copy):
    file = copy("bi")
    before = Path(file).read_bytes()
    with pytest.raises(InputError, match="give --init-model"):
        fine_tune("bi", file)
    assert Path(file).read_bytes() == before


def test_unknown_weights_are_named(copy):
    file = copy("bi")
    state = torch.load(file, weights_only=True)
    state["model"]["context_encoder.extra.weight"] = torch.zeros(1)
    torch.save(state, file)
    with pytest.raises(InputError, match=r"context_encoder\.extra\.weight"):
        Ranker.load(file)


def test_conversion_overwrites_nothing(copy, tmp_path, capsys):
    (tmp_path / "there").mkdir()
    for target in ("huggingface", "parlai"):
        with pytest.raises(InputError, match="exists"):
            convert(copy("bi"), target, tmp_path / "there")
    with pytest.raises(SystemExit):
        convert(copy("bi"), "onnx", tmp_path / "new")
    assert "argument --to: invalid choice: 'onnx'" in capsys.readouterr().err


# ---- what a start decides --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fine_tuning_that_is_killed_before_its_first_model_goes_on(written, tmp_path):
    """Only M.checkpoint is there, which is ours, and what ParlAI's file decided is in its options."""
    file = tmp_path / "M"
    fine_tune("poly", file, "--init-model", written("poly"), "--save-every-n-secs", "0.001")
    for part in ("", ".opt"):
        Path(f"{file}{part}").unlink()
    fine_tune("poly", file, "--init-model", written("poly"), "--max-train-steps", "12")
    made = options(file)
    assert (made["output_scaling"], made["reduction_type"], made["poly_n_codes"]) == (0.5, "mean", 4)


@pytest.mark.slow
def test_a_model_of_ours_decides_as_much(written, tmp_path):
    fine_tune("poly", tmp_path / "first", "--init-model", written("poly"))
    fine_tune("poly", tmp_path / "second", "--init-model", tmp_path / "first", "--output-scaling", "0.25")
    made = options(tmp_path / "second")
    assert (made["output_scaling"], made["reduction_type"], made["poly_n_codes"]) == (0.25, "mean", 4)


def test_two_encoders_do_not_start_a_shared_one(written, tmp_path):
    with pytest.raises(InputError, match="remove --share-encoders"):
        fine_tune("bi", tmp_path / "M", "--init-model", written("bi"), "--share-encoders", "true")


def test_flags_beside_a_parlai_model_win(written):
    settings = Ranker.load(written("poly"), text_truncate=20, precision="bf16").model.settings
    assert (settings.text_truncate, settings.encoder.precision) == (20, "bf16")


@pytest.mark.slow
def test_options_of_another_time_and_machine(copy, written, chat):
    """Files of 2019 have paths of where they were trained, and options that mean GPUs."""
    file = copy("poly")
    there = {"fixed_candidates_path": "/gone/c.txt", "dict_file": "/gone/d", "init_model": "/gone/m"}
    change(file, **there, fp16=True, data_parallel=True, polyencoder_attention_keys="context")
    np.testing.assert_array_equal(
        Ranker.load(file).score(CONTEXTS, CANDIDATES), Ranker.load(written("poly")).score(CONTEXTS, CANDIDATES)
    )
    assert chat(file, ["hi"], "-m", KINDS["poly"], "-t", SAMPLE)
    change(file, polyencoder_attention_keys="position")
    with pytest.raises(InputError, match="--polyencoder-attention-keys position"):
        Ranker.load(file)


def test_commands_without_a_model_are_left_alone(written):
    assert with_our_agent(["vacuum", "-mf", written("bi")]) == ["vacuum", "-mf", written("bi")]
    assert with_our_agent(["em", "-mf", written("bi")])[-2:] == ["-m", KINDS["bi"]]


def test_conversion_leaves_the_users_files(written, tmp_path, monkeypatch):
    mine = {"out.opt": "mine", "folder.writing": "mine"}
    for name, content in mine.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=r"out\.opt exists"):
        convert(written("bi"), "parlai", tmp_path / "out")
    convert(written("bi"), "huggingface", tmp_path / "folder")
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(InputError, match="no space"):
        convert(written("bi"), "parlai", tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {*mine, "folder"}
