"""The task of the package chitchat-dataset: its own conversations, and some made up in its format."""

import hashlib
import itertools
import json
import random
import sys

import chitchat_dataset
import pytest
from commands import TINY, run, train
from parlai.utils import logging, misc
from teachers import label, plain, teacher, told

from polyagents.faults import users_fault
from polyagents.tasks.chitchat import ChitchatConversation, Targets, split_of, turns_of
from polyagents.text.normalize import normalized

TASK = "polyagents.tasks.chitchat"
SPLITS = ("train", "valid", "test")
SHORT = ("--max-train-steps", "2", "--short-final-eval", "true", "--validation-max-exs", "16")


@pytest.fixture(scope="module")
def conversations():
    """The whole package as it is, without our code: the turns of each conversation by its id."""
    with open(chitchat_dataset.Dataset().path, encoding="utf-8") as file:
        held = json.load(file)
    return {
        id: [" ".join(" ".join(message["text"] for message in turn).split()) for turn in one["messages"]]
        for id, one in held.items()
    }


@pytest.fixture(scope="module")
def valid():
    return told(TASK, "valid")


@pytest.fixture
def packaged(monkeypatch):
    """Have the package hold so many conversations of these turns in each split."""

    def pack(count, turns):
        ids = [[id for id in map(str, range(60 * count)) if split_of(id) == split] for split in SPLITS]
        held = {}
        for id in itertools.chain(*(found[:count] for found in ids)):
            texts = [f"{text} of {id}" for text in turns]
            held[id] = {"messages": [[{"text": text, "sender": str(n % 2)}] for n, text in enumerate(texts)]}
        monkeypatch.setattr(chitchat_dataset, "Dataset", lambda: held)
        return held

    return pack


@pytest.mark.slow
def test_every_turn_after_the_first_is_a_target(conversations):
    found = teacher(TASK, "train:ordered")
    messages = [found.act() for _ in range(2_000)]
    expected = []
    for id, turns in conversations.items():
        if int(hashlib.sha256(id.encode()).hexdigest()[:16], 16) % 20 > 1:
            said = [turn for turn in turns if turn]
            expected += [("\n".join(said[:place]), said[place], None, True) for place in range(1, len(said))]
    assert list(map(plain, messages)) == expected[:2_000]
    assert found.num_examples() == len(expected) == 117_616


def test_messages_of_a_speaker_are_one_line_of_a_context():
    message = [{"text": "whats up  MD"}, {"text": " im doing good "}], [{"text": " "}], [{"text": "great"}]
    assert turns_of({"messages": message}) == ["whats up MD im doing good", "great"]


@pytest.mark.slow
def test_splits_follow_from_the_id_alone(conversations, valid):
    sizes = {split: sum(split_of(id) == split for id in conversations) for split in SPLITS}
    assert sum(sizes.values()) == 7_168 and all(0.04 < sizes[split] / 7_168 < 0.06 for split in ("valid", "test"))
    opening = {turns[0] for id, turns in conversations.items() if split_of(id) == "valid" and len(turns) > 1}
    assert {message["text"].split("\n")[0] for message in valid} == opening


def test_candidates_are_of_other_conversations_and_read_differently(conversations, valid):
    said = {turn for id, turns in conversations.items() if split_of(id) == "valid" for turn in turns[1:]}
    assert len(valid) == 6_615
    for message in valid:
        candidates = message["label_candidates"]
        assert candidates.count(label(message)) == 1
        assert len({normalized(text) for text in candidates}) == 20 and said.issuperset(candidates)
    places = [message["label_candidates"].index(label(message)) for message in valid]
    assert min(places.count(place) for place in range(20)) > len(valid) / 20 * 0.8


def test_no_candidate_is_of_the_same_conversation():
    dialogues = [
        ChitchatConversation(str(number), [f"{place} of {number}" for place in range(30)]) for number in range(3)
    ]
    targets = Targets(dialogues, with_candidates=True)
    for index, target in enumerate(targets.every):
        own = [text for text in targets[index]["label_candidates"] if text.endswith(f"of {target.conversation}")]
        assert own == targets[index]["labels"]


@pytest.mark.slow
def test_candidates_are_the_same_in_every_run(valid):
    random.seed(1)
    found = teacher(TASK, "valid")
    assert [plain(found.act()) for _ in range(50)] == list(map(plain, valid[:50]))
    written = hashlib.sha256(repr(list(map(plain, valid[:500]))).encode()).hexdigest()
    assert written == "adedbe3e04ebd91ee6d421983f0e0e83d95e4b2aee4a516470029651f86965ae"  # for ever


def test_training_has_no_candidates_and_the_flag_adds_nothing(packaged):
    packaged(3, ["a", "b", "c"])
    plainly, flagged = told(TASK, "train"), told(TASK, "train", every_utterance=True)
    assert list(map(plain, plainly)) == list(map(plain, flagged)) and len(plainly) == 6
    assert not any("label_candidates" in message for message in plainly)


def test_another_version_of_the_package_is_said(packaged, monkeypatch):
    said = []
    monkeypatch.setattr(misc, "_seen_logs", set())
    monkeypatch.setattr(logging, "warning", said.append)
    packaged(3, ["a", "b", "c"])
    told(TASK, "train")
    assert ["6 examples, and Chit-Chat train has 117,616" in text for text in said] == [True]


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "chitchat_dataset", None)
    with pytest.raises(ModuleNotFoundError) as error:
        teacher(TASK, "valid")
    sentence = "This needs chitchat_dataset, which is not installed: pip install 'polyagents[data]'"
    assert users_fault(error.value) == sentence


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_agents_train_and_rank(kind, packaged, tmp_path):
    packaged(12, ["how are you", "well thanks", "what do you do", "i study"])
    report, test = train(kind, tmp_path / "M", "-t", TASK, *SHORT)
    assert report["exs"] == test["exs"] == 16


@pytest.mark.slow
def test_pretraining_reads_it(packaged, tmp_path):
    packaged(12, ["how are you", "well thanks", "what do you do", "i study"])
    flags = ("-m", "polyagents:Pretrain", "-mf", tmp_path / "M", *TINY[:2], "--text-truncate", "64", "-t", TASK)
    run("train_model", *flags, "--max-train-steps", "2", "--short-final-eval", "true")
    assert (tmp_path / "M.backbone" / "config.json").exists()
