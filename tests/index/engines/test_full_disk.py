"""A build into an engine whose disk is full: one sentence, nothing that is searched, and a build that is resumed."""

import os
import subprocess
import tempfile
from pathlib import Path

import engines
import pytest
import torch

from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.engines.engine import EngineError
from polyagents.index.engines.urls import open_engine
from polyagents.index.texts import ListedTexts

pytestmark = pytest.mark.release

COUNT, WIDTH = 9_000, 384
LEFT = 6_000_000  # bytes on the disk; the vectors alone are 14 million
MODEL = "m" * 64


@pytest.fixture
def disk():
    """A small file system of its own, which other users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="full"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=700m,mode=1777", "tmpfs", folder]
    folder.chmod(0o755)
    try:
        made = subprocess.run(mount, capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
        yield folder
        subprocess.run(["umount", "--lazy", folder], check=True)
    finally:
        folder.rmdir()


def encode(texts):
    return torch.stack([torch.randn(WIDTH, generator=torch.Generator().manual_seed(int(text))) for text in texts])


@pytest.mark.parametrize("kind", ["milvus-lite", "milvus-server", "pgvector"])
def test_a_full_disk_is_said_and_the_build_is_resumed(kind, disk):
    texts = ListedTexts([str(number) for number in range(COUNT)])
    with engines.running(kind, disk, of_postgres=disk) as url:
        url = url.format(name="full")
        open_engine(url, make=True).close()
        status = os.statvfs(disk)
        filler = disk / "filler"
        filler.write_bytes(bytes(status.f_bavail * status.f_frsize - LEFT))
        with pytest.raises(EngineError, match=r"did not take candidates: .*No space left on device"):
            EngineCandidates.build(open_engine(url), MODEL, WIDTH, texts, encode)
        assert not any(version.is_current for version in open_engine(url).versions())
        filler.unlink()
        assert len(EngineCandidates.build(open_engine(url), MODEL, WIDTH, texts, encode)) == COUNT
        assert [version.is_current for version in open_engine(url).versions()] == [True]
