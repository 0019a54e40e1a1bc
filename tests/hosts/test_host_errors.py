"""HTTP exceptions of the hosts' frameworks that a model raises: their status and text reach the client, where that is safe."""

from __future__ import annotations

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

from oip_asgi import InferenceError, InferenceServer
from tests.support.asking import ask, error
from tests.support.ways import Request, ways_into
from tests.table.row import GOOD, inputs


class OfOurOwn(HTTPException):
    """A subclass, as applications have them."""


TOLD: list[tuple[Callable[[], Any], int, str]] = [
    (lambda: HTTPException(418, "short and stout"), 418, "short and stout"),
    (lambda: HTTPException(422, {"field": "x", "why": ["small"]}), 422, '{"field":"x","why":["small"]}'),
    (lambda: HTTPException(429), 429, "Too Many Requests"),
    (lambda: HTTPException(400, object()), 400, "status 400"),
    (lambda: OfOurOwn(410, "gone"), 410, "gone"),
    (lambda: StarletteHTTPException(503, "in the evening"), 503, "in the evening"),
    (lambda: werkzeug.exceptions.NotFound("no such user"), 404, "no such user"),
    (lambda: werkzeug.exceptions.TooManyRequests(), 429, werkzeug.exceptions.TooManyRequests.description),
    (lambda: abort(409, "twice"), 409, "twice"),
    (lambda: Http404("no such row"), 404, "no such row"),
    (lambda: PermissionDenied("not yours"), 403, "not yours"),
    (lambda: PermissionDenied(), 403, "status 403"),
    (lambda: NotAuthorizedException("who?"), 401, "who?"),
]


@pytest.mark.parametrize(("make", "status", "text"), TOLD, ids=[str(place) for place in range(len(TOLD))])
def test_its_status_and_text_reach_the_client(make: Callable[[], Any], status: int, text: str, caplog: pytest.LogCaptureFixture) -> None:
    def plain(x: Any) -> Any:
        raise make()

    async def awaited(x: Any) -> Any:
        raise make()

    def generator(x: Any) -> Iterator[Any]:
        if x is not None:
            raise make()
        yield x

    server = InferenceServer()
    for action, function in (("infer", plain), ("infer", awaited), ("infer_stream", generator)):
        caplog.clear()
        server.register("m", function)
        assert error(ways_into(server)["OIPApp"](Request("POST", f"/models/m/{action}", (), inputs(GOOD)))) == (status, text)
        logged = [record.levelno for record in caplog.records if record.name == "oip_asgi" and record.levelno >= logging.ERROR]
        assert logged == ([logging.ERROR] if status >= 500 else [])  # what the client did is no failure of the model
        server.unregister_sync("m")
    server.stop()


def raising(make: Callable[[], Any]) -> InferenceServer:
    server = InferenceServer()

    @server.model("m")
    def m() -> Any:
        raise make()

    return server


def test_in_python_and_headers_that_fit_are_sent() -> None:
    with pytest.raises(InferenceError) as raised:
        raising(lambda: OfOurOwn(410, "gone")).infer_sync("m", {})
    assert (raised.value.status, str(raised.value), raised.value.grpc_code) == (410, "gone", "INVALID_ARGUMENT")
    answer = ask(raising(lambda: HTTPException(401, "who?", {"WWW-Authenticate": "Basic", "Retry-After": "5"})), "m")
    assert (answer.status, answer.headers["retry-after"]) == (401, "5")
    assert error(ask(raising(lambda: HTTPException(401, "who?", {"Content-Length": "5"})), "m")) == (401, "who?")


def redirect() -> Any:
    return HTTPException(307, "elsewhere", {"Location": "/"})


def whole_response() -> Any:
    return werkzeug.exceptions.Forbidden(response=Response("a page"))


def of_a_client() -> Any:
    return httpx2.HTTPStatusError("404 Not Found", request=httpx2.Request("GET", "http://a"), response=httpx2.Response(404))


HOW = ': to answer the client with a status, raise oip_asgi.InferenceError("what was wrong", status=404)'


@pytest.mark.parametrize("make", [redirect, whole_response, of_a_client])
def test_what_is_no_plain_error_is_logged_with_what_to_raise(make: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    assert error(ask(raising(make), "m")) == (500, "model 'm' failed: see the server's log")
    [record] = [record for record in caplog.records if record.name == "oip_asgi"]
    assert record.getMessage() == f"model 'm' failed on a request{HOW}"
