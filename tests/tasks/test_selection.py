"""Ubuntu Corpus V1 and Douban: files of a label, a context and a reply in each line."""

import random
import shutil

import pytest
from commands import evaluate, train
from parlai.utils import misc
from teachers import label, plain, teacher, told
from test_tasks import FOLDER, SHORT

from polyagents import InputError
from polyagents.tasks import counts

UBUNTU, DOUBAN = "polyagents.tasks.ubuntu_v1", "polyagents.tasks.douban"
NAMES = {UBUNTU: ("train", "valid", "test"), DOUBAN: ("train", "dev", "test")}
SPLITS = [(task, split) for task in NAMES for split in ("train", "valid", "test")]
SIZES = {(UBUNTU, "valid"): 10, (UBUNTU, "test"): 10, (DOUBAN, "valid"): 2, (DOUBAN, "test"): 10}


@pytest.fixture
def datapath(tmp_path):
    """The samples where the real files belong."""
    for task in NAMES:
        name = task.split(".")[-1]
        shutil.copytree(FOLDER / name / "sample", tmp_path / name)
    return tmp_path


def lines(task, split):
    """The lines of a sample's file, divided."""
    name = NAMES[task][("train", "valid", "test").index(split)]
    path = FOLDER / task.split(".")[-1] / "sample" / f"{name}.txt"
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("task", NAMES)
def test_right_replies_are_trained_on(task):
    expected = [
        ("\n".join(filter(None, line[1:-1])), line[-1], None, True) for line in lines(task, "train") if line[0] == "1"
    ]
    assert list(map(plain, told(f"{task}:sample", "train"))) == expected and len(expected) >= 6


def test_utterances_are_lines_and_empty_ones_are_left_out():
    message = told(f"{UBUNTU}:sample", "train")[3]
    assert message["text"] == "is there a player for flash videos\ngnash but it is slow\nis the one of adobe any better"
    message = told(f"{DOUBAN}:sample", "train")[0]
    assert (message["text"], label(message)) == ("周末 想 去 爬山 有 人 一起 吗\n哪 座 山", "香山 早上 八点 出发")


