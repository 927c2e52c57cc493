"""One file of a candidate store: what is in it, and whether it is as it was written."""

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from polyagents.index.shard import COARSE, Shard, checksum, write_shard
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


def is_noticed(path):
    """Whether a damaged shard is refused when it is opened, or when its checksum is asked for."""
    try:
        return not Shard(str(path)).is_whole()
    except SafetensorError:
        return True


def test_any_change_is_noticed(tmp_path, vectors):
    """Each tensor, each of its numbers, its shape, and the name of the file, which says what it was made from."""
    path = tmp_path / "s"
    write_shard(str(path), TEXTS, packed(vectors, "fp32"))
    metadata = {"checksum": Shard(str(path)).checksum}
    tensors = load_file(path)
    assert set(tensors) == {"vectors", "rest", "norms", *COARSE, "text", "ends", "keys"}
    for name, tensor in tensors.items():
        other = tensor.clone()
        other.view(torch.uint8).flatten()[-1] ^= 1
        save_file(tensors | {name: other}, path, metadata)
        assert is_noticed(path)
    save_file(tensors | {"vectors": tensors["vectors"].reshape(6, -1)}, path, metadata)
    assert is_noticed(path)
    save_file(tensors, path, metadata)
    assert Shard(str(path)).is_whole()
    path.rename(tmp_path / "other")
    assert not Shard(str(tmp_path / "other")).is_whole()


@pytest.mark.parametrize("missing", ["vectors", "norms", *COARSE, "text", "ends", "keys", "checksum"])
def test_what_lacks_a_part_is_no_shard(tmp_path, vectors, missing):
    path = tmp_path / "s"
    write_shard(str(path), TEXTS, packed(vectors, "bf16"))
    metadata = {} if missing == "checksum" else {"checksum": Shard(str(path)).checksum}
    save_file({name: part for name, part in load_file(path).items() if name != missing}, path, metadata)
    with pytest.raises(SafetensorError, match="is not a shard"):
        Shard(str(path))


def hostile_tensors():
    """What a shard of four candidates of width 6 in fp32 must not hold, by name, with a checksum that is right."""
    ends = torch.tensor([1, 3, 5, 9])
    yield "a width of 0", {"vectors": torch.zeros(4, 0, dtype=torch.bfloat16)}
    yield "one row less", {"vectors": torch.zeros(3, 6, dtype=torch.bfloat16)}
    yield "a row of numbers", {"vectors": torch.zeros(24, dtype=torch.bfloat16)}
    yield "vectors in double", {"vectors": torch.zeros(4, 6, dtype=torch.float64)}
    yield "ends beyond the text", {"ends": ends + 1_000_000}
    yield "ends that go back", {"ends": ends.flip(0)}
    yield "ends below zero", {"ends": ends - 10}
    yield "a number of norms", {"norms": torch.zeros(5)}
    yield "norms in double", {"norms": torch.zeros(4, dtype=torch.float64)}
    yield "keys of three", {"keys": torch.zeros(4, 3, dtype=torch.int64)}
    yield "no keys", {"keys": None}
    yield "a rest of another shape", {"rest": torch.zeros(4, 5, dtype=torch.int16)}
    yield "scales beside a rest", {"scales": torch.zeros(4)}
    yield "int8 without scales", {"vectors": torch.zeros(4, 6, dtype=torch.int8), "rest": None}
    yield "a coarse copy of another shape", {"coarse": torch.zeros(4, 5, dtype=torch.int8)}
    yield "a coarse copy in bf16", {"coarse": torch.zeros(4, 6, dtype=torch.bfloat16)}
    yield "losses of five", {"coarse_lost": torch.zeros(5)}
    int8 = {"vectors": torch.zeros(4, 6, dtype=torch.int8), "scales": torch.zeros(4), "rest": None}
    yield "a coarse copy of int8", int8
    yield "something else", {"more": torch.zeros(4)}


def test_a_shard_of_version_0_1_0_has_no_coarse_copy(tmp_path, vectors):
    path = str(tmp_path / "s")
    write_shard(path, TEXTS, packed(vectors, "bf16"))
    assert Shard(path).block(0, None).coarse is not None
    tensors = {name: tensor for name, tensor in load_file(path).items() if name not in COARSE}
    save_file(tensors, path, {"checksum": checksum(path, tensors)})
    assert Shard(path).is_whole() and Shard(path).block(0, None).coarse is None


@pytest.mark.parametrize(("name", "changes"), [*hostile_tensors()])
def test_a_shard_that_others_made_up_is_none(tmp_path, vectors, name, changes):
    path = str(tmp_path / "s")
    write_shard(path, TEXTS[:4], packed(vectors[:4], "fp32"))
    tensors = {name: tensor for name, tensor in (load_file(path) | changes).items() if tensor is not None}
    save_file(tensors, path, {"checksum": checksum(path, tensors)})
    with pytest.raises(SafetensorError, match="is not a shard"):
        Shard(path)
