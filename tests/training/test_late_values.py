"""Values that are read late: the same numbers as those that are read at once, and one wait for many."""

import pickle

import pytest
import torch
from parlai.core.metrics import AverageMetric, Metrics
from parlai.core.torch_generator_agent import PPLMetric

from polyagents.parlai_patches import late_metrics
from polyagents.parlai_patches.late_metrics import LateAverage, LatePerplexity, Term, each_of
from polyagents.training import late_values
from polyagents.training.late_values import LateValues, read_all


def batches(count, size=4):
    draw = torch.Generator().manual_seed(0)
    return [torch.rand(size, generator=draw) for _ in range(count)]


def test_values_have_their_names_and_rows():
    values = LateValues({"loss": torch.tensor([0.5, 2.0]), "rank": torch.tensor([3, 16_777_215])})
    assert values["rank"] == [3, 16_777_215] and values["loss"] == [0.5, 2.0]
    assert "mrr" not in values and values.get("mrr") is None and list(values) == ["loss", "rank"]
    read_all([LateValues({}), LateValues({"loss": torch.zeros(0)})])  # a process without examples


def test_many_batches_are_read_at_once(monkeypatch):
    reads, cat = [], torch.cat
    monkeypatch.setattr(late_values.torch, "cat", lambda tensors: reads.append(len(tensors)) or cat(tensors))
    many = [LateValues({"loss": one, "rank": one * 2}) for one in batches(5)]
    read_all([*many, many[0]])
    assert reads == [5]
    for values, one in zip(many, batches(5), strict=True):
        assert values["loss"] == one.tolist() and values["rank"] == (one * 2).tolist()
    assert reads == [5]


@pytest.mark.parametrize("unread", [50_000, 7])
def test_parlai_reports_the_averages_of_metrics_that_were_read_at_once(monkeypatch, unread):
    """Added to two sums of the same first metric, as ParlAI's `Metrics` does, and reported in between."""
    monkeypatch.setattr(late_metrics, "UNREAD", unread)
    late, at_once = Metrics(), Metrics()
    for number, one in enumerate(batches(6)):
        for metric in each_of(LateValues({"loss": one}), len(one))["loss"]:
            late.add("loss", metric)
        for value in one.tolist():
            at_once.add("loss", AverageMetric(value))
        for kind in ("report", "report_recent"):
            assert float(getattr(late, kind)()["loss"]) == pytest.approx(float(getattr(at_once, kind)()["loss"]))
        if number == 3:
            late.clear_recent(), at_once.clear_recent()
    assert late.report()["loss"]._denom == 24


def test_sums_of_different_metrics_and_across_processes():
    values = LateValues({"loss": torch.tensor([3.0, 5.0])})
    first, second = (LateAverage(Term(values, "loss", row), denom=2) for row in range(2))
    assert float(first + AverageMetric(1.0)) == pytest.approx(4 / 3)
    assert float((first + second) + (second + second)) == pytest.approx(18 / 8)
    sent = pickle.loads(pickle.dumps(first + second))
    assert type(sent) is AverageMetric and float(sent) == 2.0
    perplexity = LatePerplexity(Term(values, "loss", 0), 2) + LatePerplexity(Term(values, "loss", 1), 2)
    assert float(perplexity) == float(PPLMetric(8.0, 4)) and type(pickle.loads(pickle.dumps(perplexity))) is PPLMetric
    assert float(first) == 1.5 and float(first + None) == 1.5  # what was added to remains what it was
