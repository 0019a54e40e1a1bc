"""What this package knows of frameworks: which object is what, which routes and dependencies an application has, and how to add ours.

Knows their classes by name, and imports a framework only after it was given an application of it. Knows no protocol.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ._protocol.errors import Reader

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

Serve: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[None]]"
"""Answers a request as an application of ASGI does."""

_FOR_WSGI: Final = (("flask", "Flask"), ("django", "WSGIHandler"), ("oip_asgi", "OIPWSGIApp"), ("oip_asgi", "OIPWSGIMiddleware"))

_OURS: Final = "oip_asgi"
"""The module of the endpoints of our routes, as middleware shows it."""

_GROUP: Final = re.compile(r"\(\?P<\w+>")

_PROBE: Final = "oip_asgi-probe"
"""A name that matches only routes for any name."""

# Objects that users give to adapters: swapped or wrong ones are refused at once, with what to write instead


def is_framework(value: object, package: str, name: str) -> bool:
    """True if a value is an instance of a class of a package, by their names."""
    return any(kind.__module__.partition(".")[0] == package and kind.__name__ == name for kind in type(value).__mro__)


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
            instead = "app.register_blueprint(oip_asgi.flask.blueprint(server)), or app.wsgi_app = OIPWSGIMiddleware(app.wsgi_app, server)"
        raise TypeError(f"{describe(app)} is a WSGI application, but this is for ASGI: write {instead}")
    if not callable(app) or isinstance(app, type):
        raise TypeError(f"{describe(app)} is no ASGI application: write {written}")


def check_wsgi(app: object, written: str) -> None:
    """Check that something may be a WSGI application."""
    if _is_asgi(app):
        raise TypeError(f'{describe(app)} is an ASGI application, but this is for WSGI: write OIPMiddleware(app, server, "/v2")')
    if not callable(app) or isinstance(app, type):
        raise TypeError(f"{describe(app)} is no WSGI application: write {written}")


def check_installs_in(app: object) -> None:
    """Check that something is an application of Starlette or FastAPI."""
    if is_framework(app, "starlette", "Starlette"):
        return
    if is_framework(app, "flask", "Flask"):
        instead = "for Flask, write app.register_blueprint(oip_asgi.flask.blueprint(server))"
    elif is_framework(app, "starlette", "Router"):
        instead = 'write OIPApp(server).install(app, "/api/v2"), with the application itself and the whole path'
    elif is_framework(app, "quart", "Quart"):
        instead = 'for Quart, write app.asgi_app = OIPMiddleware(app.asgi_app, server, "/v2")'
    elif _is_asgi(app):
        instead = 'for other ASGI applications, write OIPMiddleware(app, server, "/v2")'
    elif isinstance(app, type) or not callable(app):
        instead = 'write OIPApp(server).install(app, "/v2"), with the application itself'
    else:
        instead = 'for WSGI applications, write OIPWSGIMiddleware(application, server, "/v2")'
    raise TypeError(f"install is for applications of Starlette and FastAPI, but this is {describe(app)}: {instead}")


def _is_asgi(app: object) -> bool:
    """True if a call returns a coroutine, as it does for ASGI applications and not for WSGI applications."""
    return inspect.iscoroutinefunction(app) or (callable(app) and not isinstance(app, type) and inspect.iscoroutinefunction(app.__call__))


def make_import_error(error: ImportError, package: str, extra: str, *, beside: str = "") -> ImportError:
    """Make the error for a module of this package whose extra is not installed."""
    if error.name is None or error.name.partition(".")[0] not in (package.partition(".")[0], beside):
        raise error  # the package is there, but something that it needs is not
    return ImportError(f"{package} is not installed: pip install 'oip_asgi[{extra}]'", name=error.name)


# Middleware


def iterate_applications(app: object) -> Iterator[object]:
    """Yield an application, and the applications inside its middleware, from the outside to the inside."""
    for _ in range(100):
        yield app
        app = getattr(app, "app", None)
        if app is None:
            return


_FRAMEWORKS_OWN: Final = frozenset({"ServerErrorMiddleware", "ExceptionMiddleware", "AsyncExitStackMiddleware", "TrailersMiddleware"})


def describe_middleware(host: object, path: str) -> str:
    """Say which middleware is in and around an application, from the outside to the inside, and how to put it before the protocol too."""
    names: list[str] = []
    advice = "put it around OIPMiddleware"
    for app in iterate_applications(host):
        if is_framework(app, "starlette", "Starlette") or is_framework(app, "starlette", "Router"):
            names += [_name_middleware(each.cls, each.kwargs.get("dispatch")) for each in getattr(app, "user_middleware", ())]
            advice = f'write OIPApp(server).install(app, "{path}")'
        elif is_framework(app, "litestar", "Litestar"):
            names += [_name_middleware(getattr(each, "middleware", each)) for each in getattr(app, "middleware", ())]
            advice = f'mount OIPApp(server) with @asgi("{path}", is_mount=True, copy_scope=False)'
        elif is_framework(app, "django", "ASGIHandler"):
            from django.conf import settings

            names += settings.MIDDLEWARE
            advice = f'write path("{path.strip("/")}", include(oip_asgi.django.urls(server)))'
        elif getattr(app, "app", None) is not None:
            names.append(_name_middleware(type(app), getattr(app, "dispatch_func", None)))
    named = ", ".join(name for name in names if name not in _FRAMEWORKS_OWN)
    return named and f"OIPMiddleware answers {path} before this middleware, which does not see it: {named}. If it should, {advice}"


def describe_before_request(host: object, path: str) -> str:
    """Say which `before_request` functions a Flask application has inside its WSGI middleware, and how to put them before the protocol."""
    owners = (getattr(each, "__self__", each) for each in iterate_applications(host))  # of a bound method, such as Flask's `wsgi_app`
    app = next((each for each in owners if is_framework(each, "flask", "Flask")), None)
    named = ", ".join(_name_middleware(each) for each in getattr(app, "before_request_funcs", {}).get(None, ()))
    return named and (
        f"OIPWSGIMiddleware answers {path} before these functions of before_request, which do not see it: {named}. If they should, write "
        f'app.register_blueprint(oip_asgi.flask.blueprint(server, url_prefix="{path}"))'
    )


def _name_middleware(kind: object, dispatch: object = None) -> str:
    named = kind if dispatch is None else dispatch  # the function of @app.middleware("http")
    return str(getattr(named, "__name__", named))


def drops_trailers(host: object) -> bool:
    """True if middleware of a Starlette application drops the trailers of a mounted application, or of an `OIPMiddleware` inside it."""
    for middleware in getattr(host, "user_middleware", None) or ():  # from the outside to the inside
        kinds = [kind.__name__ for kind in getattr(getattr(middleware, "cls", None), "__mro__", ())]
        if "OIPMiddleware" in kinds and middleware.kwargs.get("grpc"):
            return False
        if "BaseHTTPMiddleware" in kinds:
            return True
    return False


# FastAPI's dependencies. They do not reach a mounted application. They reach a route.


def check_dependencies(dependencies: Sequence[object]) -> None:
    """Check that all are what FastAPI's `Depends` or `Security` makes."""
    is_list = hasattr(dependencies, "__iter__")
    for dependency in dependencies if is_list else [dependencies]:
        if not is_list or not hasattr(dependency, "dependency"):
            name = getattr(getattr(dependency, "dependency", dependency), "__name__", "check")
            raise TypeError(f"dependencies= {'has' if is_list else 'is'} {describe(dependency)}: write dependencies=[Depends({name})]")


