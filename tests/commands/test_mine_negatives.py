"""`polyagents mine_negatives`: what it takes as negatives, what it writes, and what it refuses."""

import json
import signal

import forks
import pytest
from commands import SAMPLE, colour_dialogues, evaluate, own, train, write_task
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.utils.misc import msg_to_str
from teachers import told

from polyagents import InputError, Ranker, mining
from polyagents.commands.mine_negatives import check_texts, read_whole_turns
from polyagents.index.texts import ListedTexts
from polyagents.mining import LabelledContext, labelled_contexts, mine, pool_in, searchable
from polyagents.tasks.sample.generate import dialogues
from polyagents.text.normalize import normalized

FIRST_TURNS = {turn.label: turn.text for turn, *_ in dialogues("train")[:24]}
PAIRS = [LabelledContext(text, label) for label, text in FIRST_TURNS.items()]
TEXTS = list(FIRST_TURNS)
SMALL = 3e-4  # of scores that differ so little: these models have hardly been trained


@pytest.fixture
def pool(trained, tmp_path):
    """A ranker, and texts as its pool."""

    def of(kind, texts=TEXTS):
        ranker = Ranker.load(trained(kind))
        return ranker, pool_in(str(tmp_path / "pool"), ListedTexts(texts), ranker.model)

    return of


@pytest.fixture
def command(trained, tmp_path, capsys):
    """Run the command on a task: its JSON line, what it says, and the teacher's messages of the file it writes."""

    def run(*task, kind="bi"):
        capsys.readouterr()
        own("mine_negatives", "-mf", trained(kind), "--outfile", tmp_path / "F", *task)
        said = capsys.readouterr()
        (line,) = said.out.splitlines()
        return json.loads(line), said.err, messages(tmp_path / "F")

    return run


def messages(file):
    """What ParlAI's own teacher reads from a mined file, in order."""
    parser = ParlaiParser(True, False)
    flags = ("-t", "fromfile:parlaiformat", "--fromfile-datapath", file, "-dt", "train:ordered", "--loglevel", "error")
    (teacher,) = create_task_agent_from_taskname(parser.parse_args([*map(str, flags)]))
    return [teacher.act() for _ in range(teacher.num_examples())]


def turns(folder, *turns):
    """Flags of a task of (text, labels, whether the episode ends), as ParlAI itself would write it."""
    lines = []
    for text, labels, done in turns:
        lines.append(msg_to_str({"text": text, "labels": labels, "episode_done": done}))
    (folder / "turns.txt").write_text("\n".join(lines) + "\n")
    return "-t", "fromfile:parlaiformat", "--fromfile-datapath", folder / "turns.txt"


def obvious(ranker, texts, pairs, wanted, margin):
    """Score all, filter, sort."""
    for pair in pairs:
        scores, (label,) = ranker.score(pair.text, texts), ranker.score(pair.text, [pair.label])
        answers = {normalized(other.label) for other in pairs if normalized(other.text) == normalized(pair.text)}
        order = [i for i in sorted(range(len(texts)), key=lambda i: -scores[i]) if normalized(texts[i]) not in answers]
        yield [texts[i] for i in order if scores[i] <= label - margin * abs(label)][:wanted]


# ---- which negatives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slack", [0, 100])
@pytest.mark.parametrize("margin", [0.0, SMALL])
@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_the_negatives_are_those_of_the_slow_way(kind, margin, slack, pool, monkeypatch):
    """With no slack, all that a short search lacks comes from scoring the whole pool."""
    monkeypatch.setattr(mining, "SLACK", slack)
    ranker, store = pool(kind)
    mined = list(mine(PAIRS, ranker.model, store, 3, margin))
    expected = list(obvious(ranker, TEXTS, PAIRS, 3, margin))
    assert [one.negatives[: len(one.negatives) - one.random] for one in mined] == expected
    assert [one.pair for one in mined] == PAIRS
    assert all(len(one.negatives) == len(set(one.negatives)) == 3 for one in mined)
    assert 0 in {one.random for one in mined}


