"""The routes of the OpenAPI documents and of the page. Knows no other routes.

Specification: OpenAPI 3.1; RFC 9110 for ETag and If-None-Match.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from .._docs.documents import (
    FILES,
    PAGE,
    POLICY,
    describe_first,
    describe_state,
    list_basis,
    openapi,
    openapi_of,
    read,
    render_page,
    render_server,
)
from .._docs.operations import CONTROLS, Control
from .._extensions.common import RestRoute
from .._models.model import Model
from .._protocol.errors import InferenceError
from .messages import JSON, Head, Response, encode_json, respond
from .routes import Exchange

_ALWAYS_ASK: Final = (b"cache-control", b"no-cache")
_POLICY: Final = (b"content-security-policy", POLICY.encode())
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")


async def _answer_openapi(request: Exchange) -> Response:
    engine = request.engine
    if engine.guard is not None:  # each client may see other models
        visible = await request.find_visible()
        return _respond_document(
            request.wire.head, await _encode_document(request, partial(openapi, engine, visible=visible))
        )
    made_of = list_basis(engine)
    kept = engine.document
    if kept is None or kept[0] != made_of:
        kept = made_of, await _encode_document(request, partial(openapi, engine))
        engine.document = kept
    return _respond_document(request.wire.head, kept[1])


async def _answer_openapi_of_model(request: Exchange, model: Model) -> Response:
    visible, controls = await request.find_visible(), await _find_controls(request, model)
    make = partial(openapi_of, request.engine, model, request.version, visible=visible, controls=controls)
    return _respond_document(request.wire.head, await _encode_document(request, make))


async def _find_controls(request: Exchange, model: Model) -> list[Control]:
    """Find whether a client may load and unload a model."""
    engine, allowed = request.engine, []
    for action in CONTROLS if engine.options.model_control else ():
        try:
            if engine.guard is not None:
                await engine.guard.ask(request.io, request.wire.make_access(action, model.name, None))
        except InferenceError:
            continue
        allowed.append(action)
    return allowed


async def _encode_document(request: Exchange, make: Callable[[], dict[str, Any]]) -> bytes:
    # some hundred microseconds for each model
    return await request.io.run(lambda: encode_json(make()), "conversion")


def _respond_document(head: Head, document: bytes) -> Response:
    """Make the response with a document, and add the address at which this client reaches the server."""
    mount = quote(head.mount(head), safe="/:@!$&'()*+,;=~")
    servers = b'{"servers":%b,' % encode_json([{"url": mount or "/"}])
    return respond(200, [JSON, _ALWAYS_ASK], [servers, memoryview(document)[1:]])


async def _answer_page(request: Exchange) -> Response:
    template, visible = await _read_file(request, PAGE), await request.find_visible()
    controls = await _find_controls(request, visible[0]) if visible else []
    first = await _encode_document(request, partial(describe_first, request.engine, visible, controls))
    body = render_page(template, "../" if request.wire.head.path.endswith("/") else "", first)
    return _respond_file(
        request.wire.head, "text/html; charset=utf-8", body, _POLICY, (b"referrer-policy", b"same-origin")
    )


_OF_JAVA: Final = b"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"
"""What programs in Java accept if they do not say what."""


async def _answer_server(request: Exchange) -> Response:
    """The server's metadata; for a browser, with a link to the page."""
    head, metadata = request.wire.head, encode_json(request.engine.describe())
    accepted = head.fields.get(b"accept", b"")
    if b"text/html" not in accepted or accepted == _OF_JAVA:
        return respond(200, [JSON], [metadata])
    # relative, as a proxy may have removed what is before it
    page = "docs" if head.path.endswith("/") else f"{quote(head.mount(head).rpartition('/')[2])}/docs"
    described = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"cache-control", b"no-store"),
        _NO_SNIFFING,
        _POLICY,
    ]
    return respond(200, described, [render_server(request.engine, metadata, page)])


async def _answer_state(request: Exchange, model: Model) -> Response:
    guard = request.engine.guard
    if guard is not None:  # it has the options too
        await guard.ask(request.io, request.wire.make_access("config", model.name, request.version))
    return respond(200, [JSON], [encode_json(describe_state(request.engine, model))])


async def _answer_file(path: str, media_type: str, request: Exchange) -> Response:
    return _respond_file(request.wire.head, media_type, await _read_file(request, path))


async def _read_file(request: Exchange, path: str) -> bytes:
    return await request.io.run(partial(read, path), "conversion")


def _respond_file(head: Head, media_type: str, body: bytes, *more: tuple[bytes, bytes]) -> Response:
    # weak, because a compressed response has the same
    etag = b'W/"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
    described = [(b"etag", etag), _ALWAYS_ASK, _NO_SNIFFING, *more]
    tags = [
        tag.strip() for name, value in head.headers if name == b"if-none-match" for tag in value.split(b",")
    ]
    # the client has the current version
    if b"*" in tags or etag.removeprefix(b"W/") in {tag.removeprefix(b"W/") for tag in tags}:
        return Response(304, described, [], 0)
    return respond(200, [(b"content-type", media_type.encode()), *described], [body])


ROUTES: Final = [
    RestRoute("GET", "", _answer_server),
    RestRoute("GET", "/docs", _answer_page),
    *[
        RestRoute("GET", f"/docs/{name}", partial(_answer_file, f"_docs/static/{name}", kind))
        for name, kind in FILES.items()
    ],
    RestRoute(
        "GET", "/oip.proto", partial(_answer_file, "proto/grpc_predict_v2.proto", "text/plain; charset=utf-8")
    ),
    RestRoute("GET", "/openapi.json", _answer_openapi),
    RestRoute(
        "GET", "/models/{model}[/versions/{version}]/openapi.json", _answer_openapi_of_model, "metadata"
    ),
    RestRoute("GET", "/models/{model}[/versions/{version}]/docs/state.json", _answer_state, "statistics"),
    # the addresses of MLServer
    RestRoute("GET", "/docs/dataplane.json", _answer_openapi),
    RestRoute(
        "GET",
        "/models/{model}[/versions/{version}]/docs/dataplane.json",
        _answer_openapi_of_model,
        "metadata",
    ),
]
"""They are in the table unless the server has `docs=False`; the first of them takes the place of one without
a link to the page."""
