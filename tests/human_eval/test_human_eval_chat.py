"""People talk with models and rate them: the pages, what is stored, what is refused, and what is reported."""

import asyncio
import collections
import json
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from chatting import MODELS, ORGANISER, PERSONA, Echo, app_of, plan_of, shop_of, talk
from commands import SAMPLE, options
from evaluation import SCRIPT, evaluation, fields, human_eval
from parlai.core.agents import create_agent_from_model_file
from parlai.core.message import Message as Act
from parlai.utils.conversations import Conversations
from scipy import stats
from sqlalchemy import select
from starlette.testclient import TestClient
from web import path_tricks, raw, running

from polyagents import InputError
from polyagents.human_eval.chat_replies import ChatModels, RankerPartner
from polyagents.human_eval.records import HUMAN, ChatMessage, RatedChat
from polyagents.human_eval.statistics.evaluation_report import write_report
from polyagents.human_eval.statistics.ratings import mean_of_people, ratings
from polyagents.human_eval.steps import serve_chats as chat_step
from polyagents.human_eval.steps.load_partners import load_partner
from polyagents.human_eval.storage import chat_store
from polyagents.human_eval.storage.chat_store import ChatStore
from polyagents.human_eval.storage.database_tables import AnnotatorRow
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.results import rated_chats
from polyagents.human_eval.storage.views import ChatState
from polyagents.human_eval.web import chat_app
from polyagents.parlai_agents.chat_partner import ParlaiPartner
from polyagents.serving.guard import Refused

HERE = "http://127.0.0.1:8009"
FORM = "application/x-www-form-urlencoded"


def client_of(chats, partner=Echo):
    """A browser without JavaScript, without a network before the server."""
    return TestClient(app_of(chats, partner), HERE, raise_server_exceptions=False, follow_redirects=False)


@pytest.fixture
def shop(tmp_path):
    """Two people: chats, client, the path of each person's link."""
    chats, tokens = shop_of(str(tmp_path / "human_eval.db"))
    yield chats, client_of(chats), [f"/annotate/{token}" for token in tokens]
    chats.store.close()


def form_of(html, action):
    """The hidden fields of one of the page's forms."""
    return fields(re.search(rf'<form[^>]*action="[^"]*/{action}".*?</form>', html, re.S)[0])


def say(client, link, text, **changes):
    """Send a message, as the form does; the page that follows."""
    page = client.get(link).text
    answer = client.post(f"{link}/say", data=form_of(page, "say") | {"text": text} | changes)
    assert answer.status_code == 303, answer.text
    return client.get(answer.headers["location"]).text


def finish(client, link, rating=3):
    """Finish a chat, as the form does."""
    return client.post(f"{link}/finish", data=form_of(client.get(link).text, "finish") | {"rating": rating})


def sentence(answer):
    """What a page is sorry about."""
    (found,) = re.findall(r'<p id="sentence">(.*)</p>', answer.text)
    return found


def texts(chats, number=1):
    """What was said in a chat."""
    return [message.text for message in chats.read(number).messages]


# ---- talking ---------------------------------------------------------------------------------------------------------


def test_a_person_talks_rates_and_is_done(shop):
    chats, client, (link, _) = shop
    for place in (1, 2):
        page = client.get(link).text
        assert f">{place} of 2</label>" in page and "i ski ." in page and "i am the other" not in page
        assert "/finish" not in page
        say(client, link, "hello")
        page = say(client, link, "why ?")
        assert client.post(f"{link}/rate", data=form_of(page, "rate") | {"rating": "good"}).status_code == 303
        assert finish(client, link, 2 + place).status_code == 303
    assert "Thank you" in client.get(link).text
    first, second = rated_chats(chats.store.database)
    assert {first.model, second.model} == set(MODELS) and (first.rating, second.rating) == (3, 4)
    told = ["hello", "2: your persona: i am t | hello", "why ?"]
    assert [message.text for message in first.messages[:3]] == told
    assert [message.good for message in first.messages] == [None, True, None, None]


def test_a_finished_chat_is_a_conversation_that_can_be_paired(shop, tmp_path, capsys):
    chats, _, links = shop
    for link in links:
        for number in range(2):
            talk(chats, link.split("/")[-1], says=f"{link} {number}")
    found = list(chats.store.conversations().values())
    assert [dict(one.models) for one in found[:1]] == [
        {"speaker_1": HUMAN, "speaker_2": rated_chats(chats.store.database)[0].model}
    ]
    assert found[0].context[:2] == ("speaker_1: your persona: i ski .", "speaker_1: your persona: i like tea .")
    assert [turn.text for turn in found[0].turns] == [f"{links[0]} 0 0", "reply 0", f"{links[0]} 0 1", "reply 1"]
    human_eval("pairs", "--per-matchup", "4", "--database", chats.store.name)
    made = json.loads(capsys.readouterr().out)
    assert made["matchups"] == [":".join(sorted(MODELS))] and made["pairs"] == 4


def test_an_unfinished_chat_is_no_conversation(shop):
    chats, client, (link, _) = shop
    say(client, link, "hello")
    say(client, link, "hello ?")
    assert not chats.store.conversations() and not rated_chats(chats.store.database)


def test_two_chats_that_are_the_same_are_one_conversation_and_two_ratings(tmp_path):
    chats, tokens = shop_of(str(tmp_path / "s.db"), models=MODELS[:1])
    for token in tokens:
        talk(chats, token)
    assert len(chats.store.conversations()) == 1 and len(rated_chats(chats.store.database)) == 2


