"""People talk with models in Debian's Chromium."""

import os
import signal
import threading

import pytest
from browser import lose_receipt
from chatting import ORGANISER, Echo, app_of, shop_of, talk
from commands import SAMPLE
from evaluation import SCRIPT, serving
from playwright.sync_api import expect
from web import running

from polyagents.human_eval.storage.results import rated_chats

pytestmark = pytest.mark.browser

PHONE = {"width": 360, "height": 740}


@pytest.fixture
def shop(tmp_path):
    """Two chats for ada: what is stored, her link, the organiser's link."""
    chats, (token, _) = shop_of(str(tmp_path / "human_eval.db"))
    with running(app_of(chats)) as url:
        yield chats, f"{url}/annotate/{token}", f"{url}/progress/{ORGANISER}"
    chats.store.close()


def at(page, place, script=True):
    """Wait until this chat is shown, and the page's script listens."""
    expect(page.get_by_text(f"{place} of 2", exact=True)).to_be_visible()
    expect(page.locator("#chat[data-ready]")).to_have_count(int(script))


def replies(page, count):
    """Wait for so many replies."""
    expect(page.locator(".theirs")).to_have_count(count)
    expect(page.locator("#stage")).to_have_text("")


def say(page, text, count):
    """Say something, wait for the reply."""
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()
    replies(page, count)


def is_thanked(page):
    """Wait for the end."""
    expect(page.get_by_role("heading", name="Thank you!")).to_be_visible()


def test_by_mouse(page, shop):
    chats, link, _ = shop
    page.goto(link)
    for place in (1, 2):
        at(page, place)
        expect(page.get_by_text("i ski .", exact=True)).to_be_visible()
        say(page, "hello", 1)
        page.get_by_role("button", name="bad").click()
        expect(page.locator("[aria-pressed=true]")).to_have_text("bad")
        say(page, "why ?", 2)
        page.get_by_role("button", name="good").last.click()
        expect(page.locator("[aria-pressed=true]")).to_have_text(["bad", "good"])
        page.get_by_text("4", exact=True).click()
        page.get_by_role("button", name="Finish").click()
    is_thanked(page)
    found = rated_chats(chats.store.database)
    assert [one.rating for one in found] == [4, 4] and not page.complaints
    assert all([message.good for message in one.messages] == [None, False, None, True] for one in found)


def test_by_keyboard(page, shop):
    chats, link, _ = shop
    page.goto(link)
    at(page, 1)
    for count, text in enumerate(("hello", "why ?"), 1):
        expect(page.get_by_label("Message")).to_be_focused()
        page.keyboard.type(text)
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("second line")
        page.keyboard.press("Enter")
        replies(page, count)
    page.keyboard.press("Tab")  # from the message by its button to the rating
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("2", exact=True)).to_be_checked()
    page.keyboard.press("Enter")
    at(page, 2)
    page.keyboard.type("next")
    page.keyboard.press("Enter")
    replies(page, 1)
    page.get_by_role("button", name="good").focus()
    page.keyboard.press("Enter")
    expect(page.locator("[aria-pressed=true]")).to_be_focused()  # still, on the page as it is now
    (found,) = rated_chats(chats.store.database)
    assert found.rating == 2 and found.messages[0].text == "hello\nsecond line" and not page.complaints


def test_a_reload_keeps_the_chat_and_the_draft(page, shop):
    chats, link, _ = shop
    page.goto(link)
    say(page, "hello", 1)
    page.get_by_label("Message").fill("half a mess")
    page.reload()
    at(page, 1)
    replies(page, 1)
    expect(page.get_by_label("Message")).to_have_value("half a mess")
    page.get_by_role("button", name="Send").click()
    replies(page, 2)
    assert page.evaluate("localStorage.length") == 0 and len(chats.read(1).messages) == 4


def test_a_reload_while_the_model_thinks(page, tmp_path):
    asked, may_answer = threading.Event(), threading.Event()

    class Slow(Echo):
        def reply(self, *chat):
            asked.set()
            assert may_answer.wait(60)
            return super().reply(*chat)

    chats, (token, _) = shop_of(str(tmp_path / "s.db"))
    with running(app_of(chats, Slow)) as url:
        page.goto(f"{url}/annotate/{token}")
        page.get_by_label("Message").fill("hello")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".sending")).to_have_text("hello")
        page.get_by_label("Message").fill("already the next")
        assert asked.wait(30)
        may_answer.set()
        replies(page, 1)
        expect(page.get_by_label("Message")).to_have_value("already the next")
        asked.clear(), may_answer.clear()
        page.get_by_role("button", name="Send").click()
        assert asked.wait(30)
        page.evaluate("setTimeout(() => location.reload())")
        may_answer.set()
        replies(page, 2)
    assert [message.text for message in chats.read(1).messages[::2]] == ["hello", "already the next"]


