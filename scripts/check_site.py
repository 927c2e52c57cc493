"""Checks a built documentation site: `python scripts/check_site.py build/docs`, which `make docs` does.

Every link within the site must lead to a file, and to a place in it where the link names one. And a page must load
nothing from another server, so that it is complete without a network; links that a reader may follow are not loaded.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"src", "srcset", "poster", "data", "action", "background"}  # attributes whose value is fetched, or asked
REMOTE_IN_CSS = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """What a page of HTML names.

    Attributes:
        places: the ids and names that a link may lead to.
        links: where its links lead.
        loads: what it fetches: scripts, styles, fonts, pictures, frames.
    """

    def __init__(self, html: str):
        super().__init__()
        self.places: set[str] = {"", "top"}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(html)
        self.loads += REMOTE_IN_CSS.findall(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """HTMLParser: a tag begins."""
        for name, value in ((name, value) for name, value in attrs if value):
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif name in LOADED or name == "href":  # <link>, <image> and <use> in SVG, <base>
                self.loads += [part.split()[0] for part in value.split(", ")] if name == "srcset" else [value]


def faults(site: Path) -> Iterator[str]:
    """A sentence for each dead link, and for each thing that a page loads from another server."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name} loads {load} from another server." for load in page.loads if is_remote(load))
        local = [target for target in (*page.links, *page.loads) if not is_remote(target)]
        yield from (f"{name} links to {target}: {why}." for target in local if (why := fault_of(target, path, pages)))
    for path in sorted(site.rglob("*.css")):
        found = REMOTE_IN_CSS.findall(path.read_text("utf-8"))
        yield from (f"{path.relative_to(site)} loads {load} from another server." for load in found)


def is_remote(target: str) -> bool:
    """Whether a target lies elsewhere: another server, or what no browser fetches, such as an address for mail."""
    parts = urlsplit(target)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def fault_of(target: str, path: Path, pages: dict[Path, Page]) -> str | None:
    """Why a link within the site is dead.

    Args:
        target: where the link leads.
        path: the page that it is on.
        pages: all pages of the site.

    Returns:
        Half a sentence; None if the link is not dead.
    """
    parts = urlsplit(target)
    if parts.scheme == "data":
        return None
    file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not file.is_file():
        return "there is no such file"
    known = pages.get(file)
    if known is not None and unquote(parts.fragment) not in known.places:
        return f"there is no {parts.fragment} on that page"
    return None


def main() -> None:
    """Check the site that the command line names.

    Raises:
        SystemExit: something is wrong, which has been said.
    """
    site = Path(sys.argv[1]).resolve()
    if not (site / "index.html").is_file():
        sys.exit(f"{site} is no built site: it has no index.html; make docs builds one.")
    found = [*faults(site)]
    if found:
        sys.exit("\n".join(found))
    print(f"{sys.argv[1]}: {len([*site.rglob('*.html')])} pages, no dead link, nothing from another server")


if __name__ == "__main__":
    main()
