"""The annotation page: what annotators and the organiser see, and what is refused."""

import re
import socket
from datetime import datetime, timedelta, timezone

import pandas
import pytest
from evaluation import MODELS, SCRIPT, evaluation, fields, human_eval, stored
from starlette.testclient import TestClient
from web import path_tricks, raw, running

from polyagents.errors import InputError
from polyagents.human_eval.conversations import make_conversation, make_pair, sides_of
from polyagents.human_eval.steps.page_server import reachable
from polyagents.human_eval.storage import evaluation_store
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.web import annotation_app, shared_pages
from polyagents.human_eval.web.annotation_app import create_app
from polyagents.human_eval.web.questions import PRESETS, question_of

HERE, ORGANISER = "http://127.0.0.1:8009", "the-organiser"


def client_of(store, question="engaging"):
    """A browser without JavaScript, without a network before the server."""
    app = create_app(store, PRESETS[question], ORGANISER)
    return TestClient(app, HERE, raise_server_exceptions=False, follow_redirects=False)


@pytest.fixture
def shop(tmp_path):
    """Three pairs and two annotators: store, client, the path of each annotator's link."""
    store, tokens = evaluation(str(tmp_path / "human_eval.db"), 3, ("ada", "bob"))
    yield store, client_of(store), [f"/annotate/{token}" for token in tokens]
    store.close()


def shown(client, link):
    """The page behind a link."""
    return client.get(link, follow_redirects=True)


def post(client, link, choice="left", **changes):
    """Answer what is shown, as the form does."""
    return client.post(link, data=fields(shown(client, link).text) | {"choice": choice, "reason": ""} | changes)


def sentence(answer):
    """What a page is sorry about."""
    (found,) = re.findall(r'<p id="sentence">(.*)</p>', answer.text)
    return found


# ---- judging ---------------------------------------------------------------------------------------------------------


def test_all_pairs_are_judged_one_after_the_other(shop):
    store, client, (link, _) = shop
    for place in (1, 2, 3):
        page = shown(client, link)
        assert page.url.path == f"{link}/{place}" and f">{place} of 3</label>" in page.text
        answer = post(client, link, reason=f"reason {place}")
        assert (answer.status_code, answer.headers["location"]) == (303, link)
    assert "Thank you" in shown(client, link).text
    assert [reason for _, (_, reason) in stored(store)] == ["reason 1", "reason 2", "reason 3"]


def test_the_choice_is_the_speaker_who_stood_on_that_side(shop):
    store, client, (link, _) = shop
    token = link.split("/")[-1]
    for side in ("left", "right", "left"):
        now = store.next_assignment(token)
        chosen = now.left if side == "left" else now.right
        post(client, link, side)
        assert store.judgements()[-1].winner == chosen.conversation.models[chosen.speaker]


def test_a_reload_shows_the_same_pair(shop):
    _, client, (link, _) = shop
    assert shown(client, link).text == shown(client, link).text


def test_the_page_is_blind(tmp_path):
    store, (token,) = evaluation(str(tmp_path / "s.db"), pairs=1, checks=1)
    client = client_of(store)
    for _ in range(2):
        page = shown(client, f"/annotate/{token}").text
        assert not [word for word in (*MODELS, "human", ".jsonl", "check", "onboarding") if word in no_links(page)]
        assert page.count("Speaker A") and page.count("Speaker B") and "Partner" in page
        post(client, f"/annotate/{token}")


def no_links(page):
    """A page without the names of its own files."""
    return page.replace("/static/human_eval.css", "")


def test_the_judged_speaker_has_the_name_of_the_side(shop):
    _, client, (link, _) = shop
    page = shown(client, link).text
    names = re.findall(r'<li( class="judged")?>\s*<span class="name">(.*)</span>\s*<p>(.*)</p>', page)
    assert [(bool(judged), name) for judged, name, _ in names[:2]] == [(False, "Partner"), (True, "Speaker A")]
    assert [(bool(judged), name) for judged, name, _ in names[4:6]] == [(False, "Partner"), (True, "Speaker B")]
    assert page.count("i like blue .") == 2  # the context


