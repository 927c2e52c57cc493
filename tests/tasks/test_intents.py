"""BANKING77 and CLINC150: a text, its intent as label, all intents as candidates."""

import shutil
from collections import Counter
from hashlib import sha256

import pytest
from commands import evaluate, train
from teachers import label, teacher, told
from test_tasks import FOLDER, SHORT

from polyagents import InputError
from polyagents.errors import NoTestSplit
from polyagents.models.two_towers import TwoTowers
from polyagents.tasks.banking77 import DefaultTeacher as Banking
from polyagents.tasks.clinc150 import DefaultTeacher as Clinc
from polyagents.tasks.intents import Example, PublicFile, few

BANKING, CLINC = "polyagents.tasks.banking77", "polyagents.tasks.clinc150"
INTENTS = {
    BANKING: ["exchange rate", "lost card", "open account", "opening hours"],
    CLINC: ["find keys", "play radio", "water plants"],
}
SIZES = {BANKING: {"train": 24, "valid": 8, "test": 8}, CLINC: {"train": 12, "valid": 3, "test": 6}}


@pytest.fixture
def datapath(tmp_path):
    """The samples where the real files belong."""
    for task in (BANKING, CLINC):
        name = task.split(".")[-1]
        shutil.copytree(FOLDER / name / "sample", tmp_path / name)
    return tmp_path


def pairs(messages):
    return [(message["text"], label(message)) for message in messages]


@pytest.mark.parametrize("task", SIZES)
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_every_example_ranks_all_intents(task, split):
    messages = told(f"{task}:sample", split)
    assert len(messages) == SIZES[task][split] and {label(message) for message in messages} == {*INTENTS[task]}
    assert all(message["label_candidates"] == INTENTS[task] and message["episode_done"] for message in messages)


def test_valid_is_a_part_of_the_published_training_set_that_all_has(datapath):
    parts = [pairs(told(BANKING, split, datapath)) for split in ("train", "valid")]
    whole = pairs(told(f"{BANKING}:all", "train", datapath))
    assert Counter(whole) == Counter(parts[0]) + Counter(parts[1]) and len(set(whole)) == 32
    assert pairs(told(f"{BANKING}:all", "valid", datapath)) == parts[1]


def test_requests_out_of_scope_have_an_intent_of_their_own(datapath):
    for split, size in (("train", 1), ("valid", 1), ("test", 2)):
        messages = told(f"{CLINC}:oos", split, datapath)
        assert [label(message) for message in messages].count("oos") == size == len(messages) - SIZES[CLINC][split]
        assert messages[0]["label_candidates"] == sorted(["oos", *INTENTS[CLINC]])


def test_a_text_is_one_line_and_an_intent_has_words():
    assert Example.of("\nmy card\n\n is  lost \n", "Lost_card?") == ("my card is lost", "Lost card?")


def test_few_shot_draws_as_many_examples_of_each_intent():
    draws = [pairs(told(f"{BANKING}:sample", "train", few_shot=3, few_shot_seed=seed)) for seed in (0, 1, 1)]
    assert draws[1] == draws[2] != draws[0] and {*draws[0]} < {*pairs(told(f"{BANKING}:sample", "train"))}
    assert all(Counter(intent for _, intent in draw) == dict.fromkeys(INTENTS[BANKING], 3) for draw in draws)
    assert len({*draws[0]}) == 12 and len(told(f"{BANKING}:sample", "valid", few_shot=3)) == 8


def test_the_draws_of_an_intent_do_not_depend_on_others():
    examples = [Example(str(number), intent) for number in range(9) for intent in "ab"]
    own = [one for one in examples if one.intent == "b"]
    assert [one for one in few(examples, 4, 7) if one.intent == "b"] == few(own, 4, 7)


def test_more_examples_than_there_are_cannot_be_drawn():
    with pytest.raises(InputError, match=r"--few-shot 6: the intent 'lost card' has 5 training examples; give a sma"):
        teacher(f"{BANKING}:sample", "train", few_shot=6)


