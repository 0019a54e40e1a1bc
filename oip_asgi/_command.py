"""`python -m oip_asgi TARGET`: serves a server of a module, a folder of MLServer, or a file with one model,
with uvicorn.

Targets, a key, the ports of gRPC and Prometheus, and what is printed are of this command. All else is
uvicorn's: its options, its workers, its reload. It knows what users can import, and nothing knows it.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import secrets
import shlex
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing import current_process
from pathlib import Path
from types import MethodType
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from starlette.applications import Starlette

from . import InferenceServer, OIPApp, Tensor, TensorSpec
from .codecs import StringCodec
from .mlserver.folder import SED, register_models
from .mlserver.runtimes import open_xgboost
from .mlserver.settings import read_settings
from .specs import specs_of

_HELP: Final = """\
Serve models at /v2 with uvicorn.

TARGET: module:server, an InferenceServer of yours; a folder of MLServer; or a file with one model: an
estimator's .joblib or .pkl, an .onnx, or what save_model of LightGBM or XGBoost has written. To read a
.joblib or .pkl is to run what is in it, with all your rights: name only files that you trust as you trust a
program.

The first options are for this command; all others are uvicorn's."""
_COMMAND: Final = "OIP_ASGI_COMMAND"
"""The environment variable in which the processes of --reload and --workers find the options of this command,
as JSON."""
_KEY: Final = "OIP_API_KEY"
_OURS: Final = ("target", "name", "api_key", "grpc", "metrics", "model_control")
_PREFIX: Final = "/v2"
_NEEDS: Final = {
    "api_key": ("fastapi", "fastapi"),
    "grpc": ("grpcio protobuf", "grpc google.protobuf"),
    "metrics": ("prometheus_client", "prometheus_client"),
}
"""What an option needs, as pip has it, and its modules."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal ends it. A mistake of the user is one line, and the status 1."""
    try:
        import click
        import uvicorn
    except ImportError:
        sys.exit("uvicorn is not installed: pip install uvicorn")

    def set_defaults(context: click.Context, _: object, target: str) -> str:
        context.default_map = _find_defaults(Path(target))
        return target

    params = [
        click.Argument(["target"], metavar="TARGET", is_eager=True, callback=set_defaults),
        click.Option(["--name"], help="what the model of a file is called; without it, as the file"),
        click.Option(
            ["--api-key"],
            metavar="KEY",
            envvar=_KEY,
            help="the key that clients send as the header x-api-key, for all but health and the page; others "
            "on this machine see it in the list of processes, but not if it is in the environment variable "
            + _KEY,
        ),
        click.Option(
            ["--grpc"], type=click.IntRange(0, 65535), metavar="PORT", help="serve gRPC there, by grpcio"
        ),
        click.Option(
            ["--metrics"],
            type=click.IntRange(0, 65535),
            metavar="PORT",
            help="serve numbers for Prometheus there",
        ),
        click.Option(
            ["--model-control"], is_flag=True, help="let clients load and unload models of a file or folder"
        ),
        *(each for each in uvicorn.main.params if each.name not in ("app", "factory")),
    ]
    click.Command(
        None,
        uvicorn.main.context_settings,
        lambda **options: click.get_current_context().invoke(uvicorn.main, **_prepare(options)),
        params,
        _HELP,
    ).main(arguments, "python -m oip_asgi")


def _find_defaults(folder: Path) -> dict[str, Any]:
    """What `settings.json` of a folder says of options."""
    if not folder.is_dir():
        return {}
    try:
        settings = read_settings(folder)
    except ValueError as error:
        sys.exit(str(error))
    return {
        "host": settings.host,
        "port": settings.http_port,
        "grpc": settings.grpc_port,
        "metrics": settings.metrics_port,
    }


