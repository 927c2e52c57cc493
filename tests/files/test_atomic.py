"""Files and folders are whole or absent, and what a killed process left of them goes at the next write."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from polyagents import InputError
from polyagents.files.atomic import (
    MACHINE,
    TEMPORARY,
    atomic_folder,
    atomic_write,
    clear_leftovers,
    temporary_name,
    write_text,
)

KILLED = """
import os, signal, sys
from polyagents.files.atomic import atomic_folder, atomic_write
what, path = sys.argv[1:]
with atomic_folder(path, "demo") if what == "folder" else atomic_write(path) as temporary:
    if what == "folder":
        os.mkdir(temporary)
    open(os.path.join(temporary, "a") if what == "folder" else temporary, "w").write("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_killed_process_left_goes_at_the_next_write(what, tmp_path):
    path = tmp_path / "it"
    done = subprocess.run([sys.executable, "-c", KILLED, what, str(path)])
    assert done.returncode == -signal.SIGKILL and len(os.listdir(tmp_path)) == 1
    if what == "folder":
        with atomic_folder(str(path), "demo", os.path.isdir) as temporary:
            os.mkdir(temporary)
    else:
        write_text(str(path), "whole")
    assert os.listdir(tmp_path) == ["it"]


def test_what_is_named_after_a_file_is_cleared_with_it(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = f"{MACHINE}-{gone.pid}-0123abcd.tmp"
    kept = [f"{name}.{MACHINE}-{os.getpid()}-0123abcd.tmp" for name in ("M", "M.opt")] + [
        f"Model.{left}",
        f"N.M.{left}",
    ]
    for name in (f"M.{left}", f"M.opt.{left}", f"M.checkpoint.trainstats.{left}", *kept):
        (tmp_path / name).touch()
    clear_leftovers(str(tmp_path / "M"))
    clear_leftovers(str(tmp_path / "none" / "M"))
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


def test_what_another_writer_is_at_stays(tmp_path):
    """And so does what only looks alike."""
    path = str(tmp_path / "it")
    others = [tmp_path / name for name in ("it.tmp", "other.tmp", "it.0123abcd.tmp", "it.ffffff-1-0123abcd.tmp")]
    for other in others:
        other.write_text("mine")
    with atomic_write(path) as mine, atomic_write(path) as other:
        for temporary in (mine, other):
            Path(temporary).write_text("a")
        assert mine != other and os.path.exists(mine)
    assert sorted(os.listdir(tmp_path)) == sorted(["it", *(other.name for other in others)])


def test_a_folder_that_merely_ends_in_tmp_is_not_ours_to_remove(tmp_path):
    (tmp_path / "out.tmp").mkdir()
    (tmp_path / "out.tmp" / "thesis.txt").write_text("mine")
    with atomic_folder(str(tmp_path / "out"), "demo", os.path.isdir) as temporary:
        os.mkdir(temporary)
    assert (tmp_path / "out.tmp" / "thesis.txt").read_text() == "mine"


def test_the_names_of_unfinished_files_are_known():
    assert re.fullmatch(f"a{TEMPORARY}", temporary_name("a")) and re.fullmatch(f"a{TEMPORARY}", "a.0123abcd.tmp")


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EACCES, "give a folder"),
        (errno.EROFS, "give a folder"),
        (errno.EIO, "is kept: try again"),
    ],
)
def test_what_to_change_follows_from_why_a_file_cannot_be_written(number, change, tmp_path):
    with pytest.raises(InputError, match=change), atomic_write(str(tmp_path / "it")):
        raise OSError(number, os.strerror(number))


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="give a folder that is there"):
        write_text(str(tmp_path / "none" / "it"), "a")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_replaced(make, tmp_path):
    """As root, a rename over /dev/null takes the device from every program of the machine."""
    path = tmp_path / "it"
    make(path)
    with pytest.raises(InputError, match="is not a file that can be replaced"):
        write_text(str(path), "a")
    assert not path.is_file() and os.listdir(tmp_path) == ["it"]