def find_dependencies(app: object) -> list[object]:
    """Find the dependencies that a FastAPI application, or a router, runs before each of its own routes. Others have none."""
    router = getattr(app, "router", app)
    return list(getattr(router, "dependencies", None) or []) if is_framework(router, "fastapi", "APIRouter") else []


def find_dependencies_around(app: object, mounted: object) -> list[object]:
    """Find the dependencies of a FastAPI application, and of the router in which `mounted` is. FastAPI does not run them before it."""
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


class HostRoute(NamedTuple):
    """A route to add to an application of Starlette or FastAPI."""

    path: str  # a template of Starlette's, such as "/v2/models/{name}/infer"; one that ends with `REST` takes what no other route takes
    name: str  # such as "model_infer"
    serve: Serve
    is_open: Callable[[Scope], object] | None = None  # finds requests before which no dependencies run; None for none


REST: Final = "/{oip_path:path}"


def add_routes(app: Any, routes: Sequence[HostRoute], dependencies: Sequence[Any] = ()) -> list[Any]:
    """Add routes to an application of Starlette or FastAPI, and return them as they are there.

    What middleware finds at a route is a function of its name. Dependencies run before it, also those of the application.
    """
    has_dependencies = bool(dependencies or find_dependencies(app))
    options: dict[str, Any] = {"include_in_schema": False}
    if has_dependencies:
        options |= {"dependencies": list(dependencies), "response_model": None, "route_class_override": _make_guarded_route()}
    add, added = app.router.add_api_route if has_dependencies else app.router.add_route, []
    for path, name, serve, is_open in sorted(routes, key=lambda route: not route.name.lower().endswith("infer")):  # asked in this order
        endpoint = _make_endpoint(name, serve)
        add(path, endpoint, name=f"oip:{name}", **options)
        route: Any = next(iter(app.router.routes[-1:]), None)
        if getattr(route, "endpoint", None) is not endpoint:
            raise ValueError(f"{describe(app.router)} does not keep the route {path!r}: put OIPMiddleware around the application")
        route.methods = set()  # any
        if not has_dependencies:  # not by way of the endpoint, for which Starlette makes a request each time
            route.app = _serve_at(route, serve)
        else:
            route.app = _guard(route.app, serve, is_open)
        added.append(route)
    for route in added:
        if route.path.endswith(REST):  # slowapi counts a request for the last route that matches
            prefix = route.path.removesuffix(REST)
            taken = [_GROUP.sub("(?:", each.path_regex.pattern) for each in added if each is not route and each.path.startswith(prefix)]
            route.path_regex = re.compile(f"(?!{'|'.join(taken)}){route.path_regex.pattern}")
    return added