def _prepare(options: dict[str, Any]) -> dict[str, Any]:
    """Split the options: uvicorn's are returned, with an application of the others."""
    path = Path(options["target"]).resolve()
    has_port = options["uds"] is None and options["fd"] is None
    has_workers = (
        not options["reload"] and int(options["workers"] or os.environ.get("WEB_CONCURRENCY", 1)) > 1
    )
    _check_options(options, path, has_port=has_port, has_workers=has_workers)
    for key in ("port", "grpc", "metrics"):
        if options[key] is not None and (has_port or key != "port"):
            options[key] = _find_port(options["host"], options[key])
    command = {
        "host": options["host"],
        "url": _to_url(options["host"], options["port"], "https" if options["ssl_certfile"] else "http")
        if has_port
        else "http://localhost",
        "has_workers": has_workers,
        **{key: options.pop(key) for key in _OURS},
    }
    sys.path.insert(0, options["app_dir"])
    # with workers, a mistake is said here once, and not by each of them again and again
    options["app"] = None if options["reload"] else make_app(command)
    if options["reload"] and path.exists() and not options["reload_dirs"]:
        # an editor and joblib replace a file, so its folder is watched. uvicorn matches names from the right,
        # and takes what "*" finds in the working directory for folders to watch
        names = [f"{path.name}{'/*' * depth}" for depth in ((1, 2, 3) if path.is_dir() else (0,))]
        options["reload_dirs"] = [str(path if path.is_dir() else path.parent)]
        options["reload_includes"] = [*options["reload_includes"], *names]
        options["reload_excludes"] = [*options["reload_excludes"], "*.py[cod]", "__pycache__"]
    if options["reload"] or has_workers:
        os.environ[_COMMAND] = json.dumps(command)
        options["app"], options["factory"] = f"{__name__}:make_app", True
    return options


def _check_options(options: Mapping[str, Any], path: Path, *, has_port: bool, has_workers: bool) -> None:
    """Refuse what has no effect on a target, and what needs a package that is missing."""
    given = {name for name in _OURS if options[name] is not None and options[name] is not False}
    key = options["api_key"]
    ports = [
        options[name]
        for name in ("port", "grpc", "metrics")
        if options[name] and (has_port or name != "port")  # 0 asks for a free one
    ]
    needs = [
        (0 <= options["port"] <= 65535, f"port {options['port']}: expected 0 to 65535"),
        (len(set(ports)) == len(ports), "--port, --grpc and --metrics have to be different ports"),
        ("name" not in given or path.is_file(), "--name is for a file with one model"),
        (
            "model_control" not in given or path.exists(),
            "--model-control is for a file or folder: write InferenceServer(model_control=True)",
        ),
        (
            key is None or (key and key.isascii()),
            "--api-key has to be ASCII, as the value of a header, and not empty",
        ),
        (
            key is not None or os.environ.get(_KEY) != "",
            f"the environment variable {_KEY} is empty: expected a key, or unset it to serve without one",
        ),
        (
            key is not None
            or options["env_file"] is None
            or not re.search(
                rb"(?m)^\s*(export\s+)?%b\s*=" % _KEY.encode(), Path(options["env_file"]).read_bytes()
            ),
            f"--env-file is read too late for {_KEY}: set it in the environment",
        ),
        (
            "grpc" not in given or options["ssl_certfile"] is None,
            "--grpc has no TLS, so the key and all data would be readable: leave out --ssl-certfile, or "
            "write an application with install(..., grpc=True)",
        ),
        (
            not has_workers or given.isdisjoint({"grpc", "metrics"}),
            "the ports of --grpc and --metrics are for one process, and cannot be shared by --workers: "
            "leave out one or the other",
        ),
        *(
            (
                name not in given or all(map(_is_installed, modules.split())),
                f"--{name.replace('_', '-')} needs what is not installed: pip install {packages}",
            )
            for name, (packages, modules) in _NEEDS.items()
        ),
    ]
    for is_right, text in needs:
        if not is_right:
            sys.exit(text)


def _is_installed(module: str) -> bool:
    return (
        importlib.util.find_spec(module.partition(".")[0]) is not None
        and importlib.util.find_spec(module) is not None
    )


