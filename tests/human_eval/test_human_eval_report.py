"""The report of a human evaluation: numbers against hand-made and published ones, and simulated people."""

import base64
import itertools
import json
import random
import re
from html.parser import HTMLParser

import numpy as np
import pandas
import pytest
from evaluation import human_eval
from scipy.stats import binom

from polyagents.errors import InputError
from polyagents.human_eval.conversations import make_conversation, make_pair
from polyagents.human_eval.records import ChatMessage, Judgement, RatedChat, Side
from polyagents.human_eval.statistics.agreement import agreement, disagreement, expected_disagreement
from polyagents.human_eval.statistics.bradley_terry import prior, ranking_of, refitted, strengths
from polyagents.human_eval.statistics.evaluation_report import write_report
from polyagents.human_eval.statistics.filtering import filter_judgements
from polyagents.human_eval.statistics.win_rates import Matchup, judgements_needed, matchups
from polyagents.human_eval.storage.evaluation_store import EvaluationStore

DEFAULT_QUESTION = "Who would you prefer to talk to for a long conversation?"
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "=1+1", "$\\frac{$\n\u202e")


def judged(winner, loser, annotator="anna", pair="p", question=DEFAULT_QUESTION, **more):
    return Judgement(annotator, pair, (winner, loser), winner, question, **more)


def series(wins, losses, **more):
    """A against B, each judgement of a pair of its own."""
    winners = ["A"] * wins + ["B"] * losses
    return [
        Judgement("anna", f"p{i}", ("A", "B"), winner, DEFAULT_QUESTION, **more) for i, winner in enumerate(winners)
    ]


def simulated(seed, true_strengths, annotators, judgements, taste=0.0):
    """Choices after Bradley-Terry; each annotator's own strengths differ from the true ones by `taste`."""
    random = np.random.default_rng(seed)
    names = [f"model {i}" for i in range(len(true_strengths))]
    own = np.asarray(true_strengths) + taste * random.normal(size=(annotators, len(names)))
    meetings = list(itertools.combinations(range(len(names)), 2))
    found = []
    for number, place in enumerate(random.permutation(judgements)):
        annotator, (i, j) = number % annotators, meetings[place % len(meetings)]
        winner = i if random.random() < 1 / (1 + np.exp(own[annotator, j] - own[annotator, i])) else j
        models = (names[i], names[j])
        found.append(Judgement(f"annotator {annotator}", f"pair {number}", models, names[winner], DEFAULT_QUESTION))
    return found


def read(path):
    """A table as tables.as_cell says: every cell exactly as it was."""
    table = pandas.read_csv(path, dtype=str, keep_default_na=False)
    return table.apply(lambda column: column.str.removeprefix("'"))


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


# Win rates


def test_a_win_rate_has_an_exact_p_value_and_wilsons_interval():
    matchup = Matchup(("A", "B"), (9, 1))
    assert matchup.rate == pytest.approx((0.9, 0.5958, 0.9821), abs=1e-4)
    assert matchup.p_value == pytest.approx(2 * 11 / 1024)
    assert matchup.reverse().rate == pytest.approx((0.1, 0.0179, 0.4042), abs=1e-4)


def test_wins_are_counted_whichever_side_a_model_was_on():
    judgements = [
        Judgement("anna", "1", ("A", "B"), "A", DEFAULT_QUESTION),
        Judgement("anna", "2", ("B", "A"), "A", DEFAULT_QUESTION),
        Judgement("anna", "3", ("B", "A"), "B", DEFAULT_QUESTION),
        Judgement("anna", "4", ("C", "B"), "C", DEFAULT_QUESTION),
    ]
    assert matchups(judgements) == [Matchup(("A", "B"), (2, 1)), Matchup(("B", "C"), (0, 1))]