def test_without_a_persona_none_is_shown(tmp_path):
    chats, (token, _) = shop_of(str(tmp_path / "s.db"), personas=[("", "")])
    page = say(client_of(chats), f"/annotate/{token}", "hi")
    assert "talk as a person" not in page and "1: hi" in page
    chats.reply(1, 3, "x")
    assert texts(chats) == ["hi", "1: hi"]  # no reply where nothing was said


@pytest.mark.parametrize(
    ("rate", "verdicts", "whole"), [("replies", True, False), ("whole", False, True), ("both", True, True)]
)
def test_what_is_rated_is_what_the_plan_says(rate, verdicts, whole, tmp_path):
    chats, (token, _) = shop_of(str(tmp_path / "s.db"), rate=rate, turns=1)
    client, link = client_of(chats), f"/annotate/{token}"
    page = say(client, link, "hi")
    assert ("/rate" in page, 'type="radio"' in page) == (verdicts, whole)
    answer = client.post(f"{link}/finish", data=form_of(page, "finish"))
    assert answer.status_code == (422 if whole else 303)
    if whole:
        assert "no rating yet" in sentence(answer) and finish(client, link).status_code == 303
    assert [one.rating for one in rated_chats(chats.store.database)] == [3 if whole else None]


# ---- nothing is lost, nothing is doubled -----------------------------------------------------------------------------


def test_the_same_form_twice_is_one_message_and_one_reply(shop):
    chats, client, (link, _) = shop
    form = form_of(client.get(link).text, "say") | {"text": "hello\r\nyou "}
    for _ in range(3):
        assert client.post(f"{link}/say", data=form).status_code == 303
    for _ in range(3):
        client.get(link)
    assert client.post(f"{link}/say", data=form).status_code == 303  # a replay, later
    assert texts(chats) == ["hello\nyou", "2: your persona: i am t | hello\nyou"]


def test_another_message_at_the_same_place_is_refused(shop):
    chats, client, (link, _) = shop
    form = form_of(client.get(link).text, "say")
    say(client, link, "hello")
    for number, place in (("1", "0"), ("1", "1"), ("1", "3"), ("1", "999999999")):
        answer = client.post(f"{link}/say", data=form | {"chat": number, "place": place, "text": "other"})
        assert answer.status_code == 422 and "has continued" in sentence(answer) and f'href="{link}"' in answer.text
    assert texts(chats)[0] == "hello" and len(texts(chats)) == 2


def test_a_message_without_reply_gets_one_when_the_page_is_opened(shop):
    chats, client, (link, _) = shop
    client.get(link)
    chats.say(link.split("/")[-1], 1, 0, "hello")  # and here the server was killed
    again = client_of(ChatStore(chats.store, plan_of()))
    assert "| hello" in again.get(link).text and len(texts(chats)) == 2


@pytest.mark.parametrize(
    "kind", [RuntimeError, BaseException, SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError]
)
def test_a_model_that_fails_loses_nothing(shop, kind):
    chats, _, (link, _) = shop

    class Broken(Echo):
        def reply(self, persona, messages, seed):
            raise kind("secret-poly has no memory left")

    client = client_of(chats, Broken)
    form = form_of(client.get(link).text, "say") | {"text": "hello"}
    assert client.post(f"{link}/say", data=form).status_code == 303
    answer = client.get(link)
    assert answer.status_code == 503 and "is kept" in sentence(answer) and "secret" not in answer.text
    assert "| hello" in client_of(chats).get(link).text


class Waiting(Echo):
    """Replies once it may; counts how often it was asked."""

    def __init__(self):
        self.may, self.asked = threading.Event(), 0

    def reply(self, persona, messages, seed):
        self.asked += 1
        assert self.may.wait(60)
        return super().reply(persona, messages, seed)


def test_a_chat_waits_for_its_reply_once_however_many_windows_ask(shop, monkeypatch):
    chats, _, links = shop
    partner, (ada, bob) = Waiting(), [chats.current(link.split("/")[-1]) for link in links]
    for link, chat in zip(links, (ada, bob), strict=True):
        chats.say(link.split("/")[-1], chat.number, 0, "hello")
    monkeypatch.setattr(chat_app, "WAITING", 1)
    pages = chat_app.ChatPages(chats, ChatModels(dict.fromkeys(MODELS, partner)))

    async def windows():
        waiting = [asyncio.ensure_future(pages.reply_to(chats.read(ada.number))) for _ in range(3)]
        await asyncio.sleep(0)  # each has begun
        with pytest.raises(Refused, match="Too many people wait"):
            await pages.reply_to(chats.read(bob.number))
        waiting[0].cancel()  # this window is closed
        partner.may.set()
        replied = await asyncio.gather(*waiting, return_exceptions=True)
        return replied, await pages.reply_to(chats.read(bob.number))  # there is room again

    (gone, *replied), others = asyncio.run(windows())
    assert isinstance(gone, asyncio.CancelledError) and partner.asked == 2 and not pages.under_way
    assert [len(chat.messages) for chat in (*replied, others)] == [2, 2, 2]


def test_a_plan_with_other_models_leaves_open_chats_for_later(shop):
    chats, client, (link, _) = shop
    say(client, link, "hello")
    model = chats.read(1).model
    (other,) = set(MODELS) - {model}
    elsewhere = ChatStore(chats.store, plan_of(models=[other]))
    assert elsewhere.current(link.split("/")[-1]).model == other
    assert chats.current(link.split("/")[-1]).number == 1


