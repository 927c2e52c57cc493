"""The annotation page in Debian's Chromium, as a person uses it."""

import pytest
from browser import lose_receipt
from evaluation import SCRIPT, evaluation, stored
from playwright.sync_api import expect
from web import running

from polyagents.human_eval.web.annotation_app import create_app
from polyagents.human_eval.web.questions import PRESETS

pytestmark = pytest.mark.browser

PHONE = {"width": 360, "height": 740}
ORGANISER = "the-organiser"


@pytest.fixture
def shop(tmp_path):
    """Three pairs for ada: the store, her link, the organiser's link."""
    store, (token,) = evaluation(str(tmp_path / "human_eval.db"))
    with running(create_app(store, PRESETS["engaging"], ORGANISER)) as url:
        yield store, f"{url}/annotate/{token}", f"{url}/progress/{ORGANISER}"
    store.close()


def at(page, place, script=True):
    """Wait until this pair is shown, and the page's script listens."""
    expect(page.get_by_text(f"{place} of 3", exact=True)).to_be_visible()
    expect(page.locator("#keys:not([hidden])")).to_have_count(int(script))


def choose(page, side):
    """Click on a side."""
    page.locator(f".choice.{side}").click()


def is_chosen(page, side):
    """Wait until a side is chosen."""
    expect(page.locator(f".choice.{side} input")).to_be_checked()


def is_thanked(page):
    """Wait for the end."""
    expect(page.get_by_role("heading", name="Thank you!")).to_be_visible()


def test_by_mouse(page, shop):
    store, link, _ = shop
    page.goto(link)
    for place, side in enumerate(("left", "right", "left"), 1):
        at(page, place)
        choose(page, side)
        page.get_by_label("Why?").fill(f"reason {place}")
        page.get_by_role("button", name="Send").click()
    is_thanked(page)
    assert [reason for _, (_, reason) in stored(store)] == ["reason 1", "reason 2", "reason 3"]
    assert all(one.seconds is not None for one in store.judgements()) and not page.complaints


def test_by_keyboard(page, shop):
    store, link, _ = shop
    page.goto(link)
    for place, (key, side) in enumerate((("1", "left"), ("ArrowRight", "right"), ("2", "right")), 1):
        at(page, place)
        page.keyboard.press("ArrowLeft")
        page.keyboard.press(key)
        is_chosen(page, side)
        page.get_by_label("Why?").press_sequentially("1 or 2")  # no keys in here
        is_chosen(page, side)
        page.keyboard.press("Control+Enter")
    is_thanked(page)
    assert [reason for _, (_, reason) in stored(store)] == ["1 or 2"] * 3 and not page.complaints


def test_nothing_is_sent_without_a_choice(page, shop):
    store, link, _ = shop
    page.goto(link)
    page.get_by_label("Why?").fill("both are fine")
    page.keyboard.press("Control+Enter")
    at(page, 1)
    assert page.locator(".choice input:invalid").count() == 2 and not stored(store)


def test_a_reload_keeps_the_draft(page, shop):
    store, link, _ = shop
    page.goto(link)
    choose(page, "right")
    page.get_by_label("Why?").fill("it asks back")
    page.reload()
    is_chosen(page, "right")
    expect(page.get_by_label("Why?")).to_have_value("it asks back")
    page.get_by_role("button", name="Send").click()
    at(page, 2)
    expect(page.get_by_label("Why?")).to_have_value("")
    assert page.locator(".choice input:checked").count() == 0
    assert page.evaluate("localStorage.length") == 0  # nothing stays in this browser
    assert [reason for _, (_, reason) in stored(store)] == ["it asks back"]


def test_a_double_click_is_one_answer(page, shop):
    store, link, _ = shop
    sent = []
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    page.goto(link)
    choose(page, "left")
    page.get_by_role("button", name="Send").dblclick()
    at(page, 2)
    assert len(stored(store)) == len(sent) == 1


def test_a_lost_connection_loses_nothing(page, shop):
    store, link, _ = shop
    page.goto(link)
    choose(page, "left")
    page.get_by_label("Why?").fill("kept")
    page.context.set_offline(True)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_contain_text("cannot be reached")
    page.context.set_offline(False)
    page.get_by_role("button", name="Send again").click()
    at(page, 2)
    assert [reason for _, (_, reason) in stored(store)] == ["kept"]


def test_an_answer_whose_receipt_is_lost_is_sent_again_and_stored_once(page, shop):
    store, link, _ = shop
    page.goto(link)
    page.route(link, lose_receipt, times=1)
    choose(page, "left")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_contain_text("cannot be reached")
    assert len(stored(store)) == 1
    page.get_by_role("button", name="Send again").click()
    at(page, 2)
    assert len(stored(store)) == 1