@pytest.mark.slow
def test_what_does_not_count_is_left_out_counted_and_listed_with_the_reason(tmp_path):
    judgements = [
        judged("A", "B"),
        judged("B", "A"),  # of the same annotator and pair
        judged("B", "A", annotator="bert", passed=False),
        judged("A", "A", pair="q"),
        judged("B", "A", question="Who is more human?"),
    ]
    said = write_report(judgements, str(tmp_path))
    assert (
        said.startswith("2 judgements of 1 pair by 1 annotator; left out: 1 (the annotator failed the checks), 1 ")
        and "A over B: 1 of 1" in said
    )
    table = read(tmp_path / "judgements.csv")
    assert list(table.left_out) == [
        "",
        "the same annotator judged the pair before",
        "the annotator failed the checks",
        "a model with itself",
        "",
    ]
    people = read(tmp_path / "annotators.csv")
    assert people[["annotator", "passed", "judgements", "counted"]].values.tolist() == [
        ["anna", "yes", "4", "2"],
        ["bert", "no", "1", "0"],
    ]


def test_each_question_has_win_rates_of_its_own(tmp_path):
    judgements = series(3, 1) + [judged("B", "A", pair=f"p{i}", question="Who is more human?") for i in range(2)]
    write_report(judgements, str(tmp_path))
    table = pandas.read_csv(tmp_path / "win_rates.csv").set_index(["question", "model"]).win_rate
    assert table[DEFAULT_QUESTION, "A"] == 0.75 and table["Who is more human?", "A"] == 0


# Agreement


def test_krippendorffs_alpha_of_his_two_observers():
    """Computing Krippendorff's Alpha-Reliability (2011), section A: alpha = .095."""
    observers = {"meg": "0100000010", "owen": "1110010000"}
    judgements = [
        Judgement(name, f"unit {unit}", ("A", "B"), "AB"[int(value)], DEFAULT_QUESTION)
        for name, values in observers.items()
        for unit, value in enumerate(values)
    ]
    found = agreement(judgements, 0)
    assert found.pairs == 10 and found.share.value == pytest.approx(0.6)
    assert found.alpha.value == pytest.approx(0.095, abs=5e-4)
    assert found.alpha.low < found.alpha.value < found.alpha.high


def test_krippendorffs_alpha_of_his_four_observers_with_missing_data():
    """The same, section C: five values, alpha = .743."""
    observers = ("123321412...", "1233224125.3", ".333234225 1.".replace(" ", ""), "12332441251.")
    units = zip(*observers, strict=True)
    counts = np.array([[unit.count(value) for value in "12345"] for unit in units])
    counts = counts[counts.sum(1) > 1]
    observed = disagreement(counts, np.ones(len(counts), dtype=np.int64))
    expected = expected_disagreement(counts, np.zeros(len(counts), dtype=np.int64))
    assert 1 - observed / expected == pytest.approx(0.743, abs=5e-4)


def test_chance_is_told_within_a_matchup():
    """Annotators who toss a coin have no agreement, however many models there are."""
    random = np.random.default_rng(0)
    judgements = []
    for pair, (first, second) in enumerate(itertools.combinations("ABCDEFGH", 2)):
        for copy, annotator in itertools.product(range(20), ("anna", "bert")):
            winner = (first, second)[random.integers(2)]
            judgements.append(Judgement(annotator, f"{pair}.{copy}", (first, second), winner, DEFAULT_QUESTION))
    found = agreement(judgements, 0)
    assert found.share.value == pytest.approx(0.5, abs=0.05) and found.alpha.value == pytest.approx(0, abs=0.1)
    assert found.alpha.low < 0 < found.alpha.high


@pytest.mark.slow
def test_agreement_that_cannot_be_told_is_not_made_up(tmp_path):
    alone = write_report(series(3, 2), str(tmp_path))
    assert "Agreement: unknown" in alone
    same = [judged("A", "B", annotator, f"p{i}") for annotator in ("anna", "bert") for i in range(3)]
    said = write_report(same, str(tmp_path))
    assert "Agreement on 3 pairs: 100.0 %; Krippendorff's alpha not defined (nobody ever differed)" in said
    row = pandas.read_csv(tmp_path / "agreement.csv").iloc[0]
    assert row.pairs == 3 and row["share"] == 1 and np.isnan(row.share_low) and np.isnan(row.alpha)


def test_an_annotator_who_differs_from_all_is_seen(tmp_path):
    judgements = [judged("A", "B", annotator, f"p{i}") for annotator in ("anna", "bert") for i in range(5)]
    judgements += [judged("B", "A", "carl", f"p{i}") for i in range(5)]
    write_report(judgements, str(tmp_path))
    people = pandas.read_csv(tmp_path / "annotators.csv").set_index("annotator")
    assert people.compared.tolist() == [10, 10, 10] and people.agreement.tolist() == [0.5, 0.5, 0]


