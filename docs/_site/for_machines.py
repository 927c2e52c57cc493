"""Writes what programs read of the site: llms.txt, a list of its pages (llmstxt.org), and each page's Markdown."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from sphinx.application import Sphinx

SUMMARY = "Trains, searches and serves rankers: models that order candidate replies by how well they answer a context."
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def write(app: Sphinx, error: Exception | None) -> None:
    """Write them next to the pages of HTML: a handler of `build-finished`."""
    if error is not None or app.builder.name != "html":
        return
    sources = {name: Path(app.env.doc2path(name)) for name in app.env.found_docs}
    texts = {name: path.read_text("utf-8") for name, path in sources.items() if path.suffix in (".md", ".markdown")}
    for name in texts:
        target = Path(app.outdir, f"{name}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sources[name], target)
    Path(app.outdir, "llms.txt").write_text(listing(texts), "utf-8")


def listing(texts: Mapping[str, str]) -> str:
    """Return the content of llms.txt: the pages in the order and under the captions of the index's toctrees.

    Args:
        texts: the Markdown of each page, by its path without an ending.
    """
    lines = ["# polyagents", "", f"> {SUMMARY}"]
    for block in TOCTREE.findall(texts["index"]):
        names = [name for name in block.split() if name in texts]
        caption = re.search(r"^:caption: (.*)$", block, re.MULTILINE)
        lines += ["", f"## {caption[1] if caption else 'Pages'}", ""] if names else []
        lines += [f"- [{title(texts[name])}]({name}.md)" for name in names]
    return "\n".join(lines) + "\n"


def title(text: str) -> str:
    """Return the first heading of a page."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else "Untitled"
