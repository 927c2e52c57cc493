"""`--every-utterance`: what is trained on, against lists written by hand, and that an evaluation stays as it is."""

import shutil
from collections import Counter

import pytest
from commands import TINY, run, train
from parlai.core.opt import Opt
from parlai.core.teachers import FixedDialogTeacher
from teachers import label, plain, teacher, told
from test_tasks import CONVAI2, DSTC7, FOLDER, SHORT, SPLITS, UBUNTU

from polyagents import InputError
from polyagents.parlai_agents import ranker_agent
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.parlai_agents.task_reader import TaskReader
from polyagents.parlai_patches import patches
from polyagents.parlai_patches.every_utterance import EveryUtterance, added_targets
from polyagents.pretraining.pretrain_agent import PretrainAgent

FLAG = ("--every-utterance", "true")
TEACHER = "your persona: i am a retired teacher .\nyour persona: i grow tomatoes .\n"
TEACHER += "your persona: i have never seen the sea .\n"
OPENING = "hello , what a fine day for the garden ."
TALK = [
    OPENING,
    "it is ! what do you grow ?",
    "tomatoes , red and yellow ones , on the balcony .",
    "and what did you do before ?",
    "i taught children to read for thirty years .",
    "do you travel now ?",
    "not yet , but i want to stand on a beach once .",
]


def pairs(messages):
    """(context, label) of each message, where the context is all of its episode so far, as an agent's history."""
    found, turns = [], []
    for message in messages:
        turns.append(message["text"])
        found.append(("\n".join(turns), label(message)))
        turns = [] if message["episode_done"] else [*turns, label(message)]
    return found


def asked(task, datatype="train", datapath="/nowhere", **more):
    """The pairs that a training with the flag is made of."""
    return pairs(told(task, datatype, datapath, every_utterance=True, **more))


def test_the_partner_of_a_dialogue_is_learnt_from_too():
    speaks_first = f"{TEACHER}__SILENCE__"
    expected = [
        (speaks_first, TALK[0]),
        ("\n".join([speaks_first, *TALK[:2]]), TALK[2]),
        ("\n".join([speaks_first, *TALK[:4]]), TALK[4]),
        ("\n".join([speaks_first, *TALK[:6]]), TALK[6]),
        (TALK[0], TALK[1]),
        ("\n".join(TALK[:3]), TALK[3]),
        ("\n".join(TALK[:5]), TALK[5]),
    ]
    assert asked(f"{CONVAI2}:sample")[7:14] == expected  # the second dialogue; the first has 4 labels and 3 others


def test_what_the_task_has_is_unchanged_and_what_is_added_has_no_candidates():
    plainly, messages = told(f"{CONVAI2}:sample", "train"), told(f"{CONVAI2}:sample", "train", every_utterance=True)
    own = [message for message in messages if "label_candidates" in message]
    assert list(map(plain, own)) == list(map(plain, plainly))
    added = [message for message in messages if "label_candidates" not in message]
    assert [message["episode_done"] for message in added] == [True] * 8
    assert len(plainly) == 11 and not any("persona" in message["text"] for message in added)


def test_lines_of_a_context_are_targets():
    sound, anybody, muted = "my sound is gone since the upgrade", "anybody ?", "is it muted in alsamixer ?"
    expected = [
        (f"{sound}\n{anybody}", muted),
        (sound, anybody),
        (f"{sound}\n{anybody}\n{muted}", "it was __eou__ thanks a lot"),
        (sound, anybody),
        (f"{sound}\n{anybody}", muted),
        ("which editor do you like ?", "vim __eou__ but nano is easier to begin with"),
    ]
    assert asked(f"{UBUNTU}:sample")[:6] == expected


@pytest.mark.parametrize("task", [f"{DSTC7}:sample", "polyagents.tasks.pairs:sample"])
def test_nothing_is_added_where_the_task_has_all_targets(task):
    assert [message["text"] for message in told(task, "train", every_utterance=True)] == [
        message["text"] for message in told(task, "train")
    ]


