"""One participant's path through a study on the real pages, in Debian's Chromium, on a desk and on a phone."""

import os

import pytest
from crowd import SCREENED, ids, store_of
from crowd import study_of as study
from playwright.sync_api import expect
from web import running

from polyagents.human_eval.web.annotation_app import create_app
from polyagents.human_eval.web.questions import PRESETS

pytestmark = pytest.mark.browser

PHONE = {"width": 360, "height": 740}
CODE = "DONE7F3A" * 8  # as long as a code may be


@pytest.fixture
def shop(tmp_path):
    """A study with a first check and one among the pairs: its store, and the address of its first person."""
    store = store_of(str(tmp_path / "s.db"), study(onboarding=1, code=CODE), pairs=4, checks=2)
    with running(create_app(store, PRESETS["engaging"], "the-organiser")) as url:
        yield store, f"{url}/join?" + "&".join(f"{name}={value}" for name, value in ids(1).items())
    store.close()


def judge(page, store, place):
    """Judge what is shown, a check as it asks for it."""
    expect(page.get_by_text(f"{place} of 4", exact=True)).to_be_visible()
    expect(page.locator("#keys:not([hidden])")).to_have_count(1)
    shown = store.next_assignment(page.url.split("/")[-2])
    page.locator(f".choice.{'left' if 'secret-poly' in shown.left.conversation.models.values() else 'right'}").click()
    page.get_by_role("button", name="Send").click()


@pytest.mark.parametrize("window", [{"width": 1100, "height": 800}, PHONE], ids=["desk", "phone"])
def test_the_path_of_a_participant(chromium, shop, window):
    store, address = shop
    folder = os.environ.get("PICTURES")
    with chromium.new_context(viewport=window, color_scheme="dark" if window is PHONE else "light") as context:
        page = context.new_page()

        def look(name):
            page.wait_for_load_state()  # a click leads to the next page, whose style may not be there yet
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{name} is {wide} pixels too wide"
            if folder:
                page.screenshot(path=f"{folder}/{name}-{window['width']}.png")

        page.goto(address)
        expect(page.get_by_role("heading", name="Consent")).to_be_visible()
        look("consent")
        page.get_by_role("button", name="I agree", exact=True).click()
        page.get_by_role("button", name="Continue").click()  # not without an answer
        expect(page.get_by_text("18 or older")).to_be_visible()
        look("screening")
        page.get_by_label("yes").check()
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("Read both.")).to_be_visible()
        look("instructions")
        page.get_by_role("button", name="Continue").click()
        for place in (1, 2):
            judge(page, store, place)
        expect(page.get_by_text("3 of 4", exact=True)).to_be_visible()
        page.goto(address)  # again from the platform's page
        for place in (3, 4):
            expect(page.get_by_text(f"{place} of 4", exact=True)).to_be_visible()
            assert CODE not in page.content()
            judge(page, store, place)
        expect(page.locator("#code")).to_have_text(CODE)
        back = page.get_by_role("link", name="Back to the platform")
        expect(back).to_have_attribute("href", f"https://app.prolific.com/submissions/complete?cc={CODE}")
        look("thanks")
    assert len(store.judgements()) == 2 and store.places.taken().complete == 1


def test_who_is_screened_out_sees_the_other_code(page, shop):
    _, address = shop
    page.goto(address)
    page.get_by_role("button", name="I agree", exact=True).click()
    page.get_by_label("no").check()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#code")).to_have_text(SCREENED)


def test_mturks_frame_shows_the_pages_and_gets_the_form(chromium, tmp_path):
    """In a frame of MTurk's host; for both hosts, Chromium asks this test instead of the network.

    Without scripts: Chromium does not ask the test where a redirect leads, and scripts would see that there was none.
    """
    hit, worker = "3" + "B" * 29, "A" + "1" * 13
    of_mturk = study(id=hit, platform="mturk", code="", screen_out_code="", screening=[], each=1)
    store = store_of(str(tmp_path / "s.db"), of_mturk)
    query = f"workerId={worker}&hitId={hit}&assignmentId={'3' + 'C' * 29}&turkSubmitTo=https://workersandbox.mturk.com"
    sent = []
    page = chromium.new_context(java_script_enabled=False).new_page()
    page.set_default_timeout(10_000)
    page.route("https://workersandbox.mturk.com/**", lambda route: answer(route, sent, query))
    page.route("https://study.example/**", lambda route: pass_on(route, url))
    with running(create_app(store, PRESETS["engaging"], "the-organiser")) as url:
        page.goto("https://workersandbox.mturk.com/task")
        frame = page.frame_locator("iframe")
        frame.get_by_role("button", name="I agree", exact=True).click()
        frame.get_by_role("button", name="Continue").click()
        frame.locator(".choice.left").click()
        frame.get_by_role("button", name="Send").click()
        frame.get_by_role("button", name="Submit").click()
        expect(frame.get_by_text("taken")).to_be_visible()
    assert sent == [f"assignmentId={'3' + 'C' * 29}&done=yes"]
    page.context.close()
    store.close()


def pass_on(route, url):
    """Be the proxy with HTTPS before the server."""
    to = route.request.url.replace("https://study.example", url)
    route.fulfill(response=route.fetch(url=to))


def answer(route, sent, query):
    """Be MTurk: a page with the frame, and the end of a submission."""
    if route.request.method == "POST":
        sent.append(route.request.post_data)
        route.fulfill(content_type="text/html", body="taken")
    else:
        route.fulfill(
            content_type="text/html",
            body=f'<iframe src="https://study.example/join?{query}" width=900 height=700></iframe>',
        )
