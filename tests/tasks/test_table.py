"""`-t polyagents.tasks.table`: CSV, JSON lines and Parquet become the same examples; what does not fit is refused."""

import csv
import gzip
import io
import json
import os
import re

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import evaluate, train
from teachers import label, teacher, told

from polyagents import InputError
from polyagents.errors import NoTestSplit
from polyagents.files import csv_rows, lines
from polyagents.tasks.streaming import blocks
from polyagents.tasks.table import agents
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
        path.write_text("\ufeff" + "\n".join(map(json.dumps, rows)))
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
    assert part_of(row["context"]) == part_of("hi\nhello\nany plans ?") == part_of("hi\r\nhello\rany plans ?")


def test_a_folder_says_its_splits_by_the_names_of_its_files(tmp_path):
    written(tmp_path / "train.csv", ROWS[:30])
    written(tmp_path / "dev.parquet", ROWS[30:36])
    assert len(told(TASK, "train", table_path=str(tmp_path))) == 30
    assert len(told(TASK, "valid", table_path=str(tmp_path))) == 6
    with pytest.raises(NoTestSplit, match=rf"^{re.escape(str(tmp_path))} has no test split"):
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
        ("a.csv", "context,label\na\n", "Row 1 of .* has 1 cell, and the first line 2"),
        ("a.csv", 'context,label\na,"b\n', "is not valid CSV in the row that begins with 'a,.*a quote is not closed"),
        ("a.csv", b"context,label\na,\xff\n", "is not in UTF-8"),
        ("a.jsonl", '{"context": "a", "label": ["b", " "]}', "Row 1 of .* has an empty context or label"),
        ("a.csv", "context,label,candidates\na,b,no\n", "Row 1 of .*: candidates is 'no'; write a JSON list"),
        ("a.csv", "context,label\n", "has no rows"),
        ("a.csv", "", "has no rows"),
        ("a.jsonl", '{"context": "a", "label": 3}', "Row 1 of .*: label is 3; give a text"),
        (
            "a.jsonl",
            '{"context": "a", "label": "b", "candidates": [1]}',
            "Row 1 of .*: candidates has 1 at place 0; give",
        ),
        ("a.jsonl", "{", "has a line that is not a JSON object"),
        ("a.jsonl", '{"context": "a", "label": {"text": "b"}}', "Row 1 of .*: label is .'text': 'b'.; give a text"),
        ("a.jsonl", '{"context": "a", "label": "b\\u0000"}', "Row 1 of .* has a NUL character"),
        ("a.jsonl", '{"context": "a", "label": "\\ud83d"}', "Row 1 of .*: label has half a character"),
        ("a.jsonl", '{"context": "a", "label": "b", "candidates": ["b", " "]}', "Row 1 of .* has an empty candidate"),
        ("a.csv", b"context,label\na,b\x00\n", "NUL"),
        ("a.csv", "context,label\na,b\n".encode("utf-16"), "is not in UTF-8, but in UTF-16"),
        ("a.csv", gzip.compress(b"context,label\na,b\n", mtime=0), "a.csv is compressed; decompress it"),
        ("a.csv", b"PK\x03\x04...", "a.csv is a zip archive, such as an Excel workbook; save"),
        ("a.jsonl", '[{"context": "a", "label": "b"}]', "give one object per line, without an array around them"),
        ("a.jsonl", '[\n{"context": "a", "label": "b"}\n]', "give one object per line, without an array around them"),
        ("a.csv", "context,label,label\na,b,c\n", "has more than one column 'label'"),
        ("a.csv", "context,label,note,note\na,b,c,d\n", "has more than one column 'note'"),
        (
            "a.csv",
            'context,label\na,"b"c\n',
            "is not valid CSV in the row that begins with 'a,.*a closed quote is followed by 'c",
        ),
        ("a.csv", "context,label\na,b\rc,d\n", "a carriage return stands alone"),
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


@pytest.mark.parametrize(
    "content", ["sep=;\r\n{}", '"sep=;"\r\n{}', "\r\n{}", "{}"], ids=["Excel's", "quoted", "blank", "plain"]
)
@pytest.mark.parametrize("rows", ["context;label;price, EUR", '"context";"label";"a, b"', '"note, old";context;label'])
def test_the_first_lines_say_what_divides_cells(content, rows, tmp_path):
    cells = {"context": "hi, you", "label": "fine"}
    rows += "\r\n" + ";".join(cells.get(name.strip('"'), "3") for name in rows.split(";"))
    (tmp_path / "train.csv").write_text("\ufeff" + content.format(rows), encoding="utf-8", newline="")
    (message,) = told(TASK, "train", table_path=str(tmp_path))
    assert (message["text"], label(message)) == ("hi, you", "fine")


