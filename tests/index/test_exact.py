"""The exact search returns what scoring everything and sorting would, whatever the machine scans in."""

import dataclasses

import numpy as np
import pytest
import torch
from queries import poly_query

from polyagents.index import exact, resident
from polyagents.index import scan as module
from polyagents.index.exact import SCORED_AT_ONCE, score_all, search
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.resident import joined_blocks
from polyagents.index.scan import Scan, scan_precision
from polyagents.index.stored_vectors import Coarse, VectorBlock, packed, unpacked
from polyagents.models.formulas import poly_scores

KINDS = ["fp32", "bf16", "int8"]


@dataclasses.dataclass(eq=False)
class Stored:
    """Vectors as a store would hold them, in blocks of 70."""

    vectors: torch.Tensor
    kind: str
    alive: torch.Tensor | None = None
    is_coarse: bool = True  # False for a store of version 0.1.0

    def __len__(self):
        return len(self.vectors) if self.alive is None else int(self.alive.sum())

    def blocks(self):
        vectors, scales, rest = stored = packed(self.vectors, self.kind)
        norms = torch.linalg.vector_norm(unpacked(stored), dim=1)
        coarse = Coarse.of(stored) if self.is_coarse else None
        yield from VectorBlock(0, vectors, norms, scales, rest, self.alive, coarse).split(70)


def query(m, width=24, examples=5, seed=0, scale=1.0, sharpness=1.0):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(examples, m, width, generator=generator) * scale
    mask = torch.ones(examples, m).bool()
    mask[-1, m // 2 + 1 :] = False  # a short context
    return poly_query(vectors, mask, sharpness)


def candidates(count=300, width=24, seed=1):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, width, generator=generator)
    vectors[count // 2 :: 7] = vectors[3]  # ties
    vectors[-1] = 0.0
    return vectors


def brute_force(query, stored):
    """What the decision must be: every score in fp32 from what is stored."""
    vectors = unpacked(packed(stored.vectors, stored.kind))
    scores = poly_scores(query.context.vectors, query.context.mask, vectors, query.scorer.sharpness).numpy()
    if stored.alive is not None:
        scores[:, ~stored.alive.numpy()] = -np.inf
    return scores


SCANS = {"fp32": [torch.float32], "bf16": [torch.bfloat16, torch.float32], "int8": [torch.int8, torch.bfloat16]}


def fastest_in(name, monkeypatch):
    """Make a precision the fastest of this machine; the next one of SCANS is for what is not stored in int8."""
    monkeypatch.setattr(module, "scan_times", lambda *_: {kind: place for place, kind in enumerate(SCANS[name])})


def in_one_block(monkeypatch):
    """Search as on a GPU: over all vectors at once, which are kept on the device; returns what was proven there."""
    monkeypatch.setattr(exact, "resident", lambda vectors, device: joined_blocks(list(vectors.blocks()), device))
    proven, found = [], exact.search_resident

    def noted(*given):
        result = found(*given)
        proven.append(None if result is None else result.is_proven.tolist())
        return result

    monkeypatch.setattr(exact, "search_resident", noted)
    return proven


@pytest.fixture(params=["as it is", *SCANS, "gpu", "small gpu"])
def machine(request, monkeypatch):
    """What the CPU is fast in, or a search as on a GPU."""
    if request.param in SCANS:
        fastest_in(request.param, monkeypatch)
    if "gpu" in request.param:
        in_one_block(monkeypatch)
    if request.param == "small gpu":  # several parts, one or a few contexts at a time, few candidates scored
        for name, value in (("SCANNED", 1), ("SCORED", 1), ("GATHERED", 300 * 24)):
            monkeypatch.setattr(resident, name, value)


@pytest.mark.parametrize("m", [1, 4, 33])
@pytest.mark.parametrize(("kind", "is_coarse"), [*((kind, True) for kind in KINDS), ("bf16", False)])
@pytest.mark.parametrize(("scale", "sharpness"), [(1.0, 1.0), (0.01, 1.0), (30.0, 0.2), (0.2, 20.0)])
def test_a_search_finds_what_brute_force_finds(machine, m, kind, is_coarse, scale, sharpness):
    asked, stored = query(m, scale=scale, sharpness=sharpness), Stored(candidates(), kind, is_coarse=is_coarse)
    expected = brute_force(asked, stored)
    torch.testing.assert_close(score_all(asked, stored).numpy(), expected, rtol=1e-5, atol=1e-5 * scale)
    for k in (1, 10, 300, 999):
        found = search(asked, stored, k)
        for indices, scores, row in zip(found.indices, found.scores, expected, strict=True):
            assert len(set(indices.tolist())) == min(k, 300)
            np.testing.assert_allclose(scores, np.sort(row)[::-1][:k], rtol=1e-5, atol=1e-5 * scale)
            np.testing.assert_allclose(scores, row[indices], rtol=1e-5, atol=1e-5 * scale)


def test_equal_candidates_come_in_order(machine):
    stored = Stored(candidates()[3:4].repeat(200, 1), "bf16")
    assert search(query(4), stored, 12).indices.tolist() == [list(range(12))] * 5
    # Vectors of length 0, whose bound is their score: more than are scored at once, so that the bar is looked at.
    assert search(query(4), InMemoryCandidates([], torch.zeros(600, 24)), 12).indices.tolist() == [list(range(12))] * 5


@pytest.mark.parametrize("kind", KINDS)
def test_deleted_candidates_are_not_found(machine, kind):
    alive = torch.rand(300, generator=torch.Generator().manual_seed(0)) < 0.4
    stored = Stored(candidates(), kind, alive)
    expected = brute_force(query(4), stored)
    found = search(query(4), stored, 300)
    assert found.indices.shape == (5, int(alive.sum()))
    assert set(found.indices.flatten().tolist()) == set(alive.nonzero().flatten().tolist())
    np.testing.assert_allclose(
        found.scores, np.sort(expected)[:, ::-1][:, : found.scores.shape[1]], rtol=1e-5, atol=1e-4
    )
    assert (score_all(query(4), stored)[:, ~alive] == -torch.inf).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 16])
