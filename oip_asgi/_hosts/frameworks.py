"""What is known of frameworks by the names of their classes: which object that users give to adapters is of
which, what to write instead of a wrong one, and what of an application runs before the protocol: its
middleware, and the dependencies of FastAPI, which run before routes, and not before what is mounted.

Of these it says what they are called, what they do not see, and which may have read the body. Imports FastAPI
and Django only after it was given an application of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from .._protocol.errors import Reader

if TYPE_CHECKING:
    from starlette.types import Scope

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


TAKEN_BY: Final = "oip_asgi.taken_by"
"""The key in a message of the body that says what of the application has read it, as a `TakenBy`."""

READ_ASYNC: Final = "await request.body()"


def name_one(one: str, many: str, names: Sequence[str]) -> str:
    """Name the part of an application that did something: the only one of its kind, or one of several."""
    if not names:
        return "something of the application"
    return f"the {one} {names[0]}" if len(names) == 1 else f"one of {many} {', '.join(names)}"


def iterate_applications(app: object) -> Iterator[object]:
    """Yield an application, and the applications inside its middleware, from the outside to the inside."""
    for _ in range(100):
        yield app
        app = getattr(app, "app", None)
        if app is None:
            return


_FRAMEWORKS_OWN: Final = frozenset(
    {"ServerErrorMiddleware", "ExceptionMiddleware", "AsyncExitStackMiddleware", "TrailersMiddleware"}
)


def describe_middleware(host: object, path: str) -> str:
    """Say which middleware is in and around an application, from the outside to the inside, and how to put it
    before the protocol too."""
    names: list[str] = []
    advice = "put it around OIPMiddleware"
    for app in iterate_applications(host):
        if is_framework(app, "starlette", "Starlette") or is_framework(app, "starlette", "Router"):
            names += [
                _name_middleware(each.cls, each.kwargs.get("dispatch"))
                for each in getattr(app, "user_middleware", ())
            ]
            advice = f'write OIPApp(server).install(app, "{path}")'
        elif is_framework(app, "litestar", "Litestar"):
            names += [
                _name_middleware(getattr(each, "middleware", each)) for each in getattr(app, "middleware", ())
            ]
            advice = f'mount OIPApp(server) with @asgi("{path}", is_mount=True, copy_scope=False)'
        elif is_framework(app, "django", "ASGIHandler"):
            from django.conf import settings

            names += settings.MIDDLEWARE
            advice = f'write path("{path.strip("/")}", include(oip_asgi.django.urls(server)))'
        elif getattr(app, "app", None) is not None:
            names.append(_name_middleware(type(app), getattr(app, "dispatch_func", None)))
    named = ", ".join(name for name in names if name not in _FRAMEWORKS_OWN)
    return (
        named
        and f"OIPMiddleware answers {path} before this middleware, which does not see it: {named}. "
        f"If it should, {advice}"
    )


def describe_before_request(host: object, path: str) -> str:
    """Say which `before_request` functions a Flask application has inside its WSGI middleware, and how to put
    them before the protocol."""
    # of a bound method, such as Flask's `wsgi_app`
    owners = (getattr(each, "__self__", each) for each in iterate_applications(host))
    app = next((each for each in owners if is_framework(each, "flask", "Flask")), None)
    named = ", ".join(
        _name_middleware(each) for each in getattr(app, "before_request_funcs", {}).get(None, ())
    )
    return named and (
        f"OIPWSGIMiddleware answers {path} before these functions of before_request, which do not see it: "
        f"{named}. If they should, write "
        f'app.register_blueprint(oip_asgi.flask.blueprint(server, url_prefix="{path}"))'
    )


def _name_middleware(kind: object, dispatch: object = None) -> str:
    named = kind if dispatch is None else dispatch  # the function of @app.middleware("http")
    return str(getattr(named, "__name__", named))


def drops_trailers(host: object) -> bool:
    """True if middleware of a Starlette application drops the trailers of a mounted application, or of an
    `OIPMiddleware` inside it."""
    for middleware in getattr(host, "user_middleware", None) or ():  # from the outside to the inside
        kinds = [kind.__name__ for kind in getattr(getattr(middleware, "cls", None), "__mro__", ())]
        if "OIPMiddleware" in kinds and middleware.kwargs.get("grpc"):
            return False
        if "BaseHTTPMiddleware" in kinds:
            return True
    return False


def find_reader(scope: Scope) -> Reader:
    """Find the middleware of a Starlette application that may have read a request's body, which only one of
    `BaseHTTPMiddleware` can."""
    middleware = getattr(scope.get("app"), "user_middleware", None) or ()
    kinds = [
        each
        for each in middleware
        if "BaseHTTPMiddleware" in [kind.__name__ for kind in getattr(each.cls, "__mro__", ())]
    ]
    names = [_name_middleware(each.cls, each.kwargs.get("dispatch")) for each in kinds]
    return Reader(name_one("middleware", "the middleware", names), READ_ASYNC)


def check_dependencies(dependencies: Sequence[object]) -> None:
    """Check that all are what FastAPI's `Depends` or `Security` makes."""
    is_list = hasattr(dependencies, "__iter__")
    for dependency in dependencies if is_list else [dependencies]:
        if not is_list or not hasattr(dependency, "dependency"):
            name = getattr(getattr(dependency, "dependency", dependency), "__name__", "check")
            raise TypeError(
                f"dependencies= {'has' if is_list else 'is'} {describe(dependency)}: write "
                f"dependencies=[Depends({name})]"
            )


def find_dependencies(app: object) -> list[object]:
    """Find the dependencies that a FastAPI application, or a router, runs before each of its own routes.
    Others have none."""
    router = getattr(app, "router", app)
    return (
        list(getattr(router, "dependencies", None) or [])
        if is_framework(router, "fastapi", "APIRouter")
        else []
    )


def find_dependencies_around(app: object, mounted: object) -> list[object]:
    """Find the dependencies of a FastAPI application, and of the router in which `mounted` is. FastAPI does
    not run them before it."""
    return find_dependencies(app) + _find_in_routers(getattr(app, "router", None), mounted)


def _find_in_routers(router: object, mounted: object) -> list[object]:
    dependencies: list[object] = []
    for route in getattr(router, "routes", None) or ():
        # FastAPI 0.165 keeps an included router like this; older versions leave out what is mounted in it
        included = getattr(route, "original_router", None)
        if included is not None and mounted in [getattr(each, "app", None) for each in included.routes]:
            dependencies += [*included.dependencies, *route.include_context.dependencies]
        elif included is not None:
            dependencies += _find_in_routers(included, mounted)
    return dependencies


def describe_security(app: Any, dependencies: Sequence[Any]) -> tuple[dict[str, Any], list[Any]]:
    """Describe what a FastAPI application's dependencies ask for, as OpenAPI has it: the schemes, and what an
    operation needs."""
    from fastapi import APIRouter
    from fastapi.openapi.utils import get_openapi

    router = APIRouter(dependencies=[*app.router.dependencies, *dependencies])
    router.add_api_route("/", lambda: None, response_model=None)
    document = get_openapi(title="", version="", routes=router.routes)
    return document.get("components", {}).get("securitySchemes", {}), document["paths"]["/"]["get"].get(
        "security", []
    )


def find_dependency(scope: Scope) -> Reader:
    needed = getattr(scope.get("route"), "dependencies", ())
    names = [str(getattr(each.dependency, "__name__", each.dependency)) for each in needed]
    return Reader(name_one("dependency", "the dependencies", names), READ_ASYNC)
