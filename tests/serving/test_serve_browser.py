"""The chat page in Debian's Chromium, as a person uses it."""

import pytest
from playwright.sync_api import expect
from stand import Stand
from web import running

from polyagents import Match
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

pytestmark = pytest.mark.browser

SCRIPT = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
PHONE = {"width": 360, "height": 640}


@pytest.fixture(scope="module")
def served(trained, tmp_path_factory):
    """A poly-encoder with four replies, one of them hostile."""
    path = tmp_path_factory.mktemp("serve") / "replies.txt"
    path.write_text("\n".join(["hi there", "so you like red", "tell me more", SCRIPT]))
    return Sources(trained("poly"), str(path)).read()


@pytest.fixture(scope="module")
def url(served):
    """Where it is served."""
    with running(create_app(served)) as url:
        yield url


class Recorded(Stand):
    """A model that keeps what it is asked, and fails as long as it is broken."""

    def __init__(self):
        super().__init__(self.answer)
        self.asked, self.broken = [], False

    def answer(self, contexts, candidates, top_k):
        if self.broken:
            raise RuntimeError
        self.asked.extend(contexts)
        return [([Match(0, "yes", 1.0)], True) for _ in contexts]


@pytest.fixture
def recorded():
    """Such a model, and where it is served."""
    model = Recorded()
    with running(create_app(model)) as url:
        yield model, url


def say(page, text):
    """Type a message, send it with Enter, and wait for the reply."""
    count = page.locator(".theirs").count()
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator(".theirs")).to_have_count(count + 1)


def test_a_reply_comes_with_its_rivals(page, url, served):
    page.goto(url)
    expect(page.get_by_label("Message")).to_be_focused()
    say(page, "hi !")
    best, *rivals = served.ranker.rank("hi !", served.candidates)
    reply = page.locator(".theirs")
    expect(reply.locator(".text")).to_have_text(best.text)
    facts = reply.locator("summary")
    expect(facts).to_contain_text(f"score {best.score:.4f}")
    expect(facts).to_contain_text(f" ms · {len(rivals)} rivals")
    expect(reply.locator("table")).to_be_visible()
    expect(reply.locator("td:last-child")).to_have_text([rival.text for rival in rivals])
    expect(reply).to_contain_text(f"of 4 candidates ({served.source})")
    say(page, "and you ?")
    expect(page.locator(".theirs table").nth(0)).to_be_hidden()  # the newest reply has its own
    page.locator(".theirs summary").first.press("Enter")
    expect(page.locator(".theirs table").nth(0)).to_be_visible()
    assert not page.complaints


def test_html_is_shown_as_text(page, url):
    page.goto(url)
    page.get_by_text("Persona and context").click()
    page.get_by_label("Lines before the conversation").fill(SCRIPT)
    say(page, SCRIPT)
    for _ in range(3):  # the hostile candidate is among the replies or their rivals
        say(page, "and ?")
    page.reload()
    expect(page.locator(".mine .text").first).to_have_text(SCRIPT)
    assert page.locator("main img, main script").count() == 0
    assert SCRIPT in page.locator("#turns").evaluate("list => list.textContent")
    assert "chat" in page.title() and not page.complaints


def test_a_text_has_a_direction_of_its_own(page, url):
    page.goto(url)
    for text, is_left in (("שלום!", True), ("hello!", False)):
        say(page, text)
        first, last = (
            page.locator(".mine .text").last.evaluate(
                "(shown, at) => { const one = new Range(); one.setStart(shown.firstChild, at);"
                " one.setEnd(shown.firstChild, at + 1); return one.getBoundingClientRect().left; }",
                at,
            )
            for at in (0, len(text) - 1)
        )
        assert (last < first) is is_left


def test_a_reload_loses_nothing(page, url):
    page.goto(url)
    page.get_by_text("Persona and context").click()
    page.get_by_label("Lines before the conversation").fill("your persona: i ski .")
    say(page, "hi !")
    before = page.locator("#turns").inner_text()
    page.get_by_label("Message").fill("half a mess")
    page.reload()
    expect(page.get_by_label("Message")).to_have_value("half a mess")
    expect(page.locator("#persona")).to_have_value("your persona: i ski .")
    assert page.locator("#turns").inner_text() == before


def test_the_persona_stands_before_the_conversation(page, recorded):
    model, url = recorded
    page.goto(url)
    page.get_by_text("Persona and context").click()
    page.get_by_label("Lines before the conversation").fill("your persona: i ski .\n\nyour persona: i cook .")
    say(page, "hi !")
    page.get_by_label("Lines before the conversation").fill("")
    say(page, "and you ?")
    assert model.asked == [
        "your persona: i ski .\nyour persona: i cook .\nhi !",
        "hi !\nyes\nand you ?",
    ]


def test_a_message_without_reply_can_be_sent_again(page, recorded):
    model, url = recorded
    model.broken = True
    page.goto(url)
    page.get_by_label("Message").fill("hi !")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_contain_text("The model failed")
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("no reply yet")
    model.broken = False
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".theirs")).to_have_count(1)
    expect(page.locator(".mine")).to_have_count(1)
    assert model.asked == ["hi !"]


def test_a_server_that_has_gone_loses_nothing(page):
    with running(create_app(Recorded())) as url:
        page.goto(url)
        say(page, "hi !")
    page.get_by_label("Message").fill("still there ?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("cannot be reached; nothing is lost")
    expect(page.locator(".mine .text")).to_have_text(["hi !", "still there ?"])


def test_a_new_conversation_is_asked_for_twice(page, url):
    page.goto(url)
    say(page, "hi !")
    page.get_by_text("Persona and context").click()
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Start a new").click()
    expect(page.locator(".mine")).to_have_count(1)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Start a new").click()
    expect(page.locator(".mine")).to_have_count(0)
    page.reload()
    expect(page.locator(".mine")).to_have_count(0)


def test_a_phone_shows_it_all(page, url):
    page.set_viewport_size(PHONE)
    page.goto(url)
    page.get_by_text("Persona and context").click()
    for _ in range(5):
        say(page, f"hi {'very ' * 20}{'long' * 30} !")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("document.documentElement.scrollHeight") <= PHONE["height"]
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport()
    expect(page.locator(".theirs td").last).to_be_in_viewport()  # the newest, without scrolling


def test_the_link_with_the_token_logs_in(page):
    with running(create_app(Recorded(), "s3cret")) as url:
        assert page.goto(url).status == 401
        page.goto(f"{url}/?token=s3cret")
        say(page, "hi !")
        assert "s3cret" not in page.url
        assert page.evaluate("document.cookie") == ""
        page.reload()
        expect(page.locator(".theirs")).to_have_count(1)


def test_the_endpoints_page_is_readable(page, url):
    page.goto(url)
    page.get_by_role("link", name="JSON endpoints").click()
    expect(page.get_by_role("heading", name="POST /rank")).to_be_visible()
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert not page.complaints
