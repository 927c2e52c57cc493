"""Links from a page to files of the repository that lie outside docs/: to their page on the site, or plain text."""

import os
import re
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent.parent

# Files of the repository that have a page of their own on the site; generated_pages.py copies them. The copies do not
# end in .md, so that whatever reads our Markdown files reads these texts only once.
PAGES = {
    "CHANGELOG.md": "generated/project/changelog.markdown",
    "CONTRIBUTING.md": "generated/project/contributing.markdown",
    "README.md": "index.md",
    "SECURITY.md": "generated/project/security.markdown",
}
LINK = re.compile(r"(?<!!)\[(?P<text>[^][]*(?:\[[^][]*\][^][]*)*)\]\((?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)")


def replace(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the links of a Markdown page: a handler of `source-read`."""
    if Path(app.env.doc2path(docname)).suffix == ".md" and not docname.startswith("generated/"):
        source[0] = with_site_links(source[0], f"docs/{docname}.md", f"{docname}.md")


def with_site_links(text: str, file: str, page: str) -> str:
    """Point the relative links of a Markdown file to where their targets are on the site.

    Args:
        text: what is in the file.
        file: its path in the repository, which its links are relative to.
        page: the path of its page, relative to docs/.

    Returns:
        The text; a link to a file without a page is left as its text alone.
    """

    def one(found: re.Match[str]) -> str:
        target = found["target"]
        if ":" in target.split("/")[0]:  # https:, mailto:
            return found[0]
        path = os.path.normpath(PurePosixPath(file).parent / target)
        inside = path.removeprefix("docs/") if path.startswith("docs/") else PAGES.get(path)
        if inside is None:
            return found["text"]
        return f"[{found['text']}]({os.path.relpath(inside, PurePosixPath(page).parent)}{found['anchor'] or ''})"

    return LINK.sub(one, text)
