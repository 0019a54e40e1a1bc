"""The dependencies of a FastAPI application. They run before routes, and not before what is mounted.

Imports FastAPI only after it was given an application of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._protocol.errors import Reader
from .body_readers import READ_ASYNC, name_one
from .given import describe, is_framework

if TYPE_CHECKING:
    from starlette.types import Scope


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


def describe_security(app: Any, dependencies: Sequence[Any]) -> tuple[dict[str, Any], list[Any]]:
    """Describe what a FastAPI application's dependencies ask for, as OpenAPI has it: the schemes, and what an operation needs."""
    from fastapi import APIRouter
    from fastapi.openapi.utils import get_openapi

    router = APIRouter(dependencies=[*app.router.dependencies, *dependencies])
    router.add_api_route("/", lambda: None, response_model=None)
    document = get_openapi(title="", version="", routes=router.routes)
    return document.get("components", {}).get("securitySchemes", {}), document["paths"]["/"]["get"].get("security", [])


def find_dependency(scope: Scope) -> Reader:
    needed = getattr(scope.get("route"), "dependencies", ())
    names = [str(getattr(each.dependency, "__name__", each.dependency)) for each in needed]
    return Reader(name_one("dependency", "the dependencies", names), READ_ASYNC)
