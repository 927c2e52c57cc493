"""The map from scores to probabilities: fitted to scores whose probabilities are known, kept in a file, held to."""

import dataclasses
import json

import numpy as np
import pytest
from decisions import simulated

from polyagents import InputError, Ranker
from polyagents.decisions.calibration import MadeFor, fitted_to, path_of, read_calibration, write_calibration
from polyagents.decisions.figures import (
    LEVELS,
    Level,
    binned_error,
    calibration_error,
    figures_of,
    levels_of,
    lower_bounds,
    shortest,
    threshold_for,
)
from polyagents.decisions.fitting import cross_fitted, fit
from polyagents.decisions.score_map import Scored, ScoreMap

MADE_FOR = MadeFor("model", None, None, "options", 4, 4, "examples")


def loop_probabilities(found, scores, reranked=None):
    """The formulas of score_map.py, for one example."""
    logits = [score / found.temperature for score in scores]
    total = sum(np.exp(logit) for logit in logits)
    options = [np.exp(logit) / total for logit in logits]
    last = logits
    if reranked is not None:
        last = [score / found.rerank_temperature for score in reranked if np.isfinite(score)]
        listed = [place for place, score in enumerate(reranked) if np.isfinite(score)]
        mass = sum(options[place] for place in listed)
        for place, logit in zip(listed, last, strict=True):
            options[place] = mass * np.exp(logit) / sum(map(np.exp, last))
    if found.none_bias is None:
        return options, 0.0
    first, second = sorted(last)[-1:-3:-1]
    evidence = np.log(sum(map(np.exp, last)))
    none = 1 / (
        1 + np.exp(-(found.none_bias - found.evidence_weight * evidence - found.margin_weight * (first - second)))
    )
    return [option * (1 - none) for option in options], none


@pytest.mark.parametrize("reranked", [None, [0.3, -np.inf, 1.0, 0.1]])
@pytest.mark.parametrize("found", [ScoreMap(2.0, 0.5), ScoreMap(2.0, 0.5, 1.0), ScoreMap(2.0, 0.5, 1.0, 0.7, 0.3)])
def test_probabilities_are_those_of_the_formulas(found, reranked):
    scores = [1.0, -2.0, 0.5, 3.0]
    scored = Scored(np.array([scores]), np.zeros((1, 4), bool), np.zeros(1, int), reranked and np.array([reranked]))
    options, none = found.probabilities(scored)
    expected, nothing = loop_probabilities(found, scores, reranked)
    assert options[0] == pytest.approx(expected) and none[0] == pytest.approx(nothing)
    assert options.sum() + none.sum() == pytest.approx(1)


def test_a_shorter_list_is_padded_without_an_effect():
    short = np.array([[1.0, 2.0, -np.inf], [1.0, 2.0, 3.0]])
    options, none = ScoreMap(2.0, none_bias=0.5, margin_weight=0.1).probabilities(
        Scored(short, np.zeros((2, 3), bool), np.arange(2))
    )
    alone, nothing = ScoreMap(2.0, none_bias=0.5, margin_weight=0.1).probabilities_of(short[0, :2])
    assert options[0].tolist() == [*alone, 0.0] and none[0] == nothing


@pytest.mark.slow
def test_a_fit_finds_the_true_temperature_and_mends_the_figures():
    scored, truth = simulated(4000, temperature=3.0)
    found = fitted_to(scored, MADE_FOR, 1.0)
    assert found.map.temperature == pytest.approx(3.0, rel=0.1)
    assert np.abs(found.map.probabilities(scored)[0] - truth).mean() < 0.01
    assert found.after.log_loss < found.before.log_loss and found.after.ece.value < found.before.ece.value
    assert found.after.ece.low <= 0.02 and found.after.auroc is None


def test_right_answers_without_exception_are_no_certainty():
    scores = np.where(np.eye(4, dtype=bool)[np.arange(60) % 4], 1.0, 0.0)
    right = np.eye(4, dtype=bool)[np.arange(60) % 4]
    probability = fit(Scored(scores, right, np.arange(60))).probabilities_of(scores[0])[0].max()
    assert 0.95 < probability < 0.999


