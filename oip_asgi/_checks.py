"""Looks at the objects that users hand to adapters, so that swapped or wrong ones are refused at once, with what to write instead.

Knows the classes of frameworks by their names only: none is imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

_FOR_WSGI: Final = frozenset(
    {
        ("flask.app", "Flask"),
        ("django.core.handlers.wsgi", "WSGIHandler"),
        ("oip_asgi.wsgi", "OIPWSGIApp"),
        ("oip_asgi.wsgi", "OIPWSGIMiddleware"),
    }
)


def names_of(value: object) -> set[tuple[str, str]]:
    """The module and the name of a value's class and of all that it derives from."""
    return {(kind.__module__, kind.__name__) for kind in type(value).__mro__}


def is_framework(value: object, package: str, name: str) -> bool:
    """Whether a value is an instance of a class of a package, by their names."""
    return any(module.partition(".")[0] == package and kind == name for module, kind in names_of(value))


def called(value: object) -> str:
    """What an error calls a value: its class, or the class itself."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def check_server(server: object, taker: str, written: str) -> None:
    """Check that something is an `InferenceServer`."""
    if ("oip_asgi.server", "InferenceServer") not in names_of(server):
        raise TypeError(f"{taker} takes an InferenceServer, not {called(server)}: write {written}")


def check_asgi(app: object, written: str) -> None:
    """Check that something may be an ASGI application."""
    if names_of(app) & _FOR_WSGI:
        raise TypeError(f"{called(app)} is a WSGI application, and this is for ASGI: write {_wsgi_instead(app)}")
    if not callable(app) or isinstance(app, type):
        raise TypeError(f"{called(app)} is no ASGI application: write {written}")


def _wsgi_instead(app: object) -> str:
    if is_framework(app, "flask", "Flask"):
        return "app.register_blueprint(oip_asgi.flask.blueprint(server)), or app.wsgi_app = OIPWSGIMiddleware(app.wsgi_app, server)"
    return 'OIPWSGIMiddleware(application, server, "/v2")'


def check_installs_in(app: object) -> None:
    """Check that something is an application of Starlette or FastAPI."""
    if ("starlette.applications", "Starlette") in names_of(app):
        return
    if is_framework(app, "flask", "Flask"):
        instead = "for Flask, write app.register_blueprint(oip_asgi.flask.blueprint(server))"
    elif is_framework(app, "starlette", "Router"):
        instead = 'write OIPApp(server).install(app, "/api/v2"), with the application itself and the whole path'
    elif is_framework(app, "quart", "Quart"):
        instead = 'for Quart, write app.asgi_app = OIPMiddleware(app.asgi_app, server, "/v2")'
    elif is_asgi(app):
        instead = 'for other ASGI applications, write OIPMiddleware(app, server, "/v2")'
    elif isinstance(app, type) or not callable(app):
        instead = 'write OIPApp(server).install(app, "/v2"), with the application itself'
    else:
        instead = 'for WSGI applications, write OIPWSGIMiddleware(application, server, "/v2")'
    raise TypeError(f"install is for applications of Starlette and FastAPI, and this is {called(app)}: {instead}")


def check_wsgi(app: object, written: str) -> None:
    """`check_asgi` for WSGI."""
    if is_asgi(app):
        raise TypeError(f'{called(app)} is an ASGI application, and this is for WSGI: write OIPMiddleware(app, server, "/v2")')
    if not callable(app) or isinstance(app, type):
        raise TypeError(f"{called(app)} is no WSGI application: write {written}")


def is_asgi(app: object) -> bool:
    """Whether calling something gives a coroutine, as for ASGI applications and no WSGI application."""
    return inspect.iscoroutinefunction(app) or (not isinstance(app, type) and inspect.iscoroutinefunction(type(app).__call__))


def inner_applications(app: object) -> Iterator[object]:
    """An application, and what its middleware is put around, from the outside to the inside."""
    for _ in range(100):
        yield app
        app = getattr(app, "app", None)
        if app is None:
            return


def dependencies_of(app: object) -> list[object]:
    """The dependencies that a FastAPI application, or its router, runs before each of its own routes; none for others."""
    router = getattr(app, "router", app)
    if not is_framework(router, "fastapi", "APIRouter"):
        return []
    return list(getattr(router, "dependencies", None) or [])


def dependencies_around(app: object, mounted: object) -> list[object]:
    """The dependencies of a FastAPI application, and of its routers in which something is mounted, which FastAPI runs before neither."""
    return dependencies_of(app) + _of_routers(getattr(app, "router", None), mounted)


def _of_routers(router: object, mounted: object) -> list[object]:
    found: list[object] = []
    for route in getattr(router, "routes", None) or ():
        # how FastAPI 0.165 keeps an included router; older ones leave out what is mounted in one
        included = getattr(route, "original_router", None)
        if included is not None and mounted in [getattr(each, "app", None) for each in included.routes]:
            found += [*included.dependencies, *route.include_context.dependencies]
        elif included is not None:
            found += _of_routers(included, mounted)
    return found


def drops_trailers(host: object) -> bool:
    """Whether middleware of a Starlette application drops the trailers of what is mounted in it, or of an `OIPMiddleware` inside it."""
    for middleware in getattr(host, "user_middleware", None) or ():  # from the outside to the inside
        kinds = [kind.__name__ for kind in getattr(getattr(middleware, "cls", None), "__mro__", ())]
        if "OIPMiddleware" in kinds and middleware.kwargs.get("grpc"):
            return False
        if "BaseHTTPMiddleware" in kinds:
            return True
    return False


def needs(error: ImportError, package: str, extra: str, *, beside: str = "") -> ImportError:
    """The error for a module of this package whose extra is not installed."""
    if error.name is None or error.name.partition(".")[0] not in (package.partition(".")[0], beside):
        raise error  # it is there, and something that it needs is not
    return ImportError(f"{package} is not installed: pip install 'oip_asgi[{extra}]'", name=error.name)
