"""Flags of `serve` from the environment and from a file."""

import argparse
import json
import re
from pathlib import Path

import pytest

from polyagents.commands.configuration import READ_ELSEWHERE
from polyagents.commands.serve import parser

ROOT = Path(__file__).parents[2]
FLAGS = [flag for flag in parser()._actions if flag.dest not in ("help", "config")]
NAMES = {flag.dest: flag for flag in FLAGS}


def texts_of(flag):
    """Two values of a flag, as one would write them; the first differs from its default."""
    if flag.choices:
        return sorted(flag.choices, key=lambda choice: choice == flag.default)[:2]
    return {"hand_over": ("0.25", "0.75")}.get(flag.dest, ("11", "12"))


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Parse with flags, an environment and a file."""

    def parse(flags=(), environment=None, file=None):
        for name, text in (environment or {}).items():
            monkeypatch.setenv(name, text)
        if file is not None:
            (tmp_path / "serve.json").write_text(file if isinstance(file, str) else json.dumps(file))
            flags = [*flags, "--config", str(tmp_path / "serve.json")]
        return vars(parser().parse_args(list(flags)))

    return parse


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.dest)
def test_every_flag_is_taken_from_the_command_line_else_the_environment_else_the_file(flag, configured, monkeypatch):
    assert type(flag) is argparse._StoreAction and flag.nargs is None  # what the environment and the file can give
    if needed := parser().needed.get(flag.dest):
        monkeypatch.setenv(f"POLYAGENTS_{needed.upper()}", "there")
    first, second = texts_of(flag)
    expected = [configured([flag.option_strings[-1], text]) for text in (first, second)]
    variable = f"POLYAGENTS_{flag.dest.upper()}"
    assert expected[0][flag.dest] not in (flag.default, expected[1][flag.dest])

    def found(**given):
        return configured(**given) | {"config": None}

    assert found(file={flag.dest: first}) == expected[0]
    if flag.type is not None:
        assert found(file={flag.dest: json.loads(first)}) == expected[0]
    assert found(environment={variable: second}, file={flag.dest: first}) == expected[1]
    assert found(flags=[flag.option_strings[-1], first], environment={variable: second}) == expected[0]


def test_the_file_may_be_named_in_the_environment(configured, tmp_path):
    (tmp_path / "f.json").write_text('{"port": 5}')
    assert configured(environment={"POLYAGENTS_CONFIG": str(tmp_path / "f.json")})["port"] == 5


def test_a_value_hides_those_of_flags_that_exclude_it_in_later_places(configured):
    found = configured(["--index-dir", "I"], {"POLYAGENTS_CANDIDATES_FILE": "F"}, {"index_url": "U", "token": "t"})
    assert (found["index_dir"], found["candidates_file"], found["index_url"]) == ("I", None, None)
    found = configured(environment={"POLYAGENTS_TOKEN_FILE": "T"}, file={"token": "t"})
    assert (found["token"], found["token_file"]) == (None, "T")
    file = {"candidates_file": "F.csv", "fields": "a"}
    assert configured(["--index-dir", "I"], file=file)["fields"] is None
    assert configured(["--candidates-file", "G.csv"], file=file)["fields"] == "a"


@pytest.mark.parametrize(
    ("environment", "file", "said"),
    [
        ({"POLYAGENTS_PORT": "many"}, None, "POLYAGENTS_PORT: 'many' is not a whole number of 0 or more"),
        ({"POLYAGENTS_PORT": ""}, None, "POLYAGENTS_PORT: its value is empty"),
        ({"POLYAGENTS_TOKEN": " "}, None, "POLYAGENTS_TOKEN: its value is empty"),
        ({"POLYAGENTS_BACKEND": "tortch"}, None, "POLYAGENTS_BACKEND: invalid choice: 'tortch'"),
        ({"POLYAGENTS_MODEL_FIEL": "M"}, None, "POLYAGENTS_MODEL_FIEL, which does not belong to a flag (did you mean "),
        ({"POLYAGENTS_SERVICE_HOST": "10.0.0.1"}, None, "set enableServiceLinks: false"),
        ({"POLYAGENTS_HELP": "1"}, None, "POLYAGENTS_HELP, which does not belong to a flag"),
        (
            {"POLYAGENTS_INDEX_DIR": "I", "POLYAGENTS_INDEX_URL": "U"},
            None,
            "POLYAGENTS_INDEX_URL: not allowed with POLYAGENTS_INDEX_DIR",
        ),
        ({}, {"model_fil": "M"}, "serve.json has an unknown key, model_fil (did you mean model_file"),
        ({}, {"model-file": "M"}, "did you mean model_file"),
        ({}, {"config": "other.json"}, "has an unknown key, config"),
        ({}, {"port": 70_000}, "serve.json, port: 70000 is too large: at most 65535"),
        ({}, {"port": 1.5}, "serve.json, port: '1.5' is not a whole number"),
        ({}, {"port": True}, "serve.json, port: its value is not a text or a number"),
        ({}, {"token": 123_456}, "serve.json, token: its value is not a text."),
        ({}, {"token": None}, "serve.json, token: its value is not a text."),
        ({}, {"model_file": "a\0b"}, "serve.json, model_file: its value is not a text."),
        ({}, '{"model_file": "\\ud800"}', "serve.json, model_file: its value is not a text."),
        ({}, {"log_level": "loud"}, "serve.json, log_level: invalid choice: 'loud'"),
        ({}, {"token": "SECRET", "token_file": "T"}, "not allowed with"),
        ({}, [], "serve.json is not a JSON object"),
        ({}, '{"token": "SECRET"', "serve.json cannot be read (Expecting"),
        ({}, "[" * 100_000, "serve.json cannot be read (it is nested too deeply)"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence_that_names_its_place(configured, capsys, environment, file, said):
    with pytest.raises(SystemExit) as stop:
        configured(environment=environment, file=file)
    (sentence,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and said in sentence and not re.search("SECRET|123456", sentence)


def test_a_file_that_is_not_there_is_said(capsys, tmp_path):
    for path, said in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory"), ("/dev/zero", "a device")):
        with pytest.raises(SystemExit):
            parser().parse_args(["--config", str(path)])
        assert said in capsys.readouterr().err


def test_variables_that_are_read_elsewhere_are_known(configured, monkeypatch):
    sources = [path.read_text() for path in (ROOT / "polyagents").rglob("*.py")]
    named = {name for text in sources for name in re.findall(r'"(POLYAGENTS_[A-Z_]*[A-Z])"', text)}
    assert named - {f"POLYAGENTS_{name.upper()}" for name in NAMES} == {*READ_ELSEWHERE}
    configured(environment=dict.fromkeys(READ_ELSEWHERE, "x"))
