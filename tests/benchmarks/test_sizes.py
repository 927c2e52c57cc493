"""The table of sizes: what is measured is near what the plan computes, and laws are found again."""

import multiprocessing

import pytest

from polyagents.benchmarks import sizes
from polyagents.index.faiss_index import INDEX_TYPES
from polyagents.index.plan import Law


@pytest.mark.slow
def test_rows_are_of_real_indexes_beside_the_plan(tmp_path, monkeypatch):
    def in_this_process(folder, width):
        here, there = multiprocessing.Pipe()
        sizes.search(folder, width, there)
        return here.recv()

    monkeypatch.setattr(sizes, "in_own_process", in_this_process)
    rows = sizes.beside_the_plan(sizes.measured(str(tmp_path), 600, 32))
    assert [(row["index"], row["by"]) for row in rows] == [
        (index_type, by) for index_type in INDEX_TYPES for by in ("measured", "computed")
    ]
    for measured, computed in zip(rows[::2], rows[1::2], strict=True):
        assert measured.keys() == computed.keys()
        assert computed["disk MB"] == pytest.approx(measured["disk MB"], rel=0.03)
        assert all(measured[name] > 0 for name in sizes.LAWS) and 0 < measured["recall@10"] <= 1
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
    monkeypatch.setattr(sizes, "LARGEST_GRAPH", 600 * 32 - 1)
    assert [row["index"] for row in sizes.measured(str(tmp_path), 600, 32)] == ["exact", "ivfpq"]


def test_a_law_is_found_again_from_its_own_figures():
    law = Law(3.0, 0.9, 0.4)
    figures = [(count, width, law(count, width)) for count in (1_000, 50_000) for width in (64, 256)]
    rows = [{"by": "measured", "index": "hnsw", "candidates": c, "width": w, "ms": ms} for c, w, ms in figures]
    rows += [row | {"by": "computed", "ms": 1.0} for row in rows] + [
        row | {"index": "exact", "ms": 9.0} for row in rows
    ]
    found = sizes.fitted(rows, "hnsw", "ms")
    assert [found[name] for name in Law._fields] == pytest.approx(law) and found["off by at most"] < 1e-9