def test_a_reply_that_comes_after_the_end_is_left_out(shop):
    """Finished in another window while the model was at work: what was rated is what was there."""
    chats, _, (link, _) = shop
    token = link.rpartition("/")[2]
    chat = chats.current(token)
    for turn in range(2):
        chats.say(token, chat.number, 2 * turn, f"hi {turn}")
        chats.reply(chat.number, 2 * turn + 1, "hello")
    chats.say(token, chat.number, 4, "and now ?")
    chats.finish(token, chat.number, 5)
    chats.reply(chat.number, 5, "too late")
    (rated,) = rated_chats(chats.store.database)
    (stored,) = chats.store.conversations().values()
    assert [message.text for message in rated.messages] == [turn.text for turn in stored.turns]
    assert rated.messages[-1].text == "and now ?"


def test_places_are_counted_among_the_chats_of_the_plan(shop):
    chats, _, (link, _) = shop
    token = link.rpartition("/")[2]
    talk(chats, token)
    other = ChatStore(chats.store, plan_of(models=("another",)))
    assert other.current(token).place == 1


def test_nobody_judges_a_chat_of_his_or_her_own(shop):
    """Not blind any more: links for chats are those for pairs."""
    chats, _, links = shop
    ada, bob = (link.rpartition("/")[2] for link in links)
    for number, token in enumerate((ada, bob)):
        for _ in range(2):
            talk(chats, token, says=f"i am {number}")
    human_eval("pairs", "--database", chats.store.name, "--per-matchup", "4")
    store, own = chats.store, {}
    for token in (ada, bob):
        read = set()
        while (shown := store.next_assignment(token)) is not None:
            read |= {shown.left.conversation.name, shown.right.conversation.name}
            store.answer(token, shown.number, "left")
            assert shown.place <= shown.total
        own[token] = read
    of = {chat.annotator: set() for chat in rated_chats(store.database)}
    for chat in rated_chats(store.database):
        of[chat.annotator].add(chat.conversation)
    assert own[ada] and not own[ada] & of["ada"] and own[bob] and not own[bob] & of["bob"]


def test_histories_of_people_never_mix(shop):
    _, client, links = shop
    for turn in range(3):
        for link in links:
            page = say(client, link, f"{link[-6:]} {turn}")
    for link, other in (links, links[::-1]):
        page = client.get(link).text
        assert page.count(link[-6:] + " 0") > 1 and other[-6:] + " " not in page


def living(file, persona, texts, **overrides):
    """What an agent in ParlAI's `interactive` replies, message by message."""
    overrides = {"interactive_mode": True, "task": SAMPLE, "datatype": "valid"} | overrides
    overrides |= {"model": options(file)["model"]}
    agent = create_agent_from_model_file(file, overrides)
    if persona:
        agent.observe(Act({"id": "context", "text": persona, "episode_done": False}))
    for text in texts:
        agent.observe(Act({"id": "human", "text": text, "episode_done": False}))
        yield agent.act()["text"]


def check_living(partner, replies, persona, texts):
    """A partner that reads each chat from its beginning says what the agent said; others talk with it in between."""
    models, said = ChatModels({"m": partner}), ()
    for text, expected in zip(texts, replies, strict=True):
        said += (ChatMessage(text),)
        models.reply(ChatState(7, 1, "m", ("", ""), (ChatMessage("something else"),)))
        assert models.reply(ChatState(1, 1, "m", ("", persona), said)) == expected
        said += (ChatMessage(expected),)
    return [message.text for message in said[1::2]]


TEXTS = ("hi there", "do you ski ?", "me too", "bye")


@pytest.mark.slow
def test_replies_of_parlais_agents_are_those_of_a_living_conversation(trained, written):
    """Read again from the database or remembered: a model says the same."""
    for file in (trained("poly"), written("poly")):
        named = {"model": options(file)["model"]}  # which a file alone does not decide
        wanted = named | {"interactive_mode": True, "task": SAMPLE, "datatype": "valid"}
        agent = create_agent_from_model_file(file, wanted)
        replies = list(living(file, PERSONA[1], TEXTS))
        assert len(set(check_living(ParlaiPartner(agent.clone()), replies, PERSONA[1], TEXTS))) > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross", "written"])
def test_replies_without_parlai_are_those_of_parlais_agents(kind, trained, written):
    file = written("poly") if kind == "written" else trained(kind)
    for persona in (PERSONA[1], ""):
        replies = list(living(file, persona, TEXTS))
        partner = load_partner(chat_step.parser().parse_args([file, "-t", SAMPLE]).__dict__, file)
        assert isinstance(partner, RankerPartner)
        assert len(set(check_living(partner, replies, persona, TEXTS))) > 1 or kind == "cross"


def test_what_was_said_comes_again_when_nothing_else_is_left(trained, tmp_path):
    (tmp_path / "few.txt").write_text("yes .\nno .\n")
    file = trained("bi")
    flags = {"fixed_candidates_path": str(tmp_path / "few.txt")}
    replies = list(living(file, PERSONA[1], TEXTS, **flags))
    assert set(replies[:2]) == {"yes .", "no ."} and set(replies[2:]) <= {"yes .", "no ."}
    partner = load_partner(chat_step.parser().parse_args([file, "-fcp", str(tmp_path / "few.txt")]).__dict__, file)
    check_living(partner, replies, PERSONA[1], TEXTS)


