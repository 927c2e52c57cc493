"""The commands that others print can be pasted: a name with a blank stays one word."""

import shlex
from pathlib import Path

import pytest
import wiki_dump
from commands import own

MODEL = Path(__file__).parents[1] / "version_0_1" / "bi"
NAME = "two words"
PAIRS = ("build_pairs", "--source", "pairs.txt", "--outdir", NAME)
WIKI = ("build_wiki_search", "--source", "wiki.xml", "--outdir", NAME, "--workers", "1")
MINED = ("mine_negatives", "-mf", MODEL, "-t", "polyagents.tasks.table", "--table-path", "table", "--outfile")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (PAIRS, ("--pairs-path", NAME)),
        (
            WIKI,
            ("--wiki-search-path", NAME, "--eval-candidates", "fixed", "--fixed-candidates-path", f"{NAME}/pool.txt"),
        ),
        ((*MINED, f"{NAME}.txt"), ("--fromfile-datapath", f"{NAME}.txt")),
        ((*MINED, f"{NAME}.jsonl"), ("--hf-dataset", f"{NAME}.jsonl")),
        (("convert_weights", "-mf", MODEL, "--to", "model-file", "--out", NAME), ("-mf", NAME)),
    ],
    ids=lambda given: given[0],
)
def test_a_name_with_a_blank_is_one_word(arguments, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("pairs.txt").write_text("".join(f"line {i} of a text\n" for i in range(40)))
    Path("table").mkdir()
    Path("table/train.csv").write_text("context,label\nhi,hello\nhow are you,fine\n")
    Path("wiki.xml").write_bytes(wiki_dump.dump(30))
    own(*arguments)
    said = capsys.readouterr()
    assert shlex.join(expected) in said.out + said.err
