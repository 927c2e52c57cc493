"""Pre-training: what is hidden and exchanged, what the model learns from it, and runs that are killed."""

import dataclasses
import errno
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from backbones import save
from commands import SAMPLE, evaluate, own, run, train, updates_in_checkpoint, weights, workers, write_task
from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser
from transformers import AutoModelForMaskedLM, AutoTokenizer

import polyagents
from polyagents.benchmarks import backbones as sweep
from polyagents.errors import InputError
from polyagents.model_files.saving import write_hugging_face
from polyagents.models.tokens import Tokens
from polyagents.parlai_agents.task_reader import Position, TaskReader, TextPair
from polyagents.pretraining import world as pretraining_world
from polyagents.pretraining.masking import MaskingVocabulary, mask, starts
from polyagents.pretraining.planning import chunks, distributed_over
from polyagents.pretraining.pretrain_model import LABELS, WORDS
from polyagents.pretraining.pretraining_examples import split_sentences, with_others
from polyagents.pretraining.world import PretrainWorld
from polyagents.training import distributed

PRETRAIN = "polyagents:Pretrain"
TINY = ("--backbone", "scratch:tiny", "--text-truncate", "64", "--label-truncate", "16", "--batch-tokens", "500")
TINY += ("--validation-every-n-epochs", "-1", "--warmup-updates", "5", "--short-final-eval", "true", "-vme", "20")
TINY += ("--dict-maxexs", "400")


def pretrain(file, *arguments):
    """A few updates of a tiny model, in this process."""
    return run("train_model", "-m", PRETRAIN, "-mf", file, "-t", SAMPLE, *TINY, *arguments)


def make(backbone, *flags, datatype="train"):
    """An agent around a backbone's folder."""
    arguments = ["-m", PRETRAIN, "-t", SAMPLE, "-dt", datatype, "--backbone", backbone, "--text-truncate", "32"]
    arguments += ["--label-truncate", "16", "--dropout", "0", *flags]
    return create_agent(ParlaiParser(True, True).parse_args([str(argument) for argument in arguments]))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save("bert", tmp_path_factory.mktemp("backbone") / "bert")


def test_a_backbone_that_sees_padding_is_refused(tmp_path):
    sweep.write("convbert", str(tmp_path))
    with pytest.raises(InputError, match="sees the padding after a text, so it cannot be pre-trained"):
        make(tmp_path)


PAIRS = [
    TextPair(f"where is {place}\n{place} ?", f"{place} is in the {end}") for place in "abcdefgh" for end in "mnopqr"
]


# ---- hidden words ----------------------------------------------------------------------------------------------------


