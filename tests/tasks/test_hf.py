"""`-t polyagents.tasks.hf`: columns of `datasets`, parquet and JSON lines become examples; others are refused."""

import json
from dataclasses import replace

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import evaluate, train
from teachers import label, teacher, told

from polyagents import InputError
from polyagents.errors import NoTestSplit
from polyagents.tasks.hf.splits import open_split
from polyagents.tasks.streaming import blocks
from polyagents.tasks.streaming.order import Spot

TASK = "polyagents.tasks.hf"
ROWS = {
    "query": [f"question {i}" for i in range(25)],
    "positive": [f"answer {i}" for i in range(25)],
    "negative_1": [f"wrong {i}" for i in range(25)],
    "negative_2": [None if i % 2 else f"worse {i}" for i in range(25)],
    "source": list(range(25)),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks so small that 25 rows have several."""
    monkeypatch.setattr(blocks, "ROWS", 4)


def some(count):
    """The first rows."""
    return {name: values[:count] for name, values in ROWS.items()}


def lines(columns):
    """Rows as JSON lines, with a blank line between them."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return "\n\n".join(map(json.dumps, rows)) + "\n"


def written(kind, folder):
    """25 rows to train on and 6 to validate with, as one kind of files."""
    data = datasets.DatasetDict(
        {"train": datasets.Dataset.from_dict(ROWS), "validation": datasets.Dataset.from_dict(some(6))}
    )
    if kind == "saved":
        data.save_to_disk(folder)
        return folder
    (folder / "data").mkdir(parents=True)
    for name, part in data.items():
        if kind == "parquet":
            part.select(range(2)).to_parquet(folder / "data" / f"{name}-00000-of-00002.parquet")
            part.select(range(2, len(part))).to_parquet(
                folder / "data" / f"{name}-00001-of-00002.parquet", batch_size=5
            )
        else:
            (folder / "data" / f"{name}.jsonl").write_text(lines(part.to_dict()))
    return folder


@pytest.fixture(params=["saved", "parquet", "jsonl"])
def data(request, tmp_path):
    """The same rows in each kind of files."""
    return written(request.param, tmp_path / "data set")


def expected(i):
    """What the teacher is to say of a row."""
    wrong = [f"wrong {i}"] + ([] if i % 2 else [f"worse {i}"])
    return f"question {i}", f"answer {i}", [f"answer {i}", *wrong]


def test_rows_are_examples(data):
    for datatype, count in (("train", 25), ("valid", 6)):
        found = told(TASK, datatype, hf_dataset=str(data))
        assert [(m["text"], label(m), list(m["label_candidates"])) for m in found] == [
            expected(i) for i in range(count)
        ]
    with pytest.raises(NoTestSplit, match="no test split"):
        teacher(TASK, "test", hf_dataset=str(data))


def test_an_empty_test_set_is_none(tmp_path):
    (tmp_path / "test.jsonl").write_text("")
    with pytest.raises(NoTestSplit, match="no rows in test"):
        open_split(str(tmp_path), "test")


def test_one_block_at_a_time_is_in_memory(data):
    table = open_split(str(data), "train")
    assert sum(table.sizes) == 25 and len(table.sizes) > 2
    loaded = []
    for number, block in enumerate(table.blocks):

        def load(columns, number=number, load=block.load):
            loaded.append(number)
            return load(columns)

        table.blocks[number] = replace(block, load=load)
    for number, size in enumerate(table.sizes):
        for row in range(size):
            table.example(Spot(number, row))
    assert loaded == list(range(len(table.sizes)))


def test_each_example_once_in_an_epoch_in_an_order_of_its_own(data):
    found = teacher(TASK, "train", hf_dataset=str(data))
    epochs = [[found.act()["text"] for _ in range(25)] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(ROWS["query"])
    assert epochs[0] != epochs[1] and ROWS["query"] not in epochs
    assert [teacher(TASK, "train", hf_dataset=str(data)).act()["text"] for _ in range(2)] == [epochs[0][0]] * 2


def test_a_single_file_is_the_training_set(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"anchor": "a\nb", "positive": ["c", "d"], "negatives": ["d", "e", ""]}) + "\n")
    (message,) = told(TASK, "train", hf_dataset=str(path))
    assert message["text"] == "a\nb" and list(message["labels"]) == ["c", "d"]
    assert list(message["label_candidates"]) == ["c", "d", "e"]
    with pytest.raises(InputError, match=r"has no valid split \(there: pairs.jsonl\)"):
        teacher(TASK, "valid", hf_dataset=str(path))