@pytest.mark.parametrize(("inside", "outside", "said"), [(49, 0, "49 examples with a right"), (60, 9, "9 of the 69")])
def test_too_few_examples_are_refused(inside, outside, said):
    scored, _ = simulated(inside + outside)
    scored.right[inside:] = False
    with pytest.raises(InputError, match=said):
        fitted_to(scored, MADE_FOR, 1.0)


@pytest.mark.parametrize(("inside", "outside"), [(50, 0), (60, 10)])
def test_just_enough_examples_are_fitted(inside, outside):
    scored, _ = simulated(inside + outside)
    scored.right[inside:] = False
    assert fitted_to(scored, MADE_FOR, 1.0).knows_none == bool(outside)


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_their_definitions():
    scored, _ = simulated(200, outside=0.3, seed=4)
    options, none = cross_fitted(scored)
    found = figures_of(options, none, scored)
    rows = list(zip(options, none, scored.right, strict=True))
    assert found.log_loss == pytest.approx(-np.mean([np.log(o[r].sum() if r.any() else n) for o, n, r in rows]))
    brier = [sum((o - r) ** 2) + (n - (not r.any())) ** 2 for o, n, r in rows]
    assert found.brier == pytest.approx(np.mean(brier))
    chosen = [(not r.any()) if n > o.max() else r[o.argmax()] for o, n, r in rows]
    assert found.accuracy == pytest.approx(np.mean(chosen))
    inside, outside = none[scored.in_scope], none[~scored.in_scope]
    pairs = [(b > a) + (b == a) / 2 for a in inside for b in outside]
    assert found.auroc == pytest.approx(np.mean(pairs))
    kept = np.sort(inside)[: int(np.ceil(0.95 * len(inside)))]
    assert found.none_recall == pytest.approx((outside > kept[-1]).mean(), abs=0.03)
    assert found.false_accepts == pytest.approx(1 - found.none_recall)


def test_the_calibration_error_is_the_mean_gap_of_bins_of_equal_mass():
    draw = np.random.default_rng(0)
    confidence, right = draw.random(150), draw.random(150) < 0.5
    order = np.argsort(confidence)
    gaps = [abs((confidence[part] - right[part]).sum()) for part in np.array_split(order, 15)]
    found = calibration_error(confidence, right, np.arange(150))
    assert found.value == pytest.approx(sum(gaps) / 150)
    assert 0 <= found.low <= found.high
    twice = binned_error(np.repeat((confidence - right)[order], 2), np.ones(300))
    assert binned_error((confidence - right)[order], np.full(150, 2.0)) == pytest.approx(twice)


# ---- thresholds ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_promised_precision_is_kept_in_95_of_100_draws():
    """The true precision, by probabilities that are known, of the map that is fitted to all examples of a draw."""
    population, truth = simulated(1500, seed=10**6)
    promised = kept = 0
    for seed in range(300):
        scored, _ = simulated(250, seed=seed)
        options, none = cross_fitted(scored)
        best, rows = options.argmax(1), np.arange(250)
        levels = levels_of(options[rows, best], scored.right[rows, best], options[rows, best] >= none)
        threshold = threshold_for(levels, 250, 0.7)
        if threshold is None:
            continue
        everywhere, _ = fit(scored).probabilities(population)
        chosen = everywhere.argmax(1)
        answered = everywhere.max(1) >= threshold.threshold
        promised += 1
        kept += truth[np.arange(1500), chosen][answered].mean() >= 0.7
    assert promised > 120 and kept / promised >= 0.95


def test_the_bound_is_clopper_and_pearsons_for_all_levels_together():
    assert lower_bounds([Level(0.5, 59, 59), Level(0.5, 10, 0)]) == pytest.approx([(0.05 / LEVELS) ** (1 / 59), 0])


