"""Checks that no route of an application keeps requests from the protocol, before any comes: Starlette's routes say what they match."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from .given import is_framework
from .routes import ANY_PATH, OURS

_PROBE: Final = "oip_asgi-probe"
"""A name that matches only routes for any name."""


def check_own_routes(app: Any, installed: Sequence[Any], prefix: str, services: Sequence[str]) -> None:
    """Check that our routes are still there, and that no route which was added meanwhile answers before them."""
    routes = app.router.routes
    lost = next((route for route in installed if route not in routes), None)
    if lost is not None:
        raise ValueError(f"the route {lost.path!r} of oip_asgi is no longer there: install it after what makes the list of routes anew")
    check_reachable(app, routes[: routes.index(installed[0])], prefix, services)


def move_to_end(app: Any, installed: Sequence[Any], prefix: str, services: Sequence[str]) -> None:
    """Put our routes last, so that the others are as quick as before. Not if one of the others answers everything."""
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
        template = (template or "").removesuffix(ANY_PATH)
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
    if getattr(getattr(route, "endpoint", None), "__module__", "") == OURS:
        return OURS
    return next((name for name in ("OIPApp", "OIPGRPCApp") if is_framework(getattr(route, "app", None), "oip_asgi", name)), None)


def check_mounts(app: Any) -> None:
    """Check that each `OIPApp` that is mounted in an application is reachable."""
    routes = list(getattr(app, "routes", None) or ())
    for index, route in enumerate(routes):
        if is_framework(getattr(route, "app", None), "oip_asgi", "OIPApp"):
            check_reachable(app, routes[:index], route.path)