def test_bounds_are_never_below_the_score(machine, kind, m):
    """Also where everything that rounding can do to a number is in the data."""
    generator = torch.Generator().manual_seed(2)
    vectors = torch.randn(500, 48, generator=generator) * 10 ** torch.empty(500, 1).uniform_(-4, 4, generator=generator)
    for scale in (1e-3, 1.0, 1e3):
        asked, stored = query(m, width=48, scale=scale), Stored(vectors, kind)
        scan = Scan(asked.context)
        bounds = torch.cat([scan.largest_products(block) for block in stored.blocks()])
        assert (score_all(asked, stored) <= bounds.T).all()


@pytest.fixture(params=SCANS)
def scanned_in(request, monkeypatch):
    """The precision that the CPU is fastest in."""
    fastest_in(request.param, monkeypatch)
    return request.param


# How far a bound may lie above the largest dot product, as a part of the product of both lengths: what rounding loses
# in each precision, twice. Looser bounds would still find the best candidates, and score all others, too.
LOOSE = {
    ("fp32", "bf16"): 2**-12,
    ("fp32", "int8"): 2**-12,
    ("int8", "int8"): 0.04,
    ("int8", "bf16"): 0.08,
    ("int8", "fp32"): 0.08,
}


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_are_near_the_largest_product(scanned_in, kind):
    """Of each context for itself: here they differ in length by 10^4."""
    asked, stored = query(16, width=48, scale=0.01), Stored(candidates(200, width=48), kind)
    asked = poly_query(asked.context.vectors * 10.0 ** torch.arange(5)[:, None, None], asked.context.mask)
    scan = Scan(asked.context)
    bounds = torch.cat([scan.largest_products(block) for block in stored.blocks()])
    vectors = torch.cat([block.exact(slice(None)) for block in stored.blocks()])
    products = (vectors @ asked.context.vectors.transpose(1, 2)).masked_fill(
        ~asked.context.mask.unsqueeze(1), -torch.inf
    )  # [B, n, M]
    off = bounds.T - products.amax(2)
    lengths = vectors.norm(dim=1) * asked.context.vectors.norm(dim=2).amax(1, keepdim=True)
    assert (off >= 0).all()
    assert (off <= LOOSE.get((scanned_in, kind), 2**-6) * lengths + 1e-9).all()


