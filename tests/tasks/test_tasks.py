"""Our teachers beside ParlAI's, on their made-up samples; test_real_data.py compares the two on real text."""

import csv
import json
import os
import random
import re
import shutil
from pathlib import Path

import pytest
from commands import evaluate, run, train
from parlai.core.loader import load_world_module
from teachers import label, plain, teacher, told

from polyagents import InputError
from polyagents.errors import NoTestSplit
from polyagents.tasks import counts, dstc7, one_message
from polyagents.tasks.dstc7.dialogues import read_dialogues
from polyagents.tasks.ubuntu.rows import EVALUATION

FOLDER = Path(dstc7.__file__).parents[1]
DSTC7, UBUNTU, CONVAI2 = (f"polyagents.tasks.{name}" for name in ("dstc7", "ubuntu", "convai2"))
TASKS = {DSTC7: ("train", "valid", "test"), UBUNTU: ("train", "valid", "test"), CONVAI2: ("train", "valid")}
SPLITS = [(task, split) for task, splits in TASKS.items() for split in splits]
CANDIDATES = {DSTC7: 100, UBUNTU: 10, CONVAI2: 20}
SHORT = ("--max-train-steps", "2", "--short-final-eval", "true", "--validation-max-exs", "8")


@pytest.fixture
def datapath(tmp_path):
    """The samples where ParlAI would have downloaded the real files to."""
    for task, folder, version in (
        ("dstc7", "dstc7", "2.0"),
        ("ubuntu", "Ubuntu", None),
        ("convai2", "ConvAI2", "v5.0"),
    ):
        shutil.copytree(FOLDER / task / "sample", tmp_path / folder)
        (tmp_path / folder / ".built").write_text("now" + (f"\n{version}" if version else ""))
    for file in (tmp_path / "ConvAI2").glob("*.txt"):
        file.rename(file.with_name(f"{file.stem}_self_original.txt"))
    return tmp_path


def rewrite(file, change):
    """Change the text of a file."""
    file.write_text(change(file.read_text()))


# ---- all three -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_samples_need_no_download_and_leave_nothing_behind(task, split, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(FOLDER.glob("*/sample/*"))
    for datatype in (split, f"{split}:stream"):
        found = teacher(f"{task}:sample", datatype, tmp_path / "data")
        assert found.num_examples() >= 4
        found.act()
    assert sorted(FOLDER.glob("*/sample/*")) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_each_label_is_among_the_candidates_as_often_as_the_paper_has_it(task, split):
    for message in told(f"{task}:sample", split):
        if split == "train" and task != CONVAI2:
            assert "label_candidates" not in message
        else:
            assert len(message["label_candidates"]) == CANDIDATES[task]
            assert message["label_candidates"].count(label(message)) == 1


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_the_same_order_in_every_run(task, split):
    random.seed(1)
    first = list(map(plain, told(f"{task}:sample", split)))
    random.seed(2)
    assert list(map(plain, told(f"{task}:sample", split))) == first


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_replies_are_one_line_so_that_a_candidates_file_holds_them(task, split):
    for message in told(f"{task}:sample", split):
        assert not any("\n" in text for text in [label(message), *message.get("label_candidates", ())])


@pytest.mark.parametrize("task", TASKS)
def test_training_never_ends(task):
    found = teacher(f"{task}:sample", "train")
    messages = [found.act() for _ in range(found.num_examples() + 10)]
    assert all("labels" in message for message in messages)
    assert not found.epoch_done()


