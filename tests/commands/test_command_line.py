"""The `polyagents` command finds its commands without importing what they need, and says what is wrong in one line."""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import forks
import pytest
from commands import own
from parlai.core.script import SCRIPT_REGISTRY, setup_script_registry

from polyagents import __version__
from polyagents.__main__ import versions
from polyagents.arguments import CommandParser, positive_int
from polyagents.commands.names import BY_EVERY_NAME, OWN_COMMANDS, PARLAI_COMMANDS, listing
from polyagents.faults import EXTRAS, users_fault
from polyagents.index.faiss_index import INDEX_TYPES
from polyagents.index.stored_vectors import STORED_AS
from polyagents.models.model_options import PRECISIONS

# What takes long to import, or belongs to one command only.
HEAVY = {"torch", "transformers", "parlai", "requests", "pandas", "scipy", "numpy", "faiss", "fastapi", "sqlalchemy"}

LOADED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted({name.split(".")[0] for name in sys.modules}))))
from polyagents.__main__ import main
main()
"""


def loaded(*arguments, code=LOADED):
    """The top-level packages that are imported at the end of a command, and its exit code and standard error."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1])), done.returncode, done.stderr


# ---- what is imported ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [(), ("--help",), ("--version",), ("zoo", "list"), ("zoo", "show", "model_bi"), ("recipe", "list")]
)
def test_what_only_prints_imports_nothing_heavy(arguments):
    packages, code, _ = loaded(*arguments)
    assert code == 0 and not packages & HEAVY


def test_a_table_is_checked_without_torch(tmp_path):
    (tmp_path / "train.csv").write_text("context,label\nhi,hello\n")
    packages, code, _ = loaded("check_data", tmp_path)
    assert code == 0 and packages & HEAVY == {"numpy"}


FLAGLESS = sorted({*OWN_COMMANDS} - {"demo", "human_eval", "recipe", "serve", "zoo"})  # which have no required flag


@pytest.mark.parametrize("command", FLAGLESS)
def test_a_missing_flag_is_said_before_anything_heavy_is_imported(command):
    packages, code, said = loaded(command)
    assert code == 2 and not packages & HEAVY
    (line,) = said.splitlines()
    assert line.startswith(f"polyagents {command}: the following arguments are required: ")


def test_the_package_imports_neither_torch_nor_parlai_until_a_name_is_asked_for():
    tell = "import json, sys; print(json.dumps([name.split('.')[0] for name in sys.modules]))"
    packages, _, _ = loaded(code=f"import polyagents; dir(polyagents); polyagents.InputError; {tell}")
    assert not packages & HEAVY


def test_every_public_name_is_there_and_no_other():
    polyagents = import_module("polyagents")
    assert {*polyagents.__all__} <= {*dir(polyagents)}
    assert all(getattr(polyagents, name).__name__.startswith(name) for name in polyagents.__all__)
    with pytest.raises(AttributeError, match="'polyagents' has no attribute 'Nothing'"):
        polyagents.Nothing  # noqa: B018


# ---- which commands there are ----------------------------------------------------------------------------------------


def test_the_table_of_parlais_commands_is_parlais():
    setup_script_registry()
    assert sorted(SCRIPT_REGISTRY) == sorted(PARLAI_COMMANDS)
    for name, registered in SCRIPT_REGISTRY.items():
        command, parser = PARLAI_COMMANDS[name], registered.klass.setup_args()
        assert (command.aliases, command.hidden) == (tuple(registered.aliases), registered.hidden)
        assert registered.klass.__module__ == f"parlai.scripts.{command.script or name}"
        has_the_flag = any("--model" in action.option_strings for action in parser._actions)
        assert command.takes_a_model == has_the_flag, name


def test_the_list_has_a_line_for_every_command():
    short, all_of_them = (listing(with_hidden).splitlines() for with_hidden in (False, True))
    for name, command in (OWN_COMMANDS | PARLAI_COMMANDS).items():
        lines = [line for line in all_of_them if line.startswith((f"  {name} ", f"  {name}, "))]
        assert len(lines) == 1 and lines[0].endswith(command.summary)
        assert (lines[0].split() in [line.split() for line in short]) == (not getattr(command, "hidden", False))
    assert len(BY_EVERY_NAME) == len(PARLAI_COMMANDS) + sum(len(each.aliases) for each in PARLAI_COMMANDS.values())