def test_a_persona_stands_under_the_name_that_its_speaker_has_on_the_page(tmp_path):
    store = EvaluationStore(str(tmp_path / "s.db"))
    context = ["speaker_1: your persona: i ski .", "speaker_2: your persona: i read: a lot .", "topic: hills"]
    turns, models = [("x", "hi"), ("y", "ho")], ({"y": model} for model in MODELS)
    one, other = (make_conversation(turns, model, context) for model in models)
    store.add_conversations([one, other])
    store.add_pairs([make_pair(sides_of(one)[MODELS[0]], sides_of(other)[MODELS[1]])])
    page = shown(client_of(store), f"/annotate/{store.invite(['ada'])[0].token}").text
    left = page.split("<section")[1]
    told = re.findall(r"<p>(.*:)</p>\s*<ul>\s*<li>(.*)</li>\s*</ul>", left)
    assert told == [
        ("Speaker A was given:", "i read: a lot ."),
        ("Partner was given:", "i ski ."),
        ("Given before the conversation:", "topic: hills"),
    ]
    assert "speaker_" not in page and "Speaker B was given:" in page.split("<section")[2]


def test_three_speakers_have_three_names(tmp_path):
    store = EvaluationStore(str(tmp_path / "s.db"))
    turns = [("x", "hi"), ("bot", "yes"), ("y", "no")]
    one, other = (make_conversation(turns, {"bot": model}) for model in MODELS)
    store.add_conversations([one, other])
    store.add_pairs([make_pair(sides_of(one)[MODELS[0]], sides_of(other)[MODELS[1]])])
    page = shown(client_of(store), f"/annotate/{store.invite(['ada'])[0].token}").text
    assert page.count(">Partner 1<") == page.count(">Partner 2<") == 2


@pytest.mark.parametrize("name", PRESETS)
def test_each_question_is_asked_and_stored(name, tmp_path):
    store, (token,) = evaluation(str(tmp_path / "s.db"))
    client, question = client_of(store, name), PRESETS[name]
    page = shown(client, f"/annotate/{token}").text
    assert f"<h1>{question.text}</h1>" in page
    assert f"<span>{question.choice.format('Speaker B')}</span>" in page
    post(client, f"/annotate/{token}")
    assert store.judgements()[0].question == question.text


def test_the_time_that_the_browser_measured_is_stored(shop):
    store, client, (link, _) = shop
    post(client, link, seconds="12.5")
    post(client, link)
    assert [one.seconds for one in store.judgements()] == [12.5, None]


@pytest.mark.slow
def test_judgements_have_their_times_and_those_faster_than_reading_are_flagged(tmp_path):
    now = [datetime(2026, 1, 1, tzinfo=timezone.utc)]
    evaluation(str(tmp_path / "s.db"), 3, (), said="word " * 500)[0].close()  # two minutes, at four times the usual
    store = EvaluationStore(str(tmp_path / "s.db"), clock=lambda: now[0])
    (link,) = [f"/annotate/{store.invite(['ada'])[0].token}"]
    client = client_of(store)
    for took, seconds in ((60, "500"), (62, "10"), (62, "")):  # by the server's clock, and as the browser says
        shown(client, link)
        now[0] += timedelta(seconds=took)
        post(client, link, seconds=seconds)
    found = store.judgements()
    assert [one.too_fast for one in found] == [True, True, False]
    assert (found[1].started, found[1].ended) == ("2026-01-01T00:01:00+00:00", "2026-01-01T00:02:02+00:00")
    human_eval("report", "--out", tmp_path / "report", "--database", store.name)
    table = pandas.read_csv(tmp_path / "report" / "judgements.csv")
    assert list(table.too_fast) == ["yes", "yes", "no"] and list(table.started) == [one.started for one in found]
    assert pandas.read_csv(tmp_path / "report" / "annotators.csv").too_fast[0] == 2
    client_of(store, "humanlike").get(link, follow_redirects=True)  # the same pair again, for another question
    now[0] += timedelta(seconds=5)
    post(client_of(store, "humanlike"), link)
    assert store.judgements()[-1].started == found[2].ended and store.judgements()[-1].too_fast
    store.close()


def test_line_ends_of_a_reason_are_one_character(shop):
    store, client, (link, _) = shop
    assert post(client, link, reason="x" + "\r\n" * 4998 + "y").status_code == 303
    assert stored(store)[0][1][1] == "x" + "\n" * 4998 + "y"


# ---- answers that come twice, or change ------------------------------------------------------------------------------


def test_the_same_form_twice_is_one_answer(shop):
    store, client, (link, _) = shop
    form = fields(shown(client, link).text) | {"choice": "left", "reason": "r"}
    assert [client.post(link, data=form).status_code for _ in range(2)] == [303, 303]
    post(client, link)
    assert client.post(link, data=form).status_code == 303  # a replay, later
    assert len(stored(store)) == 2