def drawn(whole_words):
    """500 texts of up to 64 tokens, of 1,000, of which the first 5 are special and the last 400 continue words."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 1_000, (500, 64), generator=draw)
    real = torch.arange(64) < torch.randint(1, 65, (500, 1), generator=draw)
    vocabulary = MaskingVocabulary(4, torch.arange(1_000) >= 5, torch.arange(1_000) < 600)
    hidden, chosen = mask(Tokens(ids, real), vocabulary, draw, whole_words)
    return ids, real, vocabulary, hidden.ids, chosen


@pytest.mark.parametrize("whole_words", [False, True])
def test_masking_rates(whole_words):
    """15 % of the text; of these 80 % hidden, 10 % another token, 10 % as it was (Devlin et al. 2018)."""
    ids, real, vocabulary, hidden, chosen = drawn(whole_words)
    text = real & vocabulary.is_text[ids]
    count = int(text.sum())
    assert not (chosen & ~text).any() and (hidden[~chosen] == ids[~chosen]).all()
    # Pieces of a word are chosen together, which is as if there were fewer of them.
    assert abs(int(chosen.sum()) / count - 0.15) < 3 * math.sqrt(0.15 * 0.85 / count) * (2 if whole_words else 1)
    given, were = hidden[chosen], ids[chosen]
    shares = [(given == 4).float().mean(), (given == were).float().mean()]
    assert abs(float(shares[0]) - 0.8) < 0.03 and abs(float(shares[1]) - 0.1) < 0.015
    others = given[(given != 4) & (given != were)]
    assert vocabulary.is_text[others].all() and len(set(others.tolist())) > 0.5 * len(others)


def test_whole_words_are_chosen_with_all_of_their_pieces():
    ids, real, vocabulary, _, chosen = drawn(whole_words=True)
    text = real & vocabulary.is_text[ids]
    continues = text[:, 1:] & ~vocabulary.starts_word[ids[:, 1:]] & text[:, :-1]
    assert continues.any() and (chosen[:, 1:] == chosen[:, :-1])[continues].all()
    assert not (drawn(whole_words=False)[4][:, 1:] == drawn(whole_words=False)[4][:, :-1])[continues].all()


def test_where_words_start():
    assert starts(["[CLS]", "dog", "##s", "a"]) == [True, True, False, True]
    assert starts(["<s>", "\u0120dog", "s", "\u0120a"]) == [False, True, False, True]
    assert starts(["<s>", "\u2581dog", "s", "\u2581a"]) == [False, True, False, True]


def test_special_tokens_and_line_ends_are_never_hidden(bert):
    agent = make(bert)
    names = [agent.dict[i] for i in range(len(agent.dict)) if not agent.vocabulary.is_text[i]]
    assert set(names) >= {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[NEWLINE]"}
    assert agent.dict[agent.vocabulary.mask_id] == "[MASK]"


# ---- next utterances -------------------------------------------------------------------------------------------------


def test_half_of_the_labels_are_others():
    pairs = [TextPair(f"context {i}", f"label {i % 500}") for i in range(4_000)]
    given = with_others(pairs, pairs, random.Random(0))
    assert [pair.context for pair, _ in given] == [pair.context for pair in pairs]
    own = sum(is_next for _, is_next in given)
    assert abs(own / 4_000 - 0.5) < 4 * 0.5 / math.sqrt(4_000)
    for pair, (shown, is_next) in zip(pairs, given, strict=True):
        assert is_next == (shown == pair)
    assert max(Counter(pair.label for pair, is_next in given if not is_next).values()) < 20  # from all of them


def test_what_reads_like_the_own_label_is_not_another():
    """Half of the pairs have another label, however often their own is repeated; each other one is as likely."""
    pairs = [TextPair(f"context {i}", ("yes", "Yes.", "yes !", "the yes", "no", "No ?")[i % 6]) for i in range(6_000)]
    given = with_others(pairs, pairs, random.Random(0))
    assert given == with_others(pairs, pairs, random.Random(0))
    others = [(pair.label, shown.label) for pair, (shown, is_next) in zip(pairs, given, strict=True) if not is_next]
    assert abs(len(others) / 6_000 - 0.5) < 4 * 0.5 / math.sqrt(6_000)
    assert all(("es" in own) != ("es" in other) for own, other in others)
    counts = Counter(other for own, other in others if "es" not in own)
    assert len(counts) == 4 and max(counts.values()) < 1.3 * min(counts.values())
    alone = [TextPair("a", "yes"), TextPair("b", "YES"), TextPair("c", "no", task=1)]
    assert with_others(alone, alone, random.Random(0)) == [(pair, 1) for pair in alone]


def test_other_labels_are_of_the_same_task(bert):
    """Of another task they would be told by their words, and nothing need be read for it."""
    pairs = [TextPair(f"context {i}", f"label {i % 2} {i}", task=i % 2) for i in range(400)]
    given = with_others(pairs, pairs, random.Random(0))
    assert {shown.label.split()[1] == str(pair.task) for pair, (shown, _) in zip(pairs, given, strict=True)} == {True}
    assert 100 < sum(is_next for _, is_next in given) < 300
    tasks = f"{SAMPLE},integration_tests:multiturn"
    read = TaskReader(ParlaiParser(True, True).parse_args(["-t", tasks]), 0).read(200)
    assert {pair.task for pair in read} == {0, 1}
    samples = {pair.label for pair in TaskReader(reader_options(), 0).read(5_000)}
    assert all((pair.label in samples) == (pair.task == 0) for pair in read)


def test_segments_and_special_tokens(bert):
    """[S] input [S] [S] label [S], segments 0 and 1, utterances kept apart by [NEWLINE] (paper 4.1; v1 4.5)."""
    agent = make(bert)
    (update,) = agent.plan_evaluation([TextPair("where is canada\nhi", "i am fine")])[:1]
    tokens, targets, chosen = agent.prepared(update.chunks[0], (WORDS,), torch.Generator().manual_seed(0))
    ids = tokens.ids.clone()
    ids[chosen] = targets[WORDS]
    read = [agent.dict[int(token)] for token in ids[0]]
    assert read == [
        *["[CLS]", "where", "is", "canada", "[NEWLINE]", "hi", "[SEP]", "[CLS]", "i", "am", "fine", "[SEP]"]
    ]
    assert tokens.segments[0].tolist() == [0] * 7 + [1] * 5


def test_running_text_is_cut_between_sentences():
    pairs = [TextPair("one .\ntwo .\nthree .", "four .", 3)] * 300 + [TextPair("alone", "", 3)]
    cut = split_sentences(pairs, random.Random(0))
    whole = {(f"{context} {label}", task) for context, label, task in cut}
    assert len(cut) == 300 and whole == {("one . two . three . four .", 3)}
    counts = Counter(pair[0] for pair in cut)
    assert len(counts) == 3 and min(counts.values()) > 70


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_chunks_hold_every_example_once_with_little_padding():
    draw = random.Random(0)
    lengths = [min(int(draw.expovariate(1 / 60)) + 5, 432) for _ in range(4_000)]
    made = chunks(lengths, 1_024, draw)
    assert sorted(itertools.chain(*made)) == list(range(4_000))
    width = sum(len(chunk) * max(lengths[row] for row in chunk) for chunk in made)
    assert (width - sum(lengths)) / width < 0.03
    assert all(len(chunk) * max(lengths[row] for row in chunk) <= 1_024 for chunk in made)
    for count in (1, 7, 30):
        dealt = distributed_over(made, count, draw)
        assert len(dealt) == count and sorted(itertools.chain(*itertools.chain(*dealt))) == list(range(4_000))
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_updates_alternate_and_use_every_pair_once(bert):
    agent = make(bert, "--batch-tokens", "200", "--chunk-tokens", "100")
    plan = agent.plan(PAIRS, window=3)
    assert [update.objectives for update in plan] == [(WORDS,), (LABELS,)] * (len(plan) // 2) and len(plan) >= 4
    contexts = Counter(tuple(example.context) for update in plan for chunk in update.chunks for example in chunk)
    assert sum(contexts.values()) == len(PAIRS) and set(contexts.values()) == {6}  # six labels of every context
    for update in plan:
        assert sum(len(chunk) * max(map(len, chunk)) for chunk in update.chunks) <= 200
    assert plan == agent.plan(PAIRS, window=3) != agent.plan(PAIRS, window=4)


def test_chunks_of_an_update_give_the_gradient_of_the_whole(bert):
    gradients = []
    for chunk_tokens in ("40", "10000"):
        agent = make(bert, "--batch-tokens", "10000", "--chunk-tokens", chunk_tokens, "--gradient-clip", "-1")
        plan = agent.plan(PAIRS, window=0)
        order = sorted(itertools.chain(*plan[0].chunks), key=lambda example: (example.context, example.label))
        rows = [order[i : i + (5 if chunk_tokens == "40" else 100)] for i in range(0, len(order), 5)]
        update = type(plan[0])((WORDS,), rows if chunk_tokens == "40" else [order])
        hidden = {}
        real = agent.prepared

        def same(chunk, objectives, draw, real=real, hidden=hidden):
            """The same words of an example are hidden, whatever chunk it is in."""
            tokens, _, _ = real(chunk, (LABELS,), draw)
            chosen = (tokens.ids * 7 + torch.arange(tokens.ids.size(1))) % 5 == 0
            chosen &= tokens.mask
            return tokens, {WORDS: tokens.ids[chosen]}, chosen

        agent.prepared = same
        agent.train_update(update, 0)
        gradients.append({name: p.grad.clone() for name, p in agent.model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) > 10
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-3, atol=1e-5), name


def test_activation_checkpointing_changes_nothing(bert):
    """Dropout included, which is drawn a second time."""
    gradients = []
    for again in ("false", "true"):
        torch.manual_seed(0)
        agent = make(bert, "--activation-checkpointing", again, "--dropout", "0.2", "--gradient-clip", "-1")
        for number, update in enumerate(agent.plan(PAIRS, window=0)[:2]):
            agent.train_update(update, number)
        gradients.append({name: p.grad for name, p in agent.model.named_parameters() if p.grad is not None})
    assert agent.module.lm.is_activation_checkpointing
    assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) > 10
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-3, atol=1e-5), name


# ---- the model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "modernbert"])
def test_scores_of_hidden_words_are_the_models_own(family, tmp_path):
    """The head is transformers' own, on the hidden words alone: against its scores of every token."""
    agent = make(save(family, tmp_path / family), datatype="valid")
    agent.model.eval()
    (update,) = agent.plan_evaluation(PAIRS[:5])[:1]
    tokens, targets, chosen = agent.prepared(update.chunks[0], (WORDS,), torch.Generator().manual_seed(0))
    inputs = {"input_ids": tokens.ids, "attention_mask": tokens.mask.long()}
    inputs |= {"token_type_ids": tokens.segments} if agent.module.encoder.has_segments else {}
    with torch.no_grad():
        wanted = agent.module.lm(**inputs).logits[chosen]
        loss, right = agent.model(tokens, targets, chosen)[WORDS]
    summed = torch.nn.functional.cross_entropy(wanted, targets[WORDS], reduction="sum")
    assert torch.allclose(loss, summed, rtol=1e-4)
    assert int(right) == int((wanted.argmax(-1) == targets[WORDS]).sum())