@pytest.mark.parametrize("datatype", ["train", "train:stream"])
@pytest.mark.parametrize("task", TASKS)
def test_the_files_of_parlai_are_read_where_they_are(task, datatype, datapath):
    expected = {plain(message)[:2] for message in told(f"{task}:sample", "train")}
    found = teacher(task, datatype, datapath)
    assert {plain(found.act())[:2] for _ in range(20 * found.num_examples())} == expected


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "task"), [("bi", UBUNTU), ("cross", DSTC7), ("poly", CONVAI2)])
def test_agents_train_on_them_and_rank_all_candidates(kind, task, tmp_path):
    file = tmp_path / "M"
    report, _ = train(kind, file, "-t", f"{task}:sample", *SHORT)
    again = evaluate(file, "-t", f"{task}:sample", "-dt", "valid", "--batchsize", "3", "--metrics", "all")
    assert again["exs"] == len(told(f"{task}:sample", "valid"))  # every example once, whatever the batch
    assert again["hits@1"] == pytest.approx(float(report["hits@1"]), abs=1e-6)
    assert again["hits@100"] == 1
    assert 1 <= again["rank"] <= CANDIDATES[task]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_streams_train(task, datapath):
    flags = ("-t", task, "-dp", datapath, "-dt", "train:stream", *SHORT)
    report, _ = train("bi", datapath / "M", *flags)
    assert report["exs"] == min(8, len(told(f"{task}:sample", "valid")))


def test_each_process_evaluates_its_share(monkeypatch):
    every, shares = told(f"{DSTC7}:sample", "valid"), []
    monkeypatch.setattr(one_message, "num_workers", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(one_message, "get_rank", lambda rank=rank: rank)
        shares += told(f"{DSTC7}:sample", "valid")
        assert teacher(f"{DSTC7}:sample", "train").num_examples() == 37
    assert sorted(map(plain, shares)) == sorted(map(plain, every))


# ---- counts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "split", "what"),
    [
        (DSTC7, "train", "10 dialogues, and DSTC7 train has 100,000"),
        (DSTC7, "test", "4 dialogues, and DSTC7 test has 5,000"),
        (UBUNTU, "train", "21 rows, and Ubuntu V2 train has 1,000,000"),
        (UBUNTU, "valid", "8 rows, and Ubuntu V2 valid has 19,560"),
        (CONVAI2, "train", "11 examples, and ConvAI2 train has 131,438"),
        (CONVAI2, "valid", "7 examples, and ConvAI2 valid has 7,801"),
    ],
)
def test_other_counts_than_the_papers_are_said(task, split, what, datapath, said):
    told(task, split, datapath)
    (sentence,) = (text for text in said if "Table 1" in text)
    assert what in sentence and str(datapath) in sentence and "do not compare" in sentence


def test_a_training_says_a_count_once_per_file(datapath, said):
    train("bi", datapath / "M", "-t", UBUNTU, "-dp", datapath, *SHORT)
    files = [text.split(" ")[0] for text in said if "Table 1" in text]
    assert sorted(files) == [str(datapath / "Ubuntu" / f"{split}.csv") for split in ("test", "train", "valid")]
    assert sum("negatives (label 0) are skipped, 7 of 21 rows." in text for text in said) == 1


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_nothing_is_said_of_the_papers_own_counts(task, split, datapath, said, monkeypatch):
    found = {"DSTC7": (10, 4, 4), "Ubuntu V2": (21, 8, 9), "ConvAI2": (11, 7, 0)}
    table = {name: dict(zip(("train", "valid", "test"), numbers, strict=True)) for name, numbers in found.items()}
    monkeypatch.setattr(counts, "TABLE_1", table)
    told(task, split, datapath)
    assert not any("Table 1" in text for text in said)


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_nothing_is_said_of_a_sample_or_of_a_stream(task, split, datapath, said):
    told(f"{task}:sample", split)
    if task != DSTC7:  # which is read as a whole anyway
        teacher(task, f"{split}:stream", datapath).act()
    assert not any("Table 1" in text for text in said)


# ---- DSTC7 ---------------------------------------------------------------------------------------------------------


