"""The documentation site: every page can be reached, every link leads somewhere, and nothing comes from elsewhere."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import launched
from markdown_pages import anchors, links, toctrees

from polyagents.commands.human_eval import STEPS
from polyagents.commands.names import OWN_COMMANDS

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
MARKDOWN = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

sys.path += [str(DOCS / "_site"), str(ROOT / "scripts")]
import check_site  # noqa: E402
import docstrings  # noqa: E402
import for_machines  # noqa: E402
import generated_pages  # noqa: E402
import outside_links  # noqa: E402


@functools.cache
def generated():
    """The generated pages, by their path in docs/."""
    return {f"generated/{name}": text for name, text in generated_pages.pages().items()}


# ---- pages and links, without building -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(path):
    dead = []
    for link in links(path):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = Path(os.path.normpath(path.parent / parts.path)) if parts.path else path
        if target.is_relative_to(DOCS / "generated"):
            there = target.relative_to(DOCS).as_posix() in generated() and not parts.fragment
        else:
            there = target.exists() and (not parts.fragment or parts.fragment in anchors(target))
        if not there:
            dead.append(link)
    assert not dead


def test_every_page_can_be_reached_from_the_index():
    pages = {path.relative_to(DOCS).as_posix() for path in MARKDOWN if path.is_relative_to(DOCS)} | generated().keys()
    reached, waiting, missing = set(), ["index.md"], set()
    while waiting:
        page = waiting.pop()
        if page in pages and page not in reached:
            reached.add(page)
            waiting += entries(page)
        elif page not in pages:
            missing.add(page)
    assert pages - reached == set()
    assert missing == set()


def entries(page):
    """The pages in the toctrees of a page, with their endings."""
    if page.endswith(".md"):
        names = toctrees(DOCS / page)
    else:
        blocks = re.findall(r"^\.\. toctree::\n(?:   :.*\n)*\n((?:   .*\n?)+)", generated()[page], re.MULTILINE)
        names = "".join(blocks).split()
    files = [os.path.normpath(Path(page).parent / name) for name in names]
    endings = {os.path.splitext(name)[0]: os.path.splitext(name)[1] for name in generated()}
    return [file + endings.get(file, ".md") for file in files]


def test_a_link_is_called_as_its_page():
    """Not by the name of a file, which says less; results.md is written by another hand."""
    named = [
        (path.name, link) for path in MARKDOWN for link in re.findall(r"\[[\w/-]+\.md\]\([^)]*\)", path.read_text())
    ]
    assert [one for one in named if one[0] != "results.md"] == []


def test_programs_find_every_page_by_its_title():
    pages = {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in DOCS.rglob("*.md")}
    text = for_machines.listing({name: path.read_text("utf-8") for name, path in pages.items()})
    listed = re.findall(r"^- \[(.+)\]\((.+)\.md\)$", text, re.MULTILINE)
    assert ("Training", "training") in listed and {name for _, name in listed} == {*pages} - {"index"}
    assert text.startswith("# polyagents\n\n> ") and "## How-to" in text


# ---- what follows from the code --------------------------------------------------------------------------------------


def test_every_command_and_step_has_a_page_with_all_its_flags():
    pages = {name: f"polyagents.commands.{name}" for name in OWN_COMMANDS if name != "human_eval"}
    pages |= {f"human_eval_{step}": f"polyagents.human_eval.steps.{module}" for step, module in STEPS.items()}
    for page, module in pages.items():
        text = generated()[f"generated/commands/{page}.rst"]
        for action in sys.modules[module].parser()._actions:
            if action.dest != "help":
                name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
                assert re.search(rf"^\.\. option:: (.*, )?{re.escape(name)}( |,|$)", text, re.MULTILINE), (page, name)
    rank = generated()["generated/commands/rank.rst"]
    assert re.search(r"^\.\. option:: --top-k TOP_K\n\n   .* Default: ``10``\.$", rank, re.MULTILINE)


def test_flags_of_agents_say_whose_they_are_and_their_defaults():
    text = generated()["generated/agent-flags.rst"]
    found = re.findall(r"^\.\. option:: --([\w-]+).*\n\n   (.*)$", text, re.MULTILINE)
    flags = dict(found)
    assert flags["poly-n-codes"].endswith("For ``bi``, ``poly``, ``uni``, ``cross``. Default: ``64``.")
    assert flags["codes-init"].endswith("For ``poly``. Default: ``normal``.")
    towers, joint = (said for name, said in found if name == "share-encoders")  # each under its title
    assert towers.endswith("For ``bi``, ``poly``. Default: ``false``.")
    assert joint.endswith("For ``uni``, ``cross``. Default: ``true``.")
    assert flags["dropout"].endswith("Default: ``0.1`` (Pretrain).")
    assert "``first`` (poly), ``mean`` (uni)" in flags["reduction-type"]
    assert "hf-dataset" in flags and "batch-tokens" in flags and "truncate" not in flags
    table = text[text.index("ParlAI's flags with other defaults") :]
    rate = table[table.index("``--learningrate``") :].split("* -")[0]
    assert re.findall(r"- (\S+)", rate) == ["``1``", *["``None``"] * 4, "``0.0002``"]


@pytest.mark.parametrize(
    ("written", "page", "becomes"),
    [
        ("[safe](../SECURITY.md)", "ecosystem.md", "[safe](generated/project/security.markdown)"),
        ("[`deploy/`](../deploy) and", "scale.md", "`deploy/` and"),
        ("[a](training.md#speed)", "scale.md", "[a](training.md#speed)"),
        ("[a](#speed)", "scale.md", "[a](#speed)"),
        ("[a](https://example.org/b.md)", "scale.md", "[a](https://example.org/b.md)"),
        ("![a](../x.png)", "scale.md", "![a](../x.png)"),
        ("[start](../../README.md)", "concepts/numbers.md", "[start](../index.md)"),
    ],
)
def test_links_out_of_the_folder_lead_to_pages_of_the_site(written, page, becomes):
    assert outside_links.with_site_links(written, f"docs/{page}", page) == becomes


def test_links_of_a_file_at_the_top_are_those_of_its_page():
    text = outside_links.with_site_links(
        "[a](docs/scale.md#b)", "CONTRIBUTING.md", "generated/project/contributing.markdown"
    )
    assert text == "[a](../../scale.md#b)"


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("`a_`s and b_, |x| * y", "`a_`\\ s and b\\_, \\|x\\| \\* y"),
        ("**Threads.** Both `x * y`", "**Threads.** Both `x * y`"),
        (">>> f(*a)\n*b\n\n*c", ">>> f(*a)\n*b\n\n\\*c"),
        ("from `polyagents\nexport` * 2", "from `polyagents\nexport` \\* 2"),
    ],
)
def test_docstrings_are_read_as_plain_english(written, becomes):
    assert docstrings.escaped(written) == becomes


# ---- the check of a built site ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="b.html#here">b</a> <a href="#me">a</a> <a href="https://example.org">c</a>', None),
        ('<a href="c.html">c</a>', "there is no such file"),
        ('<a href="b.html#lost">b</a>', "no lost on that page"),
        ('<a href="#lost">a</a>', "no lost on that page"),
        ('<img src="gone.png">', "there is no such file"),
        ('<img src="https://example.org/badge.svg">', "from another server"),
        ('<script src="//cdn.example.org/a.js"></script>', "from another server"),
        ('<link rel="stylesheet" href="https://example.org/a.css">', "from another server"),
        ('<img src="a.png" srcset="a.png 1x, https://example.org/a.png 2x">', "from another server"),
        ("<style>@font-face { src: url('https://example.org/a.woff2') }</style>", "from another server"),
    ],
)
def test_dead_links_and_what_comes_from_elsewhere_are_found(body, said, tmp_path):
    (tmp_path / "index.html").write_text(f'<p id="me">{body}')
    (tmp_path / "b.html").write_text('<p id="here">')
    (tmp_path / "a.png").write_bytes(b"")
    found = [*check_site.faults(tmp_path)]
    assert len(found) == (said is not None) and all(said in fault for fault in found)


def test_fonts_of_a_stylesheet_are_looked_at(tmp_path):
    (tmp_path / "a.css").write_text('@import "https://fonts.example.org/css";')
    assert [*check_site.faults(tmp_path)] == ["a.css loads https://fonts.example.org/css from another server."]


# ---- the site itself -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it; or the one that it has built, which BUILT_SITE names."""
    if built := os.environ.get("BUILT_SITE"):
        return ROOT / built
    folder = tmp_path_factory.mktemp("site")
    sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", folder / "doctrees"]
    done = subprocess.run([*sphinx, DOCS, folder / "html"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.release
def test_the_site_builds_without_a_warning_a_dead_link_or_another_server(site):
    assert [*check_site.faults(site)] == []
    assert len([*site.rglob("*.html")]) > len(MARKDOWN)
    listed = re.findall(r"\((\S+)\)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert len(listed) > 40 and all((site / name).is_file() for name in listed)
    assert (site / "training.md").read_text() == (DOCS / "training.md").read_text()


@pytest.fixture
def page(site):
    """A page of Chromium's, which keeps the addresses of all requests in `asked`."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="light")
        page.asked = []
        page.on("request", lambda request: page.asked.append(request.url))
        yield page
        browser.close()


@pytest.mark.browser
def test_no_page_scrolls_sideways_on_a_phone_or_asks_another_server(site, page):
    wide = []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wide.append(path.relative_to(site))
    assert not wide
    assert page.asked and all(url.startswith(("file:", "data:")) for url in page.asked)


@pytest.mark.browser
def test_the_search_finds_a_flag_from_a_file_and_from_a_server(site, page):
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for address in (site.as_uri(), f"http://127.0.0.1:{server.server_port}"):
            page.goto(f"{address}/search.html?q=poly-n-codes")
            page.get_by_role("link", name="train_model.--poly-n-codes").click()
            page.wait_for_url("**/agent-flags.html*#cmdoption-train_model-poly-n-codes")
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, *args):
        """BaseHTTPRequestHandler: a line for a request."""


@pytest.mark.browser
def test_drawings_follow_the_switch_between_light_and_dark(site, page):
    page.goto((site / "concepts" / "architectures.html").as_uri())
    chosen = "getComputedStyle(document.querySelector('article img')).colorScheme"
    page.evaluate("document.body.dataset.theme = 'dark'")
    assert page.evaluate(chosen) == "dark"
    page.evaluate("document.body.dataset.theme = 'light'")
    assert page.evaluate(chosen) == "light"
