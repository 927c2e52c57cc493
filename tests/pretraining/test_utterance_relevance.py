"""BERT-FP's post-training: which short contexts and targets a dialogue gives, and what a model learns of them."""

import itertools
import math
import random
from collections import Counter

import pytest
import torch
from backbones import save
from commands import SAMPLE, evaluate, run, weights, write_task
from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser

from polyagents.errors import InputError
from polyagents.parlai_agents.task_reader import TaskReader, TextPair
from polyagents.pretraining.planning import Update
from polyagents.pretraining.pretrain_model import LABELS, WORDS
from polyagents.pretraining.utterance_relevance import NEXT, OTHER_DIALOGUE, SAME_DIALOGUE, dialogues, with_relevance
from polyagents.text.normalize import normalize

PRETRAIN = ("-m", "polyagents:Pretrain", "--pretrain-task", "utterance_relevance")
TINY = ("--backbone", "scratch:tiny", "--text-truncate", "64", "--label-truncate", "16", "--batch-tokens", "500")
TINY += ("--validation-every-n-epochs", "-1", "--warmup-updates", "5", "--short-final-eval", "true", "-vme", "20")
TINY += ("--dict-maxexs", "400")

COUNTED = TextPair("one\ntwo\nthree\nfour", "five")
SPELT = TextPair("alpha\nbeta", "gamma")


def drawn(pairs, context_size, times=200):
    """Everything that is drawn of a window in so many epochs: by short context and class, how often each text."""
    found: dict[tuple[str, int], Counter[str]] = {}
    for seed in range(times):
        for pair, label_class in with_relevance(pairs, context_size, random.Random(seed)):
            found.setdefault((pair.context, label_class), Counter())[pair.label] += 1
    return found


def texts(pairs):
    return [dialogue.texts for dialogue in dialogues(pairs)]


# ---- dialogues -------------------------------------------------------------------------------------------------------


def test_a_dialogue_that_grows_is_one():
    """Of an episode every message repeats those before it; DSTC7 brings every beginning as an example of its own."""
    growing = [TextPair("hi", "hello"), TextPair("hi\nhello\nhow are you ?", "fine"), TextPair("hi", "go away")]
    expected = [("hi", "go away"), ("hi", "hello", "how are you ?", "fine")]
    assert texts(growing) == texts(random.Random(1).sample(growing * 3, 9)) == expected
    assert texts([TextPair("hi", "hello", 0), TextPair("hi\nhello", "how", 1)]) == [
        ("hi", "hello"),
        ("hi", "hello", "how"),
    ]


def test_personas_silence_and_speakers_are_no_utterances():
    context = "your persona: i ski .\npartner's persona: i knit .\n__SILENCE__\nhi , my persona is mine\n\nhello"
    assert texts([TextPair(context, "bye")]) == [("hi , my persona is mine", "hello", "bye")]
    first = TextPair("participant 1: hi\nparticipant 2: \n", "hello")
    (dialogue,) = dialogues([first, TextPair("participant 1: hi\nparticipant 12: hello\n", "so , participant 1: what")])
    assert dialogue.lines == ("participant 1: hi", "participant 12: hello", "so , participant 1: what")
    assert dialogue.texts == ("hi", "hello", "so , participant 1: what")


# ---- short contexts and targets --------------------------------------------------------------------------------------


def test_every_utterance_is_a_target_after_three_others():
    """By hand, as the authors' code has it; a dialogue of three utterances is a context of two and a target."""
    found = drawn([COUNTED, SPELT], context_size=3)
    assert {key: set(texts) for key, texts in found.items()} == {
        ("one\ntwo\nthree", NEXT): {"four"},
        ("one\ntwo\nthree", SAME_DIALOGUE): {"one", "two", "three", "five"},
        ("one\ntwo\nthree", OTHER_DIALOGUE): {"alpha", "beta", "gamma"},
        ("two\nthree\nfour", NEXT): {"five"},
        ("two\nthree\nfour", SAME_DIALOGUE): {"one", "two", "three", "four"},
        ("two\nthree\nfour", OTHER_DIALOGUE): {"alpha", "beta", "gamma"},
        ("alpha\nbeta", NEXT): {"gamma"},
        ("alpha\nbeta", SAME_DIALOGUE): {"alpha", "beta"},
        ("alpha\nbeta", OTHER_DIALOGUE): {"one", "two", "three", "four", "five"},
    }
    assert abs(sum(found["alpha\nbeta", OTHER_DIALOGUE].values()) - 100) < 4 * math.sqrt(50)  # never itself


def test_the_length_of_contexts_is_an_option():
    contexts = [pair.context for pair, _ in with_relevance([COUNTED], 1, random.Random(0))]
    assert contexts == ["one", "two", "three", "four"]
    (only,) = with_relevance([COUNTED], 20, random.Random(0))
    assert only[0].context == "one\ntwo\nthree\nfour"
    assert with_relevance([TextPair("alone", ""), TextPair("your persona: nobody", "")], 3, random.Random(0)) == []