def test_every_message_after_the_first_is_a_target():
    expected = []
    for dialogue in json.loads((FOLDER / "dstc7/sample/ubuntu_train_subtask_1.json").read_text()):
        said = dialogue["messages-so-far"]
        lines = [f"{message['speaker'].replace('_', ' ')}: {message['utterance']}\n" for message in said]
        labels = [message["utterance"] for message in said + dialogue["options-for-correct-answers"]]
        expected += [("".join(lines[:place]), labels[place]) for place in range(1, len(labels))]
    assert [plain(message)[:2] for message in told(f"{DSTC7}:sample", "train")] == expected


def test_an_empty_message_is_no_target(datapath):
    file = datapath / "dstc7" / "ubuntu_train_subtask_1.json"
    rewrite(file, lambda text: text.replace('"thanks, it works"', '""'))
    found = told(DSTC7, "train", datapath)
    assert len(found) == 36 and all(map(label, found))
    assert "participant 1: \n" in found[3]["text"]


def test_valid_is_as_parlai_has_it(datapath):
    assert list(map(plain, told(DSTC7, "valid", datapath))) == list(map(plain, told("dstc7", "valid", datapath)))


def test_the_answers_of_test_are_found_by_their_id(datapath):
    mine, theirs = told(DSTC7, "test", datapath), told("dstc7", "test", datapath)
    assert [message["text"] for message in mine] == [message["text"] for message in theirs]
    # The spaces differ in the answers' file, and where the text is compared it becomes one more candidate.
    assert [len(message["label_candidates"]) for message in theirs] == [101, 101, 101, 100]
    assert {len(message["label_candidates"]) for message in mine} == {100}
    assert label(mine[0]) == "mostly , but make a backup before you start"


def test_an_answer_without_a_known_id_is_found_by_its_text(datapath):
    rewrite(datapath / "dstc7" / "ubuntu_dev_subtask_1.json", lambda text: text.replace('"candidate-id"', '"id"'))
    expected = list(map(plain, told(f"{DSTC7}:sample", "valid")))
    assert list(map(plain, told(DSTC7, "valid", datapath))) == expected


