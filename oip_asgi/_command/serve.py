"""The command `python -m oip_asgi`: its own options, and what it prints. All else is uvicorn's: its options, its workers, its reload.

Knows uvicorn, and FastAPI, grpc and prometheus_client only if they are asked for.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shlex
import socket
import sys
import traceback
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from multiprocessing import current_process
from pathlib import Path
from typing import Any, Final

from .._http.public import HEALTH_METHODS
from .._models.registry import path_of
from ..asgi import OIPApp
from ..server import InferenceServer
from .targets import Mistake, find_defaults, find_target

_HELP: Final = """\
Serve models at /v2 with uvicorn.

TARGET: module:server, an InferenceServer of yours; a folder of MLServer; or a file with one model: an estimator's .joblib or .pkl,
an .onnx, or what save_model of LightGBM or XGBoost has written. To read a .joblib or .pkl is to run what is in it, with all your rights:
name only files that you trust as you trust a program.

The first options are for this command; all others are uvicorn's."""
_KEY: Final = """\
the key that clients send as the header x-api-key, for all but health and the page; others on this machine see it in the list of
processes, but not if it is in the environment variable OIP_API_KEY"""
_COMMAND: Final = "OIP_ASGI_COMMAND"
"""The environment variable in which the processes of --reload and --workers find the options of this command, as JSON."""
_OURS: Final = ("target", "name", "api_key", "grpc", "metrics", "model_control")
_PREFIX: Final = "/v2"
_NEEDS: Final = {
    "api_key": ("fastapi", "fastapi"),
    "grpc": ("grpcio protobuf", "grpc google.protobuf"),
    "metrics": ("prometheus_client", "prometheus_client"),
}
"""What an option needs, as pip has it, and its modules."""


def main(arguments: Sequence[str] | None = None, program: str = "python -m oip_asgi") -> None:
    """Serve until a signal ends it. A mistake of the user is one line, and the status 1."""
    try:
        import click
        import uvicorn
    except ImportError:
        sys.exit("uvicorn is not installed: pip install uvicorn")

    def set_defaults(context: click.Context, _: object, target: str) -> str:
        context.default_map = find_defaults(Path(target))
        return target

    def start(**options: Any) -> None:
        click.get_current_context().invoke(uvicorn.main, **_prepare(options))

    port = click.IntRange(0, 65535)
    params = [
        click.Argument(["target"], metavar="TARGET", is_eager=True, callback=set_defaults),
        click.Option(["--name"], help="what the model of a file is called; without it, as the file"),
        click.Option(["--api-key"], metavar="KEY", envvar="OIP_API_KEY", help=_KEY),
        click.Option(["--grpc"], type=port, metavar="PORT", help="serve gRPC there, by grpcio"),
        click.Option(["--metrics"], type=port, metavar="PORT", help="serve numbers for Prometheus there"),
        click.Option(["--model-control"], is_flag=True, help="let clients load and unload models of a file or folder"),
        *(each for each in uvicorn.main.params if each.name not in ("app", "factory")),
    ]
    try:
        click.Command(None, uvicorn.main.context_settings, start, params, _HELP).main(arguments, program)
    except Mistake as mistake:
        sys.exit(str(mistake))


def _prepare(options: dict[str, Any]) -> dict[str, Any]:
    """Split the options: uvicorn's are returned, with an application of the others."""
    reloads, is_at_port, path = options["reload"], options["uds"] is options["fd"] is None, Path(options["target"])
    has_workers = not reloads and int(options["workers"] or os.environ.get("WEB_CONCURRENCY", 1)) > 1
    _check_options(options, path, has_workers=has_workers)
    for key in ("port", "grpc", "metrics"):
        if options[key] is not None and (is_at_port or key != "port"):
            options[key] = _find_port(options["host"], options[key])
    url = _to_url(options["host"], options["port"], "https" if options["ssl_certfile"] else "http") if is_at_port else "http://localhost"
    command = {"host": options["host"], "url": url, "has_workers": has_workers} | {key: options.pop(key) for key in _OURS}
    sys.path.insert(0, options["app_dir"])
    # with workers, a mistake is said here once, and not by each of them again and again
    options["app"] = None if reloads else make_app(command)
    if reloads and path.exists() and not options["reload_dirs"]:  # an editor and joblib replace a file, so its folder is watched
        path, is_folder = path.resolve(), path.is_dir()
        # uvicorn matches from the right, and takes what "*" finds in the working directory for folders to watch
        names = [path.name + "/*" * depth for depth in (1, 2, 3)] if is_folder else [path.name]
        watched = [str(path if is_folder else path.parent)]
        more = {"reload_dirs": watched, "reload_includes": names, "reload_excludes": ["*.py[cod]", "__pycache__"]}
        options |= {key: [*options[key], *values] for key, values in more.items()}
    if reloads or has_workers:
        os.environ[_COMMAND] = json.dumps(command)
        options["app"], options["factory"] = f"{__name__}:make_app_of_process", True
    return options