UP = 1 + 2**-8 - 2**-16  # bf16 makes 1 of it


def levels(first, *others):
    """Numbers whose scale in int8 is 1, since the first is the largest: `others` as pairs of a number and how often."""
    return torch.cat([torch.tensor([float(first)]), *(torch.full((count,), number) for number, count in others)])


# A candidate and a context vector for which all that a bound adds is lost: errors point where the vectors point.
TIGHT = {
    "bf16, bf16": (torch.ones(257), torch.full((257,), UP)),  # the product, 257, is rounded to 256, too
    "bf16, fp32": (torch.full((257,), UP), torch.full((257,), UP)),
    "bf16, int8": (levels(127, (127.0, 128), (65.0, 1)), torch.full((130,), UP)),  # 16,448 is rounded to 16,384
    "fp32, fp32": (torch.full((64,), UP), torch.ones(64)),
    "int8, int8": (levels(127, (126.0, 999)), levels(127, (126.499, 999))),
    "int8, bf16": (levels(127, (100.5, 999)), levels(127, (126.499, 999))),
    "int8, fp32": (levels(127, (126.499, 999)), levels(127, (126.499, 999))),
    # What both lose: the rounded vectors are longer than the true ones.
    "int8, fp32, both": (levels(-127, (-25.501, 20_000), (0.0, 1)), levels(0, (25.501, 20_000), (127.0, 1))),
}


@pytest.mark.parametrize("case", TIGHT)
def test_nothing_that_a_bound_adds_could_be_a_tenth_smaller(case, monkeypatch):
    scanned, kind, *both = case.split(", ")
    fastest_in(scanned, monkeypatch)
    monkeypatch.setattr(module, "FP32_SUMS", 0.0)  # a margin for any order of a sum
    candidate, context = TIGHT[case]
    (block,) = Stored(candidate.unsqueeze(0), kind).blocks()
    vectors = torch.stack([context, context if both else 0 * context])  # the second one adds nothing
    bound = Scan(poly_query(vectors.unsqueeze(0), torch.ones(1, 2).bool()).context).largest_products(block).item()

    candidate = block.exact(slice(None))[0].double()  # as it is stored
    context = context.double()
    low = context.round() if scanned == "int8" else context.to(torch.bfloat16 if scanned == "bf16" else context.dtype)
    stored = candidate.round() if scanned == "int8" else candidate.to(torch.bfloat16).double()
    lost_by_context, lost_by_candidate = (low - context).norm(), (stored - candidate).norm()
    added = {
        "product": 2**-7.9 * float(stored @ low.double()) if scanned == "bf16" else 0.0,
        "context": float(lost_by_context * candidate.norm()),
        "candidate": float(lost_by_candidate * context.norm()),
        "both": float(lost_by_context * lost_by_candidate),
    }
    product = float(candidate @ context)
    assert bound >= product
    large = {name: size for name, size in added.items() if size > 1e-3 * abs(product) or name in both}
    assert large and all(bound - 0.1 * size < product for size in large.values()), (bound - product, large)


def test_sums_in_fp32_that_lose_at_each_step_stay_below_the_bound(monkeypatch):
    """Numbers are added one after the other, and half a unit of the sum is lost each time: 2^-14 of it."""
    monkeypatch.setattr(module, "multiply", lambda candidates, context: (candidates * context).cumsum(1)[:, -1:])
    context = torch.full((1, 2_048), 1 + 2**-14 - 2**-20)
    block = VectorBlock(0, torch.ones(1, 2_048), torch.full((1,), 2_048**0.5))
    fastest_in("fp32", monkeypatch)
    scan = Scan(poly_query(context.unsqueeze(0), torch.ones(1, 1).bool()).context)
    assert scan.largest_products(block).item() >= context.double().sum()