def test_parlais_dstc7_becomes_ours(tmp_path):
    shutil.copytree(FOLDER / "dstc7" / "sample", tmp_path / "dstc7")
    (tmp_path / "dstc7" / ".built").write_text("now\n2.0")
    ours = Counter((context.rstrip("\n"), text) for context, text in pairs(told(f"{DSTC7}:sample", "train")))
    theirs = Counter((context.rstrip("\n"), text) for context, text in asked("dstc7", datapath=tmp_path))
    assert theirs == ours and ours.total() == 37


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_evaluations_are_as_without(task, split):
    split = split.replace("train", "train:evalmode")
    one, other = teacher(f"{task}:sample", split, every_utterance=True), teacher(f"{task}:sample", split)
    assert one.num_examples() == other.num_examples()
    size = other.num_examples()
    assert [plain(one.act()) for _ in range(size)] == [plain(other.act()) for _ in range(size)]


def test_a_stream_has_the_same_targets_and_counts_them(tmp_path):
    shutil.copytree(FOLDER / "ubuntu" / "sample", tmp_path / "Ubuntu")
    (tmp_path / "Ubuntu" / ".built").write_text("now")
    expected = asked(f"{UBUNTU}:sample")
    found = teacher(UBUNTU, "train:stream", tmp_path, every_utterance=True)
    assert found.num_examples() == len(expected) == 30
    assert pairs(found.act() for _ in expected) == expected
    assert asked(UBUNTU, "train:stream", tmp_path) == expected
    # What ParlAI notes of a file's length is without.
    assert teacher(UBUNTU, "train:stream", tmp_path).num_examples() == 14


def test_of_several_tasks_each_has_its_own():
    tasks = [f"{CONVAI2}:sample", f"{DSTC7}:sample", f"{UBUNTU}:sample"]
    assert Counter(asked(",".join(tasks))) == sum((Counter(asked(task)) for task in tasks), Counter())
    assert teacher(",".join(tasks), "train", every_utterance=True).num_examples() == 19 + 37 + 30


def test_mutators_of_the_user_come_after():
    expected = asked(f"{CONVAI2}:sample")
    assert [
        (m["text"], label(m)) for m in told(f"{CONVAI2}:sample", "train", every_utterance=True, mutators="flatten")
    ] == (expected)


def test_a_task_of_chunks_keeps_its_own_count():
    task = "integration_tests:WrongExamplesChunkyTeacher"  # whose count is not that of its chunks
    assert teacher(task, "train", every_utterance=True).num_examples() == teacher(task, "train").num_examples() > 0


@pytest.mark.parametrize(
    ("episode", "expected"),
    [
        ([{"text": "a", "labels": ["b"]}], []),
        ([{"text": None, "labels": ["b"]}, {"text": "c", "labels": ["d"]}], [("b", "c")]),
        ([{"labels": ["b"]}, {"text": "c"}], [("b", "c")]),
        ([{"text": "a\n\nb \n", "labels": []}], [("a", "b ")]),
        ([{"text": "your persona: x\npartner's persona: y\na", "labels": ["b", "c"]}, {"text": "d"}], [("a\nb", "d")]),
        ([{"text": "participant 1: a\nparticipant 2: \nparticipant 1: b\n", "labels": ["c"]}], [
            ("participant 1: a\nparticipant 2: ", "b")
        ]),
        ([{"text": "__SILENCE__", "labels": ["a"]}, {"text": "__SILENCE__", "labels": ["b"]}], []),
    ],
)  # fmt: skip
def test_what_is_an_utterance(episode, expected):
    assert [(message["text"], *message["labels"]) for message in added_targets(episode)] == expected


