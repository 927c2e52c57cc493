"""Bad input gets one clear sentence and exit code 2, and nothing that was stored is lost or half written."""

import errno
import io
import json
import os
import shlex
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from backbones import save
from commands import KINDS, PARTS, TINY, colour_dialogues, evaluate, forked, options, run, train, weights, write_task

from polyagents import InputError, Ranker
from polyagents.__main__ import main

VERSION_0_1 = Path(__file__).parents[1] / "version_0_1"


def sentences(error):
    """What a user sees on standard error, without ParlAI's own start-up warning and the bar of its dictionary."""
    lines = [line.rsplit("\r", 1)[-1] for line in error.split("\n")]
    return [line for line in lines if line.strip() and "pkg_resources" not in line and "ex/s]" not in line]


def files(folder):
    """Name and content of every file below a folder; but a training's lock, which goes with its process or object."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    """A pretrained model in a folder."""
    return Path(save("bert", tmp_path_factory.mktemp("backbone")))


# ---- the `parlai` command as a whole ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_unknown_flag_in_the_command(colours, tmp_path):
    before = files(tmp_path)
    done = forked(
        "train_model", "-m", KINDS["poly"], "-mf", tmp_path / "M", *colours, "--poly-ncodes", 3, program="parlai"
    )
    (sentence,) = sentences(done.err)
    assert done.code == 2
    assert "--poly-ncodes" in sentence and "did you mean --poly-n-codes?" in sentence
    assert done.out == ""
    assert files(tmp_path) == before


def test_a_missing_candidates_file_in_the_command(model, ends_with_2):
    file = model("bi")
    before = files(file.parent)
    sentence = ends_with_2("interactive", "-mf", file, "-fcp", file.parent / "nothing.txt")[-1]
    assert sentence.startswith("polyagents: Candidates file ") and "nothing.txt cannot be read" in sentence
    assert files(file.parent) == before


def test_the_model_of_another_agent_in_the_command(model, colours, ends_with_2):
    file = model("bi")
    before = files(file.parent)
    sentence = ends_with_2("train_model", "-m", KINDS["poly"], "-mf", file, *colours, *TINY)[-1]
    assert "was trained as polyagents:BiEncoder" in sentence
    assert files(file.parent) == before


def test_a_model_file_that_does_not_exist_in_the_command(colours, tmp_path, ends_with_2):
    before = files(tmp_path)
    sentence = ends_with_2("eval_model", "-m", KINDS["bi"], "-mf", tmp_path / "nothing", *colours)[-1]
    assert f"no trained model at {tmp_path / 'nothing'}" in sentence
    assert files(tmp_path) == before


SAMPLE_TASK = ("-t", "polyagents.tasks.sample")
MISTAKES = [
    (("train_model", "-m", "bi", "-mf", "M"), "train_model: This command needs --task"),
    (("eval_model", "-mf", str(VERSION_0_1 / "bi")), "eval_model: This command needs --task"),
    (("display_data",), "This command needs --task"),
    (
        ("display_model", "-m", "poly", *SAMPLE_TASK, "--backbone", "scratch:tiny", "--loglevel", "error"),
        "has no vocabulary before training",
    ),
    (("train_model", "-m", "bi", *SAMPLE_TASK), "Training needs --model-file M"),
    (("eval_model", *SAMPLE_TASK), "This command needs --model-file"),
    (("interactive",), "This command needs --model-file"),
    (("self_chat",), "This command needs --model-file"),
    (("train_model", "-m", "nope", "-mf", "M", *SAMPLE_TASK), "--model nope: there is no such agent"),
    (("train_model", "-m", "no.such:Agent", "-mf", "M", *SAMPLE_TASK), "--model no.such:Agent: there is no such agent"),
    (("train_model", "-m", "polyagents:Nope", "-mf", "M", *SAMPLE_TASK), "polyagents:Nope: there is no such agent"),
    (("train_model", "-m", "bi", "-mf", "M", "-t", "polyagents.tasks.sample:Nope"), "has no such teacher"),
    *(
        (("train_model", "-m", name, "-mf", "M", *SAMPLE_TASK), f"--model {name}: there is no such agent")
        for name in ("internal:poly", "projects:poly", "projects:a:b", "transformer/", "x_")
    ),
    (("train_model", "-m", "bi", "-mf", "M", "-t", "internal:x"), "There is no task internal:x"),
    (("train_model", "-m", "bi", "-mf", "M", "-t", "babi:"), "--task babi:: that task has no such teacher"),
    (("train_model", "-m", "bi", "-mf", "M", "-t", "polyagents.tasks.clinc150:oos:sample"), "has one : at most"),
    *(
        (("eval_model", "-mf", name, *SAMPLE_TASK), f"There is no model {name} in ParlAI's zoo")
        for name in ("zoo:foo/bar", "zoo:", "models:foo/bar", "izoo:foo")
    ),
    (("eval_model", "-mf", str(VERSION_0_1 / "bi"), *SAMPLE_TASK, "-dt", "train"), "with --datatype train:evalmode"),
    (("mp_eval", "-mf", str(VERSION_0_1 / "bi"), *SAMPLE_TASK, "--distributed-world-size", "0"), "number of processes"),
    (("rank", "-mf", "nope"), "no trained model at nope (nope.opt is missing). Give the --model-file of train_model."),
    (("train", "-mf", "nope", *SAMPLE_TASK), "of train_model, or start a new model with --model"),
    (
        ("self_chat", "-mf", str(VERSION_0_1 / "bi"), "--partner-model-file", "nope"),
        "no trained model at nope (nope.opt is missing). Give the --model-file of train_model, or omit --partner",
    ),
    *(
        ((chat, "-mf", str(VERSION_0_1 / "bi"), "-bs", "3", "--loglevel", "error"), "--batchsize 3: a chat is one")
        for chat in ("interactive", "self_chat")
    ),
    (("vacuum", "-mf", str(VERSION_0_1 / "bi")), "vacuum cannot read a model of polyagents; give polyagents convert"),
    (("torchscript", "-mf", str(VERSION_0_1 / "bi")), "give polyagents export -mf"),
    (("torchscript", "-m", "poly", "-mf", "a model"), "give polyagents export -mf 'a model' --to onnx"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_common_mistakes_are_one_sentence(arguments, said, ends_with_2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in ends_with_2(*arguments)[-1]
    assert not (tmp_path / "M").exists()


TRAIN = "train_model -m bi -mf new --backbone scratch:tiny -t polyagents.tasks.sample"
RANK, DECIDE = "rank -mf BI --candidates-file text", "decide -mf BI --options-file text"
TASK = "-mf BI -t polyagents.tasks.sample"
HOSTILE = [  # a line, in a folder with a pipe, a link to nothing, a folder and a text; a part of the sentence
    ("rank -mf BI --index-url ''", "argument --index-url: its value is empty"),
    ("rank -mf BI --candidates-file ' '", "its value is empty"),
    ("human_eval import ''", "its value is empty"),
    ("human_eval import pipe", "pipe cannot be read (it is a pipe or a device"),
    ("human_eval import /dev/zero", "/dev/zero cannot be read (it is a pipe or a device"),
    ("human_eval import link", "link cannot be read (No such file"),
    ("human_eval report --out new --database sqlite:///e.db?timeout=x", "'sqlite' without a file or with"),
    ("human_eval report --out new --database sqlite:///e.db?mode=memory&x=y", "without a file or with parameters"),
    ("human_eval report --out new --database sqlite:///e.db?detect_types=99999999999999999999", "with parameters"),
    ("human_eval report --out new --database sqlite:///:memory:", "without a file"),
    ("human_eval pairs --seed -1", "'-1' is not a whole number of 0 or more"),
    ("human_eval serve --port 65536", "65536 is too large: at most 65535"),
    (
        "serve -mf BI --candidates-file text --token-file /dev/zero",
        "/dev/zero cannot be read (it is a pipe or a device",
    ),
    ("serve -mf BI --candidates-file text --token-file pipe", "pipe cannot be read (it is a pipe or a device"),
    ("build_vocabulary pipe --out new --vocabulary-size 300", "pipe cannot be read (it is a pipe or a device"),
    ("build_vocabulary /dev/zero --out new --vocabulary-size 300", "/dev/zero cannot be read"),
    ("build_wiki_search --source text --outdir new --workers 1000000000", "is too large: at most 1024"),
    ("check_data text --text-truncate nan", "is not a length in tokens"),
    ("demo --percent 101", "101 is too large: at most 100"),
    ("train_model -m bi -mf new -t polyagents.tasks.sample -o pipe", "pipe cannot be read (it is a pipe"),
    (
        "TRAIN -bs 0",
        "'0' is not a whole number of 1 or more",
    ),
    (
        "TRAIN -vmt hits@3",
        "hits@3: no evaluation reports that (did you",
    ),
    ("TRAIN -vmt x/accuracy", "x/accuracy: no evaluation reports that (did you mean accuracy?)"),
    *(
        (f"TRAIN --dict-class {name}", f"--dict-class {name}: the vocabulary")
        for name in ("nope", "parlai.core.dict:Nope")
    ),
    ("TRAIN --init-model zoo:foo/bar", "There is no model zoo:foo/bar in ParlAI's zoo"),
    ("TRAIN --wandb-log true", "A package is not installed: Please run `pip install wandb`."),
    ("multiprocessing_TRAIN --distributed-world-size 2 -dt valid", "--datatype valid: training learns"),
    (
        "TRAIN --special-tok-lst 'a\nb'",
        "a token cannot be empty",
    ),
    (
        "TRAIN --multitask-weights 1,2,3",
        "has 3 numbers for 1 task;",
    ),
    ("train_model -m bi -mf new --backbone scratch:tiny -t interactive", "that task has no messages to read"),
    (
        "display_data -t polyagents.tasks.sample --mutators flaten",
        "--mutators flaten: there is no such mutator (did you",
    ),
    (
        "eval_model -mf BI -t polyagents.tasks.sample --num-examples -5",
        "'-5' is not a whole number of 1 or more, or -1",
    ),
    *((f"{line} --exact", "--exact is for --index-dir; give that flag") for line in (RANK, DECIDE)),
    *(
        (f"{line} --rerank-top 3", "--rerank-top is for --rerank; give that flag")
        for line in (RANK, DECIDE, f"calibrate {TASK}", "serve -mf BI --candidates-file text")
    ),
    ("rank -mf BI --index-dir x --fields year:int", "--fields is for --candidates-file; give that flag"),
    ("serve -mf BI --index-dir x --fields year:int", "--fields is for --candidates-file; give that flag"),
    ("index status --index-dir x --precision bf16", "--precision is for --model-file; give that flag"),
    ("index plan --candidates 5 --width 8 --backend onnx", "--backend is for --model-file; give that flag"),
    *(
        (f"build_index -mf BI --candidates-file text {line}", "is for polyagents index build")
        for line in (
            "--index-dir x --append --stored-as int8",
            "--index-dir x --delete --stored-as int8",
        )
    ),
    (f"mine_negatives {TASK} --outfile new -dt valid", "--datatype valid: mine_negatives reads training examples"),
    ("zoo show 'a\x1b[2J\n\tpolyagents: fine'", "The zoo holds no "),
    ("'\x1b]0;pwned\x07'", "There is no command \\u001b]0;pwned\\u0007"),
    ("zoo list '--\x9b2J'", "\\u009b2J"),
]


@pytest.mark.parametrize(("line", "said"), HOSTILE, ids=[line for line, _ in HOSTILE])
def test_a_hostile_line_is_one_sentence(line, said, ends_with_2, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere/x")
    (tmp_path / "text").write_text("hello\nbye\n")
    monkeypatch.chdir(tmp_path)
    lines = sentences(
        "\n".join(
            ends_with_2(
                *shlex.split(
                    line.replace("BI", str(VERSION_0_1 / "bi"))
                    .replace("TRAIN", TRAIN)
                    .replace("processing_train_model", "processing_train")
                )
            )
        )
    )
    assert len(lines) == 1 and lines[0].startswith("polyagents") and said in lines[0], lines
    assert lines[0].isprintable()


@pytest.mark.parametrize(
    "fault",
    [
        *(
            OSError(number, os.strerror(number), "x")
            for number in (errno.ENOSPC, errno.ENOTDIR, errno.ELOOP, errno.EISDIR)
        ),
        *(OSError("plain"), TimeoutError(), ConnectionRefusedError(errno.ECONNREFUSED, "refused"), MemoryError()),
        *(io.UnsupportedOperation("seek"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), RecursionError("deep")),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried 9."),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_what_no_command_can_foresee_is_one_sentence(fault, ends_with_2, monkeypatch):
    monkeypatch.setattr("polyagents.commands.zoo.run", mock.Mock(side_effect=fault))
    (line,) = ends_with_2("zoo", "list")
    assert line.startswith("polyagents: ") and line.endswith(".")


def test_an_error_of_our_own_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("polyagents.commands.zoo.run", mock.Mock(side_effect=RuntimeError("a bug")))
    monkeypatch.setattr("sys.argv", ["polyagents", "zoo", "list"])
    with pytest.raises(RuntimeError, match="a bug"):
        main()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file"),
        (b"", "holds no text"),
        (b" \n\n", "holds no text"),
        (b"text:hi\tlabels:h\xff", "is not in UTF-8"),
        (b"\xef\xbb\xbftext:hi\tlabels:hello", "begins with a byte order mark, which ParlAI reads as text"),
        (b"hi\thello\n", "is not in the format of its task ("),
        (b'{"dialogue": []}', "is not in the format of its task ("),
    ],
)
@pytest.mark.parametrize(
    ("task", "flag"),
    [
        ("fromfile", "--fromfile-datapath"),
        ("fromfile:fbformat", "--fromfile-datapath"),
        ("fromfile:parlaiformat2", "--fromfile-datapath2"),
        ("jsonfile", "--jsonfile-datapath"),
    ],
)
def test_own_texts_that_cannot_be_read(task, flag, content, said, ends_with_2, tmp_path):
    file = tmp_path / "mine.txt"
    if content is not None:
        file.write_bytes(content)
    arguments = ("train_model", "-m", "bi", "-mf", tmp_path / "M", *TINY, "-t", task, "--loglevel", "error")
    assert said in ends_with_2(*arguments, f"{flag}={file}")[-1]
    assert f"The task {task} needs {flag}: a file in" in ends_with_2(*arguments)[-1]
    assert not (tmp_path / "M.dict").exists()


@pytest.mark.slow
def test_own_texts_in_three_files(ends_with_2, tmp_path):
    """A test set may be missing; whoever forgets the flag for three files is told its name."""
    flags = write_task(tmp_path, colour_dialogues(), "mine")
    arguments = ("train_model", "-m", "bi", "-mf", tmp_path / "M", *TINY, "--loglevel", "error")
    said = ends_with_2(*arguments, *flags[:4])[-1]
    assert said.endswith(f"or --fromfile-datatype-extension true for {tmp_path / 'mine_train.txt'}.")
    (tmp_path / "mine_test.txt").unlink()
    valid, test = train("bi", tmp_path / "M", *flags, "--max-train-steps", 1)
    assert float(valid["exs"]) == 30 and not test


def test_an_agent_whose_own_import_fails_says_what_it_lacks(tmp_path, monkeypatch):
    """It is there: the sentence for a wrong name would mislead."""
    (tmp_path / "my_agent.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        run("eval_model", "-m", "my_agent:Agent", *SAMPLE_TASK)


@pytest.mark.parametrize("task", ["nosuch", "polyagents.tasks.nosuch:sample"])
def test_a_task_that_does_not_exist(task, tmp_path, ends_with_2):
    said = ends_with_2("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", "-t", task)
    assert said[-1].startswith(f"polyagents: There is no task {task}; give --task") and files(tmp_path) == {}


def test_a_model_file_that_does_not_exist_in_the_polyagents_command(monkeypatch, capsys, tmp_path):
    """Even without -m, where `parlai` knows neither our flags nor us."""
    file = tmp_path / "nothing"
    monkeypatch.setattr("sys.argv", ["polyagents", "interactive", "-mf", str(file), "--return-cand-scores", "true"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main()
    (sentence,) = sentences(capsys.readouterr().err)
    assert stop.value.code == 2
    assert sentence.startswith(f"polyagents: There is no trained model at {file}")
    assert not files(tmp_path)


# ---- flags -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "flags", "sentence"),
    [
        ("poly", "--poly-ncodes 3", "did you mean --poly-n-codes?"),
        ("poly", "--poly-n-codes 0", "'0' is not a whole number of 1 or more"),
        ("poly", "--poly-n-codes many", "'many' is not a whole number of 1 or more"),
        ("poly", "--polyencoder-type learnt", "choose from"),
        ("poly", "--poly-attention-type softmax", "choose from"),
        ("poly", "--codes-init zero", "choose from"),
        ("poly", "--codes-learningrate fast", "--codes-learningrate"),
        ("poly", "--codes-init kmeans", "choose from"),
        ("poly", "--codes-penalty 1", "unrecognized arguments: --codes-penalty"),
        ("bi", "--codes-learningrate 1", "unrecognized arguments: --codes-learningrate"),
        ("bi", "--poly-attention-type sqrt", "unrecognized arguments: --poly-attention-type"),
        ("bi", "--similarity l2", "choose from"),
        ("bi", "--share-encoders maybe", "--share-encoders"),
        ("bi", "--reduction-type max", "choose from"),
        ("bi", "--train-layers bottom", "choose from"),
        ("bi", "--precision int8", "choose from"),
        ("poly", "--codes-learningrate -1", "--codes-learningrate"),
        ("bi", "--output-scaling x", "--output-scaling"),
        ("bi", "--output-scaling 0", "--output-scaling"),
        ("bi", "--output-scaling nan", "--output-scaling"),
        ("bi", "--dropout 1", "is not a probability"),
        ("bi", "--recall-at 1,two", "'two' is not a whole number of 1 or more"),
        ("bi", "--text-truncate 2", "is not a length in tokens"),
        ("bi", "--label-truncate short", "is not a length in tokens"),
        ("bi", "--candidates all", "choose from"),
        ("cross", "--cross-negatives 0", "is not a whole number of 1 or more"),
        ("cross", "--similarity dot", "unrecognized arguments: --similarity"),
        ("bi", "--learningrate abc", "--learningrate"),
        ("bi", "--batchsize x", "--batchsize"),
    ],
)
def test_flags(kind, flags, sentence, colours, tmp_path, capsys):
    before = files(tmp_path)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        run("train_model", "-m", KINDS[kind], "-mf", tmp_path / "M", *colours, *flags.split())
    assert stop.value.code == 2
    (line,) = sentences(capsys.readouterr().err)
    assert sentence in line
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("kind", "flags", "sentence"),
    [
        ("bi", "--batchsize 1", "--candidates batch takes the other labels of the batch"),
        ("bi", "--candidate-prompt x_x_x_x --label-truncate 9", "leaves none of the 9 of --label-truncate"),
        ("bi", "--text-truncate 513", "512 tokens that scratch:tiny has positions for"),
        ("bi", "--label-truncate 513", "512 tokens that scratch:tiny has positions for"),
        ("cross", "--text-truncate 500 --label-truncate 13", "512 tokens that scratch:tiny has positions for"),
        ("bi", "--text-truncate -1", "512 tokens that scratch:tiny has positions for"),
        ("uni", "--share-encoders false", "for the similarity of --joint-head dot or cosine"),
        ("bi", "--backbone scratch:huge", "use scratch:tiny|mini|base"),
        ("bi", "--backbone no-such/model", "--backbone no-such/model"),
        ("bi", "--backbone {folder}", "--backbone {folder}"),
        ("bi", "--candidates fixed -fcp {folder}/nothing.txt", "nothing.txt cannot be read"),
        ("bi", "--eval-candidates vocab", "cannot be ranked by these agents"),
        ("bi", "--init-model {folder}/nothing", "{folder}/nothing"),
        ("bi", "--person-tokens true", "--person-tokens True: a model reads contexts whose turns are lines"),
        ("bi", "--delimiter x", "--delimiter 'x': a model reads"),
        ("bi", "--history-reversed true", "--history-reversed True: a model reads"),
        ("bi", "--history-add-global-end-token end", "--history-add-global-end-token 'end': a model reads"),
        ("bi", "--optimizer lbfgs", "--optimizer lbfgs cannot be used here ("),
        ("bi", "--optimizer rprop", "--optimizer rprop cannot be used here ("),
        ("bi", "-dt valid", "--datatype valid: training learns from training examples only"),
        ("bi", "-dt train:evalmode", "--datatype train:evalmode: training learns"),
    ],
)
def test_a_training_that_cannot_work_is_refused_before_it_begins(kind, flags, sentence, colours, tmp_path):
    """At most a scratch backbone's vocabulary is left behind, whole; see the next tests for what becomes of it."""
    before = files(tmp_path)
    flags = flags.format(folder=tmp_path).split()
    with pytest.raises(InputError) as error:
        train(kind, tmp_path / "M", *colours, "--max-train-steps", 1, *flags)
    assert sentence.format(folder=tmp_path) in str(error.value)
    assert "\n" not in str(error.value) and "\x1b" not in str(error.value)
    after = files(tmp_path)
    after.pop("M.dict", None)
    assert after == before


