"""Clients of streams: events over a socket, and messages over grpc.aio and h2load. They see to it that all items come."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import grpc.aio
import numpy as np

from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request

from . import h2load
from .rows import LoadFailed

PATIENCE: Final = 120
"""Seconds after which a stream counts as hung."""

_METHOD: Final = f"/{SERVICE}/ModelStreamInfer"


async def events(port: int, path: str, body: bytes, items: int) -> tuple[float, float]:
    """Seconds to the first event, and to the end, of one stream on a connection of its own.

    Args:
        port: Of the server.
        path: Where to.
        body: What is sent.
        items: How many events it asks for.

    Raises:
        LoadFailed: Not all of them came.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = time.perf_counter()
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)
    )
    try:
        head = await asyncio.wait_for(reader.readuntil(b"data: "), PATIENCE)
        first = time.perf_counter() - begun
        if not head.startswith(b"HTTP/1.1 200"):
            raise LoadFailed(f"{path}: {head[:200]!r}")
        seen, tail = 1, b""
        while not tail.endswith(b"0\r\n\r\n"):
            chunk = await asyncio.wait_for(reader.read(2**16), PATIENCE)
            if not chunk:
                raise LoadFailed(f"{path}: the server closed the connection after {seen} events")
            seen += (tail[-5:] + chunk).count(b"data: ")
            tail = (tail + chunk)[-5:]
    except (TimeoutError, asyncio.IncompleteReadError) as error:
        raise LoadFailed(f"{path}: {error!r}") from error
    finally:
        writer.close()
    last = time.perf_counter() - begun
    if seen != items:
        raise LoadFailed(f"{path}: {seen} events came, not {items}")
    return first, last


async def all_events(port: int, path: str, body: bytes, streams: int, items: int) -> float:
    """Seconds until so many streams at once have had all their events. The arguments are those of `events`.

    Raises:
        LoadFailed: Not all of them came.
    """
    begun = time.perf_counter()
    ended = await asyncio.gather(*(events(port, path, body, items) for _ in range(streams)), return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return time.perf_counter() - begun


def request(model: str, items: int) -> bytes:
    """The message that asks a model for so many items."""
    tensor = {"name": "n", "datatype": "INT64", "shape": [1]}
    data: bytes = wire_request(model, [tensor], [np.array([items]).tobytes()]).SerializeToString()
    return data


async def first_messages(port: int, model: str, times: int) -> list[float]:
    """Seconds to the first message of streams of one item, one after the other over one channel."""
    found = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), PATIENCE)
        method: Any = channel.stream_stream(_METHOD)
        for _ in range(times):
            begun = time.perf_counter()
            call = method()
            await call.write(request(model, 1))
            data = await asyncio.wait_for(call.read(), PATIENCE)
            found.append(time.perf_counter() - begun)
            await call.done_writing()
            check(model, data)
            if await asyncio.wait_for(call.read(), PATIENCE) is not grpc.aio.EOF:
                raise LoadFailed(f"{model}: more than one message came")
    return found


def check(model: str, data: Any) -> None:
    """See to it that a message is a response.

    Raises:
        LoadFailed: It is none.
    """
    message = MESSAGES["ModelStreamInfer.response"].FromString(data) if isinstance(data, bytes) else None
    if message is None or message.error_message or not message.infer_response.outputs:
        raise LoadFailed(f"{model}: {message or data!r}")


def all_messages(port: int, model: str, streams: int, items: int, size: int) -> float:
    """Seconds until so many streams at once, on a connection each, have had all their messages, by h2load.

    Args:
        port: Of the server.
        model: The model.
        streams: How many.
        items: Of each.
        size: Of the shortest message, in bytes.
    """
    printed = h2load.run(port, _METHOD, request(model, items), f"-c{streams}", f"-n{streams}", "-m1")
    return h2load.seconds_of(printed, items * size, streams)