@pytest.mark.slow
def test_a_short_history_is_what_the_model_reads(model, tmp_path):
    """The persona is an utterance, too, and is the first that is forgotten."""
    file = model("poly")
    saved = json.loads(Path(f"{file}.opt").read_text())
    Path(f"{file}.opt").write_text(json.dumps(saved | {"history_size": 2}))
    partner = load_partner(chat_step.parser().parse_args([str(file), "-t", SAMPLE]).__dict__, str(file))
    assert partner.history_size == 2
    check_living(partner, list(living(str(file), PERSONA[1], TEXTS)), PERSONA[1], TEXTS)


@pytest.mark.slow
def test_other_agents_and_flags_of_parlai_go_through_parlai(trained):
    def load(*flags):
        opt = vars(chat_step.parser().parse_args([trained("bi"), "-t", SAMPLE, *flags]))
        return load_partner(opt, trained("bi"))

    partner = load("-histsz", "3", "--inference", "topk", "--topk", "2")
    assert isinstance(partner, ParlaiPartner)
    opt = partner.agent.opt
    assert (opt["history_size"], opt["inference"], opt["task"]) == (3, "topk", SAMPLE)


def test_flags_that_the_step_does_not_know_are_kept_for_parlai():
    given = [
        "M",
        "N",
        "-tr",
        "72",
        "-t",
        "x",
        "-histsz",
        "-1",
        "--history_size",
        "3",
        "--seed",
        "5",
        "-m",
        "ir_baseline",
    ]
    opt = chat_step.parser().parse_args(given)
    assert opt.model_flags == ["-tr", "72", "-histsz", "-1", "--history-size", "3", "--model", "ir_baseline"]
    assert (opt.files, opt.task, opt.seed) == (["M", "N"], "x", 5)


def test_agents_that_draw_draw_the_same_after_a_restart():
    class Draws:
        def reset(self):
            pass

        def observe(self, message):
            pass

        def act(self):
            return {"text": f"{random.random()} {torch.rand(1).item()}"}

    chat = ChatState(1, 1, "m", ("", ""), (ChatMessage("hi"),))
    first, second, other = (ChatModels({"m": ParlaiPartner(Draws())}, seed).reply(chat) for seed in (0, 0, 1))
    assert first == second != other


@pytest.mark.slow
def test_many_people_in_many_windows_at_once(database):
    names = [f"person {number}" for number in range(12)]
    chats, tokens = shop_of(database, names, conversations=4)
    with ThreadPoolExecutor(12) as pool:
        windows = [pool.submit(in_a_window, chats, token) for token in tokens for _ in range(2)]
        for window in windows:
            window.result()
    done = rated_chats(chats.store.database)
    assert collections.Counter((one.annotator, one.model) for one in done) == dict.fromkeys(
        ((name, model) for name in names for model in MODELS), 2
    )
    assert all([m.text for m in one.messages] == ["hi 0", "reply 0", "hi 1", "reply 1"] for one in done)
    chats.store.close()


def in_a_window(chats, token):
    """Talk until there is nothing left; another window does the same."""
    while (chat := chats.current(token)) is not None:
        try:
            for place in range(0, 4, 2):
                chats.say(token, chat.number, place, f"hi {place // 2}")
                chats.reply(chat.number, place + 1, f"reply {place // 2}")
            chats.finish(token, chat.number, 3)
        except InputError as error:
            assert "finished" in str(error) or "has continued" in str(error)


# ---- balance ---------------------------------------------------------------------------------------------------------


def assigned(tmp_path, name, **changes):
    """Who talks with which model, in order."""
    names = [f"p{number}" for number in range(12)]
    chats, _ = shop_of(str(tmp_path / name), names, **changes)
    with chats.database.atomic_write() as session:
        for row in session.scalars(select(AnnotatorRow)):
            row.token = row.name  # which are drawn, and have to be the same each time here
    for token in names * 3:
        talk(chats, token)
    return [(one.annotator, one.model) for one in rated_chats(chats.store.database)]


@pytest.mark.slow
def test_models_are_balanced_over_people_and_within_each(tmp_path):
    flags = {"models": ["a", "b", "c"], "conversations": 3}
    found = assigned(tmp_path, "s.db", **flags)
    assert set(collections.Counter(found).values()) == {1} and len(found) == 36
    for round_ in (found[:12], found[12:24], found[24:]):
        assert set(collections.Counter(model for _, model in round_).values()) == {4}
    assert assigned(tmp_path, "again.db", **flags) == found
    assert assigned(tmp_path, "other.db", seed=1, **flags) != found


def test_chats_count_for_the_balance_once_something_is_said(tmp_path):
    chats, tokens = shop_of(str(tmp_path / "s.db"), [f"p{number}" for number in range(16)])
    opened = [chats.current(token) for token in tokens]  # six of whom never say anything
    for token, chat in zip(tokens[:10], opened, strict=False):
        chats.say(token, chat.number, 0, "hi")
    assert set(collections.Counter(chats.current(token).model for token in tokens[:10]).values()) == {5}
    assert [chats.current(token).number for token in tokens] == [chat.number for chat in opened]
    began = chats.current(tokens[0])
    chats.say(tokens[0], began.number, 0, "hi")  # sent twice
    assert chats.current(tokens[0]) == began


def test_personas_are_taken_in_turn(tmp_path):
    personas = [(f"your persona: {n}", "") for n in range(3)]
    chats, tokens = shop_of(str(tmp_path / "s.db"), "abcdef", personas=personas)
    assert [chats.current(token).personas for token in tokens] == 2 * personas


# ---- rating ----------------------------------------------------------------------------------------------------------


