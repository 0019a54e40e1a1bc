"""One HTTP exchange: a request's head and body -> `Response`, or `Events`. Knows no ASGI, WSGI or framework.

This file has the table of routes, which names the handler of each path. Extensions add their own routes. The
status of an error is in its class, in `_protocol.errors`, or given where it is raised.

Specification: HTTP/REST API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, Final, TypeAlias

from .._extensions import config, model_statistics, repository, shared_memory
from .._extensions.common import RestRoute
from .._io import IO
from .._models.model import Model
from .._models.registry import path_of
from .._protocol import schemas
from .._protocol.errors import show
from .._serving.engine import Engine, find_blockers, is_model_ready, say_leaving
from .._serving.failures import as_client_error
from .._serving.guard import Guard
from .._serving.pipeline import infer
from . import pages
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

_WITHOUT_PAGES: Final = Routes(ROUTES)
_WITH_PAGES: Final = Routes([*ROUTES, *pages.ROUTES])


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
