"""The agents below the commands: candidate sources, metrics, caches, optimisers, ties and missing labels."""

import math

import pytest
import torch
from agent_batches import act, example, value
from backbones import SENTENCES
from commands import KINDS
from parlai.core.message import Message
from parlai.core.metrics import TeacherMetrics

from polyagents import Ranker
from polyagents.errors import InputError


def cross_entropy(scores, label):
    return math.log(sum(math.exp(score - scores[label]) for score in scores))


EXAMPLES = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[3]), (SENTENCES[4], SENTENCES[5])]


@pytest.mark.parametrize("kind", KINDS)
def test_repeated_labels_are_never_each_others_negatives(make, kind):
    """The loss of a batch with repetitions is the loss over its distinct labels."""
    agent = make(kind, "--candidates", "batch", "--dropout", "0", "-lr", "0")
    texts = [("where", "canada"), ("who", "canada"), ("how", "fine"), ("hi", "fine")]
    replies = act(agent, [example(*pair) for pair in texts])
    scores = Ranker(agent.ranking).score([text for text, _ in texts], ["canada", "fine"]) * agent.module.logit_scale
    for reply, row, (_, label) in zip(replies, scores, texts, strict=True):
        right = 0 if label == "canada" else 1
        expected = math.log(sum(math.exp(score) for score in row)) - row[right]
        assert float(reply["metrics"]["mean_loss"].value()) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_the_label_and_ties(make, kind):
    agent = make(kind, "--eval-candidates", "inline", "--recall-at", "1,2,3", datatype="valid")
    # A copy of the label ranks with it; the same text twice elsewhere ties with itself.
    candidates = ["i am fine", "canada", "i am fine", "she plays", "canada"]
    (reply,) = act(agent, [example("where", "canada", candidates, "eval_labels")])
    scores = Ranker(agent.ranking).score("where", ["canada", "i am fine", "she plays"])
    rank = 1 + 2 * int(scores[1] > scores[0]) + int(scores[2] > scores[0])
    assert float(reply["metrics"]["rank"].value()) == rank
    expected = math.log(sum(n * math.exp(s) for n, s in zip((1, 2, 1), scores, strict=True))) - scores[0]
    assert float(reply["metrics"]["loss"].value()) == pytest.approx(expected, abs=1e-4)
    assert sorted(reply["text_candidates"]) == sorted(candidates)


@pytest.mark.parametrize("kind", KINDS)
def test_a_collapsed_model_wins_nothing(make, kind):
    """All scores equal: the label is last of its 4, wherever it stands in the list."""
    agent = make(kind, "--eval-candidates", "inline", datatype="valid")
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.zero_()
    candidates = ["canada", "i am fine", "she plays", "my dog"]
    for order in (candidates, candidates[::-1]):
        (reply,) = act(agent, [example("where", "canada", order, "eval_labels")])
        assert float(reply["metrics"]["rank"].value()) == 4
        assert float(reply["metrics"]["mrr"].value()) == 0.25
        assert reply["text_candidates"][-1] == "canada"
        assert float(reply["metrics"]["loss"].value()) == pytest.approx(math.log(4))


def test_every_hits_at_k_is_reported_once_and_agrees_with_the_rank(make):
    agent = make("bi", "--eval-candidates", "inline", "--recall-at", "1,2,5,7", datatype="valid")
    candidates = [f"{word} {n}" for n in range(5) for word in ("dog", "canada")]
    messages = [example(text, candidates[i], candidates, "eval_labels") for i, (text, _) in enumerate(EXAMPLES)]
    teacher = TeacherMetrics("loss")
    ranks = []
    for message, reply in zip(messages, act(agent, messages), strict=True):
        teacher.evaluate_response(reply, message["eval_labels"])
        ranks.append(float(reply["metrics"]["rank"].value()))
    report = {key: float(value.value()) for key, value in teacher.report().items()}
    for k in (1, 2, 5, 7, 10):
        assert report[f"hits@{k}"] == pytest.approx(sum(rank <= k for rank in ranks) / len(ranks))
    assert report["mrr"] == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks))