def test_a_rating_of_a_reply_may_change_until_the_end(shop):
    chats, client, (link, _) = shop
    say(client, link, "hello")
    page = say(client, link, "hello ?")
    form = form_of(page, "rate")
    for rating in ("good", "bad", "bad"):
        answer = client.post(f"{link}/rate", data=form | {"rating": rating})
        assert answer.status_code == 303
    assert [message.good for message in chats.read(1).messages] == [None, False, None, None]
    assert re.findall(r'value="(\w+)" aria-pressed="true"', client.get(link).text) == ["bad"]
    finish(client, link)
    assert client.post(f"{link}/rate", data=form | {"rating": "bad"}).status_code == 303
    late = client.post(f"{link}/rate", data=form | {"rating": "good"})
    assert late.status_code == 422 and "finished" in sentence(late)
    assert chats.read(1).messages[1].good is False


PROBLEMS = ("contradicts itself", "<rude> & odd")


@pytest.fixture
def problem_shop(tmp_path):
    """As `shop`, with labels below replies."""
    chats, (token, _) = shop_of(str(tmp_path / "human_eval.db"), problems=PROBLEMS, conversations=1)
    yield chats, client_of(chats), f"/annotate/{token}"
    chats.store.close()


def test_problems_of_replies_are_ticked_stored_and_reported(problem_shop, tmp_path):
    chats, client, link = problem_shop
    say(client, link, "hello")
    page = say(client, link, "hello ?")
    assert page.count("contradicts itself") == 2 and "&lt;rude&gt; &amp; odd" in page and "checked" not in page
    form = form_of(page, "rate")
    for more in ({"problem1": "on"}, {"rating": "bad", "problem0": "on", "problem1": "on"}):
        assert client.post(f"{link}/rate", data=form | more).status_code == 303
    assert chats.read(1).messages[1] == ChatMessage(texts(chats)[1], False, PROBLEMS)
    page = client.get(link).text
    assert page.count(" checked>") == 2 and form_of(page, "rate")["kept"] == "bad"
    assert client.post(f"{link}/rate", data=form_of(page, "rate") | {"problem0": "on"}).status_code == 303
    assert chats.read(1).messages[1] == ChatMessage(texts(chats)[1], False, PROBLEMS[:1])  # the rating stays
    for forged in ({"rating": "great"}, {"kept": "x"}, {f"x{number}": "" for number in range(20)}):
        assert client.post(f"{link}/rate", data=form | forged).status_code == 422
    finish(client, link)
    late = client.post(f"{link}/rate", data=form | {"rating": "bad"})
    assert late.status_code == 422 and chats.read(1).messages[1].problems == PROBLEMS[:1]
    write_report([], str(tmp_path / "report"), chats=rated_chats(chats.store.database))
    (row,) = pandas.read_csv(tmp_path / "report" / "problems.csv").to_dict("records")
    assert (row["problem"], row["replies"], row["of"]) == (PROBLEMS[0], 1, 2)
    assert list(pandas.read_csv(tmp_path / "report" / "replies.csv").problems.fillna("")) == [PROBLEMS[0], ""]
    assert "contradicts itself" in (tmp_path / "report" / "report.html").read_text()
    human_eval("export", "--to", "parlai", "--out", tmp_path / "c.jsonl", "--database", chats.store.name)
    (rated,) = json.loads((tmp_path / "c.jsonl").read_text())["ratings"]
    assert rated["problems"] == [[PROBLEMS[0]], []] and rated["good_replies"] == [False, None]


def test_a_tick_counts_for_the_label_that_the_page_showed(problem_shop):
    chats, client, link = problem_shop
    form = form_of(say(client, link, "hello"), "rate")
    later = client_of(ChatStore(chats.store, plan_of(problems=PROBLEMS[::-1], conversations=1)))
    answer = later.post(f"{link}/rate", data=form | {"problem0": "on"})
    assert answer.status_code == 422 and "What is asked has changed" in sentence(answer)
    assert chats.read(1).messages[1].problems == ()
    form = form_of(later.get(link).text, "rate")
    assert later.post(f"{link}/rate", data=form | {"problem0": "on"}).status_code == 303
    assert chats.read(1).messages[1].problems == PROBLEMS[1:]


@pytest.mark.parametrize(
    ("content", "flags", "said"),
    [
        ("", (), "has 0 labels"),
        ("x\n" * 2 + "\n".join(map(str, range(20))), (), "has 21 labels"),
        ("x" * 101, (), "of up to 100 characters"),
        ("x", ("--rate", "whole"), "which --rate whole does not ask for"),
        (None, (), "cannot be read"),
    ],
)
def test_files_of_problems_that_cannot_be_used(content, flags, said, trained, tmp_path, ends_with_2):
    if content is not None:
        (tmp_path / "p.txt").write_text(content)
    (line,) = ends_with_2("human_eval", "chat", trained("bi"), "--problems", tmp_path / "p.txt", *flags)
    assert said in line


def test_a_rating_that_the_plan_does_not_ask_for_is_refused(tmp_path):
    chats, (token, _) = shop_of(str(tmp_path / "human_eval.db"), rate="whole")
    chat = chats.current(token)
    chats.say(token, chat.number, 0, "hi")
    chats.reply(chat.number, 1, "hello")
    with pytest.raises(InputError, match="Single replies are not rated"):
        chats.rate(token, chat.number, 1, good=True)
    chats.store.close()


