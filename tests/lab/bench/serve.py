"""A server process of the benchmark: `python -m tests.lab.bench.serve HOST APP PORT`.

HOST is the server, and APP what it serves, as `tests.lab.bench.servers` names them. Some servers import the application themselves: it is
`app` of this module, made when it is asked for. What a floor must not know, nor pay for, is imported by the functions that do.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .models import Run

APP: Final = "BENCH_APP"
"""The variable of the environment that names the application."""

TARGET: Final = f"{__package__}.serve:app"

LIVE: Final = b'{"live":true}'
"""What a floor answers a GET."""


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


def _own(run: Run) -> Any:
    from oip_asgi import OIPApp

    from .models import make_server

    return OIPApp(make_server(run))


def _own_wsgi() -> Any:
    from oip_asgi import OIPWSGIApp

    from .models import make_server

    return OIPWSGIApp(make_server("thread"))


def _own_grpc() -> Any:
    from oip_asgi.grpc import OIPGRPCApp

    from .models import make_server

    return OIPGRPCApp(make_server("inline"))


def _by_hand() -> Any:
    from .hand import make_app

    return make_app()


APPS: Final[Mapping[str, Callable[[], Any]]] = {
    "echo": lambda: echo,
    "def": lambda: _own("thread"),
    "inline": lambda: _own("inline"),
    "async": lambda: _own("async"),
    "WSGI": _own_wsgi,
    "FastAPI": _by_hand,
    "gRPC": _own_grpc,
}


def __getattr__(name: str) -> Any:
    if name == "app":
        return APPS[os.environ[APP]]()
    raise AttributeError(name)


def uvicorn_settings() -> dict[str, Any]:
    """The event loop and the parser, for all servers alike: what uvicorn[standard] brings where that is installed, or what variables of
    uvicorn's own name."""
    loop = os.environ.get("UVICORN_LOOP") or ("uvloop" if find_spec("uvloop") else "asyncio")
    return {"loop": loop, "http": os.environ.get("UVICORN_HTTP") or ("httptools" if find_spec("httptools") else "h11")}


def _uvicorn(port: int, settings: Mapping[str, Any]) -> None:
    import uvicorn

    app = APPS[os.environ[APP]]()
    # on a busy machine the usual five seconds close connections that are in use
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_keep_alive=75, **settings)


async def _grpcio(port: int) -> None:
    """A server of grpc.aio, on the event loop of asyncio: this package, or a bare handler that sends back what it read."""
    import grpc.aio

    from oip_asgi.grpc import add_to_server
    from tests.support.grpc_ways import SERVICE

    from .models import make_server

    async def answer(request: bytes, context: Any) -> bytes:
        return request

    grpc_server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    if os.environ[APP] == "gRPC":
        add_to_server(make_server("inline"), grpc_server)
    else:
        handlers: Any = {"ModelInfer": grpc.unary_unary_rpc_method_handler(answer)}
        grpc_server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    grpc_server.add_insecure_port(f"127.0.0.1:{port}")
    await grpc_server.start()
    await grpc_server.wait_for_termination()


def _command(name: str, *arguments: str) -> None:
    """Become a program of this environment."""
    program = Path(sys.executable).with_name(name)
    os.execv(program, [str(program), *arguments, TARGET])


def _gunicorn_settings(port: int) -> list[str]:
    return ["--bind", f"127.0.0.1:{port}", "--keep-alive", "75", "--log-level", "warning"]


def _granian_settings(port: int) -> list[str]:
    return ["--port", str(port), "--no-access-log", "--log-level", "warning"]


HOSTS: Final[Mapping[str, Callable[[int], None]]] = {
    "uvicorn": lambda port: _uvicorn(port, uvicorn_settings()),
    "uvicorn, h11": lambda port: _uvicorn(port, {"loop": "asyncio", "http": "h11"}),
    "zttp": lambda port: _uvicorn(port, {**uvicorn_settings(), "http": "zttp"}),
    "zttp, HTTP/2": lambda port: _uvicorn(port, {"loop": "uvloop", "http": "zttp", "http2": True}),
    "gunicorn": lambda port: _command("gunicorn", "--worker-class", "asgi", *_gunicorn_settings(port)),
    "gunicorn, WSGI": lambda port: _command("gunicorn", "--threads", "8", *_gunicorn_settings(port)),
    "granian": lambda port: _command("granian", "--interface", "asgi", "--loop", "uvloop", *_granian_settings(port)),
    "granian, WSGI": lambda port: _command("granian", "--interface", "wsgi", "--blocking-threads", "8", *_granian_settings(port)),
    "pyvoy": lambda port: _command("pyvoy", "--port", str(port), "--loop", "uvloop", "--log-level", "error"),
    "grpcio": lambda port: asyncio.run(_grpcio(port)),
}


def main() -> None:
    host, app, port = sys.argv[1:]
    os.environ[APP] = app
    HOSTS[host](int(port))


if __name__ == "__main__":
    main()
