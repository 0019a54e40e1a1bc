"""Adds routes to an application of Starlette or FastAPI, as its own middleware and dependencies see them, and
checks that no other route keeps requests from them, before any comes: Starlette's routes say what they match.

Imports a framework only after it was given an application of it. Knows no protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .frameworks import TAKEN_BY, describe, find_dependencies, find_dependency, is_framework

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

Serve: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[None]]"
"""Answers a request as an application of ASGI does."""

OURS: Final = "oip_asgi"
"""The module of the endpoints of our routes, as middleware shows it."""

_GROUP: Final = re.compile(r"\(\?P<\w+>")


class HostRoute(NamedTuple):
    """A route to add to an application of Starlette or FastAPI."""

    # a template of Starlette's, such as "/v2/models/{name}/infer"; one that ends with `ANY_PATH` takes what
    # no other route takes
    path: str
    name: str  # such as "model_infer"
    serve: Serve
    # finds requests before which no dependencies run; None for none
    is_open: Callable[[Scope], object] | None = None


ANY_PATH: Final = "/{oip_path:path}"


def add_routes(app: Any, routes: Sequence[HostRoute], dependencies: Sequence[Any] = ()) -> list[Any]:
    """Add routes to an application of Starlette or FastAPI, and return them as they are there.

    What middleware finds at a route is a function of its name. Dependencies run before it, also those of the
    application.
    """
    has_dependencies = bool(dependencies or find_dependencies(app))
    options: dict[str, Any] = {"include_in_schema": False}
    if has_dependencies:
        options |= {
            "dependencies": list(dependencies),
            "response_model": None,
            "route_class_override": _make_guarded_route(),
        }
    add, added = app.router.add_api_route if has_dependencies else app.router.add_route, []
    for path, name, serve, is_open in sorted(
        routes, key=lambda route: not route.name.lower().endswith("infer")
    ):  # asked in this order
        endpoint = _make_endpoint(name, serve)
        add(path, endpoint, name=f"oip:{name}", **options)
        route: Any = next(iter(app.router.routes[-1:]), None)
        if getattr(route, "endpoint", None) is not endpoint:
            raise ValueError(
                f"{describe(app.router)} does not keep the route {path!r}: put OIPMiddleware around the "
                "application"
            )
        route.methods = set()  # any
        if not has_dependencies:  # not by way of the endpoint, for which Starlette makes a request each time
            route.app = _serve_at(route, serve)
        else:
            route.app = _guard(route.app, serve, is_open)
        added.append(route)
    for route in added:
        if route.path.endswith(ANY_PATH):  # slowapi counts a request for the last route that matches
            prefix = route.path.removesuffix(ANY_PATH)
            taken = [
                _GROUP.sub("(?:", each.path_regex.pattern)
                for each in added
                if each is not route and each.path.startswith(prefix)
            ]
            route.path_regex = re.compile(f"(?!{'|'.join(taken)}){route.path_regex.pattern}")
    return added


def make_prefix_cutter(prefix: str) -> Callable[[str], str]:
    """Make the function that finds the path below a prefix, which may have parameters, such as
    "/{tenant}/v2"."""
    if "{" not in prefix:
        return lambda path: path[len(prefix) :]
    from starlette.routing import compile_path

    match = compile_path(prefix + ANY_PATH)[0].match

    def cut(path: str) -> str:
        matched = match(path)
        return "" if matched is None else f"/{matched['oip_path']}"

    return cut


def _serve_at(route: Any, serve: Serve) -> Serve:
    def serve_at(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # FastAPI says it for its own class of routes only, and Sentry names a request by it
        scope["route"] = route
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
    endpoint.__module__, endpoint.__name__, endpoint.__qualname__ = OURS, name, name
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
                    text = (
                        error.detail
                        if isinstance(error.detail, str)
                        else json.dumps(error.detail, default=str)
                    )
                    return JSONResponse({"error": text}, error.status_code, error.headers)
                except RequestValidationError as error:
                    problems = [
                        f"{' '.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
                    ]
                    return JSONResponse({"error": "; ".join(problems)}, 422)

            return answer

    return GuardedRoute


def _replay(request: Any, receive: Receive) -> Receive:
    """The request's messages once more. They have the body that a dependency has read and kept, or say which
    dependency has taken it."""
    message: dict[str, Any] = {
        "type": "http.request",
        "body": getattr(request, "_body", b""),
        "more_body": False,
    }
    if not hasattr(request, "_body"):
        # also a part of it, by request.stream() that ends early, or a message that request.is_disconnected()
        # drops
        if not getattr(request.receive, "has_begun", request._stream_consumed):
            return receive
        message[TAKEN_BY] = lambda: find_dependency(request.scope)
    messages = [message]

    async def replay() -> Any:
        return messages.pop() if messages else await receive()

    return replay


_PROBE: Final = "oip_asgi-probe"
"""A name that matches only routes for any name."""


def check_own_routes(app: Any, installed: Sequence[Any], prefix: str, services: Sequence[str]) -> None:
    """Check that our routes are still there, and that no route which was added meanwhile answers before
    them."""
    routes = app.router.routes
    lost = next((route for route in installed if route not in routes), None)
    if lost is not None:
        raise ValueError(
            f"the route {lost.path!r} of oip_asgi is no longer there: install it after what makes the list "
            "of routes anew"
        )
    check_reachable(app, routes[: routes.index(installed[0])], prefix, services)


def move_to_end(app: Any, installed: Sequence[Any], prefix: str, services: Sequence[str]) -> None:
    """Put our routes last, so that the others are as quick as before. Not if one of the others answers
    everything."""
    routes = app.router.routes
    others = [route for route in routes if route not in installed]
    with suppress(ValueError):
        check_reachable(app, others, prefix, services)
        routes[:] = [*others, *installed]


def check_reachable(app: Any, routes: Sequence[Any], prefix: str, services: Sequence[str] = ()) -> None:
    """Check that no route answers what is under a path, or a service of gRPC, before the protocol would."""
    for method in ("GET", "POST"):
        for path in (f"{prefix}/{_PROBE}", f"{prefix}/models/{_PROBE}/infer"):
            _check_route(
                app, routes, method, path, prefix or "/", ", health probes too", "leave one of the two out"
            )
    for service in services:
        advice = "leave grpc=True out, as an application has one server for gRPC"
        _check_route(app, routes, "POST", f"{service}/{_PROBE}", service, "", advice)


def _check_route(
    app: Any, routes: Sequence[Any], method: str, path: str, at: str, beside: str, advice: str
) -> None:
    probe: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "app": app,
    }
    probe |= {
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "path_params": {},
        "scheme": "http",
        "http_version": "1.1",
    }
    route = next((route for route in routes if _matches(route, probe)), None)
    if route is None:
        return
    template = getattr(route, "path", None)  # FastAPI 0.165 keeps an included router as an object without one
    ours = _find_ours(route)
    if ours is not None:
        template = (template or "").removesuffix(ANY_PATH)
        raise ValueError(f"{ours} is there already, at {template or '/'}, and answers {at} too: {advice}")
    first = "an included router" if template is None else f"the route {template or '/'!r}"
    raise ValueError(
        f"{first} comes first and answers everything under {at} in the place of oip_asgi{beside}: add it "
        "after the install "
        "or mount of oip_asgi"
    )


def _matches(route: Any, scope: dict[str, Any]) -> bool:
    with suppress(Exception):  # a custom route may need more of a request
        return bool(route.matches(scope)[0].name == "FULL")
    return False


def _find_ours(route: Any) -> str | None:
    """Name the part of this package to which a route leads. None for other routes."""
    if getattr(getattr(route, "endpoint", None), "__module__", "") == OURS:
        return OURS
    return next(
        (
            name
            for name in ("OIPApp", "OIPGRPCApp")
            if is_framework(getattr(route, "app", None), "oip_asgi", name)
        ),
        None,
    )


def check_mounts(app: Any) -> None:
    """Check that each `OIPApp` that is mounted in an application is reachable."""
    routes = list(getattr(app, "routes", None) or ())
    for index, route in enumerate(routes):
        if is_framework(getattr(route, "app", None), "oip_asgi", "OIPApp"):
            check_reachable(app, routes[:index], route.path)