@pytest.mark.parametrize(("task", "split"), SIZES)
def test_candidates_of_a_context_are_together_and_shuffled_by_its_number(task, split):
    size, rows, places, expected = SIZES[task, split], lines(task, split), set(), []
    for number in range(len(rows) // size):
        group = rows[number * size : (number + 1) * size]
        right = [row[-1] for row in group if row[0] == "1"]
        if 0 < len(right) < size:
            candidates = [row[-1] for row in group]
            given = random.Random(number + 1).sample(candidates, size)
            places.add(given.index(right[0]))
            expected.append(("\n".join(filter(None, group[0][1:-1])), right, given))
    random.seed(3)  # of the run, which must not matter
    messages = told(f"{task}:sample", split)
    assert [(m["text"], [*m["eval_labels"]], [*m["label_candidates"]]) for m in messages] == expected
    assert len(expected) >= 4 and len(places) > 1


def test_contexts_without_a_right_or_a_wrong_candidate_are_left_out(said):
    assert len(told(f"{DOUBAN}:sample", "test")) == 4 == len(lines(DOUBAN, "test")) // 10 - 2
    assert [
        text for text in said if "2 contexts of whose candidates none is right, or all are; they are skipped" in text
    ]


@pytest.mark.slow
def test_any_right_candidate_counts(tmp_path):
    train("bi", tmp_path / "M", "-t", f"{DOUBAN}:sample", *SHORT)
    report = evaluate(tmp_path / "M", "-t", f"{DOUBAN}:sample", "-dt", "test", "--metrics", "all")
    assert report["exs"] == 4 and report["hits@10"] == 1 and 1 <= report["rank"] <= 8


@pytest.mark.slow
@pytest.mark.parametrize("task", NAMES)
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_agents_train_and_rank(kind, task, tmp_path):
    report, test = train(kind, tmp_path / "M", "-t", f"{task}:sample", *SHORT)
    assert report["exs"] == len(told(f"{task}:sample", "valid")) and test["exs"] == len(told(f"{task}:sample", "test"))


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_the_users_files_are_read_below_datapath(task, split, datapath):
    expected = [message["text"] for message in told(f"{task}:sample", split)]
    assert [message["text"] for message in told(task, split, datapath)] == expected
    assert [message["text"] for message in told(task, f"{split}:stream", datapath)] == expected


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_samples_leave_nothing_behind(task, split):
    before = sorted(FOLDER.glob("*/sample/*"))
    assert teacher(f"{task}:sample", f"{split}:stream").num_examples() >= 4
    assert sorted(FOLDER.glob("*/sample/*")) == before


@pytest.mark.parametrize(
    ("task", "split", "what"),
    [
        (UBUNTU, "train", "16 lines, and Ubuntu V1 train has 1,000,000 as it was released"),
        (UBUNTU, "test", "50 lines, and Ubuntu V1 test has 500,000"),
        (DOUBAN, "valid", "12 lines, and Douban valid has 50,000"),
        (DOUBAN, "test", "60 lines, and Douban test has 10,000"),
    ],
)
def test_other_counts_than_those_released_are_said(task, split, what, datapath, said, monkeypatch):
    told(task, split, datapath)
    (sentence,) = (text for text in said if "scores do not compare" in text)
    assert what in sentence and str(datapath) in sentence
    said.clear()
    told(f"{task}:sample", split)
    found = {"Ubuntu V1": {"train": 16, "test": 50}, "Douban": {"valid": 12, "test": 60}}
    monkeypatch.setattr(counts, "RELEASED", found)
    monkeypatch.setattr(misc, "_seen_logs", set())
    told(task, split, datapath)
    assert not [text for text in said if "scores do not compare" in text]


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_missing_files_are_to_be_had_somewhere(task, split, tmp_path):
    name, files = task.split(".")[-1], ", ".join(f"{file}.txt" for file in NAMES[task])
    with pytest.raises(
        InputError, match=r"cannot be read \(No such file or directory\); it is not downloaded: put"
    ) as error:
        teacher(task, split, tmp_path)
    assert f"put {files} of " in str(error.value) and str(error.value).endswith(f" into {tmp_path / name}.")
    assert "on GitHub has a link" in str(error.value)


@pytest.mark.parametrize(
    ("split", "text", "sentence"),
    [
        ("train", b"", "train.txt is empty; it is not downloaded"),
        ("train", b"1\ta\tb\n1\ta\n", r"train.txt, line 2: not a label \(1 or 0\), a context and a reply"),
        ("train", b"1\ta\tb\n\n", "line 2: not a label"),
        ("train", b"2\ta\tb\n", "line 1: not a label"),
        ("train", b"1 a b\n", "line 1: not a label"),
        ("train", b"1\ta\tb\n1\t\xff\tb\n", "line 2 is not in UTF-8"),
        ("test", b"1\ta\tb\n" * 9 + b"0\tc\tb\n", "line 10: another context than in the line before, where 10 lines"),
        ("test", b"1\ta\tb\n" + b"0\ta\tb\n" * 12, "test.txt ends within a context: 3 of 10 lines; the file is cut"),
    ],
)
def test_damaged_files_are_named(split, text, sentence, datapath):
    (datapath / "ubuntu_v1" / f"{split}.txt").write_bytes(text)
    with pytest.raises(InputError, match=sentence) as error:
        teacher(UBUNTU, split, datapath)
    assert str(datapath) in str(error.value) and "\n" not in str(error.value)


def test_lines_end_where_a_line_ends(datapath, said):
    text = "\ufeff1\ta\u2028b\x0b c\td\x85e\r\n1\t\tb\r\n0\ta\t\r\n1\ta\t\r\n1\tf\tg"
    (datapath / "ubuntu_v1" / "train.txt").write_bytes(text.encode())
    assert [plain(message)[:2] for message in told(UBUNTU, "train", datapath)] == [("a b c", "d e"), ("f", "g")]
    assert [sentence for sentence in said if "2 right replies that are empty, or have no context" in sentence]
    (datapath / "ubuntu_v1" / "test.txt").write_bytes(b"1\ta\t\n" + b"1\ta\tb\n" + b"0\ta\tc\n" * 8)
    (message,) = told(UBUNTU, "test", datapath)
    assert label(message) == "b" and len(message["label_candidates"]) == 10


@pytest.mark.parametrize("task", NAMES)
def test_every_line_can_be_a_target(task):
    found = {(message["text"], label(message)) for message in told(f"{task}:sample", "train", every_utterance=True)}
    contexts = [list(filter(None, line[1:])) for line in lines(task, "train") if line[0] == "1"]
    assert found == {("\n".join(said[:place]), said[place]) for said in contexts for place in range(1, len(said))}
