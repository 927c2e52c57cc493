"""No command writes into a folder that is not its own."""

import json
import os
from functools import partial
from pathlib import Path

import pytest
from commands import SAMPLE, copy_model, own
from commands import run as parlai

from polyagents import InputError, Ranker
from polyagents.backends.export_folder import temporary_folder
from polyagents.files.locks import lock_model
from polyagents.files.own_folder import check_out_file, own_folder
from polyagents.human_eval.formats.crowd_task import write_crowd_task
from polyagents.human_eval.records import DEFAULT_QUESTION, Judgement
from polyagents.human_eval.statistics.evaluation_report import write_report
from polyagents.index.texts import ListedTexts
from polyagents.mining import pool_in
from polyagents.model_files import saving, sentence_transformers_export
from polyagents.text import vocabulary

VERSION_0_1 = Path(__file__).parent.parent / "version_0_1"


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
    """What writes a folder of ours, by the folder's kind."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "texts.txt").write_text("one\ntwo\nthree\n")
    (folder / "pages.jsonl").write_text('{"title": "a", "text": "b"}\n')
    ranker = Ranker.load(VERSION_0_1 / "bi")
    model = ranker.model
    judgements = [Judgement("anna", f"p{i}", ("A", "B"), "AB"[i % 2], DEFAULT_QUESTION) for i in range(4)]

    def export(to):
        with temporary_folder(to):
            pass

    return {
        "index": partial(ranker.index, folder / "texts.txt"),
        "pool": lambda to: pool_in(to, ListedTexts(["one", "two"]), model),
        "model": ranker.save_pretrained,
        "hugging face": partial(saving.write_hugging_face, model.context_encoder.backbone, model.tokenizer),
        "sentence-transformers": partial(sentence_transformers_export.write_as_sentence_transformers, model),
        "vocabulary": partial(vocabulary.save_vocabulary, vocabulary.learn_bpe(["a b"], 300)),
        "export": export,
        "demo": lambda to: own_folder(to, "demo", "--output"),
        "report": partial(write_report, judgements),
        "crowd task": partial(write_crowd_task, pairs=[], conversations={}),
        "pairs": lambda to: own("build_pairs", "--source", folder / "texts.txt", "--outdir", to),
        "wiki search": lambda to: own("build_wiki_search", "--source", folder / "pages.jsonl", "--outdir", to),
    }


KINDS = ["index", "pool", "model", "export", "demo", "report", "vocabulary", "pairs"]
KINDS += ["hugging face", "sentence-transformers", "crowd task", "wiki search"]
EXTENSION = json.dumps({"name": "my browser extension"})
FOREIGN = {
    "a manifest": {"manifest.json": EXTENSION, "other.txt": ""},
    "a configuration": {"config.json": json.dumps({"model_type": "bert"}), "model.safetensors": "x"},
    "a damaged configuration": {"config.json": "{"},
    "a list for a manifest": {"manifest.json": "[1]", "config.json": "[1]"},
    "another format": {"manifest.json": json.dumps({"format": "other-1"}), "report.html": "<p>mine"},
    "a hidden file": {".profile": "mine"},
    "a marker of another": {".polyagents-other": "mine"},
    "parts of another": {"parts/1.txt": "mine", "unfinished-pairs/1.txt": "mine", "notes.txt": "mine"},
}


def contents(folder):
    """Every name in a folder and its content."""
    paths = sorted(Path(folder).rglob("*"))
    return [(str(path), path.read_bytes() if path.is_file() else os.path.islink(path)) for path in paths]


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_folder_is_refused_and_not_touched(writers, kind, tmp_path):
    assert writers.keys() == {*KINDS}
    for case, files in FOREIGN.items():
        folder = tmp_path / case.replace(" ", "_")
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
    (tmp_path / "linked").mkdir()
    for name in ("manifest.json", "config.json"):
        (tmp_path / "linked" / name).symlink_to(tmp_path / "nothing")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("mine")
    own_folder(str(tmp_path / "other kind"), "export" if kind == "demo" else "demo", "--output")
    before = contents(tmp_path)
    for folder in [path for path in tmp_path.iterdir() if path.is_symlink() or path.is_file() or path.is_dir()]:
        with pytest.raises(InputError, match=r"give a(nother| folder of your own)"):
            writers[kind](str(folder))
        assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", ["index", "model", "export", "demo"])
def test_the_own_folder_is_written_again(writers, kind, tmp_path):
    for folder in ("new", "new", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        writers[kind](str(tmp_path / folder))
    other = "vocabulary"
    with pytest.raises(InputError, match=f"was not created by polyagents .*{other}"):
        writers[other](str(tmp_path / "new"))


@pytest.mark.parametrize("part", [".opt", ".trainstats"])
@pytest.mark.parametrize("content", [EXTENSION, "{", "[]", "", None])
def test_a_foreign_file_beside_a_new_model_is_kept(part, content, tmp_path):
    path = tmp_path / f"M{part}"
    path.symlink_to(tmp_path / "nothing") if content is None else path.write_text(content)
    with pytest.raises(InputError, match="training would overwrite it"):
        lock_model(str(tmp_path / "M"))
    assert contents(tmp_path) == [(str(path), True if content is None else content.encode())]


@pytest.mark.parametrize(
    "name", ["M", "M.opt", "M.dict", "M.checkpoint", "M.checkpoint.opt", "link", "table/train.jsonl", "table/new", "F"]
)
def test_what_is_read_is_not_written(name, tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "M")
    inputs = [str(tmp_path / "M"), str(tmp_path / "table"), None, str(tmp_path / "F")]
    instead = "a name outside that folder" if name.startswith("table/") else "another name"
    with pytest.raises(InputError, match=f"would replace what is read from .*; give {instead}"):
        check_out_file("--out", str(tmp_path / name), [".json"], inputs)
    for allowed in ("M.json", "N", "table.json"):
        check_out_file("--out", str(tmp_path / allowed), [".json"], inputs)


@pytest.mark.parametrize(
    ("command", "out", "instead"),
    [
        ("mine_negatives --outfile", "F.jsonl.gz", ".jsonl or .txt"),
        ("mine_negatives --outfile", "F.csv", ".jsonl or .txt"),
        ("mine_negatives --outfile", "F.json", ".jsonl or .txt"),
        ("evaluate --out", "F.csv", ".json"),
        ("evaluate --trec-run", "F.run.GZ", ".run"),
        ("evaluate --trec-qrels", "F.parquet", ".qrels"),
        ("eval_model --report-filename", "F.csv", ".json"),
        ("eval_model --world-logs", "F.jsonl.gz", ".jsonl or .json"),
        ("self_chat --save-format parlai --outfile", "F.jsonl", ".txt"),
    ],
)
def test_no_file_is_named_as_what_it_is_not(command, out, instead, trained, tmp_path):
    name, *flags = command.split()
    run = own if name in ("mine_negatives", "evaluate") else parlai
    with pytest.raises(InputError, match=f" would not be a {os.path.splitext(out)[1].lower()} file; .* in {instead}"):
        run(name, "-t", SAMPLE, "-mf", trained("bi"), *flags, tmp_path / out)
    assert not contents(tmp_path)


@pytest.mark.parametrize("command", ["evaluate", "mine_negatives"])
def test_no_command_replaces_its_model_or_its_table(command, trained, tmp_path, capsys):
    file = copy_model(trained("bi"), tmp_path / "M")
    table = tmp_path / "t.jsonl"
    table.write_text("".join(f'{{"context": "{n}", "label": "x{n % 7}"}}\n' for n in range(60)))
    flag = {"evaluate": "--out", "mine_negatives": "--outfile"}[command]
    before = contents(tmp_path)
    for out in (file, f"{file}.opt", table):
        with pytest.raises(InputError, match="would replace what is read"):
            own(command, "-mf", file, "-t", "polyagents.tasks.table", "--table-path", table, flag, out)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("command", ["evaluate", "mine_negatives"])
@pytest.mark.parametrize(
    ("task", "given", "file"),
    [
        ("polyagents.tasks.hf", "hf-dataset", "F.jsonl"),
        ("polyagents.tasks.pairs", "pairs-path", "folder/train-00000.jsonl"),
        ("polyagents.tasks.wiki_search", "wiki-search-path", "folder/valid.jsonl"),
        ("fromfile:parlaiformat", "fromfile-datapath", "F.txt"),
        ("fromfile:parlaiformat2", "fromfile-datapath2", "F.txt"),
        ("jsonfile", "jsonfile-datapath", "F.jsonl"),
    ],
)
def test_no_command_replaces_what_its_task_reads(command, task, given, file, trained, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("kept")
    path, flag = tmp_path / file.split("/")[0], {"evaluate": "--out", "mine_negatives": "--outfile"}[command]
    with pytest.raises(InputError, match="would replace what is read"):
        own(command, "-mf", trained("bi"), "-t", task, f"--{given}", path, flag, tmp_path / file)
    assert (tmp_path / file).read_text() == "kept"
