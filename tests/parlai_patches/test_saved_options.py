"""A stranger's model file decides which of our agents it is, and nothing else that runs."""

import json
import sys
from pathlib import Path

import pytest
from commands import SAMPLE, colour_dialogues, copy_model, evaluate, options, run, weights, write_task
from parlai.core.agents import create_agent_from_model_file
from parlai.core.opt import Opt

from polyagents import InputError
from polyagents.commands.serve import write_replies_of_task
from polyagents.parlai_patches.saved_options import is_trusted_task


@pytest.fixture
def hostile(model, tmp_path, monkeypatch):
    """Rewrite a model's options, and tell whether code of theirs has run: a module that leaves a file, or a command."""
    (tmp_path / "evilmod.py").write_text("open(__file__ + '.ran', 'w')\ndef X(*given): pass\nDefaultTeacher = X\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = [tmp_path / "evilmod.py.ran", tmp_path / "ran"]

    def write(**changes):
        file = copy_model(model("poly"), tmp_path / "evil")
        command = {"/bin/sh": 1, "-c": 1, f"touch {ran[1]}": 1}
        Path(f"{file}.opt").write_text(json.dumps(command | options(file) | changes))
        return str(file)

    yield write
    sys.modules.pop("evilmod", None)
    assert not [path for path in ran if path.exists()]


AGENTS = ["subprocess:Popen", "evilmod:X", "os:system", "polyagents.errors:InputError", "internal:evilmod"]
AGENTS += ["polyagents:nope", "transformer/polyencoder", "projects:evilmod:X", "repeat_label", None, ["evilmod:X"]]


@pytest.mark.parametrize("agent", AGENTS, ids=str)
def test_an_agent_that_only_a_file_names_is_not_loaded(hostile, agent):
    file = hostile(model=agent)
    for command in (("eval_model", "-t", SAMPLE), ("interactive",), ("display_model", "-t", SAMPLE), ("self_chat",)):
        with pytest.raises(InputError, match="a file may not decide which code runs"):
            run(*command, "-mf", file)
    with pytest.raises(InputError, match="may not decide"):
        create_agent_from_model_file(file)


def test_an_agent_that_the_user_names_is_loaded(hostile):
    file = hostile(model="subprocess:Popen")
    assert evaluate(file, "-m", "repeat_label", "-t", SAMPLE, "--num-examples", 2)["accuracy"] == 1
    with pytest.raises(InputError, match="was trained as subprocess:Popen and cannot be loaded as"):
        evaluate(file, "-m", "polyagents:PolyEncoder", "-t", SAMPLE)


@pytest.mark.parametrize("key", ["task", "evaltask", "mutators", "dict_class", "pytorch_teacher_task"])
def test_nothing_else_in_a_file_is_imported(hostile, key):
    file = hostile(**{key: "evilmod.agents:X"})
    assert key not in Opt.load(f"{file}.opt")
    assert evaluate(file, "-t", SAMPLE, "--num-examples", 2)["exs"] == 2


def test_serve_reads_no_task_that_only_a_file_names(hostile):
    with pytest.raises(InputError, match=r"trained on the task evilmod\.agents:X, and a file may not decide"):
        write_replies_of_task(hostile(task="evilmod.agents:X"))


def test_what_a_file_may_decide_is_that_agents_own_flags(hostile):
    file = hostile(history_size=3, override={"model": "evilmod:X"}, nested={"a": {"b": 1}}, no_such_flag=1)
    kept = Opt.load(f"{file}.opt")
    assert kept["history_size"] == 3 and kept["poly_n_codes"] == options(file)["poly_n_codes"]
    assert not {"override", "nested", "no_such_flag", "/bin/sh", "dict_class"} & kept.keys()


@pytest.mark.slow
def test_a_task_of_the_users_own_counts_where_the_command_names_it(tmp_path, monkeypatch):
    """Its flags come with the command as well."""
    task = write_task(tmp_path, colour_dialogues(4))
    run("train_model", "-m", "polyagents:BiEncoder", "-mf", tmp_path / "M", "--backbone", "scratch:tiny", *task,
        "--max-train-steps", 1, "-bs", 4)  # fmt: skip
    saved = options(tmp_path / "M") | {"task": "my.own.module:Teacher"}
    Path(f"{tmp_path / 'M'}.opt").write_text(json.dumps(saved))
    assert evaluate(tmp_path / "M", *task, "--num-examples", 2)["exs"] == 2
    assert weights(tmp_path / "M")


@pytest.mark.parametrize(
    ("task", "trusted"),
    [
        ("convai2", True),
        ("convai2:normalized", True),
        ("fromfile:parlaiformat", True),
        ("polyagents.tasks.sample", True),
        ("polyagents.tasks.wiki_search:Cross", True),
        ("convai2,polyagents.tasks.ubuntu", True),
        ("evilmod:X", True),  # parlai.tasks.evilmod.agents, which is not theirs to write
        ("internal:evil", False),
        ("my.module:Teacher", False),
        ("parlai.tasks.convai2.agents:os", False),
        ("polyagents.tasks.sample.agents:Path", False),
        ("convai2:mutators=evilmod", False),
        ("convai2,my.module", False),
        ("", False),
    ],
)
def test_which_tasks_a_file_may_name(task, trusted):
    assert is_trusted_task(task) is trusted