# Ranking


def test_strengths_are_those_of_a_textbook():
    """Agresti, Categorical Data Analysis (2nd ed.), tables 10.10 and 10.11: the American League of 1987."""
    teams = ["Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore"]
    wins = [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ]
    found = strengths(np.array(wins, dtype=float))
    assert (found - found[-1]).round(2).tolist() == [1.58, 1.44, 1.29, 1.25, 1.11, 0.68, 0]
    judgements = [
        judged(teams[i], teams[j], annotator=f"game {game}", pair=f"{i} {j}")
        for i, j in itertools.permutations(range(7), 2)
        for game in range(wins[i][j])
    ]
    assert [ranked.model for ranked in ranking_of(judgements, 0, resamples=20).models] == teams


def test_all_resamples_at_once_are_fitted_as_one_by_one():
    random = np.random.default_rng(0)
    for models, scale in ((2, 1), (5, 1), (12, 1), (8, 50)):
        linked = np.tri(models, k=-1) * (random.random((models, models)) < 0.5) + np.eye(
            models, k=-1
        )  # one chain, at least
        wins = random.poisson(scale * (linked + linked.T) * random.random((models, models)), (20, models, models)) * 1.0
        extra = prior(linked)
        found = refitted(wins + extra, strengths(wins.mean(0) + extra))
        assert np.abs(found - [strengths(one + extra) for one in wins]).max() < 1e-4


def test_with_two_models_the_ranking_is_the_win_rate():
    ranking = ranking_of(series(70, 30), 0)
    first, second = ranking.models
    assert first.win_rate.value == pytest.approx(70.5 / 101) and second.win_rate.value == pytest.approx(30.5 / 101)
    wilson = Matchup(("A", "B"), (70, 30)).rate
    assert first.win_rate[1:] == pytest.approx(wilson[1:], abs=0.02)
    assert "the ranking is their win rate" in ranking.note


def test_a_model_that_always_wins_has_a_finite_strength_and_an_interval_with_a_width():
    for annotators in (1, 10):
        judgements = [judged("A", "B", f"annotator {i % annotators}", f"p{i}") for i in range(40)]
        first = ranking_of(judgements, 0).models[0]
        assert first.model == "A" and 4 < first.strength.value - ranking_of(judgements, 0).models[1].strength.value < 5
        assert 0.85 < first.win_rate.low < 0.96 and first.win_rate.value <= first.win_rate.high < 1


def test_models_that_were_never_compared_are_not_ranked(tmp_path):
    judgements = [*series(3, 2), judged("C", "D", pair="q"), judged("D", "E", pair="r")]
    said = write_report(judgements, str(tmp_path))
    assert "never compared with each other, so nothing says which is better: A, B | C, D, E." in said
    assert pandas.read_csv(tmp_path / "ranking.csv").empty and len(pandas.read_csv(tmp_path / "win_rates.csv")) == 6


def test_a_long_chain_of_comparisons_is_ranked():
    names = "ABCDEFGHIJKL"
    judgements = [judged(a, b, pair=f"{a}{b}{i}") for a, b in itertools.pairwise(names) for i in range(50)]
    assert "".join(ranked.model for ranked in ranking_of(judgements, 0, resamples=20).models) == names


def test_a_single_judgement_says_hardly_anything():
    first = ranking_of([judged("A", "B")], 0).models[0]
    assert first.win_rate == pytest.approx((0.75, 0.25, 0.75))


def test_few_annotators_speak_for_themselves():
    """Four at most; intervals of agreement need ten pairs."""
    assert "describe only these people" in ranking_of(simulated(0, (0.5, 0), 4, 30), 0, resamples=20).note
    assert "people like these 5 annotators" in ranking_of(simulated(0, (0.5, 0), 5, 30), 0, resamples=20).note
    for pairs in (9, 10):
        both = [judged("AB"[i % 2], "BA"[i % 2], who, f"p{i}") for i in range(pairs) for who in ("anna", "bob")]
        found = agreement(both, 0)
        assert found.pairs == pairs and found.has_intervals == (pairs == 10) == np.isfinite(found.share.low)


