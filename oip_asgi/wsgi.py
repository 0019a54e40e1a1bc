"""The adapters for WSGI: an application to mount, and a middleware. They translate `environ` and decide
nothing.

Knows `environ` and `start_response`; the answers come from the core. Frameworks over WSGI share `head`,
`answer`, `headers` and `feed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

from werkzeug.datastructures import EnvironHeaders
from werkzeug.exceptions import HTTPException
from werkzeug.http import HTTP_STATUS_CODES

from ._hosts.frameworks import check_server, check_wsgi, describe_before_request
from ._http.events import Events
from ._http.exchange import exchange
from ._http.messages import Head, Response, encode_path, path_under, prefix_of
from ._io import Fed, finish
from ._protocol.errors import InvalidRequest, TakenBy, logger
from ._runtime.blocking_io import BlockingIO, iterate_stream_blocking
from .server import InferenceServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

CHUNK: Final = 2**20

_NEVER: Final[Any] = None
"""Stands for an argument that WSGI always has, and ASGI not."""


class Stream(Protocol):
    """The stream of a body."""

    def read(self, size: int, /) -> bytes: ...


class OIPWSGIApp:
    """A WSGI application that speaks the Open Inference Protocol, to be mounted in another one, such as by
    `DispatcherMiddleware`.

    Args:
        server: The server whose models it serves.

    Raises:
        TypeError: `server` is no `InferenceServer`.

    Example:
        >>> app = DispatcherMiddleware(NotFound(), {"/v2": OIPWSGIApp(InferenceServer())})
    """

    def __init__(self, server: InferenceServer) -> None:
        check_server(server, "OIPWSGIApp", "OIPWSGIApp(server)")
        self._server = server

    def __call__(
        self, environ: WSGIEnvironment, start_response: StartResponse = _NEVER, _: object = None
    ) -> Iterable[bytes]:
        if "REQUEST_METHOD" not in environ:
            raise TypeError(
                "OIPWSGIApp is a WSGI application, and an ASGI server or application called it: write "
                "OIPApp(server)"
            )
        return self.answer(environ, start_response, _decode_path(environ.get("PATH_INFO", "")))

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse, path: str) -> Iterable[bytes]:
        """Answer a request whose path below the mount is already known, such as "/health/live"; "" is the
        mount itself."""
        response, body = answer(self._server, make_head(environ, path, environ), environ["wsgi.input"])
        start_response(
            f"{response.status} {HTTP_STATUS_CODES.get(response.status, 'Error')}", convert_headers(response)
        )
        return body


class OIPWSGIMiddleware:
    """Serves the protocol at a path of any WSGI application, and passes everything else to that application.

    Args:
        app: The application around which it is put, such as `flask_app.wsgi_app`.
        server: The server whose models it serves.
        path: Where to, such as "/v2".

    Raises:
        TypeError: `app` is no WSGI application, or `server` no `InferenceServer`, such as if they are
            swapped.
        ValueError: The path does not begin with a slash.

    Example:
        >>> def application(environ, start_response): ...
        >>> app = OIPWSGIMiddleware(application, InferenceServer(), "/v2")
    """

    def __init__(self, app: WSGIApplication, server: InferenceServer, path: str = "/v2") -> None:
        check_server(server, "OIPWSGIMiddleware", "OIPWSGIMiddleware(app, server), the application first")
        check_wsgi(app, "OIPWSGIMiddleware(app, server), the application first")
        self._host = app
        self._app = OIPWSGIApp(server)
        self._prefix = prefix_of(path)
        self._is_checked = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = path_under(_decode_path(environ.get("PATH_INFO", "")), self._prefix)
        if path is None:
            return self._host(environ, start_response)
        # at the first request, as Flask's functions may be added after this was made
        if not self._is_checked:
            self._is_checked = True
            inside = describe_before_request(self._host, self._prefix or "/")
            if inside:
                logger.warning(inside)
        return self._app.answer(environ, start_response, path)


def _decode_path(value: str) -> str:
    """Decode a path: WSGI passes bytes as latin-1."""
    return value.encode("latin-1").decode(errors="replace")


def make_head(environ: WSGIEnvironment, path: str, transport: object) -> Head:
    """Make a request's head from its `environ`, for a path below the mount that is already known."""
    return Head(
        method=environ["REQUEST_METHOD"],
        path=encode_path(path, environ.get("REQUEST_URI") or environ.get("RAW_URI")),
        headers=[
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in EnvironHeaders(environ)
        ],
        body_is_bounded=bool(environ.get("CONTENT_LENGTH") or environ.get("wsgi.input_terminated")),
        transport=transport,
        mount=lambda head: _find_mount(environ, head),
        holds_thread=True,
    )