def test_a_task_without_candidates_is_refused_before_it_is_trained_on(tmp_path):
    """Half an epoch later would be too late."""
    task = write_task(tmp_path, [(text, label, None) for text, label, _ in colour_dialogues()])
    with pytest.raises(InputError, match="--candidates batch"):
        train("bi", tmp_path / "M", *task, "--candidates", "inline", "--max-train-steps", 3)
    assert not (tmp_path / "M").exists()


@pytest.fixture
def vocabulary(colours, tmp_path):
    """What a refused training leaves: a vocabulary at M.dict, and no M."""
    with pytest.raises(InputError):
        train("bi", tmp_path / "M", *colours, "--text-truncate", 600)
    assert (tmp_path / "M.dict").exists() and not (tmp_path / "M").exists()


def test_the_vocabulary_of_another_backbone_is_not_taken(vocabulary, backbone, colours, tmp_path):
    with pytest.raises(InputError, match=r"M\.dict was made for --backbone scratch:tiny"):
        train("bi", tmp_path / "M", *colours, "--backbone", backbone, "--max-train-steps", 1)


def test_the_vocabulary_of_another_task_is_not_taken(vocabulary, tmp_path):
    with pytest.raises(InputError, match=r"M\.dict was made for --task"):
        train("bi", tmp_path / "M", "-t", "integration_tests", "--max-train-steps", 1)