@pytest.mark.parametrize(
    ("key", "datatype", "loss"), [("labels", "train", "mean_loss"), ("eval_labels", "valid", "loss")]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_label_missing_from_its_candidates_is_ranked_with_them(make, kind, key, datatype, loss):
    flags = ("--candidates", "inline", "--eval-candidates", "inline", "--dropout", "0", "-lr", "0")
    agent, ranks = make(kind, *flags, datatype=datatype), set()
    labels = (
        "she plays the piano",
        "i am fine thank you",
        "my dog barks at the mailman",
        "hi",
        "piano every evening",
        "north where is",
    )
    for label in labels:
        given = ["canada", "how are you"]
        scores = Ranker(agent.ranking).score("where", [*given, label])
        (reply,) = act(agent, [example("where", label, given, key)])
        rank = 1 + sum(score >= scores[2] for score in scores[:2])
        assert value(reply, "rank") == rank and value(reply, "mrr") == pytest.approx(1 / rank)
        assert value(reply, loss) == pytest.approx(cross_entropy(scores * agent.module.logit_scale, 2), abs=1e-4)
        if key == "eval_labels":
            assert sorted(reply["text_candidates"]) == sorted([*given, label])
        ranks.add(rank)
    assert len(ranks) > 1  # or a fixed rank would do


@pytest.mark.parametrize("source", ["batch", "inline", "batch-all-cands", "fixed"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_source_trains_and_evaluates(make, kind, source, tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("\n".join(SENTENCES))
    flags = ("--candidates", source, "--eval-candidates", source, "--fixed-candidates-path", str(path))
    for key, datatype in (("labels", "train"), ("eval_labels", "valid")):
        agent = make(kind, *flags, datatype=datatype)
        messages = [example(text, label, [label, *SENTENCES[: 2 + i]], key) for i, (text, label) in enumerate(EXAMPLES)]
        before = [p.clone() for p in agent.model.parameters() if p.requires_grad]
        replies = act(agent, messages)
        after = [p for p in agent.model.parameters() if p.requires_grad]
        changed = any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert changed == (key == "labels")
        assert all(1 <= float(reply["metrics"]["rank"].value()) <= 6 for reply in replies)


@pytest.mark.slow
def test_uneven_inline_lists_score_as_alone(make):
    for kind in KINDS:
        agent = make(kind, "--eval-candidates", "inline", datatype="valid")
        messages = [
            example(text, label, [label, *SENTENCES[: 2 * i]], "eval_labels")
            for i, (text, label) in enumerate(EXAMPLES)
        ]
        together = act(agent, messages)
        for message, reply in zip(messages, together, strict=True):
            (alone,) = act(agent, [message])
            assert alone["text_candidates"] == reply["text_candidates"]
            assert float(alone["metrics"]["loss"].value()) == pytest.approx(
                float(reply["metrics"]["loss"].value()), abs=1e-4
            )


@pytest.mark.parametrize("model", [("poly",), ("uni", "--joint-head", "cosine"), ("cross", "--joint-head", "dot")])
def test_what_is_cached_of_candidates_equals_fresh_and_goes_with_the_weights(model, make):
    agent = make(*model, "--eval-candidates", "inline", "-lr", "1e-2", "--train-layers", "all")
    message = example("where", "canada", SENTENCES, "eval_labels")
    (first,) = act(agent, [message])
    assert len(agent.ranking._encoded) == len(SENTENCES) + 1
    (second,) = act(agent, [message])
    assert first["metrics"]["loss"].value() == second["metrics"]["loss"].value()
    act(agent, [example(*pair) for pair in EXAMPLES])  # a training step
    (third,) = act(agent, [message])
    agent.ranking.forget()
    (fresh,) = act(agent, [message])
    assert third["metrics"]["loss"].value() == fresh["metrics"]["loss"].value() != first["metrics"]["loss"].value()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adamax"])
def test_optimisers_respect_betas_and_eps(make, optimizer):
    agent = make("poly", "--optimizer", optimizer, "--betas", "0.8,0.95", "--adam-eps", "1e-6")
    for group in agent.optimizer.param_groups:
        assert tuple(group["betas"]) == (0.8, 0.95)
        assert group["eps"] == 1e-6
    decays = {group["weight_decay"] for group in agent.optimizer.param_groups}
    assert decays == {0.0, 0.01}
    trained = [p for p in agent.model.parameters() if p.requires_grad]
    assert sum(len(group["params"]) for group in agent.optimizer.param_groups) == len(trained)


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        ("sgd", {"momentum": 0.5, "nesterov": True}),
        ("rmsprop", {"momentum": 0.5}),
        ("adafactor", {"beta1": 0.8, "eps": (1e-30, 1e-3), "warmup_init": False}),
    ],
)
def test_other_optimisers_of_parlai_step_as_they_do_alone(make, optimizer, more):
    flags = ("--optimizer", optimizer, "--momentum", "0.5", "--betas", "0.8,0.95", "--weight-decay", "0.02")
    flags += ("-lr", "0.01", "--warmup-updates", "-1", "--gradient-clip", "-1", "--train-layers", "all")
    agent = make("poly", *flags)
    trained = {name: p for name, p in agent.model.named_parameters() if p.requires_grad}
    twins = {name: torch.nn.Parameter(p.detach().clone()) for name, p in trained.items()}
    decayed = [p for name, p in twins.items() if p.ndim > 1 and name != "codes"]
    others = [p for name, p in twins.items() if p.ndim <= 1 or name == "codes"]
    groups = [{"params": decayed, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}]
    alone = agent.optim_opts()[optimizer](groups, lr=0.01, **more)
    for _ in range(3):
        act(agent, [example(*pair) for pair in EXAMPLES])
        for name, twin in twins.items():
            twin.grad = None if trained[name].grad is None else trained[name].grad.clone()
        alone.step()
    for name, twin in twins.items():
        torch.testing.assert_close(trained[name], twin, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_codes_have_their_own_learning_rate(make):
    agent = make("poly", "-lr", "1e-4", "--codes-learningrate", "1e-2", "--warmup-updates", "-1")
    rates = {len(group["params"]): group["lr"] for group in agent.optimizer.param_groups}
    assert rates[1] == 1e-2
    assert set(rates.values()) == {1e-2, 1e-4}
    (own,) = (group for group in agent.optimizer.param_groups if group["lr"] == 1e-2)
    assert own["params"] == [agent.module.codes] and own["weight_decay"] == 0


@pytest.mark.parametrize(("init", "largest"), [("normal", 0.2), ("uniform", 1.0)])
def test_codes_start_where_the_flag_says(make, init, largest):
    codes = make("poly", "--codes-init", init, "--poly-n-codes", "64").module.codes
    assert 0.05 < codes.abs().max() <= largest
    assert (codes.min() >= 0) == (init == "uniform")


def test_accumulated_gradients_and_clipping(make):
    agent = make("bi", "--update-freq", "2", "--gradient-clip", "0.001")
    before = [p.clone() for p in agent.model.parameters()]
    act(agent, [example(*pair) for pair in EXAMPLES])
    assert all(torch.equal(a, b) for a, b in zip(before, agent.model.parameters(), strict=True))
    act(agent, [example(*pair) for pair in EXAMPLES])
    assert any(not torch.equal(a, b) for a, b in zip(before, agent.model.parameters(), strict=True))
    assert float(agent.report()["clip"].value()) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "precision"), [*((kind, "bf16") for kind in KINDS), ("poly", "fp16"), ("cross", "fp16")]
)
def test_low_precision_has_nearly_the_gradients_of_fp32_and_learns(make, kind, precision):
    flags = ("--candidates", "batch", "--train-layers", "all", "--dropout", "0", "--gradient-clip", "-1")
    messages, gradients = [example(*pair) for pair in EXAMPLES], {}
    for each in ("fp32", precision):
        agent = make(kind, *flags, "--precision", each, "-lr", "0", "--weight-decay", "0")
        for _ in range(20 if each == "fp16" else 1):  # its first gradients overflow, until their scale fits
            act(agent, messages)
        assert all(p.dtype == torch.float32 for p in agent.model.parameters())
        gradients[each] = torch.cat([p.grad.flatten() for p in agent.model.parameters() if p.grad is not None])
    off = (gradients[precision] - gradients["fp32"]).norm() / gradients["fp32"].norm()
    assert 1e-6 < off < 0.1
    agent = make(kind, *flags, "--precision", precision, "-lr", "3e-3", "--warmup-updates", "-1")
    steps = 32 if precision == "fp16" else 16
    losses = [sum(value(reply, "mean_loss") for reply in act(agent, messages)) for _ in range(steps)]
    assert losses[-1] < 0.5 * losses[0]


def test_cross_encoder_takes_random_training_labels_where_there_are_no_candidates(make):
    agent = make("cross", "--candidates", "inline", "--cross-negatives", "2")
    messages = [example(*pair) for pair in EXAMPLES]
    act(agent, messages)
    assert sorted(agent.training_candidates.pool) == sorted(label for _, label in EXAMPLES)
    batch = agent.batchify([agent.clone().observe(message) for message in messages])
    candidates = agent.training_candidates.of("inline", batch.examples, None)
    for texts, column, (_, label) in zip(candidates.texts, candidates.labels, EXAMPLES, strict=True):
        assert texts[column] == label
        assert len(texts) == 3 and len(set(texts)) == 3


def test_as_many_negatives_as_asked_for_are_drawn_anew_from_the_tasks_own(make):
    agent = make("uni", "--candidates", "inline", "--cross-negatives", "2")
    own = [[label, *(f"no {i}" for i in range(8))] for _, label in EXAMPLES]
    messages = [example(*pair, given) for pair, given in zip(EXAMPLES, own, strict=True)]
    batch = agent.batchify([agent.clone().observe(message) for message in messages])
    seen = [set(), set(), set()]
    for _ in range(30):
        candidates = agent.training_candidates.of("inline", batch.examples, None)
        for texts, column, (_, label), drawn in zip(candidates.texts, candidates.labels, EXAMPLES, seen, strict=True):
            assert len({*texts}) == len(texts) == 3 and texts[column] == label
            drawn.update({*texts} - {label})
    assert all(drawn == {f"no {i}" for i in range(8)} for drawn in seen)


def test_the_tasks_negatives_come_first_and_random_labels_fill_up(make):
    """As mine_negatives brings a few hard ones; an example of --every-utterance has none."""
    agent = make("cross", "--candidates", "inline", "--cross-negatives", "3")
    given = [[label, "hard"] for _, label in EXAMPLES]
    messages = [example(*pair, own) for pair, own in zip(EXAMPLES, given, strict=True)]
    messages.append(example("hi", "hello"))
    batch = agent.batchify([agent.clone().observe(message) for message in messages])
    candidates = agent.training_candidates.of("inline", batch.examples, None)
    labels = {"hello", *(label for _, label in EXAMPLES)}
    for texts, (_, label) in zip(candidates.texts, EXAMPLES, strict=False):
        assert len(texts) == 4 and {"hard", label} < {*texts} and {*texts} - {"hard"} <= labels
    assert len(candidates.texts[3]) == 4 and {*candidates.texts[3]} <= labels


def test_history_is_kept_apart_by_newlines_and_cut_from_the_left(make):
    agent = make("bi", "--text-truncate", "9", datatype="valid")
    agent.observe(Message({"id": "x", "text": "your persona: i ski\nhi", "episode_done": False}))
    first = agent.observation["text_vec"].tolist()
    newline = agent.dict.ready.newline_ids[0]
    assert first == agent.dict.ready.context(agent.dict.txt2vec("your persona: i ski\nhi"), 9)
    agent.self_observe(Message({"id": "me", "text": "how are you", "episode_done": False}))
    second = agent.observe(Message({"id": "x", "text": "fine", "episode_done": True}))["text_vec"].tolist()
    whole = agent.dict.txt2vec("your persona: i ski\nhi\nhow are you\nfine")
    assert second == [agent.dict.ready.start_id, *whole[-7:], agent.dict.ready.end_id]
    assert newline in second


def test_repeat_blocking_never_leaves_nothing(make, tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("hi\nhow are you")
    agent = make("bi", "--eval-candidates", "fixed", "--fixed-candidates-path", str(path), datatype="valid")
    said = []
    for text in ("hi", "how are you", "hi"):
        agent.observe(Message({"id": "x", "text": text, "episode_done": False}))
        said.append(agent.act()["text"])
    assert said[0] == "how are you"  # "hi" was just said
    assert set(said) <= {"hi", "how are you"}


def test_top_replies_with_scores_on_request(make, tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("\n".join(SENTENCES))
    flags = ("--eval-candidates", "fixed", "--fixed-candidates-path", str(path), "--rank-top-k", "3")
    agent = make("poly", *flags, "--return-cand-scores", "true", datatype="valid")
    agent.observe(Message({"id": "x", "text": "where", "episode_done": False}))
    reply = agent.act()
    assert len(reply["text_candidates"]) == len(reply["sorted_scores"]) == len(reply["top_replies"]) == 3
    assert reply["sorted_scores"] == sorted(reply["sorted_scores"], reverse=True)
    scores = Ranker(agent.ranking).score("where", SENTENCES)
    assert reply["sorted_scores"][0] == pytest.approx(float(scores.max()), abs=1e-4)
    assert reply["text"] == SENTENCES[int(scores.argmax())] == reply["text_candidates"][0]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--eval-candidates", "vocab"), "cannot be ranked by these agents"),
        (("--text-truncate", "600"), "lower them"),
        (("--backbone", "no/such/model"), "is not a folder here"),
        (("--backbone", "scratch:huge", "--dict-file", "{dict}"), "there is no such size; use scratch:tiny|mini|base"),
    ],
)
def test_options_that_cannot_work(make, flags, sentence, tmp_path):
    make("bi").dict.save(str(tmp_path / "a.dict"))
    with pytest.raises(InputError, match=sentence.replace("|", r"\|")):
        make("bi", *(flag.format(dict=tmp_path / "a.dict") for flag in flags))


def test_a_source_that_the_task_lacks_is_named(make):
    agent = make("bi", "--candidates", "inline", "-t", "integration_tests:nocandidate")
    with pytest.raises(InputError, match="use --candidates batch"):
        act(agent, [example(*pair) for pair in EXAMPLES])


def test_an_evaluation_without_candidates_ranks_the_labels_of_the_batch(make):
    agent = make("poly", "--eval-candidates", "inline", datatype="valid")
    replies = act(agent, [example(*pair, key="eval_labels") for pair in EXAMPLES])
    for reply in replies:
        assert sorted(reply["text_candidates"]) == sorted(label for _, label in EXAMPLES)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_code_runs_on_a_gpu(make, kind, precision):
    agent = make(kind, "--candidates", "batch", "--precision", precision)
    assert agent.device.type == "cuda"
    replies = act(agent, [example(*pair) for pair in EXAMPLES])
    assert all(math.isfinite(float(reply["metrics"]["mean_loss"].value())) for reply in replies)
    on_gpu = Ranker(agent.ranking).score(SENTENCES[0], SENTENCES)
    agent.model.cpu()
    assert on_gpu == pytest.approx(Ranker(agent.ranking).score(SENTENCES[0], SENTENCES), abs=0.05, rel=0.05)


@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_fixed_candidates_are_ranked_by_the_weights_after_each_training_step(make, kind, tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("\n".join(SENTENCES))
    flags = ("--candidates", "batch", "--eval-candidates", "fixed", "--fixed-candidates-path", str(path))
    agent = make(kind, *flags, "-lr", "1e-2", "--warmup-updates", "-1", "--dropout", "0")
    losses = []
    for step in range(3):
        if step:
            act(agent, [example(*pair) for pair in EXAMPLES])  # a training step
        (reply,) = act(agent, [example("where", SENTENCES[1], key="eval_labels")])
        scores = Ranker(agent.ranking).score("where", SENTENCES) * agent.module.logit_scale
        expected = math.log(sum(math.exp(score - scores[1]) for score in scores))
        losses.append(float(reply["metrics"]["loss"].value()))
        assert losses[-1] == pytest.approx(expected, abs=1e-3)
    assert abs(losses[0] - losses[1]) > 0.01 and abs(losses[1] - losses[2]) > 0.01  # the steps do change the scores


@pytest.mark.parametrize(
    ("field", "given"),
    [
        *(("text", given) for given in (3, b"hi", ["hi"])),
        *(("label_candidates", given) for given in ("canada", 3, [1, 2], [None, "canada"], b"canada")),
        *(("eval_labels", given) for given in ("canada", [1], [None])),
        *(("labels", given) for given in ("canada", [["canada"]])),
    ],
)
def test_a_message_with_something_else_than_texts_is_refused(make, field, given):
    """A text instead of a list would be ranked letter by letter."""
    agent = make("bi", "--eval-candidates", "inline", datatype="valid")
    message = {"text": "where", "label_candidates": ["canada", "fine"], "episode_done": True, field: given}
    with pytest.raises(InputError, match=rf"^The {field} of a message (is|are) .*; give a (list of texts|text)"):
        agent.observe(message)


def test_candidates_that_can_be_read_once_are_read_once(make):
    agent = make("bi", "--eval-candidates", "inline", datatype="valid")
    message = {"text": "where", "label_candidates": iter(["canada", "fine"]), "episode_done": True}
    assert agent.observe(message)["label_candidates"] == ["canada", "fine"]


@pytest.mark.parametrize("lacking", [{}, {"label_candidates": []}, {"label_candidates": [" "]}])
def test_a_chat_over_the_messages_candidates_needs_them_in_each_message(make, lacking):
    agent = make("bi", "--interactive-candidates", "inline", "--interactive-mode", "true", datatype="valid")
    given = {"text": "where", "episode_done": True}
    messages = [given | {"label_candidates": ["canada", "fine"]}, given | lacking]
    assert act(agent, messages[:1])[0]["text"] in ("canada", "fine")
    for some in (messages, messages[1:]):
        with pytest.raises(InputError, match="--interactive-candidates inline needs candidates with each message"):
            act(agent, some)