def test_speakers_stay_in_contexts_and_are_in_no_target():
    pair = TextPair("participant 1: one\nparticipant 2: two\n", "three")
    found = drawn([pair, SPELT], context_size=2)
    assert set(found["participant 1: one\nparticipant 2: two", SAME_DIALOGUE]) == {"one", "two"}


def test_the_proportions_are_the_authors():
    """A quarter came next, a quarter is of the same dialogue, half are of another one."""
    pairs = [TextPair("\n".join(f"{number} {place}" for place in range(7)), f"{number} 7") for number in range(400)]
    given = with_relevance(pairs, 3, random.Random(0))
    assert len(given) == 400 * 5
    counts = Counter(label_class for _, label_class in given)
    for label_class, share in ((OTHER_DIALOGUE, 0.5), (SAME_DIALOGUE, 0.25), (NEXT, 0.25)):
        assert abs(counts[label_class] - share * 2_000) < 4 * math.sqrt(share * (1 - share) * 2_000)
    for pair, label_class in given:
        number, place = (int(part) for part in pair.label.split())
        mine, last = (int(part) for part in pair.context.split("\n")[-1].split())
        assert (number == mine) == (label_class != OTHER_DIALOGUE)
        assert (number == mine and place == last + 1) == (label_class == NEXT)
    others = Counter(pair.label.split()[0] for pair, label_class in given if label_class == OTHER_DIALOGUE)
    assert len(others) > 300 and max(others.values()) < 15  # of all dialogues


def test_no_wrong_target_reads_like_the_right_one():
    """Nor does one of another dialogue read like anything that is said in this one."""
    pairs = [TextPair("yes\nno\nwhy\nyes .", "The end"), TextPair("No !\nwhy ?\nbecause\nend", "YES")]
    found = drawn(pairs, context_size=2, times=400)
    assert found["yes\nno", NEXT] and not {"why", "why ?"} & set(found["yes\nno", SAME_DIALOGUE])
    assert set(found["no\nwhy", SAME_DIALOGUE]) == {"no", "why", "The end"}  # not yes: it came next
    for (context, label_class), labels in found.items():
        own = pairs[0] if context.split("\n")[0] in ("yes", "no", "why") else pairs[1]
        said = {normalize(text) for text in f"{own.context}\n{own.label}".split("\n")}
        assert all((normalize(text) in said) == (label_class != OTHER_DIALOGUE) for text in labels)
    assert set(found["yes\nno", OTHER_DIALOGUE]) == {"because"}


def test_what_has_no_wrong_target_of_a_kind_has_one_of_another():
    alone = drawn([COUNTED], 3)
    assert {label_class for _, label_class in alone} == {SAME_DIALOGUE, NEXT}
    counts = [sum(alone["one\ntwo\nthree", label_class].values()) for label_class in (SAME_DIALOGUE, NEXT)]
    assert abs(counts[0] - 100) < 4 * math.sqrt(50)  # as likely as each other
    echo = drawn([TextPair("ok", "OK !"), SPELT], 3)
    assert {label_class for context, label_class in echo if context == "ok"} == {OTHER_DIALOGUE, NEXT}
    assert drawn([TextPair("ok", "OK !")], 3) == {("ok", NEXT): {"OK !": 200}}


def test_other_dialogues_are_of_the_same_task():
    pairs = [pair._replace(task=task) for task, pair in itertools.product((0, 1), (COUNTED, SPELT))]
    pairs += [TextPair("of another task\nsays this", "and that", 1)]
    found = drawn(pairs[:4], 3)
    assert {pair.task for pair, _ in with_relevance(pairs, 3, random.Random(0))} == {0, 1}
    given = itertools.chain(*(with_relevance(pairs, 3, random.Random(seed)) for seed in range(100)))
    others = [(pair.task, pair.label) for pair, label_class in given if label_class == OTHER_DIALOGUE]
    assert set(found["alpha\nbeta", OTHER_DIALOGUE]) == {"one", "two", "three", "four", "five"}
    assert (1, "and that") in others and (0, "and that") not in others


# ---- the model -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save("bert", tmp_path_factory.mktemp("backbone") / "bert")


def make(backbone, *flags, datatype="train"):
    """An agent around a backbone's folder."""
    arguments = [*PRETRAIN, "-t", SAMPLE, "-dt", datatype, "--backbone", backbone, "--dropout", "0", *flags]
    return create_agent(
        ParlaiParser(True, True).parse_args(
            list(map(str, [*arguments, "--text-truncate", "32", "--label-truncate", "16"]))
        )
    )


def pretrain(file, *arguments):
    """A few updates of a tiny model, in this process."""
    return run("train_model", *PRETRAIN, "-mf", file, "-t", SAMPLE, *TINY, *arguments)


PAIRS = [TextPair(f"where is {place}\n{place} ?\nyes\n{place} now", f"it is in the {place}") for place in "abcdefgh"]


