"""What browsers say about the page that sends a request, and which pages are refused. Knows no routes.

A form, an image or a link on a foreign page sends requests with the cookies of the user, and no preflight
stops them. The host's CORS middleware decides what a script on a foreign page may read.

Specification: Fetch Metadata; RFC 6454 for Origin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from .._protocol.context import CHANGES, Action
from .._protocol.errors import Forbidden, show

_SAME_ORIGIN: Final = (b"same-origin", b"none")
_SAME_SITE: Final = (*_SAME_ORIGIN, b"same-site")
_WITHOUT_PREFLIGHT: Final = (b"no-cors", b"navigate")


def refuse_foreign(
    fields: Mapping[bytes, bytes], action: Action | None, trusted_origins: Collection[str]
) -> None:
    """Refuse a POST that a browser sends for a page of another site."""
    origin, site = fields.get(b"origin"), fields.get(b"sec-fetch-site", b"none").lower()
    if origin is not None and origin.decode("latin-1") in trusted_origins:
        return
    if action in CHANGES:
        host = fields.get(b"host", b"").lower()
        own = (None, b"http://" + host, b"https://" + host)
        is_foreign = site not in _SAME_ORIGIN or (origin and origin.lower()) not in own
    else:
        is_foreign = (
            action == "infer"
            and site not in _SAME_SITE
            and fields.get(b"sec-fetch-mode", b"").lower() in _WITHOUT_PREFLIGHT
        )
    if is_foreign:
        page = "another site" if origin is None else show(origin.decode("latin-1"))
        raise Forbidden(
            f"a page of {page} sent this request: the server lets pages of its own origin and of "
            "trusted_origins= do that"
        )
