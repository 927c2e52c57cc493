"""`polyagents check_data`: each thing that spoils a training is seen, and a clean table is called clean."""

import json
import shlex

import pytest

from polyagents import InputError
from polyagents.__main__ import run_own


def rows(count, offset=0):
    return [{"context": f"question {i}", "label": f"answer {i}"} for i in range(offset, offset + count)]


@pytest.fixture
def said(tmp_path, capsys):
    def check(train, valid=None, *flags):
        for name, own in (("train", train), ("valid", rows(20, 10_000) if valid is None else valid)):
            (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, own)))
        run_own("check_data", [str(tmp_path), *flags])
        out = capsys.readouterr().out
        assert all(len(line) <= 80 or str(tmp_path) in line for line in out.splitlines())
        return " ".join(out.split())

    return check


def test_a_clean_table_has_no_warnings(said):
    alike = "unplug the {} , let it cool , and wipe it with a damp cloth ."  # but about other things
    out = said([row | {"label": alike.format(row["label"].split()[1])} for row in rows(600)])
    assert "Nothing to warn of." in out and "Warning" not in out
    assert "batches of 32 and 16 passes: 304 updates." in out and out.endswith("--backbone zoo:minilm")
    assert "620 examples" in out and "examples 600 20" in out and "context length 2 / 2 / 2" in out


def test_few_labels_in_nearly_equal_numbers_are_clean(said):
    routes = [{"context": f"c {i}", "label": ("returns", "repairs", "invoices")[i % 7 % 3]} for i in range(600)]
    assert "Nothing to warn of." in said(routes)


@pytest.mark.parametrize(
    ("train", "valid", "warning"),
    [
        (rows(30), None, "train has 30 examples, which is few"),
        (rows(600) + rows(3), None, "train: 3 examples with the context and label of another"),
        (
            [*rows(600), {"context": "question 0", "label": "b"}],
            None,
            "train: 1 example with the context of another, and",
        ),
        (rows(600), rows(9) + rows(3, 9_000), "valid: 9 of 12 examples in train as well"),
        (
            rows(600) + [{"context": f"c {i}", "label": "Ok !"} for i in range(100)],
            None,
            "14% of the labels are 'Ok !'",
        ),
        (
            [{"context": f"c {i}", "label": "yes" if i % 10 else "no"} for i in range(600)],
            None,
            "90% of the labels are 'yes'",
        ),
        (
            rows(600) + [{"context": "w " * 300, "label": "b"}] * 99,
            None,
            "14% of the contexts are longer than 270 words",
        ),
        ([*rows(600), {"context": "c", "label": "b", "candidates": ["a"]}], None, "candidates of 1 example lack the"),
        (
            [*rows(600), {"context": "c", "label": "b", "candidates": ["b", "b"]}],
            None,
            "1 example with a candidate more",
        ),
        (
            rows(600) + [{"context": f"c {n}", "label": "b", "candidates": ["b", *"cd"[:n]]} for n in (1, 2)],
            None,
            "an example has 2 to 3 candidates",
        ),
        ([{"context": f"c {i}", "label": "b"} for i in range(600)], None, "all labels are 'b'"),
        (
            [*rows(600), {"context": "c", "label": "Answer 7!"}],
            None,
            "1 pair of nearly equal labels, such as 'answer 7' and 'Answer 7!'.",
        ),
        (
            [*rows(600), {"context": "c", "label": "we ship in two days"}],
            [{"context": "d", "label": "We ship orders in two days."}, {"context": "e", "label": "..."}],
            "1 pair of nearly equal labels, such as 'we ship in two days' and 'We ship orders in two days.'",
        ),
        (
            [*rows(600), {"context": "['hi', 'you']", "label": '["b", "c"]'}, {"context": "[laughs]", "label": "[1]"}],
            None,
            "train: 2 contexts and labels written as a list, and read as one text with its brackets; give several",
        ),
    ],
)
def test_each_fault_is_one_warning(said, train, valid, warning):
    out = said(train, valid)
    assert warning in out


def test_lengths_in_tokens(said, tmp_path, monkeypatch):
    from backbones import save

    backbone = save("bert", tmp_path / "backbone")
    longer = [row | {"context": f"{row['context']} of the many that there are"} for row in rows(600)]
    out = said(longer, longer[:20], "--backbone", backbone, "--text-truncate", "3")
    assert "Lengths are in tokens:" in out and "100% of the contexts are longer than 3 tokens" in out


def test_the_command_can_be_pasted(tmp_path, capsys):
    (tmp_path / "my data.jsonl").write_text("\n".join(map(json.dumps, rows(600))))
    run_own("check_data", [str(tmp_path / "my data.jsonl")])
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert command[command.index("--table-path") + 1] == str(tmp_path / "my data.jsonl")


def test_a_single_file_is_divided(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("context,label\n" + "".join(f"question {i},answer {i}\n" for i in range(200)))
    run_own("check_data", [str(path)])
    out = capsys.readouterr().out
    assert "a tenth of the contexts each is valid and test" in out
    counts = [int(cell) for cell in next(line for line in out.splitlines() if line.startswith("examples")).split()[1:]]
    assert sum(counts) == 200 and all(counts)


def test_what_cannot_be_trained_on_is_refused(tmp_path):
    with pytest.raises(InputError, match="There is no file or folder"):
        run_own("check_data", [str(tmp_path / "nothing.csv")])
    (tmp_path / "valid.csv").write_text("context,label\na,b\n")
    with pytest.raises(InputError, match="name one of its files train"):
        run_own("check_data", [str(tmp_path)])
    (tmp_path / "train.csv").write_text("context,label\na,\n")
    with pytest.raises(InputError, match="has no label in train"):
        run_own("check_data", [str(tmp_path)])