@pytest.mark.slow
def test_a_constant_text_is_learnt_by_heart_and_its_random_words_are_not(tmp_path):
    """The loss falls to the entropy of what cannot be known: 0 for what is always the same, ln 8 for one of 8."""
    words = "12345678"
    task = write_task(tmp_path, [("a b c d e f", f"g h {word} j k", None) for word in words * 40])
    flags = ("--batch-tokens", "1000", "-lr", "5e-3", "--max-train-steps", "120", "--dropout", "0")
    run("train_model", "-m", PRETRAIN, "-mf", tmp_path / "M", *TINY, *task, *flags)
    agent = create_agent(
        ParlaiParser(True, True).parse_args(["-mf", str(tmp_path / "M"), "-t", SAMPLE, "-dt", "valid"])
    )
    agent.model.eval()
    examples = agent.plan_evaluation([TextPair("a b c d e f", f"g h {word} j k") for word in words])[0].chunks[0]
    tokens, _, _ = agent.prepared(examples, (LABELS,), torch.Generator())
    for place, entropy in ((3, 0.0), (10, 0.0), (11, math.log(8)), (13, 0.0)):  # d, h, the random one, k
        chosen = torch.zeros_like(tokens.mask)
        chosen[:, place] = True
        hidden = dataclasses.replace(tokens, ids=tokens.ids.masked_fill(chosen, agent.vocabulary.mask_id))
        with torch.no_grad():
            loss, _ = agent.model(hidden, {WORDS: tokens.ids[chosen]}, chosen)[WORDS]
        assert abs(float(loss) / 8 - entropy) < 0.15, (place, entropy)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_the_folder_starts_every_ranker(kind, tmp_path):
    pretrain(tmp_path / "P", "--max-train-steps", "3")
    folder = tmp_path / "P.backbone"
    train(kind, tmp_path / "M", "-t", SAMPLE, "--backbone", folder, "--max-train-steps", "1", "-vme", "8",
          "--short-final-eval", "true", "-lr", "1e-30", "--candidates", "batch")  # fmt: skip
    before, after = weights(tmp_path / "P")["model"], weights(tmp_path / "M")["model"]
    encoder = "encoder" if kind in ("uni", "cross") else "context_encoder"
    for name in ("embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.weight"):
        assert torch.allclose(before[f"lm.bert.{name}"], after[f"{encoder}.backbone.{name}"], atol=1e-6)
    assert AutoTokenizer.from_pretrained(folder).mask_token == "[MASK]"
    lm = AutoModelForMaskedLM.from_pretrained(folder)
    assert torch.equal(lm.cls.predictions.transform.dense.weight, before["lm.cls.predictions.transform.dense.weight"])
    assert lm.cls.predictions.decoder.weight is lm.bert.embeddings.word_embeddings.weight