def test_a_data_set_without_splits_is_the_training_set(tmp_path):
    datasets.Dataset.from_dict({"question": ["a"], "answer": ["b"]}).save_to_disk(tmp_path / "one")
    (message,) = told(TASK, "train", hf_dataset=str(tmp_path / "one"))
    assert (message["text"], label(message), message.get("label_candidates")) == ("a", "b", None)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"sentence1": "a", "sentence2": "b"}, "sentence1, sentence2, and none of them is the text to reply to"),
        ({"query": "a", "text": "b"}, "none of them is the right reply; rename one to positive or answer"),
        ({"query": "a", "positive": "b", "label": 1}, "the column label, which says how right a pair is"),
        ({"query": "a", "positive": None}, "Row 1 of .* has no text in the column positive"),
        ({"query": " ", "positive": "b"}, "Row 1 of .* has no text in the column query"),
        ({"query": [], "positive": "b"}, "Row 1 of .* has no text in the column query"),
        ({"query": ["a", "b"], "positive": "b"}, "Row 1 of .* has 2 texts in the column query; join the turns"),
        ({"query": "a", "positive": 3}, "Row 1 of .*: positive is 3; give a text"),
        ({"query": "a", "positive": "b", "negative": [[]]}, r"Row 1 of .*: negative has \[\] at place 0"),
        ([], "has a line that is not a JSON object"),
        ("{", "has a line that is not a JSON object"),
    ],
)
def test_columns_that_do_not_fit(row, said, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(row if row == "{" else json.dumps(row))
    with pytest.raises(InputError, match=said) as refused:
        told(TASK, "train", hf_dataset=str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train.parquet", b"no", "cannot be read as a parquet file"),
        ("train.csv", b"a,b", "no train split"),
        ("train.jsonl", b"", "has no rows in train"),
        ("state.json", b"{", "cannot be read by datasets"),
        ("dataset_dict.json", b"[]", "cannot be read by datasets"),
    ],
)
def test_files_that_are_damaged(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said) as refused:
        teacher(TASK, "train", hf_dataset=str(tmp_path))
    assert "\n" not in str(refused.value)


def test_nothing_is_there(tmp_path):
    with pytest.raises(InputError, match="needs --hf-dataset"):
        teacher(TASK, "train")
    with pytest.raises(InputError, match="no such file or folder"):
        teacher(TASK, "train", hf_dataset=str(tmp_path / "nothing"))


@pytest.mark.slow
def test_a_model_learns_from_it(tmp_path):
    folder = written("parquet", tmp_path / "data set")
    task = ("-t", TASK, "--hf-dataset", folder, "--eval-candidates", "inline")
    for candidates in ("batch", "inline"):
        file = tmp_path / candidates / "M"
        train("bi", file, *task, "--candidates", candidates, "--max-train-steps", 3)
        assert evaluate(file, *task, "-dt", "valid")["exs"] == 6


@pytest.mark.parametrize(
    ("feature", "named"),
    [({"_type": kind}, kind) for kind in ("Image", "Audio", "Video", "Pdf", "Nifti")]
    + [({"_type": "Image", "decode": False}, "Image"), ({"_type": "List", "feature": {"_type": "Audio"}}, "Audio")],
)
def test_a_row_never_decides_what_is_fetched(feature, named, tmp_path, monkeypatch):
    """A cell of such a feature names a file, which may be at any address."""
    cell = {"bytes": None, "path": "http://127.0.0.1:9/x"}
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    column = pa.array([[cell]], pa.list_(kind)) if feature["_type"] == "List" else pa.array([cell], kind)
    datasets.Dataset(pa.table({"query": ["a"], "positive": column})).save_to_disk(tmp_path / "saved")
    info = tmp_path / "saved" / "dataset_info.json"
    content = json.loads(info.read_text())
    content["features"]["positive"] = feature
    info.write_text(json.dumps(content))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("something was asked for"))
    with pytest.raises(InputError, match=f"has no texts in the column positive, but {named}"):
        list(open_split(str(tmp_path / "saved"), "train"))
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"query": ["a"], "positive": column}), tmp_path / "files" / "train.parquet")
    with pytest.raises(InputError, match="column positive, is a StructArray and has no texts"):
        list(open_split(str(tmp_path / "files"), "train"))


def test_further_columns_may_hold_anything(tmp_path):
    image = pa.array(
        [{"bytes": None, "path": "http://127.0.0.1:9/x"}], pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    datasets.Dataset(pa.table({"query": ["a"], "positive": ["b"], "picture": image})).save_to_disk(tmp_path / "saved")
    (example,) = open_split(str(tmp_path / "saved"), "train")
    assert (example["text"], example["labels"]) == ("a", ["b"])
