"""A call with 10,000 header fields over HTTP/2: refused by the server or answered, and the next call is answered."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

import pytest

from oip_asgi import Access, InferenceServer
from tests.support.grpc_asgi import ASGI_CLIENTS
from tests.support.grpc_ways import SERVICE, made
from tests.support.http2 import Connection
from tests.support.threads import mounted

MANY: Final = [(f"x-{number}", "1") for number in range(10_000)]
SAME: Final = [("x-same", "1")] * 10_000
METADATA: Final = b"\0\0\0\0\0"  # a message without fields


@pytest.mark.parametrize("fields", [MANY, SAME], ids=["of as many names", "of one name"])
def test_a_server_goes_on(fields: list[tuple[str, str]]) -> None:
    with mounted(InferenceServer("kept")) as address:
        port = int(address.rpartition(":")[2])
        with Connection(port) as connection, suppress(AssertionError, socket.error):  # hypercorn closes the connection
            stream = connection.call(f"/{SERVICE}/ServerMetadata", METADATA, fields=fields)
            connection.read(stream, 2**20)
        with Connection(port) as connection:
            assert connection.read(connection.call(f"/{SERVICE}/ServerMetadata", METADATA), 2**20) > len(METADATA)


@pytest.mark.parametrize("way", ASGI_CLIENTS)
@pytest.mark.parametrize("fields", [MANY, SAME], ids=["of as many names", "of one name"])
def test_a_server_that_lets_them_through_is_answered(way: str, fields: list[tuple[str, str]]) -> None:
    seen: list[int] = []

    def check(access: Access) -> bool:
        seen.append(sum(value.count("1") for name, value in access.headers.items() if name.startswith("x-")))
        return True

    server = InferenceServer(authorize=check)
    server.register("kept", lambda x: x)
    assert ASGI_CLIENTS[way](server).ask("ModelReady", made("ModelReady.request", name="kept"), headers=fields).ready
    assert seen[0] >= 10_000