def test_the_latest_answer_can_be_changed(shop):
    store, client, (link, _) = shop
    post(client, link, "left", reason="a slip")
    page = shown(client, link)
    assert f'<a href="{link}/1">Change my last answer</a>' in page.text
    page = client.get(f"{link}/1").text
    assert 'value="left" required checked' in page and "a slip</textarea>" in page
    client.post(link, data=fields(page) | {"choice": "right", "reason": "better"})
    ((_, (_, reason)),) = stored(store)
    assert reason == "better" and 'value="right" required checked' in client.get(f"{link}/1").text


def test_the_last_answer_of_all_can_be_changed(shop):
    _, client, (link, _) = shop
    for _ in range(3):
        post(client, link)
    assert f'<a href="{link}/3">Change my last answer</a>' in shown(client, link).text
    assert client.get(f"{link}/3").status_code == 200


def test_an_older_answer_stays(shop):
    store, client, (link, _) = shop
    old = fields(shown(client, link).text)
    post(client, link, "left")
    post(client, link, "left")
    before = stored(store)
    assert client.get(f"{link}/1").status_code == 409
    answer = client.post(link, data=old | {"choice": "right", "reason": ""})  # a tab that was left open
    assert answer.status_code == 422 and "only the latest can be changed" in sentence(answer)
    assert f'href="{link}"' in answer.text and stored(store) == before


def test_a_place_that_was_not_shown_yet(shop):
    _, client, (link, _) = shop
    shown(client, link)
    answer = client.get(f"{link}/2")
    assert answer.status_code == 404 and "not been shown" in sentence(answer) and f'href="{link}"' in answer.text


# ---- the organiser ---------------------------------------------------------------------------------------------------


def test_the_organiser_sees_how_far_everybody_is(shop):
    _, client, (link, _) = shop
    post(client, link)
    page = client.get(f"/progress/{ORGANISER}").text
    assert "1 of 3 pairs are judged" in page
    assert re.search(r"<td>secret-bi</td><td>secret-poly</td><td class=\"number\">1</td>", page)
    assert f'value="{link}"' in page and re.search(r"<td>\d+ s ago</td>", page)


def test_the_organiser_sees_how_far_the_question_is_that_is_asked(shop):
    store, client, (link, _) = shop
    post(client, link)
    other = client_of(store, "humanlike").get(f"/progress/{ORGANISER}").text
    assert "0 of 3 pairs are judged" in other and PRESETS["humanlike"].text in other


def test_failed_checks_are_flagged_to_the_organiser_alone(tmp_path):
    store, (token,) = evaluation(str(tmp_path / "s.db"), pairs=1, checks=1)
    client, link = client_of(store), f"/annotate/{token}"
    right = store.next_assignment(token).left.conversation.models.values()
    answer = post(client, link, "right" if MODELS[0] in right else "left")
    assert answer.status_code == 303 and ">2 of 2</label>" in shown(client, link).text
    page = client.get(f"/progress/{ORGANISER}").text
    assert 'class="flagged"' in page and "0 of 1 right" in page and "not passed" in page


def test_who_is_invited_while_the_server_runs_gets_in(shop):
    store, client, _ = shop
    (eve,) = store.invite(["eve"])
    assert shown(client, f"/annotate/{eve.token}").status_code == 200
    assert f"/annotate/{eve.token}" in client.get(f"/progress/{ORGANISER}").text


def test_no_page_follows_the_host_that_a_request_names(shop):
    _, client, (link, _) = shop
    for path in (link, f"{link}/1", f"/progress/{ORGANISER}", "/annotate/nobody"):
        answer = client.get(path, headers={"host": "evil.example"})
        assert "evil.example" not in answer.text + str(answer.headers)


def test_too_many_requests_of_one_link_keep_nobody_else_out(shop, monkeypatch):
    store, _, (ada, bob) = shop
    monkeypatch.setattr(shared_pages, "REQUESTS_PER_MINUTE", 3)
    client = client_of(store)
    assert [client.get(f"{ada}/1").status_code for _ in range(4)] == [404, 404, 404, 429]
    answer = client.get(ada)
    assert sentence(answer) == f"Too many requests; ask again in {answer.headers['retry-after']} s."
    assert shown(client, bob).status_code == 200
    strangers = [client.get(path).status_code for path in ("/annotate/x", "/progress/y", "/annotate/z", "/progress/x")]
    assert strangers == [404, 404, 404, 429]
    assert client.get(f"{bob}/1").status_code == 200
    assert client.get(f"/progress/{ORGANISER}").status_code == 200