def test_empty_columns_need_no_names(tmp_path):
    (tmp_path / "train.csv").write_bytes(b"context,label,,\r\r\nhi,fine,,\r\r\n")
    (message,) = told(TASK, "train", table_path=str(tmp_path))
    assert (message["text"], label(message)) == ("hi", "fine")


def test_csv_cells_are_as_long_as_lines_may_be_and_nothing_global_changes(tmp_path, monkeypatch):
    limit, long = csv.field_size_limit(), "yes, " * 100_000 + '"end"\n'
    examples = [{"context": long, "label": "x" * 200_000}, {"context": "b", "label": " c\t"}]
    written(tmp_path / "train.csv", examples)
    found = told(TASK, "train", table_path=str(tmp_path))
    assert [(m["text"], label(m)) for m in found] == [(one["context"], one["label"]) for one in examples]
    assert csv.field_size_limit() == limit == 131_072
    monkeypatch.setattr(csv_rows, "LONGEST", 1_000)
    (tmp_path / "train.csv").write_text('context,label\n"' + "a\n" * 10**6)
    with pytest.raises(
        InputError, match=r"in the row that begins with .* a quote is not closed within 1,00. characters"
    ):
        teacher(TASK, "train", table_path=str(tmp_path))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_pipes_and_lines_without_end_are_one_sentence(name, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=r"cannot be read .*it is a pipe or a device"):
        open_split(str(tmp_path), "train")
    if name != "a.parquet":
        (tmp_path / name).unlink()
        (tmp_path / name).write_bytes(b"x" * (lines.LONGEST + 1))
        with pytest.raises(InputError, match="has a line of more than 16,777,216 bytes"):
            open_split(str(tmp_path), "train")


def test_a_small_parquet_file_fills_no_memory(tmp_path):
    """A text that a row group has once is once in memory, however often it is meant."""
    path = tmp_path / "train.parquet"
    once = {"context": ["x" * 2**20], "label": ["a"], "candidates": ["y" * 2**20]}
    parts = {name: pa.array(texts).dictionary_encode().dictionary for name, texts in once.items()}
    table = {name: pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), parts[name]) for name in once}
    ends = pa.array(range(0, 4_001, 2), pa.int32())
    flat = pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int32()), parts["candidates"])
    table["candidates"] = pa.ListArray.from_arrays(ends, flat)
    pq.write_table(pa.table(table), path, compression="zstd", dictionary_pagesize_limit=2**30)
    assert path.stat().st_size < 3_000
    before = pa.default_memory_pool().max_memory()
    rows = open_split(str(tmp_path), "train").blocks[0].rows(["context", "label", "candidates"])
    assert len(rows) == 2_000 and rows[0]["context"] is rows[-1]["context"] and len(rows[-1]["context"]) == 2**20
    assert rows[0]["candidates"][0] is rows[-1]["candidates"][1]
    assert pa.default_memory_pool().max_memory() - before < 2**26


@pytest.mark.parametrize(
    ("column", "how"),
    [
        (pa.array(["x" * 1_000 + str(i) for i in range(300)]), {"column_encoding": {"context": "DELTA_BYTE_ARRAY"}}),
        (pa.array(["x" * 1_000 + str(i) for i in range(300)]), {}),
        (pa.nulls(300, pa.string()), {}),
        (pa.array([["a"] * 50] * 300), {}),
    ],
)
def test_a_row_group_has_a_limit_that_is_known_before_it_is_read(column, how, tmp_path, monkeypatch):
    pq.write_table(
        pa.table({"context": column, "label": ["a"] * 300}), tmp_path / "train.parquet", use_dictionary=False, **how
    )
    (block,) = open_split(str(tmp_path), "train").blocks
    assert block.rows(["context"])[7]["context"] == column.to_pylist()[7]
    monkeypatch.setattr(blocks, "GROUP_BYTES", 1 if column.null_count else 200_000)
    monkeypatch.setattr(blocks, "GROUP_CELLS", 400)
    with pytest.raises(InputError, match=r"Row group 1 of .* cells of up to .*write the file with smaller row groups"):
        block.rows(["context", "label"])


