"""The number of threads follows affinity and quota, and what the user has set is never overridden."""

import os
import subprocess
import sys

import pytest

from polyagents import threads

V2 = "0::/system.slice/job.scope\n"
V1 = "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 8 cores, of which this process may use 6: set its control groups, by their files."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)

    def made(groups, files):
        (tmp_path / "proc" / "self").mkdir(parents=True)
        (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
        for name, content in files.items():
            path = tmp_path / "sys" / "fs" / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return str(tmp_path)

    return made


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        (V2, {}, 6),  # nothing can be seen
        (V2, {"cpu.max": "max 100000\n"}, 6),
        (V2, {"cpu.max": "150000 100000\n"}, 2),  # a container sees its own group at the top
        (V2, {"cpu.max": "20000 100000\n"}, 1),
        (V2, {"cpu.max": "max 100000\n", "system.slice/job.scope/cpu.max": "300000 100000\n"}, 3),
        (V2, {"system.slice/cpu.max": "200000 100000\n", "system.slice/job.scope/cpu.max": "400000 100000\n"}, 2),
        (V2, {"cpu.max": "900000 100000\n"}, 6),  # more than the affinity allows
        (V2, {"cpu.max": ""}, 6),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 6),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 3),
        (
            V1,
            {
                "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "50000\n",
                "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "50000\n",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
    ],
)
def test_cores_are_those_of_affinity_and_quota(groups, files, cores, machine):
    assert threads.available_cores(machine(groups, files)) == cores


def test_without_control_groups_the_affinity_counts(machine, tmp_path):
    machine(V2, {})
    assert threads.available_cores(str(tmp_path / "nothing")) == 6


def test_where_the_system_knows_no_affinity_all_cores_count(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert threads.available_cores(str(tmp_path)) == 5


@pytest.fixture
def without_torch(monkeypatch):
    """What `choose` finds before torch is imported, on three cores."""
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(threads, "available_cores", lambda: 3)


def test_both_are_chosen_and_said(without_torch):
    environment = {"HOME": "/root"}
    told = threads.choose(environment)
    assert environment == {"HOME": "/root", "OMP_NUM_THREADS": "3"} | threads.POLICY
    assert "3 of" in told and "OMP_NUM_THREADS" in told and "\n" not in told


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_a_policy_of_the_users_stays(name, without_torch):
    environment = {name: "7"}
    threads.choose(environment)
    assert environment == {name: "7", "OMP_NUM_THREADS": "3"}


def test_a_number_of_the_users_stays(without_torch):
    environment = {"OMP_NUM_THREADS": "2"}
    assert threads.choose(environment) is not None
    assert environment == {"OMP_NUM_THREADS": "2"} | threads.POLICY


def test_one_thread_waits_for_nobody(without_torch):
    environment = {"OMP_NUM_THREADS": "1"}  # torchrun's own
    assert threads.choose(environment) is None and environment == {"OMP_NUM_THREADS": "1"}


def test_once_torch_is_imported_nothing_is_chosen():
    environment = {}
    assert threads.choose(environment) is None and environment == {}


CLEAN = {name: value for name, value in os.environ.items() if name not in (threads.THREADS, *threads.WAITING)}


@pytest.mark.slow
def test_a_command_sets_them_before_torch_is_imported_and_its_children_inherit_them():
    code = (
        "import os, subprocess, sys, polyagents; assert 'OMP_NUM_THREADS' not in os.environ; "
        "from polyagents.__main__ import main; sys.argv = ['polyagents', 'zoo', 'list']; main(); import torch; "
        "print(torch.get_num_threads(), os.environ['OMP_NUM_THREADS'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=CLEAN, capture_output=True, text=True, check=True)
    used, wanted = done.stdout.splitlines()[-1].split()
    assert used == wanted == str(threads.available_cores())
    assert done.stderr == ""  # of no interest to who lists models


@pytest.mark.slow
def test_who_trains_is_told_once(tmp_path):
    command = [sys.executable, "-m", "polyagents", "build_index", "-mf", tmp_path / "M", "--index-dir", tmp_path / "I"]
    (tmp_path / "M.opt").write_text("{}")
    flags = ["--candidates-file", tmp_path / "none"]
    done = subprocess.run([*map(str, (*command, *flags))], env=CLEAN, capture_output=True, text=True)
    assert done.stderr.count("OMP_NUM_THREADS") == 1 and done.stderr.startswith("Computing on ")
