"""The files of the page that shows the models, in the folder `static`, and the headers that a browser needs. Knows no requests.

The page's own script asks the same paths as any client, relative to its own address, so it works with each prefix and proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

PAGE: Final = "page.html"

_SCRIPTS: Final = ("page.js", "elements.js", "fields.js", "json.js", "numbers.js", "plot.js", "snippets.js", "statistics.js")

FILES: Final[Mapping[str, str]] = {
    "page.css": "text/css; charset=utf-8",
    **dict.fromkeys(_SCRIPTS, "text/javascript; charset=utf-8"),
    "icon.svg": "image/svg+xml",
}
"""What the page loads, and the media type of each."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The page's Content-Security-Policy: nothing inline, nothing from elsewhere."""

_BASE: Final = b"{base}"
_FIRST: Final = b"{first}"


def read(name: str) -> bytes:
    """One of the files, also if the package is in an archive."""
    return files(__package__).joinpath("static", name).read_bytes()


def render(template: bytes, base: str, first: bytes) -> bytes:
    """The page, and in it the JSON of what it shows first, in which nothing can end its element."""
    return template.replace(_BASE, base.encode()).replace(_FIRST, first.replace(b"<", rb"\u003c"))