def cut(text):
    return text[: len(text) // 2]


def no_text(text):
    """The first message of all says nothing."""
    return re.sub('("utterance": )".*?"', r"\1null", text, count=1)


@pytest.mark.parametrize(
    ("name", "split", "change", "sentence"),
    [
        ("train_subtask_1.json", "train", cut, r"is damaged after its example [45] \(not JSON there\)"),
        ("train_subtask_1.json", "train", lambda text: "", "is damaged after its example 0"),
        ("train_subtask_1.json", "train", lambda text: "[]", "has no examples"),
        ("dev_subtask_1.json", "valid", lambda text: '[{"text": "hi"}]', "example 1: .*'example-id'"),
        ("dev_subtask_1.json", "valid", lambda text: "[7]", "example 1: not in the format"),
        ("train_subtask_1.json", "train", no_text, "example 1: .*an utterance is None"),
        ("dev_subtask_1.json", "valid", no_text, "example 1: .*an utterance is None"),
        ("test_subtask_1.json", "test", cut, "is damaged after its example [12]"),
        ("responses_subtask_1.tsv", "test", cut, "(no answer for example-id 3|after line 2)"),
        ("responses_subtask_1.tsv", "test", lambda text: text.replace("\t", " "), "after line 0: not an example's id"),
        (
            "responses_subtask_1.tsv",
            "test",
            lambda text: "".join(f"{number}\tFFFFFFFFFF\tnever said\n" for number in range(1, 5)),
            "example-id 1: the correct answer is not among the candidates",
        ),
    ],
)
def test_damaged_dialogues_are_named(name, split, change, sentence, datapath):
    rewrite(datapath / "dstc7" / f"ubuntu_{name}", change)
    with pytest.raises(InputError, match=sentence) as error:
        teacher(DSTC7, split, datapath)
    assert f"{datapath}/dstc7/ubuntu_" in str(error.value) and "\n" not in str(error.value)


def test_a_dialogue_is_told_before_the_next_is_read(datapath):
    file = datapath / "dstc7" / "ubuntu_train_subtask_1.json"
    rewrite(file, cut)
    assert next(read_dialogues(str(file)))[-1].text == "you are welcome , keep a copy of that file"


def without_an_answer(text):
    """The first dialogue has no right answer."""
    dialogues = json.loads(text)
    dialogues[0]["options-for-correct-answers"] = [{"candidate-id": "NONE"}]
    return json.dumps(dialogues)


@pytest.mark.parametrize(("name", "split"), [("train", "train"), ("dev", "valid")])
def test_a_dialogue_without_a_right_answer_is_a_question_without_one(name, split, datapath):
    before = teacher(DSTC7, split, datapath).num_examples()
    rewrite(datapath / "dstc7" / f"ubuntu_{name}_subtask_1.json", without_an_answer)
    after = teacher(DSTC7, split, datapath)
    if split == "train":  # an empty message is no target
        assert after.num_examples() == before - 1
    else:
        first = after.get(0)
        assert after.num_examples() == before and first["labels"] == [] and len(first["label_candidates"]) == 100


@pytest.mark.parametrize(
    ("task", "split", "name"),
    [
        (DSTC7, "train", "dstc7/ubuntu_train_subtask_1.json"),
        (DSTC7, "test", "dstc7/ubuntu_responses_subtask_1.tsv"),
        (UBUNTU, "valid", "Ubuntu/valid.csv"),
        (CONVAI2, "valid", "ConvAI2/valid_self_original.txt"),
    ],
)
def test_missing_files_are_named_with_what_to_do(task, split, name, datapath):
    (datapath / name).unlink()
    with pytest.raises(InputError, match=f"(?=.*{name}).* cannot be read .*delete (its|the) folder"):
        teacher(task, split, datapath)


# ---- Ubuntu V2 -----------------------------------------------------------------------------------------------------


def rows_of(split):
    with open(FOLDER / f"ubuntu/sample/{split}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_of_label_0_are_no_examples():
    rows = rows_of("train")
    labels = [label(message) for message in told(f"{UBUNTU}:sample", "train")]
    expected = [row["Utterance"].removesuffix(" __eou__") for row in rows if row["Label"] == "1"]
    assert labels == expected and len(expected) == 14 < len(rows) == 21


def test_utterances_and_turns_become_lines_of_the_context():
    message = told(f"{UBUNTU}:sample", "train")[1]
    assert message["text"] == "my sound is gone since the upgrade\nanybody ?\nis it muted in alsamixer ?"
    assert label(message) == "it was __eou__ thanks a lot"


def test_candidates_are_shuffled_by_the_number_of_their_row():
    messages, places = told(f"{UBUNTU}:sample", "test"), set()
    for number, (row, message) in enumerate(zip(rows_of("test"), messages, strict=True), 1):
        replies = [
            " __eou__ ".join(part.strip() for part in text.split("__eou__")[:-1]) for text in [*row.values()][1:]
        ]
        places.add(message["label_candidates"].index(replies[0]))
        random.Random(number).shuffle(replies)
        assert message["label_candidates"] == replies
    assert len(places) > 3


@pytest.mark.parametrize("datatype", ["train", "train:ordered", "train:stream", "valid", "test:stream"])
def test_a_file_without_examples_is_refused(datatype, datapath):
    split = datatype.split(":")[0]
    names, row = ("Context,Utterance,Label", "hi,hello,0") if split == "train" else (",".join(EVALUATION), "")
    (datapath / "Ubuntu" / f"{split}.csv").write_text(f"{names}\n{row}\n")
    kind = NoTestSplit if split == "test" else InputError
    with pytest.raises(kind, match=rf"{split}.csv has no examples that can be used in {split}"):
        teacher(UBUNTU, datatype, datapath).act()


def test_a_streams_length_is_not_that_of_parlais_teacher(datapath):
    assert teacher("ubuntu", "train:stream", datapath).num_examples() == 21
    assert teacher(UBUNTU, "train:stream", datapath).num_examples() == 14
    assert teacher(UBUNTU, "train:evalmode:stream", datapath).num_examples() == 14


@pytest.mark.parametrize("datatype", ["train:ordered", "train:ordered:stream", "valid", "valid:stream"])
def test_a_stream_tells_every_row_once(datatype, datapath):
    split = datatype.split(":")[0]
    found, messages = teacher(UBUNTU, datatype, datapath), []
    while not found.epoch_done():
        messages.append(plain(found.act()))
    assert messages == list(map(plain, told(f"{UBUNTU}:sample", split)))


def test_long_dialogues_are_read(datapath):
    long = "ubuntu " * 40_000  # Python's csv refuses 131,072 characters
    with open(datapath / "Ubuntu" / "train.csv", "a") as file:
        file.write(f'"{long}, __eou__ __eot__ ",too long __eou__,1\n')
    assert len(told(UBUNTU, "train", datapath)[-1]["text"]) > 250_000


@pytest.mark.parametrize(
    ("split", "change", "sentence"),
    [
        (
            "train",
            lambda text: text.replace("Utterance", "Reply", 1),
            "has the columns Context, Reply, Label; Utterance is",
        ),
        ("valid", lambda text: text.replace("Distractor_8", "Wrong"), "Distractor_8 is missing"),
        ("train", lambda text: "", r"the columns \(none\); Context is missing"),
        ("train", lambda text: text.replace("__eou__,0", "__eou__,maybe", 1), "row 6: the label is 'maybe'"),
        ("train", lambda text: text[: text.rindex(",")], "row 21: 2 columns, where the header has 3"),
        (
            "train",
            lambda text: f'{text}"never closed, {"x" * 17_000_000}',
            "is not valid CSV in the row .*a quote is not closed|has a line of more than 16,777,216 bytes",
        ),
        ("train", lambda text: text.replace("hi ", "h\udcff ", 1), "is not in UTF-8"),
    ],
)
def test_damaged_tables_are_named(split, change, sentence, datapath):
    file = datapath / "Ubuntu" / f"{split}.csv"
    file.write_text(change(file.read_text()), encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputError, match=sentence) as error:
        teacher(UBUNTU, split, datapath)
    assert str(file) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("task", [DSTC7, UBUNTU, CONVAI2])
def test_a_byte_order_mark_is_no_text(task, split, datapath):
    if (task, split) == (CONVAI2, "test"):
        return
    expected = list(map(plain, told(task, split, datapath)))
    for file in [*datapath.glob("*/*.json"), *datapath.glob("*/*.?sv"), *datapath.glob("*/*.txt")]:
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert list(map(plain, told(task, split, datapath))) == expected


def test_corpora_are_files(datapath):
    for task, name in ((DSTC7, "dstc7/ubuntu_train_subtask_1.json"), (UBUNTU, "Ubuntu/train.csv")):
        (datapath / name).unlink()
        os.mkfifo(datapath / name)
        with pytest.raises(InputError, match=r"cannot be read \(it is a pipe or a device"):
            teacher(task, "train", datapath)


# ---- ConvAI2 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "valid"])
def test_the_messages_are_parlais(split, datapath):
    assert list(map(plain, told(CONVAI2, split, datapath))) == list(map(plain, told("convai2", split, datapath)))


def test_who_speaks_first_does_so_after_a_mark():
    assert sum(message["text"].split("\n")[-1] == "__SILENCE__" for message in told(f"{CONVAI2}:sample", "train")) == 1


def test_candidates_without_the_label_are_refused(datapath):
    (datapath / "ConvAI2" / "valid_self_original.txt").write_text("1 hi\thello .\t\tno .|bye .\n")
    with pytest.raises(InputError, match=r"valid_self_original.txt, example 1: its candidates lack the label"):
        teacher(CONVAI2, "valid", datapath)


def test_persona_lines_come_first_wherever_the_file_has_them(datapath):
    file = datapath / "ConvAI2" / "train_self_original.txt"
    file.write_text(
        "1 your persona: i have two cats .\n2 hi !\thello .\n3 your persona: i work at night .\n4 tired ?\tvery .\n"
        "1 good morning\tgood night .\n2 your persona: i am a vampire .\n"
    )
    expected = [
        ("your persona: i have two cats .\nyour persona: i work at night .\nhi !", "hello ."),
        ("tired ?", "very ."),
    ]
    assert [plain(message)[:2] for message in told(CONVAI2, "train", datapath)[:2]] == expected


def test_a_chat_finds_its_personas_as_with_parlais_task():
    for kind in ("interactive_task", "selfchat_task"):
        worlds = [load_world_module(task, **{kind: True}, num_agents=2) for task in (CONVAI2, "convai2")]
        assert worlds[0] is worlds[1]


@pytest.mark.slow
def test_there_is_no_test_set_and_an_evaluation_says_so(tmp_path):
    train("bi", tmp_path / "M", "-t", f"{CONVAI2}:sample", *SHORT)
    sentence = (
        r"^ConvAI2's test set \(6,634 examples\) is not public, and ParlAI serves valid for it; give -dt valid\.$"
    )
    with pytest.raises(InputError, match=sentence):
        evaluate(tmp_path / "M", "-t", f"{CONVAI2}:sample", "-dt", "test")


@pytest.mark.parametrize("agent", ["polyagents:PolyEncoder", "ir_baseline"])
def test_a_training_ends_well_without_a_test_set(agent, tmp_path, said):
    file = tmp_path / "M"
    if agent == "ir_baseline":
        valid, test = run("train_model", "-m", agent, "-mf", file, "-t", f"{CONVAI2}:sample", *SHORT)
    else:
        valid, test = train("poly", file, "-t", f"{CONVAI2}:sample", *SHORT)
    assert valid["exs"] == 7 and test == {}
    assert (
        sum("test at the end skips polyagents.tasks.convai2:sample: ConvAI2's test set" in text for text in said) == 1
    )
    assert os.path.exists(f"{file}.valid") and not os.path.exists(f"{file}.test")
    assert json.loads(Path(f"{file}.trainstats").read_text())["final_test_report"] == {}


@pytest.mark.slow
def test_other_tasks_of_the_training_are_tested(tmp_path, said):
    tasks, logs = f"{CONVAI2}:sample,{UBUNTU}:sample,{DSTC7}:sample", tmp_path / "worlds.jsonl"
    valid, test = train("bi", tmp_path / "M", "-t", tasks, "--world-logs", logs, *SHORT)
    names = {f"{task}:sample/exs" for task in TASKS}
    assert {name for name in valid if name.endswith("/exs")} == names
    assert {name for name in test if name.endswith("/exs")} == names - {f"{CONVAI2}:sample/exs"}
    assert len(said) == 2  # with the rows of label 0
    assert "__eou__" in next(tmp_path.glob("worlds*ubuntu*.jsonl")).read_text()
    assert "participant 1: " in next(tmp_path.glob("worlds*dstc7*.jsonl")).read_text()
    assert not list(tmp_path.glob("worlds*convai2*"))


def test_a_training_that_has_a_test_set_evaluates_it(tmp_path):
    _, test = train("bi", tmp_path / "M", "-t", f"{UBUNTU}:sample", *SHORT)
    assert test["exs"] == 8
    assert (tmp_path / "M.test").exists()


def test_a_missing_file_is_no_missing_test_set(datapath):
    (datapath / "Ubuntu" / "test.csv").unlink()
    with pytest.raises(InputError, match=r"test\.csv cannot be read"):
        train("bi", datapath / "M", "-t", UBUNTU, "-dp", datapath, *SHORT)
