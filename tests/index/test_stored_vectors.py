"""Vectors as they are stored: what comes back is what was given, as far as the type of storage promises."""

import pytest
import torch

from polyagents.index.stored_vectors import STORED_AS, StoredVectors, VectorBlock, packed, unpacked


def test_both_halves_make_the_number_again():
    values = torch.cat([torch.randn(1000) * 10.0 ** torch.randint(-30, 30, (1000,)), torch.tensor([0.0, -0.0, 1e-45])])
    stored = packed(values.unsqueeze(1), "fp32")
    assert torch.equal(unpacked(stored).view(torch.int32), values.unsqueeze(1).view(torch.int32))
    off = (stored.vectors.double() - values.unsqueeze(1).double()).abs()
    assert (off <= 2**-8 * values.unsqueeze(1).double().abs() + 1e-40).all()


@pytest.mark.parametrize(("stored_as", "off"), [("fp32", 0.0), ("bf16", 2**-8), ("int8", 0.5 / 127)])
def test_what_comes_back_is_as_near_as_promised(stored_as, off):
    vectors = torch.randn(50, 12, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.arange(-25, 25).unsqueeze(
        1
    )
    vectors[7] = 0.0
    again = unpacked(packed(vectors, stored_as))
    assert again.dtype == torch.float32 and again.shape == vectors.shape
    largest = vectors.abs().amax(1, keepdim=True) if stored_as == "int8" else vectors.abs()
    assert ((again - vectors).abs() <= off * 1.001 * largest).all()
    assert torch.equal(again[7], vectors[7])


def test_each_type_takes_the_room_that_it_says():
    vectors = torch.randn(3, 8)
    int8, bf16, fp32 = (packed(vectors, stored_as) for stored_as in ("int8", "bf16", "fp32"))
    assert int8.vectors.dtype == torch.int8 and int8.scales.shape == (3,) and int8.rest is None
    assert (int8.vectors.abs().amax(1) == 127).all()  # all of the range is used
    assert bf16 == StoredVectors(bf16.vectors) and bf16.vectors.dtype == torch.bfloat16
    assert fp32.vectors.dtype == torch.bfloat16 and fp32.rest.dtype == torch.int16 and fp32.scales is None
    assert torch.equal(fp32.vectors, bf16.vectors)  # a scan reads the first half as if it were bf16


def block(stored_as, alive=None):
    vectors = torch.randn(11, 4, generator=torch.Generator().manual_seed(1))
    stored = packed(vectors, stored_as)
    norms = torch.linalg.vector_norm(unpacked(stored), dim=1)
    return VectorBlock(100, stored.vectors, norms, stored.scales, stored.rest, alive)


@pytest.mark.parametrize("alive", [None, torch.arange(11) % 3 > 0])
@pytest.mark.parametrize("stored_as", STORED_AS)
def test_parts_of_a_block_are_the_block(stored_as, alive):
    whole = block(stored_as, alive)
    for rows in (1, 4, 11, 99):
        parts = list(whole.split(rows))
        assert [part.start for part in parts] == list(range(100, 111, rows))
        assert [len(part.vectors) for part in parts] == [min(rows, 111 - part.start) for part in parts]
        assert torch.equal(torch.cat([part.exact(slice(None)) for part in parts]), whole.exact(slice(None)))
        assert torch.equal(torch.cat([part.norms for part in parts]), whole.norms)
        if alive is None:
            assert all(part.alive is None for part in parts)
        else:
            assert torch.equal(torch.cat([part.alive for part in parts]), alive)
    assert torch.equal(whole.exact(torch.tensor([9, 2, 9])), whole.exact(slice(None))[[9, 2, 9]])


@pytest.mark.parametrize("stored_as", STORED_AS)
def test_a_block_goes_to_another_device_with_all_its_parts(stored_as):
    here = block(stored_as, torch.ones(11).bool())
    there = here.to(torch.device("meta"))
    assert there.start == 100
    for part, moved in zip(here[1:], there[1:], strict=True):
        assert (part is None) == (moved is None)
        assert moved is None or (moved.device.type, moved.shape, moved.dtype) == ("meta", part.shape, part.dtype)


def test_a_vector_of_zeros_has_no_scale_and_stays_one():
    stored = packed(torch.tensor([[0.0, 0.0], [1.0, -2.0]]), "int8")
    assert stored.scales[0] == 0 and stored.vectors[0].tolist() == [0, 0]
    assert unpacked(stored)[0].tolist() == [0, 0] and not stored.vectors[1].eq(0).any()
