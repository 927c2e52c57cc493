"""Human evaluation without the pages: conversations, import and export, pairs, and the store that they end up in."""

import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import postgres
import pytest
import yaml
from commands import SAMPLE, run
from crowd import Clock, study_of
from evaluation import evaluation, human_eval
from parlai.utils.conversations import Conversations
from parlai.utils.misc import str_to_msg

from polyagents import InputError
from polyagents.commands.human_eval import STEPS
from polyagents.human_eval.conversations import make_conversation, make_pair, sides_of
from polyagents.human_eval.formats import acute_eval_format, parlai_format
from polyagents.human_eval.formats.conversation_files import read_file
from polyagents.human_eval.pairing import make_pairs, read_matchups
from polyagents.human_eval.records import DEFAULT_QUESTION, HUMAN, Judgement, Side
from polyagents.human_eval.storage.chat_store import ChatStore
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.people_records import forget, work_of_people
from polyagents.human_eval.storage.places import NoPlace
from polyagents.human_eval.storage.results import chatters, rated_chats
from polyagents.human_eval.storage.views import ChatPlan

HOSTILE = [
    "<script>alert(1)</script> & \"quotes\" 'n' <b>",
    "a NUL \x00 in it",
    "lone surrogates \ud800 and \udfff, and a whole one \U0001f600",
    "line\nends\r\nof\u2028all\u2029kinds\x85\x0b\x0c",
    '{"dialog": []}\ttext:x\tlabels:y \'; DROP TABLE answers; -- %s %(x)s :name {0}',
    "",
    "long " * 200_000,
]


@pytest.fixture
def store(database):
    """An empty store of each kind."""
    opened = EvaluationStore(database)
    yield opened
    opened.close()