@pytest.mark.slow
def test_the_vocabulary_of_a_refused_training_serves_the_next_try(vocabulary, colours, tmp_path):
    train("bi", tmp_path / "M", *colours, "--max-train-steps", 1)
    assert evaluate(tmp_path / "M", *colours)["exs"] == 30


# ---- backbones -------------------------------------------------------------------------------------------------------


def damage(backbone, folder, missing):
    """A copy of a backbone folder that lacks some files."""
    shutil.copytree(backbone, folder)
    for pattern in missing:
        for path in folder.glob(pattern):
            path.unlink()
    return folder


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        (("*token*",), "no fast tokenizer found there"),
        (("*.safetensors",), "no model could be loaded from there"),
        (("config.json",), "--backbone"),
        (("*",), "--backbone"),
    ],
    ids=["tokenizer", "weights", "configuration", "everything"],
)
def test_a_backbone_folder_without(missing, sentence, backbone, colours, tmp_path):
    folder = damage(backbone, tmp_path / "backbone", missing)
    before = files(tmp_path)
    with pytest.raises(InputError) as error:
        train("bi", tmp_path / "M", *colours, "--backbone", folder, "--max-train-steps", 1)
    assert sentence in str(error.value) and str(folder) in str(error.value)
    assert "\n" not in str(error.value)
    assert files(tmp_path) == before