def test_both_losses_are_of_the_same_masked_input(bert):
    """Their means are added: against transformers' scores and the head, on the tokens that the model was given."""
    agent = make(bert, "--batch-tokens", "10000", "--chunk-tokens", "10000", "--gradient-clip", "-1")
    (update,) = agent.plan(PAIRS, window=0)
    assert update.objectives == (WORDS, LABELS) and len(update.chunks[0]) == 16
    tokens, targets, hidden = agent.prepared(update.chunks[0], update.objectives, torch.Generator().manual_seed(1))
    assert (tokens.ids == agent.vocabulary.mask_id).any()
    assert targets[LABELS].tolist() == [example.label_class for example in update.chunks[0]]
    states = agent.module.lm.bert(tokens.ids, tokens.mask.long(), tokens.segments).last_hidden_state
    logits = agent.module.lm(tokens.ids, tokens.mask.long(), tokens.segments).logits[hidden]
    classes = agent.module.next_utterance(states[:, 0])
    assert classes.shape == (16, 3)
    cross_entropy = torch.nn.functional.cross_entropy
    (cross_entropy(logits, targets[WORDS]) + cross_entropy(classes, targets[LABELS])).backward()
    wanted = {name: p.grad.clone() for name, p in agent.model.named_parameters() if p.grad is not None}
    agent.prepared = lambda *_: (tokens, targets, hidden)
    agent.train_update(Update(update.objectives, update.chunks[:1]), 0)
    assert len(wanted) > 10
    for name, p in agent.model.named_parameters():
        assert name not in wanted or torch.allclose(p.grad, wanted[name], rtol=1e-3, atol=1e-5), name


def test_updates_hold_every_short_context_once(bert):
    agent = make(bert, "--batch-tokens", "200", "--chunk-tokens", "100")
    plan = agent.plan(PAIRS, window=3)
    assert len(plan) > 1 and plan == agent.plan(PAIRS, window=3) != agent.plan(PAIRS, window=4)
    contexts = Counter(tuple(example.context) for update in plan for chunk in update.chunks for example in chunk)
    assert len(contexts) == 16 and set(contexts.values()) == {1}
    with pytest.raises(InputError, match="dialogues of two utterances"):
        agent.plan([TextPair("alone", "")], window=0)


def test_every_utterance_is_a_target_already(bert):
    with pytest.raises(InputError, match="remove --every-utterance"):
        make(bert, "--every-utterance", "true")


@pytest.mark.slow
def test_what_can_be_known_of_a_target_is_learnt(tmp_path):
    """Here all but a tenth of the other dialogues are single remarks, so that its words tell where a target is from."""
    draw = random.Random(0)
    lines = [[" ".join([word] * 3 + draw.choices("abcdefgh", k=3)) for word in ("one", "two", "three", "four")]
             for _ in range(50)]  # fmt: skip
    remarks = [" ".join(["hm"] * 3 + draw.choices("abcdefgh", k=3)) for _ in range(450)]
    task = write_task(
        tmp_path, [(r"\n".join(line[:3]), line[3], None) for line in lines] + [(remark, "", None) for remark in remarks]
    )
    flags = ("--max-train-steps", "60", "--dropout", "0", "-lr", "3e-3", "--batch-tokens", "1000")
    run("train_model", *PRETRAIN, "-mf", tmp_path / "M", *TINY, *task, *flags)
    report = evaluate(tmp_path / "M", *task, "-dt", "train:evalmode")
    assert report["relevance_acc"] > 0.85, report


@pytest.mark.slow
def test_evaluation_says_the_same_each_time(colours, tmp_path):
    pretrain(tmp_path / "P", "--max-train-steps", "2")
    first, second = (evaluate(tmp_path / "P", *colours, "-dt", "valid") for _ in range(2))
    for name in ("exs", "loss", "ppl", "token_acc", "relevance_acc", "relevance_loss", "padding"):
        assert first[name] == second[name]
    assert "next_utterance_acc" not in first
    options = ParlaiParser(True, True).parse_args([*map(str, colours), "-dt", "valid"])
    assert first["exs"] == len(TaskReader(options, 0).read(10_000))


@pytest.mark.slow
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path):
    """Bit for bit: the same dialogues, targets, masks and dropout after the checkpoint as without it."""
    pretrain(tmp_path / "A", "--max-train-steps", "8")
    pretrain(tmp_path / "B", "--max-train-steps", "3")
    pretrain(tmp_path / "B", "--max-train-steps", "8")
    alone, resumed = weights(tmp_path / "A.checkpoint"), weights(tmp_path / "B.checkpoint")
    assert alone["position"] == resumed["position"] and alone["position"]["total"] == 8
    assert all(torch.equal(weight, resumed["model"][name]) for name, weight in alone["model"].items())


@pytest.mark.slow
def test_a_head_of_other_classes_is_refused(tmp_path):
    pretrain(tmp_path / "P", "--max-train-steps", "1")
    with pytest.raises(InputError, match=r"--pretrain-task utterance_relevance.*--backbone \S*/P.backbone instead"):
        pretrain(tmp_path / "Q", "--init-model", tmp_path / "P.checkpoint", "--pretrain-task", "next_utterance")
