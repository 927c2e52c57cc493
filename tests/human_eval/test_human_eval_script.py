"""The script of docs/human-evaluation.md, from two model files to a significance table, with simulated annotators.

Their preference is known, so it is known what the report must say.
"""

import os
import random
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pandas
import pytest
from annotators import SimulatedAnnotator, texts_by_model
from commands import copy_model
from evaluation import MODELS, human_eval
from playwright.sync_api import expect
from scipy.stats import binom
from starlette.testclient import TestClient

from polyagents.human_eval.formats.conversation_files import read_file
from polyagents.human_eval.records import Judgement
from polyagents.human_eval.statistics.filtering import filter_judgements
from polyagents.human_eval.statistics.report_sections import sections
from polyagents.human_eval.statistics.win_rates import Matchup
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.web.annotation_app import create_app
from polyagents.human_eval.web.questions import PRESETS

DOCUMENT = Path(__file__).parents[2] / "docs" / "human-evaluation.md"
FAVOURITE, PREFERENCE = "runs/poly", 0.8
PEOPLE, PAIRS = 3, 20  # of the script


def script():
    """The block of the document that makes an evaluation."""
    blocks = re.findall(r"```bash\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if "human_eval self_chat" in block)


def with_models(trained, folder):
    """A folder in which the script finds its two models."""
    (folder / "runs").mkdir()
    for kind in ("bi", "poly"):
        copy_model(trained(kind), folder / "runs" / kind)
    return folder


def people(folder, names):
    """Simulated annotators by name, who have read the conversations that the script made."""
    chats = [chat for kind in ("bi", "poly") for chat in read_file(str(folder / f"{kind}.jsonl")).conversations]
    favourite = texts_by_model(chats)[FAVOURITE]
    return {name: SimulatedAnnotator(f"seed 0 {name}", favourite, PREFERENCE) for name in names}


def check_report(folder, printed):
    """The report recovers what the annotators prefer, in the table and in what a person sees at the end."""
    table = pandas.read_csv(folder / "report" / "win_rates.csv").set_index("model").loc[FAVOURITE]
    assert table.judgements == PEOPLE * PAIRS
    assert table.low <= PREFERENCE <= table.high and table.low > 0.5 and table.p_value < 1e-4
    line = (
        rf"  {FAVOURITE} over runs/bi: {table.wins} of {table.judgements}, [\d.]+ % \([\d.]+ to [\d.]+\), p: < 0.0001$"
    )
    assert re.search(line, printed, re.MULTILINE)
    reasons = pandas.read_csv(folder / "report" / "judgements.csv").reason.dropna()
    assert len(reasons) and reasons.str.startswith("because").all()


@pytest.mark.slow
def test_the_script_of_the_docs_recovers_a_known_preference(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(with_models(trained, tmp_path))
    for line in script().replace("\\\n", " ").splitlines():
        program, command, *arguments = shlex.split(line, comments=True) or ("polyagents", "nothing")
        assert program == "polyagents" and command in ("human_eval", "nothing")
        if arguments == ["serve"]:
            store = EvaluationStore("human_eval.db")
            with TestClient(create_app(store, PRESETS["engaging"], store.organiser())) as client:
                links = {one.name: f"/annotate/{one.token}" for one in store.progress().annotators}
                judged = [one.judge_all(client, links[name]) for name, one in people(tmp_path, links).items()]
            store.close()
            assert judged == [PAIRS] * PEOPLE
        elif arguments:
            human_eval(*arguments)
    check_report(tmp_path, capsys.readouterr().out)


# ---- many evaluations ------------------------------------------------------------------------------------------------

RUNS = 200


def evaluated(seed, probability):
    """What a report says of the first of two models, after two annotators of this preference judged 10 pairs each."""
    judged = []
    for person in ("Ann", "Bob"):
        draw = random.Random(f"{seed} {person}")
        winners = [MODELS[draw.random() >= probability] for _ in range(10)]
        judged += [Judgement(person, f"pair {place}", MODELS, winner, "?") for place, winner in enumerate(winners)]
    (section,) = sections(filter_judgements(judged), seed)
    return section.between(*MODELS)


def as_often_as(holds, probability, matchups):
    """How often something holds of reports on judgements of this probability: as often as it must, but for chance."""
    (judgements,) = {matchup.judgements for matchup in matchups}
    possible = [Matchup(MODELS, (wins, judgements - wins)) for wins in range(judgements + 1)]
    expected = sum(binom.pmf(one.wins[0], judgements, probability) for one in possible if holds(one))
    low, high = binom.interval(0.999, len(matchups), expected)
    found = sum(map(holds, matchups))
    assert low <= found <= high
    return f"{found} of {len(matchups)} ({found / len(matchups):.3f}; {expected:.3f} to be expected)"


@pytest.mark.slow
def test_the_interval_covers_a_known_preference_as_often_as_it_says():
    found = [evaluated(seed, PREFERENCE) for seed in range(RUNS)]
    covered = as_often_as(lambda one: one.rate.low <= PREFERENCE <= one.rate.high, PREFERENCE, found)
    print(f"The interval covers {PREFERENCE} in {covered}")  # for docs/human-evaluation.md


@pytest.mark.slow
def test_without_a_preference_there_is_a_significant_one_as_often_as_p_says():
    found = [evaluated(seed, 0.5) for seed in range(RUNS)]
    significant = as_often_as(lambda one: one.p_value < 0.05, 0.5, found)
    print(f"Without a preference p < .05 in {significant}")


# ---- in a browser, by the shell --------------------------------------------------------------------------------------

COMMAND = """#!/bin/sh
[ "$1 $2" = "human_eval serve" ] && set -- "$@" --port 0  # tests of another clone may have the usual one
exec {python} -m polyagents "$@"
"""


@pytest.fixture
def shell(trained, tmp_path):
    """The script, run by bash in a folder of its own, as a new user would: the process and its folder."""
    folder = with_models(trained, tmp_path)
    (folder / "bin").mkdir()
    (folder / "bin" / "polyagents").write_text(COMMAND.format(python=shlex.quote(sys.executable)))
    (folder / "bin" / "polyagents").chmod(0o755)
    (folder / "script.sh").write_text(script())
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    command = ["bash", "-e", "script.sh"]
    started = {"cwd": folder, "env": os.environ | {"PATH": path}, "start_new_session": True}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **started) as process:
        yield process, folder
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def printed_links(process):
    """The links that `serve` prints, by name, the organiser's last."""
    links = {}
    for line in process.stdout:
        name, _, link = line.strip().partition("\t")
        links |= {name: link} if link.startswith("http") else {}
        if len(links) == 1 + PEOPLE:
            break
    return links


TEXTS = """() => Object.fromEntries(["left", "right"].map((side) =>
    [side, [...document.querySelectorAll(`.half.${side} ol p`)].map((text) => text.textContent)]))"""
PATIENCE = 30_000  # milliseconds: the server is a process of its own, and others may run beside it
KEYS = {"left": ("1", "ArrowLeft"), "right": ("2", "ArrowRight")}


def judge(page, annotator, place):
    """Read a pair, choose by mouse or by keys, say why of every third one, and send."""
    expect(page.get_by_text(f"{place} of {PAIRS}", exact=True)).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#keys:not([hidden])")).to_have_count(1, timeout=PATIENCE)  # its script listens
    side = annotator.choose(page.evaluate(TEXTS))
    if place % 3 == 0:
        page.locator(f".choice.{side}").click()
        page.get_by_label("Why?").fill(f"because {place}")
        page.get_by_role("button", name="Send").click()
    else:
        page.keyboard.press(KEYS[side][place % 2])
        page.keyboard.press("Control+Enter")


@pytest.mark.browser
def test_the_script_of_the_docs_in_a_browser(chromium, shell):
    process, folder = shell
    links = printed_links(process)
    organiser = links.pop("organiser")
    (first, annotator), *others = people(folder, links).items()
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(links[first])
        for place in range(1, PAIRS + 1):
            judge(page, annotator, place)
        expect(page.get_by_role("heading", name="Thank you!")).to_be_visible(timeout=PATIENCE)
    with httpx2.Client(timeout=60) as client:  # who has no JavaScript judges the same pages, in a tenth of the time
        assert [one.judge_all(client, links[name]) for name, one in others] == [PAIRS] * (PEOPLE - 1)
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(organiser)
        expect(page.get_by_text(f"{PAIRS} of {PAIRS} pairs are judged")).to_be_visible()
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    check_report(folder, rest)