def test_a_product_that_is_rounded_down_is_still_below_its_bound(scanned_in):
    """Both factors are exact in bf16, and 2 + 2^-7 is none: it becomes 2."""
    asked = poly_query(torch.ones(1, 1, 2), torch.ones(1, 1).bool())
    stored = Stored(torch.tensor([[1.0, 1.0 + 2**-7]]), "bf16")
    (block,) = stored.blocks()
    assert Scan(asked.context).largest_products(block).item() >= 2 + 2**-7


@pytest.mark.parametrize(("kind", "is_coarse"), [*((kind, True) for kind in KINDS), ("bf16", False)])
def test_the_precision_of_a_scan(scanned_in, kind, is_coarse):
    (block,) = Stored(candidates(20), kind, is_coarse=is_coarse).blocks()
    expected = "bf16" if scanned_in == "int8" and not is_coarse else scanned_in
    assert scan_precision(block, 64) == SCANS[expected][0]
    elsewhere = block.to(torch.device("meta"))  # a GPU has bf16, which holds an int8 exactly
    assert scan_precision(elsewhere, 64) == torch.bfloat16 and elsewhere.coarse is None


@pytest.mark.parametrize("fast", [{"int8"}, {"bf16"}, {"int8", "bf16"}, set()])
def test_a_machine_measures_what_it_may_be_fast_in(fast, monkeypatch):
    for kind in ("int8", "bf16"):
        monkeypatch.setattr(module, f"has_{kind}", lambda kind=kind: kind in fast)
    monkeypatch.setattr(module, "measured_once", lambda what, ways: {name: way().size(1) for name, way in ways.items()})
    module.scan_times.cache_clear()
    for wide, asked in ((True, 64), (False, 16)):
        times = module.scan_times(24, wide)
        assert {str(kind).removeprefix("torch.") for kind in times} == {
            "float32", *({"int8": "int8", "bf16": "bfloat16"}[kind] for kind in fast)
        }  # fmt: skip
        assert set(times.values()) == {asked}
    module.scan_times.cache_clear()


def test_few_candidates_are_scored_in_fp32(monkeypatch):
    """The bounds are worth something: of 20,000, one portion of 256 is scored to find ten."""
    vectors, scored = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0)), []
    unpack = VectorBlock.exact
    monkeypatch.setattr(VectorBlock, "exact", lambda block, rows: scored.append(len(rows)) or unpack(block, rows))
    search(query(16, width=64, examples=1, scale=3.0), InMemoryCandidates([], vectors), 10)
    assert scored == [SCORED_AT_ONCE]


def test_scores_that_are_no_numbers_come_last(machine):
    vectors = candidates(40)
    vectors[7] = torch.nan
    found = search(query(3), InMemoryCandidates([], vectors), 40)
    assert (found.indices[:, -1] == 7).all() and (found.scores[:, -1] == -np.inf).all()
    asked = query(3)
    asked.context.vectors[0] = torch.nan
    found = search(asked, InMemoryCandidates([], candidates(40)), 3)
    assert found.indices[0].tolist() == [0, 1, 2]


def test_a_candidate_whose_bound_is_barely_above_the_bar_is_found(machine):
    """600 have the largest product, 10, and the score 5, the mean of 10 and 0; one has 5.03 and 5.03."""
    vectors = torch.tensor([[10.0, 0.0]] * 600 + [[5.03125, 5.03125]])
    asked = poly_query(torch.eye(2).unsqueeze(0), torch.ones(1, 2).bool(), 0.0)
    assert search(asked, Stored(vectors, "bf16"), 1).indices.tolist() == [[600]]


@pytest.mark.parametrize(("count", "k"), [(0, 3), (7, 0), (7, 1), (7, 9)])
def test_shapes_and_types_of_what_is_found(machine, count, k):
    found = search(query(2), InMemoryCandidates([], torch.randn(count, 24)), k)
    assert found.indices.shape == found.scores.shape == (5, min(k, count))
    assert (found.indices.dtype, found.scores.dtype) == (np.int64, np.float32)