def test_a_backbone_folder_with_damaged_weights(backbone, colours, tmp_path):
    folder = damage(backbone, tmp_path / "backbone", ())
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(InputError, match="no model could be loaded from there"):
        train("bi", tmp_path / "M", *colours, "--backbone", folder, "--max-train-steps", 1)
    assert not (tmp_path / "M").exists()


# ---- candidates files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["eval_model", "interactive", "self_chat"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "holds no text"),
        (b"\n  \n\n", "holds no text"),
        ("fine\ncaf\xe9\n".encode("latin-1"), "is not UTF-8 in line 2"),
        (b"\xff\xfeh\x00i\x00", "is not in UTF-8, but in UTF-16"),
    ],
    ids=["missing", "empty", "blank", "latin-1", "utf-16"],
)
def test_candidates_files(content, sentence, command, model, colours, chat, tmp_path):
    file, path = model("bi"), tmp_path / "candidates.txt"
    if content is not None:
        path.write_bytes(content)
    before = files(tmp_path)
    flags = ["-fcp", path, *(("--eval-candidates", "fixed", *colours) if command == "eval_model" else ())]
    with pytest.raises(InputError) as error:
        run(command, "-mf", file, *flags)
    assert str(path) in str(error.value) and sentence in str(error.value)
    assert files(tmp_path) == before


