"""One file of a candidate store: what is in it, and whether it is as it was written."""

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from polyagents.index.shard import Shard, write_shard
from polyagents.index.stored_vectors import STORED_AS, packed, unpacked

TEXTS = ["a", "déjà vu", "", "two\twords", "\U0001f600 e"]


@pytest.fixture
def vectors():
    return torch.randn(len(TEXTS), 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("stored_as", STORED_AS)
def test_a_shard_gives_back_what_was_written(tmp_path, vectors, stored_as):
    stored = packed(vectors, stored_as)
    write_shard(str(tmp_path / "s"), TEXTS, stored)
    shard = Shard(str(tmp_path / "s"))
    assert len(shard) == len(TEXTS) and shard.is_whole()
    assert torch.equal(unpacked(shard.stored()), unpacked(stored))
    block = shard.block(7, torch.ones(len(TEXTS)).bool())
    assert block.start == 7 and block.alive.all()
    assert torch.equal(block.exact(slice(None)), unpacked(stored))
    torch.testing.assert_close(block.norms, unpacked(stored).norm(dim=1))


def test_any_stretch_of_its_texts(tmp_path, vectors):
    write_shard(str(tmp_path / "s"), TEXTS, packed(vectors, "bf16"))
    shard = Shard(str(tmp_path / "s"))
    assert shard.texts() == TEXTS
    for start in range(len(TEXTS)):
        assert shard.texts(start) == TEXTS[start:]
        for stop in range(start, len(TEXTS) + 1):
            assert shard.texts(start, stop) == TEXTS[start:stop]


def test_a_shard_of_one_empty_text(tmp_path, vectors):
    write_shard(str(tmp_path / "s"), [""], packed(vectors[:1], "bf16"))
    assert Shard(str(tmp_path / "s")).texts() == [""]


def test_any_change_is_noticed(tmp_path, vectors):
    """Each tensor, each of its numbers, its shape, and the name of the file, which says what it was made from."""
    path = tmp_path / "s"
    write_shard(str(path), TEXTS, packed(vectors, "fp32"))
    metadata = {"checksum": Shard(str(path)).checksum}
    tensors = load_file(path)
    assert set(tensors) == {"vectors", "rest", "norms", "text", "ends", "keys"}
    for name, tensor in tensors.items():
        other = tensor.clone()
        other.view(torch.uint8).flatten()[-1] ^= 1
        save_file(tensors | {name: other}, path, metadata)
        assert not Shard(str(path)).is_whole()
    save_file(tensors | {"vectors": tensors["vectors"].reshape(6, -1)}, path, metadata)
    assert not Shard(str(path)).is_whole()
    save_file(tensors, path, metadata)
    assert Shard(str(path)).is_whole()
    path.rename(tmp_path / "other")
    assert not Shard(str(tmp_path / "other")).is_whole()


@pytest.mark.parametrize("missing", ["vectors", "norms", "text", "ends", "keys", "checksum"])
def test_what_lacks_a_part_is_no_shard(tmp_path, vectors, missing):
    path = tmp_path / "s"
    write_shard(str(path), TEXTS, packed(vectors, "bf16"))
    metadata = {} if missing == "checksum" else {"checksum": Shard(str(path)).checksum}
    save_file({name: part for name, part in load_file(path).items() if name != missing}, path, metadata)
    with pytest.raises(SafetensorError, match="is no shard"):
        Shard(str(path))
