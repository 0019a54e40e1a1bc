"""Rows of the page's files, and of what is near them. What the OpenAPI documents say depends on the mount, and is not in the table."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

import oip_asgi
from tests.support.ways import EXTENSIONS, Request
from tests.table.row import Row

_STATIC = Path(oip_asgi.__file__).parent / "_docs" / "static"

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


_CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
_OF_JAVA = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"


def browser_rows() -> Iterator[Row]:
    """What a browser gets has a link to the page. Without the slash, the link depends on the mount: see core/docs."""
    metadata = f'{{"name":"table","version":"1.2.3","extensions":{EXTENSIONS}}}'
    shown = f"""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>table</title>
<link rel="icon" href="docs/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="docs/page.css">
<main class="plain">
<h1>table <span class="faint">1.2.3</span></h1>
<p>This server answers requests to models by the Open Inference Protocol.
<p><a href="docs">Look at its models and try them</a>
<p class="faint">Programs get this from the same address:
<pre>{html.escape(metadata)}</pre>
</main>
</html>
"""
    as_page = (("content-type", "text/html; charset=utf-8"),)
    for accept in (_CHROME, "text/html"):
        yield Row(f"GET / with Accept: {accept}", Request("GET", "/", (("accept", accept),)), 200, shown.encode(), headers=as_page)
    for accept in ("*/*", "application/json", _OF_JAVA):
        request, as_json = Request("GET", "", (("accept", accept),)), (("content-type", "application/json"),)
        yield Row(f"GET '' with Accept: {accept}", request, 200, metadata.encode(), headers=as_json)


def page_rows() -> Iterator[Row]:
    yield from browser_rows()
    # what the page shows first depends on the models, and on what they have done: its body is looked at in core/docs and hosts
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
    # what generators of clients read, whether or not this server answers gRPC
    proto = (_STATIC.parents[1] / "proto" / "grpc_predict_v2.proto").read_bytes()
    described = (("content-type", "text/plain; charset=utf-8"),)
    yield Row("GET /oip.proto", Request("GET", "/oip.proto"), 200, proto, headers=described)
    yield from _other_methods("/oip.proto")
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