def test_the_threshold_with_the_most_answers_is_taken():
    levels = [Level(0.9, 200, 200), Level(0.8, 400, 398), Level(0.5, 800, 600)]
    found = threshold_for(levels, 1000, 0.95)
    assert (found.threshold, found.precision, found.coverage) == (0.8, 398 / 400, 0.4)
    assert threshold_for(levels, 1000, 0.999) is None


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-4])
def test_a_threshold_that_is_printed_decides_as_the_examples_did(scale):
    draw = np.random.default_rng(0)
    confidence, right = 1 - scale * draw.random(300), draw.random(300) < 0.5
    answered = draw.random(300) < 0.8
    levels = levels_of(confidence, right, answered)
    expected = [int(np.ceil(answered.sum() * level / LEVELS)) for level in range(1, LEVELS + 1)]
    assert [level.answered for level in levels] == expected
    for level in levels:
        typed = float(str(level.threshold))
        above = (confidence >= typed) & answered
        assert (above.sum(), (above & right).sum()) == (level.answered, level.right)


def test_a_threshold_has_few_decimals():
    assert [shortest(*limits) for limits in ((0.1, 0.82657), (0.8264, 0.82657), (0.0, 0.00012), (0.0, 1.0))] == [
        0.826, 0.8265, 0.0001, 1.0]  # fmt: skip
    between = np.nextafter(0.5, 1)
    assert 0.5 < shortest(0.5, between) <= between


# ---- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def calibration():
    return fitted_to(simulated(200, outside=0.2)[0], MADE_FOR, 1.0)


def test_a_calibration_is_read_as_it_was_written(calibration, tmp_path):
    write_calibration(calibration, str(tmp_path / "c.json"))
    assert read_calibration(str(tmp_path / "c.json")) == calibration


@pytest.mark.parametrize(
    "damage",
    [
        lambda found: "no JSON",
        lambda found: "[]",
        lambda found: json.dumps(found | {"format": 2}),
        lambda found: json.dumps({name: found[name] for name in found if name != "map"}),
        lambda found: json.dumps(found | {"map": found["map"] | {"temperature": 0}}),
        lambda found: json.dumps(found | {"map": found["map"] | {"temperature": "3"}}),
        lambda found: json.dumps(found | {"map": found["map"] | {"none_bias": float("nan")}}),
        lambda found: json.dumps(found | {"map": found["map"] | {"other": 1}}),
        lambda found: json.dumps(found | {"levels": [{"threshold": 1}]}),
        lambda found: json.dumps(found | {"after": None}),
        lambda found: json.dumps(found | {"bins": 3}),
    ],
)
def test_a_damaged_file_is_one_sentence(calibration, tmp_path, damage):
    path = tmp_path / "c.json"
    write_calibration(calibration, str(path))
    path.write_text(damage(json.loads(path.read_text())))
    with pytest.raises(InputError, match=r"c\.json cannot be read .*run polyagents calibrate again, or delete it"):
        read_calibration(str(path))


@pytest.mark.parametrize("precision", [0, 1, 2, -1])
def test_an_impossible_precision_is_refused(calibration, precision):
    with pytest.raises(InputError, match="give a share above 0 and below 1"):
        calibration.threshold_for(precision)


# ---- of a ranker -----------------------------------------------------------------------------------------------------

