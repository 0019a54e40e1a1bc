"""The adapters for WSGI: an application to mount, and a middleware. They translate `environ` and decide nothing.

Knows `environ` and `start_response`; the answers come from the core. Frameworks over WSGI share `head`, `answer`, `headers`, `has_type`
and `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

from werkzeug.datastructures import EnvironHeaders
from werkzeug.exceptions import HTTPException
from werkzeug.http import HTTP_STATUS_CODES

from ._hosts import check_server, check_wsgi
from ._http.exchange import exchange
from ._http.request import Head, encode_path, path_under, prefix_of
from ._http.response import Response
from ._protocol.effects import Fed, Start
from ._protocol.errors import InvalidRequest
from ._runtime.blocking import Driver, pieces
from .server import InferenceServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

CHUNK: Final = 2**20


class Stream(Protocol):
    """What a body is read from."""

    def read(self, size: int, /) -> bytes: ...


class OIPWSGIApp:
    """A WSGI application that speaks the Open Inference Protocol, to be mounted in another one, such as by `DispatcherMiddleware`.

    Args:
        server: The server whose models it serves.

    Raises:
        TypeError: `server` is no `InferenceServer`.
    """

    def __init__(self, server: InferenceServer) -> None:
        check_server(server, "OIPWSGIApp", "OIPWSGIApp(server)")
        self._server = server

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return self.answer(environ, start_response, _read_path(environ))

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse, path: str) -> Iterable[bytes]:
        """Answer a request whose path below the mount is already known, such as "/health/live"; "" is the mount itself."""
        response, body = answer(self._server, head(environ, path, environ), partial(read, environ["wsgi.input"]))
        start_response(f"{response.status} {HTTP_STATUS_CODES.get(response.status, 'Error')}", headers(response))
        return body


class OIPWSGIMiddleware:
    """Serves the protocol at a path of any WSGI application, and hands everything else on.

    Args:
        app: The application around which it is put, such as `flask_app.wsgi_app`.
        server: The server whose models it serves.
        path: Where to, such as "/v2".

    Raises:
        TypeError: `app` is no WSGI application, or `server` no `InferenceServer`, as where they are swapped.
        ValueError: The path does not begin with a slash.
    """

    def __init__(self, app: WSGIApplication, server: InferenceServer, path: str = "/v2") -> None:
        check_server(server, "OIPWSGIMiddleware", "OIPWSGIMiddleware(app, server), the application first")
        check_wsgi(app, "OIPWSGIMiddleware(app, server), the application first")
        self._host = app
        self._app = OIPWSGIApp(server)
        self._prefix = prefix_of(path)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = path_under(_read_path(environ), self._prefix)
        if path is None:
            return self._host(environ, start_response)
        return self._app.answer(environ, start_response, path)


def _read_path(environ: WSGIEnvironment) -> str:
    return _decode(environ.get("PATH_INFO", ""))


def _decode(value: str) -> str:
    """A path as text: WSGI hands bytes over as latin-1."""
    return value.encode("latin-1").decode(errors="replace")


def head(environ: WSGIEnvironment, path: str, transport: object) -> Head:
    """A request's head from its `environ`, for a path below the mount that is already known."""
    return Head(
        method=environ["REQUEST_METHOD"],
        path=encode_path(path, environ.get("REQUEST_URI") or environ.get("RAW_URI")),
        headers=[(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in EnvironHeaders(environ)],
        body_is_bounded=bool(environ.get("CONTENT_LENGTH") or environ.get("wsgi.input_terminated")),
        transport=transport,
        mount=partial(_mount, environ),
    )


def _mount(environ: WSGIEnvironment, head: Head) -> str:
    """The path of the mount as clients see it: all that is in front of the request's own."""
    return _decode(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).removesuffix(unquote(head.path))


def answer(server: InferenceServer, head: Head, read: Callable[[Fed], Any]) -> tuple[Response | Start, Iterator[bytes]]:
    """Answer a request in this thread: the response's head, and its body as WSGI and its frameworks take it.

    If that is a `Start`, each piece is made when it is asked for, and closing the body ends them. Servers do that at the end, and when the
    client has gone.
    """
    engine, runtime = server._inside
    driver = Driver(exchange(engine, head), runtime, read)
    answer = driver.advance()
    if type(answer) is Response:
        return answer, (message for message, _ in answer.messages())
    assert type(answer) is Start  # before any piece
    body = pieces(driver, answer)
    next(body)  # the head
    return answer, body


def headers(response: Response | Start) -> list[tuple[str, str]]:
    """A response's headers as WSGI and its frameworks take them."""
    return [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in response.headers]


def has_type(response: Response | Start) -> bool:
    """Whether a response says what its body is. One that is empty does not, and frameworks call that HTML."""
    return b"content-type" in dict(response.headers)


def read(stream: Stream, body: Fed) -> Any:
    """Feed a stream into a body, and return what it finishes with.

    Raises:
        InvalidRequest: The server in front could not make sense of what came, such as of chunks.
        HTTPException: What a framework's own stream says.
    """
    while chunk := _next_chunk(stream, body):
        body.feed(chunk)
    return body.finish(cut_off=chunk is None)


def _next_chunk(stream: Stream, body: Fed) -> bytes | None:
    """The next chunk of a body, empty at its end; None where it is cut off. It raises what `read` does."""
    wanted = body.wanted(CHUNK)
    if not wanted:
        return b""
    try:
        return stream.read(wanted)
    except OSError:
        # how servers and frameworks say that the client went away, or broke its chunks
        return None
    except HTTPException:
        raise
    except Exception as error:
        # servers have classes of their own for broken chunks; gunicorn's are no OSErrors any more
        raise InvalidRequest(f"the body cannot be read: the server in front says {type(error).__name__}") from error