@pytest.mark.slow
def test_evaluation_says_the_same_each_time_and_all_of_it(colours, tmp_path):
    pretrain(tmp_path / "P", "--max-train-steps", "2")
    first, second = (evaluate(tmp_path / "P", *colours, "-dt", "valid") for _ in range(2))
    for name in ("exs", "loss", "ppl", "token_acc", "next_utterance_acc", "next_utterance_loss", "padding"):
        assert first[name] == second[name]
    assert first["ppl"] == pytest.approx(math.exp(first["loss"]))
    assert first["exs"] == 30


@pytest.mark.slow
def test_part_of_an_evaluation_measures_both_objectives(tmp_path):
    report, _ = pretrain(tmp_path / "P", "--max-train-steps", "2", "-vme", "20")
    assert float(report["exs"]) == 20 and {"ppl", "token_acc", "next_utterance_acc"} <= set(report)


# ---- the order of the data, and runs that are killed -----------------------------------------------------------------


def reader_options(datatype="train"):
    return ParlaiParser(True, True).parse_args(["-t", SAMPLE, "-dt", datatype])


def test_what_is_read_does_not_depend_on_who_else_draws():
    first, second = TaskReader(reader_options(), 1), TaskReader(reader_options(), 1)
    random.seed(5)
    state = random.getstate()
    whole = first.read(300)
    assert random.getstate() == state
    random.seed(6)
    assert second.read(100) + second.read(200) == whole
    third = TaskReader(reader_options(), 1)
    third.skip(100)
    assert third.read(200) == whole[100:]
    assert TaskReader(reader_options(), 2).read(300) != whole


