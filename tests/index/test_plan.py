"""What `polyagents index plan` computes, beside indexes that are really built."""

import json
import os
import re

import pytest
import torch
from commands import own
from with_ids import DECLARED, ROWS

from polyagents.index.builder import CandidateEncoder
from polyagents.index.candidate_records import candidates_of
from polyagents.index.faiss_index import INDEX_TYPES, build_shortlist
from polyagents.index.filters import declared_fields
from polyagents.index.plan import RATES, TEXT, Law, Plan
from polyagents.index.shard import row_bytes
from polyagents.index.store import CandidateStore
from polyagents.index.stored_vectors import STORED_AS
from polyagents.models.bi import BiEncoder
from polyagents.models.formulas import ContextVectors
from polyagents.models.two_towers import Query

WIDTH = 64
PLAIN = [f"{'é' * (number % 9)} number {number}" for number in range(3_000)]
WITH_FIELDS = [one | {"id": f"{turn} {one['id']}"} for turn in range(8) for one in ROWS]


def encode(texts):
    return torch.randn(len(texts), WIDTH, generator=torch.Generator().manual_seed(len(texts)))


def file_of(folder, fields):
    """Candidates as plain lines, or with ids and fields."""
    path = folder / ("candidates.jsonl" if fields else "candidates.txt")
    path.write_text("\n".join(map(json.dumps, WITH_FIELDS) if fields else PLAIN))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [None, DECLARED], ids=["lines", "fields"])
@pytest.mark.parametrize("stored_as", STORED_AS)
@pytest.mark.parametrize("index_type", INDEX_TYPES)
def test_bytes_are_those_of_a_real_index(index_type, stored_as, fields, tmp_path, monkeypatch):
    file, declared = file_of(tmp_path, fields), declared_fields(fields)
    monkeypatch.setattr("polyagents.index.builder.SHARD", 1_500)  # several shards, the last not full
    store = CandidateStore.build(
        file, str(tmp_path / "index"), CandidateEncoder("m", encode, stored_as), fields=declared
    )
    if index_type != "exact":
        context = ContextVectors(torch.randn(1, 1, WIDTH), torch.ones(1, 1).bool())
        build_shortlist(store, index_type, Query(BiEncoder.__new__(BiEncoder), context))
    texts = candidates_of(file, declared)
    each = row_bytes(texts.part(0, len(texts)), WIDTH, stored_as, texts.records(0, len(texts)), declared)
    planned = Plan(len(store), WIDTH, index_type, each).figures()
    sizes = {name: os.path.getsize(os.path.join(store.folder, name)) / 1e6 for name in os.listdir(store.folder)}
    shards = sum(size for name, size in sizes.items() if name.endswith(".safetensors"))
    approximate = sum(size for name, size in sizes.items() if name.endswith(".faiss"))
    assert planned["shared MB"] == pytest.approx(shards, rel=0.01)
    assert planned["disk MB"] - planned["shared MB"] == pytest.approx(approximate, rel=0.05)
    assert planned["disk MB"] == pytest.approx(sum(sizes.values()), rel=0.02)


def test_texts_of_fields_are_counted_once_and_only_a_shard_is_looked_at(monkeypatch):
    monkeypatch.setattr("polyagents.index.shard.SHARD", 2)
    assert row_bytes([TEXT, TEXT, "x" * 9_999], 8, "int8") == row_bytes([TEXT], 8, "int8") == 8 + 4 + 4 + 60 + 8 + 16


def test_laws_grow_by_powers():
    law = Law(2.0, 0.5, 1.0)
    assert law(1_000_000, 384) == 2 and law(4_000_000, 384) == 4 and law(1_000_000, 768) == 4


def table(text):
    """The rows of a Markdown table, by column."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_the_command_has_a_row_for_each_size_and_type(capsys):
    own("index", "plan", "--candidates", "5m,0.1m,100k", "--width", "768", "--stored-as", "int8")
    rows = table(capsys.readouterr().out)
    assert [(row["candidates"], row["index"]) for row in rows] == [
        (count, index_type) for count in ("100,000", "5,000,000") for index_type in RATES
    ]
    assert [row["disk MB"] for row in rows[:2]] == ["86", "267"]  # 860 bytes each, and 1,808 of the graph
    assert "encoding s" not in rows[0]
    own("index", "plan", "--candidates", "12", "--width", "7")
    assert [row["index"] for row in table(capsys.readouterr().out)] == ["exact", "hnsw"]  # ivfpq is impossible


def test_a_file_is_counted_or_a_sample_and_a_model_is_timed(trained, tmp_path, capsys):
    file = file_of(tmp_path, DECLARED)
    given = ("-mf", trained("bi"), "--candidates-file", file, "--fields", ",".join(DECLARED), "--index-type", "exact")
    own("index", "plan", *given)
    own("index", "plan", *given, "--candidates", "32k")
    (whole,), (sample,) = map(
        table, re.findall(r"(?:\|.*\n)+", capsys.readouterr().out.replace("|\n| cand", "|\n\n| cand"))
    )
    assert (whole["candidates"], whole["width"], sample["candidates"]) == ("3,200", "128", "32,000")
    size = {name: float(row["shared MB"].replace(",", "")) for name, row in (("whole", whole), ("sample", sample))}
    assert size["sample"] == pytest.approx(10 * size["whole"], rel=0.02)
    assert float(sample["encoding s"].replace(",", "")) > float(whole["encoding s"].replace(",", "")) * 0.1 > 0


MISTAKES = [
    ("--width 384", "needs --candidates, such as 100k,5m"),
    ("--candidates 5m", "needs either --width, or --model-file"),
    ("--candidates 5q --width 384", "'5q' is not a number of candidates"),
    ("--candidates replies.txt", "--candidates-file takes a file of them"),
    ("--candidates 0 --width 384", "'0' is not a number of candidates"),
    ("--candidates 1m,, --width 384", "'' is not a number of candidates"),
    (f"--candidates {'9' * 400} --width 384", "is not a number of candidates"),
    ("--candidates 1m --width 65537", "65537 is too large"),
    ("--candidates 1m --width 384 --index-dir x", "--index-dir is not for polyagents index plan"),
    ("--candidates 1m --width 384 --ray auto", "--ray is not for polyagents index plan"),
    ("--candidates 1m --width 383 --index-type ivfpq", "needs a width divisible by 4"),
    ("--candidates 15 --width 384 --index-type ivfpq", "needs at least 16 candidates"),
    ("--candidates 1m --width 384 --fields tenant", "--fields is for --candidates-file"),
    ("--candidates-file none.txt --width 384", "none.txt cannot be read"),
]


@pytest.mark.parametrize(("line", "said"), MISTAKES)
def test_mistakes_are_one_sentence(line, said, ends_with_2):
    assert said in ends_with_2("index", "plan", *line.split())[-1]


def test_a_width_beside_a_model_is_refused(trained, ends_with_2):
    said = ends_with_2("index", "plan", "--candidates", "5m", "--width", "128", "-mf", trained("bi"))[-1]
    assert "needs either --width, or --model-file" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("status --index-dir x --width 3", "--width is for polyagents index plan"),
        ("status --index-dir x --candidates 3", "--candidates is for polyagents index plan"),
        ("status", "polyagents index status needs --index-dir or --index-url"),
    ],
)
def test_other_steps_know_nothing_of_plans(line, said, ends_with_2):
    assert said in ends_with_2("index", *line.split())[-1]
