"""Servers that send HTTP/2 trailers, each as a real process, under clients that read slowly, that go, and that ask much at once.

Not collected by itself: `tox -e grpc-asgi`, which installs them all, names this file. Reads Linux's /proc.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from tests.lab.bench import h2load
from tests.lab.bench.load import has_h2load
from tests.lab.bench.machine import family, memory
from tests.lab.bench.rows import GRPC, LoadFailed, Row
from tests.support.grpc_asgi import frame
from tests.support.grpc_ways import SERVICE, UNLIMITED, Client, wire_request
from tests.support.http2 import Connection
from tests.support.processes import Served, get
from tests.support.talk import block_until

from .grpc_servers import KINDS, started
from .strain_site import MEBIBYTE

SITE = "tests.processes.matrix.strain_site"
INFER, STREAM = f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ModelStreamInfer"
SECONDS = 20


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def served(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with started(kind, f"{SITE}:app", tmp_path_factory.mktemp("server")) as running:
        running.wait_until_ready()
        yield running


@pytest.fixture(scope="module")
def covered(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same behind Starlette's `BaseHTTPMiddleware`, as `@app.middleware("http")` is."""
    with started(kind, f"{SITE}:covered", tmp_path_factory.mktemp("covered")) as running:
        running.wait_until_ready()
        yield running


def numbered(model: str, number: int) -> Any:
    return wire_request(model, [{"name": "n", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [number]}}])


def framed(model: str, number: int) -> bytes:
    return frame(numbered(model, number).SerializeToString())


def noted(served: Served, what: str) -> int:
    """What the models have noted, which a server tells beside everything else that it does."""
    return int(get(f"{served.url}/noted", timeout=SECONDS).json().get(what, 0))


def held(served: Served) -> int:
    """The bytes that the server's processes hold."""
    return sum(map(memory, family(served.process.pid)))


def settled(look: Callable[[], int]) -> int:
    """What is seen when it has been the same for half a second."""
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(look())
        time.sleep(0.1)
        return len(seen) > 5 and len(set(seen[-5:])) == 1

    block_until(is_still)
    return seen[-1]


def is_answering(served: Served) -> bool:
    client = Client(f"127.0.0.1:{served.port}")
    with client.channel:
        return bool(len(client.ask("ModelInfer", numbered("large", 1), timeout=SECONDS).raw_output_contents[0]) == MEBIBYTE)


def test_a_stream_that_is_read_slowly(kind: str, served: Served) -> None:
    before, made = held(served), noted(served, "made")
    with Connection(served.port) as slow:
        stream = slow.call(STREAM, framed("items", 300))
        first = settled(lambda: noted(served, "made")) - made
        # what a server does not wait with is all in its memory
        assert (first < 100) is KINDS[kind].waits_for_readers
        assert held(served) - before < (first + 50) * MEBIBYTE
        assert is_answering(served)
        if KINDS[kind].waits_for_readers:
            slow.read(stream, 20 * MEBIBYTE)
            assert first < settled(lambda: noted(served, "made")) - made < first + 40
    block_until(lambda: noted(served, "ended") > 0)


def test_responses_that_nobody_reads(served: Served) -> None:
    before = held(served)
    with Connection(served.port) as slow:
        streams = [slow.call(INFER, framed("large", 8)) for _ in range(10)]
        slow.read(streams[0], 1)
        assert is_answering(served)
        # each is there as the array, as the message, and as what is to be sent; and the allocator may keep the memory of the array that the
        # model made, which was copied within its slot
        assert settled(lambda: (held(served) - before) >> 23) <= 4 * 10
        assert slow.read(streams[0], 9 * MEBIBYTE) > 8 * MEBIBYTE - 2**16
    assert is_answering(served)


@pytest.mark.parametrize(("path", "model", "is_last"), [(INFER, "waits", True), (STREAM, "ticks", True), (STREAM, "ticks", False)])
@pytest.mark.parametrize("resets", [True, False], ids=["RST_STREAM", "closed"])
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("site", ["served", "covered"])
def test_a_client_that_goes(request: pytest.FixtureRequest, site: str, path: str, model: str, is_last: bool, resets: bool) -> None:
    served: Served = request.getfixturevalue(site)
    begun, cancelled = noted(served, "begun"), noted(served, "cancelled")
    with Connection(served.port) as going:
        stream = going.call(path, framed(model, 600), is_last=is_last)
        block_until(lambda: noted(served, "begun") > begun)
        if resets:
            going.reset(stream)
            block_until(lambda: noted(served, "cancelled") > cancelled)
    # gunicorn tells of a client that closes in the middle of its requests after 3 seconds, or by chance after its --timeout of 30
    block_until(lambda: noted(served, "cancelled") > cancelled, 60)
    client = Client(f"127.0.0.1:{served.port}")
    with client.channel:
        # the only slot of the model is free
        assert client.ask("ModelInfer", numbered("waits", 0)).outputs[0].name == "output_0"


def test_a_stream_that_takes_a_while_behind_middleware(covered: Served) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{covered.port}") as channel:
        method: Any = channel.stream_stream(STREAM)
        assert len(list(method(iter([numbered("ticks", 1).SerializeToString()]), timeout=SECONDS))) == 2


@pytest.mark.skipif(not has_h2load(), reason="h2load is not installed")
@pytest.mark.parametrize("calls", [1, 8, 64])
@pytest.mark.parametrize(("size", "requests"), [(4, 3000), (150_528, 200)])
def test_many_streams_of_h2load(served: Served, calls: int, size: int, requests: int) -> None:
    message = echoed(size).SerializeToString()
    row = Row(f"1x{size}", "ModelInfer", INFER, {}, message, lambda _: None, [calls], GRPC)
    took, _ = h2load.latencies(served.port, row, calls, 0, 4 * size, requests=requests)
    assert len(took) == requests


@pytest.mark.skipif(not has_h2load(), reason="h2load is not installed")
def test_after_how_many_requests_a_connection_is_closed(kind: str, served: Served) -> None:
    row = Row("1x4", "ModelInfer", INFER, {}, echoed(4).SerializeToString(), lambda _: None, [8], GRPC)
    try:
        h2load.latencies(served.port, row, 8, 0, 16, requests=5000)
        is_closed = False
    except LoadFailed:
        is_closed = True
    assert is_closed is (KINDS[kind].requests < 5000)


@pytest.mark.parametrize("calls", [1, 8])
def test_messages_of_64_mebibytes(served: Served, calls: int) -> None:
    message = echoed(16 * MEBIBYTE).SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{served.port}", options=UNLIMITED) as channel, ThreadPoolExecutor(calls) as threads:
        method: Any = channel.unary_unary(INFER)
        answers = threads.map(lambda _: method(message, timeout=300), range(calls))
        content = message[-64 * MEBIBYTE :]
        assert all(answer.endswith(content) for answer in answers)


def echoed(size: int) -> Any:
    return wire_request("echo", [{"name": "x", "datatype": "FP32", "shape": [1, size]}], [np.arange(size, dtype="<f4").tobytes()])