@pytest.mark.parametrize("command", OWN_COMMANDS)
def test_each_command_of_ours_has_a_parser_with_its_name(command):
    module = import_module(f"polyagents.commands.{command}")
    parser = module.parser()
    assert isinstance(parser, argparse.ArgumentParser) and parser.prog == f"polyagents {command}"
    assert parser.description and callable(module.run)


def test_a_wrong_name_is_one_sentence(ends_with_2):
    (line,) = ends_with_2("trian_model", "-t", "x")
    assert line.startswith("polyagents: There is no command trian_model (did you mean train_model")
    (line,) = ends_with_2("frobnicate")
    assert line == "polyagents: There is no command frobnicate; polyagents --help lists all commands."


@pytest.mark.parametrize("arguments", [("serve", "-mf", b"\xff"), ("human_eval", "invite", b"M\xfcller"), (b"\x80",)])
def test_a_name_that_is_not_utf8_is_refused(arguments):
    done = subprocess.run([sys.executable, "-m", "polyagents", *arguments], capture_output=True)
    assert done.returncode == 2 and b" is not in UTF-8; give" in done.stderr and done.stderr.count(b"\n") == 1


def test_version():
    done = subprocess.run([sys.executable, "-m", "polyagents", "--version"], capture_output=True, text=True)
    found = [f"{name} {metadata.version(name)}" for name in ("ParlAI", "torch", "transformers")]
    assert done.stdout == f"polyagents {__version__} ({', '.join(found)}, Python {platform.python_version()})\n"


def test_a_version_that_there_is_not(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    python = platform.python_version()
    assert versions() == f"polyagents {__version__} (no ParlAI, no torch, no transformers, Python {python})"


def test_literal_choices_are_the_librarys():
    actions = import_module("polyagents.commands.build_index").parser()._actions
    choices = {action.dest: action.choices for action in actions}
    assert (choices["index_type"], choices["stored_as"], choices["precision"]) == (INDEX_TYPES, STORED_AS, PRECISIONS)


# ---- the parser ------------------------------------------------------------------------------------------------------


@pytest.fixture
def parser():
    """A parser with a few flags."""
    parser = CommandParser("polyagents thing", "Do a thing.")
    parser.add_argument("-mf", "--model-file", required=True, help="a model")
    parser.add_argument("--top-k", type=positive_int, default=10, help="how many")
    parser.add_argument("--exact", action="store_true", help="exactly")
    return parser


@pytest.mark.parametrize(
    "given", [["-mf", "a_b"], ["--model-file", "a_b"], ["--model_file", "a_b"], ["--model_file=a_b"]]
)
def test_underscores_in_flags_are_hyphens_and_values_stay(given, parser):
    assert vars(parser.parse_args([*given, "--top_k=3"])) == {"model_file": "a_b", "top_k": 3, "exact": False}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--top-k", "3"], "the following arguments are required: -mf/--model-file"),
        (["-mf", "M", "--top-k", "0"], "argument --top-k: '0' is not a whole number of 1 or more"),
        (
            ["-mf", "M", "--top-k", "9" * 400],
            f"argument --top-k: a number of 400 digits is too large: at most {2**63 - 1}",
        ),
        (["-mf", "M", "--topk", "3"], "unrecognized arguments: --topk 3 (did you mean --top-k?)"),
        (["-mf", "M", "--top", "3"], "unrecognized arguments: --top 3 (did you mean --top-k?)"),  # not abbreviated
        (["-mf", "M", "--wrong"], "unrecognized arguments: --wrong"),
        (["--modelfile", "M"], "unrecognized arguments: --modelfile (did you mean --model-file?)"),
        (["--mf=M"], "unrecognized arguments: --mf (did you mean -mf?)"),
        (["--filter", "M"], "the following arguments are required: -mf/--model-file"),  # not much alike
    ],
)
def test_what_is_wrong_is_one_line(given, message, parser, capsys):
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(given)
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"polyagents thing: {message}. All flags: polyagents thing --help\n"