@pytest.fixture
def step(capsys, tmp_path, monkeypatch):
    """Run a step in a folder of its own: what it prints, parsed, and what it says."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        capsys.readouterr()
        human_eval(*map(str, arguments))
        said = capsys.readouterr()
        return json.loads(said.out), said.err

    return call


def self_chat(model, number, turns=3):
    """A conversation of a model with itself."""
    spoken = [(str(place % 2), f"{model} says {number}.{place}") for place in range(2 * turns)]
    return make_conversation(spoken, {"0": model, "1": model}, ["your persona: i ski ."], "made")


def conversations_of(**counts):
    """So many of each model."""
    return [self_chat(model, number) for model, count in counts.items() for number in range(count)]


def check_pair(number=0):
    """A pair whose second side is right, and its conversations."""
    bad, good = self_chat("bad", number), self_chat("good", number)
    return make_pair(sides_of(bad)["bad"], sides_of(good)["good"], right=1), [bad, good]


def filled(store, per_matchup=4, checks=0):
    """A store with pairs of two models, and checks."""
    conversations = conversations_of(a=4, b=4)
    store.add_conversations(conversations)
    for number in range(checks):
        pair, both = check_pair(number)
        store.add_conversations(both)
        store.add_pairs([pair])
    store.add_pairs(make_pairs(conversations, [("a", "b")], per_matchup, 0))
    return store


def right_choice(shown):
    """The answer of an annotator who prefers b, and good."""
    model = shown.left.conversation.models[shown.left.speaker]
    return "left" if model in ("b", "good") else "right"


def without_source(conversation):
    """All that a conversation is, but for where it was read."""
    return conversation.name, conversation.turns, dict(conversation.models), conversation.context


def write_lines(path, *entries):
    """A file of JSON lines; strings are written as they are."""
    path.write_text("".join(f"{entry if isinstance(entry, str) else json.dumps(entry)}\n" for entry in entries))
    return path


DIALOG = [[{"id": "localHuman", "text": "hi"}, {"id": "Poly", "text": "hello"}]]


@pytest.mark.slow
def test_a_study_has_its_places_in_each_kind_of_database(database):
    """The pages are tried on SQLite (test_human_eval_study.py)."""
    evaluation(database, 3, (), checks=1)[0].close()
    clock = Clock()
    store = EvaluationStore(database, study_of(places=2, each=1), clock)
    tokens = [store.places.arrive(f"person {number}", f"submission {number}") for number in range(2)]
    assert store.places.arrive("person 0", "submission 0") == tokens[0]
    with pytest.raises(NoPlace, match="taken at the moment"):
        store.places.arrive("person 2", "submission 2")
    for stage in ("consent", "screening", "instructions"):
        assert store.places.participant(tokens[0]).stage == stage
        store.places.advance(tokens[0], stage, True)
    for _ in range(2):
        shown = store.next_assignment(tokens[0])
        judged = shown.left.conversation.models.values()
        store.answer(tokens[0], shown.number, "left" if "secret-poly" in judged else "right")
    assert store.places.participant(tokens[0]).stage == "complete"
    clock.pass_minutes(61)
    assert (store.places.taken().complete, store.places.taken().open) == (1, 0)
    store.places.arrive("person 3", "submission 3")
    with pytest.raises(NoPlace):
        store.places.participant(tokens[1])
    done, *_ = work_of_people(store)
    assert (done.person, done.judgements, done.checks_right, done.passed) == ("person 0", 1, 1, True)
    assert forget(store, "person 0", answers=True) == {"forgotten": 1, "answers": 2} and not store.judgements()
    store.close()


def test_a_database_of_before_gets_the_columns_that_it_lacks(database):
    store, (token,) = evaluation(database)
    with store.database.writer.begin() as connection:
        for table, column in (("assignments", "shown"), ("answers", "started"), ("messages", "problems")):
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    store.close()
    store = EvaluationStore(database)
    store.answer(token, store.next_assignment(token).number, "left")
    assert store.judgements()[0].started
    store.close()


def test_the_check_of_the_docs_is_one(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "running-a-study.md").read_text(encoding="utf-8")
    (tmp_path / "checks.jsonl").write_text(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    found = read_file(str(tmp_path / "checks.jsonl"))
    ((pair,), models) = found.pairs, {one.name: one.models for one in found.conversations}
    assert not found.malformed and models[pair.sides[pair.right].conversation][pair.sides[pair.right].speaker] == "good"


# ---- self_chat -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_talks_with_itself_as_the_task_begins(step, trained, tmp_path):
    bi, out = trained("bi"), tmp_path / "chats.jsonl"
    flags = ("self_chat", "-mf", bi, "-t", SAMPLE, "--conversations", 3, "--turns", 2)
    printed, _ = step(*flags, "--out", out)
    assert printed == {"conversations": 3, "models": [bi], "out": str(out)}
    theirs = Conversations(str(out))
    assert [len(conversation) for conversation in theirs] == [4, 4, 4]
    assert theirs.metadata.self_chat and theirs.metadata.opt["model_file"] == bi
    found = read_file(str(out)).conversations
    assert {model for conversation in found for model in conversation.models.values()} == {bi}
    openings = [conversation.turns[0].text for conversation in found]
    from polyagents.tasks.sample.generate import dialogues

    first = {dialogue[0].text.split("\n")[-1] for dialogue in dialogues("valid")}
    assert len(set(openings)) == 3 and set(openings) <= first
    for conversation in found:
        whose = Counter(line.split(": ")[0] for line in conversation.context)
        assert whose == {"speaker_1": 3, "speaker_2": 3}
    step(*flags, "--out", tmp_path / "again.jsonl")
    assert read_file("again.jsonl").conversations != found  # another source
    assert [c.name for c in read_file("again.jsonl").conversations] == [c.name for c in found]
    step(*flags, "--out", tmp_path / "other.jsonl", "--seed", 1)
    assert {c.name for c in read_file("other.jsonl").conversations}.isdisjoint(c.name for c in found)


def test_of_two_models_each_opens_every_second_conversation(step, trained, tmp_path):
    bi, poly = trained("bi"), trained("poly")
    flags = ("-t", SAMPLE, "--conversations", 4, "--turns", 2, "--out", "two.jsonl")
    printed, _ = step("self_chat", "-mf", bi, "--partner-model-file", poly, *flags)
    assert printed["models"] == sorted([bi, poly])
    first = [conversation.models["speaker_1"] for conversation in read_file("two.jsonl").conversations]
    assert first == [bi, poly, bi, poly]
    assert not Conversations("two.jsonl").metadata.self_chat


@pytest.mark.slow
def test_models_that_parlai_wrote_and_its_agents_talk_too(step, written):
    flags = ("-t", SAMPLE, "--conversations", 2, "--turns", 2, "--out", "chats.jsonl")
    poly = written("poly")
    step("self_chat", "-mf", poly, "--partner-model-file", poly, *flags)
    assert all(turn.text for conversation in read_file("chats.jsonl").conversations for turn in conversation.turns)
    printed, _ = step("self_chat", "-m", "repeat_label", *flags)
    assert printed["models"] == ["repeat_label"]
    step("self_chat", "-m", "ir_baseline", *flags)


def test_a_ranker_of_parlais_that_has_said_everything_is_told_of_with_the_flag_that_mends_it(step, written, tmp_path):
    (tmp_path / "replies.txt").write_text("yes .\nno .\n")
    model = ("-mf", written("poly"), "-m", "transformer/polyencoder")
    flags = ("-t", SAMPLE, "--conversations", 1, "--turns", 3, "--out", "chats.jsonl")
    flags += ("--fixed-candidates-path", tmp_path / "replies.txt")
    with pytest.raises(InputError, match="give --repeat-blocking-heuristic false"):
        step("self_chat", *model, *flags)
    assert not (tmp_path / "chats.jsonl").exists()
    step("self_chat", *model, *flags, "--repeat-blocking-heuristic", "false")
    (found,) = read_file("chats.jsonl").conversations
    assert {turn.text for turn in found.turns[1:]} <= {"yes .", "no ."}


def test_self_chat_refuses(ends_with_2, trained, tmp_path):
    bi, out = trained("bi"), tmp_path / "x.jsonl"
    (line,) = ends_with_2("human_eval", "self_chat", "-mf", bi)
    assert "needs --model-file, --task and --out" in line
    (line,) = ends_with_2("human_eval", "self_chat", "-mf", tmp_path / "none", "-t", SAMPLE, "--out", out)
    assert "no trained model" in line
    flags = ("human_eval", "self_chat", "-mf", bi, "-t", SAMPLE, "--out", out)
    (line,) = ends_with_2(*flags, "--partner-model-file", tmp_path / "none", "--conversations", 1)
    assert "--partner-model-file" in line
    for wrong in (bi, f"{bi}.opt", tmp_path, tmp_path / "none/x.jsonl", tmp_path / "x.metadata"):
        (line,) = ends_with_2(*flags[:-1], wrong)  # before anybody talks
        assert f"--out {wrong}" in line
    line = ends_with_2(*flags, "--conversations", 10_000)[-1]
    assert "openings in -dt valid, fewer than 10000" in line
    assert not out.exists()


# ---- import --------------------------------------------------------------------------------------------------------


def test_logs_of_parlais_commands_are_read(step, chat, trained, tmp_path):
    talk = ("-m", "repeat_label", "-t", "self_chat", "--display-examples", "false", "--selfchat-max-turns", 3)
    run("self_chat", *talk, "--num-self-chats", 2, "--outfile", tmp_path / "self.jsonl")
    run("self_chat", *talk, "--num-self-chats", 2, "--outfile", tmp_path / "self.txt", "--save-format", "parlai")
    bi = trained("bi")
    chat(bi, ["hi there", "do you ski ?", "[EXIT]"], "--outfile", tmp_path / "human.jsonl")
    run("eval_model", "-m", "repeat_label", "-t", SAMPLE, "-ne", 8, "--world-logs", tmp_path / "world.jsonl")

    itself, text, human, world = (
        read_file(str(tmp_path / name)) for name in ("self.jsonl", "self.txt", "human.jsonl", "world.jsonl")
    )
    assert not any(found.malformed for found in (itself, text, human, world))
    assert [dict(c.models) for c in itself.conversations] == 2 * [
        {"speaker_1": "repeat_label", "speaker_2": "repeat_label"}
    ]
    assert all(c.context == ("speaker_1: Hi!",) for c in itself.conversations)
    assert [turn.text for turn in text.conversations[0].turns][1:] == 3 * ["I don't know."]
    (talked,) = human.conversations
    assert dict(talked.models) == {"speaker_1": HUMAN, "speaker_2": bi}
    assert [turn.text for turn in talked.turns][::2] == ["hi there", "do you ski ?"]
    assert all(dict(c.models) == {"speaker_1": HUMAN, "speaker_2": "repeat_label"} for c in world.conversations)
    assert all(len(c.context) == 3 and "persona" not in c.turns[0].text for c in world.conversations)
    printed, _ = step("import", *(tmp_path / name for name in ("self.jsonl", "self.txt", "human.jsonl", "world.jsonl")))
    assert printed["malformed"] == 0 and printed["read"] == sum(
        len(found.conversations) for found in (itself, text, human, world)
    )


def test_older_json_logs_are_read_and_their_model_named(step, tmp_path):
    acts = [[{"id": f"TransformerRanker_{place}", "text": f"turn {place}"} for place in (1, 2)]]
    (tmp_path / "old.json").write_text(json.dumps([acts, acts, []]))
    (one, two) = read_file("old.json").conversations
    assert one == two and dict(one.models) == {"speaker_1": "TransformerRanker", "speaker_2": "TransformerRanker"}
    (renamed, _) = read_file("old.json", "poly").conversations
    assert dict(renamed.models) == {"speaker_1": "poly", "speaker_2": "poly"} and renamed.turns == one.turns
    printed, _ = step("import", "old.json", "--model-name", "poly")
    assert printed["conversations"] == 1
    stored = EvaluationStore("human_eval.db").conversations().values()
    assert {model for conversation in stored for model in conversation.models.values()} == {"poly"}


def said_by(*names):
    """One message of each; without a name, nobody is named."""
    return [{"text": f"turn {turn}"} | ({} if name is None else {"id": name}) for turn, name in enumerate(names)]


@pytest.mark.parametrize(
    ("dialog", "itself", "models", "speakers"),
    [
        (said_by("Human", "Bot", "Human"), False, [HUMAN, "runs/x"], "121"),
        (said_by("Bot_1", "Bot_1", "Bot_2"), True, ["runs/x", "runs/y"], "112"),
        (said_by(None, None, None), True, ["runs/x", "runs/y"], "121"),
        ([said_by(1, 0), said_by(0, 1)], True, ["runs/x", "runs/y"], "1221"),
        ([[{"id": "context", "text": "i ski ."}, *said_by("A", "B")], said_by("A")], True, ["runs/x", "runs/y"], "121"),
    ],
)
def test_each_speaker_has_the_model_that_the_metadata_says(dialog, itself, models, speakers, tmp_path):
    path = write_lines(tmp_path / "log.jsonl", {"dialog": dialog})
    opt = {"model_file": "runs/x", "partner_model_file": "runs/y"}
    (tmp_path / "log.metadata").write_text(json.dumps({"opt": opt, "self_chat": itself}))
    (found,) = read_file(str(path)).conversations
    assert [*found.models.values()] == models
    assert "".join(turn.speaker[-1] for turn in found.turns) == speakers


@pytest.mark.parametrize("line", [json.dumps({"dialog": DIALOG}), "text:hi\tlabels:hello\tepisode_done:True"])
def test_a_mark_of_utf_8_is_not_a_part_of_the_first_line(line, tmp_path):
    path = write_lines(tmp_path / "log", f"\ufeff{line}", line)
    found = read_file(str(path))
    assert len(found.conversations) == 2 and not found.malformed


def test_one_name_does_not_fit_two_models(tmp_path):
    entry = {"dialog": [[{"id": "a", "text": "hi"}, {"id": "b", "text": "hi"}]]}
    found = read_file(str(write_lines(tmp_path / "two.jsonl", entry)), "poly")
    assert found.malformed == [("line 1", "it has 2 models, and --model-name can name only one")]


def test_one_name_does_not_fit_a_pairing(tmp_path):
    pair, both = check_pair()
    acute_eval_format.write_pairings(str(tmp_path / "p.jsonl"), [pair], {one.name: one for one in both})
    found = read_file(str(tmp_path / "p.jsonl"), "poly")
    assert found.malformed == [("line 1", "it names two models, and --model-name can name only one")]


def test_parlais_onboarding_file_is_one_object_over_many_lines(tmp_path):
    pair, conversations = check_pair()
    entry = acute_eval_format.as_pairing(pair, {conversation.name: conversation for conversation in conversations})
    for kept in ("dialogue_ids", "models", "context"):  # ParlAI's own has none of them
        entry.pop(kept, None)
        for dialogue in entry["dialogue_dicts"]:
            dialogue.pop(kept, None)
    (tmp_path / "onboarding.json").write_text(json.dumps(entry, indent=4))
    found = read_file(str(tmp_path / "onboarding.json"))
    assert [pair.right for pair in found.pairs] == [1] and not found.malformed
    assert [set(conversation.models.values()) for conversation in found.conversations] == [{"bad"}, {"good"}]


MALFORMED = [
    ("no JSON at all", "it is not JSON"),
    ('{"dialog": [[{"id": "a", "text": "cut off', "it is not JSON"),
    ({"text": "hi"}, "it has neither a dialog, nor dialogue_dicts, nor annotations"),
    (3, "it has neither a dialog, nor dialogue_dicts, nor annotations"),
    (None, "it has neither a dialog, nor dialogue_dicts, nor annotations"),
    ({"dialog": "hi"}, "its dialog or context is not a list"),
    ({"dialog": DIALOG, "context": {"a": 1}}, "its dialog or context is not a list"),
    ({"dialog": DIALOG, "models": ["a"]}, "its models are not an object"),
    ({"dialog": []}, "nobody speaks"),
    ({"dialog": [[{"id": "a"}]]}, "a turn has no text"),
    ({"dialog": [["hi"]]}, "a turn has no text"),
    ({"dialog": [[{"id": "a", "text": 3}]]}, "a turn has no text"),
    ("[" * 100_000, "it is nested too deeply"),
    ({"dialogue_dicts": []}, "its speakers_to_eval are not two different names"),
    ({"dialogue_dicts": [], "speakers_to_eval": ["a", "a"]}, "its speakers_to_eval are not two different names"),
    ({"dialogue_dicts": [], "speakers_to_eval": ["a", ""]}, "its speakers_to_eval are not two different names"),
    ({"dialogue_dicts": [], "speakers_to_eval": ["\0", "\ud800"]}, "its speakers_to_eval are not two different names"),
    ({"dialogue_dicts": [{}], "speakers_to_eval": ["a", "b"]}, "its dialogue_dicts are not two dialogues"),
    ({"dialogue_dicts": [{}, {}], "speakers_to_eval": ["a", "b"]}, "a dialogue or its context is not a list"),
    (
        {"dialogue_dicts": 2 * [{"dialogue": [{"id": "a", "text": "hi"}]}], "speakers_to_eval": ["a", "b"]},
        "b is to be judged but does not speak",
    ),
    (
        {
            "is_onboarding": True,
            "correct_answer": ["a"],
            "dialogue_dicts": [{"dialogue": [{"id": name, "text": "hi"}]} for name in "ab"],
            "speakers_to_eval": ["a", "b"],
        },
        "its correct_answer is not one of its speakers_to_eval",
    ),
]


def test_malformed_lines_are_told_by_number_and_the_rest_is_kept(step, tmp_path):
    good = {"dialog": DIALOG}
    lines = [good, *(entry for entry, _ in MALFORMED), good | {"dialog": [*DIALOG, *DIALOG]}]
    path = write_lines(tmp_path / "mixed.jsonl", *lines)
    found = read_file(str(path))
    assert found.malformed == [(f"line {number}", why) for number, (_, why) in enumerate(MALFORMED, 2)]
    assert len(found.conversations) == 2 and not found.pairs
    path.write_bytes(b'{"dialog": "\xff"}\n' + path.read_bytes() + b"x\n" * 30)
    printed, said = step("import", path)
    malformed = len(MALFORMED) + 31
    assert printed["conversations"] == 2 and printed["malformed"] == malformed
    assert f"{path}, line 1, is skipped: it is not UTF-8.\n{path}, line 3, is skipped: it is not JSON." in said
    assert said.count("is skipped") == 20
    assert f"{malformed - 20} more skipped, {malformed} in all." in said


def test_a_broken_line_spoils_its_dialogue_of_the_text_format(tmp_path):
    path = write_lines(
        tmp_path / "log.txt",
        "text:hi\tlabels:hello\tepisode_done:True",
        "",
        "text:a\tlabels:b",
        "text:c",
        "",
        "text:d\tlabels:e",
    )
    found = read_file(str(path))
    assert [[turn.text for turn in conversation.turns] for conversation in found.conversations] == [
        ["hi", "hello"],
        ["d", "e"],
    ]
    assert found.malformed == [
        ("line 3", "the dialogue that begins there is broken in line 4: it has no text: or no labels: field")
    ]


def test_lines_of_the_text_format_are_read_as_parlai_reads_them():
    draw = random.Random(0)
    pieces = ["a", " ", ":", "|", "\\n", "\\t", "\\", "n", "t", "__PIPE__", "text:", "labels:x", "é\u2028", "=", '"']
    names = ["text", "labels", "id", "episode_done", "label_candidates", "more"]
    read = 0
    for _ in range(2000):
        parts = [f"{draw.choice(names)}:{''.join(draw.choices(pieces, k=draw.randrange(6)))}" for _ in range(4)]
        line = "\t".join(parts)
        theirs = str_to_msg(line)
        if "text" not in theirs or "labels" not in theirs:
            with pytest.raises(parlai_format.Malformed, match="it has no text: or no labels: field"):
                parlai_format.read_text_line(line)
            continue
        asked, answer = parlai_format.read_text_line(line)
        assert asked == {"id": theirs.get("id"), "text": theirs["text"]} and answer["text"] == theirs["labels"][0]
        read += 1
    assert 200 < read < 1800


def test_what_is_imported_twice_is_there_once(step, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", {"dialog": DIALOG}, {"dialog": [*DIALOG, *DIALOG]}, {"dialog": DIALOG})
    other = write_lines(tmp_path / "b.jsonl", {"dialog": DIALOG, "context": [], "more": 1})
    assert step("import", path)[0]["conversations"] == 2
    assert step("import", path, other)[0] | {"database": ""} == {
        "conversations": 0,
        "pairs": 0,
        "read": 4,
        "malformed": 0,
        "database": "",
    }


def test_import_refuses(ends_with_2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = ends_with_2("human_eval", "import")
    assert "needs files" in line
    (line,) = ends_with_2("human_eval", "import", "none.jsonl")
    assert "none.jsonl cannot be read (No such file or directory)" in line
    path = write_lines(tmp_path / "bad.jsonl", "nothing")
    assert "There is no conversation or answer in" in ends_with_2("human_eval", "import", path)[-1]
    assert not (tmp_path / "human_eval.db").exists()


# ---- export --------------------------------------------------------------------------------------------------------


def test_hostile_texts_are_stored_and_come_back_from_every_format(store, tmp_path):
    turns = [(speaker, text) for text in HOSTILE for speaker in ("<i>", "\x00'; --")]
    models = {"<i>": "</td><script>", "\x00'; --": "b\x00\ud800"}
    wild = make_conversation(turns, models, ["<p>", *HOSTILE[:3]], "a\x00b")
    plain = self_chat("a", 0)
    pairs = [make_pair(Side(wild.name, "speaker_1"), Side(plain.name, "speaker_2"), right) for right in (None, 1)]
    assert store.add_conversations([wild, plain]) == 2 and store.add_pairs(pairs) == 2
    there = store.conversations()
    assert there == {wild.name: wild, plain.name: plain} and store.pairs() == pairs
    assert wild.turns[2].text == wild.turns[3].text == "a NUL \N{REPLACEMENT CHARACTER} in it"
    assert wild.turns[6].text == HOSTILE[3] and len(wild.turns[-1].text) == 1_000_000

    parlai_format.write_conversations(str(tmp_path / "c.jsonl"), there.values())
    acute_eval_format.write_pairings(str(tmp_path / "p.jsonl"), pairs, there)
    as_conversations, as_pairings = read_file(str(tmp_path / "c.jsonl")), read_file(str(tmp_path / "p.jsonl"))
    assert not as_conversations.malformed and not as_pairings.malformed
    assert as_pairings.pairs == [pairs[1], pairs[0]]  # checks first
    expected = [without_source(wild), without_source(plain)]
    assert [without_source(conversation) for conversation in as_conversations.conversations] == expected
    assert [without_source(conversation) for conversation in as_pairings.conversations] == 2 * expected


def test_what_a_store_exports_another_imports(step, tmp_path):
    store = filled(EvaluationStore("one.db"), checks=1)
    assert step("export", "--database", "one.db", "--to", "acute_eval", "--out", "p.jsonl")[0]["pairs"] == 5
    step("export", "--database", "one.db", "--to", "parlai", "--out", "c.jsonl")
    assert step("import", "c.jsonl", "p.jsonl", "--database", "two.db")[0] == {
        "conversations": 10,
        "pairs": 5,
        "read": 20,
        "malformed": 0,
        "database": str(tmp_path / "two.db"),
    }
    other = EvaluationStore("two.db")
    assert {pair.name: pair for pair in other.pairs()} == {pair.name: pair for pair in store.pairs()}
    for name, conversation in store.conversations().items():
        assert without_source(other.conversations()[name]) == without_source(conversation)
    assert [len(conversation) for conversation in Conversations("c.jsonl")] == 10 * [6]


def test_the_folder_for_a_crowd_platform_is_what_parlai_loads(step, tmp_path):
    filled(EvaluationStore("human_eval.db"), checks=1)
    step("export", "--to", "crowd_task", "--out", "task")
    lines = [json.loads(line) for line in (tmp_path / "task/pairings.jsonl").read_text().splitlines()]
    for line in lines:  # what acute_eval_runner.py:_load_conversation_data does; it cannot be imported without Mephisto
        judged = [s for d in line["dialogue_dicts"] for s in d["speakers"] if s in line["speakers_to_eval"]]
        assert judged == line["speakers_to_eval"]
        assert all({"id", "text"} <= turn.keys() for d in line["dialogue_dicts"] for turn in d["dialogue"])
        assert line["is_onboarding"] == ("correct_answer" in line) and len(line["dialogue_ids"]) == 2
    assert [line["is_onboarding"] for line in lines] == [True, *4 * [False]]
    settings = yaml.safe_load((tmp_path / "task/polyagents.yaml").read_text())["mephisto"]["blueprint"]
    assert settings["num_matchup_pairs"] == 4 and settings["block_on_onboarding_fail"] is True
    readme = (tmp_path / "task/README.md").read_text()
    assert "4 pairs and 1 onboarding check of a, b" in readme and "Not tried" in readme


def test_export_refuses(ends_with_2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = ends_with_2("human_eval", "export", "--to", "csv", "--out", "x")
    assert "needs --to acute_eval|parlai|crowd_task|potato|label_studio|payments and --out" in line
    store = EvaluationStore("human_eval.db")
    (line,) = ends_with_2("human_eval", "export", "--to", "parlai", "--out", "x")
    assert "There is no conversation" in line
    store.add_conversations(conversations_of(a=1))
    (line,) = ends_with_2("human_eval", "export", "--to", "acute_eval", "--out", "x")
    assert "There are no pairs" in line
    (line,) = ends_with_2("human_eval", "export", "--to", "parlai", "--out", "none/x.jsonl")
    assert "cannot be written" in line
    for target, out in itertools.product(("acute_eval", "parlai", "payments"), ("human_eval.db", tmp_path)):
        (line,) = ends_with_2("human_eval", "export", "--to", target, "--out", out)
        assert "would replace what is read" in line or "cannot be written" in line
    (line,) = ends_with_2("human_eval", "export", "--to", "parlai", "--out", "x.metadata")
    assert "is for the metadata of a file" in line
    for target in ("acute_eval", "parlai", "crowd_task", "payments"):  # they ask nothing that a flag says
        (line,) = ends_with_2("human_eval", "export", "--to", target, "--out", "x.jsonl", "--question", "humanlike")
        assert f"--question is for --to potato|label_studio; {target} does not take it" in line
    assert len(store.conversations()) == 1 and not [*tmp_path.glob("x*")]


# ---- pairs ---------------------------------------------------------------------------------------------------------


def uses(pairs):
    """How often each side is used."""
    return Counter(side for pair in pairs for side in pair.sides)


def test_pairs_use_all_conversations_equally_often_and_never_twice_together():
    for a, b in ((4, 4), (4, 6), (3, 5), (1, 7)):
        conversations = conversations_of(a=a, b=b)
        for count in range(1, a * b + 1):
            pairs = make_pairs(conversations, [("a", "b")], count, 0)
            assert len({pair.name for pair in pairs}) == count
            used = uses(pairs)
            for model in "ab":
                each = [used[side] for c in conversations for m, side in sides_of(c).items() if m == model]
                assert max(each) - min(each) <= 1


def test_pairs_are_the_same_for_the_same_seed_and_matchups_take_turns():
    conversations = conversations_of(a=6, b=6, c=6)
    matchups = read_matchups("all", ["a", "b", "c"])
    assert matchups == [("a", "b"), ("a", "c"), ("b", "c")]
    pairs = make_pairs(conversations, matchups, 5, 0)
    assert pairs == make_pairs(conversations, matchups, 5, 0) != make_pairs(conversations, matchups, 5, 1)
    assert make_pairs(conversations, matchups, 8, 0)[:15] == pairs
    models = {c.name: next(iter(c.models.values())) for c in conversations}
    met = [tuple(models[side.conversation] for side in pair.sides) for pair in pairs]
    assert all(sorted(met[start : start + 3]) == matchups for start in range(0, 15, 3))


def test_two_speakers_of_one_conversation_are_no_pair_and_a_self_chat_is_judged_by_its_second():
    both = make_conversation([("x", "hi"), ("y", "ho")], {"x": "a", "y": "b"})
    with pytest.raises(InputError, match=r"a:b gives 0 pairs \(1 conversation of a, 1 of b\)"):
        make_pairs([both], [("a", "b")], 1, 0)
    (pair,) = make_pairs([both, self_chat("a", 0)], [("a", "b")], 1, 0)
    assert pair.sides == (Side(self_chat("a", 0).name, "speaker_2"), Side(both.name, "speaker_2"))


def test_matchups_of_names_with_colons_and_commas():
    models = ["a", "zoo:x/model", "runs/1,2/M", "a:b", "b"]
    given = "zoo:x/model:runs/1,2/M,a:b:b,a:b,b:a"
    assert read_matchups(given, models) == [("runs/1,2/M", "zoo:x/model"), ("a:b", "b"), ("a", "b")]


def test_pairs_command(step, tmp_path):
    store = EvaluationStore("human_eval.db")
    talked = make_conversation([("x", "hi"), ("y", "ho")], {"x": HUMAN, "y": "a"})
    store.add_conversations([*conversations_of(a=3, b=3), talked])
    pair, both = check_pair()
    checks = tmp_path / "checks.jsonl"
    acute_eval_format.write_pairings(str(checks), [pair], {conversation.name: conversation for conversation in both})
    first, _ = step("pairs", "--per-matchup", 3, "--checks", checks)
    assert (first["added"], first["pairs"], first["checks"], first["matchups"]) == (3, 3, 1, ["a:b"])
    again, said = step("pairs", "--per-matchup", 3, "--checks", checks)
    assert (again["added"], again["pairs"], again["checks"]) == (0, 3, 1)
    assert "These pairs exist already: nothing is added" in said
    reversed_, _ = step("pairs", "--matchups", "b:a", "--per-matchup", 3)
    assert (reversed_["added"], reversed_["matchups"]) == (0, ["a:b"])
    people, _ = step("pairs", "--matchups", "a:human,human:b", "--per-matchup", 1)
    assert people["matchups"] == ["a:human", "b:human"] and people["pairs"] == 5


def test_pairs_called_again_says_what_became_of_the_earlier_ones(step):
    EvaluationStore("human_eval.db").add_conversations(conversations_of(a=5, b=5))
    _, said = step("pairs", "--per-matchup", 3)
    assert said == ""
    more, said = step("pairs", "--per-matchup", 5)  # begins with the same three
    assert (more["added"], more["pairs"]) == (2, 5) and "2 pairs more than the 3 from before: all 5 will" in said
    other, said = step("pairs", "--per-matchup", 5, "--seed", 1)
    assert other["added"] == other["pairs"] - 5 > 0 and "To have only the new ones, give another --database" in said


def test_pairs_refuses(ends_with_2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = ("human_eval", "pairs")
    store = EvaluationStore("human_eval.db")
    assert "conversations of none" in ends_with_2(*call)[0]
    store.add_conversations(conversations_of(a=2, b=3))
    (line,) = ends_with_2(*call)
    assert "a:b gives 6 pairs (2 conversations of a, 3 of b), not 50;" in line
    (line,) = ends_with_2(*call, "--matchups", "a:b,a:c")
    assert "'a:c' is not a pair of two different models; there are a, b" in line
    assert "'a:a' is not a pair" in ends_with_2(*call, "--matchups", "a:a")[0]
    path = write_lines(tmp_path / "none.jsonl", {"dialog": DIALOG})
    assert "has no onboarding pairs" in ends_with_2(*call, "--checks", path)[0]
    pair, both = check_pair()
    acute_eval_format.write_pairings(
        str(tmp_path / "checks"), [pair], {conversation.name: conversation for conversation in both}
    )
    assert "a:b gives 6 pairs" in ends_with_2(*call, "--checks", tmp_path / "checks")[0]  # and no check is stored
    assert store.pairs() == []


# ---- the store -----------------------------------------------------------------------------------------------------


def test_an_annotator_is_shown_checks_first_then_every_pair_once(store):
    filled(store, checks=2)
    ((ann, token),) = [(a.name, a.token) for a in store.invite(["Ann"])]
    assert (ann, store.annotator(token).name) == ("Ann", "Ann")
    seen = []
    while shown := store.next_assignment(token):
        assert store.next_assignment(token) == shown  # resumed
        assert (shown.place, shown.total) == (len(seen) + 1, 6)
        seen.append({half.conversation.models[half.speaker] for half in (shown.left, shown.right)})
        store.answer(token, shown.number, right_choice(shown), "because", 2.5)
    assert seen == 2 * [{"bad", "good"}] + 4 * [{"a", "b"}]
    judgements = store.judgements()
    assert [judgement.winner for judgement in judgements] == 4 * ["b"]
    assert {judgement.pair for judgement in judgements} == {pair.name for pair in store.pairs() if pair.right is None}
    assert dataclasses.replace(judgements[0], started="", ended="", words=0) == Judgement(
        "Ann", judgements[0].pair, ("a", "b"), "b", DEFAULT_QUESTION, "because", 2.5, True
    )
    progress = store.progress()
    assert (progress.conversations, progress.pairs, progress.checks, progress.judged) == (12, 4, 2, 4)
    assert progress.matchups == {("a", "b"): 4}
    (one,) = progress.annotators
    assert (one.name, one.judged, one.checks, one.checks_right, one.passed) == ("Ann", 4, 2, 2, True)
    assert one.last is not None


@pytest.mark.slow
def test_sides_are_drawn_for_each_annotator_and_pair(store):
    filled(store, per_matchup=16)
    lefts = []
    for annotator in store.invite([f"annotator {number}" for number in range(8)]):
        while shown := store.next_assignment(annotator.token):
            lefts.append(shown.left.conversation.models[shown.left.speaker])
            store.answer(annotator.token, shown.number, "left")
    count = Counter(lefts)["a"]
    assert len(lefts) == 128 and 40 < count < 88  # 64 with a standard deviation of 5.7


@pytest.mark.slow
def test_the_least_judged_pairs_come_first(store):
    filled(store, per_matchup=5)
    tokens = [annotator.token for annotator in store.invite("abcdefg")]
    shown = [store.next_assignment(token) for token in tokens]
    both = Counter(frozenset((s.left.conversation.name, s.right.conversation.name)) for s in shown)
    assert sorted(both.values()) == [1, 1, 1, 2, 2]
    for token, assignment in zip(tokens, shown, strict=True):
        store.answer(token, assignment.number, "left")
    for token in tokens[:3]:  # the three with one judgement only
        second = store.next_assignment(token)
        store.answer(token, second.number, "left")
    counts = Counter(judgement.pair for judgement in store.judgements())
    assert sorted(counts.values()) == [2, 2, 2, 2, 2]


def test_an_annotator_reads_new_conversations_while_there_are_pairs_of_them(store):
    store.add_conversations(conversations_of(a=4, b=4))
    first, second = ([sides_of(one)[model] for one in conversations_of(**{model: 4})] for model in "ab")
    store.add_pairs(make_pair(first[i], second[(i + step) % 4]) for step in range(2) for i in (0, 1))
    store.add_pairs(make_pair(first[i], second[i]) for i in (2, 3))  # unread, though they came last
    ann, bob = (annotator.token for annotator in store.invite(["Ann", "Bob"]))

    def read(token, count):
        seen = []
        for _ in range(count):
            shown = store.next_assignment(token)
            seen += [shown.left.conversation.name, shown.right.conversation.name]
            store.answer(token, shown.number, "left")
        return seen

    assert len(set(read(ann, 4))) == 8
    assert len(set(read(bob, 2))) == 4 and len(store.judgements()) == 6  # what Ann has not judged comes first
    assert len(read(ann, 2)) == 4 and store.next_assignment(ann) is None  # read again, as there is nothing else
    assert sorted(Counter(one.pair for one in store.judgements()).values()) == [1, 1, 1, 1, 2, 2]


def test_the_organisers_token_stays(database):
    first = EvaluationStore(database)
    token = first.organiser()
    assert len(token) > 20 and first.organiser() == token
    first.close()
    second = EvaluationStore(database)
    assert second.organiser() == token
    second.close()


def test_progress_is_that_of_one_question(store):
    filled(store, per_matchup=3, checks=1)
    (ann,) = store.invite(["Ann"])
    for question, count in ((DEFAULT_QUESTION, 4), ("Which speaker sounds more human?", 2)):
        for _ in range(count):
            shown = store.next_assignment(ann.token, question)
            store.answer(ann.token, shown.number, right_choice(shown), question=question)
        progress = store.progress(question)
        assert progress.judged == progress.annotators[0].judged == count - 1
        assert progress.matchups == {("a", "b"): count - 1}
    assert progress.annotators[0].checks == progress.annotators[0].checks_right == 2  # of both: they tell of the person


@pytest.mark.parametrize(("checks", "right", "passed"), [(4, 3, True), (7, 5, False)])
def test_three_of_four_checks_are_enough(tmp_path, checks, right, passed):
    store = filled(EvaluationStore(str(tmp_path / "s.db")), per_matchup=1, checks=checks)
    (ann,) = store.invite(["Ann"])
    for number in range(checks):
        shown = store.next_assignment(ann.token)
        choice = right_choice(shown)
        store.answer(ann.token, shown.number, choice if number < right else {"left": "right", "right": "left"}[choice])
    (found,) = store.progress().annotators
    assert (found.checks, found.checks_right, found.passed) == (checks, right, passed)
    store.close()


@pytest.mark.slow
def test_who_fails_the_checks_is_flagged_goes_on_and_does_not_count_for_balance(store):
    filled(store, per_matchup=2, checks=2)
    good, bad = (annotator.token for annotator in store.invite(["good", "bad"]))

    def judge(token, prefer_right, count):
        for _ in range(count):
            shown = store.next_assignment(token)
            right = right_choice(shown)
            wrong = {"left": "right", "right": "left"}[right]
            store.answer(token, shown.number, right if prefer_right else wrong)

    judge(bad, False, 3)
    judge(good, True, 3)
    pairs = [judgement.pair for judgement in store.judgements()]
    assert pairs[0] == pairs[1]  # the first one's answer is none that counts
    assert {judgement.annotator: judgement.passed for judgement in store.judgements()} == {"bad": False, "good": True}
    progress = store.progress()
    assert {a.name: (a.passed, a.checks_right) for a in progress.annotators} == {"good": (True, 2), "bad": (False, 0)}
    assert progress.judged == 1 and progress.matchups == {("a", "b"): 1}


def test_an_answer_is_kept_once_and_only_the_latest_can_be_changed(store):
    filled(store)
    (ann,) = store.invite(["Ann"])
    first = store.next_assignment(ann.token)
    for _ in range(3):
        store.answer(ann.token, first.number, "left", "why not", 1.0)
    (kept,) = store.judgements()
    store.answer(ann.token, first.number, "right", "a slip", 2.0)
    (changed,) = store.judgements()
    assert changed.winner != kept.winner and (changed.reason, changed.seconds) == ("a slip", 2.0)
    second = store.next_assignment(ann.token)
    store.answer(ann.token, first.number, "left")  # the second is shown, and has no answer yet
    store.answer(ann.token, second.number, "left")
    with pytest.raises(InputError, match="Pair 1 has its answer, and so has a later one"):
        store.answer(ann.token, first.number, "right")
    store.answer(ann.token, first.number, "left")  # the same again is no change
    assert len(store.judgements()) == 2


def test_a_second_question_is_asked_about_the_same_pairs_with_the_same_sides(store):
    filled(store, per_matchup=2)
    (ann,) = store.invite(["Ann"])
    rounds = []
    for question in (DEFAULT_QUESTION, "Which speaker sounds more human?"):
        rounds.append([])
        while shown := store.next_assignment(ann.token, question):
            rounds[-1].append(shown)
            store.answer(ann.token, shown.number, "left", question=question)
    assert rounds[0] == rounds[1] and len(store.judgements()) == 4


def test_what_an_annotator_must_not_do_is_refused_and_changes_nothing(store):
    filled(store)
    ann, bob = (annotator.token for annotator in store.invite(["Ann", "Bob"]))
    anns, bobs = store.next_assignment(ann), store.next_assignment(bob)
    for token, number, choice, seconds in (
        (bob, anns.number, "left", None),
        (ann, bobs.number, "left", None),
        (ann, 0, "left", None),
        (ann, -1, "left", None),
        (ann, 10**30, "left", None),
        ("", anns.number, "left", None),
        ("Ann", anns.number, "left", None),
        ("\x00' OR 1=1 --\ud800", anns.number, "left", None),
        (ann, anns.number, "both", None),
        (ann, anns.number, "0", None),
        (ann, anns.number, "left", -1.0),
        (ann, anns.number, "left", float("nan")),
        (ann, anns.number, "left", float("inf")),
    ):
        with pytest.raises(InputError):
            store.answer(token, number, choice, "", seconds)
    for token in ("", "none", "\x00"):
        with pytest.raises(InputError, match="link is not known"):
            store.annotator(token)
        with pytest.raises(InputError, match="link is not known"):
            store.next_assignment(token)
    assert store.judgements() == []


@pytest.mark.parametrize("reason", HOSTILE)
def test_hostile_reasons_and_names_are_kept_as_text(store, reason):
    filled(store, per_matchup=1)
    (ann,) = store.invite([f"Ann {reason[:50]}"])
    shown = store.next_assignment(ann.token)
    for _ in range(2):  # the same, although it was cleaned
        store.answer(ann.token, shown.number, "left", reason)
    (judgement,) = store.judgements()
    cleaned = "".join(
        "\N{REPLACEMENT CHARACTER}" if char == "\x00" or "\ud800" <= char <= "\udfff" else char for char in reason
    )
    assert judgement.reason == cleaned and judgement.annotator == f"Ann {cleaned[:50]}".strip()


def test_pairs_of_unknown_conversations_are_refused_as_a_whole(store):
    conversations = conversations_of(a=1, b=1)
    known = make_pairs(conversations, [("a", "b")], 1, 0)
    with pytest.raises(InputError, match="is not stored"):
        store.add_pairs(known)
    store.add_conversations(conversations)
    unknown = make_pair(Side("nowhere", "speaker_1"), known[0].sides[0])
    with pytest.raises(InputError, match="conversation nowhere is not stored"):
        store.add_pairs([*known, unknown])
    assert store.pairs() == [] and store.add_pairs([*known, *known]) == 1


def test_who_is_invited_again_keeps_the_link(step, capsys, database):
    def links(*names):
        capsys.readouterr()
        human_eval("invite", *names, "--database", database)
        return dict(line.split("\t") for line in capsys.readouterr().out.splitlines())

    first = links("Ann", "Bob", "Ann")
    assert list(first) == ["Ann", "Bob"] and len(set(first.values())) == 2
    assert links("Cy", "Bob") == {"Bob": first["Bob"]} | {"Cy": links("Cy")["Cy"]}
    token = first["Ann"].rsplit("/", 1)[1]
    assert len(token) >= 22 and EvaluationStore(database).annotator(token).name == "Ann"


def test_databases_that_cannot_be(ends_with_2, tmp_path):
    invite = ("human_eval", "invite", "Ann", "--database")
    (tmp_path / "text").write_text("this is a text, and long enough not to be taken for an empty database. " * 20)
    for wrong, why in (
        (tmp_path / "text", "file is not a database"),
        (tmp_path / "none" / "x.db", "unable to open database file"),
        ("postgresql://nobody@/none?host=/nowhere", "cannot be used"),
        ("mysql://a@b/c", "'mysql' is not supported"),
        ("sqlite://", "'sqlite' without a file"),
        ("://", "is not a URL"),
    ):
        (line,) = ends_with_2(*invite, wrong)
        assert why in line and "postgresql://USER:PASSWORD@HOST/NAME" in line, wrong
    for name in (" ", "x" * 201):
        with pytest.raises(InputError, match="name is empty or too long"):
            EvaluationStore(str(tmp_path / "x.db")).invite(["Ann", name])
    assert len(EvaluationStore(str(tmp_path / "x.db")).invite(["x" * 200])[0].name) == 200


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE customers (name)",
        "CREATE TABLE pairs (number, name)",
        'CREATE TABLE "a b" (x); PRAGMA journal_mode = WAL',
    ],
)
def test_the_database_of_another_program_is_not_written_to(made, ends_with_2, tmp_path):
    file = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(made)
    before = file.read_bytes()
    (line,) = ends_with_2("human_eval", "invite", "Ann", "--database", file)
    assert "belongs to another program" in line and "is not ours" in line
    assert file.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_writer_left_is_mended(tmp_path):
    """A journal of the older kind, as on disks without shared memory: half of a transaction is in the file."""
    store, _ = evaluation(str(tmp_path / "s.db"), pairs=40)
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.execute("UPDATE conversations SET source = 'x' || hex(randomblob(3000))")
        for name in ("s.db", "s.db-journal"):
            shutil.copy(tmp_path / name, tmp_path / name.replace("s.db", "killed.db"))
    again = EvaluationStore(str(tmp_path / "killed.db"))
    assert len(again.pairs()) == 40 and not any(one.source.startswith("x") for one in again.conversations().values())
    again.close()


@pytest.mark.slow
def test_a_damaged_page_is_one_sentence(tmp_path):
    """Each page in turn, with bytes that mean nothing, or that happen to."""
    store, _ = evaluation(str(tmp_path / "s.db"), pairs=40, annotators=("Ann", "Bob"))
    token = store.invite(["Ann"])[0].token
    judge_all(store, token)
    store.close()
    whole, draw = (tmp_path / "s.db").read_bytes(), random.Random(0)
    for page in range(len(whole) // 4096):
        for count in (1, 40, 4096):
            damaged = bytearray(whole)
            for place in draw.sample(range(4096 * page, 4096 * (page + 1)), count):
                damaged[place] = draw.randrange(256)
            (tmp_path / "d.db").write_bytes(damaged)
            try:
                store = EvaluationStore(str(tmp_path / "d.db"))
                store.conversations(), store.pairs(), store.judgements(), store.progress(), store.next_assignment(token)
                assert count < 4096  # SQLite has no checksums: a byte of a text, or of free space, says nothing
            except InputError as error:
                assert "\n" not in str(error)
            store.close()


# Column, what is put there (SQL), and what the sentence says of it.
TAMPERED = [
    *(("conversations.turns", value, "turns") for value in (
        "'\"x\"'", "'null'", "5", "'{}'", "'[1]'", "'[[\"a\"]]'", "'[[\"a\", 1]]'", "'[[\"a\", \"b\", \"c\"]]'",
        "'[null]'", "'[{\"a\": \"b\"}]'", "'[NaN]'")),
    ("conversations.turns", f"'{'[' * 100_000}'", "nested too deeply|recursion"),
    ("conversations.turns", f"'[{'9' * 5_000}]'", "digits"),
    ("conversations.turns", "'x'", "Expecting value"),
    ("conversations.turns", "x'7bff'", "codec"),
    ("conversations.models", "x'ff'", "codec"),
    ("conversations.turns", "'[]'", "says nothing"),
    *(("conversations.models", value, "models") for value in (
        "'null'", "'[]'", "'\"x\"'", "'{\"speaker_1\": null}'", "'{\"speaker_1\": [1]}'", "7.5")),
    ("conversations.models", "'{}'", "whose model is not known"),
    ("conversations.models", "'{\"nobody\": \"m\"}'", "who says nothing|not known"),
    *(("conversations.context", value, "context") for value in ("'null'", "'{}'", "'[1]'", "'\"x\"'", "'[[]]'")),
    ("conversations.source", "x'ff00'", "source"),
    ("conversations.name", "x'ff00'", "no such conversations.name"),
    ("pairs.conversation_0", "'nowhere'", "no such conversations.name"),
    ("pairs.conversation_1", "x'00'", "no such conversations.name"),
    ("pairs.speaker_0", "'speaker_9'", "whose model is not known"),
    ("pairs.speaker_1", "x'00'", "speaker_1"),
    ("pairs.name", "x'00'", "name"),
    *(("pairs.right", value, "right") for value in ("7", "-1", "'x'", "0.5", "x'00'")),
    *(("answers.choice", value, "choice") for value in ("7", "-1", "'x'", "0.5", "1e300")),
    *(("answers.seconds", value, "seconds") for value in ("'soon'", "-1", "9e999", "x'00'")),
    *(("answers.answered", value, "answered") for value in ("''", "'yesterday'", "x'00'", "20200101")),
    ("answers.reason", "x'00ff'", "reason"),
    ("answers.question", "x'00ff'", "question"),
    ("answers.assignment", "99", "no such assignments.number"),
    ("assignments.annotator", "99", "no such annotators.number"),
    ("assignments.pair", "'x'", "no such pairs.number"),
    *(("assignments.left", value, "left") for value in ("7", "'x'", "-1")),
    *(("assignments.place", value, "place") for value in ("-1", "'x'", "0.5")),
    ("annotators.name", "x'00ff'", "name"),
    ("annotators.token", "x'00ff'", "token"),
    *(("chats.personas", value, "personas") for value in ("'null'", "'[\"a\"]'", "'[1, 2]'", "'{}'", "'\"ab\"'")),
    *(("chats.rating", value, "rating") for value in ("9", "0", "'x'", "2.5")),
    *(("chats.ended", value, "ended") for value in ("''", "'soon'", "x'00'")),
    ("chats.model", "x'00ff'", "model"),
    ("chats.conversation", "'nowhere'", "no such conversations.name"),
    ("chats.annotator", "99", "no such annotators.number"),
    ("messages.chat", "99", "no such chats.number"),
    ("messages.text", "x'00ff'", "text"),
    *(("messages.good", value, "good") for value in ("7", "'x'", "-1")),
    ("messages.place", "'x'", "place"),
    *(("messages.place", value, "place") for value in ("2", "9223372036854775807")),
]  # fmt: skip


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A database with a row or more in each table."""
    file = tmp_path_factory.mktemp("judged") / "s.db"
    store, (token,) = evaluation(str(file), pairs=2, checks=1)
    judge_all(store, token)
    chats = ChatStore(store, ChatPlan(["a"], turns=1, conversations=1))
    chat = chats.current(token)
    chats.say(token, chat.number, 0, "hi")
    chats.reply(chat.number, 1, "hello")
    chats.finish(token, chat.number, 4)
    store.organiser()
    store.close()
    return file


