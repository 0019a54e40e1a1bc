"""Whether a host's routes let requests through to the protocol, looked at before any comes. Knows Starlette's routes by what they offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from ._checks import is_framework

_PROBE: Final = "oip_asgi-probe"
"""A name that only routes for any name match."""


def check_reachable(app: Any, routes: Iterable[Any], prefix: str, services: Sequence[str] = ()) -> None:
    """Check that no route answers what is under a path before the protocol would.

    Args:
        app: The application.
        routes: Its routes that come before the protocol's.
        prefix: The protocol's path, such as "/v2".
        services: The paths of gRPC's services, where they are served too. They are asked by POST only.

    Raises:
        ValueError: One does; the text says which.
    """
    probes = [(prefix or "/", [*_probes(app, prefix, ("GET", "POST"))]), *((path, [*_probes(app, path, ("POST",))]) for path in services)]
    for route in routes:
        at = next((at for at, scopes in probes if any(_matches(route, scope) for scope in scopes)), None)
        if at is None:
            continue
        kind = next((name for name in ("OIPApp", "OIPGRPCApp") if is_framework(getattr(route, "app", None), "oip_asgi", name)), None)
        if kind is not None:
            raise ValueError(f"{kind} is there already, at {route.path or '/'}, and answers {at} too: leave one of the two out")
        path = getattr(route, "path", None)  # how FastAPI 0.165 keeps an included router has none
        called = "an included router" if path is None else f"the route {path or '/'!r}"
        raise ValueError(
            f"{called} comes first and answers everything under {at} in the place of oip_asgi, health probes too: add it after the install "
            "or mount of oip_asgi"
        )


def check_mounts(app: Any) -> None:
    """Check that each `OIPApp` that is mounted in an application is reachable.

    Raises:
        ValueError: As `check_reachable`.
    """
    routes = list(getattr(app, "routes", None) or ())
    for place, route in enumerate(routes):
        if is_framework(getattr(route, "app", None), "oip_asgi", "OIPApp"):
            check_reachable(app, routes[:place], route.path)


def _probes(app: Any, prefix: str, methods: Iterable[str]) -> Iterator[dict[str, Any]]:
    for method in methods:
        for path in (f"{prefix}/{_PROBE}", f"{prefix}/models/{_PROBE}/infer"):
            yield {
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
