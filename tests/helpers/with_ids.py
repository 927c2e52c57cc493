"""Candidates with ids and fields, filters, and what a loop finds with them."""

import operator

import numpy as np
import torch

WIDTH, MODEL = 16, "a" * 64
FIELDS = {"tenant": "text", "year": "int", "price": "float", "sale": "bool"}
DECLARED = ["tenant", "year:int", "price:float", "sale:bool"]
TENANTS = ["a", "b", "B", "é", "中", 'x" or true', "x'); drop table t; --", "\\", "", None]


def row(number):
    """A candidate; each value is now and then missing, and the tenant "rare" is one of a hundred."""
    found = {
        "id": f"id {number}",
        "text": str(number % 390),  # ten texts are there twice
        "tenant": "rare" if number % 100 == 7 else TENANTS[number % len(TENANTS)],
        "year": None if number % 13 == 0 else 2**60 + number % 9 - 4,
        "price": None if number % 11 == 0 else number % 7 / 4 - 0.5 or [0.0, -0.0][number % 2],
        "sale": None if number % 5 == 0 else number % 2 == 0,
        "ignored": [number],
    }
    return {name: value for name, value in found.items() if value is not None}


ROWS = [row(number) for number in range(400)]
FILTERS = [
    {"tenant": "rare"},
    {"tenant": "nobody"},
    {"tenant": ["a", "rare", "nobody"]},
    {"tenant": []},
    {"tenant": {"gte": "B", "lt": "b"}},
    {"tenant": {"gt": "a", "lte": "é"}},
    *({"tenant": tenant} for tenant in TENANTS if tenant is not None),
    {"year": 2**60},
    {"year": float(2**60)},
    {"year": {"gte": 2**60 + 1}},
    {"year": {"gt": 2**60 - 2, "lt": 2**60 + 1}},
    {"price": 0.25},
    {"price": [0, 1]},
    {"price": -0.0},
    {"price": {"lt": 0}},
    {"sale": True},
    {"sale": [True, False]},
    {"tenant": "a", "sale": False, "year": {"lte": 2**60}, "price": {"gte": -1}},
]


def meets(candidate, given):
    """Whether a candidate meets a filter: the obvious loop."""
    compare = {"gte": operator.ge, "gt": operator.gt, "lte": operator.le, "lt": operator.lt}

    def key(value):
        return value.encode() if isinstance(value, str) else value

    for name, wanted in given.items():
        own = candidate.get(name)
        if own is None:
            return False
        if isinstance(wanted, dict):
            if not all(compare[bound](key(own), key(value)) for bound, value in wanted.items()):
                return False
        elif own not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True


def encode(texts):
    every = torch.randn(1_000, WIDTH, generator=torch.Generator().manual_seed(0))
    return every[[int(text) for text in texts]]


def same(index, rows, asked, k, given):
    """Whether a search finds what a loop does; candidates of one text tie, to the rounding of their scores."""
    found = index.search(asked, k, index.filter(given))
    left = {one["id"]: one["text"] for one in rows if meets(one, given)}
    scores = asked.scores(encode(list(left.values()))).numpy() if left else np.empty((len(asked), 0))
    for hits, line in zip(found, scores, strict=True):
        order = np.argsort(-line)[:k]
        assert hits.texts == [list(left.values())[place] for place in order] == [left[name] for name in hits.ids]
        np.testing.assert_allclose(hits.scores, line[order], rtol=1e-5, atol=1e-6)
        assert len({*hits.ids}) == len(hits.ids) and hits.ids == index.ids_of(hits.indices)
    return all(hits.complete for hits in found)