@pytest.fixture(scope="module")
def opened(judged):
    store = EvaluationStore(str(judged))
    yield store
    store.close()


def read_all(store):
    """Read what the steps read."""
    store.pairs(), store.conversations(), chatters(store.database), rated_chats(store.database), store.judgements()
    (token,) = (who.token for who in store.progress().annotators)
    for place in range(1, 4):
        store.visit(token, place)


@pytest.mark.parametrize(("column", "value", "said"), TAMPERED, ids=lambda given: given[:30])
def test_a_row_that_nobody_of_us_stored_is_one_sentence(column, value, said, judged, opened):
    table, name = column.split(".")
    with contextlib.closing(sqlite3.connect(judged, isolation_level=None)) as connection:
        number, old = connection.execute(f'SELECT number, "{name}" FROM {table} ORDER BY number').fetchone()
        connection.execute(f'UPDATE {table} SET "{name}" = {value} WHERE number = {number}')
        try:
            with pytest.raises(InputError, match=said) as raised:
                read_all(EvaluationStore(str(judged)) if "no such" in said else opened)
        finally:
            connection.execute(f'UPDATE {table} SET "{name}" = ? WHERE number = {number}', (old,))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500
    read_all(opened)


def test_of_postgresql_too_a_row_of_another_shape_is_one_sentence(postgres_socket):
    store, (token,) = evaluation(postgres.new_database(postgres_socket))
    judge_all(store, token)
    for change, read, said in (
        ("answers SET seconds = 'NaN'", store.judgements, "seconds nan"),
        ("answers SET seconds = 1, choice = 7", store.judgements, "choice 7"),
        ("answers SET choice = 1, answered = ''", store.progress, "answered ''"),
        ("pairs SET speaker_0 = 'nobody'", store.pairs, "whose model is not known"),
        ("conversations SET turns = '\"x\"'", store.conversations, "turns 'x'"),
        ("conversations SET models = 'null'", store.pairs, "models None"),
    ):
        with store.database.writer.begin() as connection:
            connection.exec_driver_sql(f"UPDATE {change}")
        with pytest.raises(InputError, match=said):
            read()
    store.close()