@pytest.mark.parametrize(
    ("task", "old", "new", "sentence"),
    [
        (BANKING, "text,category", "text,intent", "has the columns text, intent; category is missing"),
        (BANKING, "lost_card\n", "lost_card,\n", "3 columns, where the header has 2"),
        (BANKING, ",opening_hours", ",_", r"example \d of train has no text or no intent"),
        (CLINC, "{", "[", "cannot be read"),
        (CLINC, '"train"', '"training"', "has no lists of texts and intents named train"),
        (CLINC, '", "play_radio"', '", 5', "has no lists of texts and intents named train"),
        (CLINC, '", "play_radio"', '", "play_radio", "loud"', "has no lists of texts and intents named train"),
        (CLINC, "turn on the radio", "", "example 5 of train has no text or no intent"),
    ],
)
def test_a_damaged_file_is_said(task, old, new, sentence, datapath):
    path = datapath / task.split(".")[-1] / ("train.csv" if task == BANKING else "data_full.json")
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=sentence):
        teacher(task, "train", datapath)


def test_a_split_without_examples_is_said(datapath):
    (datapath / "banking77" / "test.csv").write_text("text,category\n")
    with pytest.raises(NoTestSplit, match="banking77 has no examples in test"):
        teacher(BANKING, "test", datapath)
    (datapath / "banking77" / "train.csv").write_text("text,category\n")
    for split, options in (("train", {}), ("valid", {}), ("train", {"few_shot": 1})):
        with pytest.raises(InputError, match="banking77 has no examples in train"):
            teacher(BANKING, split, datapath, **options)


def test_other_counts_than_the_published_ones_are_said_once(datapath, said):
    for _ in range(2):
        told(BANKING, "test", datapath)
    folder = datapath / "banking77"
    told(f"{CLINC}:sample", "test")
    assert [text.split(":")[0] for text in said] == [
        f"{folder} has 8 examples, and BANKING77 test has 3,080 as it was released",
        f"{folder} has 4 intents, and BANKING77 in all has 77 as it was released",
    ]


@pytest.mark.parametrize(("task", "kind"), [(BANKING, Banking), (CLINC, Clinc)])
def test_missing_files_are_downloaded_once_and_checked(task, kind, server, tmp_path, monkeypatch):
    name = task.split(".")[-1]
    path = FOLDER / name / "sample" / ("test.csv" if task == BANKING else "data_full.json")
    server.content = path.read_bytes()
    file = PublicFile(f"{server.url.rpartition('/')[0]}/{path.name}", sha256(server.content).hexdigest())
    monkeypatch.setattr(kind, "files", [file])
    if task == BANKING:  # a file that is there is used as it is
        shutil.copytree(path.parent, tmp_path / name)
        (tmp_path / name / path.name).unlink()
    for _ in range(2):
        assert pairs(told(task, "test", tmp_path)) == pairs(told(f"{task}:sample", "test"))
    assert len(server.asked) == 1


def test_a_download_that_is_not_the_published_file_is_refused(server, tmp_path, monkeypatch):
    server.content = b"text,category\nhello,greeting\n"
    monkeypatch.setattr(Banking, "files", [PublicFile(f"{server.url}/train.csv", "0" * 64)])
    sentence = rf"{server.url}/train.csv is not the published file \(29 bytes with another SHA-256\); get it some other"
    with pytest.raises(InputError, match=sentence):
        teacher(BANKING, "train", tmp_path)
    assert [one.name for one in (tmp_path / "banking77").iterdir()] == [".lock"]


def test_without_a_server_a_sentence_has_the_address(server, tmp_path, monkeypatch):
    server.status = 404
    monkeypatch.setattr(Clinc, "files", [PublicFile(f"{server.url}/data_full.json", "0" * 64)])
    sentence = rf"{server.url}/data_full.json cannot be downloaded .* put it at {tmp_path}/clinc150/data_full.json\."
    with pytest.raises(InputError, match=sentence):
        teacher(CLINC, "train", tmp_path)


@pytest.mark.slow
def test_each_intent_is_encoded_once_in_a_batch_and_once_in_an_evaluation(tmp_path, monkeypatch):
    encode, sizes = TwoTowers.encode_candidates, []

    def counted(towers, tokens):
        sizes.append(len(tokens.ids))
        return encode(towers, tokens)

    monkeypatch.setattr(TwoTowers, "encode_candidates", counted)
    few_shot = ("-t", f"{BANKING}:sample", "--few-shot", "4", "--few-shot-seed", "1", "--candidates", "inline")
    train("poly", tmp_path / "M", *few_shot, *SHORT)
    assert set(sizes) - {1, 2} == {4}  # one and two are tried before the first step
    sizes.clear()
    report = evaluate(tmp_path / "M", "-t", f"{BANKING}:sample", "-dt", "test", "--batchsize", "3")
    assert report["exs"] == 8 and sizes == [4]