def _find_port(host: str, port: int) -> int:
    """A free port for 0. A taken one is said before anything is loaded."""
    try:
        with socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        sys.exit(
            re.sub(r"\[Errno -?\d+\] | \(while .*", "", f"port {port} of {host} cannot be opened: {error}")
        )


def _to_url(host: str, port: int, scheme: str = "http") -> str:
    """The address for a user of this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{host}:{port}"


def make_app(command: Mapping[str, Any] | None = None) -> Any:
    """Find the target, and make its application, which prints what is served and opens the other ports when
    it starts.

    In a process that uvicorn has started, the command is in the environment.
    """
    command = command or json.loads(os.environ[_COMMAND])
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    server = find_target(command["target"], command["name"], model_control=command["model_control"])

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        async with server.lifespan(), AsyncExitStack() as stack:
            lines = [
                *describe_models(server, command["url"], has_key=command["api_key"] is not None),
                *[
                    await opens(server, command, stack)
                    for name, opens in _PORTS.items()
                    if command[name] is not None
                ],
            ]
            if not command["has_workers"] or current_process().name == "SpawnProcess-1":
                print(*lines, sep="\n", flush=True)  # noqa: T201
            yield

    app, protection = _make_host(command["api_key"], lifespan)
    OIPApp(server).install(app, _PREFIX, grpc=_is_installed("google.protobuf"), **protection)
    return app


def _make_host(key: str | None, lifespan: Any) -> tuple[Any, dict[str, Any]]:
    """The application in which the protocol is, and what protects it there."""
    if key is None:
        return Starlette(lifespan=lifespan), {}
    from fastapi import Depends, FastAPI, HTTPException, Security
    from fastapi.security import APIKeyHeader

    def check_key(sent: str | None = Security(APIKeyHeader(name="x-api-key", auto_error=False))) -> None:
        if not secrets.compare_digest((sent or "").encode(), key.encode()):
            raise HTTPException(401, "send the header x-api-key")

    return FastAPI(openapi_url=None, lifespan=lifespan), {
        "dependencies": [Depends(check_key)],
        "public": ["health", "docs"],
    }


async def _serve_metrics(server: InferenceServer, command: Mapping[str, Any], stack: AsyncExitStack) -> str:
    """Open the port of Prometheus, until the stack ends. Returns what to print of it."""
    from prometheus_client import start_http_server

    from .prometheus import instrument

    instrument(server)
    serving, _ = start_http_server(command["metrics"], command["host"])
    stack.callback(serving.server_close)
    stack.callback(serving.shutdown)
    return f"numbers for Prometheus: {_to_url(command['host'], command['metrics'])}/metrics"


async def _serve_grpc(server: InferenceServer, command: Mapping[str, Any], stack: AsyncExitStack) -> str:
    """Open the port of gRPC, until the stack ends. Without the key, there is health only."""
    import grpc.aio

    from .grpc import HEALTH_METHODS, add_to_server

    host, port, key = command["host"], command["grpc"], command["api_key"]

    async def refuse(_: object, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "send the metadata x-api-key")

    class KeyInterceptor(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, call: Any) -> Any:
            sent = dict(call.invocation_metadata).get("x-api-key", "")
            if (
                key is None
                or call.method in HEALTH_METHODS
                or secrets.compare_digest(str(sent).encode(), key.encode())
            ):
                return await continuation(call)
            return grpc.unary_unary_rpc_method_handler(refuse)

    grpc_server = grpc.aio.server(
        interceptors=[KeyInterceptor()],
        options=[
            ("grpc.max_receive_message_length", server.options.max_body_bytes or -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    add_to_server(server, grpc_server)
    grpc_server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    await grpc_server.start()
    stack.push_async_callback(grpc_server.stop, server.options.shutdown_timeout)
    return f"gRPC: {_to_url(host, port).removeprefix('http://')}"


_PORTS: Final[Mapping[str, Callable[..., Any]]] = {"grpc": _serve_grpc, "metrics": _serve_metrics}


# What it prints


def describe_models(server: InferenceServer, url: str, *, has_key: bool) -> Iterator[str]:
    """Say what is known of each model, and where the page is; and a line for curl that works, for the first
    model that has one.

    Args:
        server: The server, whose models are loaded.
        url: Where it listens, such as "http://127.0.0.1:8000".
        has_key: Whether clients need the key.
    """
    curl, paths = "", server.openapi(_PREFIX)["paths"]
    for model in server.models():
        label = f"model {model.name!r}" + ("" if model.version is None else f" version {model.version!r}")
        if model.state != "ready":
            yield f"{label} is not ready: {model.reason or model.state}"
            continue
        takes, returns = (
            ", ".join(f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in specs)
            or f"{what} that it does not declare"
            for what, specs in (("inputs", model.inputs), ("outputs", model.outputs))
        )
        yield f"{label}: takes {takes}; returns {returns}"
        curl = curl or (
            _write_curl(paths, f"{_PREFIX}/models/{quote(model.name, safe='')}", url, has_key=has_key)
            if model.inputs
            else ""  # where nothing is declared, an example would be a guess
        )
    if server.options.docs:
        yield f"page: {url}{_PREFIX}/docs"
    if curl:
        yield f"try: {curl}"


def _write_curl(paths: Mapping[str, Any], path: str, url: str, *, has_key: bool) -> str:
    """The request of an example as a line for a shell; "" if there is no example."""
    for action, option in (("infer", ""), ("generate_stream", "-N ")):
        body = paths.get(f"{path}/{action}", {}).get("post", {}).get("requestBody", {})
        example = body.get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            option += '-H "x-api-key: $KEY" ' if has_key else ""
            return (
                f"curl {option}{shlex.quote(f'{url}{path}/{action}')} -d {shlex.quote(json.dumps(example))}"
            )
    return ""


# Targets

_FILES: Final = (
    "an estimator's .joblib or .pkl, an .onnx, or what save_model of LightGBM or XGBoost has written"
)

_OTHERS: Final = {
    ".py": "for a server, write module:name, such as app:server",
    **dict.fromkeys(
        (".pt", ".pth", ".keras", ".h5", ".safetensors"),
        "the command has no library that runs this: export it to ONNX, or load it in a module, and register "
        "a function with "
        "server.register",
    ),
}
"""What is said of other files."""


def find_target(named: str, name: str | None, *, model_control: bool) -> InferenceServer:
    """Find or make the server of a target. If there is none, end with what to write instead.

    Args:
        named: As the command line names it.
        name: What a model that is read from a file is called; None for the name of the file.
        model_control: Whether clients may load and unload models of a server that is made here.
    """
    path = Path(named)
    if not (path.is_file() or path.is_dir()):
        return _import_server(named)
    try:
        if path.is_dir():
            return _serve_folder(path, model_control=model_control)
        server = InferenceServer(model_control=model_control)
        server.register(name or path.stem, **read_model_file(path))
    except (ImportError, TypeError, ValueError, OSError) as error:
        sys.exit(str(error) if path.is_dir() else f"{named}: {error}")
    return server


def _serve_folder(folder: Path, *, model_control: bool) -> InferenceServer:
    settings = read_settings(folder)
    server = InferenceServer(settings.server_name, settings.server_version, model_control=model_control)
    register_models(server, folder, settings, opens=("grpc_port", "metrics_port"))
    old = [
        str(file)
        for file in sorted(folder.rglob("*.py"))
        if file.is_file() and re.search(rb"^\s*(from|import) mlserver", file.read_bytes(), re.MULTILINE)
    ]
    if old:
        print(f"These files import mlserver. Change their import lines:\n{SED} {' '.join(old)}", flush=True)  # noqa: T201
    return server


def _import_server(named: str) -> InferenceServer:
    from uvicorn.importer import ImportFromStringError, import_from_string

    if ":" not in named:
        sys.exit(
            f"{named}: there is no such file or folder: expected module:server, a folder of MLServer, or a "
            f"file: {_FILES}"
        )
    try:
        server = import_from_string(named)
    except ImportFromStringError as error:
        sys.exit(f"{named}: {error} Start the command in the folder where the module is")
    except TypeError as error:  # of the module: of a TypeError, uvicorn would not show where it was raised
        raise RuntimeError(f"{named} cannot be imported") from error
    if not isinstance(server, InferenceServer):
        sys.exit(
            f"{named} has the type {type(server).__name__}: expected an InferenceServer; for an ASGI "
            f"application, run uvicorn {named}"
        )
    return server


def read_model_file(file: Path) -> dict[str, Any]:
    """Read a file. Returns what `register` takes.

    Raises:
        ValueError: It holds no model, or cannot be read, as when its library is not installed; the text says
            what was expected.
    """
    with file.open("rb") as opened:
        beginning = opened.read(64)
    suffix = file.suffix.lower()
    read = _BY_SUFFIX.get(suffix) or next(
        (each for mark, each in _BY_BEGINNING.items() if mark in beginning), None
    )
    if read is None:
        raise ValueError(f"{_OTHERS.get(suffix, 'this is no file of a model')}: expected {_FILES}")
    try:
        model = read(str(file))
    except (
        Exception
    ) as error:  # whatever a library says of a file that it cannot read, and joblib checks nothing
        raise ValueError(
            f"it cannot be read ({type(error).__name__}: {error}): expected a whole file, and here the "
            "libraries, classes and functions "
            "with which it was written, in their versions: install them, or start this where they can be "
            "imported"
        ) from error
    return _describe_session(model) if hasattr(model, "get_inputs") else _describe_estimator(model)


def _describe_estimator(estimator: Any) -> dict[str, Any]:
    """All that an estimator says of rows, as outputs with the names that they have at MLServer."""
    if not hasattr(estimator, "predict"):
        raise ValueError(
            f"it holds a value of the type {type(estimator).__name__}: expected an estimator with predict"
        )
    outputs, classes = list[TensorSpec](), getattr(estimator, "classes_", None)
    if isinstance(classes, np.ndarray) and hasattr(estimator, "predict_proba"):
        outputs = [
            TensorSpec("predict", Tensor("predict", classes).datatype, [-1]),
            TensorSpec("predict_proba", "FP64", [-1, len(classes)], labels=list(map(str, classes))),
        ]

    def predict(self: Any, X: Any) -> dict[str, Any]:  # noqa: N803  (as the estimator calls it)
        return {name: getattr(self, name)(X) for name in [spec.name for spec in outputs] or ["predict"]}

    # a method of the estimator's own: what it declares is known as of its other methods
    return {
        "function": MethodType(predict, estimator),
        "outputs": outputs,
    }


def _describe_session(session: Any) -> dict[str, Any]:
    """A session of ONNX Runtime."""
    inputs, outputs = specs_of(session)
    names = [output.name for output in outputs]

    def predict(**inputs: Any) -> dict[str, Any]:
        for name, array in inputs.items():
            # its elements are `bytes`, of which ONNX Runtime would silently take the text b'...'
            if array.dtype.hasobject:
                inputs[name] = np.reshape(
                    np.array(StringCodec.decode_input(Tensor(name, array.ravel())), object), array.shape
                )
        return dict(zip(names, session.run(names, inputs), strict=True))

    return {"function": predict, "inputs": inputs, "outputs": outputs}


_BY_SUFFIX: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(
        (".joblib", ".pkl", ".pickle"), lambda file: importlib.import_module("joblib").load(file)
    ),
    ".onnx": lambda file: (ort := importlib.import_module("onnxruntime")).InferenceSession(
        file, providers=ort.get_available_providers()
    ),
}
"""How a file is read. A pickle runs what it says, so it is read only if the file is called one."""

_BY_BEGINNING: Final[Mapping[bytes, Callable[[str], Any]]] = {
    b"tree\nversion=": lambda file: importlib.import_module("lightgbm").Booster(model_file=file),
    b"learner": open_xgboost,
}
"""LightGBM's text, and XGBoost's JSON and UBJSON, which may have any suffix."""