@pytest.mark.parametrize("margin", [0.0, SMALL])
@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_what_the_margin_leaves_out_comes_last(kind, margin, pool):
    """All of the pool is wanted, so that what is missing below the limit comes from above it."""
    ranker, store = pool(kind)
    wanted = len(TEXTS) - 1
    for one in mine(PAIRS, ranker.model, store, wanted, margin):
        scores, (label,) = ranker.score(one.pair.text, one.negatives), ranker.score(one.pair.text, [one.pair.label])
        hard, limit = wanted - one.random, label - margin * abs(label)
        assert sorted([*one.negatives, one.pair.label]) == sorted(TEXTS)
        assert (scores[:hard] <= limit + 1e-5).all() and (scores[hard:] >= limit - 1e-5).all()
        assert one.dropped == one.random
        assert one.gap == pytest.approx(label - scores.mean(), abs=1e-4)


def test_no_answer_is_a_negative(pool):
    """Neither what reads as the label, nor another label of the context, be it the pair's own or another example's."""
    texts = ["i like tea", "I like tea!", "i like the tea .", "i sell fish", "Sell fish", "i paint cars"]
    ranker, store = pool("bi", texts)
    pairs = [
        LabelledContext("hello there", "i like tea"),
        LabelledContext("Hello there!", "i sell fish"),
        LabelledContext("who", "sell fish?"),
    ]
    mined = [one.negatives for one in mine(pairs, ranker.model, store, 9, 0.05)]
    assert [sorted(negatives) for negatives in mined] == [
        ["Sell fish", "i paint cars"],
        ["Sell fish", "i paint cars"],
        ["I like tea!", "i like tea", "i like the tea .", "i paint cars", "i sell fish"],
    ]


def test_a_label_that_the_pool_lacks(pool):
    ranker, store = pool("poly")
    pairs = [LabelledContext(PAIRS[0].text, "i paint tables"), LabelledContext("hi", "i like trains")]
    mined = [one.negatives[: len(one.negatives) - one.random] for one in mine(pairs, ranker.model, store, 4, SMALL)]
    assert mined == list(obvious(ranker, TEXTS, pairs, 4, SMALL))


def test_the_random_ones_are_the_same_each_time(pool):
    ranker, store = pool("bi")
    first, again = (list(mine(PAIRS, ranker.model, store, 5, 0.9)) for _ in range(2))
    assert first == again
    drawn = [tuple(one.negatives[5 - one.random :]) for one in first if one.random == 5]
    assert len(set(drawn)) > 1
    assert all(one.pair.label not in one.negatives and len(set(one.negatives)) == 5 for one in first)


def test_every_label_is_a_pair_and_what_lacks_one_is_counted():
    examples = [("a", ["x", "y"]), ("", ["x"]), ("b", []), ("c", [" "]), ("d", ("z",))]
    assert labelled_contexts(examples) == (
        [LabelledContext("a", "x"), LabelledContext("a", "y"), LabelledContext("d", "z")],
        3,
    )


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_the_command_writes_a_task(kind, command, tmp_path):
    line, said, acts = command(*write_task(tmp_path, colour_dialogues()), "--negatives", 4, kind=kind)
    assert line["examples"] == len(acts) == 30 and line["candidates"] == 8 and line["negatives"] == 4.0
    assert line["skipped"] == line["short"] == 0
    for act, (text, label, replies) in zip(acts, colour_dialogues(), strict=True):
        first, *negatives = act["label_candidates"]
        assert (act["text"], act["labels"], first, act["episode_done"]) == (text, [label], label, True)
        assert len(negatives) == 4 and set(negatives) < set(replies) - {label}
    # The task has taken --fromfile-datapath itself.
    flags = f"-t fromfile:parlaiformat2 --fromfile-datapath2 {tmp_path / 'F'} --candidates inline -et fromfile:"
    assert flags in said and "30 examples, 4.0 negatives each" in said


@pytest.mark.slow
def test_history_is_flattened_as_parlai_does(trained):
    """A task of several turns: the texts are those of ParlAI's flatten mutator, in its order."""
    parser = ParlaiParser(True, False)
    opt = parser.parse_args(["-t", SAMPLE, "--loglevel", "error"])
    ours = list(read_whole_turns(opt))
    opt = parser.parse_args(["-t", SAMPLE, "--mutators", "flatten", "-dt", "train:evalmode", "--loglevel", "error"])
    (teacher,) = create_task_agent_from_taskname(opt)
    acts = [teacher.act() for _ in range(len(ours))]
    assert teacher.epoch_done() and any("\n" in text for text, _ in ours)
    assert ours == [(act["text"], list(act["eval_labels"])) for act in acts]
    flattened = parser.parse_args(["-t", SAMPLE, "--mutators", "flatten", "--loglevel", "error"])
    assert list(read_whole_turns(flattened)) == ours