def test_contexts_hold_the_whole_dialogue():
    opt = ParlaiParser(True, True).parse_args(["-t", "integration_tests:multiturn", "-dt", "valid"])
    pairs = TaskReader(opt, 0).read(4)
    turns = [pair.label for pair in pairs]
    assert pairs[1].context.startswith(f"{pairs[0].context}\n{turns[0]}\n")


def world_at(backbone, position, *flags):
    """A training world with small updates that goes on from a place."""
    agent = make(backbone, "--batch-tokens", "300", "--chunk-tokens", "100", *flags)
    agent.position = position
    return PretrainWorld(agent.opt, agent)


@pytest.mark.slow
def test_epochs_go_on_evenly_where_a_window_was_half_done(bert, monkeypatch):
    monkeypatch.setattr(pretraining_world, "WINDOW", 100)
    epochs, places = [0.0], []
    whole = world_at(bert, Position())
    for _ in range(24):
        whole.parley()
        epochs.append(whole.get_total_epochs())
        places.append(whole.position)
    assert places[-1].windows >= 1 and epochs == sorted(epochs)
    rest = world_at(bert, places[4])
    for number in range(5, 24):
        rest.parley()
        assert rest.position == places[number]
        assert rest.get_total_epochs() == pytest.approx(epochs[number + 1] - epochs[5])


