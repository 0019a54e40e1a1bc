"""A server process of the benchmark: `python -m tests.lab.bench.serve WAY PORT`. Each way is one function.

The floors read a body and send the same bytes back; the others serve identity models. All run under the same settings.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tests.support.run_server import run_gunicorn

LIVE: Final = b'{"live":true}'
"""What a floor answers a GET: as many bytes as the protocol's own answer."""

if TYPE_CHECKING:
    from .models import Run


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The floor over ASGI."""
    if scope["type"] != "http":
        raise RuntimeError("an echo has no lifespan")
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = (parts[0] if len(parts) == 1 else b"".join(parts)) or LIVE
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def wsgi_echo(environ: Any, start_response: Any) -> list[bytes]:
    """The floor over WSGI."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or LIVE
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(body)))])
    return [body]


# what a floor must not know, nor pay for, is imported by the ways that do


def _app(run: Run) -> Any:
    from oip_asgi import OIPApp

    from .models import make_server

    return OIPApp(make_server(run))


def _mounted(app: Any) -> Any:
    from starlette.applications import Starlette

    host = Starlette()
    host.mount("/v2", app)
    return host


def _middleware() -> Any:
    from starlette.applications import Starlette

    from oip_asgi import OIPMiddleware

    from .models import make_server

    return OIPMiddleware(Starlette(), make_server("inline"))


def _wsgi_app() -> Any:
    from oip_asgi import OIPWSGIApp

    from .models import make_server

    return OIPWSGIApp(make_server("inline"))


ASGI: Final[Mapping[str, Callable[[], Any]]] = {
    "echo": lambda: echo,
    "inline": lambda: _app("inline"),
    "async": lambda: _app("async"),
    "thread": lambda: _app("thread"),
    "mounted echo": lambda: _mounted(echo),
    "mounted": lambda: _mounted(_app("inline")),
    "middleware": _middleware,
}

WSGI: Final[Mapping[str, Callable[[], Any]]] = {"gunicorn echo": lambda: wsgi_echo, "gunicorn": _wsgi_app}


def uvicorn_settings() -> dict[str, Any]:
    """The event loop and the parser, for all servers alike: what uvicorn[standard] brings where that is installed, or what variables of
    uvicorn's own name."""
    loop = os.environ.get("UVICORN_LOOP") or ("uvloop" if find_spec("uvloop") else "asyncio")
    return {"loop": loop, "http": os.environ.get("UVICORN_HTTP") or ("httptools" if find_spec("httptools") else "h11")}


def serve_asgi(app: Any, port: int) -> None:
    """uvicorn without an access log."""
    import uvicorn

    # on a busy machine the usual five seconds close connections that are in use
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_keep_alive=75, **uvicorn_settings())


def serve_wsgi(app: Any, port: int) -> None:
    """gunicorn with one worker of threads: the workers without threads close each connection."""
    # gunicorn reads the command line too
    del sys.argv[1:]
    run_gunicorn(lambda: app, port, threads=8, loglevel="warning", keepalive=60)


def _add_grpc_echo(grpc_server: Any) -> None:
    import grpc

    from tests.support.grpc_ways import SERVICE

    async def answer(request: bytes, context: Any) -> bytes:
        return request

    handlers: Any = {"ModelInfer": grpc.unary_unary_rpc_method_handler(answer)}
    grpc_server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])


def _add_grpc(grpc_server: Any) -> None:
    from oip_asgi.grpc import add_to_server

    from .models import make_server

    add_to_server(make_server("inline"), grpc_server)


GRPC: Final[Mapping[str, Callable[[Any], None]]] = {"gRPC echo": _add_grpc_echo, "gRPC": _add_grpc}


async def serve_grpc(add: Callable[[Any], None], port: int) -> None:
    """A server of grpc.aio, on the event loop of asyncio."""
    import grpc.aio

    grpc_server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    add(grpc_server)
    grpc_server.add_insecure_port(f"127.0.0.1:{port}")
    await grpc_server.start()
    await grpc_server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.serve")
    parser.add_argument("way", choices=[*ASGI, *WSGI, *GRPC])
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    if arguments.way in ASGI:
        serve_asgi(ASGI[arguments.way](), arguments.port)
    elif arguments.way in GRPC:
        asyncio.run(serve_grpc(GRPC[arguments.way], arguments.port))
    else:
        serve_wsgi(WSGI[arguments.way](), arguments.port)


if __name__ == "__main__":
    main()