def test_vectors_of_one_number():
    asked, stored = query(3, width=1), Stored(candidates(20, width=1), "bf16")
    expected = brute_force(asked, stored)
    torch.testing.assert_close(score_all(asked, stored).numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(search(asked, stored, 20).scores, np.sort(expected)[:, ::-1], rtol=1e-5, atol=1e-5)


def test_a_search_in_one_block_proves_its_answer_where_it_can(monkeypatch):
    """Few bounds decide; where as many candidates as were scored are equally good, the other search does."""
    proven = in_one_block(monkeypatch)
    vectors = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    stored = InMemoryCandidates([], vectors)
    found, expected = search(query(16, width=64), stored, 10), exact.search_blocks(query(16, width=64), stored, 10)
    np.testing.assert_array_equal(found.indices, expected.indices)
    equal = InMemoryCandidates([], torch.zeros(2_000, 64))
    assert search(query(16, width=64), equal, 10).indices.tolist() == [list(range(10))] * 5
    monkeypatch.setattr(resident, "GATHERED", 1)
    search(query(16, width=64), stored, 10)
    assert proven == [[True] * 5, [False] * 5, None]


def test_deleted_candidates_do_not_cost_the_proof(monkeypatch):
    """The first thousand, which are deleted, are the longest, and have the highest bounds."""
    proven = in_one_block(monkeypatch)
    lengths = torch.linspace(9, 1, 2_000).unsqueeze(1)
    vectors = torch.randn(2_000, 64, generator=torch.Generator().manual_seed(0)) * lengths
    search(query(16, width=64), Stored(vectors, "fp32", torch.arange(2_000) >= 1_000), 10)
    assert proven == [[True] * 5]


def test_blocks_are_joined_with_all_that_they_have():
    alive = torch.rand(300, generator=torch.Generator().manual_seed(0)) < 0.4
    for kind in KINDS:
        stored = Stored(candidates(), kind, alive)
        first, second, *rest = stored.blocks()
        whole = joined_blocks([first, second._replace(alive=None), *rest], torch.device("cpu"))
        assert torch.equal(whole.exact(slice(None)), unpacked(packed(candidates(), kind)))
        assert torch.equal(whole.alive, torch.cat([alive[:70], torch.ones(70).bool(), alive[140:]]))
        assert (whole.start, len(whole.norms), whole.coarse) == (0, 300, None)


@pytest.mark.gpu
@pytest.mark.parametrize("m", [1, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_finds_what_the_cpu_finds(m, kind):
    asked, stored = query(m), InMemoryCandidates([], candidates()) if kind == "fp32" else Stored(candidates(), kind)
    there = poly_query(asked.context.vectors.cuda(), asked.context.mask.cuda(), asked.scorer.sharpness)
    for _ in range(2):  # the second time from the GPU's own memory
        ours, theirs = search(there, stored, 10), search(asked, stored, 10)
        np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-4)


@pytest.mark.gpu
def test_a_gpus_bounds_hold_over_100_000_candidates_of_width_768():
    """Of products in bf16 whose sums are in fp32: sums in bf16 would lose more than the bounds add."""
    generator = torch.Generator().manual_seed(0)
    stored = InMemoryCandidates([], torch.randn(100_000, 768, generator=generator))
    asked = query(64, width=768)
    there = poly_query(asked.context.vectors.cuda(), asked.context.mask.cuda(), asked.scorer.sharpness)
    scan, begin = Scan(there.context), 0
    for block in exact.blocks_on(stored, torch.device("cuda")):
        for part in block.split(4_096):
            products = part.exact(slice(None)).double() @ there.context.vectors.double().flatten(0, 1).T
            largest = products.unflatten(1, (5, 64)).masked_fill(~there.context.mask, -torch.inf).amax(2)
            assert (scan.largest_products(part).double() >= largest).all()
            begin += len(part.vectors)
    assert begin == 100_000
    ours, theirs = search(there, stored, 10), search(asked, stored, 10)
    np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-4)
    assert ours.indices.tolist() == theirs.indices.tolist()
