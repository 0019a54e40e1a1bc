"""What the command line names -> the server with its models. Opens no sockets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from .._hosts.given import describe
from ..mlserver.folder import SED, register_models
from ..mlserver.settings import read_settings
from ..server import InferenceServer
from .model_files import EXPECTED, read_model_file


class Mistake(Exception):
    """A mistake that the user of the command can mend; the text says how."""


_TARGETS: Final = f"module:server, a folder of MLServer, or a file: {EXPECTED}"


def find_defaults(path: Path) -> dict[str, Any]:
    """What `settings.json` of a folder says of options."""
    if not path.is_dir():
        return {}
    try:
        settings = read_settings(path)
    except ValueError as error:
        raise Mistake(str(error)) from error
    return {"host": settings.host, "port": settings.http_port, "grpc": settings.grpc_port, "metrics": settings.metrics_port}


def find_target(named: str, name: str | None, *, model_control: bool) -> InferenceServer:
    """Find or make the server of a target.

    Args:
        named: As the command line names it.
        name: What a model that is read from a file is called; None for the name of the file.
        model_control: Whether clients may load and unload models of a server that is made here.

    Raises:
        Mistake: Nothing can be served.
    """
    path = Path(named)
    try:
        if path.is_dir():
            return _serve_folder(path, model_control=model_control)
        if path.suffix == ".py":
            raise Mistake(f"{named}: for a server, write module:name, such as {path.stem}:server")
        if path.is_file():
            return _serve_file(path, name or path.stem, model_control=model_control)
    except (ImportError, TypeError, ValueError, OSError) as error:
        raise Mistake(str(error)) from error
    if ":" not in named:
        raise Mistake(f"{named}: there is no such file or folder: expected {_TARGETS}")
    return _import_server(named)


def _serve_folder(folder: Path, *, model_control: bool) -> InferenceServer:
    settings = read_settings(folder)
    server = InferenceServer(settings.server_name, settings.server_version, model_control=model_control)
    register_models(server, folder, settings, opens=("grpc_port", "metrics_port"))
    files = [file for file in sorted(folder.rglob("*.py")) if file.is_file()]
    old = [str(file) for file in files if re.search(rb"^\s*(from|import) mlserver", file.read_bytes(), re.M)]
    if old:
        print(f"These files import mlserver. Change their import lines:\n{SED} {' '.join(old)}", flush=True)  # noqa: T201
    return server


def _serve_file(file: Path, name: str, *, model_control: bool) -> InferenceServer:
    model = read_model_file(file)
    server = InferenceServer(model_control=model_control)
    server.register(name, model.function, **model.options)
    return server


def _import_server(named: str) -> InferenceServer:
    from uvicorn.importer import ImportFromStringError, import_from_string

    try:
        server = import_from_string(named)
    except ImportFromStringError as error:
        raise Mistake(f"{named}: {error} Start the command in the folder where the module is") from None
    if not isinstance(server, InferenceServer):
        raise Mistake(f"{named} is {describe(server)}: expected an InferenceServer; for an application of ASGI, run uvicorn {named}")
    return server
