"""The ways in over WSGI: an application to mount, and a middleware. They translate `environ` and decide nothing.

Knows `environ` and `start_response`; the answers come from the core.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import IO, TYPE_CHECKING, Final

from werkzeug.datastructures import EnvironHeaders
from werkzeug.http import HTTP_STATUS_CODES

from ._core import http
from ._core.bodies import Body
from ._drive import drive
from .server import InferenceServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_CHUNK: Final = 2**20


class OIPWSGIApp:
    """A WSGI application that speaks the Open Inference Protocol, to be mounted in another one, such as by `DispatcherMiddleware`.

    Args:
        server: The server whose models it serves.
        compress_responses: Whether successful answers are compressed for clients that accept gzip or deflate.
    """

    def __init__(self, server: InferenceServer, *, compress_responses: bool = False) -> None:
        self._server = server
        self._compress = compress_responses

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return self.answer(environ, start_response, _path(environ))

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse, path: str) -> Iterable[bytes]:
        """Answer a request whose path behind the mount is already known, such as "/health/live"; "" is the mount itself."""
        head = http.Head(
            method=environ["REQUEST_METHOD"],
            path=http.encoded(path, environ.get("REQUEST_URI") or environ.get("RAW_URI")),
            headers=[(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in EnvironHeaders(environ)],
            body_is_bounded=bool(environ.get("CONTENT_LENGTH") or environ.get("wsgi.input_terminated")),
            transport=environ,
            compress=self._compress,
        )
        response = drive(http.exchange(self._server.core, head), self._server.running, partial(_read, environ["wsgi.input"]))
        headers = [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in response.headers]
        start_response(f"{response.status} {HTTP_STATUS_CODES.get(response.status, 'Error')}", headers)
        return response.parts


class OIPWSGIMiddleware:
    """Serves the protocol at a path of any WSGI application, and hands everything else on.

    Args:
        app: The application around which it is put, such as `flask_app.wsgi_app`.
        server: The server whose models it serves.
        path: Where to, such as "/v2".
        compress_responses: As in `OIPWSGIApp`.

    Raises:
        ValueError: The path does not begin with a slash.
    """

    def __init__(self, app: WSGIApplication, server: InferenceServer, path: str = "/v2", *, compress_responses: bool = False) -> None:
        self._host = app
        self._app = OIPWSGIApp(server, compress_responses=compress_responses)
        self._prefix = http.prefix(path)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = http.behind(_path(environ), self._prefix)
        if path is None:
            return self._host(environ, start_response)
        return self._app.answer(environ, start_response, path)


def _path(environ: WSGIEnvironment) -> str:
    # WSGI hands bytes over as latin-1
    path: str = environ.get("PATH_INFO", "")
    return path.encode("latin-1").decode(errors="replace")


def _read(stream: IO[bytes], body: Body) -> bytes | bytearray:
    try:
        while (wanted := body.wanted(_CHUNK)) and (chunk := stream.read(wanted)):
            body.feed(chunk)
    except OSError:  # how servers say that the client is gone
        return body.finish(cut_off=True)
    return body.finish()
