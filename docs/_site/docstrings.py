"""Docstrings are plain English with `names` in backticks; reStructuredText would read more into them."""

import re

from docutils import nodes
from sphinx.application import Sphinx

# Left as they are: an example up to the next empty line, code in backticks, bold words. Escaped: what would begin
# emphasis, a substitution or a reference.
PARTS = re.compile(
    r"(?P<example>^[ \t]*>>>.*?(?=^[ \t]*$|\Z))"
    r"|(?P<code>`+[^`]+`+)(?P<ending>\w)?"
    r"|\*\*\S[^*]*\*\*"
    r"|(?<!\\)(?P<markup>\*|\||(?<=\w)_(?=[^\w]|$))",
    re.MULTILINE | re.DOTALL,
)


def escaped(text: str) -> str:
    """Escape the asterisks, bars and trailing underscores of a docstring, so that they are shown as they are."""

    def one(found: re.Match[str]) -> str:
        if found["markup"]:
            return f"\\{found['markup']}"
        if found["ending"]:  # `name`s: code has to end before a space, which this one does not show
            return f"{found['code']}\\ {found['ending']}"
        return found[0]

    return PARTS.sub(one, text)


def escape(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Escape a docstring in place: a handler of `autodoc-process-docstring`."""
    lines[:] = escaped("\n".join(lines)).split("\n")


def use_our_words(app: Sphinx, page: nodes.document) -> None:
    """Say "Attributes" for "Variables", and a colon behind a name: a handler of `doctree-read`."""
    for fields in page.findall(nodes.field_list):
        for text in [*fields.findall(nodes.Text)]:
            if str(text) in (" -- ", "Variables"):
                text.parent.replace(text, nodes.Text({" -- ": ": "}.get(str(text), "Attributes")))