EXAMPLES = [
    {"context": f"i like {colour} {number}", "label": f"so you like {colour}"}
    for number in range(25)
    for colour in ("red", "blue", "pink")
]
NOTHING = [{"context": f"what is {number} ?", "label": None} for number in range(12)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_a_calibration_goes_with_its_model_and_no_other(kind, model, tmp_path):
    file = model(kind)
    ranker = Ranker.load(file)
    made = ranker.calibrate(EXAMPLES + NOTHING)
    assert made.knows_none and made.after.examples == len(EXAMPLES + NOTHING)
    options = ["so you like red", "so you like blue", "so you like pink"]
    expected = ranker.decide("i like red", options)
    assert expected.calibrated and sum(expected.probabilities.values()) + expected.none_probability == pytest.approx(1)
    ranker.save(tmp_path / "copy")
    ranker.save_pretrained(tmp_path / "folder")
    for copy in (file, tmp_path / "copy", tmp_path / "folder"):
        found = Ranker.load(copy).decide("i like red", options)
        assert found.calibrated and found.probabilities == pytest.approx(expected.probabilities, abs=1e-6)
    next(iter(ranker.model.module.parameters())).data.mul_(1.5)
    ranker.identity.known = ""
    changed = ranker.decide("i like red", options)
    assert not changed.calibrated and changed.probability is None
    assert changed.notes == ("The model has changed since it was calibrated: run polyagents calibrate again.",)
    with pytest.raises(InputError, match=r"none needs probabilities\. The model has changed since it was calibrated"):
        ranker.decide("i like red", options, none=0.5)
    cut = Ranker.load(file, text_truncate=8).decide("i like red", options)
    assert not cut.calibrated


@pytest.mark.slow
def test_a_pipeline_is_calibrated_as_one(model, trained):
    first, second = Ranker.load(model("bi")), Ranker.load(trained("cross"))
    made = first.calibrate(EXAMPLES, rerank=second, rerank_top=2)
    assert made.map.rerank_temperature is not None and made.made_for.rerank_top == 2
    options = ["so you like red", "so you like blue", "so you like pink"]
    found = first.decide("i like red", options, rerank=second, rerank_top=2)
    assert found.calibrated and sum(found.probabilities.values()) == pytest.approx(1)
    best = [match.text for match in first.rank("i like red", options, top_k=2)]
    assert found.choice == second.rank("i like red", best, top_k=1)[0].text
    for other in ({}, {"rerank": second, "rerank_top": 3}, {"rerank": Ranker.load(trained("uni")), "rerank_top": 2}):
        assert not first.decide("i like red", options, **other).calibrated


@pytest.mark.parametrize(
    ("examples", "candidates", "said"),
    [
        ([], None, "There are no examples"),
        (["a"], None, "an example is a dict with context, label"),
        ([{"context": "a"}], None, "an example is a dict with context, label"),
        ([{"context": " ", "label": "b"}], None, "empty context or label"),
        ([{"context": "a", "label": "b"}], ["c"], "The label 'b' of the context '.*' is not among the options"),
        ([{"context": "a", "label": "b"}], {"x": "b", "y": "b"}, "have the same text"),
        ([{"context": "a", "label": "b"}], "b", "candidates is 'b'; give a list"),
        ([{"context": "a", "label": "b"}], {"x": 1}, r"candidates\['x'\] is 1; give"),
        ([{"context": "a", "label": None}], None, "There are no options"),
        (
            [{"context": "a", "label": "b", "candidates": ["b"]}, {"context": "a", "label": "b"}],
            None,
            "1 of 2 examples",
        ),
        ([{"context": "a", "label": str(number)} for number in range(1001)], None, "1,001 different labels"),
        (EXAMPLES[:49], None, "49 examples with a right option"),
        (
            [{"context": f"{n}", "label": "b"} for n in range(50)],
            None,
            "has one option, its label, so nothing is decided",
        ),
    ],
)
def test_what_cannot_be_calibrated_on_is_one_sentence(trained, examples, candidates, said):
    with pytest.raises(InputError, match=said):
        Ranker.load(trained("bi")).calibrate(examples, candidates)


def test_own_candidates_are_scored_as_a_list_of_each(model):
    ranker = Ranker.load(model("poly"))
    own = [
        example | {"candidates": ["hello", example["label"], "hello", f"bye {place % 3}"]}
        for place, example in enumerate(EXAMPLES)
    ]
    made = ranker.calibrate(own)
    assert (made.made_for.options, made.made_for.least_options, made.made_for.most_options) == (None, 3, 3)
    assert path_of(ranker.file).endswith(".calibration.json")
    assert dataclasses.replace(made, map=ScoreMap(1.0)) != made