def test_the_steps_end_with_one_sentence_where_a_row_is_damaged(judged, ends_with_2, tmp_path):
    file = shutil.copy(judged, tmp_path / "t.db")
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE conversations SET models = 'null'")
    for words in ("export --to parlai --out x", "export --to acute_eval --out x", "pairs", "report --out x", "serve"):
        (line,) = ends_with_2("human_eval", *words.split(), "--database", file)
        assert "has the models None); stored data are kept" in line, words


@pytest.mark.parametrize(
    "changed",
    [
        "number INTEGER, name TEXT NOT NULL, token TEXT NOT NULL",
        "number TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, token TEXT NOT NULL",
        "number INTEGER NOT NULL PRIMARY KEY, name, token TEXT NOT NULL",
        "number INTEGER NOT NULL PRIMARY KEY, name TEXT, token TEXT NOT NULL",
        "number INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL",
    ],
)
def test_a_table_of_other_columns_is_another_programs(changed, tmp_path):
    file = tmp_path / "t.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(f"CREATE TABLE annotators ({changed})")
    with pytest.raises(InputError, match="belongs to another program: its table annotators"):
        EvaluationStore(str(file))


# ---- many at once --------------------------------------------------------------------------------------------------

ANNOTATORS, PAIRS = 50, 4
FORK = multiprocessing.get_context("fork")  # a new interpreter would load torch first