def test_the_servers_sentence_is_shown_and_the_draft_kept(page, shop, monkeypatch):
    store, link, _ = shop
    page.goto(link)
    choose(page, "left")
    with monkeypatch.context() as broken:
        broken.setattr(store, "answer", lambda *_, **__: 1 / 0)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("try again in a while")
    page.get_by_role("button", name="Send again").click()
    at(page, 2)


def test_the_back_button_leads_to_the_last_answer_which_can_be_changed(page, shop):
    store, link, _ = shop
    page.goto(link)
    choose(page, "left")
    page.get_by_label("Why?").fill("a slip")
    page.get_by_role("button", name="Send").click()
    at(page, 2)
    page.go_back()
    expect(page.get_by_text("This is your last answer")).to_be_visible()
    at(page, 1)
    is_chosen(page, "left")
    (first,) = stored(store)
    page.keyboard.press("2")
    page.keyboard.press("Control+Enter")
    at(page, 2)
    (second,) = stored(store)
    assert first[0] == second[0] and first[1][0] != second[1][0]
    page.get_by_role("link", name="Change my last answer").click()
    is_chosen(page, "right")


def test_a_second_tab(page, shop):
    store, link, _ = shop
    page.goto(link)
    other = page.context.new_page()
    other.goto(link)
    for place in (1, 2):
        at(page, place)
        choose(page, "left")
        page.get_by_role("button", name="Send").click()
    at(page, 3)
    before = stored(store)
    choose(other, "right")  # still the first pair, which has its answer
    other.get_by_role("button", name="Send").click()
    expect(other.get_by_role("status")).to_contain_text("only the latest can be changed")
    assert stored(store) == before


def test_without_javascript(chromium, shop):
    store, link, _ = shop
    with chromium.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(link)
        for place in (1, 2, 3):
            at(page, place, script=False)
            choose(page, "right")
            page.get_by_label("Why?").fill("no script")
            page.get_by_role("button", name="Send").dblclick()
        is_thanked(page)
    assert [reason for _, (_, reason) in stored(store)] == ["no script"] * 3


def test_hostile_texts_are_text(page, tmp_path):
    store, (token,) = evaluation(str(tmp_path / "s.db"), pairs=1, annotators=(SCRIPT,), said=SCRIPT)
    with running(create_app(store, PRESETS["engaging"], ORGANISER)) as url:
        page.goto(f"{url}/annotate/{token}")
        expect(page.locator(".judged p").first).to_have_text(f"{SCRIPT} .")
        page.get_by_label("Why?").fill(f"</textarea>{SCRIPT}")
        page.reload()
        expect(page).to_have_title("1 of 1")
        choose(page, "left")
        page.get_by_role("button", name="Send").click()
        is_thanked(page)
        page.go_back()
        expect(page.get_by_label("Why?")).to_have_value(f"</textarea>{SCRIPT}")
        expect(page).to_have_title("1 of 1")
        page.goto(f"{url}/progress/{ORGANISER}")
        expect(page.get_by_role("cell", name=SCRIPT, exact=True)).to_be_visible()
        expect(page).to_have_title("Progress")
        assert page.locator("img").count() == 0 and not page.complaints


def test_a_phone_shows_all_in_one_column(chromium, shop):
    _, link, _ = shop
    with chromium.new_context(viewport=PHONE, has_touch=True, is_mobile=True) as context:
        page = context.new_page()
        page.goto(link)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        left, right = (page.locator(f".half.{side}").bounding_box() for side in ("left", "right"))
        assert left["x"] == right["x"] and left["y"] + left["height"] <= right["y"]
        page.locator(".choice.right").tap()
        page.get_by_role("button", name="Send").tap()
        at(page, 2)


def test_the_organisers_page_stays_up_to_date_and_copies_links(page, shop):
    store, link, progress = shop
    page.clock.install(time=0)
    page.clock.pause_at(1_000)  # before the page begins: figures that come between would bring buttons of their own
    page.goto(progress)
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.context.grant_permissions(["clipboard-read"])
    assert page.evaluate("navigator.clipboard.readText()") == link
    expect(page.get_by_text("0 of 3 pairs are judged")).to_be_visible()
    token = link.split("/")[-1]
    store.answer(token, store.next_assignment(token).number, "left")
    page.clock.run_for(5_000)
    expect(page.get_by_text("1 of 3 pairs are judged")).to_be_visible()
    assert not page.complaints