def test_help_shows_defaults_that_say_something(parser):
    text = parser.format_help()
    assert "how many (default: 10)" in text and "exactly\n" in text and "a model\n" in text


# ---- tasks' own flags ------------------------------------------------------------------------------------------------


def test_a_task_brings_its_flags(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        own("build_vocabulary", "-t", "fromfile:parlaiformat", "--help")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "--fromfile-datapath" in shown and "--vocabulary-size" in shown
    with pytest.raises(SystemExit):
        own("build_vocabulary", "-t", "fromfile:parlaiformat", "--out", tmp_path / "V", "--fromfile-datapth", "x")
    assert capsys.readouterr().err.startswith("polyagents build_vocabulary: unrecognized arguments: --fromfile-datapth")


# ---- what is not installed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("train_model",), ("build_vocabulary", "-t", "x", "--out", "V")])
def test_without_parlai_one_sentence_says_how_to_install_it(arguments, tmp_path):
    code = f"import sys; sys.modules['parlai'] = None\n{LOADED}"
    _, returned, said = loaded(*arguments, code=code)
    assert returned == 2
    (line,) = said.splitlines()
    assert line.startswith("polyagents: ") and "pip install --no-deps parlai==1.7.2" in line


@pytest.mark.slow
def test_without_parlai_text_files_make_a_vocabulary_and_the_zoo_is_listed(tmp_path):
    (tmp_path / "words.txt").write_text("the cat sat on the mat and the cat sat\n" * 3)
    code = f"import sys; sys.modules['parlai'] = None\n{LOADED}"
    for arguments in (
        ("build_vocabulary", tmp_path / "words.txt", "--out", tmp_path / "V"),
        ("zoo", "show", "model_bi"),
    ):
        _, returned, said = loaded(*arguments, code=code)
        assert returned == 0, said


@pytest.mark.parametrize(
    ("module", "extra", "wanted"),
    [
        ("fastapi", "human-eval", "human-eval"),
        ("fastapi", "serve", "serve"),
        ("fastapi", None, "serve"),
        ("ijson", "parlai", "data"),
        ("backports.zstd", None, "data"),
        ("psycopg", None, "postgres"),
    ],
)
def test_a_missing_extra_is_named(module, extra, wanted):
    said = users_fault(ModuleNotFoundError(f"No module named {module!r}", name=module), extra)
    assert said.endswith(f"which is not installed: pip install 'polyagents[{wanted}]'")
    assert wanted in EXTRAS


def test_a_missing_module_of_the_users_own_is_no_extra():
    assert users_fault(ModuleNotFoundError("No module named 'mine'", name="mine")) is None


# ---- how commands end ------------------------------------------------------------------------------------------------

MODEL = Path(__file__).parents[1] / "version_0_1" / "bi"
RANK = ("rank", "-mf", MODEL, "--candidates-file", MODEL.with_name("replies.txt"), "--top-k", "1")


@contextlib.contextmanager
def opened(*arguments):
    """A command in a process of its own, which reads lines from a pipe; and the pipe's other end."""
    end, beginning = os.pipe()
    with open(beginning, "w") as lines:
        with open(end) as stdin:
            command = forks.Child(
                forks.COMMAND, *arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        lines.write("hi\n")
        lines.flush()
        with command as process:
            assert process.stdout.readline()  # it has begun
            yield process, lines


@pytest.mark.parametrize(
    "arguments",
    [RANK, pytest.param(("interactive", "-mf", MODEL, "-t", "polyagents.tasks.sample"), marks=pytest.mark.release)],
    ids=["rank", "interactive"],
)
def test_ctrl_c_is_one_line(arguments):
    with opened(*arguments) as (process, _):
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130 and "Traceback" not in said
    assert said.splitlines()[-1] == f"polyagents {arguments[0]}: stopped by Ctrl-C."


def test_a_reader_that_has_enough_ends_the_command_quietly():
    """How Python itself ends then is in tests/test_console.py."""
    with opened(*RANK) as (process, lines):
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError), lines:
            lines.write("hi\n" * 10_000)
        assert process.wait() == 141 and process.stderr.read() == ""