def test_too_few_rows_for_a_split(tmp_path):
    path = written(tmp_path / "a.jsonl", [{"context": "a", "label": "b"}])
    others = [split for split in ("train", "valid", "test") if split != part_of("a")]
    (tmp_path / "test.csv").write_text("context,label\n")
    with pytest.raises(NoTestSplit, match="no rows in test"):
        open_split(str(tmp_path), "test")
    for split in others:
        with pytest.raises(InputError, match=f"too few rows: .* none is in {split}"):
            open_split(str(path), split)


def test_nothing_is_there(tmp_path):
    with pytest.raises(InputError, match="needs --table-path"):
        teacher(TASK, "train")
    with pytest.raises(InputError, match="no such file or folder"):
        teacher(TASK, "train", table_path=str(tmp_path / "nothing"))


def test_an_evaluation_ranks_all_labels_of_train_and_valid(tmp_path):
    rows = [
        {"context": f"question {i}", "label": ["Same", "same."][i % 2] if i < 4 else f"answer {i}"} for i in range(9)
    ]
    rows += [{"context": "question 8", "label": "another right answer"}]
    for name, some in (("train", rows[:7]), ("valid", rows[7:]), ("test", [{"context": "q", "label": "new"}, rows[1]])):
        written(tmp_path / f"{name}.jsonl", some)
    answers = ["Same", *(f"answer {i}" for i in range(4, 9)), "another right answer"]
    found = {split: told(TASK, split, table_path=str(tmp_path)) for split in ("valid", "test")}
    valid, test = ([[*one["label_candidates"]] for one in some] for some in found.values())
    assert [{*answers} - {*one} for one in valid] == [set(), {"another right answer"}, {"answer 8"}]
    assert test == [["new", *answers], ["same.", *answers[1:]]]


def test_another_right_answer_to_a_context_is_no_candidate_in_whatever_row_it_is(tmp_path):
    labels = [("q", ["one", "two"]), ("q", "three"), ("r", "x")]
    written(tmp_path / "train.jsonl", [{"context": "q", "label": "four"}])
    written(tmp_path / "valid.jsonl", [{"context": context, "label": label} for context, label in labels])
    lists = [[*message["label_candidates"]] for message in told(TASK, "valid", table_path=str(tmp_path))]
    assert lists == [["one", "two", "x"], ["three", "x"], ["x", "four", "one", "two", "three"]]


@pytest.mark.parametrize("form", ["file", "empty files", "without labels", "no label at all"])
def test_an_evaluation_needs_no_other_split(form, tmp_path):
    contexts = [f"c{i}" for i in range(50) if part_of(f"c{i}") == "test"]
    rows = [{"context": context, "label": "" if "label" in form else "a"} for context in contexts]
    if form == "file":
        path = written(tmp_path / "a.csv", rows)
    else:
        path = tmp_path
        written(tmp_path / "test.csv", rows)
        for split in ("train", "valid") if form == "empty files" else ():
            (tmp_path / f"{split}.csv").write_text("context,label\n")
        if form == "without labels":
            written(tmp_path / "train.jsonl", [{"context": "q", "label": f"answer {i}"} for i in range(1_001)])
    found = told(TASK, "test", table_path=str(path))
    assert [message["text"] for message in found] == contexts
    assert {(*message["label_candidates"],) for message in found} == {() if "label" in form else ("a",)}


def test_an_evaluation_among_many_labels_asks_among_twenty(tmp_path, monkeypatch):
    monkeypatch.setattr(agents, "ANSWERS", 30)
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


@pytest.mark.slow
def test_a_model_learns_from_it(tmp_path):
    path = written(tmp_path / "a.csv", ROWS)
    task = ("-t", TASK, "--table-path", path)
    train("bi", tmp_path / "M", *task, "--candidates", "batch", "--max-train-steps", 3)
    report = evaluate(tmp_path / "M", *task, "-dt", "valid", "--eval-candidates", "batch")
    assert report["exs"] == len(expected("valid"))


@pytest.mark.slow
def test_a_training_that_could_not_be_validated_does_not_begin(tmp_path):
    table = tmp_path / "table"
    table.mkdir()
    written(table / "train.csv", ROWS)
    task = ("-t", TASK, "--table-path", table, "--candidates", "batch", "--max-train-steps", 3)
    with pytest.raises(InputError, match=r"has no valid split .*To evaluate on another task, give -et"):
        train("bi", tmp_path / "M", *task)
    assert not list(tmp_path.glob("M*"))
    few = ("--validation-max-exs", 8, "--short-final-eval", "true")
    train("bi", tmp_path / "M", *task, *few, "-et", "polyagents.tasks.sample", "--eval-candidates", "batch")
    assert (tmp_path / "M").exists()