def test_a_checkpoint_of_other_batches_is_refused(bert, monkeypatch):
    monkeypatch.setattr(pretraining_world, "WINDOW", 100)
    world = world_at(bert, Position())
    world.parley()
    with pytest.raises(InputError, match="--batch-tokens"):
        world_at(bert, world.position, "--text-truncate", "8").parley()


def test_a_window_without_pairs_is_left_out(bert):
    agent = make(bert, "--pretrain-task", "next_sentence")
    single, several = [TextPair("", "alone")], [TextPair("one .\ntwo .", "three .")]
    assert agent.plan(single, window=1) == [] == agent.plan_evaluation(single)
    assert len(agent.plan([*single, *several], window=1)) == 2
    with pytest.raises(InputError, match="no pairs of texts"):
        agent.plan(single, window=0)


@pytest.mark.slow
def test_the_last_updates_are_validated_too(tmp_path):
    """ParlAI's loop ends before the validation of its last update."""
    pretrain(tmp_path / "M", "--validation-every-n-steps", "4", "--max-train-steps", "8", "-lr", "1e-3")
    with open(tmp_path / "M.trainstats") as file:
        assert [report["train_steps"] for report in json.load(file)["valid_reports"]] == [4, 8]
    assert weights(tmp_path / "M")["number_training_updates"] == 8
    pretrain(tmp_path / "N", "--max-train-steps", "3")  # never validated: not at the end, either
    with open(tmp_path / "N.trainstats") as file:
        assert json.load(file)["valid_reports"] == []


@pytest.mark.slow
def test_a_run_that_is_done_is_done(tmp_path):
    """The same command again evaluates, and no more."""
    flags = ("--validation-every-n-steps", "5", "--max-train-steps", "9")
    pretrain(tmp_path / "M", *flags)
    before = weights(tmp_path / "M.checkpoint")
    pretrain(tmp_path / "M", *flags)
    after = weights(tmp_path / "M.checkpoint")
    assert after["position"] == before["position"] and after["position"]["total"] == 9
    assert all(torch.equal(weight, after["model"][name]) for name, weight in before["model"].items())
    with open(tmp_path / "M.trainstats") as file:
        assert [report["train_steps"] for report in json.load(file)["valid_reports"]] == [5, 9]


@pytest.mark.slow
def test_another_runs_checkpoint_is_a_start_and_no_place(tmp_path):
    pretrain(tmp_path / "old", "--max-train-steps", "6")
    pretrain(tmp_path / "new", "--max-train-steps", "3", "--init-model", tmp_path / "old.checkpoint", "-lr", "1e-30")
    old, new = weights(tmp_path / "old.checkpoint"), weights(tmp_path / "new.checkpoint")
    assert new["position"]["total"] == 3
    assert all(torch.equal(weight, new["model"][name]) for name, weight in old["model"].items())


@pytest.mark.slow
def test_the_count_of_the_checkpoint_decides_where_the_stats_are_older(tmp_path):
    """A run is killed between the two files."""
    pretrain(tmp_path / "M", "--max-train-steps", "12")
    with open(tmp_path / "M.checkpoint.trainstats") as file:
        stats = json.load(file)
    (tmp_path / "M.checkpoint.trainstats").write_text(json.dumps(stats | {"train_steps": 3, "total_epochs": 9.0}))
    pretrain(tmp_path / "M", "--max-train-steps", "16")
    with open(tmp_path / "M.trainstats") as file:
        after = json.load(file)
    assert after["train_steps"] == 16 and 0 < stats["total_epochs"] < after["total_epochs"] < 9


