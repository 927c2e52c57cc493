"""examples/support_replies: its data can be trained on, and its application suggests what the model ranks first."""

import re
import runpy
import sys
import threading
import time
from pathlib import Path

import pytest
import uvicorn
from browser import launched
from commands import own
from fastapi.testclient import TestClient

from polyagents import InputError, Ranker

FOLDER = Path(__file__).parents[1] / "examples" / "support_replies"
TURNS = ["hello , i want to return the kettle please"]


@pytest.fixture
def tickets(tmp_path, monkeypatch, capsys):
    """The folder in which make_tickets.py has run."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / "make_tickets.py"), run_name="__main__")
    capsys.readouterr()
    return tmp_path


@pytest.fixture
def files(tickets, model):
    """A tiny model, which has learnt nothing of tickets, and an index of the replies."""
    file = model("poly")
    own("build_index", "-mf", file, "--candidates-file", "replies.txt", "--index-dir", "replies.index")
    return str(file), "replies.index"


@pytest.fixture
def module():
    """The names in app.py."""
    return runpy.run_path(str(FOLDER / "app.py"))


@pytest.fixture
def client(module, files):
    with TestClient(module["create_app"](*files), base_url="http://127.0.0.1") as client:
        yield client


def test_the_data_are_the_same_in_every_run_and_check_data_has_no_warning(tickets, capsys):
    before = [(tickets / name).read_bytes() for name in ("tickets.csv", "replies.txt")]
    runpy.run_path(str(FOLDER / "make_tickets.py"), run_name="__main__")
    assert before == [(tickets / name).read_bytes() for name in ("tickets.csv", "replies.txt")]
    own("check_data", "tickets.csv")
    said = capsys.readouterr().out
    assert "2,304 examples" in said and "Nothing to warn of." in said
    replies = (tickets / "replies.txt").read_text().splitlines()
    assert len(replies) == len(set(replies)) == 192


def test_the_first_three_of_the_model_are_suggested(client, files):
    answer = client.post("/suggest", json={"turns": ["hello", *TURNS]})
    ranker = Ranker.load(files[0])
    expected = ranker.rank("\n".join(["hello", *TURNS]), ranker.open_index(files[1]), top_k=3)
    assert answer.status_code == 200
    assert [one["text"] for one in answer.json()] == [match.text for match in expected]
    assert len({one["text"] for one in answer.json()}) == 3


@pytest.mark.parametrize("turns", [[], [""], [" \n"], ["x" * 2001], ["x"] * 51, "hi", [1], None])
def test_what_is_no_conversation_is_refused(client, turns):
    assert client.post("/suggest", json={"turns": turns}).status_code == 422


def test_another_host_is_refused(client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_the_page_asks_nobody_else(client):
    page = client.get("/")
    assert page.status_code == 200 and page.headers["content-security-policy"].startswith("default-src 'self'")
    assert not re.search(r"https?:|//|innerHTML", page.text)


def test_an_index_that_is_not_there_is_one_sentence(module, files, monkeypatch, capsys):
    with pytest.raises(InputError):
        module["create_app"](files[0], "nothing")
    monkeypatch.setattr(sys, "argv", ["app.py", "--model-file", files[0], "--index-dir", "nothing"])
    with pytest.raises(SystemExit) as ended:
        module["main"]()
    assert ended.value.code == 2 and "nothing" in capsys.readouterr().err


@pytest.mark.browser
def test_a_suggestion_is_taken_with_a_click(module, files):
    from playwright.sync_api import expect, sync_playwright

    server = uvicorn.Server(uvicorn.Config(module["create_app"](*files), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        with sync_playwright() as playwright:
            browser = launched(playwright)
            page = browser.new_page()
            problems = []
            page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
            page.goto(f"http://127.0.0.1:{port}/")
            page.fill("#message", "<b>where</b> is my kettle")
            page.click("text=Add and suggest")
            page.wait_for_selector("#suggestions button")
            assert page.inner_text("#turns li") == "<b>where</b> is my kettle"
            suggested = page.locator("#suggestions button").all_inner_texts()
            assert len(suggested) == 3
            page.click("#suggestions button >> nth=1")
            assert page.input_value("#reply") == suggested[1]
            page.get_by_role("button", name="Send", exact=True).click()
            expect(page.locator("#turns li")).to_have_text(["<b>where</b> is my kettle", suggested[1]])
            expect(page.locator("#suggestions button")).to_have_count(0)
            assert not [text for text in problems if "favicon" not in text and "404" not in text]
            browser.close()
    finally:
        server.should_exit = True
        thread.join()


def test_the_readme_has_every_file():
    readme = (FOLDER / "README.md").read_text()
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} == {
        "README.md",
        *re.findall(r"\]\(([\w.]+)\)", readme),
    }
