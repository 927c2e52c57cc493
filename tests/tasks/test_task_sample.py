"""The built-in task: the same everywhere, in ConvAI2's shape, solved by its rules and not by shared words."""

import math
import zlib
from collections import Counter

import pytest
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname

from polyagents.tasks.sample.generate import dialogues, replies
from polyagents.tasks.sample.tables import BACK, CHAT, MORE, TOPICS

SPLITS = ("train", "valid", "test")
PERSONA = "your persona: "


def turns(split):
    """Every turn with the lines that were said before it, the persona's among them, and its own."""
    for dialogue in dialogues(split):
        context = []
        for turn in dialogue:
            context += turn.text.split("\n")
            yield list(context), turn
            context.append(turn.label)


def read_fact(line):
    """(topic, value) of what somebody tells about himself; None for other lines."""
    for name, topic in TOPICS.items():
        for value in topic.replies:
            if line in [template.format(value) for template in topic.tell]:
                return name, value
    return None


def right_replies(context):
    """What fits, read off the text alone: what is asked for, then what the persona says about it."""
    facts = dict(read_fact(line.removeprefix(PERSONA)) for line in context if line.startswith(PERSONA))
    for line in reversed(context):
        for said, fitting in CHAT.values():
            if line in said:
                return fitting
        for name, topic in TOPICS.items():
            told = [read_fact(line.removesuffix(f" {back}")) for back in BACK if line.endswith(f" {back}")]
            if line in topic.ask or any(fact is not None and fact[0] == name for fact in told):
                return topic.replies[facts[name]]
        # Not a question: a reply, or "tell me more", which goes back to what was asked before.
        assert line != context[-1] or line in MORE
    raise AssertionError(f"nobody asked anything: {context}")


@pytest.mark.parametrize("split", SPLITS)
def test_the_same_dialogues_every_time(split):
    again = dialogues.__wrapped__(split)
    assert again == dialogues(split)
    assert again is not dialogues(split)


def test_the_same_dialogues_on_every_machine():
    # A change of the tables or the generator changes these, and every figure that was measured on the task.
    assert {split: zlib.crc32(repr(dialogues(split)).encode()) for split in SPLITS} == {
        "train": 3832960559,
        "valid": 1887920929,
        "test": 1380775148,
    }


def test_sizes():
    sizes = {split: sum(map(len, dialogues(split))) for split in SPLITS}
    assert 6_000 < sizes["train"] < 10_000
    assert 800 < sizes["valid"] < 1_300
    assert 800 < sizes["test"] < 1_300
    assert all(len(dialogue) > 1 for split in SPLITS for dialogue in dialogues(split))


@pytest.mark.parametrize("split", SPLITS)
def test_twenty_different_candidates_and_one_label(split):
    known = set(replies())
    for _, turn in turns(split):
        assert len(turn.candidates) == len(set(turn.candidates)) == 20
        assert turn.candidates.count(turn.label) == 1
        assert known.issuperset(turn.candidates)


def test_the_label_may_stand_anywhere():
    places = Counter(turn.candidates.index(turn.label) for _, turn in turns("train"))
    expected = sum(places.values()) / 20
    assert len(places) == 20
    assert all(0.8 * expected < count < 1.2 * expected for count in places.values())


def test_persona_lines_only_at_the_beginning():
    for dialogue in dialogues("train"):
        first, *later = [turn.text.split("\n") for turn in dialogue]
        assert [line.startswith(PERSONA) for line in first] == [True] * (len(first) - 1) + [False]
        assert len(first) > 2
        assert all(len(lines) == 1 for lines in later)


def test_no_persona_is_in_two_splits():
    personas = {
        split: {
            frozenset(line for line in dialogue[0].text.split("\n") if line.startswith(PERSONA)) for dialogue in all_
        }
        for split, all_ in ((split, dialogues(split)) for split in SPLITS)
    }
    facts = {
        split: {frozenset(read_fact(line.removeprefix(PERSONA)) for line in persona) for persona in found}
        for split, found in personas.items()
    }
    assert not facts["train"] & facts["valid"]
    assert not facts["train"] & facts["test"]
    assert not facts["valid"] & facts["test"]


def test_every_reply_is_learnt_and_listed_once():
    assert {turn.label for _, turn in turns("train")} == set(replies())
    assert len(replies()) == len(set(replies()))


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_who_knows_the_rules_finds_exactly_one_right_candidate(split):
    for context, turn in turns(split):
        right = right_replies(context)
        assert [text for text in turn.candidates if text in right] == [turn.label]
        assert turn.label not in context  # "tell me more" is not answered with the same words


def test_a_last_message_alone_is_not_enough():
    # Every question has its right reply from the persona, and "tell me more" from the history too.
    labels = {}
    for context, turn in turns("train"):
        labels.setdefault(context[-1], set()).add(turn.label)
    for topic in TOPICS.values():
        every = {text for texts in topic.replies.values() for text in texts}
        assert all(labels[question] == every for question in topic.ask)
    assert all(len(labels[message]) > 100 for message in MORE)


def test_shared_words_do_not_find_the_reply():
    texts = replies() + ["\n".join(context) for context, _ in turns("train")]
    frequency = Counter(word for text in texts for word in set(text.split()))
    rarity = {word: math.log(len(texts) / count) for word, count in frequency.items()}
    hits, count = 0.0, 0
    for context, turn in turns("valid"):
        words = {word for line in context for word in line.split()}
        scores = [sum(rarity.get(word, 0.0) for word in words & set(text.split())) for text in turn.candidates]
        best = [text for text, score in zip(turn.candidates, scores, strict=True) if score == max(scores)]
        hits += (turn.label in best) / len(best)  # a tie is won by luck
        count += 1
    assert hits / count < 0.15


# ---- as a ParlAI teacher -------------------------------------------------------------------------------------------


def teacher(datatype):
    """What `-t polyagents.tasks.sample` finds."""
    opt = ParlaiParser(True, False).parse_kwargs(task="polyagents.tasks.sample", datatype=datatype)
    return create_task_agent_from_taskname(opt)[0]


@pytest.mark.parametrize(
    "datatype", ["train", "train:stream", "train:ordered", "train:evalmode", "valid", "test:stream"]
)
def test_the_teacher_counts_right(datatype, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    split = datatype.split(":")[0]
    found = teacher(datatype)
    assert found.num_episodes() == len(dialogues(split))
    assert found.num_examples() == sum(map(len, dialogues(split)))
    assert not list(tmp_path.iterdir())  # a streaming DialogTeacher would leave a count here


@pytest.mark.parametrize("datatype", ["train:evalmode", "train:ordered", "valid", "valid:stream", "test"])
def test_the_teacher_tells_every_dialogue_once_and_in_order(datatype):
    found, told = teacher(datatype), []
    while not found.epoch_done():
        told.append(found.act())
    expected = [(turn, turn is dialogue[-1]) for dialogue in dialogues(datatype.split(":")[0]) for turn in dialogue]
    assert len(told) == len(expected)
    for message, (turn, last) in zip(told, expected, strict=True):
        labels = message.get("labels") or message["eval_labels"]
        assert (message["text"], tuple(labels), tuple(message["label_candidates"])) == (
            turn.text,
            (turn.label,),
            turn.candidates,
        )
        assert message["episode_done"] == last


@pytest.mark.parametrize("datatype", ["train", "train:stream"])
def test_training_never_ends(datatype):
    found = teacher(datatype)
    messages = [found.act() for _ in range(found.num_examples() + 50)]
    assert all("labels" in message for message in messages)
    assert not found.epoch_done()