def test_double_clicks_are_one_message_and_one_rating(page, shop):
    chats, link, _ = shop
    page.goto(link)
    for count in (1, 2):
        page.get_by_label("Message").fill("hello")
        page.get_by_role("button", name="Send").dblclick()
        replies(page, count)
    page.get_by_role("button", name="good").first.dblclick()
    expect(page.locator("[aria-pressed=true]")).to_have_count(1)
    page.get_by_text("5", exact=True).click()
    page.get_by_role("button", name="Finish").dblclick()
    at(page, 2)
    (found,) = rated_chats(chats.store.database)
    assert [message.good for message in found.messages] == [None, True, None, None]


def test_a_lost_connection_loses_nothing(page, shop):
    chats, link, _ = shop
    page.goto(link)
    page.context.set_offline(True)
    page.get_by_label("Message").fill("hello")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_contain_text("cannot be reached")
    expect(page.get_by_label("Message")).to_have_value("hello")
    page.context.set_offline(False)
    page.get_by_role("button", name="Send").click()
    replies(page, 1)
    assert len(chats.read(1).messages) == 2


def test_a_message_whose_receipt_is_lost_is_sent_again_and_stored_once(page, shop):
    chats, link, _ = shop
    page.goto(link)
    page.route(f"{link}/say", lose_receipt, times=1)
    page.get_by_label("Message").fill("hello")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_contain_text("cannot be reached")
    assert len(chats.read(1).messages) == 1
    page.get_by_role("button", name="Send").click()
    replies(page, 1)
    assert len(chats.read(1).messages) == 2


def test_a_model_that_fails_can_be_asked_again(page, tmp_path):
    class Fails(Echo):
        times = 1

        def reply(self, *chat):
            Fails.times -= 1
            if Fails.times >= 0:
                raise RuntimeError("no memory")
            return super().reply(*chat)

    chats, (token, _) = shop_of(str(tmp_path / "s.db"))
    with running(app_of(chats, Fails)) as url:
        page.goto(f"{url}/annotate/{token}")
        page.get_by_label("Message").fill("hello")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("Your message is kept")
        page.get_by_role("button", name="Try again").click()
        replies(page, 1)
    assert len(chats.read(1).messages) == 2


def test_a_second_tab(page, shop):
    chats, link, _ = shop
    page.goto(link)
    other = page.context.new_page()
    other.goto(link)
    say(page, "hello", 1)
    other.get_by_label("Message").fill("from here")
    other.get_by_role("button", name="Send").click()
    expect(other.get_by_role("status")).to_contain_text("in another window")
    expect(other.get_by_label("Message")).to_have_value("from here")
    other.reload()
    replies(other, 1)
    other.get_by_role("button", name="Send").click()  # the draft is still there
    replies(other, 2)
    assert [message.text for message in chats.read(1).messages[::2]] == ["hello", "from here"]


def test_without_javascript(chromium, shop):
    chats, link, _ = shop
    with chromium.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(link)
        for place in (1, 2):
            at(page, place, script=False)
            say(page, "no script", 1)
            say(page, "at all", 2)
            page.get_by_role("button", name="good").first.click()
            expect(page.locator("[aria-pressed=true]")).to_have_count(1)
            page.get_by_text("3", exact=True).click()
            page.get_by_role("button", name="Finish").click()
        is_thanked(page)
    assert [one.rating for one in rated_chats(chats.store.database)] == [3, 3]