@pytest.mark.parametrize("token", ["wrong", "%00", "é", "%ff"])
def test_the_organisers_page_has_a_link_of_its_own(shop, token):
    _, client, (link, _) = shop
    for path in (f"/progress/{token}", link.replace("annotate", "progress")):
        answer = client.get(path)
        assert answer.status_code == 404 and "organiser's link" in answer.text.replace("&#39;", "'")


# ---- hostile ---------------------------------------------------------------------------------------------------------


def test_html_in_texts_reasons_and_names_is_text(tmp_path):
    store, (token,) = evaluation(str(tmp_path / "s.db"), annotators=(SCRIPT,), said=SCRIPT)
    client, link = client_of(store), f"/annotate/{token}"
    assert post(client, link, reason=f"</textarea>{SCRIPT}").status_code == 303
    assert stored(store)[0][1][1] == f"</textarea>{SCRIPT}"  # as it was typed
    for page in (client.get(f"{link}/1"), shown(client, link), client.get(f"/progress/{ORGANISER}")):
        assert page.status_code == 200 and "&lt;script&gt;" in page.text
        assert "<img" not in page.text and "<script>" not in page.text and page.text.count("</textarea>") < 2


def test_another_annotators_number_is_refused(shop):
    store, client, (ada, bob) = shop
    form = fields(shown(client, bob).text) | {"choice": "left", "reason": ""}
    answer = client.post(ada, data=form)
    assert answer.status_code == 422 and "is not yours" in sentence(answer)
    assert not stored(store)


@pytest.mark.parametrize(
    "forged",
    [
        {"assignment": "999999999"},
        {"assignment": "1" * 5000},
        {"assignment": "-1"},
        {"assignment": "١"},
        {"assignment": ""},
        {"assignment": "1 or 1=1"},
        {"choice": "both"},
        {"choice": ""},
        {"seconds": "nan"},
        {"seconds": "1e999"},
        {"seconds": "-1"},
        {"seconds": "long"},
        {"reason": "x" * 5001},
        {f"field{number}": "" for number in range(20)},
    ],
    ids=lambda forged: "-".join(forged)[:12] + str(len(str(forged))),
)
def test_a_forged_form_is_refused(shop, forged):
    store, client, (link, _) = shop
    answer = post(client, link, **{"choice": "left"} | forged)
    assert answer.status_code == 422 and sentence(answer)
    assert not stored(store)
    assert post(client, link).status_code == 303  # and all goes on


def test_the_largest_form_that_is_taken(shop):
    store, client, (link, _) = shop
    form = fields(shown(client, link).text) | {"choice": "left", "reason": "x" * 5_000}
    more = {f"field{number}": "" for number in range(10 - len(form))}
    assert client.post(link, data=form | more | {"one": ""}).status_code == 422 and not stored(store)
    assert client.post(link, data=form | more).status_code == 303 and len(stored(store)) == 1


@pytest.mark.parametrize("size", [300, 301])
def test_the_longest_question(size):
    text = "Who is better ?".ljust(size, "?")
    if size == 300:
        assert question_of(text).text == text
    else:
        with pytest.raises(InputError, match="a sentence of up to 300"):
            question_of(text)


def test_nothing_can_be_done_without_a_link(shop):
    store, client, (link, _) = shop
    form = fields(shown(client, link).text) | {"choice": "left"}
    for path in ("/annotate/guessed", "/annotate/guessed/1", "/annotate/%00", f"{link}x"):
        assert client.get(path).status_code == 404
    assert client.post("/annotate/guessed", data=form).status_code == 404
    assert not stored(store)


def test_only_forms_are_answers(shop):
    store, client, (link, _) = shop
    form = fields(shown(client, link).text) | {"choice": "left"}
    assert client.post(link, json=form).status_code == 415
    assert client.post(link, data=form, files={"file": b"x"}).status_code == 415
    assert client.post(
        link, content=b"\xff\xfe%", headers={"Content-Type": "application/x-www-form-urlencoded"}
    ).is_error
    assert client.put(link).status_code == 405 and not stored(store)


@pytest.mark.parametrize("place", ["0", "-1", "1" * 5000, "999999999999", "x", "%00", "1%2F..%2F2"])
def test_a_place_that_is_none(shop, place):
    _, client, (link, _) = shop
    assert client.get(f"{link}/{place}").status_code in (404, 422)


