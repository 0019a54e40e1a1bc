"""What servers of ASGI serve in `tests.lab.bench.grpc_asgi`: a bare echo, and this package."""

from __future__ import annotations

from typing import Any, Final

from oip_asgi.grpc import OIPGRPCApp

from .models import make_server


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The least that answers a call over ASGI: the same bytes."""
    if scope["type"] != "http":
        return
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/grpc")], "trailers": True})
    await send({"type": "http.response.body", "body": b"".join(chunks), "more_body": False})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")], "more_trailers": False})


app: Final = OIPGRPCApp(make_server("inline"))