def judge_all(store, token):
    """Judge everything, twice each, as a double click does; the assignments, in order."""
    numbers = []
    while shown := store.next_assignment(token):
        for _ in range(2):
            store.answer(token, shown.number, right_choice(shown), f"reason of {shown.number}")
        numbers.append(shown.number)
    return numbers


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.release)], indirect=True)
def test_fifty_annotators_at_once_lose_and_double_nothing(database):
    store = filled(EvaluationStore(database), per_matchup=PAIRS, checks=1)
    tokens = [annotator.token for annotator in store.invite(f"annotator {number}" for number in range(ANNOTATORS))]
    started = threading.Barrier(ANNOTATORS)

    def judge(token):
        started.wait()
        return judge_all(store, token)

    with ThreadPoolExecutor(ANNOTATORS) as pool:
        numbers = list(pool.map(judge, tokens))
    assert all(len(own) == PAIRS + 1 for own in numbers)
    assert len(set(itertools.chain(*numbers))) == ANNOTATORS * (PAIRS + 1)
    judgements = store.judgements()
    assert len(judgements) == len({(j.annotator, j.pair) for j in judgements}) == ANNOTATORS * PAIRS
    assert all(judgement.winner == "b" and judgement.passed for judgement in judgements)
    assert all(one.judged == PAIRS and one.checks_right == 1 for one in store.progress().annotators)