@pytest.mark.parametrize("path", [*path_tricks(annotation_app, evaluation_store), "/progress/"])
def test_path_tricks(shop, path):
    with running(create_app(shop[0], PRESETS["engaging"], ORGANISER)) as url:
        status, answer = raw(url, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert status == 404 and "import" not in answer and "set-cookie" not in answer.lower().split("\r\n\r\n")[0]


def test_a_body_of_10_megabytes_is_refused_before_it_is_read(shop):
    store, client, (link, _) = shop
    shown(client, link)
    head = f"POST {link} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    with running(create_app(store, PRESETS["engaging"], ORGANISER)) as url:
        announced = f"{head}Content-Length: 10000000\r\n\r\nreason="  # of which nothing more is ever sent
        assert raw(url, announced.encode())[0] == 413
        chunk = "f4240\r\n" + "x" * 1_000_000 + "\r\n"
        unannounced = f"{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}"
        assert raw(url, unannounced.encode())[0] == 413
    assert not stored(store)


def test_headers_of_every_answer(shop):
    _, client, (link, _) = shop
    for path in (link, f"{link}/1", f"/progress/{ORGANISER}", "/static/annotate.js", "/nothing", f"{link}/x"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy and "form-action 'self'" in policy and "unsafe" not in policy
        assert headers["referrer-policy"] == "no-referrer" and headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"


def test_no_page_has_inline_script_or_style_or_names_another_site(shop):
    _, client, (link, _) = shop
    for page in (shown(client, link).text, client.get(f"/progress/{ORGANISER}").text, client.get("/nothing").text):
        assert not re.findall(r"<script(?! src=\"/static)|<style|style=|\son\w+=|https?://(?!127)|\"//", page)


def test_a_database_that_fails_loses_nothing(shop, monkeypatch):
    store, client, (link, _) = shop
    form = fields(shown(client, link).text) | {"choice": "left"}
    with monkeypatch.context() as broken:
        broken.setattr(store, "answer", lambda *_, **__: 1 / 0)
        answer = client.post(link, data=form)
    assert answer.status_code == 500 and "try again" in sentence(answer) and "no-store" in str(answer.headers)
    assert client.post(link, data=form).status_code == 303 and len(stored(store)) == 1


def test_a_database_that_is_damaged_under_the_server_is_no_annotators_business(shop, tmp_path):
    store, client, (link, _) = shop
    store.close()
    for part in ("-wal", "-shm"):
        (tmp_path / f"human_eval.db{part}").unlink(missing_ok=True)
    (tmp_path / "human_eval.db").write_bytes(b"no database at all " * 1_000)
    answer = client.get(link)
    assert answer.status_code == 503 and answer.headers["retry-after"]
    assert "try again" in sentence(answer) and "human_eval.db" not in answer.text


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--question", "funny"], "'funny' is not a question; give engaging, interesting, humanlike, knowledgeable"),
        (["--question", " "], "--question: its value is empty"),
        (["--question", "why " * 100], "a sentence of up to 300 characters"),
    ],
)
def test_bad_flags(flags, said, ends_with_2, tmp_path):
    evaluation(str(tmp_path / "s.db"))[0].close()
    (line,) = ends_with_2("human_eval", "serve", "--database", tmp_path / "s.db", *flags)
    assert said in line


def test_links_of_a_server_that_listens_everywhere_name_this_machine():
    here = socket.gethostname()
    assert reachable("http://0.0.0.0:8009") == reachable("http://[::]:8009") == f"http://{here}:8009"
    assert reachable("http://127.0.0.1:8009") == "http://127.0.0.1:8009"


def test_a_store_without_pairs(ends_with_2, tmp_path):
    assert "There is no" in ends_with_2("human_eval", "serve", "--database", tmp_path / "s.db")[0]
    EvaluationStore(str(tmp_path / "s.db")).close()
    (line,) = ends_with_2("human_eval", "serve", "--database", tmp_path / "s.db")
    assert "has no pairs to judge" in line


def test_a_port_that_is_taken(ends_with_2, tmp_path, shop):
    with running(create_app(shop[0], PRESETS["engaging"], ORGANISER)) as url:
        flags = ("--database", shop[0].name, "--port", url.split(":")[-1])
        assert "cannot be served" in ends_with_2("human_eval", "serve", *flags)[0]