def test_examples_without_text_or_label_are_left_out(command, tmp_path):
    task = turns(tmp_path, ("one", ["x"], False), ("two", [""], False), ("", ["y"], True), ("three", ["z", "w"], True))
    line, said, acts = command(*task)
    assert line["examples"] == 3 and line["skipped"] == 2 and "(2 without text or label skipped)" in said
    assert [(act["text"], act["labels"]) for act in acts] == [("one", ["x"]), ("three", ["z"]), ("three", ["w"])]
    assert "Fewer than 15 negatives for 3 examples: too few of 3 candidates" in said and line["short"] == 3
    assert [set(act["label_candidates"][1:]) for act in acts] == [{"z", "w"}, {"x"}, {"x"}]


def test_texts_come_back_as_they_were(command, tmp_path):
    labels = ["a | b", "two\nlines", "a\ttab", "\rreturn", "|", "tabs \t at the end\t"]
    task = turns(tmp_path, *((f"{label} ?", [label], True) for label in labels))
    line, _, acts = command(*task, "--negatives", 5)
    assert line["examples"] == len(labels)
    assert [act["text"] for act in acts] == [f"{label} ?" for label in labels]
    assert [act["labels"] for act in acts] == [[label] for label in labels]
    assert all(sorted(act["label_candidates"]) == sorted(labels) for act in acts)


TYPED = [r"in C:\table\new", "a __PIPE__ b", "a\\", "b\\\nc", "x\u2028y\x85\x0cz", " d ", '"e", [1]', "\x00\ufefff"]


def test_typed_escapes_need_json_lines(command, trained, tmp_path, ends_with_2):
    """ParlAI's text format reads them as the characters that they are written for."""
    rows = [{"context": f"where is {text} ?", "label": text} for text in TYPED[:-1]]  # a table refuses NUL
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = ("-t", "polyagents.tasks.table", "--table-path", tmp_path / "task")
    (said,) = ends_with_2("mine_negatives", "-mf", trained("bi"), "--outfile", tmp_path / "F", *task)
    assert "ParlAI's text format cannot hold 'where is in C:\\\\table" in said
    assert "Give an --outfile that ends in .jsonl" in said and not list(tmp_path.glob("F*"))
    (tmp_path / "pool.txt").write_text("a typed \\n")
    plain = turns(tmp_path, ("hi", ["hello"], True))
    flags = ("-mf", trained("bi"), "--outfile", tmp_path / "F", *plain, "--candidates-file", tmp_path / "pool.txt")
    assert "cannot hold 'a typed" in ends_with_2("mine_negatives", *flags)[0]
    own("mine_negatives", "-mf", trained("bi"), "--outfile", tmp_path / "F.jsonl", *task, "--negatives", 9)
    acts = told("polyagents.tasks.hf", "train", hf_dataset=str(tmp_path / "F.jsonl"))
    assert [(act["text"], act["labels"]) for act in acts] == [(row["context"], [row["label"]]) for row in rows]
    assert all(sorted(act["label_candidates"]) == sorted(TYPED[:-1]) for act in acts)


def test_what_parlais_format_holds_is_not_refused():
    check_texts(text for text in TYPED if text not in (TYPED[0], TYPED[1]))
    for text in (*TYPED[:2], "__PIPE|", "\\t"):
        with pytest.raises(InputError, match="cannot hold"):
            check_texts([text])