def test_an_episode_comes_first_and_then_one_for_each_target():
    episode = [{"text": "a", "labels": ["b"]}, {"text": "c", "labels": ["d"]}, {"text": "e", "labels": ["f"]}]
    first, *others = EveryUtterance(Opt()).many_episode_mutation(episode)
    assert first is episode
    assert [[message["text"] for message in other] for other in others] == [["a\nb"], ["a\nb\nc\nd"]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "uni"])
def test_training_sees_them_and_validation_does_not(kind, tmp_path, monkeypatch):
    seen, losses = set(), ranker_agent.RankerAgent._training_losses

    def spied(agent, examples):
        seen.update((text, one.candidate.text) for text, one in zip(examples.texts, examples.labels, strict=True))
        return losses(agent, examples)

    monkeypatch.setattr(ranker_agent.RankerAgent, "_training_losses", spied)
    more = (*FLAG, "--max-train-steps", "12", "--num-epochs", "-1")
    report, _ = train(kind, tmp_path / "M", "-t", f"{CONVAI2}:sample", *more)
    assert report["exs"] == 7
    expected = set(asked(f"{CONVAI2}:sample"))
    assert len(seen) > 15 and seen <= expected


@pytest.mark.slow
def test_an_epoch_is_as_many_updates_as_there_are_targets(tmp_path):
    shutil.copytree(FOLDER / "ubuntu" / "sample", tmp_path / "Ubuntu")
    steps = []
    for name, flags in (("without", ()), ("with", FLAG)):
        more = ("--num-epochs", "4", "--short-final-eval", "true", *flags)
        train("bi", tmp_path / name, "-t", f"{UBUNTU}:sample", *more)
        steps.append((tmp_path / f"{name}.trainstats").read_text())
    exs = [float(text.split('"total_exs": ')[1].split(",")[0]) for text in steps]
    assert exs == [4 * 14, 4 * 30]


@pytest.mark.slow
def test_pretraining_reads_them(tmp_path, monkeypatch):
    read, plan = [], PretrainAgent.plan
    monkeypatch.setattr(
        PretrainAgent, "plan", lambda agent, pairs, window: [read.extend(pairs), plan(agent, pairs, window)][1]
    )
    flags = ("-m", "polyagents:Pretrain", "-mf", tmp_path / "M", *TINY[:2], "--text-truncate", "64")
    run("train_model", *flags, "-t", f"{CONVAI2}:sample", "--max-train-steps", "1", *SHORT[2:], *FLAG)
    assert len(read) == 19 and (TALK[0], TALK[1]) in {(pair.context, pair.label) for pair in read}


def test_a_reader_goes_on_after_as_many_targets():
    opt = teacher(f"{CONVAI2}:sample", "train", every_utterance=True).opt
    whole, late = TaskReader(opt, 7).read(60), TaskReader(opt, 7)
    late.skip(31)
    assert late.read(29) == whole[31:]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_inline_candidates_would_leave_them_without_negatives(kind, tmp_path):
    sentence = r"the targets that --every-utterance adds have none; give --candidates batch, or batch\+inline\.$"
    flags = ("-t", f"{CONVAI2}:sample", *SHORT, *FLAG)
    with pytest.raises(InputError, match=sentence):
        train(kind, tmp_path / "M", *flags, "--candidates", "inline")
    train(kind, tmp_path / "M", *flags, "--candidates", "batch+inline")


@pytest.mark.slow
def test_a_vocabulary_is_learnt_from_each_message_once(monkeypatch, tmp_path):
    learnt, act = [], TextDictionary.act
    monkeypatch.setattr(TextDictionary, "act", lambda self: [learnt.append(self.observation["text"]), act(self)][1])
    train("bi", tmp_path / "M", "-t", f"{UBUNTU}:sample", *SHORT, *FLAG)
    assert learnt == [message["text"] for message in told(f"{UBUNTU}:sample", "train")]


def test_teachers_are_patched_once():
    first = FixedDialogTeacher.__init__
    patches.apply()
    assert FixedDialogTeacher.__init__ is first
