"""HTTP exceptions of the hosts' frameworks that a model raises: their status and text reach the client, where that is safe."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import werkzeug.exceptions
from django.core.exceptions import PermissionDenied
from django.http import Http404
from fastapi import HTTPException
from flask import Response, abort
from litestar.exceptions import NotAuthorizedException
from starlette.exceptions import HTTPException as StarletteHTTPException

from oip_asgi import InferenceError, InferenceServer, OIPApp
from tests.support.asking import ask, error
from tests.support.ways import Request, over_asgi

TOLD: list[tuple[Callable[[], Any], int, str]] = [
    (lambda: HTTPException(418, "short and stout"), 418, "short and stout"),
    (lambda: HTTPException(422, {"field": "x", "why": ["small"]}), 422, '{"field":"x","why":["small"]}'),
    (lambda: HTTPException(429), 429, "Too Many Requests"),
    (lambda: HTTPException(400, object()), 400, "status 400"),
    (lambda: StarletteHTTPException(503, "in the evening"), 503, "in the evening"),
    (lambda: werkzeug.exceptions.NotFound("no such user"), 404, "no such user"),
    (lambda: werkzeug.exceptions.TooManyRequests(), 429, werkzeug.exceptions.TooManyRequests.description),
    (lambda: Http404("no such row"), 404, "no such row"),
    (lambda: PermissionDenied("not yours"), 403, "not yours"),
    (lambda: PermissionDenied(), 403, "status 403"),
    (lambda: NotAuthorizedException("who?"), 401, "who?"),
]


class OfOurOwn(HTTPException):
    """A subclass, as applications have them."""


@pytest.mark.parametrize(("make", "status", "text"), TOLD, ids=[str(place) for place in range(len(TOLD))])
@pytest.mark.parametrize("kind", ["def", "async def", "generator"])
def test_its_status_and_text_reach_the_client(make: Callable[[], Any], status: int, text: str, kind: str, caplog: Any) -> None:
    def plain(x: Any) -> Any:
        raise make()

    async def awaited(x: Any) -> Any:
        raise make()

    def generator(x: Any) -> Iterator[Any]:
        if x is not None:
            raise make()
        yield x

    server = InferenceServer()
    server.register("m", {"def": plain, "async def": awaited, "generator": generator}[kind])
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [1]}]}).encode()
    action = "infer_stream" if kind == "generator" else "infer"
    assert error(over_asgi(OIPApp(server), "")(Request("POST", f"/models/m/{action}", (), body))) == (status, text)
    logged = [record.levelno for record in caplog.records if record.name == "oip_asgi" and record.levelno >= logging.ERROR]
    assert logged == ([logging.ERROR] if status >= 500 else [])  # what the client did is no failure of the model
    server.stop()


def test_flasks_abort_and_subclasses() -> None:
    server = InferenceServer()
    server.register("flask", lambda: abort(409, "twice"))

    @server.model("own")
    def own() -> Any:
        raise OfOurOwn(410, "gone")

    assert error(ask(server, "flask")) == (409, "twice")
    assert error(ask(server, "own")) == (410, "gone")
    with pytest.raises(InferenceError) as raised:
        server.infer_sync("own", {})
    assert (raised.value.status, str(raised.value), raised.value.grpc_code) == (410, "gone", "INVALID_ARGUMENT")


def test_headers_that_fit_are_sent() -> None:
    server = InferenceServer()

    @server.model("basic")
    def basic() -> Any:
        raise HTTPException(401, "who?", {"WWW-Authenticate": "Basic", "Retry-After": "5"})

    @server.model("broken")
    def broken() -> Any:
        raise HTTPException(401, "who?", {"Content-Length": "5"})

    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/basic/infer", (), b'{"inputs":[]}'))
    assert (answer.status, answer.headers["retry-after"]) == (401, "5")
    assert error(ask(server, "broken")) == (401, "who?")


def redirect() -> Any:
    return HTTPException(307, "elsewhere", {"Location": "/"})


def whole_response() -> Any:
    return werkzeug.exceptions.Forbidden(response=Response("a page"))


def of_a_client() -> Any:
    return httpx2.HTTPStatusError("404 Not Found", request=httpx2.Request("GET", "http://a"), response=httpx2.Response(404))


HOW = ': to answer the client with a status, raise oip_asgi.InferenceError("what was wrong", status=404)'


@pytest.mark.parametrize("make", [redirect, whole_response, of_a_client])
def test_what_is_no_plain_error_is_logged_with_what_to_raise(make: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()

    @server.model("m")
    def m() -> Any:
        raise make()

    assert error(ask(server, "m")) == (500, "model 'm' failed: see the server's log")
    [record] = [record for record in caplog.records if record.name == "oip_asgi"]
    assert record.getMessage() == f"model 'm' failed on a request{HOW}"