def _check_options(options: dict[str, Any], path: Path, *, has_workers: bool) -> None:
    """Refuse what has no effect on a target, and what needs a package that is missing."""
    given = {name for name in _OURS if options[name] is not None and options[name] is not False}
    needs = [
        ("name" not in given or path.is_file(), "--name is for a file with one model"),
        (
            "model_control" not in given or path.exists(),
            "--model-control is for a file or folder: write InferenceServer(model_control=True)",
        ),
        (
            options["api_key"] is None or (options["api_key"] and options["api_key"].isascii()),
            "--api-key has to be ASCII, as the value of a header, and not empty",
        ),
        (
            not has_workers or given.isdisjoint({"grpc", "metrics"}),
            "the ports of --grpc and --metrics are for one process, and cannot be shared by --workers: leave out one or the other",
        ),
    ]
    for name, (packages, modules) in _NEEDS.items():
        text = f"--{name.replace('_', '-')} needs what is not installed: pip install {packages}"
        needs.append((name not in given or all(map(_is_installed, modules.split())), text))
    for is_right, text in needs:
        if not is_right:
            raise Mistake(text)


def _is_installed(module: str) -> bool:
    return find_spec(module.partition(".")[0]) is not None and find_spec(module) is not None


def _find_port(host: str, port: int) -> int:
    """A free port for 0. A taken one is said before anything is loaded."""
    if not 0 <= port <= 65535:
        raise Mistake(f"port {port}: expected 0 to 65535")
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise Mistake(f"port {port} of {host} cannot be opened: {reason}") from error


def _to_url(host: str, port: int, scheme: str = "http") -> str:
    """The address for a user of this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{host}:{port}"


def make_app_of_process() -> Any:
    """The application of a process that uvicorn has started."""
    try:
        return make_app(json.loads(os.environ[_COMMAND]))
    except Mistake as mistake:
        sys.exit(str(mistake))
    except TypeError:  # of the user's module: uvicorn would leave out where
        traceback.print_exc()
        sys.exit(1)


def make_app(command: dict[str, Any]) -> Any:
    """Find the target, and make its application, which prints what is served and opens the other ports when it starts."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    server = find_target(command["target"], command["name"], model_control=command["model_control"])
    app, protection = _make_host(command["api_key"])
    OIPApp(server).install(app, _PREFIX, grpc=_is_installed("google.protobuf"), **protection)
    loaded = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(host: Any) -> AsyncGenerator[Any]:
        async with AsyncExitStack() as stack:
            state = await stack.enter_async_context(loaded(host))
            lines = list(describe_models(server, command["url"], has_key=command["api_key"] is not None))
            lines += await _open_more(server, command, stack)
            if not command["has_workers"] or current_process().name == "SpawnProcess-1":
                print(*lines, sep="\n", flush=True)  # noqa: T201
            yield state

    app.router.lifespan_context = lifespan
    return app


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


async def _open_more(server: InferenceServer, command: dict[str, Any], stack: AsyncExitStack) -> list[str]:
    """Open the ports of gRPC and Prometheus, until the stack ends. Returns what to print of them."""
    lines, host = [], command["host"]
    if command["grpc"] is not None:
        await _serve_grpc(server, host, command["grpc"], command["api_key"], stack)
        lines.append(f"gRPC: {_to_url(host, command['grpc']).removeprefix('http://')}")
    if command["metrics"] is not None:
        from prometheus_client import start_http_server

        from ..prometheus import instrument

        instrument(server)
        serving, _ = start_http_server(command["metrics"], host)
        stack.callback(serving.server_close)
        stack.callback(serving.shutdown)
        lines.append(f"numbers for Prometheus: {_to_url(host, command['metrics'])}/metrics")
    return lines


async def _serve_grpc(server: InferenceServer, host: str, port: int, key: str | None, stack: AsyncExitStack) -> None:
    import grpc.aio

    from ..grpc import add_to_server

    most = server._inside.engine.options.max_body_bytes or -1
    grpc_server = grpc.aio.server(
        interceptors=() if key is None else [_make_interceptor(key)],
        options=[("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)],
    )
    add_to_server(server, grpc_server)
    grpc_server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    await grpc_server.start()
    stack.push_async_callback(grpc_server.stop, server._shutdown_timeout)


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


# What it prints


def describe_models(server: InferenceServer, url: str, *, has_key: bool) -> Iterator[str]:
    """Say what is known of each model, and where the page is; and a line for curl that works, for the first model that has one.

    Args:
        server: The server, whose models are loaded.
        url: Where it listens, such as "http://127.0.0.1:8000".
        has_key: Whether clients need the key.
    """
    document, curl = server.openapi(_PREFIX), ""
    for model in server._inside.engine.models:
        if not model.lifecycle.is_serving:
            yield str(model.lifecycle.make_refusal(f"it is {model.lifecycle.state}"))
            continue
        takes, returns = (
            ", ".join(f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in each) for each in (model.inputs, model.outputs)
        )
        yield f"{model}: takes {takes or 'inputs that it does not declare'}; returns {returns or 'outputs that it does not declare'}"
        path = f"{_PREFIX}{path_of(model.name, model.version)}"
        if not curl and model.inputs:
            curl = _write_curl(document, url, path, has_key=has_key)
    if server._inside.engine.options.docs:
        yield f"page: {url}{_PREFIX}/docs"
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