def test_processes_that_start_from_different_places_are_refused(bert, monkeypatch):
    monkeypatch.setattr(distributed, "is_distributed", lambda: True)
    monkeypatch.setattr(distributed, "gathered", lambda own: [own, "of another checkpoint"])
    with pytest.raises(InputError, match="a folder that all machines share"):
        make(bert)


@pytest.mark.release  # test_training.py kills a run in the fast suite
def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path):
    """kill -9 at random moments: the same weights, bit for bit, as those of a run that nobody disturbed."""
    flags = ["--max-train-steps", "240", "--save-every-n-secs", "0.02", "--loglevel", "error", "-t", SAMPLE]
    command = [Path(sys.executable).with_name("parlai"), "train_model", "-m", PRETRAIN, *TINY, *flags]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(name):
        return subprocess.Popen([*map(str, command), "-mf", tmp_path / name], env=environment, stderr=subprocess.PIPE)

    undisturbed = start("A")
    moments, kills = random.Random(0), 0
    for least in (2, 25, 40):  # the first one while the rate warms up
        killed = start("B")
        deadline = time.monotonic() + 120
        while updates_in_checkpoint(tmp_path / "B") < least:
            assert killed.poll() is None and time.monotonic() < deadline, killed.stderr.read()
            time.sleep(0.01)
        time.sleep(moments.random() * 0.1)
        killed.send_signal(signal.SIGKILL)
        kills += killed.wait() == -signal.SIGKILL
        killed.stderr.close()
    last = start("B")
    assert all(process.communicate()[1] is not None and process.returncode == 0 for process in (undisturbed, last))
    assert kills == 3
    alone, resumed = weights(tmp_path / "A.checkpoint"), weights(tmp_path / "B.checkpoint")
    assert alone["position"] == resumed["position"] and alone["position"]["total"] == 240
    assert all(torch.equal(weight, resumed["model"][name]) for name, weight in alone["model"].items())


@pytest.mark.parametrize("task", ["polyagents.tasks.pairs:sample", "polyagents.tasks.wiki_search:sample"])
def test_a_streamed_task_is_left_out_up_to_its_place_without_being_read(task):
    opt = ParlaiParser(True, True).parse_args(["-t", task, "-dt", "train"])
    first, second = TaskReader(opt, 0), TaskReader(opt, 0)
    whole = first.read(60)
    second.skip(25)
    second.teacher.act, read = None, second.teacher.act
    second.skip(5)
    second.teacher.act = read
    assert second.read(30) == whole[30:]


@pytest.mark.release  # test_distributed.py has two processes in the fast suite
def test_two_processes_share_the_work_and_keep_the_same_weights(tmp_path):
    """Over gloo, killed in the middle: the same weights as undisturbed, bit for bit."""
    folder = Path(sys.executable).parent
    command = [folder / "torchrun", "--standalone", "--nproc-per-node", "2", "-m", "polyagents", "train_model"]
    command += ["-m", PRETRAIN, *TINY, "--max-train-steps", "60", "--save-every-n-secs", "0.02", "-t", SAMPLE]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(name):
        return subprocess.Popen(
            [*map(str, command), "-mf", tmp_path / name], env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    killed, undisturbed = start("B"), start("A")
    deadline = time.monotonic() + 200
    while updates_in_checkpoint(tmp_path / "B") < 3:
        assert killed.poll() is None and time.monotonic() < deadline, killed.stderr.read()
        time.sleep(0.01)
    for process in (*workers(killed.pid), killed.pid):
        os.kill(process, signal.SIGKILL)
    killed.communicate(timeout=60)
    resumed = start("B")
    for process in (undisturbed, resumed):
        _, said = process.communicate(timeout=200)
        assert process.returncode == 0, said
    first, second = weights(tmp_path / "A.checkpoint"), weights(tmp_path / "B.checkpoint")
    assert first["position"] == second["position"] and first["position"]["total"] == 60
    assert all(torch.equal(weight, second["model"][name]) for name, weight in first["model"].items())


@pytest.mark.slow
def test_the_papers_vocabulary(tmp_path):
    """`build_vocabulary`, then pre-training with it: [S] on both sides of both texts."""
    own("build_vocabulary", "-t", SAMPLE, "--vocabulary-size", 400, "--out", tmp_path / "V")
    pretrain(tmp_path / "P", "--vocabulary", tmp_path / "V", "--max-train-steps", "2")
    agent = make(tmp_path / "P.backbone", datatype="valid")
    (update,) = agent.plan_evaluation([TextPair("hi\nhello", "hi")])[:1]
    tokens, _, _ = agent.prepared(update.chunks[0], (LABELS,), torch.Generator())
    read = [agent.dict[int(token)] for token in tokens.ids[0]]
    assert read.count("[S]") == 4 and read.count("[NEWLINE]") == 1 and agent.dict.mask_token == "[MASK]"


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--update-freq", "2"), "--batch-tokens"),
        (("--num-workers", "2"), "--num-workers"),
        (("--validation-share-agent", "true"), "--validation-share-agent"),
        (("--datatype", "train:ordered"), "the order follows from --seed"),
        (("--text-truncate", "500"), "positions"),
        (("--init-model", "nowhere"), "no model at nowhere"),
        (("--batch-tokens", "0"), None),
    ],
)
def test_bad_flags(flags, sentence, tmp_path, capsys):
    with pytest.raises((InputError, SystemExit)) as raised:
        pretrain(tmp_path / "M", "--max-train-steps", "1", *flags)
    assert sentence is None or sentence in str(raised.value)
    assert not (tmp_path / "M").exists()


