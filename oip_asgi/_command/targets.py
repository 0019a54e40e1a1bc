"""What the command line names -> what is served: a server, or a user's application. Opens no sockets."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from .._hosts.given import describe, is_framework
from .._hosts.middleware import iterate_applications
from ..asgi import OIPApp, OIPMiddleware
from ..mlserver.folder import SED, register_models
from ..mlserver.settings import Settings, read_settings
from ..server import InferenceServer
from .model_files import EXPECTED, read_model_file


class Mistake(Exception):
    """A mistake that the user of the command can mend; the text says how."""


class Target(NamedTuple):
    """What is served."""

    served: InferenceServer | Any  # or an application of ASGI
    server: InferenceServer | None  # whose models are told of; None if an application does not show it
    prefix: str = "/v2"
    settings: Settings | None = None  # of a folder of MLServer


INSTALLED: Final = "oip:server"
"""The name of the route that `OIPApp.install` adds for the bare prefix."""

_TARGETS: Final = f"module:server, module:app, a folder of MLServer, or a file: {EXPECTED}"


def find_target(named: str, name: str | None, *, model_control: bool) -> Target:
    """Find what is served.

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
            raise Mistake(f"{named}: for an application or a server, write module:name, such as {path.stem}:app")
        if path.is_file():
            return _serve_file(path, name or path.stem, model_control=model_control)
    except (ImportError, TypeError, ValueError, OSError) as error:
        raise Mistake(str(error)) from error
    module, colon, attribute = named.partition(":")
    if not (colon and attribute and re.fullmatch(r"[\w.]+", module)):
        raise Mistake(f"{named}: there is no such file or folder: expected {_TARGETS}")
    return _describe_imported(module, _import_attribute(module, attribute))


def _serve_folder(folder: Path, *, model_control: bool) -> Target:
    settings = read_settings(folder)
    server = InferenceServer(settings.server_name, settings.server_version, model_control=model_control)
    register_models(server, folder, settings, opens=("grpc_port", "metrics_port"))
    files = [file for file in sorted(folder.rglob("*.py")) if file.is_file()]
    old = [str(file) for file in files if re.search(rb"^\s*(from|import) mlserver", file.read_bytes(), re.M)]
    if old:
        print(f"These files import mlserver. Change their import lines:\n{SED} {' '.join(old)}", flush=True)  # noqa: T201
    return Target(server, server, settings=settings)


def _serve_file(file: Path, name: str, *, model_control: bool) -> Target:
    model = read_model_file(file)
    server = InferenceServer(model_control=model_control)
    server.register(name, model.function, **model.options)
    return Target(server, server)


def _import_attribute(module: str, attribute: str) -> Any:
    try:
        value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a module that this one imports: who wrote it needs the traceback
        raise Mistake(
            f"{module}:{attribute}: there is no module {error.name!r} here: start the command in the folder where it is"
        ) from None
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise Mistake(f"{module}:{attribute}: there is no {name!r}{_list_candidates(value)}")
        value = getattr(value, name)
    _check_app(value, f"{module}:{attribute}")
    return value


def _describe_imported(module: str, app: Any) -> Target:
    """Find the server in an application: the only one of its module, and where a route or middleware has it."""
    if isinstance(app, InferenceServer):
        return Target(app, app)
    servers = [value for value in vars(sys.modules[module]).values() if isinstance(value, InferenceServer)]
    prefixes = [prefix for each in iterate_applications(app) for prefix in _find_prefixes(each)]
    if len({*map(id, servers)}) == len(prefixes) == 1:
        return Target(app, servers[0], prefixes[0])
    return Target(app, None)


def _find_prefixes(app: object) -> Iterator[str]:
    if isinstance(app, OIPMiddleware | OIPApp):
        yield app._prefix
    for route in getattr(app, "routes", ()):
        if getattr(route, "name", "") == INSTALLED or isinstance(getattr(route, "app", None), OIPApp):
            yield route.path


def _list_candidates(module: Any) -> str:
    """What of a module could be meant."""
    may_be = [name for name, value in vars(module).items() if isinstance(value, InferenceServer) or _is_asgi(value)]
    return (
        f": did you mean {' or '.join(may_be)}?"
        if may_be
        else " in it, and nothing else that is an InferenceServer or an application of ASGI"
    )


def _is_asgi(value: Any) -> bool:
    return not isinstance(value, type) and callable(value) and inspect.iscoroutinefunction(type(value).__call__)


def _check_app(app: Any, named: str) -> None:
    if isinstance(app, InferenceServer) or _is_asgi(app):
        return
    if is_framework(app, "flask", "Flask") or is_framework(app, "django", "WSGIHandler") or is_framework(app, "oip_asgi", "OIPWSGIApp"):
        raise Mistake(f"{named} is {describe(app)}, an application of WSGI, and this serves ASGI: run gunicorn --threads 8 {named}")
    if inspect.isfunction(app) and not inspect.iscoroutinefunction(app) and not inspect.signature(app).parameters:
        raise Mistake(f"{named} is a function: give a name to what it makes, such as app = {app.__name__}(), and write that name")
    if isinstance(app, type) or not callable(app):
        raise Mistake(f"{named} is {describe(app)}: expected an InferenceServer or an application of ASGI")
