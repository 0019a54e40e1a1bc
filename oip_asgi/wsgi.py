"""The adapters for WSGI: an application to mount, and a middleware. They translate `environ` and decide nothing.

Knows `environ` and `start_response`; the answers come from the core. Frameworks over WSGI share `head`, `answer`, `headers`, `has_type`,
`messages` and `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final
from urllib.parse import unquote

from werkzeug.datastructures import EnvironHeaders
from werkzeug.exceptions import HTTPException
from werkzeug.http import HTTP_STATUS_CODES

from ._hosts import check_server, check_wsgi
from ._http.exchange import exchange
from ._http.paths import behind, encoded, prefix_of
from ._http.request import Head
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
        return self.answer(environ, start_response, _path(environ))

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse, path: str) -> Iterable[bytes]:
        """Answer a request whose path behind the mount is already known, such as "/health/live"; "" is the mount itself."""
        response = answer(self._server, head(environ, path, environ), partial(read, environ["wsgi.input"]))
        return respond(response, start_response)


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
        path = behind(_path(environ), self._prefix)
        if path is None:
            return self._host(environ, start_response)
        return self._app.answer(environ, start_response, path)


def _path(environ: WSGIEnvironment) -> str:
    return _decoded(environ.get("PATH_INFO", ""))


def _decoded(value: str) -> str:
    """A path as text: WSGI hands bytes over as latin-1."""
    return value.encode("latin-1").decode(errors="replace")


def head(environ: WSGIEnvironment, path: str, transport: object) -> Head:
    """A request's head from its `environ`, for a path behind the mount that is already known."""
    return Head(
        method=environ["REQUEST_METHOD"],
        path=encoded(path, environ.get("REQUEST_URI") or environ.get("RAW_URI")),
        headers=[(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in EnvironHeaders(environ)],
        body_is_bounded=bool(environ.get("CONTENT_LENGTH") or environ.get("wsgi.input_terminated")),
        transport=transport,
        mount=partial(_mount, environ),
    )


def _mount(environ: WSGIEnvironment, head: Head) -> str:
    """The path of the mount as clients see it: all that is in front of the request's own."""
    return _decoded(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).removesuffix(unquote(head.path))


@final
class Streamed:
    """A response in pieces, as its body: an iterator, whose next piece is made when it is asked for.

    Args:
        start: The response's head.
        driver: What makes the pieces.
    """

    def __init__(self, start: Start, driver: Driver[Response]) -> None:
        self.status = start.status
        self.headers = start.headers
        self._pieces = pieces(driver, start)
        next(self._pieces)  # the head

    def __iter__(self) -> Streamed:
        return self

    def __next__(self) -> bytes:
        data: bytes = next(self._pieces)
        return data

    def close(self) -> None:
        """Make no more pieces. Servers call it at the end, and when the client has gone."""
        self._pieces.close()


def answer(server: InferenceServer, head: Head, read: Callable[[Fed], Any]) -> Response | Streamed:
    """Answer a request in this thread, where it is answered in pieces as far as the first of them."""
    engine, runtime = server._inside
    driver = Driver(exchange(engine, head), runtime, read)
    answer = driver.advance()
    if type(answer) is Response:
        return answer
    assert type(answer) is Start  # before any piece
    return Streamed(answer, driver)


def respond(response: Response | Streamed, start_response: StartResponse) -> Iterator[bytes]:
    """Hand a response's head to the server, and return its body."""
    start_response(f"{response.status} {HTTP_STATUS_CODES.get(response.status, 'Error')}", headers(response))
    return messages(response)


def headers(response: Response | Streamed | Start) -> list[tuple[str, str]]:
    """A response's headers as WSGI and its frameworks take them."""
    return [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in response.headers]


def has_type(response: Response | Streamed) -> bool:
    """Whether a response says what its body is. One that is empty does not, and frameworks call that HTML."""
    return b"content-type" in dict(response.headers)


def messages(response: Response | Streamed) -> Iterator[bytes]:
    """A response's body as WSGI and its frameworks take it. That of a response in pieces has to be closed."""
    if isinstance(response, Streamed):
        return response
    return (message for message, _ in response.messages())


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
