"""Clients of streams: events over a socket, and messages over grpc.aio and h2load. They see to it that all items come."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import grpc.aio
import numpy as np

from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request

from ..h2load import frame
from ..rows import LoadFailed

PATIENCE: Final = 120
"""Seconds after which a stream counts as hung."""

_METHOD: Final = f"/{SERVICE}/ModelStreamInfer"

_STATUSES: Final = re.compile(r"status codes: (\d+) 2xx")
_SUCCEEDED: Final = re.compile(r"(\d+) succeeded")
_DATA: Final = re.compile(r"\((\d+)\) data")
_SECONDS: Final = re.compile(r"finished in ([0-9.]+)(us|ms|s)")
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


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
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        data.write_bytes(frame(request(model, items)))
        headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        command = ["h2load", "-t1", f"-c{streams}", f"-n{streams}", "-m1", f"--data={data}", *headers]
        ran = subprocess.run([*command, f"http://127.0.0.1:{port}{_METHOD}"], capture_output=True, text=True, check=False, timeout=PATIENCE)
    return seconds_of(ran.stdout, streams, streams * items * size) if not ran.returncode else _refused(ran.stderr)


def seconds_of(printed: str, streams: int, least: int) -> float:
    """The seconds that h2load reports, if all `streams` succeeded and brought at least so many bytes.

    Raises:
        LoadFailed: Not all of them succeeded, or they brought less.
    """
    answered, succeeded, received = _STATUSES.search(printed), _SUCCEEDED.search(printed), _DATA.search(printed)
    lasted = _SECONDS.search(printed)
    if not (answered and succeeded and received and lasted):
        return _refused(printed)
    if {int(answered[1]), int(succeeded[1])} != {streams} or int(received[1]) < least:
        raise LoadFailed(f"expected {least} bytes in {streams} streams, got {received[1]} in {succeeded[1]}")
    return float(lasted[1]) * _UNITS[lasted[2]]


def _refused(printed: str) -> float:
    raise LoadFailed(f"h2load failed: {printed[-300:]}")
