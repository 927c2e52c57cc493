"""Writes what follows from the code: pages of commands and flags, and of the files at the top of the repository."""

from pathlib import Path

import agent_flags
import command_pages
from outside_links import PAGES, ROOT, with_site_links


def pages() -> dict[str, str]:
    """All generated pages: path in docs/generated -> text."""
    return {**command_pages.pages(), "agent-flags.rst": agent_flags.page(), **project_pages()}


def project_pages() -> dict[str, str]:
    """The repository's own files, as pages."""
    prefix = "generated/"
    return {
        page.removeprefix(prefix): with_site_links((ROOT / file).read_text("utf-8"), file, page)
        for file, page in PAGES.items()
        if page.startswith(prefix)
    }


def write(folder: Path) -> None:
    """Write all pages to a folder, and remove what else is there; a page that has not changed is not touched."""
    wanted = {folder / name: text for name, text in pages().items()}
    for found in folder.rglob("*.*"):
        if found not in wanted:
            found.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
