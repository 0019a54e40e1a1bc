"""What users give to adapters: which object is of which framework, and what to write instead of a swapped or
wrong one, or to install for a missing one.

Knows frameworks by the names of their classes, and imports none.
"""

from __future__ import annotations

import inspect
from typing import Final

_FOR_WSGI: Final = (
    ("flask", "Flask"),
    ("django", "WSGIHandler"),
    ("oip_asgi", "OIPWSGIApp"),
    ("oip_asgi", "OIPWSGIMiddleware"),
)


def is_framework(value: object, package: str, name: str) -> bool:
    """True if a value is an instance of a class of a package, by their names."""
    return any(
        kind.__module__.partition(".")[0] == package and kind.__name__ == name for kind in type(value).__mro__
    )


def describe(value: object) -> str:
    """Describe a value for an error, by its class."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def check_server(server: object, taker: str, written: str) -> None:
    """Check that something is an `InferenceServer`."""
    if not is_framework(server, "oip_asgi", "InferenceServer"):
        raise TypeError(f"{taker} takes an InferenceServer, not {describe(server)}: write {written}")


def check_asgi(app: object, written: str) -> None:
    """Check that something may be an ASGI application."""
    if any(is_framework(app, *names) for names in _FOR_WSGI):
        instead = 'OIPWSGIMiddleware(application, server, "/v2")'
        if is_framework(app, "flask", "Flask"):
            instead = (
                "app.register_blueprint(oip_asgi.flask.blueprint(server)), or app.wsgi_app = "
                "OIPWSGIMiddleware(app.wsgi_app, server)"
            )
        raise TypeError(f"{describe(app)} is a WSGI application, but this is for ASGI: write {instead}")
    if not callable(app) or isinstance(app, type):
        raise TypeError(f"{describe(app)} is no ASGI application: write {written}")


def check_wsgi(app: object, written: str) -> None:
    """Check that something may be a WSGI application."""
    if _is_asgi(app):
        raise TypeError(
            f"{describe(app)} is an ASGI application, but this is for WSGI: write OIPMiddleware(app, "
            'server, "/v2")'
        )
    if not callable(app) or isinstance(app, type):
        raise TypeError(f"{describe(app)} is no WSGI application: write {written}")


def check_installs_in(app: object) -> None:
    """Check that something is an application of Starlette or FastAPI."""
    if is_framework(app, "starlette", "Starlette"):
        return
    if is_framework(app, "flask", "Flask"):
        instead = "for Flask, write app.register_blueprint(oip_asgi.flask.blueprint(server))"
    elif is_framework(app, "starlette", "Router"):
        instead = (
            'write OIPApp(server).install(app, "/api/v2"), with the application itself and the whole path'
        )
    elif is_framework(app, "quart", "Quart"):
        instead = 'for Quart, write app.asgi_app = OIPMiddleware(app.asgi_app, server, "/v2")'
    elif _is_asgi(app):
        instead = 'for other ASGI applications, write OIPMiddleware(app, server, "/v2")'
    elif isinstance(app, type) or not callable(app):
        instead = 'write OIPApp(server).install(app, "/v2"), with the application itself'
    else:
        instead = 'for WSGI applications, write OIPWSGIMiddleware(application, server, "/v2")'
    raise TypeError(
        f"install is for applications of Starlette and FastAPI, but this is {describe(app)}: {instead}"
    )


def _is_asgi(app: object) -> bool:
    """True if a call returns a coroutine, as it does for ASGI applications and not for WSGI applications."""
    return inspect.iscoroutinefunction(app) or (
        callable(app) and not isinstance(app, type) and inspect.iscoroutinefunction(app.__call__)
    )


def make_import_error(
    error: ImportError, package: str, install: str, *, beside: str = "", also: str = ""
) -> ImportError:
    if error.name is None or error.name.partition(".")[0] not in (package.partition(".")[0], beside):
        raise error  # the package is there, but something that it needs is not
    return ImportError(f"{package} is not installed: pip install {install}{also}", name=error.name)
