"""`-t polyagents.tasks.table`: CSV, JSON lines and Parquet become the same examples; what does not fit is refused."""

import csv
import io
import json

import datasets
import pytest
from commands import evaluate, train
from teachers import label, teacher, told

from polyagents import InputError
from polyagents.errors import NoTestSplit
from polyagents.tasks.streaming import blocks
from polyagents.tasks.table.splits import open_split, part_of

TASK = "polyagents.tasks.table"
ROWS = [
    {
        "context": f'hi\nquestion {i} , "or" so' if i % 3 else f"question {i}",
        "label": f"answer {i}",
        "candidates": None if i % 2 else [f"wrong {i}", f"answer {i}", "no"],
        "number": i,
    }
    for i in range(40)
]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks so small that 40 rows have several."""
    monkeypatch.setattr(blocks, "ROWS", 6)


def written(path, rows, delimiter=","):
    """The same rows as a file of the kind that its name says."""
    if path.suffix == ".parquet":
        datasets.Dataset.from_list(rows).to_parquet(path, batch_size=7)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        for row in rows:
            own = row.get("candidates")
            writer.writerow(row | ({} if "candidates" not in row else {"candidates": own and json.dumps(own)}))
        path.write_bytes(b"\xef\xbb\xbf" + buffer.getvalue().encode())
    return path


@pytest.fixture(params=["csv", "tsv", "csv;", "jsonl", "parquet"])
def file(request, tmp_path):
    delimiter = {"tsv": "\t", "csv;": ";"}.get(request.param, ",")
    return written(tmp_path / f"data.{request.param.strip(';')}", ROWS, delimiter)


def seen(message):
    """What a teacher says, as far as the rows decide it."""
    candidates = message.get("label_candidates")
    return message["text"], label(message), None if candidates is None else list(candidates)


def expected(split):
    """What the teacher is to say of a split of ROWS; None for candidates that it draws."""
    own = [row for row in ROWS if part_of(row["context"]) == split]
    return [(row["context"], row["label"], row["candidates"]) for row in own]


def without_drawn(message):
    """What a teacher says, without the candidates that it has drawn for an example that has none."""
    context, right, candidates = seen(message)
    has_own = next(row["candidates"] for row in ROWS if row["context"] == context)
    return context, right, candidates if has_own else None


def test_every_kind_of_file_has_the_same_examples(file):
    found = {
        split: [without_drawn(one) for one in told(TASK, split, table_path=str(file))] for split in ("valid", "test")
    }
    table = open_split(str(file), "train")
    found["train"] = [
        (one["context"], one["labels"][0], one["candidates"] and list(one["candidates"])) for one in table
    ]
    assert len(table.sizes) > 3
    for split, examples in found.items():
        assert examples == expected(split) and examples
    assert sum(map(len, found.values())) == len(ROWS)


def test_a_context_stays_in_its_split_whatever_else_is_there(tmp_path):
    some = written(tmp_path / "some.csv", ROWS[::2])
    in_some = {one["context"] for one in open_split(str(some), "test")}
    every = {one["context"] for one in open_split(str(written(tmp_path / "all.jsonl", ROWS)), "test")}
    assert in_some and in_some == every & {row["context"] for row in ROWS[::2]}


def test_a_list_of_turns_is_the_text_with_line_ends(tmp_path):
    row = {"context": ["hi", "hello", "any plans ?"], "label": ["i bake .", "to bake ."], "candidates": ["no ."]}
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    (message,) = told(TASK, "train", table_path=str(tmp_path))
    assert message["text"] == "hi\nhello\nany plans ?"
    assert list(message["labels"]) == ["i bake .", "to bake ."]
    assert list(message["label_candidates"]) == ["i bake .", "to bake .", "no ."]
    assert part_of(row["context"]) == part_of("hi\nhello\nany plans ?")


def test_a_folder_says_its_splits_by_the_names_of_its_files(tmp_path):
    written(tmp_path / "train.csv", ROWS[:30])
    written(tmp_path / "dev.parquet", ROWS[30:36])
    assert len(told(TASK, "train", table_path=str(tmp_path))) == 30
    assert len(told(TASK, "valid", table_path=str(tmp_path))) == 6
    with pytest.raises(NoTestSplit, match=r"--table-path .* has no test split"):
        teacher(TASK, "test", table_path=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.csv",
            "query,response\na,b\n",
            "has 'query', 'response', and needs context and label; did you mean 'query'",
        ),
        ("a.csv", "Context,label\na,b\n", "did you mean 'Context'. Rename it to context"),
        ("a.csv", "context,x\na,b\n", "name one of them label"),
        ("a.csv", "context,label\na,b,c\n", "Row 1 of .* has 3 cells, and the first line 2"),
        ("a.csv", 'context,label\na,"b\n', "is no CSV"),
        ("a.csv", b"context,label\na,\xff\n", "is not in UTF-8"),
        ("a.csv", "context,label\na,\n", "Row 1 of .* has an empty context or label"),
        ("a.csv", "context,label,candidates\na,b,no\n", "Row 1 of .*: candidates is 'no'; write a JSON list"),
        ("a.csv", "context,label\n", "has no rows"),
        ("a.csv", "", "has no rows"),
        ("a.jsonl", '{"context": "a", "label": 3}', "Row 1 of .*: label is 3; give a text"),
        ("a.jsonl", '{"context": "a", "label": "b", "candidates": [1]}', "Row 1 of .*: candidates is .1.; give a text"),
        ("a.jsonl", "{", "has a line that is not a JSON object"),
        ("a.jsonl", '{"context": "a", "label": {"text": "b"}}', "Row 1 of .*: label is .'text': 'b'.; give a text"),
        ("a.jsonl", '{"context": "a", "label": "b\\u0000"}', "Row 1 of .* has a NUL character"),
        ("a.jsonl", '{"context": "a", "label": "\\ud83d"}', "Row 1 of .* has half of a character"),
        ("a.jsonl", '{"context": "a", "label": "b", "candidates": ["b", " "]}', "Row 1 of .* has an empty candidate"),
        ("a.csv", b"context,label\na,b\x00\n", "NUL"),
        ("a.csv", "context,label\na,b\n".encode("utf-16"), "is not in UTF-8"),
        ("a.parquet", "no", "cannot be read as a parquet file"),
        ("a.txt", "a", "its name does not end in .csv"),
    ],
)
def test_what_does_not_fit_is_one_sentence(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=said) as refused:
        for split in ("train", "valid", "test"):
            if part_of("a") == split or "has no rows" in said:
                list(open_split(str(tmp_path / name), split))
    assert "\n" not in str(refused.value)


def test_too_few_rows_for_a_split(tmp_path):
    path = written(tmp_path / "a.jsonl", [{"context": "a", "label": "b"}])
    others = [split for split in ("train", "valid", "test") if split != part_of("a")]
    for split in others:
        with pytest.raises(InputError, match=f"too few rows: none of them is in {split}"):
            open_split(str(path), split)


def test_nothing_is_there(tmp_path):
    with pytest.raises(InputError, match="needs --table-path"):
        teacher(TASK, "train")
    with pytest.raises(InputError, match="no such file or folder"):
        teacher(TASK, "train", table_path=str(tmp_path / "nothing"))


def test_an_evaluation_without_candidates_asks_among_twenty(tmp_path):
    rows = [
        {"context": f"question {i}", "label": ["Same", "same."][i % 2] if i < 30 else f"answer {i}"} for i in range(90)
    ]
    rows += [{"context": "question 89", "label": "another right answer"}] * 60
    written(tmp_path / "valid.jsonl", rows)
    found = told(TASK, "valid", table_path=str(tmp_path))
    lists = [list(message["label_candidates"]) for message in found]
    assert {len(one) for one in lists} == {20}
    for message, candidates in zip(found, lists, strict=True):
        plain = [text.lower().rstrip(".") for text in candidates]
        assert candidates[0] == label(message) and len(set(plain)) == len(plain)
    assert any("another right answer" in one for one in lists[:89])  # but not where it is one, too
    assert "another right answer" not in lists[89]
    assert lists[60][1:] != lists[61][1:]  # drawn, not the first ones
    assert lists == [list(m["label_candidates"]) for m in told(TASK, "valid", table_path=str(tmp_path))]
    written(tmp_path / "train.jsonl", rows)
    assert "label_candidates" not in told(TASK, "train", table_path=str(tmp_path))[0]


def test_one_file_is_divided_and_a_sentence_says_so(tmp_path, said):
    path = str(written(tmp_path / "a.csv", ROWS))
    for split in ("train", "valid", "test"):
        teacher(TASK, split, table_path=path)
    assert len(said) == 1 and "eight in ten examples into train" in said[0] and path in said[0]


def test_a_spreadsheets_line_ends_are_line_ends(tmp_path):
    (tmp_path / "train.csv").write_bytes(b'context,label\r\n"hi\r\nhow are you ?",fine\r\n')
    (message,) = told(TASK, "train", table_path=str(tmp_path))
    assert (message["text"], label(message)) == ("hi\nhow are you ?", "fine")


def test_a_model_learns_from_it(tmp_path):
    path = written(tmp_path / "a.csv", ROWS)
    task = ("-t", TASK, "--table-path", path)
    train("bi", tmp_path / "M", *task, "--candidates", "batch", "--max-train-steps", 3)
    report = evaluate(tmp_path / "M", *task, "-dt", "valid", "--eval-candidates", "batch")
    assert report["exs"] == len(expected("valid"))


def test_a_training_that_could_not_be_validated_does_not_begin(tmp_path):
    table = tmp_path / "table"
    table.mkdir()
    written(table / "train.csv", ROWS)
    task = ("-t", TASK, "--table-path", table, "--candidates", "batch", "--max-train-steps", 3)
    with pytest.raises(InputError, match=r"has no valid split .*To evaluate on another task, give -et"):
        train("bi", tmp_path / "M", *task)
    assert not list(tmp_path.glob("M*"))
    train("bi", tmp_path / "M", *task, "-et", "polyagents.tasks.sample", "--eval-candidates", "batch")
    assert (tmp_path / "M").exists()
