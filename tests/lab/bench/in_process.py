"""Requests that an application answers in this process, without a socket: what instruction counts and walks are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from . import h2load
from .rows import GRPC, Row

_EXTENSIONS: Final[dict[str, dict[str, str]]] = {"http.response.trailers": {}}


def scope_of(row: Row) -> dict[str, Any]:
    """The scope of ASGI for a row, with the headers that a load generator sends beside the row's own."""
    headers = {"host": "127.0.0.1:8000", **row.headers, "content-length": str(len(row.body))}
    return {
        "type": "http",
        "method": row.method,
        "path": row.path,
        "raw_path": row.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "extensions": _EXTENSIONS,
    }


def over_http(row: Row) -> Row:
    """A row of gRPC as the POST that it is over HTTP; other rows as they are."""
    if row.transport != GRPC:
        return row
    return replace(row, method="POST", headers={"content-type": "application/grpc"}, body=h2load.frame(row.body))


async def ask(app: Any, row: Row) -> None:
    """Ask an ASGI application once.

    Raises:
        AssertionError: The status is not 200.
    """
    left = [{"type": "http.request", "body": row.body, "more_body": False}]

    async def receive() -> Any:
        if left:
            return left.pop()
        return await asyncio.Future()  # the client stays

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200, message

    await app(scope_of(row), receive, send)


async def ask_often(app: Any, row: Row, number: int) -> None:
    for _ in range(number):
        await ask(app, row)


async def ask_together(app: Any, requests: Sequence[Row]) -> None:
    await asyncio.gather(*(ask(app, row) for row in requests))


async def answer_at_once(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """The application that does nothing: what is asked of it is what the asking costs."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
