"""The command `python -m oip_asgi`: its arguments, its ports, and what it prints. It is for one target; all else is an application's.

Knows uvicorn, and FastAPI, grpc and prometheus_client only if they are asked for.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import shlex
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from .._http.public import HEALTH_METHODS
from .._models.registry import path_of
from .._protocol.log import logger
from ..asgi import OIPApp
from ..mlserver.settings import Settings
from ..server import InferenceServer
from .targets import Mistake, Target, find_target

_TARGET: Final = """\
module:server or module:app, as uvicorn has them; a folder of MLServer; or a file with one model: an estimator's .joblib or .pkl, an .onnx,
or what save_model of LightGBM or XGBoost has written. To read a .joblib or .pkl is to run what is in it, with all your rights: name
only files that you trust as you trust a program."""
_KEY: Final = """\
the key that clients send as the header x-api-key, for all but health and the page; others on this machine see it in the list of
processes"""
_PREFIX: Final = "/v2"
_HOST: Final = "127.0.0.1"
_PORT: Final = 8000
_EXTRAS: Final = {
    "api_key": ("fastapi", ["fastapi"]),
    "grpc": ("grpcio protobuf", ["grpc", "google.protobuf"]),
    "metrics": ("prometheus_client", ["prometheus_client"]),
}
"""What an option needs, as pip has it, and its modules."""
_NOT_STARTED: Final = 3
"""The status with which uvicorn ends if the application does not start."""


def _read_arguments(program: str, arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(program, description="Serve models at /v2 with uvicorn.")
    parser.add_argument("target", metavar="TARGET", help=_TARGET)
    parser.add_argument("--host", help=f"the address to listen at; {_HOST}, or the host of a folder's settings.json")
    parser.add_argument("--port", type=_to_port, help=f"the port; {_PORT}, or the http_port of a folder's settings.json; 0 for a free one")
    parser.add_argument("--name", help="what the model of a file is called; without it, as the file")
    parser.add_argument("--api-key", metavar="KEY", help=_KEY)
    parser.add_argument("--reload", action="store_true", help="begin anew when the file, the folder, or a .py file below here changes")
    parser.add_argument("--grpc", type=_to_port, metavar="PORT", help="serve gRPC there, by grpcio")
    parser.add_argument("--metrics", type=_to_port, metavar="PORT", help="serve numbers for Prometheus there")
    parser.add_argument("--model-control", action="store_true", help="let clients load and unload models of a file or folder")
    return parser.parse_args(arguments)


def _to_port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise ValueError
    return port


_to_port.__name__ = "port"  # argparse names it: "invalid port value"


def main(arguments: list[str] | None = None, program: str = "python -m oip_asgi") -> None:
    options = _read_arguments(program, arguments)
    if not options.reload:
        run(options)
        return
    try:
        from watchfiles import DefaultFilter, PythonFilter, run_process
    except ImportError:
        sys.exit("--reload needs watchfiles: pip install watchfiles")
    path = Path(options.target)
    watched = path.resolve() if path.exists() else Path.cwd()
    # an editor and joblib replace a file, so its folder is watched
    changes = (lambda _, changed: changed == str(watched)) if watched.is_file() else DefaultFilter() if path.exists() else PythonFilter()
    run_process(watched.parent if watched.is_file() else watched, target=run, args=(options,), watch_filter=changes)


def run(options: argparse.Namespace) -> None:
    """Serve until a signal ends it. A mistake of the user is one line, and the status 1."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        import uvicorn
    except ImportError:
        sys.exit("uvicorn is not installed: pip install uvicorn")
    try:
        target = find_target(options.target, options.name, model_control=options.model_control)
        check_options(options, target)
        ports = _choose_ports(options, target.settings)
        for port in (ports.grpc, ports.metrics):
            if port is not None:
                _listen(ports.host, port).close()  # a taken one is said before anything is loaded
        with _listen(ports.host, ports.http) as listening:
            app = _make_app(target, ports, options.api_key, _to_url(*listening.getsockname()[:2]))
            serving = uvicorn.Server(uvicorn.Config(app))
            if options.reload:  # Ctrl+C comes twice, from the terminal and from the parent: the second must not cut the end short
                serving.handle_exit = lambda *_: setattr(serving, "should_exit", True)  # type: ignore[method-assign]
            with suppress(KeyboardInterrupt):  # how it ends at Ctrl+C
                serving.run(sockets=[listening])
        if not serving.started:
            sys.exit(_NOT_STARTED)
    except Mistake as mistake:
        sys.exit(str(mistake))


