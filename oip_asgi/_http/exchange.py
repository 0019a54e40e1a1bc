"""One HTTP exchange: a request's head and body -> `Response`, or `Events`. Knows no ASGI, WSGI or framework.

This file has the table of routes, which names the handler of each path, and the handlers of the documents of
OpenAPI and of the page. Extensions add their own routes. The status of an error is in its class, in
`_protocol.errors`, or given where it is raised.

Specification: HTTP/REST API; OpenAPI 3.1; RFC 9110 for ETag and If-None-Match.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, Final, TypeAlias
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
from .._extensions import config, model_statistics, repository, shared_memory
from .._extensions.common import RestRoute
from .._io import IO
from .._models.model import Model, path_of
from .._protocol import schemas
from .._protocol.errors import InferenceError, show
from .._serving.engine import Engine, find_blockers, is_model_ready, say_leaving
from .._serving.failures import as_client_error
from .._serving.guard import Guard
from .._serving.pipeline import infer
from .events import Events, add_headers, answer_with_document, answer_with_events
from .messages import (
    JSON,
    Head,
    Response,
    RestFormat,
    encode_json,
    refuse_foreign,
    respond,
    respond_error,
    respond_json,
)
from .routes import MOST_CHARACTERS, Exchange, Match, Routes, Template, make_method_error, make_path_error

_CORS: Final = "CORSMiddleware of Starlette and FastAPI, flask-cors, django-cors-headers"

_NAME: Final = re.compile(r"(?<=\{)\w+|\w+(?=>)")
"""The name of a variable, as Starlette and Flask write it: {name:int}, <int:name>."""

_PLAIN: Final = re.compile("/models/([^/%]+)(?:/versions/([^/%]+))?/infer")
"""Paths of inference in which nothing is to be decoded."""


_AnswerOnce: TypeAlias = Callable[[Engine, Model, RestFormat, IO], Coroutine[Any, Any, Response]]

_AT_ONCE: Final[dict[str, _AnswerOnce]] = {"infer": infer, "generate": answer_with_document}
"""What answers nearly all requests, by the last segment of the path: for these no route is looked up."""


async def exchange(engine: Engine, head: Head, io: IO, body: bytes | None = None) -> Response | Events:
    """Answer one request. Never raises `Exception`; cancellation, and that the client has gone, pass through.

    The body is given if all of it was there at once, and its length is `head.short_length`.
    """
    wire = RestFormat(head, engine.options.max_body_bytes, engine.options.max_json_bytes, body)
    response: Response | Events
    try:
        path, _, action = head.path.rpartition("/")
        model, answer = engine.models.by_path.get(path), _AT_ONCE.get(action)
        if head.method != "POST" or answer is None or b"sec-fetch-site" in head.fields:
            response = await _call_handler(engine, wire, io)
        elif engine.guard is not None and action == "infer":
            response = await _infer_if_allowed(engine, engine.guard, wire, io)
        elif engine.guard is not None or model is None or model.lifecycle.state != "ready":
            response = await _call_handler(engine, wire, io)
        else:  # as nearly always
            response = await answer(engine, model, wire, io)
        if head.response_headers is not None:
            response = add_headers(response, head.response_headers)
    except Exception as error:
        response = respond_error(as_client_error(error))
    if wire.body is None and not wire.is_read:
        await wire.drop(io)
    if head.method == "HEAD" and type(response) is Response:
        return Response(response.status, response.headers, [], 0)
    return response


async def _infer_if_allowed(engine: Engine, guard: Guard, wire: RestFormat, io: IO) -> Response | Events:
    """Answer a request for inference, if the client may send it. Before that is known, no model is looked up:
    the time that this takes would show whether the model exists."""
    match = _PLAIN.fullmatch(wire.head.path)
    if match is None or len(wire.head.path) > MOST_CHARACTERS:
        return await _call_handler(engine, wire, io)
    name, version = match.groups()
    await guard.ask(io, wire.make_access("infer", name, version))
    return await infer(engine, engine.find_for_inference(name, version), wire, io)


async def _call_handler(engine: Engine, wire: RestFormat, io: IO) -> Response | Events:
    """Find the route of a request, ask whether it is allowed, find its model, and call the handler."""
    head = wire.head
    match = (_WITH_PAGES if engine.options.docs else _WITHOUT_PAGES).match(head.path)
    if match is None:
        raise make_path_error(head.path, head.mount(head))
    action = match.endpoint.action
    if action is not None:
        # any browser sends one of them
        if head.method == "POST" and (b"origin" in head.fields or b"sec-fetch-site" in head.fields):
            refuse_foreign(head.fields, action, engine.options.trusted_origins)
        if engine.guard is not None:
            await engine.guard.ask(
                io, wire.make_access(action, None if match.is_region else match.name, match.version)
            )
        if engine.finders and action == "load":
            await engine.find_new(io)  # it may be new
    handler = match.endpoint.handlers.get(head.method)
    model = None
    if match.name is not None and not match.is_region:
        # only the name of a registered model may have slashes, or end as TensorFlow's `name:predict`
        if (match.is_split or (handler is None and ":" in match.name)) and match.name not in engine.models:
            raise make_path_error(head.path, head.mount(head))
        find = engine.find_for_inference if action == "infer" else engine.models.find
        model = find(match.name, match.version)
    if handler is None:
        raise make_method_error(head.method, match.endpoint.handlers, _find_hint(head, match))
    response: Response | Events
    if model is None:
        response = await handler(Exchange(engine, wire, io, region=match.name))
    else:
        response = await handler(Exchange(engine, wire, io, match.version), model)
    return response


def _find_hint(head: Head, match: Match) -> str:
    """Say what to do instead to a client that sent a POST to the model's own path, or a preflight. Empty for
    other requests."""
    if head.method == "OPTIONS" and b"access-control-request-method" in head.fields:
        return (
            "; a browser asks this before a request from another site, and CORS middleware of the "
            "application answers it: " + _CORS
        )
    if (
        head.method != "POST"
        or match.name is None
        or match.endpoint.handlers.get("GET") is not _describe_model
    ):
        return ""
    path = f"{head.mount(head).rstrip('/')}{path_of(match.name, match.version)}/infer"
    return f"; for inference, POST to {show(path)}"


# The answers of the protocol


async def _answer_ready(request: Exchange) -> Response:
    engine = request.engine
    blockers = await find_blockers(engine, request.io, waits=not request.wire.head.holds_thread)
    document = schemas.ServerReady(blockers is None, True, reason=say_leaving(engine))
    if blockers and engine.guard is None:  # else not everybody may know of each model
        document.models = repository.list_blockers(blockers)
    return respond_json(200 if document.ready else 503, document)


async def _list_models(_: Engine, request: Exchange) -> schemas.ModelList:
    visible = await request.find_visible()
    return schemas.ModelList(list(dict.fromkeys(model.name for model in visible)))


async def _describe_model(request: Exchange, model: Model) -> Response:
    return respond_json(200, request.engine.describe_model(model))


async def _answer_model_ready(request: Exchange, model: Model) -> Response:
    ready = await is_model_ready(request.engine, request.io, model, waits=not request.wire.head.holds_thread)
    return respond_json(
        200 if ready else 503, schemas.ModelReady(model.name, ready, say_leaving(request.engine))
    )


async def _answer_once(answer: _AnswerOnce, request: Exchange, model: Model) -> Response:
    return await answer(request.engine, model, request.wire, request.io)


async def _answer_document(answer: Callable[..., Any], request: Exchange, *model: Model) -> Response:
    document = answer(request.engine, request, *model)
    if isinstance(document, CoroutineType):
        document = await document
    return respond(200, [], []) if document is None else respond(200, [JSON], [encode_json(document)])


# The OpenAPI documents, and the page

_ALWAYS_ASK: Final = (b"cache-control", b"no-cache")
_POLICY: Final = (b"content-security-policy", POLICY.encode())
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")

_OF_JAVA: Final = b"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"
"""What programs in Java accept if they do not say what."""


async def _answer_openapi(request: Exchange) -> Response:
    engine = request.engine
    if engine.guard is not None:  # each client may see other models
        visible = await request.find_visible()
        return _respond_openapi(
            request.wire.head, await _encode_in_thread(request, partial(openapi, engine, visible=visible))
        )
    made_of = list_basis(engine)
    kept = engine.document
    if kept is None or kept[0] != made_of:
        kept = made_of, await _encode_in_thread(request, partial(openapi, engine))
        engine.document = kept
    return _respond_openapi(request.wire.head, kept[1])


async def _answer_openapi_of_model(request: Exchange, model: Model) -> Response:
    visible, controls = await request.find_visible(), await _find_controls(request, model)
    make = partial(openapi_of, request.engine, model, request.version, visible=visible, controls=controls)
    return _respond_openapi(request.wire.head, await _encode_in_thread(request, make))


def _respond_openapi(head: Head, document: bytes) -> Response:
    """Make the response with a document, and add the address at which this client reaches the server."""
    mount = quote(head.mount(head), safe="/:@!$&'()*+,;=~")
    servers = b'{"servers":%b,' % encode_json([{"url": mount or "/"}])
    return respond(200, [JSON, _ALWAYS_ASK], [servers, memoryview(document)[1:]])


async def _answer_page(request: Exchange) -> Response:
    template, visible = await _read_file(request, PAGE), await request.find_visible()
    controls = await _find_controls(request, visible[0]) if visible else []
    first = await _encode_in_thread(request, partial(describe_first, request.engine, visible, controls))
    body = render_page(template, "../" if request.wire.head.path.endswith("/") else "", first)
    return _respond_file(
        request.wire.head, "text/html; charset=utf-8", body, _POLICY, (b"referrer-policy", b"same-origin")
    )


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


async def _encode_in_thread(request: Exchange, make: Callable[[], dict[str, Any]]) -> bytes:
    """Make a document and its JSON, which takes some hundred microseconds for each model."""
    return await request.io.run(lambda: encode_json(make()), "conversion")


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


# The table of routes

_DOCUMENTS: Final = (
    RestRoute("GET", "", lambda engine, _: engine.describe()),
    RestRoute("GET", "/health/live", lambda *_: schemas.ServerLive(True)),
    RestRoute("GET", "/models", _list_models),
    *(*model_statistics.REST, *config.REST, *repository.REST, *shared_memory.REST),
)
ROUTES: Final = [
    RestRoute("GET", "/health/ready", _answer_ready),
    RestRoute("GET", "/models/{model}[/versions/{version}]", _describe_model, "metadata"),
    RestRoute("GET", "/models/{model}[/versions/{version}]/ready", _answer_model_ready, "ready"),
    RestRoute("POST", "/models/{model}[/versions/{version}]/infer", partial(_answer_once, infer), "infer"),
    RestRoute(
        "POST",
        "/models/{model}[/versions/{version}]/infer_stream",
        partial(answer_with_events, may_be_flat=False),
        "infer",
    ),
    RestRoute(
        "POST",
        "/models/{model}[/versions/{version}]/generate",
        partial(_answer_once, answer_with_document),
        "infer",
    ),
    RestRoute(
        "POST",
        "/models/{model}[/versions/{version}]/generate_stream",
        partial(answer_with_events, may_be_flat=True),
        "infer",
    ),
    *(route._replace(answer=partial(_answer_document, route.answer)) for route in _DOCUMENTS),
]
"""The routes of each server."""

_PAGES: Final = [
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

_WITHOUT_PAGES: Final = Routes(ROUTES)
_WITH_PAGES: Final = Routes([*ROUTES, *_PAGES])


def list_templates(engine: Engine, prefix: str = "") -> list[Template]:
    """The paths of a server, as hosts name them. Other paths are answered too, such as those with a slash
    in a name or at the end.

    A variable that the host's `prefix` has already, as in "/{version}/v2", has another name in them: hosts
    take each name once.
    """
    templates = (_WITH_PAGES if engine.options.docs else _WITHOUT_PAGES).templates
    for name in _NAME.findall(prefix):
        templates = [
            template._replace(path=template.path.replace(f"{{{name}}}", f"{{oip_{name}}}"))
            for template in templates
        ]
    return templates


FIRST_SEGMENTS: Final = _WITH_PAGES.first_segments
"""The first segments of all paths of the protocol, except the bare mount."""