def _find_mount(environ: WSGIEnvironment, head: Head) -> str:
    """Find the path of the mount as clients see it: everything in front of the request's own path."""
    return _decode_path(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).removesuffix(
        unquote(head.path)
    )


def answer(
    server: InferenceServer,
    head: Head,
    stream: Stream,
    read: Callable[[Stream, Fed, bytes], Any] | None = None,
) -> tuple[Response | Events, Iterator[bytes]]:
    """Answer a request in this thread: return the response's head, and its body as WSGI and its frameworks
    take it.

    `read` feeds a stream into a body, after what was read of it already, as `feed` does, which is the
    default.

    If the head is one of `Events`, each piece is made when the server asks for it, and closing the body ends
    the stream. Servers close it at the end, and when the client has gone.
    """
    engine, runtime = server._inside
    is_short = 0 < head.short_length <= engine.short_body
    begun = _read_at_once(stream, head.short_length) if is_short else b""
    io = BlockingIO(runtime, lambda body: (read or feed)(stream, body, begun))
    answer: Response | Events | None = None
    try:
        answer = finish(
            exchange(engine, head, io, begun if is_short and len(begun) == head.short_length else None)
        )
    finally:
        if type(answer) is not Events:
            io.end()
    if isinstance(answer, Events):
        items = answer.items
        pieces = iterate_stream_blocking(lambda: items, io, answer.first)
        next(pieces, None)  # the head
        return answer, pieces
    assert isinstance(answer, Response)
    return answer, (message for message, _ in answer.messages())


def convert_headers(response: Response | Events) -> list[tuple[str, str]]:
    """Convert a response's headers for WSGI and its frameworks."""
    return [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in response.headers]


def _read_at_once(stream: Stream, length: int) -> bytes:
    """All of a short body, or what there is of it. `feed` finds again why there is no more, and says it."""
    body = b""
    with suppress(Exception):
        while len(body) < length and (chunk := stream.read(length - len(body))):
            body += chunk
    return body


def feed(
    stream: Stream, body: Fed, begun: bytes = b"", taken_by: TakenBy | None = None, *, is_taken: bool = False
) -> Any:
    """Feed a stream into a body, and return what it finishes with.

    Args:
        stream: The stream.
        body: The body.
        begun: What was read of the stream already.
        taken_by: What may have read the stream before, if it has ended in order. None if that cannot be told
            from a client that went.
        is_taken: Whether something has read of it.

    Raises:
        InvalidRequest: The server in front could not read the body, such as its chunks.
        HTTPException: A framework's own stream raised it.
    """
    body.feed(begun)
    while chunk := _next_chunk(stream, body):
        body.feed(chunk)
    return body.finish(cut_off=True) if chunk is None else body.finish(cut_off=is_taken, taken_by=taken_by)


def _next_chunk(stream: Stream, body: Fed) -> bytes | None:
    """Read the next chunk of a body; empty at its end, None if it is cut off. Raises what `read` raises."""
    size = body.count_next(CHUNK)
    if not size:
        return b""
    try:
        return stream.read(size)
    except OSError:
        # servers and frameworks raise it if the client went away, or sent broken chunks
        return None
    except HTTPException:
        raise
    except Exception as error:
        # servers have their own classes for broken chunks; gunicorn's are no OSErrors any more
        raise InvalidRequest(
            f"the body cannot be read: the server in front says {type(error).__name__}"
        ) from error