def check_options(options: argparse.Namespace, target: Target) -> None:
    """Refuse what has no effect on a target, and what needs a package that is missing.

    Raises:
        Mistake: An option is for other targets, or needs a package.
    """
    is_app, path = not isinstance(target.served, InferenceServer), Path(options.target)
    of_apps = {"--api-key": options.api_key, "--grpc": options.grpc, "--metrics": options.metrics}
    for name, value in of_apps.items():
        if is_app and value is not None:
            raise Mistake(f"{name} is not for an application, which has its own: write it there, or name its InferenceServer as the target")
    if options.name is not None and not path.is_file():
        raise Mistake("--name is for a file with one model")
    if options.model_control and not path.exists():
        raise Mistake("--model-control is for a file or folder: write InferenceServer(model_control=True)")
    if options.api_key is not None and not (options.api_key and options.api_key.isascii()):
        raise Mistake("--api-key has to be ASCII, as the value of a header, and not empty")
    for name, (packages, _) in _EXTRAS.items():
        if getattr(options, name) is not None and not _has_what_it_needs(name):
            raise Mistake(f"--{name.replace('_', '-')} needs what is not installed: pip install {packages}")


def _has_what_it_needs(option: str) -> bool:
    return all(_is_installed(module) for module in _EXTRAS[option][1])


def _is_installed(module: str) -> bool:
    parent = module.partition(".")[0]
    return find_spec(parent) is not None and find_spec(module) is not None


class Ports(NamedTuple):
    """Where to listen. None: not at all."""

    host: str
    http: int
    grpc: int | None
    metrics: int | None


def _choose_ports(options: argparse.Namespace, settings: Settings | None) -> Ports:
    """The command line goes before the settings of a folder."""
    ports = Ports(_HOST, _PORT, None, None)
    if settings is not None:
        ports = Ports(settings.host, settings.http_port, settings.grpc_port, settings.metrics_port)
    said = {"host": options.host, "http": options.port, "grpc": options.grpc, "metrics": options.metrics}
    ports = ports._replace(**{key: value for key, value in said.items() if value is not None})
    for key in ("grpc", "metrics"):
        if getattr(ports, key) is not None and not _has_what_it_needs(key):  # of a folder, whose other models are served all the same
            logger.warning("%s_port of settings.json is not opened: pip install %s", key, _EXTRAS[key][0])
            ports = ports._replace(grpc=None) if key == "grpc" else ports._replace(metrics=None)
    return ports


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Mistake(
            f"port {port} of {host} cannot be opened: {os.strerror(error.errno) if error.errno and error.errno > 0 else error}"
        ) from error


