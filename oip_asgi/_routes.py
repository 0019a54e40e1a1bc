"""Whether a host's routes let requests through to the protocol, looked at before any comes. Knows Starlette's routes by what they offer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from ._checks import is_framework

_PROBE: Final = "oip_asgi-probe"
"""A name that only routes for any name match."""


def check_reachable(app: Any, routes: Sequence[Any], prefix: str, services: Sequence[str] = ()) -> None:
    """Check that no route answers what is under a path before the protocol would."""
    paths = f"{prefix}/{_PROBE}", f"{prefix}/models/{_PROBE}/infer"
    for method in ("GET", "POST"):
        for path in paths:
            _check(routes, _probe(app, method, path), prefix or "/", ", health probes too", "leave one of the two out")
    for service in services:
        advice = "leave grpc=True out, as an application has one server for gRPC"
        _check(routes, _probe(app, "POST", f"{service}/{_PROBE}"), service, "", advice)


def _check(routes: Sequence[Any], probe: dict[str, Any], at: str, beside: str, advice: str) -> None:
    for route in routes:
        if not _matches(route, probe):
            continue
        path = getattr(route, "path", None)  # how FastAPI 0.165 keeps an included router has none
        ours = _ours(route)
        if ours is not None:
            raise ValueError(f"{ours} is there already, at {path or '/'}, and answers {at} too: {advice}")
        called = "an included router" if path is None else f"the route {path or '/'!r}"
        raise ValueError(
            f"{called} comes first and answers everything under {at} in the place of oip_asgi{beside}: add it after the install "
            "or mount of oip_asgi"
        )


def _ours(route: Any) -> str | None:
    """What of this package a route leads to, None for others."""
    if getattr(getattr(route, "endpoint", None), "__module__", "") == "oip_asgi._dependencies":
        return "oip_asgi"
    return next((name for name in ("OIPApp", "OIPGRPCApp") if is_framework(getattr(route, "app", None), "oip_asgi", name)), None)


def check_mounts(app: Any) -> None:
    """Check that each `OIPApp` that is mounted in an application is reachable."""
    routes = list(getattr(app, "routes", None) or ())
    for place, route in enumerate(routes):
        if is_framework(getattr(route, "app", None), "oip_asgi", "OIPApp"):
            check_reachable(app, routes[:place], route.path)


def _probe(app: Any, method: str, path: str) -> dict[str, Any]:
    """The scope of a request."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "path_params": {},
        "app": app,
        "scheme": "http",
        "http_version": "1.1",
    }


def _matches(route: Any, scope: dict[str, Any]) -> bool:
    with suppress(Exception):  # a route of somebody's own may want more of a request
        return bool(route.matches(scope)[0].name == "FULL")
    return False
