"""Sphinx's settings for the documentation site: `make docs` builds it into build/docs.

Pages are Markdown, so that GitHub shows them too. What follows from the code is generated when a build begins, into
docs/generated/, which git ignores (docs/_site/).
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER / "_site"), str(FOLDER.parent)]

import docstrings  # noqa: E402  (found by the line above, as the next three are)
import for_machines  # noqa: E402
import generated_pages  # noqa: E402
import outside_links  # noqa: E402

from polyagents import __version__  # noqa: E402

project = "polyagents"
version = release = __version__
html_title = f"polyagents {release}"
copyright = "the polyagents authors, MIT licence"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".markdown": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_site"]

# ---- Markdown and docstrings -----------------------------------------------------------------------------------------

myst_heading_anchors = 4  # a link may name any heading, by GitHub's rule for its anchor
default_role = "py:obj"  # `name` in a docstring is code, and a link where the reference has that name
smartquotes = False  # quotes stay what they are, so that commands can be pasted
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # "Attributes:" without an entry of its own for each
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 88  # longer signatures have a line for each parameter

# ---- the theme -------------------------------------------------------------------------------------------------------

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False  # the search shows passages of the pages themselves
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "tango", "github-dark"


def setup(app: Sphinx) -> None:
    """Connect what this site does beyond Sphinx's own."""
    app.connect("builder-inited", lambda _: generated_pages.write(FOLDER / "generated"))
    app.connect("source-read", outside_links.replace)
    app.connect("autodoc-process-docstring", docstrings.escape, priority=400)  # before napoleon, which writes markup
    app.connect("doctree-read", docstrings.use_our_words)
    app.connect("build-finished", for_machines.write)