def cut_off(prefix: str) -> Callable[[str], str]:
    """Return what finds the path below a prefix, which may have parameters, such as "/{tenant}/v2"."""
    if "{" not in prefix:
        return lambda path: path[len(prefix) :]
    from starlette.routing import compile_path

    match = compile_path(prefix + REST)[0].match

    def cut(path: str) -> str:
        matched = match(path)
        return "" if matched is None else f"/{matched['oip_path']}"

    return cut


def _serve_at(route: Any, serve: Serve) -> Serve:
    def serve_at(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        scope["route"] = route  # FastAPI says it for its own class of routes only, and Sentry names a request by it
        return serve(scope, receive, send)

    return serve_at


class _Watched:
    """Receives the messages of a request, and knows whether one with a part of its body has come."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self.has_begun = receive, False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.has_begun = self.has_begun or message["type"] == "http.request"
        return message


def _guard(guarded: Serve, serve: Serve, is_open: Callable[[Scope], object] | None) -> Serve:
    """Let dependencies run first, but not before what is open."""

    def guard(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if is_open is not None and is_open(scope):
            return serve(scope, receive, send)
        return guarded(scope, _Watched(receive), send)

    return guard


def _make_endpoint(name: str, serve: Serve) -> Callable[[Any], Awaitable[Any]]:
    """Make an endpoint of a name, whose response answers as `serve` does."""
    from starlette.requests import Request
    from starlette.responses import Response

    class Served(Response):
        def __init__(self, request: Request) -> None:
            super().__init__()
            self._request = request

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await serve(scope, _replay(self._request, receive), send)
            if self.background is not None:
                await self.background()

    async def endpoint(request: Request) -> Response:
        return Served(request)

    endpoint.__annotations__ = {"request": Request}  # FastAPI looks for their names among this module's own
    endpoint.__module__, endpoint.__name__, endpoint.__qualname__ = _OURS, name, name
    return endpoint


def _make_guarded_route() -> type[Any]:
    """Make a class of FastAPI's routes that answers what a dependency raises as the protocol has it."""
    from fastapi.exceptions import RequestValidationError
    from fastapi.routing import APIRoute
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
            handle = super().get_route_handler()

            async def answer(request: Request) -> Response:
                try:
                    return await handle(request)
                except HTTPException as error:
                    if error.status_code < 400:  # such as a redirect to a page for logging in
                        raise
                    text = error.detail if isinstance(error.detail, str) else json.dumps(error.detail, default=str)
                    return JSONResponse({"error": text}, error.status_code, error.headers)
                except RequestValidationError as error:
                    problems = [f"{' '.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
                    return JSONResponse({"error": "; ".join(problems)}, 422)

            return answer

    return GuardedRoute


def describe_security(app: Any, dependencies: Sequence[Any]) -> tuple[dict[str, Any], list[Any]]:
    """Describe what a FastAPI application's dependencies ask for, as OpenAPI has it: the schemes, and what an operation needs."""
    from fastapi import APIRouter
    from fastapi.openapi.utils import get_openapi

    router = APIRouter(dependencies=[*app.router.dependencies, *dependencies])
    router.add_api_route("/", lambda: None, response_model=None)
    document = get_openapi(title="", version="", routes=router.routes)
    return document.get("components", {}).get("securitySchemes", {}), document["paths"]["/"]["get"].get("security", [])


TAKEN_BY: Final = "oip_asgi.taken_by"
"""The key in a message of the body that says what of the application has read it, as a `TakenBy`."""


def _replay(request: Any, receive: Receive) -> Receive:
    """The request's messages, with the body that a dependency has read, such as to check its signature; or with which has taken it."""
    message: dict[str, Any] = {"type": "http.request", "body": getattr(request, "_body", b""), "more_body": False}
    if not hasattr(request, "_body"):
        # also a part of it, by request.stream() that ends early, or a message that request.is_disconnected() drops
        if not getattr(request.receive, "has_begun", request._stream_consumed):
            return receive
        message[TAKEN_BY] = partial(_find_dependency, request.scope)
    messages = [message]

    async def replay() -> Any:
        return messages.pop() if messages else await receive()

    return replay


def find_reader(scope: Scope) -> Reader:
    """Find the middleware of a Starlette application that may have read a request's body: only `BaseHTTPMiddleware` lets it."""
    middleware = getattr(scope.get("app"), "user_middleware", None) or ()
    kinds = [each for each in middleware if "BaseHTTPMiddleware" in [kind.__name__ for kind in getattr(each.cls, "__mro__", ())]]
    names = [_name_middleware(each.cls, each.kwargs.get("dispatch")) for each in kinds]
    return Reader(name_one("middleware", "the middleware", names), _READ_ASYNC)


def _find_dependency(scope: Scope) -> Reader:
    needed = getattr(scope.get("route"), "dependencies", ())
    names = [str(getattr(each.dependency, "__name__", each.dependency)) for each in needed]
    return Reader(name_one("dependency", "the dependencies", names), _READ_ASYNC)


def name_one(one: str, many: str, names: Sequence[str]) -> str:
    """Name what of the application did something, of all that it has of one kind."""
    if not names:
        return "something of the application"
    return f"the {one} {names[0]}" if len(names) == 1 else f"one of {many} {', '.join(names)}"


_READ_ASYNC: Final = "await request.body()"


# Routes, which may keep requests from the protocol: looked at before any comes, by what Starlette's routes offer


def check_installed(app: Any, installed: Sequence[Any], prefix: str, services: Sequence[str]) -> None:
    """Check that routes of ours are still there, and that none which came meanwhile answers before them."""
    routes = app.router.routes
    lost = next((route for route in installed if route not in routes), None)
    if lost is not None:
        raise ValueError(f"the route {lost.path!r} of oip_asgi is no longer there: install it after what makes the list of routes anew")
    check_reachable(app, routes[: routes.index(installed[0])], prefix, services)


def move_to_end(app: Any, installed: Sequence[Any], prefix: str, services: Sequence[str]) -> None:
    """Let routes of ours be asked last, so that they take no time of the others. Not if one of these answers everything."""
    routes = app.router.routes
    others = [route for route in routes if route not in installed]
    with suppress(ValueError):
        check_reachable(app, others, prefix, services)
        routes[:] = [*others, *installed]


def check_reachable(app: Any, routes: Sequence[Any], prefix: str, services: Sequence[str] = ()) -> None:
    """Check that no route answers what is under a path, or a service of gRPC, before the protocol would."""
    for method in ("GET", "POST"):
        for path in (f"{prefix}/{_PROBE}", f"{prefix}/models/{_PROBE}/infer"):
            _check_route(app, routes, method, path, prefix or "/", ", health probes too", "leave one of the two out")
    for service in services:
        advice = "leave grpc=True out, as an application has one server for gRPC"
        _check_route(app, routes, "POST", f"{service}/{_PROBE}", service, "", advice)


def _check_route(app: Any, routes: Sequence[Any], method: str, path: str, at: str, beside: str, advice: str) -> None:
    probe: dict[str, Any] = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "app": app}
    probe |= {"root_path": "", "query_string": b"", "headers": [], "path_params": {}, "scheme": "http", "http_version": "1.1"}
    route = next((route for route in routes if _matches(route, probe)), None)
    if route is None:
        return
    template = getattr(route, "path", None)  # FastAPI 0.165 keeps an included router as an object without one
    ours = _find_ours(route)
    if ours is not None:
        template = (template or "").removesuffix(REST)
        raise ValueError(f"{ours} is there already, at {template or '/'}, and answers {at} too: {advice}")
    first = "an included router" if template is None else f"the route {template or '/'!r}"
    raise ValueError(
        f"{first} comes first and answers everything under {at} in the place of oip_asgi{beside}: add it after the install "
        "or mount of oip_asgi"
    )


def _matches(route: Any, scope: dict[str, Any]) -> bool:
    with suppress(Exception):  # a custom route may need more of a request
        return bool(route.matches(scope)[0].name == "FULL")
    return False


def _find_ours(route: Any) -> str | None:
    """Name the part of this package to which a route leads. None for other routes."""
    if getattr(getattr(route, "endpoint", None), "__module__", "") == _OURS:
        return _OURS
    return next((name for name in ("OIPApp", "OIPGRPCApp") if is_framework(getattr(route, "app", None), "oip_asgi", name)), None)


def check_mounts(app: Any) -> None:
    """Check that each `OIPApp` that is mounted in an application is reachable."""
    routes = list(getattr(app, "routes", None) or ())
    for index, route in enumerate(routes):
        if is_framework(getattr(route, "app", None), "oip_asgi", "OIPApp"):
            check_reachable(app, routes[:index], route.path)
