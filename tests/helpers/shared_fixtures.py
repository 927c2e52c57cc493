"""Shared fixtures: small trained models and the data around them. tests/conftest.py loads them."""

import dataclasses
import io
import json
import os
import threading

import filelock
import parlai_models
import postgres
import pytest
import torch
import traces
from archive_server import Server
from browser import launched
from commands import SAMPLE, colour_dialogues, copy_model, run, train, write_task

from polyagents import timings
from polyagents.__main__ import main
from polyagents.backends import onnx_runtime, openvino_runtime
from polyagents.timings import machine
from polyagents.training.rehearsal import rehearse
from polyagents.training_loop import starting_model, training_curve
from polyagents.zoo import download as downloads


def pytest_configure():
    """Let `--precision auto` be fp32 in trainings, on every machine: their weights are compared with others.

    This is what a machine would have measured that is slower in bf16. No test cuts the power, so none waits for a disk.
    """
    os.fsync = lambda file: None
    file = os.path.join(timings.folder(), "timings.json")
    if not os.path.exists(file):
        slower = {"bf16": 2.0, "fp32": 1.0}
        names = [machine().replace(f" {torch.get_num_threads()} threads", f" {count} threads") for count in range(1, 9)]
        layers = [timings.layer_of(width) for width in (8, 16, 32, 64, 128, 256, 384, 768)]
        os.makedirs(timings.folder(), exist_ok=True)
        with open(file, "w", encoding="utf-8") as out:
            json.dump({f"{name}: {layer}": slower for name in names for layer in layers}, out)


@pytest.fixture(scope="session", autouse=True)
def no_plots():
    """Have trainings draw nothing at their end, which takes as long as the rest of them (test_training_end.py does)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_curve, "draw_curves", lambda path, *points: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def rehearsed_once():
    """Have trainings of equal models be tried once, which takes a quarter of a small one (test_rehearsal.py: each)."""
    tried = set()

    def rehearse_new(model):
        settings, config = dataclasses.replace(model.settings, saved={}), model.context_encoder.backbone.config
        kind = f"{model.module} {config} {settings} {model.precision}"
        if kind not in tried:
            rehearse(model)
            tried.add(kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting_model, "rehearse", rehearse_new)
        yield


@pytest.fixture
def colours(tmp_path):
    """Flags of a task of 30 dialogues that bring 8 candidates each."""
    return write_task(tmp_path, colour_dialogues(), "colours")


@pytest.fixture
def replies(tmp_path):
    """A candidates file."""
    path = tmp_path / "replies.txt"
    path.write_text("hi there\nso you like red\nso you like blue\ni do not know\ntell me more\nbye\n")
    return path


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Make a file once for all processes of this run; whoever comes second waits (pytest-xdist's documentation)."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
    folder.mkdir(exist_ok=True)

    def made(name, make):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        finished = path.with_name(f"{path.name}.finished")
        with filelock.FileLock(f"{path}.lock"):
            if not finished.exists():
                make(path)
                finished.touch()
        return str(path)

    return made


@pytest.fixture(scope="session")
def trained(once):
    """Model files of the sample task by kind, trained on first use. Tests that write beside a model take `model`."""

    def of(kind):
        steps = 4 if kind == "cross" else 20
        short = ("--validation-max-exs", "8", "--short-final-eval", "true", "--max-train-steps", steps)
        short += ("--reduction-type", "first")  # by the mean a poly-encoder of even codes is a bi-encoder
        return once(f"trained/{kind}", lambda file: train(kind, file, "-t", SAMPLE, *short))

    return of


@pytest.fixture(scope="session")
def backbone(tmp_path_factory):
    """A small pretrained BERT in a folder that nobody writes to."""
    from backbones import save  # which imports every family

    return save("bert", tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="session")
def written(once):
    """Model files that ParlAI's agents wrote, by variant, trained on first use."""

    def of(variant):
        return once(f"parlai/{variant.replace(' ', '_')}", lambda file: parlai_models.train(variant, str(file)))

    return of


@pytest.fixture(scope="session")
def traced_once(once):
    """A backbone is traced once, whatever its weights: a trace takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (onnx_runtime, openvino_runtime):
            patch.setattr(module, "trace", traces.remembered(once))
        yield


@pytest.fixture
def model(trained, tmp_path):
    """A copy of a trained model in a folder of the test's own."""

    def of(kind):
        return copy_model(trained(kind), tmp_path / kind)

    return of


@pytest.fixture
def chat(monkeypatch, capsys):
    """Talk to a model in this process: the lines that it answers, one list per message."""

    def talk(model_file, messages, *arguments):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{message}\n" for message in messages)))
        capsys.readouterr()
        run("interactive", "-mf", model_file, *arguments)
        answers = capsys.readouterr().out.split("Enter Your Message: ")[1:]
        return [answer.strip().splitlines() for answer in answers[: len(messages)]]

    return talk


@pytest.fixture
def server(monkeypatch):
    """A server of one archive, in a thread; nothing waits before it asks again."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(downloads, "WAIT", 0)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.gate.set()
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")  # as long as playwright runs, no other test can use asyncio
def chromium():
    """A browser; what needs one is skipped where there is none."""
    from playwright.sync_api import sync_playwright  # starts a process of its own

    with sync_playwright() as playwright, launched(playwright) as browser:
        yield browser


@pytest.fixture
def page(chromium):
    """A page of a browser that remembers nothing; `page.complaints` are the errors of its scripts."""
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
        yield page


@pytest.fixture
def ends_with_2(monkeypatch, capsys):
    """Run the `polyagents` command in this process: what it says, line by line, as it ends with code 2."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["polyagents", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        assert stop.value.code == 2 and not said.out
        return said.err.splitlines()

    return run


@pytest.fixture(scope="session")
def postgres_socket():
    """The folder of the socket of a PostgreSQL server; what needs one is skipped where there is none."""
    if why := postgres.missing():
        pytest.skip(why)
    with postgres.server() as folder:
        yield folder


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """What --database takes: an empty database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "human_eval.db")
    return postgres.new_database(request.getfixturevalue("postgres_socket"))