@pytest.mark.slow
def test_one_annotator_in_many_windows_is_shown_one_pair_and_answers_once(store):
    filled(store)
    (ann,) = store.invite(["Ann"])
    started = threading.Barrier(20)

    def open_and_answer(_):
        started.wait()
        shown = store.next_assignment(ann.token)
        started.wait()
        store.answer(ann.token, shown.number, "left", "the same")
        return shown

    with ThreadPoolExecutor(20) as pool:
        shown = list(pool.map(open_and_answer, range(20)))
    assert all(one == shown[0] for one in shown) and len(store.judgements()) == 1


def judge_and_tell(database, token, confirmed):
    """Judge everything in a process of its own; each answer that was kept is a byte in a pipe."""
    store = EvaluationStore(database)
    while shown := store.next_assignment(token):
        store.answer(token, shown.number, "left", "before the end")
        os.write(confirmed, b".")


@pytest.mark.slow
def test_processes_that_are_killed_lose_no_answer_that_they_confirmed(database):
    store = filled(EvaluationStore(database), per_matchup=16)
    annotators = store.invite(["Ann", "Bob", "Cy"])
    store.close()
    killed = []
    for annotator in annotators:
        reading, writing = os.pipe()
        process = FORK.Process(target=judge_and_tell, args=(database, annotator.token, writing))
        process.start()
        os.close(writing)
        killed.append((annotator, process, reading))
    confirmed = {}
    for annotator, process, reading in killed:
        told = b"".join(os.read(reading, 1) for _ in range(4))
        process.kill()
        process.join()
        confirmed[annotator.name] = len(told + os.read(reading, 100))
        os.close(reading)
    before = Counter(judgement.annotator for judgement in store.judgements())
    for annotator in annotators:
        told = confirmed[annotator.name]
        assert 4 <= told <= before[annotator.name] <= told + 1  # the last may have been kept and not confirmed
        judge_all(store, annotator.token)
    assert Counter(judgement.annotator for judgement in store.judgements()) == {"Ann": 16, "Bob": 16, "Cy": 16}
    assert len({(judgement.annotator, judgement.pair) for judgement in store.judgements()}) == 48


# ---- the command ---------------------------------------------------------------------------------------------------


def test_every_step_is_listed_and_can_be_asked_for_its_flags(ends_with_2, capsys):
    assert all(name in ends_with_2("human_eval")[0] for name in STEPS)
    assert "'?" not in ends_with_2("human_eval", "dance")[0]
    for name in STEPS:
        with pytest.raises(SystemExit) as stop:
            human_eval(name, "--help")
        assert stop.value.code == 0
    assert "--to" in capsys.readouterr().out
