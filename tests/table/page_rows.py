"""Rows of the page's files, and of what is near them. What the OpenAPI documents say depends on the mount, and is not in the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import oip_asgi
from tests.support.ways import Request
from tests.table.row import Row

_STATIC = Path(oip_asgi.__file__).parent / "_docs" / "static"

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def page_rows() -> Iterator[Row]:
    # what the page shows first depends on the models, and on what they have done: its body is looked at in core/pages and hosts
    for path in ("/docs", "/docs/"):
        described = (("content-type", "text/html; charset=utf-8"),)
        yield Row(f"HEAD {path}", Request("HEAD", path), 200, headers=described)
        yield from _other_methods(path)
    files = {f"/docs/{path.name}": (_TYPES[path.suffix], path.read_bytes()) for path in sorted(_STATIC.iterdir()) if path.suffix in _TYPES}
    for path, (media_type, body) in files.items():
        described = (("content-type", media_type),)
        yield Row(f"GET {path}", Request("GET", path), 200, body, headers=described)
        yield Row(f"HEAD {path}", Request("HEAD", path), 200, headers=(*described, ("content-length", str(len(body)))))
        yield from _other_methods(path)
    for path in (
        "/openapi.json",
        "/docs/dataplane.json",
        "/models/echo/openapi.json",
        "/models/org%2Fmodel/docs/dataplane.json",
        "/models/echo/docs/state.json",
    ):
        yield Row(f"POST {path}", Request("POST", path), 405, headers=(("allow", "GET, HEAD"),))
    for path in (
        "/docs/page.html",
        "/docs/other.js",
        "/docs/page.js/x",
        "/docs/..%2F__init__.py",
        "/docs/%2e%2e/x",
        "/docs/static/page.js",
    ):
        yield Row(f"unknown path {path}", Request("GET", path), 404, text=("unknown path",))
    for path in ("/models/nope/openapi.json", "/models/nope/docs/dataplane.json", "/models/echo/versions/7/openapi.json"):
        yield Row(f"unknown model {path}", Request("GET", path), 404, text=("Request for unknown model: ",))


def _other_methods(path: str) -> Iterator[Row]:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        yield Row(f"{method} {path}", Request(method, path), 405, headers=(("allow", "GET, HEAD"),))
