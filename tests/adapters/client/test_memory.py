"""A large array is sent without a copy, and a large answer is read with one: the memory that both clients take."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from oip_asgi import InferenceResponse
from oip_asgi.client import AsyncClient, Client

ARRAY = np.ones(2**22)
SIZE = ARRAY.nbytes
OUTPUT = b'{"name":"y","shape":[%d],"datatype":"FP64","parameters":{"binary_data_size":%d}}' % (ARRAY.size, SIZE)
TEXT = b'{"model_name":"m","outputs":[%b]}' % OUTPUT
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nInference-Header-Content-Length: %d\r\n\r\n" % (len(TEXT) + SIZE, len(TEXT))


@pytest.fixture
def url() -> Iterator[str]:
    """A server that reads one request without keeping it, and answers it with the same array."""

    def serve() -> None:
        taken = bytearray(2**16)
        with listening.accept()[0] as connection:
            connection.settimeout(30)
            head = bytearray()
            while b"\r\n\r\n" not in head:
                head += connection.recv(2**12)
            found = re.search(rb"content-length: (\d+)", bytes(head).lower())
            assert found is not None
            left = int(found[1]) - (len(head) - head.index(b"\r\n\r\n") - 4)
            while left > 0:
                left -= connection.recv_into(taken)
            for part in (HEAD, TEXT, ARRAY.data.cast("B")):
                connection.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield "http://{}:{}/v2".format(*listening.getsockname())
        thread.join(30)


def ask(url: str) -> InferenceResponse:
    with Client(url) as client:
        return client.infer("m", {"x": ARRAY})


def ask_awaiting(url: str) -> InferenceResponse:
    async def infer() -> InferenceResponse:
        async with AsyncClient(url) as client:
            return await client.infer("m", {"x": ARRAY})

    return asyncio.run(infer())


@pytest.mark.parametrize("infer", [ask, ask_awaiting])
def test_a_large_request_and_answer_take_the_memory_of_the_answer(url: str, infer: Callable[[str], InferenceResponse]) -> None:
    assert len(TEXT) % 8  # so that the array would need a copy if its bytes began where the JSON ends
    AsyncClient(url)  # imports aiohttp, whose code takes memory too
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        response = infer(url)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(response["y"], ARRAY)
    assert response["y"].flags.aligned
    assert response["y"].flags.writeable
    assert (peak - before) / SIZE < 1.15