def test_a_decoder_has_no_words_to_guess(tmp_path):
    with pytest.raises(InputError, match="gpt2"):
        make(save("gpt2", tmp_path / "gpt2"))


def test_a_task_without_labels(tmp_path):
    """Is nothing for next utterances, and running text for next sentences."""
    task = write_task(tmp_path, [(r"one is one .\ntwo is two .\nthree is three .", "", None)] * 8)
    given = ("-m", PRETRAIN, *TINY, *task, "--max-train-steps", "1")
    with pytest.raises(InputError, match="no pairs of texts"):
        run("train_model", "-mf", tmp_path / "M", *given)
    run("train_model", "-mf", tmp_path / "N", *given, "--pretrain-task", "next_sentence")
    assert (tmp_path / "N.backbone").is_dir()


def test_a_task_that_nothing_can_be_validated_on(tmp_path):
    """Is refused before the training, whose first validation would be its end."""
    (tmp_path / "book.txt").write_text("one line\n" * 200)
    with pytest.raises(InputError, match="has no pairs in valid"):
        run("train_model", "-m", PRETRAIN, "-mf", tmp_path / "M", *TINY, "-t", "polyagents.tasks.pairs",
            "--pairs-path", tmp_path / "book.txt", "-dp", tmp_path, "--max-train-steps", "1")  # fmt: skip
    assert not (tmp_path / "M.checkpoint").exists()


def test_a_full_disk_leaves_the_folder_that_was_there(tmp_path, monkeypatch):
    agent = make(save("bert", tmp_path / "bert"))
    folder = tmp_path / "M.backbone"
    write_hugging_face(agent.module.lm, agent.dict.ready, str(folder))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(type(agent.module.lm), "save_pretrained", full)
    with pytest.raises(InputError, match=r"cannot be written .No space left"):
        write_hugging_face(agent.module.lm, agent.dict.ready, str(folder), again=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["M.backbone", "bert"]


@pytest.mark.slow
def test_it_cannot_reply(tmp_path):
    pretrain(tmp_path / "P", "--max-train-steps", "1")
    with pytest.raises(InputError, match="cannot reply"):
        run("interactive", "-mf", tmp_path / "P")
    with pytest.raises(InputError, match="cannot reply"):
        run("display_model", "-mf", tmp_path / "P", "-t", SAMPLE)


def test_names():
    assert polyagents.Pretrain.architecture == "Pretrain"