def test_a_folder_as_candidates_file(model, tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        run("interactive", "-mf", model("bi"), "-fcp", tmp_path)


def test_blank_lines_line_ends_and_a_byte_order_mark_in_a_candidates_file_are_fine(model, chat, tmp_path):
    path = tmp_path / "candidates.txt"
    path.write_bytes("\ufeffhi there\r\n\r\n   \n\tgood bye \n\nhi there\n".encode())
    answers = chat(model("bi"), ["hello", "hello"], "-fcp", path)
    assert sorted(answers) == [["[BiEncoder]: good bye"], ["[BiEncoder]: hi there"]]


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_strange_messages_are_replied_to(kind, model, replies, chat):
    long, strange = "word " * 100_000, "\udce9 \x00 \u200b \U0001f600 [SEP] [NEWLINE]"
    answers = chat(model(kind), ["", "   ", long, strange, "\\n", ""], "-fcp", replies)
    candidates = set(replies.read_text().splitlines())
    assert {answer.split("]: ")[1] for (answer,) in answers} == candidates


def test_contexts_of_the_python_api(trained):
    ranker = Ranker.load(trained("poly"))
    assert ranker.score(["", "word " * 100_000], ["", "word " * 100_000, "hi"]).shape == (2, 3)
    assert ranker.score([], ["hi"]).shape == (0, 1)
    with pytest.raises(InputError, match="top_k"):
        ranker.rank("hi", ["hi"], top_k=0)


# ---- model files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["eval_model", "interactive", "display_model"])
def test_the_model_of_another_architecture(command, model, colours, replies):
    file = model("bi")
    before = files(file.parent)
    flags = ("-fcp", replies) if command == "interactive" else colours
    with pytest.raises(
        InputError, match="was trained as polyagents:BiEncoder and cannot be loaded as polyagents:Cross"
    ):
        run(command, "-mf", file, "-m", KINDS["cross"], *flags)
    assert files(file.parent) == before


def test_a_model_of_parlais_with_options_that_we_do_not_have(colours, tmp_path):
    file = tmp_path / "theirs"
    small = (
        "--n-layers",
        1,
        "--embedding-size",
        8,
        "--ffn-size",
        8,
        "--candidates",
        "batch",
        "--eval-candidates",
        "batch",
    )
    run("train_model", "-m", "transformer/biencoder", "-mf", file, *colours, *small, "-bs", 8, "--max-train-steps", 1)
    before = files(tmp_path)
    for attempt in (
        lambda: evaluate(file, *colours, "-m", KINDS["bi"]),
        lambda: train("bi", file, *colours),
        lambda: train("bi", tmp_path / "ours", *colours, "--init-model", file),
        lambda: Ranker.load(str(file)),
    ):
        with pytest.raises(InputError, match=r"theirs is ParlAI's and was trained with --variant aiayn"):
            attempt()
    assert {name: content for name, content in files(tmp_path).items() if name in before} == before
    assert not (tmp_path / "ours").exists()


DAMAGES = [(damage, part) for damage in ("missing", "empty", "half", "text") for part in PARTS]


@pytest.mark.parametrize(("damage", "part"), DAMAGES[1:])  # a missing M is ParlAI's to report; see above
def test_damaged_model_files(damage, part, model, colours, tmp_path):
    file = model("bi")
    path = Path(f"{file}{part}")
    if damage == "missing":
        path.unlink()
    elif damage == "text":
        path.write_text("no model")
    else:
        with open(path, "r+b") as content:
            content.truncate(0 if damage == "empty" else path.stat().st_size // 2)
    before = files(tmp_path)
    with pytest.raises(InputError) as error:
        evaluate(file, *colours, "-m", KINDS["bi"])
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value) and "\x1b" not in str(error.value) and "weights_only" not in str(error.value)
    with pytest.raises(InputError):
        Ranker.load(str(file))
    assert files(tmp_path) == before


def test_what_starts_from_a_copy_needs_its_own_dictionary(model, colours, tmp_path):
    """The options of a copy name the original's, which may have been trained again."""
    file = model("bi")
    Path(f"{file}.dict").unlink()
    for attempt in (
        lambda: train("bi", tmp_path / "ours", *colours, "--init-model", file),
        lambda: train("bi", tmp_path / "ours", *colours, "--teacher-model-file", file),
        lambda: Ranker.train([{"context": "a", "label": "b"}], str(tmp_path / "ours"), init_model=str(file)),
    ):
        with pytest.raises(InputError, match=rf"{file}\.dict is missing"):
            attempt()


@pytest.mark.parametrize(("start", "said"), [("nothing", "There is no model at"), ("", "is a folder, and init_model")])
def test_a_start_that_is_no_model_file(start, said, colours, tmp_path):
    with pytest.raises(InputError, match=said):
        train("bi", tmp_path / "ours", *colours, "--init-model", tmp_path / start)


def test_a_missing_model_file_in_python(tmp_path):
    with pytest.raises(InputError, match="There is no trained model at"):
        Ranker.load(str(tmp_path / "nothing"))


def test_a_vocabulary_with_a_damaged_tokenizer(model, colours):
    file = model("bi")
    path = Path(f"{file}.dict")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer": {"model": {}}}))
    with pytest.raises(InputError, match="is not a dictionary of polyagents"):
        evaluate(file, *colours)


def test_weights_of_another_size(model, colours):
    file = model("bi")
    Path(f"{file}.opt").write_text(json.dumps(options(file) | {"backbone": "scratch:mini"}))
    with pytest.raises(InputError, match="trained with other options"):
        evaluate(file, *colours)


@pytest.mark.parametrize("flags", ["--special-tok-lst foo", "--person-tokens true"])
def test_tokens_of_a_trained_model_cannot_be_changed(flags, model, colours):
    with pytest.raises(InputError, match=f"^{flags.split()[0]} cannot be changed for a trained model"):
        evaluate(model("bi"), *colours, *flags.split())


class Intruder:
    """Runs code when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_model_file_cannot_run_code(model, colours, tmp_path):
    file = model("bi")
    torch.save({"model": Intruder(tmp_path / "owned")}, file)
    with pytest.raises(InputError, match="cannot be loaded"):
        evaluate(file, *colours)
    assert not (tmp_path / "owned").exists()


def test_a_refused_run_leaves_the_model_as_it_was(model, colours):
    file = model("poly")
    updates = weights(file)["number_training_updates"]
    before = files(file.parent)
    for flags in (("--text-truncate", 600), ("--batchsize", 1), ("--candidates", "fixed", "-fcp", "nothing.txt")):
        with pytest.raises(InputError):
            train("poly", file, *colours, "--max-train-steps", updates + 2, *flags)
    assert files(file.parent) == before
