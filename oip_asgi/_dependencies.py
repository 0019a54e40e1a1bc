"""The protocol as routes of FastAPI, so that the application's dependencies run before it. Knows FastAPI's routes and Starlette's requests.

A mounted application is not reached by dependencies. A route is, and its endpoint may return any response: one that answers as the mounted
application would.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT")


def add_routes(app: Any, prefix: str, serve: Callable[[Scope, Receive, Send], Awaitable[None]], dependencies: Sequence[Any]) -> None:
    """Add routes to a FastAPI application for a path and all that is under it."""
    from starlette.requests import Request
    from starlette.responses import Response

    class Served(Response):
        def __init__(self, request: Request) -> None:
            super().__init__()
            self._request = request

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            root = scope.get("root_path", "")
            mounted = {
                **scope,
                "app_root_path": scope.get("app_root_path", root),
                "root_path": f"{root}{prefix}",
            }  # as Starlette's Mount does
            await serve(mounted, _receive(self._request, receive), send)
            if self.background is not None:
                await self.background()

    async def endpoint(request: Request) -> Response:
        return Served(request)

    endpoint.__annotations__ = {"request": Request}  # FastAPI looks for their names among this module's own
    for path in (prefix or "/", f"{prefix}/{{oip_path:path}}"):
        app.router.add_api_route(
            path, endpoint, methods=list(_METHODS), dependencies=list(dependencies), response_model=None, include_in_schema=False
        )


def _receive(request: Any, receive: Receive) -> Receive:
    """The request's messages, with the body that a dependency has read, such as to check its signature."""
    body: bytes | None = getattr(request, "_body", None)
    if body is None:
        return receive
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
