"""The adapter for Django: URL patterns, so that the project's middleware, its users and sessions apply.

Knows Django's requests and responses, under WSGI and under ASGI; the answers come from the core, through `wsgi`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from urllib.parse import unquote

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, re_path
from django.views.decorators.csrf import csrf_exempt

from . import wsgi
from ._core.effects import Fed, Run, Start
from ._core.http.exchange import exchange
from ._core.http.paths import encoded
from ._core.http.request import Head
from ._core.http.response import Response
from ._runtime.drive import advance_async, pieces_async
from ._runtime.waiting import Gone, arrival, signalled
from .server import InferenceServer


def urls(server: InferenceServer, *, compress_responses: bool = False) -> list[URLPattern]:
    """URL patterns that serve the protocol: `path("v2", include(urls(server)))`, without a slash behind `v2`.

    They need a prefix: at the root of a project, `OIPMiddleware` or `OIPWSGIMiddleware` serves it.

    The view is a plain one, which Django runs in a thread of the request's under ASGI too. With an `async def` or a generator among the
    models it is an async one, so that they run on Django's event loop, and streams are sent as they come: register the models first.
    `ATOMIC_REQUESTS` is for plain views.

    A model reaches Django's request, its user and session, through `InferenceContext.transport`.

    Args:
        server: The server whose models it serves.
        compress_responses: Whether successful answers are compressed for clients that accept gzip or deflate.
    """

    def head(request: HttpRequest, path: str) -> Head:
        head = _head(request, path)
        head.compress = compress_responses
        return head

    @csrf_exempt
    def view(request: HttpRequest, path: str, **_: object) -> HttpResponseBase:  # a prefix may have variables of its own
        answer = wsgi.answer(server, head(request, path), partial(wsgi.read, _stream(request)))
        if isinstance(answer, wsgi.Streamed) and not isinstance(request, ASGIRequest):
            return StreamingHttpResponse(answer, status=answer.status, headers=_headers(answer))
        return _response(answer)  # under ASGI, Django would take all of an iterator before it sends anything, and warn of that

    async def async_view(request: HttpRequest, path: str, **_: object) -> HttpResponseBase:
        if not isinstance(request, ASGIRequest):
            # under WSGI there is no event loop but the one that Django made for this view: back to the worker's own thread
            return await sync_to_async(view)(request, path)

        async def read(body: Fed) -> Any:
            return await sync_to_async(wsgi.read)(request, body)

        steps, threads = exchange(server._inside.engine, head(request, path)), _RequestThread()
        answer = await advance_async(steps, threads, read)
        if type(answer) is Response:
            return _response(answer)
        assert type(answer) is Start  # before any piece
        return StreamingHttpResponse(pieces_async(steps, threads), status=answer.status, headers=_headers(answer))

    # Django 4.2's csrf_exempt makes a plain view of an async one
    async_view.csrf_exempt = True  # type: ignore[attr-defined]
    for alias in connections:
        # under ATOMIC_REQUESTS Django refuses async views that do not say so
        transaction.non_atomic_requests(alias)(async_view)

    is_async = any(model.is_async for model in server._inside.engine.models)
    return [re_path(r"\A(?P<path>|/(?s:.*))\Z", async_view if is_async else view)]


class _RequestThread:
    """The thread that Django keeps for a request's blocking code under ASGI: database connections are opened and closed for it."""

    async def run(self, effect: Run, _: Gone | None = None) -> Any:
        if effect.after is not None:
            await signalled(effect.after, effect.deadline)
        result = asyncio.ensure_future(sync_to_async(effect.function)())
        return await arrival(result, effect.deadline, None)


def _head(request: HttpRequest, path: str) -> Head:
    head = wsgi.head(request.META, path, request)
    head.mount = _mount
    if isinstance(request, ASGIRequest):
        raw_path: bytes | None = request.scope.get("raw_path")
        target = None if raw_path is None else raw_path.decode("latin-1")
        head.path, head.body_is_bounded = encoded(path, target), True
    return head


def _mount(head: Head) -> str:
    """The path of the mount as clients see it: all that is in front of the request's own."""
    asked: str = head.transport.path
    return asked.removesuffix(unquote(head.path))


def _stream(request: HttpRequest) -> Any:
    # Django takes a body without a length for empty, even where the server marks its end
    if not request.META.get("CONTENT_LENGTH") and request.META.get("wsgi.input_terminated"):
        return request.META["wsgi.input"]
    return request


def _response(response: Response | wsgi.Streamed) -> HttpResponse:
    return HttpResponse(wsgi.messages(response), status=response.status, headers=_headers(response))


def _headers(response: Response | wsgi.Streamed | Start) -> dict[str, str]:
    return dict(wsgi.headers(response))
