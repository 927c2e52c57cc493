"""Whatever follows a command's name, it does what that says, or tells in one sentence why it does not."""

import contextlib
import importlib
import io
import json
import shutil

import pytest
import wiki_dump
from commands import SAMPLE, colour_dialogues, copy_model, write_task
from drawing import budget
from evaluation import evaluation
from hypothesis import given
from hypothesis import strategies as st
from parlai.core.params import ParlaiParser
from web import Stopped

from polyagents import BiEncoder, Ranker
from polyagents.__main__ import main
from polyagents.commands.human_eval import STEPS
from polyagents.commands.names import OWN_COMMANDS
from polyagents.serving import http_server

# A line that works, of each command but those that train or time for minutes, or ask the network.
WORKING = {
    "build_index": "-mf M --candidates-file replies.txt --index-dir new",
    "build_pairs": "--source texts --outdir new",
    "build_vocabulary": "replies.txt --out new --vocabulary-size 300",
    "build_wiki_search": "--source pages.xml --outdir new --workers 1",
    "convert_weights": "--model-file M --to huggingface --out new",
    "evaluate": f"-mf M -t {SAMPLE} --num-examples 4 -bs 2 --compare M --out new --trec-run new.run --loglevel error",
    "export": "-mf M.other --to openvino",
    "mine_negatives": "-mf M -t fromfile:parlaiformat --fromfile-datapath colours --fromfile-datatype-extension true "
    "--outfile new --negatives 3",
    "rank": "-mf M --candidates-file replies.txt",
    "serve": "-mf M --candidates-file replies.txt --port 0",
    "train_model": f"-m bi -mf new -t {SAMPLE} --backbone scratch:tiny -bs 4 --max-train-steps 1 -vme 4 "
    "--max-train-time 5 --short-final-eval true --dict-maxexs 100 --loglevel error",
    "eval_model": f"-mf M -t {SAMPLE} --num-examples 4 --loglevel error",
    "index plan": "--candidates 100k,5m --width 8",
    "human_eval plan": "--difference .1 --wage 12",
    "human_eval self_chat": f"--model-file M --task {SAMPLE} --conversations 1 --turns 1 --out new.jsonl",
    "human_eval import": "talk.jsonl --database e.db",
    "human_eval pairs": "--per-matchup 1 --database e.db",
    "human_eval invite": "ada bob --database e.db",
    "human_eval serve": "--database e.db --port 0",
    "human_eval chat": "M --database e.db --port 0",
    "human_eval report": "--database e.db --out new",
    "human_eval forget": "--older-than 9 --database e.db",
    "human_eval mturk": "approve --study turk.json --database e.db",
    "human_eval prolific": "approve --study study.json --database e.db",
    "human_eval export": "--to acute_eval --out new.jsonl --database e.db",
}
VALUES = ["", " ", "-1", "0", "1", "2", "3", "0.5", "1e309", "nan", "inf", "-inf", "9" * 400, "x", "x" * 5_000, "é"]
VALUES += ["true", "1,2", ",", "a/b", "../x", "zoo:nothing", "zoo:", "scratch:tiny", "--", "-", "*", "%s", "{}", "\n"]
VALUES += ["bi", "/dev/null", "nowhere/x", "sqlite://", "postgresql://", "http://x", "fp32", "exact", "hnsw", SAMPLE]
VALUES += ["\ud800", "int8", "parlai", "acute_eval", "integration_tests", "-x", "--task", "new"]
FILES = ["M", "M.opt", "M.dict", "M.other", "replies.txt", "binary", "empty", "folder", "index", "e.db", "talk.jsonl"]
FILES += [".", "texts", "pages.xml", "study.json"]
ARGUMENTS = st.characters(exclude_characters="\0")  # which no system passes on


@pytest.fixture(scope="module")
def base(trained, tmp_path_factory):
    """A folder with a file of each kind."""
    folder = tmp_path_factory.mktemp("base")
    copy_model(trained("bi"), folder / "M")
    copy_model(trained("cross"), folder / "M.other")
    (folder / "replies.txt").write_text("hello\nbye\nyes\nno\n")
    (folder / "binary").write_bytes(bytes(range(256)) * 9)
    (folder / "empty").touch()
    (folder / "turk.json").write_text(json.dumps({"id": "3" + "B" * 29, "places": 3, "each": 2}))
    (folder / "study.json").write_text(json.dumps({"id": "c" * 24, "places": 3, "each": 2, "code": "DONE"}))
    (folder / "folder").mkdir()
    write_task(folder, colour_dialogues(8), "colours")
    (folder / "talk.jsonl").write_text(json.dumps({"dialog": [[{"id": "a", "text": "hi"}, {"id": "b", "text": "ho"}]]}))
    Ranker.load(folder / "M").index(folder / "replies.txt", folder / "index")
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("\n".join(f"this is line {number} of some" for number in range(60)))
    (folder / "pages.xml").write_bytes(wiki_dump.dump(40))
    store, (token,) = evaluation(str(folder / "e.db"))
    while shown := store.next_assignment(token):
        store.answer(token, shown.number, "left")
    store.close()
    return folder


def flags_of(command):
    """Every flag of a command or step, by its longest name."""
    name, _, step = command.partition(" ")
    if name not in OWN_COMMANDS:  # ParlAI's, with our agents' own flags
        parser = ParlaiParser(False, False)
        BiEncoder.add_cmdline_args(parser, None)
        return sorted(max(action.option_strings, key=len) for action in parser._actions if action.option_strings)
    module = f"polyagents.human_eval.steps.{STEPS[step]}" if step else f"polyagents.commands.{name}"
    parser = importlib.import_module(module).parser()
    return sorted(max(action.option_strings, key=len) for action in parser._actions if action.option_strings)


def draw_line(draw, line, flags):
    """A working line with a word or two replaced, left out or doubled, and some more flags."""
    words = st.sampled_from(VALUES) | st.sampled_from(FILES) | st.text(ARGUMENTS, max_size=9)
    line = list(line)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(line) - 1))
        line[place : place + 1] = draw(st.lists(words, max_size=2))
    for flag in draw(st.lists(st.sampled_from(flags), max_size=2)):
        line += [flag, *draw(st.lists(words, max_size=1))]
    return line


def outcome(arguments, monkeypatch):
    """Exit code and standard error of a command line, in this process."""
    monkeypatch.setattr("sys.argv", ["polyagents", *arguments])
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    said, code = io.StringIO(), 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    return code, said.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("examples", [4, pytest.param(100, marks=pytest.mark.release)])
@pytest.mark.parametrize("command", WORKING)
def test_whatever_follows_a_command_of_ours(command, examples, base, traced_once, tmp_path, monkeypatch):
    monkeypatch.setattr(http_server, "server_of", Stopped)
    flags = [flag for flag in flags_of(command) if flag not in ("--help", "--workers")]

    def tried(line):
        folder = tmp_path / "now"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(base, folder)
        monkeypatch.chdir(folder)
        return outcome([*command.split(), *line], monkeypatch)

    @budget(min(examples, {"train_model": 40, "export": 2}.get(command, examples)))  # lines that work take seconds
    @given(st.data())
    def check(data):
        code, said = tried(draw_line(data.draw, WORKING[command].split(), flags))
        assert code in (0, 2), said
        assert code == 0 or len([one for one in said.splitlines() if one.startswith("polyagents")]) == 1, said

    assert tried(WORKING[command].split())[0] == 0
    check()