def test_a_chat_is_finished_once(shop):
    chats, client, (link, _) = shop
    say(client, link, "hello")
    early = client.post(f"{link}/finish", data={"chat": "1", "rating": "3"})
    assert early.status_code == 422 and "after 2" in sentence(early)
    page = say(client, link, "hello ?")
    form = form_of(page, "finish")
    for rating in ("0", "6", "-1", "x", "3.5", "", "1e9", "٣"):
        assert client.post(f"{link}/finish", data=form | {"rating": rating}).status_code == 422
    assert not rated_chats(chats.store.database)
    assert [client.post(f"{link}/finish", data=form | {"rating": "5"}).status_code for _ in range(2)] == [303, 303]
    again = client.post(f"{link}/finish", data=form | {"rating": "1"})
    assert again.status_code == 422 and "finished" in sentence(again)
    late = client.post(f"{link}/say", data={"chat": "1", "place": "4", "text": "one more"})
    assert late.status_code == 422 and "finished" in sentence(late)
    assert [one.rating for one in rated_chats(chats.store.database)] == [5] and len(texts(chats)) == 4


def test_a_chat_may_go_on_and_has_an_end(shop, monkeypatch):
    chats, client, (link, _) = shop
    monkeypatch.setattr("polyagents.human_eval.storage.chat_store.MOST", 3)
    monkeypatch.setattr("polyagents.human_eval.web.chat_app.MOST", 3)
    for turn in range(3):
        page = say(client, link, f"hello {turn}")
    assert "/say" not in page and "/finish" in page
    answer = client.post(f"{link}/say", data={"chat": "1", "place": "6", "text": "more"})
    assert answer.status_code == 422 and "at most 3" in sentence(answer)
    assert finish(client, link).status_code == 303 and len(rated_chats(chats.store.database)[0].messages) == 6


# ---- blind -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_names_the_model(shop):
    chats, client, links = shop
    seen = []
    for link in links * 2:
        seen += [client.get(link), client.get(f"{link}x"), client.post(f"{link}/finish", data={"chat": "1"})]
        for _ in range(2):
            say(client, link, "hello")
        seen += [client.get(link), finish(client, link), client.get(link)]
    everything = "".join(f"{answer.text} {answer.headers}" for answer in seen)
    assert not re.search("secret|poly|echo", everything.replace("polyagents", ""), re.I)
    assert {one.model for one in rated_chats(chats.store.database)} == set(MODELS)


# ---- the organiser ---------------------------------------------------------------------------------------------------