@pytest.mark.parametrize("has_ids", [False, True])
def test_negatives_from_a_file(has_ids, command, replies, colours, tmp_path):
    lines = replies.read_text().splitlines()
    if has_ids:  # one text under two ids is one candidate
        replies = tmp_path / "replies.csv"
        rows = [f"{number},{text}" for number, text in enumerate([*lines, lines[0]])]
        replies.write_text("\n".join(["id,text", *rows]))
    line, _, acts = command(*colours, "--candidates-file", replies, "--negatives", 3)
    assert line["candidates"] == len(lines) and line["negatives"] == 3.0
    assert all(set(act["label_candidates"][1:]) < set(lines) - {act["labels"][0]} for act in acts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_a_model_trains_on_the_file(kind, command, colours, tmp_path):
    command(*colours, "--negatives", 4)
    mined = ("-t", "fromfile:parlaiformat2", "--fromfile-datapath2", tmp_path / "F", "--candidates", "inline")
    file = tmp_path / kind
    valid, _ = train(kind, file, *mined, "-et", colours[1], *colours[2:], "--max-train-steps", 3)
    assert float(valid["exs"]) == 30  # of the task itself, where each has 8 candidates
    assert evaluate(file, *colours)["exs"] == 30


# ---- what cannot work ------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(ends_with_2):
    """The sentence that `polyagents mine_negatives` says, alone, as it ends with code 2."""

    def run(*arguments):
        (sentence,) = ends_with_2("mine_negatives", *arguments)
        return sentence

    return run


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--outfile", ""), "--outfile: its value is empty"),
        (("-mf", "{folder}/nothing"), "There is no trained model at {folder}/nothing"),
        (("--outfile", "{folder}"), "--outfile {folder} cannot be written"),
        (("--outfile", "{folder}/no/F"), "--outfile {folder}/no/F cannot be written"),
        (("--candidates-file", "{folder}/nothing"), "Candidates file {folder}/nothing cannot be read"),
        (("--fromfile-datapath", "{folder}/nothing"), "there is no file {folder}/nothing_train.txt"),
        (("--fromfile-datapath", "{folder}/empty"), "{folder}/empty_train.txt holds no text"),
        (("--margin", "1"), "'1' is not a part of a score"),
        (("--margin", "-0.1"), "'-0.1' is not a part of a score"),
        (("--margin", "nan"), "'nan' is not a part of a score"),
        (("--negatives", "0"), "'0' is not a whole number of 1 or more"),
        (("--precision", "bf16"), "unrecognized arguments: --precision"),
    ],
)
def test_bad_input_gets_one_sentence(flags, sentence, trained, colours, tmp_path, refused):
    (tmp_path / "empty_train.txt").write_text("")
    before = sorted(tmp_path.iterdir())
    given = ("-mf", trained("bi"), "--outfile", tmp_path / "F", *colours, *(f.format(folder=tmp_path) for f in flags))
    assert sentence.format(folder=tmp_path) in refused(*given)
    assert sorted(tmp_path.iterdir()) == before


def test_a_cross_encoder_is_refused(trained, colours, tmp_path, refused):
    said = refused("-mf", trained("cross"), "--outfile", tmp_path / "F", *colours)
    assert "A cross-encoder cannot search a pool of candidates; mine with a bi- or poly-encoder" in said
    with pytest.raises(InputError, match="cannot search"):
        searchable(Ranker.load(trained("cross")).model)


KILLED = """
import os, signal, sys
from polyagents.index.store import CandidateStore
from polyagents.ranking import ranking_model
from polyagents.__main__ import main
ranking_model.CONTEXTS_AT_ONCE, found, left = 8, CandidateStore.search, iter(range(2))
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
CandidateStore.search = lambda *given: found(*given) if next(left, None) is not None else die()
main()
"""


@pytest.mark.slow
def test_a_killed_run_leaves_no_file_and_the_next_one_completes(command, trained, colours, tmp_path, monkeypatch):
    flags = ("mine_negatives", "-mf", trained("bi"), "--outfile", tmp_path / "F", *colours)
    assert forks.run(KILLED, *flags).returncode == -signal.SIGKILL
    assert not (tmp_path / "F").exists()
    (shard,) = (tmp_path / "F.index").glob("*.safetensors")
    before = shard.stat()
    line, _, acts = command(*colours)
    assert line["examples"] == len(acts) == 30
    assert shard.stat() == before  # not encoded again


def test_a_pool_of_another_version_is_refused_before_anything_is_encoded(pool, tmp_path, monkeypatch):
    pool("bi")
    path = tmp_path / "pool" / "manifest.json"
    path.write_text(path.read_text().replace("polyagents-candidates-1", "polyagents-candidates-2"))
    monkeypatch.setattr(mining, "write_shards", lambda *_: pytest.fail("it was encoded"))
    with pytest.raises(InputError, match="may be deleted"):
        pool("bi")
