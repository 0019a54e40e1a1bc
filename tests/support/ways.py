"""Every way in, as one function from a request to an answer, so that a table can run through all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, TypeAlias
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from werkzeug.test import EnvironBuilder

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware, OIPWSGIApp, OIPWSGIMiddleware
from tests.support.loops import Loops

Headers: TypeAlias = Sequence[tuple[str, str]]

EXTENSIONS = '["binary_tensor_data","classification","model_configuration","parameters","statistics"]'
"""The JSON of the extensions that a server has which is set up for nothing else."""

MATTERING = (
    "content-type",
    "content-length",
    "content-encoding",
    "vary",
    "inference-header-content-length",
    "allow",
    "accept-encoding",
    "retry-after",
    "etag",
    "content-security-policy",
    "x-cost",
    "x-trace",
    "server-timing",
)


@dataclass(frozen=True)
class Request:
    """A request; its path is behind the mount, percent-encoded. Content-Length is added where the headers do not hold it."""

    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""

    def all_headers(self) -> list[tuple[str, str]]:
        given = [(name.lower(), value) for name, value in self.headers]
        if self.method == "POST" and "content-length" not in dict(given):
            given.append(("content-length", str(len(self.body))))
        return given


@dataclass(frozen=True)
class Answer:
    """What came back, with the headers that matter."""

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, status: int, headers: Iterable[tuple[str, str]], body: bytes, mount: str = "") -> Answer:
        """What came back. Errors name paths with their mount, which is left out here, so that the answers of all mounts are alike."""
        mattering = {name.lower(): value for name, value in headers if name.lower() in MATTERING}
        if mount and status in (404, 405):
            length, body = str(len(body)), body.replace(f"{mount}/".encode(), b"/")
            if mattering.get("content-length") == length:
                mattering["content-length"] = str(len(body))
        return cls(status, mattering, body)


Way: TypeAlias = Callable[[Request], Answer]


async def send_asgi(app: Any, request: Request, prefix: str = "", *, root_path: str = "", chunk: int | None = None) -> Answer:
    """One request to an ASGI application under `prefix`, on the running event loop, the body in one message or in chunks.

    If the body is shorter than it says, the client goes, which servers tell; but not if it asks for an upgrade: they end the body then.
    """
    raw_path = (prefix + request.path).partition("?")[0]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": root_path + unquote(raw_path),
        "raw_path": (root_path + raw_path).encode(),
        "root_path": root_path,
        "query_string": request.path.partition("?")[2].encode(),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.all_headers()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    size = chunk or len(request.body) or 1
    chunks = [request.body[start : start + size] for start in range(0, len(request.body), size)] or [b""]
    messages = [{"type": "http.request", "body": part, "more_body": place < len(chunks) - 1} for place, part in enumerate(chunks)]
    given = dict(request.all_headers())
    announced = given.get("content-length", "")
    if announced.isdecimal() and int(announced) > len(request.body) and "upgrade" not in given:
        messages[-1]["more_body"] = True
        messages.append({"type": "http.disconnect"})
    sent: list[Any] = []
    answered = asyncio.Event()

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        await answered.wait()  # the client waits for its answer, and is gone behind it
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            answered.set()

    await app(scope, receive, send)
    start, *bodies = sent
    assert start["type"] == "http.response.start"
    assert [message.get("more_body", False) for message in bodies] == [True] * (len(bodies) - 1) + [False]
    assert all(type(message.get("body", b"")) is bytes for message in bodies)  # a memoryview hangs daphne
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    return Answer.of(start["status"], headers, b"".join(message.get("body", b"") for message in bodies), root_path + prefix)


def over_asgi(app: Any, prefix: str, *, root_path: str = "", chunk: int | None = None) -> Way:
    """The same as a way in."""
    loops = Loops()
    return lambda request: loops.run(send_asgi(app, request, prefix, root_path=root_path, chunk=chunk))


def over_wsgi(app: Any, prefix: str, *, with_target: bool = True) -> Way:
    """Requests to a WSGI application under `prefix`, by a server that says what the request line was, or one that does not."""

    def send_request(request: Request) -> Answer:
        environ = EnvironBuilder(path=prefix + request.path, method=request.method).get_environ()
        environ.pop("CONTENT_LENGTH", None)
        if "host" in dict(request.all_headers()):
            del environ["HTTP_HOST"]
        environ["wsgi.input"] = BytesIO(request.body)
        for name, value in request.all_headers():
            key = name.upper().replace("-", "_")
            key = key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
            environ[key] = f"{environ[key]},{value}" if key in environ and key != "CONTENT_TYPE" else value
        if not with_target:
            del environ["REQUEST_URI"], environ["RAW_URI"]
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], object]:
            started.append((status, headers))
            return lambda data: None

        body = b"".join(app(environ, start_response))
        [(status, headers)] = started
        return Answer.of(int(status.split()[0]), headers, body, prefix)

    return send_request


async def other_asgi_app(scope: Any, receive: Any, send: Any) -> None:
    """What a middleware hands on to."""
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b"the host's own"})


def other_wsgi_app(environ: Any, start_response: Any) -> list[bytes]:
    """What a middleware hands on to."""
    start_response("418 I'm a teapot", [])
    return [b"the host's own"]


def asked_together(way: Way, request: Request) -> list[int]:
    """The statuses of eight requests that are under way at once."""
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda _: way(request).status, range(8), timeout=60))


def ways_into(server: InferenceServer) -> dict[str, Way]:
    """All ways in to one server object."""
    mounted = Starlette()
    mounted.mount("/v2", OIPApp(server))
    installed = Starlette()
    OIPApp(server).install(installed, "/v2")
    inside = Starlette(middleware=[Middleware(OIPMiddleware, server=server)])
    return {
        "OIPApp": over_asgi(OIPApp(server), ""),
        "OIPApp, chunked": over_asgi(OIPApp(server), "", chunk=7),
        "OIPApp, root_path": over_asgi(OIPApp(server), "", root_path="/ml/v2"),
        "Starlette mount": over_asgi(mounted, "/v2"),
        "Starlette install": over_asgi(installed, "/v2"),
        "OIPMiddleware": over_asgi(OIPMiddleware(other_asgi_app, server), "/v2"),
        "Starlette middleware": over_asgi(inside, "/v2"),
        "OIPWSGIApp": over_wsgi(OIPWSGIApp(server), ""),
        "OIPWSGIApp, no target": over_wsgi(OIPWSGIApp(server), "", with_target=False),
        "OIPWSGIMiddleware": over_wsgi(OIPWSGIMiddleware(other_wsgi_app, server), "/v2"),
    }