def test_the_organiser_sees_models_and_people(shop):
    chats, client, (ada, bob) = shop
    talk(chats, ada.split("/")[-1], rating=4, good=(True, True))
    chats.current(bob.split("/")[-1])
    page = client.get(f"/progress/{ORGANISER}").text
    rows = [re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", row)).strip() for row in re.findall("<tr>.*?</tr>", page, re.S)]
    rated = rated_chats(chats.store.database)[0].model
    (other,) = set(MODELS) - {rated}
    assert f"{rated} 1 0 4.00 100.0 % (34.2 to 100.0)" in rows and f"{other} 0 1 – –" in rows
    assert any(re.match(r"ada 1 0 \d+ s ago", row) for row in rows) and any(row.startswith("bob 0 1 –") for row in rows)
    assert f'value="{bob}"' in page
    for path in ("/progress/wrong", ada.replace("annotate", "progress")):
        assert client.get(path).status_code == 404


# ---- hostile ---------------------------------------------------------------------------------------------------------


def test_html_in_messages_replies_personas_and_names_is_text(tmp_path):
    names = (SCRIPT, "b")
    chats, (token, _) = shop_of(str(tmp_path / "s.db"), names, personas=[(f"your persona: {SCRIPT}", SCRIPT)])
    client, link = client_of(chats), f"/annotate/{token}"
    for _ in range(2):
        page = say(client, link, f"</textarea></form>{SCRIPT}")
    finish(client, link)
    assert texts(chats)[0] == f"</textarea></form>{SCRIPT}"  # as it was typed
    for html in (page, client.get(f"/progress/{ORGANISER}").text):
        assert "&lt;script&gt;" in html and "<script>" not in html and "<img" not in html
    assert page.count("</textarea>") == 1


def test_another_persons_chat_is_refused(shop):
    chats, client, (ada, bob) = shop
    talk(chats, bob.split("/")[-1])
    client.get(ada)
    for action, more in (
        ("say", {"place": "0", "text": "x"}),
        ("rate", {"place": "1", "rating": "bad"}),
        ("finish", {}),
    ):
        answer = client.post(f"{ada}/{action}", data={"chat": "1", "rating": "1"} | more)
        assert answer.status_code == 422 and "is not yours" in sentence(answer)
    (kept,) = rated_chats(chats.store.database)
    assert kept.rating == 4 and all(message.good is None for message in kept.messages)


@pytest.mark.parametrize("action", ["say", "rate", "finish"])
@pytest.mark.parametrize(
    "forged",
    [
        {"chat": "999999999"},
        {"chat": "1" * 5000},
        {"chat": "0"},
        {"chat": "-1"},
        {"chat": "١"},
        {"chat": ""},
        {"chat": "1 or 1=1"},
        {"place": "-2", "rating": "x"},
        {"place": "1" * 5000, "rating": "x"},
        {"text": "x" * 2001, "rating": "10"},
        {"text": " \n", "rating": "great"},
        {f"field{number}": "" for number in range(20)},
    ],
    ids=lambda forged: "-".join(forged)[:12] + str(len(str(forged))),
)
def test_a_forged_form_is_refused(shop, action, forged):
    chats, client, (link, _) = shop
    say(client, link, "hello")
    say(client, link, "hello ?")
    form = {"chat": "1", "place": {"say": "4", "rate": "1"}.get(action, ""), "text": "x"}
    form |= {"rating": "good" if action == "rate" else "5"}
    answer = client.post(f"{link}/{action}", data=form | forged)
    assert answer.status_code == 422 and sentence(answer)
    assert len(texts(chats)) == 4 and not rated_chats(chats.store.database)
    assert client.post(f"{link}/{action}", data=form).status_code == 303  # and all goes on


def test_the_longest_message(shop):
    chats, client, (link, _) = shop
    say(client, link, "x" * 2_000)
    assert len(texts(chats)[0]) == 2_000


def test_what_no_database_can_store_is_replaced(shop):
    chats, client, (link, _) = shop
    client.get(link)
    for _ in range(2):  # the same again is the same, after that too
        answer = client.post(
            f"{link}/say", content=b"chat=1&place=0&text=a%00b%ED%A0%80c\xff", headers={"Content-Type": FORM}
        )
        assert answer.status_code == 303
    client.get(link)
    assert re.fullmatch("a\ufffdb\ufffd+c\ufffd", texts(chats)[0]) and len(texts(chats)) == 2
    token = link.split("/")[-1]
    for _ in range(2):
        chats.say(token, 1, 2, "half \ud800 \x00")
    chats.reply(1, 3, "\udfff")
    assert texts(chats)[2:] == ["half \ufffd \ufffd", "\ufffd"]


def test_nothing_can_be_done_without_a_link(shop):
    chats, client, (link, _) = shop
    say(client, link, "hello")
    for path in ("/annotate/guessed", "/annotate/%00", f"{link}x", f"{link}/1", f"{link}/say"):
        assert client.get(path).status_code in (404, 405)
    for action in ("say", "rate", "finish"):
        answer = client.post(
            f"/annotate/guessed/{action}", data={"chat": "1", "place": "2", "text": "x", "rating": "1"}
        )
        assert answer.status_code == 404 and "not known" in sentence(answer)
    assert len(texts(chats)) == 2


def test_only_forms_are_taken(shop):
    chats, client, (link, _) = shop
    form = form_of(client.get(link).text, "say") | {"text": "x"}
    assert client.post(f"{link}/say", json=form).status_code == 415
    assert client.post(f"{link}/say", data=form, files={"file": b"x"}).status_code == 415
    assert client.put(f"{link}/say").status_code == 405 and client.post(link, data=form).status_code == 405
    assert not texts(chats)


@pytest.mark.parametrize("path", [*path_tricks(chat_app, chat_store), "/annotate/x/say/../.."])
def test_path_tricks(shop, path):
    with running(app_of(shop[0])) as url:
        status, answer = raw(url, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert status == 404 and "import" not in answer and "set-cookie" not in answer.lower().split("\r\n\r\n")[0]


@pytest.mark.parametrize("action", ["say", "rate", "finish"])
def test_a_body_of_10_megabytes_is_refused_before_it_is_read(shop, action):
    chats, client, (link, _) = shop
    client.get(link)
    head = f"POST {link}/{action} HTTP/1.1\r\nHost: x\r\nContent-Type: {FORM}\r\n"
    with running(app_of(chats)) as url:
        assert raw(url, f"{head}Content-Length: 10000000\r\n\r\ntext=".encode())[0] == 413
        chunk = "f4240\r\n" + "x" * 1_000_000 + "\r\n"
        assert raw(url, f"{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}".encode())[0] == 413
    assert not texts(chats)


def test_headers_and_no_inline_script_or_style(shop):
    _, client, (link, _) = shop
    say(client, link, "hello")
    say(client, link, "hello ?")
    inline = r"<script(?! src=\"/static)|<style|style=|\son\w+=|https?://(?!127)|\"//"
    for path in (link, f"/progress/{ORGANISER}", "/static/talk.js", "/nothing"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy and "form-action 'self'" in policy and "unsafe" not in policy
        assert answer.headers["referrer-policy"] == "no-referrer" and answer.headers["cache-control"] == "no-store"
        assert "static" in path or not re.findall(inline, answer.text)


# ---- the report ------------------------------------------------------------------------------------------------------


def chat_of(annotator, model, rating, *good, passed=True):
    """A finished chat."""
    messages = [part for verdict in good for part in (ChatMessage("hi"), ChatMessage("hello", verdict))]
    return RatedChat(1, annotator, model, tuple(messages), rating, "c", passed)


def test_a_person_counts_once_and_the_interval_is_students():
    given = {"ann": [5, 4], "bob": [2], "cy": [3, 3, 3]}
    (found,) = ratings([chat_of(who, "m", rating) for who, own in given.items() for rating in own])
    interval = stats.t.interval(0.95, 2, 3.1666666, stats.sem([4.5, 2, 3]))
    assert found.mean.value == pytest.approx(9.5 / 3) and (found.chats, found.people) == (6, 3)
    assert found.mean.low == 1.0 and interval[0] < 1 and found.mean.high == 5.0 and interval[1] > 5
    many = mean_of_people([[2], [3], [4], [3]] * 3)
    assert tuple(many)[1:] == pytest.approx(stats.t.interval(0.95, 11, 3, stats.sem([2, 3, 4, 3] * 3)))


def test_what_is_not_known_is_not_made_up():
    for own in ([[4, 5]], [[4], [4], [4]]):
        value, low, high = mean_of_people(own)
        assert value in (4.0, 4.5) and low != low and high != high
    (silent,) = ratings([chat_of("ann", "m", None, None, None)])
    assert silent.mean is None and silent.good is None and silent.rated == 0


def test_good_replies_are_counted_with_wilsons_interval_and_failed_people_left_out():
    chats = [
        chat_of("ann", "m", 4, True, True, None),
        chat_of("bob", "m", 2, False),
        chat_of("eve", "m", 1, False, passed=False),
    ]
    (found,) = ratings(chats)
    wilson = stats.binomtest(2, 3).proportion_ci(method="wilson")
    assert (found.rated, found.chats, found.mean.value) == (3, 2, 3.0)
    assert tuple(found.good) == pytest.approx((2 / 3, wilson.low, wilson.high))


def test_the_interval_covers_the_mean_of_a_known_population():
    """Ten people who differ in how they rate, two chats each."""
    draw = np.random.default_rng(0)

    def rated(people):
        taste = draw.normal(3.5, 0.5, (people, 1))
        return np.clip(np.round(draw.normal(taste, 0.8, (people, 2))), 1, 5).astype(int)

    truth, runs = rated(100_000).mean(), 300
    hits = sum(low <= truth <= high for _, low, high in (mean_of_people(rated(10).tolist()) for _ in range(runs)))
    low, high = stats.binom.interval(0.999, runs, 0.95)
    assert low <= hits <= high


@pytest.mark.slow
def test_the_report_of_chats_alone_and_beside_judgements(tmp_path):
    store, (token,) = evaluation(str(tmp_path / "s.db"), pairs=2)
    chats = ChatStore(store, plan_of(conversations=1))
    with pytest.raises(InputError, match="no judgements"):
        write_report(store.judgements(), str(tmp_path / "none"), 0, rated_chats(store.database))
    store.answer(token, store.next_assignment(token).number, "left")
    before = write_report(store.judgements(), str(tmp_path / "before"))
    assert "Ratings" not in (tmp_path / "before" / "report.html").read_text()
    assert not {"ratings.csv", "chats.csv"} & {file.name for file in (tmp_path / "before").iterdir()}

    for number, who in enumerate(store.invite(["=1+1", "bob"])):
        talk(chats, who.token, rating=3 + number, says=SCRIPT, good=(True,))
    rated = rated_chats(store.database)
    both = write_report(store.judgements(), str(tmp_path / "both"), 0, rated)
    assert both.startswith(before.split("\n\nAll of it")[0]) and "2 chats of 2 people with models" in both
    page = (tmp_path / "both" / "report.html").read_text()
    assert "Ratings of models" in page and "Win rates" in page and "<script>" not in page

    alone = write_report([], str(tmp_path / "alone"), 0, rated)
    assert (
        "judgement" not in alone
        and "mean rating 3.00 of 1 to 5; 100.0 % (20.7 to 100.0) of 1 rated reply good" in alone
    )
    assert {file.name for file in (tmp_path / "alone").iterdir()} == {
        ".polyagents-human_eval-report",
        "report.html",
        "ratings.csv",
        "chats.csv",
        "replies.csv",
    }
    table = pandas.read_csv(tmp_path / "alone" / "replies.csv", dtype=str, keep_default_na=False)
    assert list(table.annotator) == ["'=1+1"] * 2 + ["bob"] * 2 and list(table.rating) == ["good", "", "good", ""]
    assert set(table.message) == {f"{SCRIPT} 0", f"{SCRIPT} 1"}
    table = pandas.read_csv(tmp_path / "alone" / "chats.csv")
    assert list(table.rating) == [3, 4] and list(table.good) == [1, 1] and list(table.bad) == [0, 0]


def test_parlais_format_has_the_ratings(shop, tmp_path, capsys):
    chats, _, (link, _) = shop
    talk(chats, link.split("/")[-1], rating=5, good=(True, False))
    out = tmp_path / "chats.jsonl"
    human_eval("export", "--to", "parlai", "--out", str(out), "--database", chats.store.name)
    (line,) = map(json.loads, out.read_text().splitlines())
    assert line["ratings"] == [{"annotator": "ada", "rating": 5, "good_replies": [True, False], "passed": True}]
    assert [len(found) for found in Conversations(str(out))] == [4]
    human_eval("import", str(out), "--database", str(tmp_path / "other.db"))
    assert EvaluationStore(str(tmp_path / "other.db")).conversations().keys() == chats.store.conversations().keys()


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_refuses(ends_with_2, trained, tmp_path):
    database, bi = tmp_path / "s.db", trained("bi")
    flags = ("--database", database, "-t", SAMPLE)
    assert "needs model files" in ends_with_2("human_eval", "chat", *flags)[0]
    assert "needs model files" in ends_with_2("human_eval", "chat", *flags, bi)[0]
    (line,) = ends_with_2("human_eval", "chat", bi, tmp_path / "none", *flags)
    assert "no trained model" in line and "none.opt" in line
    assert "human_eval invite NAME" in ends_with_2("human_eval", "chat", bi, *flags)[-1] and not database.exists()
    EvaluationStore(str(database)).close()
    assert "Nobody is invited" in ends_with_2("human_eval", "chat", bi, *flags)[-1]
    EvaluationStore(str(database)).invite(["ada"])
    assert "--turns 101 is too many" in ends_with_2("human_eval", "chat", bi, *flags, "--turns", 101, "--port", 1)[-1]
    assert "--port: 99999 is too large" in ends_with_2("human_eval", "chat", bi, *flags, "--port", 99999)[-1]
