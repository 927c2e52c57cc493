"""What a machine is fastest in is measured once, whoever asks, and nothing depends on the file."""

import json
import logging
import tempfile

import filelock
import pytest
import torch

from polyagents import timings
from polyagents.timings import encodes_in_bf16, measured_once


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Where this test's machine keeps its times."""
    monkeypatch.setenv(timings.FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache" / "timings.json"


class Calls:
    """Ways to compute nothing, which count."""

    def __init__(self, *names):
        self.counts = dict.fromkeys(names, 0)
        self.ways = {name: lambda name=name: self.count(name) for name in names}

    def count(self, name):
        self.counts[name] += 1


def test_each_way_is_measured_once_and_said(file, caplog):
    first, again = Calls("a", "b"), Calls("a", "b")
    with caplog.at_level(logging.INFO, "polyagents"):
        times = measured_once("adding", first.ways)
        assert measured_once("adding", again.ways) == times
    assert set(first.counts.values()) == {timings.ROUNDS + 1} and set(again.counts.values()) == {0}
    (said,) = caplog.messages
    assert said.startswith("Measured on this machine, adding: a 0.0")


def test_another_machine_task_or_way_is_measured_anew(file, monkeypatch):
    measured_once("adding", Calls("a").ways)
    for what, names in (("subtracting", ("a",)), ("adding", ("a", "c"))):
        calls = Calls(*names)
        measured_once(what, calls.ways)
        assert all(calls.counts.values())
    monkeypatch.setattr(timings, "machine", lambda: "another")
    calls = Calls("a")
    measured_once("adding", calls.ways)
    assert all(calls.counts.values()) and len(json.loads(file.read_text())) == 3


@pytest.mark.parametrize(("vnni", "said"), [(False, ", 1 thread; torch "), (True, ", 1 thread, VNNI; torch ")])
def test_a_machine_is_named_with_what_it_has(vnni, said, monkeypatch):
    for name, there in (("amx_tile", False), ("avx512_bf16", False), ("vnni", vnni)):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda there=there: there)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert said in timings.machine()


@pytest.mark.parametrize("content", ["", "[]", "null", '{"a": 1}', '{"a": {"b": "c"}}', "\xff"])
def test_a_file_that_is_not_ours_is_replaced(file, content):
    file.parent.mkdir()
    file.write_bytes(content.encode("latin-1"))
    times = measured_once("adding", Calls("a").ways)
    assert list(json.loads(file.read_text()).values()) == [times]


def test_where_it_is(monkeypatch):
    for name in (timings.FOLDER, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(timings.os.path, "expanduser", lambda path: path)  # a user without a home
    assert timings.folder() == f"{tempfile.gettempdir()}/polyagents"
    monkeypatch.setattr(timings.os.path, "expanduser", lambda path: "/home/me")
    assert timings.folder() == "/home/me/.cache/polyagents"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert timings.folder() == "/caches/polyagents"
    monkeypatch.setenv(timings.FOLDER, "/mine")
    assert timings.folder() == "/mine"


def test_without_a_folder_each_process_measures(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(timings.FOLDER, str(tmp_path / "file" / "below"))
    for _ in range(2):
        calls = Calls("a")
        assert measured_once("adding", calls.ways).keys() == {"a"} and calls.counts["a"]


def test_who_waits_too_long_for_another_process_measures(file, monkeypatch):
    monkeypatch.setattr(timings, "PATIENCE", 0.0)
    file.parent.mkdir()
    with filelock.FileLock(f"{file}.lock"):
        calls = Calls("a")
        measured_once("adding", calls.ways)
    assert calls.counts["a"]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("seconds", [1.0, 3.0])
def test_an_encoder_computes_in_what_is_faster(fast, seconds, monkeypatch):
    monkeypatch.setattr(timings, "has_bf16", lambda: fast)
    monkeypatch.setattr(timings, "measured_once", lambda what, ways: {"bf16": seconds, "fp32": 2.0})
    encodes_in_bf16.cache_clear()
    assert encodes_in_bf16(8) == (fast and seconds < 2)
    encodes_in_bf16.cache_clear()


def test_measuring_changes_nothing_that_a_training_draws(file):
    """A measurement that another process has kept takes the same way."""
    encodes_in_bf16.cache_clear()
    before = torch.get_rng_state()
    for _ in range(2):
        encodes_in_bf16(8)
        assert torch.equal(torch.get_rng_state(), before)
        encodes_in_bf16.cache_clear()