def test_hostile_texts_are_text(page, tmp_path):
    chats, (token, _) = shop_of(str(tmp_path / "s.db"), (SCRIPT, "b"), personas=[(f"your persona: {SCRIPT}", SCRIPT)])
    with running(app_of(chats)) as url:
        page.goto(f"{url}/annotate/{token}")
        expect(page.get_by_role("listitem").get_by_text(SCRIPT, exact=True)).to_be_visible()
        say(page, f"</textarea>{SCRIPT}", 1)
        expect(page.locator(".mine .text")).to_contain_text(f"</textarea>{SCRIPT}")
        expect(page.locator(".theirs .text")).to_contain_text("<script>")
        page.reload()
        expect(page.locator(".mine .text")).to_contain_text(f"</textarea>{SCRIPT}")
        expect(page).to_have_title("1 of 2")
        page.goto(f"{url}/progress/{ORGANISER}")
        expect(page.get_by_role("cell", name=SCRIPT, exact=True)).to_be_visible()
        expect(page).to_have_title("Progress")
        assert page.locator("img").count() == 0 and not page.complaints


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_phone_shows_all_without_scrolling_sideways(chromium, shop, colours):
    _, link, _ = shop
    with chromium.new_context(viewport=PHONE, has_touch=True, is_mobile=True, color_scheme=colours) as context:
        page = context.new_page()
        page.goto(link)
        for count in (1, 2, 3):
            page.get_by_label("Message").fill("word " * 30 + "w" * 100)
            page.get_by_role("button", name="Send").tap()
            replies(page, count)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        for shown in (page.get_by_label("Message"), page.get_by_role("button", name="Finish")):
            expect(shown).to_be_in_viewport(ratio=1)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 28)"
        assert dark == (colours == "dark")
        page.get_by_text("2", exact=True).tap()
        page.get_by_role("button", name="Finish").tap()
        at(page, 2)


def test_the_organisers_page_stays_up_to_date(page, shop):
    chats, link, progress = shop
    page.clock.install(time=0)
    page.clock.pause_at(1_000)  # before the page begins: a refresh under way would set the next one too late
    page.goto(progress)
    ada = page.get_by_role("row").filter(has_text="ada")
    expect(ada.get_by_role("cell").nth(1)).to_have_text("0")
    talk(chats, link.split("/")[-1])
    page.clock.run_for(5_000)
    expect(ada.get_by_role("cell").nth(1)).to_have_text("1")
    assert not page.complaints


def served(database, model, port=0):
    """The chats in a process of their own."""
    command = ("chat", model, "-t", SAMPLE, "--turns", "2", "--database", database, "--port", port)
    return serving(*command, links=3)


def test_a_server_that_is_killed_in_the_middle(page, trained, tmp_path):
    chats, _ = shop_of(str(tmp_path / "human_eval.db"))
    with served(chats.store.name, trained("bi")) as (process, links):
        page.goto(links["ada"])
        say(page, "hello", 1)
        port = links["ada"].split(":")[2].split("/")[0]
        process.send_signal(signal.SIGKILL)
        process.wait()
        page.get_by_label("Message").fill("do you ski ?")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("cannot be reached")
    before = chats.read(1).messages
    chats.say(links["ada"].split("/")[-1], 1, 2, "do you ski ?")  # as if it had been killed after this
    with served(chats.store.name, trained("bi"), port) as (_, again):
        assert again["ada"] == links["ada"]
        page.get_by_role("button", name="Send").click()
        replies(page, 2)
        page.get_by_text("5", exact=True).click()
        page.get_by_role("button", name="Finish").click()
        at(page, 2)
    (found,) = rated_chats(chats.store.database)
    assert found.messages[:2] == before and len(found.messages) == 4 and found.messages[2].text == "do you ski ?"


@pytest.mark.parametrize("window", [{"width": 900, "height": 700}, PHONE], ids=["desk", "phone"])
def test_what_is_wrong_with_a_reply_is_ticked(chromium, tmp_path, window):
    chats, (token, _) = shop_of(str(tmp_path / "human_eval.db"), problems=("contradicts itself", "is not fluent"))
    with running(app_of(chats)) as url, chromium.new_context(viewport=window, color_scheme="dark") as context:
        page = context.new_page()
        page.goto(f"{url}/annotate/{token}")
        at(page, 1)
        say(page, "hello", 1)
        for label in ("contradicts itself", "is not fluent"):  # at once, one after the other
            page.get_by_label(label).check()
        page.get_by_role("button", name="bad").click()
        expect(page.get_by_role("button", name="bad")).to_have_attribute("aria-pressed", "true")
        page.get_by_label("is not fluent").uncheck()
        say(page, "again", 2)
        expect(page.get_by_label("contradicts itself").first).to_be_checked()
        if folder := os.environ.get("PICTURES"):
            page.screenshot(path=f"{folder}/problems-{window['width']}.png")
    message = chats.read(1).messages[1]
    assert (message.good, message.problems) == (False, ("contradicts itself",))
    chats.store.close()