def _to_url(host: str, port: int) -> str:
    """The address for a user of this machine."""
    host = {"0.0.0.0": _HOST, "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def _make_app(target: Target, ports: Ports, key: str | None, url: str) -> Any:
    server = target.served
    if not isinstance(server, InferenceServer):
        told = target.server
        return server if told is None else _print_at_start(server, lambda: describe_models(told, url, has_key=False, prefix=target.prefix))
    app, protection = _make_host(key)
    OIPApp(server).install(app, _PREFIX, grpc=_is_installed("google.protobuf"), **protection)
    loaded = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(host: Any) -> AsyncGenerator[Any]:
        async with AsyncExitStack() as stack:
            state = await stack.enter_async_context(loaded(host))
            for line in describe_models(server, url, has_key=key is not None):
                print(line, flush=True)  # noqa: T201
            for line in await _open_more(server, ports, key, stack):
                print(line, flush=True)  # noqa: T201
            yield state

    app.router.lifespan_context = lifespan
    return app


def _print_at_start(app: Any, describe: Callable[[], Iterable[str]]) -> Any:
    """The application, and lines that are printed when it has started."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        async def send_and_tell(message: Any) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                for line in describe():
                    print(line, flush=True)  # noqa: T201

        await app(scope, receive, send_and_tell if scope["type"] == "lifespan" else send)

    return serve


def _make_host(key: str | None) -> tuple[Any, dict[str, Any]]:
    """The application in which the protocol is, and what protects it there."""
    if key is None:
        from starlette.applications import Starlette

        return Starlette(), {}
    from fastapi import Depends, FastAPI, HTTPException, Security
    from fastapi.security import APIKeyHeader

    def check_key(sent: str | None = Security(APIKeyHeader(name="x-api-key", auto_error=False))) -> None:
        if not secrets.compare_digest((sent or "").encode(), key.encode()):
            raise HTTPException(401, "send the header x-api-key")

    return FastAPI(openapi_url=None), {"dependencies": [Depends(check_key)], "public": ["health", "docs"]}


async def _open_more(server: InferenceServer, ports: Ports, key: str | None, stack: AsyncExitStack) -> list[str]:
    """Open the ports of gRPC and Prometheus, until the stack ends. Returns what to print of them."""
    lines = []
    if ports.grpc is not None:
        port = await stack.enter_async_context(_serve_grpc(server, ports.host, ports.grpc, key))
        lines.append(f"gRPC: {_to_url(ports.host, port).removeprefix('http://')}")
    if ports.metrics is not None:
        lines.append(f"numbers for Prometheus: {_to_url(ports.host, _serve_metrics(server, ports.host, ports.metrics, stack))}/metrics")
    return lines


@asynccontextmanager
async def _serve_grpc(server: InferenceServer, host: str, port: int, key: str | None) -> AsyncGenerator[int]:
    import grpc.aio

    from ..grpc import add_to_server

    most = server._inside.engine.options.max_body_bytes or -1
    grpc_server = grpc.aio.server(
        interceptors=() if key is None else [_make_interceptor(key)],
        options=[("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)],
    )
    add_to_server(server, grpc_server)
    opened = grpc_server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    await grpc_server.start()
    try:
        yield opened
    finally:
        await grpc_server.stop(server._shutdown_timeout)


def _make_interceptor(key: str) -> Any:
    """Make what refuses calls of gRPC without the key, but those of health."""
    import grpc.aio

    async def refuse(_: object, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "send the metadata x-api-key")

    class KeyInterceptor(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, call: Any) -> Any:
            sent = dict(call.invocation_metadata).get("x-api-key", "")
            if call.method in HEALTH_METHODS or secrets.compare_digest(str(sent).encode(), key.encode()):
                return await continuation(call)
            return grpc.unary_unary_rpc_method_handler(refuse)

    return KeyInterceptor()


def _serve_metrics(server: InferenceServer, host: str, port: int, stack: AsyncExitStack) -> int:
    from prometheus_client import start_http_server

    from ..prometheus import instrument

    instrument(server)
    serving, thread = start_http_server(port, host)
    stack.callback(thread.join)
    stack.callback(serving.server_close)
    stack.callback(serving.shutdown)
    return int(serving.server_port)


# What it prints


def describe_models(server: InferenceServer, url: str, *, has_key: bool, prefix: str = _PREFIX) -> Iterator[str]:
    """Say what is known of each model, and where the page is; and a line for curl that works, for the first model that has one.

    Args:
        server: The server, whose models are loaded.
        url: Where it listens, such as "http://127.0.0.1:8000".
        has_key: Whether clients need the key.
        prefix: Where the server is, such as "/v2".
    """
    document, curl = server.openapi(prefix or "/"), ""
    for model in server._inside.engine.models:
        if not model.lifecycle.is_serving:
            yield str(model.lifecycle.make_refusal(f"it is {model.lifecycle.state}"))
            continue
        takes, returns = (
            ", ".join(f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in each) for each in (model.inputs, model.outputs)
        )
        yield f"{model}: takes {takes or 'inputs that it does not declare'}; returns {returns or 'outputs that it does not declare'}"
        path = f"{prefix}{path_of(model.name, model.version)}"
        if not curl and model.inputs:
            curl = _write_curl(document, url, path, has_key=has_key)
    if server._inside.engine.options.docs:
        yield f"page: {url}{prefix}/docs"
    if curl:
        yield f"try: {curl}"


def _write_curl(document: dict[str, Any], url: str, path: str, *, has_key: bool) -> str:
    """The request of an example as a line for a shell; "" if there is no example."""
    for action, option in (("infer", ""), ("generate_stream", "-N ")):
        body = document["paths"].get(f"{path}/{action}", {}).get("post", {}).get("requestBody", {})
        example = body.get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            key = '-H "x-api-key: $KEY" ' if has_key else ""
            return f"curl {option}{shlex.quote(f'{url}{path}/{action}')} {key}-d {shlex.quote(json.dumps(example))}"
    return ""
