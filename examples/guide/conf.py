"""How Sphinx makes a site of these pages: `tox -e docs` builds it in `.tox/docs/site`. Knows nothing of what they say."""

from __future__ import annotations

import re
from typing import Any

project = "oip_asgi"
copyright = "the authors of oip_asgi"  # noqa: A001  (as Sphinx calls it)
html_title = "oip_asgi"
html_theme = "furo"
html_copy_source = False
html_theme_options = {"source_edit_link": "", "navigation_with_keys": True}
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
root_doc = "index"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
default_role = "code"
autodoc_member_order = "bysource"
# links to files that are no pages; that each link leads to something is what tests/test_readme.py checks
suppress_warnings = ["myst.xref_missing"]


def name_file(app: Any, env: Any, node: Any, content: Any) -> Any:
    """What stands for a link to a file or a folder of the repository that is no page: its name, as the site does not have it."""
    return content


def name_folders(app: Any, document: Any, docname: str) -> None:
    """The same for folders, which the parser takes for anchors of the page."""
    for node in [*document.findall(lambda node: node.tagname == "reference" and node.get("refid", "").startswith("../"))]:
        node.replace_self(node.children)


def index_statuses(app: Any, docname: str, source: list[str]) -> None:
    """Make each status of HTTP that a page names an entry of the index: the search finds no other numbers."""
    if statuses := sorted(set(re.findall(r"\b[45]\d\d\b", source[0]))):
        title, _, rest = source[0].partition("\n")
        source[0] = f"{title}\n\n```{{index}} {', '.join(statuses)}\n```\n{rest}"


def setup(app: Any) -> None:
    from pygments.lexers.special import TextLexer

    app.connect("missing-reference", name_file)
    app.connect("doctree-resolved", name_folders)
    app.connect("source-read", index_statuses)
    app.add_lexer("haproxy", TextLexer)  # for which Pygments has none