# Known preferences


@pytest.mark.slow
def test_a_known_preference_is_recovered_and_wilsons_interval_covers_it_as_often_as_it_says(tmp_path):
    truth, covered = 0.7, 0
    difference = np.log(truth / (1 - truth))
    for seed in range(200):
        rate = matchups(simulated(seed, (difference, 0), 5, 100))[0].rate
        covered += rate.low <= truth <= rate.high
    assert 0.92 <= covered / 200 <= 0.98
    write_report(simulated(0, (difference, 0), 20, 2_000), str(tmp_path))
    row = pandas.read_csv(tmp_path / "win_rates.csv").iloc[0]
    assert row.win_rate == pytest.approx(truth, abs=0.03) and row.low < truth < row.high and row.p_value < 1e-9


@pytest.mark.slow
def test_known_strengths_are_recovered_and_the_bootstrap_covers_them_as_often_as_it_says():
    truth = np.linspace(1, -1, 5)
    covered, mean = 0.0, np.zeros(5)
    for seed in range(200):
        found = sorted(
            ranking_of(simulated(seed, truth, 12, 300), seed, resamples=500).models, key=lambda one: one.model
        )
        covered += np.mean(
            [one.strength.low <= true <= one.strength.high for one, true in zip(found, truth, strict=True)]
        )
        mean += [one.strength.value for one in found]
    assert 0.91 <= covered / 200 <= 0.98
    assert mean / 200 == pytest.approx(truth, abs=0.05)


@pytest.mark.slow
def test_the_bootstrap_covers_the_truth_where_annotators_differ_in_taste():
    """Single judgements, drawn as if they were independent, would cover it in two of three runs."""
    covered = 0
    for seed in range(200):
        first = min(
            ranking_of(simulated(seed, (0, 0), 10, 200, taste=0.6), seed, resamples=500).models, key=lambda m: m.model
        )
        covered += first.strength.low <= 0 <= first.strength.high
    assert 0.91 <= covered / 200 <= 0.98


# The files


@pytest.mark.slow
def test_the_same_judgements_and_seed_give_the_same_files(tmp_path):
    judgements = simulated(0, (0.5, 0, -0.5), 8, 90)
    shuffled = [judgements[i] for i in np.random.default_rng(0).permutation(90)]
    for name, given, seed in (("a", judgements, 1), ("b", judgements, 1), ("c", shuffled, 1), ("d", judgements, 2)):
        write_report(given, str(tmp_path / name), seed)
    names = sorted(path.name for path in (tmp_path / "a").glob("[!.]*"))
    assert names == [
        *("agreement.csv", "annotators.csv", "judgements.csv", "ranking.csv"),
        *("report.html", "report.png", "win_rates.csv"),
    ]
    a, b, c, d = (tmp_path / name for name in "abcd")
    assert all((a / name).read_bytes() == (b / name).read_bytes() for name in names)
    assert (a / "ranking.csv").read_bytes() == (c / "ranking.csv").read_bytes() != (d / "ranking.csv").read_bytes()


def test_the_page_stands_alone_and_explains_its_numbers(tmp_path):
    judgements = [judged("A", "B", annotator, f"p{i}") for annotator in ("anna", "bert") for i in range(5)]
    write_report([*judgements, judged("B", "A", "carl", "p0"), judged("B", "C", pair="q")], str(tmp_path))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    ((_, image),) = [tag for tag in page.tags if tag[0] == "img"]
    assert (
        base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == (tmp_path / "report.png").read_bytes()
    )
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    for explained in ("Interval", "p", "Strength", "Agree", "Alpha", "Median seconds"):
        assert re.search(rf"{explained}: ", page.text)


