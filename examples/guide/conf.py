"""How Sphinx makes a site of these pages: `tox -e docs` builds it in `.tox/docs/site`. Knows nothing of what they say."""

from __future__ import annotations

import posixpath
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


def name_files(app: Any, document: Any) -> None:
    """Write words and path for each link to a file or a folder of the repository that is no page, as the site does not have it."""
    from docutils import nodes

    for node in [*document.findall(lambda node: node.tagname in ("pending_xref", "reference"))]:
        target = node.get("reftarget") or node.get("refid") or ""
        if target.startswith(("../", "/")):
            path = find_path(str(app.srcdir), target) + ".md" * (node.get("refdomain") == "doc")
            words, code = node.astext(), nodes.literal(path, path)
            node.replace_self([code] if path.endswith(words) else [nodes.Text(f"{words} ("), code, nodes.Text(")")])


def find_path(folder: str, target: str) -> str:
    """The path in the repository of what a page in a folder links to."""
    return posixpath.relpath(posixpath.join(folder, target), posixpath.join(folder, "../.."))


def index_statuses(app: Any, docname: str, source: list[str]) -> None:
    """Make each status of HTTP that a page names an entry of the index: the search finds no other numbers."""
    if statuses := sorted(set(re.findall(r"\b[45]\d\d\b", source[0]))):
        title, _, rest = source[0].partition("\n")
        source[0] = f"{title}\n\n```{{index}} {', '.join(statuses)}\n```\n{rest}"


def setup(app: Any) -> None:
    from pygments.lexers.special import TextLexer

    app.connect("doctree-read", name_files)
    app.connect("source-read", index_statuses)
    app.add_lexer("haproxy", TextLexer)  # for which Pygments has none