@pytest.mark.slow
def test_hostile_texts_are_shown_as_texts(tmp_path):
    judgements = [
        Judgement(f"{text} annotator", f"{text} pair", (text, other), other, f"{text} question", f"{text} reason")
        for text, other in itertools.permutations(HOSTILE, 2)
    ]
    said = write_report(judgements, str(tmp_path))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert not {"script", "iframe", "a"} & {tag for tag, _ in page.tags}
    assert [attributes.get("onerror") for tag, attributes in page.tags if tag == "img"] == [None]
    for text, kind in itertools.product(HOSTILE, ("", " annotator", " pair", " question", " reason")):
        assert f"{text}{kind}" in page.text
    assert "49" not in [part.strip() for part in page.text.split()]
    assert all(line.isprintable() for line in said.splitlines())  # no escape sequence reaches the terminal


@pytest.mark.slow
@pytest.mark.browser
def test_a_phone_shows_long_names_and_questions_without_scrolling_sideways(page, tmp_path):
    models = [f"/{'runs' * 20}/{name}/{'model' * 20}" for name in "ab"]
    write_report([judged(*models, question="why" * 100, reason="so" * 100)], str(tmp_path))
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto((tmp_path / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.slow
def test_tables_are_read_back_exactly_and_hold_no_formula(tmp_path):
    texts = [
        *HOSTILE,
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "＝1",
        "'quoted",
        "''",
        "NA",
        "007",
        'a "b", c\r\nd',
        "é 中",
    ]
    judgements = [
        Judgement(text, text, ("A", text), text, text, text, 1 / 3 + number) for number, text in enumerate(texts)
    ]
    write_report(judgements, str(tmp_path))
    table = read(tmp_path / "judgements.csv")
    for column in ("annotator", "pair", "model_2", "winner", "question", "reason"):
        assert list(table[column]) == texts
    assert list(table.seconds.astype(float)) == [1 / 3 + number for number in range(len(texts))]
    for path in tmp_path.glob("*.csv"):
        raw = pandas.read_csv(path, dtype=str, keep_default_na=False)
        cells = [cell for column in raw for cell in raw[column]]
        numbers = re.compile(r"-?\d[\d.e-]*")
        assert not [c for c in cells if c.startswith(tuple("=+-@\t\r\n＝")) and not numbers.fullmatch(c)]


def test_names_of_any_length_and_letters_have_a_picture(tmp_path):
    names = [f"/data/convai2/{kind}/{'long' * 20}/M" for kind in ("bi", "poly")] + ["中文", "a\x1b[31m", "", "\ud800"]
    judgements = [judged(a, b, pair=f"{i}") for i, (a, b) in enumerate(itertools.permutations(names, 2))]
    write_report(judgements, str(tmp_path))
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


# Bad input


def test_a_report_on_nothing_is_refused(tmp_path):
    folder = tmp_path / "report"
    with pytest.raises(InputError, match=r"There are no judgements to report; let annotators judge"):
        write_report([], str(folder))
    nothing = [judged("A", "A"), judged("A", "B", passed=False)]
    with pytest.raises(InputError, match=r"Of 2 judgements, none counts: 1 \(the annotator failed .*two different"):
        write_report(nothing, str(folder))
    failed = RatedChat(1, "anna", "A", (ChatMessage("hi"), ChatMessage("yo")), 3, "c", passed=False)
    with pytest.raises(InputError, match=r"No chat counts \(the annotator failed the checks in each\)"):
        write_report([], str(folder), chats=[failed])
    with pytest.raises(InputError, match="Of 2 judgements, none counts"):
        write_report(nothing, str(folder), chats=[failed])
    assert not folder.exists()


def test_a_winner_that_did_not_take_part_is_refused_and_an_earlier_report_is_kept(tmp_path):
    write_report(series(3, 2), str(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    wrong = Judgement("anna", "p9", ("A", "B"), "C", DEFAULT_QUESTION)
    with pytest.raises(InputError, match=r"pair 'p9' by 'anna' has the winner 'C', which is neither 'A' nor 'B'"):
        write_report([*series(5, 0), wrong], str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow
def test_no_file_of_an_earlier_report_is_left_in_its_folder(tmp_path):
    chat = RatedChat(1, "anna", "A", (ChatMessage("hi"), ChatMessage("yo", False, ("odd",))), 3, "c")
    for judgements, chats in ((series(3, 2), [chat]), ([], [chat]), (series(3, 2), [])):
        write_report(judgements, str(tmp_path), 0, chats)
        there = {path.name for path in tmp_path.iterdir()}
        assert {"judgements.csv", "report.png"} <= there if judgements else not there & {"win_rates.csv", "report.png"}
        assert ("problems.csv" in there) == ("replies.csv" in there) == bool(chats)


def test_a_folder_that_cannot_be_made_and_a_negative_seed_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written to \(.*give a folder of your own"):
        write_report(series(3, 2), str(tmp_path / "file"))
    with pytest.raises(InputError, match="seed of a report is -1; give 0 or more"):
        write_report(series(3, 2), str(tmp_path), -1)


# ---- the step --------------------------------------------------------------------------------------------------------


def test_the_command_reports_what_the_store_has(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sides = []
    for model in ("a", "b"):
        turns = [("speaker_1", f"hi from {model}"), ("speaker_2", "hello"), ("speaker_1", "bye")]
        conversation = make_conversation(turns, {"speaker_1": model}, (), "test")
        sides.append((conversation, Side(conversation.name, "speaker_1")))
    store = EvaluationStore("human_eval.db")
    store.add_conversations(conversation for conversation, _ in sides)
    store.add_pairs([make_pair(*(side for _, side in sides))])
    for annotator in store.invite(["Ann", "Bob"]):
        shown = store.next_assignment(annotator.token)
        model = shown.left.conversation.models[shown.left.speaker]
        store.answer(annotator.token, shown.number, "left" if model == "a" else "right")
    human_eval("report", "--out", "R")
    assert "2 judgements" in capsys.readouterr().out and (tmp_path / "R" / "report.html").exists()


@pytest.mark.parametrize("step", [("report",), ("pairs",), ("export", "--to", "parlai", "--out", "F")])
@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_a_mistyped_database_is_not_made(prefix, step, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        human_eval(step[0], "--help")
    assert "SQLite database, which the first step creates," in " ".join(capsys.readouterr().out.split())
    with pytest.raises(InputError, match=r"^There is no .*nothing\.db; run polyagents human_eval import FILE"):
        human_eval(*step, "--database", f"{prefix}nothing.db")
    assert not list(tmp_path.iterdir())


# ---- power before the start ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("difference", "power"), [(0.1, 0.8), (0.2, 0.9), (0.3, 0.8)])
@pytest.mark.parametrize("runs", [100, pytest.param(2_000, marks=pytest.mark.release)])
def test_a_planned_study_finds_its_difference_as_often_as_planned(difference, power, runs):
    needed, draw, found = judgements_needed(difference, power), random.Random(0), 0
    for _ in range(runs):
        judged = [
            Judgement(f"p{number % 10}", f"pair {number}", ("a", "b"), "ab"[draw.random() < 0.5 + difference], "?")
            for number in range(needed)
        ]
        (one,) = matchups([one.judgement for one in filter_judgements(judged) if not one.left_out])
        found += one.p_value < 0.05
    low, high = binom.interval(0.999, runs, power)
    print(f"{needed} judgements: a difference of {difference} is found in {found} of {runs}; planned: {power}")
    assert low <= found and found <= max(high, runs * (power + 0.05))


@pytest.mark.slow
def test_fewer_judgements_than_planned_are_too_few():
    for difference in (0.25, 0.45):
        needed = judgements_needed(difference, 0.8)
        assert power_of(needed - 1, difference) < 0.8
        assert all(power_of(more, difference) >= 0.8 for more in range(needed, needed + 12))


def power_of(judgements, difference):
    """The probability of p < .05, counted over every outcome by the report's own test."""
    wins = [wins for wins in range(judgements + 1) if Matchup(("a", "b"), (wins, judgements - wins)).p_value < 0.05]
    return binom.pmf(wins, judgements, 0.5 + difference).sum()


def test_a_plan_is_printed(capsys):
    human_eval("plan", "--difference", ".1", "--wage", "12")
    plan = json.loads(capsys.readouterr().out)
    assert plan == {"pairs": 210, "people": 11, "hours": 3.7, "sum": 44.0, "win_rate": 0.6, "power": 0.8}
    human_eval("plan", "--judgements", "1000000")  # more than there are pairs
    assert json.loads(capsys.readouterr().out) == plan | {"people": 1, "hours": 3.5, "sum": 42.0}
