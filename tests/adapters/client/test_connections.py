"""The connections of clients: in threads, forked processes and event loops, kept and closed, and how much of an answer is read."""

from __future__ import annotations

import asyncio
import gc
import inspect
import multiprocessing
import re
import socket
import ssl
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import httpx2
import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, InvalidResponse, OIPApp
from oip_asgi.client import AsyncClient, Client, ConnectionFailed, remote
from tests.support.asked import OnALoop
from tests.support.inside.http import client_questions
from tests.support.peer import BROKEN, CLOSE, GOOD, METADATA, RESET, WHOLE, Peer, make_canned, with_length
from tests.support.threads import serving

Connect: TypeAlias = Callable[..., AbstractContextManager[Any]]

EVENT = b"data: " + GOOD + b"\n\n"


def with_metadata(answer: bytes) -> Callable[[bytes], bytes]:
    return lambda request: with_length(METADATA) if request.startswith(b"GET") else answer


def test_threads_have_connections_of_their_own_which_others_take_when_they_have_ended() -> None:
    peer = Peer()

    def ask(gate: threading.Barrier) -> None:
        gate.wait(10)
        for _ in range(3):
            client.infer("m", {})

    with peer.listening() as url, Client(url) as client:
        for _ in range(2):
            with ThreadPoolExecutor(3) as threads:
                list(threads.map(ask, [threading.Barrier(3)] * 3))
        assert (len(peer.connections), peer.open) == (3, 3)
        time.sleep(1.6)
        client.infer("m", {})
        peer.wait_for_open(1)


def test_a_client_that_is_closed_closes_the_connections_of_all_threads() -> None:
    together = threading.Barrier(2)

    def answer(request: bytes) -> bytes:
        if request.startswith(b"POST"):  # both are on their way at once, so none takes the other's connection
            together.wait(10)
        return with_length(GOOD)

    peer = Peer(answer)
    with peer.listening() as url:
        client = Client(url)
        thread = threading.Thread(target=client.infer, args=["m", {}])
        thread.start()
        client.infer("m", {})
        thread.join(10)
        peer.wait_for_open(2)
        client.close()
        peer.wait_for_open(0)


def test_a_client_that_is_closed_says_so(connect: Connect) -> None:
    peer = Peer()
    with peer.listening() as url, connect(url) as client:
        client.infer("m", {})
        client.close()
        client.close()
        for ask in (client.is_ready, lambda: client.infer("m", {}), lambda: list(client.stream("m", {}))):
            with pytest.raises(RuntimeError, match="this client is closed"):
                ask()
        peer.wait_for_open(0)


def test_what_is_asked_within_a_stream_has_another_connection() -> None:
    stream = with_length(EVENT * 3, b"Content-Type: text/event-stream\r\n")
    peer = Peer(lambda request: stream if b"infer_stream" in request else with_length(GOOD))
    with peer.listening() as url, Client(url) as client:
        for response in client.stream("m", {}):
            assert response["y"].tolist() == client.infer("m", {})["y"].tolist() == [1, 2]
        assert client.infer("m", {})["y"].tolist() == [1, 2]
        assert (len(peer.connections), peer.open) == (2, 2)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # of Python 3.12, after a test of gRPC
def test_a_forked_process_does_not_use_the_connections_of_its_parent() -> None:
    server = InferenceServer()
    server.register("double", lambda x: x * 2)

    def ask(client: Client, number: int, gate: Any, answers: Any) -> None:
        gate.wait(10)
        answers.put((number, client.infer("double", {"x": np.array([number], np.float32)})["output_0"].tolist()))

    fork = multiprocessing.get_context("fork")
    with serving(OIPApp(server, path="/v2")) as port, Client(f"http://127.0.0.1:{port}/v2") as client:
        client.infer("double", {"x": np.array([0], np.float32)})
        answers, gate = fork.Queue(), fork.Barrier(4)
        children = [fork.Process(target=ask, args=(client, number, gate, answers)) for number in range(3)]
        for child in children:
            child.start()
        ask(client, 7, gate, answers)
        found = sorted(answers.get(timeout=10) for _ in range(4))
        for child in children:
            child.join(10)
    assert found == [(number, [2.0 * number]) for number in (0, 1, 2, 7)]


def test_a_client_works_on_one_event_loop_after_another() -> None:
    peer = Peer()
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []
    with peer.listening() as url:
        client = AsyncClient(url)

        async def ask() -> Any:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            return (await client.infer("m", {}))["y"].tolist()

        for _ in range(5):
            assert asyncio.run(ask()) == [1, 2]
            peer.wait_for_open(0)
        gc.collect()
        assert [loop() for loop in loops] == [None] * 5

        async def ask_in_two_loops() -> None:
            await ask()
            assert await asyncio.to_thread(asyncio.run, ask()) == [1, 2]
            assert await ask() == [1, 2]
            await client.close()

        asyncio.run(ask_in_two_loops())
        assert len(peer.connections) == 7
        peer.wait_for_open(0)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:Unclosed:ResourceWarning")
def test_a_loop_that_was_closed_without_its_generators_is_forgotten_when_another_comes() -> None:
    peer = Peer()
    with peer.listening() as url:
        client = AsyncClient(url)
        for _ in range(3):
            loop = asyncio.new_event_loop()
            assert loop.run_until_complete(client.infer("m", {}))["y"].tolist() == [1, 2]
            loop.close()
        known = weakref.ref(loop)
        del loop
        assert asyncio.run(client.infer("m", {}))["y"].tolist() == [1, 2]
        gc.collect()
        assert known() is None
        peer.wait_for_open(0)


@pytest.mark.slow
def test_an_idle_connection_is_not_used_for_longer_than_servers_keep_one(connect: Connect) -> None:
    peer = Peer()
    with peer.listening() as url, connect(url) as client:
        for _ in range(2):
            client.infer("m", {})
            client.infer("m", {})
            time.sleep(1.6)
        assert len(peer.connections) == 2


def test_a_connection_that_the_server_has_closed_is_not_used(connect: Connect) -> None:
    peer = Peer()
    with peer.listening() as url, connect(url) as client:
        client.infer("m", {})
        peer.connections[-1].shutdown(socket.SHUT_RDWR)
        time.sleep(0.05)
        client.infer("m", {})
    assert (len(peer.connections), len(peer.requests)) == (2, 2)


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_request_that_was_read_is_not_sent_again(connect: Connect, is_reset: bool) -> None:
    def answer(request: bytes) -> bytes:
        if len(peer.requests) % 2:
            return with_length(GOOD)
        if is_reset:
            peer.connections[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return CLOSE

    peer = Peer(answer)
    with peer.listening() as url, connect(url) as client:
        client.infer("m", {})
        with pytest.raises(ConnectionFailed, match="gave no whole answer"):
            client.infer("m", {})
    assert len(peer.requests) == 2


def test_a_request_on_a_connection_that_is_reset_before_it_is_read_is_sent_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reset comes between the look at the connection and the request."""
    looked, was_reset = threading.Event(), threading.Event()

    class Look:
        def register(self, *_: Any) -> None: ...

        def poll(self, *_: Any) -> list[Any]:
            looked.set()
            assert was_reset.wait(10)
            return []

    def answer(listening: socket.socket) -> socket.socket:
        connection, _ = listening.accept()
        connection.settimeout(10)
        assert b"infer" in connection.recv(65536)
        connection.sendall(with_length(GOOD))
        return connection

    def serve(listening: socket.socket) -> None:
        with answer(listening) as connection:
            looked.wait(10)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        was_reset.set()
        answer(listening).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, args=[listening])
        serving.start()
        with Client("http://{}:{}/v2".format(*listening.getsockname())) as client:
            client.infer("m", {})
            monkeypatch.setattr("select.poll", Look)
            assert client.infer("m", {})["y"].tolist() == [1, 2]
        serving.join(10)


# longer than what a client reads ahead: of an answer that has come whole, the connection is kept
LARGE = b'{"outputs":[{"name":"y","datatype":"FP32","shape":[500000],"data":[' + b"1," * 499_999 + b"1]}]}"


@pytest.mark.parametrize("has_length", [True, False])
def test_an_answer_above_the_limit_is_not_read(connect: Connect, has_length: bool) -> None:
    peer = Peer([with_length(LARGE)] if has_length else [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + LARGE, CLOSE])
    text = "the response is larger than 1000 bytes, the most that is read of it"
    with peer.listening() as url:
        with connect(url, max_body_bytes=1000) as client:
            for read in (lambda: client.infer("m", {}), lambda: list(client.stream("m", {})), client.metadata):
                with pytest.raises(InvalidResponse, match=text):
                    read()
            peer.wait_for_open(0)
        for limit in (len(LARGE), None):
            with connect(url, max_body_bytes=limit) as client:
                assert len(client.infer("m", {})["y"]) == 500_000


def test_an_event_above_the_limit_is_not_read_and_a_long_stream_is() -> None:
    peer = Peer(with_length(EVENT * 20 + b"data: " + b"x" * 5000, b"Content-Type: text/event-stream\r\n"))
    with peer.listening() as url, Client(url, max_body_bytes=1000) as client:
        responses = client.stream("m", {})
        assert [next(responses)["y"].tolist() for _ in range(20)] == [[1, 2]] * 20
        with pytest.raises(InvalidResponse, match="the event of the stream is larger than 1000 bytes"):
            next(responses)


def test_an_event_of_many_lines_takes_a_time_of_their_number_and_not_of_its_square() -> None:
    count = 60_000
    head = b'data: {"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[%d],"data":[\n' % count
    lines = [head, *[b"data: 1,\n"] * (count - 1), b"data: 1]}]}\n\n"]
    body = b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines)
    peer = Peer(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n")

    async def ask(url: str) -> list[Any]:
        async with AsyncClient(url) as client, asyncio.timeout(20):  # takes half a second; took a minute
            return [response["y"] async for response in client.stream("m", {})]

    with peer.listening() as url:
        [ones] = asyncio.run(ask(url))
        assert ones.tolist() == [1] * count


def test_remote_reads_no_more_than_its_server_takes() -> None:
    with Peer(with_metadata(with_length(LARGE))).listening() as url:
        small, large = InferenceServer(max_body_bytes=1000), InferenceServer(max_body_bytes=None)
        for server in (small, large):
            server.register("m", load=remote(url, "m", wait=0))
        assert len(large.infer_sync("m", {"x": np.zeros(1)})["y"]) == 500_000
        with pytest.raises(InferenceError, match="model 'm' failed: its server gave a broken answer") as caught:
            small.infer_sync("m", {"x": np.zeros(1)})
        for server in (small, large):
            server.stop()
        assert caught.value.status == 502
        assert "larger than 1000 bytes" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("inputs", "binary"),
    [({"x": np.ones(400_000, np.float32)}, False), ({"x": np.array(["text"] * 200_000)}, True), ({"x": np.ones((600, 600)).T}, True)],
    ids=["JSON", "BYTES", "not contiguous"],
)
def test_what_is_long_is_written_and_read_in_other_threads(inputs: dict[str, Any], binary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, bool] = {}

    def watch(name: str) -> None:
        original = getattr(client_questions, name)

        def watched(*arguments: Any) -> Any:
            seen[name] = threading.current_thread() is threading.main_thread()
            return original(*arguments)

        monkeypatch.setattr(client_questions, name, watched)

    for name in ("write_inference", "read_inference"):
        watch(name)
    server = InferenceServer(max_body_bytes=None, max_json_bytes=None)
    server.register("echo", lambda x: x)
    with serving(OIPApp(server, path="/v2")) as port, OnALoop(f"http://127.0.0.1:{port}/v2") as client:
        client.infer("echo", inputs, binary=binary)
        assert seen == {"write_inference": False, "read_inference": inputs["x"].dtype == np.float64}
        client.infer("echo", {"x": np.ones(400_000, np.float32)})
        assert seen == {"write_inference": True, "read_inference": True}


@pytest.mark.parametrize("is_split", [True, False])
def test_a_connection_that_is_not_kept_after_500_is_not_given_to_another_request(is_split: bool) -> None:
    failed = b'{"error":"it failed"}'
    head = b"HTTP/1.1 500 X\r\nContent-Length: %d\r\n\r\n" % len(failed)

    def answer(request: bytes) -> list[bytes]:
        if b"/models/bad/" not in request.partition(b"\r\n")[0]:
            return [with_length(GOOD)]
        return [head, failed] if is_split else [head + failed]

    async def ask(client: AsyncClient, number: int) -> None:
        for turn in range(20):
            if (number + turn) % 3:
                assert (await client.infer("good", {}))["y"].tolist() == [1, 2]
            else:
                with pytest.raises(InferenceError, match="it failed"):
                    await client.infer("bad", {})

    async def ask_all(url: str) -> None:
        async with AsyncClient(url) as client:
            await asyncio.gather(*(ask(client, number) for number in range(20)))

    with Peer(answer).listening() as url:
        asyncio.run(ask_all(url))


def test_cancelled_calls_leave_no_connection_and_no_task() -> None:
    peer = Peer()

    async def storm(url: str) -> None:
        async with AsyncClient(url, timeout=10) as client:
            tasks = asyncio.all_tasks()
            for number in range(300):
                call = asyncio.ensure_future(client.infer("m", {"x": np.zeros(4)}))
                for _ in range(number % 25):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
            assert (await client.infer("m", {}))["y"].tolist() == [1, 2]
            while asyncio.all_tasks() != tasks:  # aiohttp ends the opening of a connection in a task of its own
                await asyncio.sleep(0.01)
        await asyncio.to_thread(peer.wait_for_open, 0)

    with peer.listening() as url:
        asyncio.run(asyncio.wait_for(storm(url), 60))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v2", "grpc://127.0.0.1:1"])
def test_a_timeout_that_is_none_is_refused_at_once(url: str) -> None:
    for timeout in (0, -1, float("nan")):
        for kind in (Client, AsyncClient):
            with pytest.raises(ValueError, match=r"the timeout is .*: expected seconds above 0, or math.inf for no limit"):
                kind(url, timeout=timeout)
        with Client(url) as client, pytest.raises(ValueError, match="the timeout is"):
            client.infer("m", {}, timeout=timeout)


@pytest.mark.parametrize("timeout", [2.0**31, 1e12, float("inf")])
def test_a_long_timeout_is_one(timeout: float) -> None:
    with Peer().listening() as url, OnALoop(url, timeout=timeout) as awaited, Client(url, timeout=timeout) as client:
        assert awaited.infer("m", {"x": np.zeros(100_000)})["y"].tolist() == [1, 2]
        assert client.infer("m", {})["y"].tolist() == [1, 2]
        with httpx2.Client() as http:
            assert Client(url, timeout=timeout, http=http).infer("m", {})["y"].tolist() == [1, 2]


def test_what_http_and_ssl_take() -> None:
    class Old:
        """As a client of httpx."""

    for kind, name in ((Client, "Client"), (AsyncClient, "AsyncClient")):
        with pytest.raises(
            TypeError, match=rf"http= is .*Old.*: expected a httpx2\.{name}; httpx itself is not taken, as its errors are others"
        ):
            kind("http://host/v2", http=Old())  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="http= is for a url of HTTP"):
            kind("grpc://host:1", http=Old())  # type: ignore[arg-type]
        for url in ("http://host/v2", "grpcs://host:1"):
            with pytest.raises(ValueError, match="ssl= is for an https:// url"):
                kind(url, ssl=ssl.create_default_context())


def test_both_clients_have_the_same_methods() -> None:
    names = {name for name in dir(Client) if not name.startswith("_")}
    assert names == {name for name in dir(AsyncClient) if not name.startswith("_")}
    for name in names:
        ours, theirs = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters, name
        assert ours.__doc__, name
        assert ours.__doc__ == theirs.__doc__, name
    made, awaited = (dict(inspect.signature(kind).parameters) for kind in (Client, AsyncClient))
    assert [(name, each.kind, each.default) for name, each in made.items()] == [
        (name, each.kind, each.default) for name, each in awaited.items()
    ]


LINES_OF_LF = [with_length(GOOD).replace(b"\r\n", b"\n")]


@pytest.mark.parametrize("answer", [*WHOLE.values(), LINES_OF_LF], ids=[*WHOLE, "lines that end with LF"])
def test_an_answer_is_read_to_its_end(connect: Connect, answer: list[bytes]) -> None:
    canned = make_canned(answer, answer)
    with canned.listening() as url, connect(url) as client:
        for _ in range(2):
            assert client.infer("m", {})["y"].tolist() == [1, 2]
    assert len(canned.connections) == (2 if CLOSE in answer else 1)


def test_a_broken_answer_is_an_error_and_the_next_request_has_another_connection(connect: Connect) -> None:
    for answer in BROKEN:
        canned = make_canned([*answer, CLOSE], [with_length(GOOD)])
        with canned.listening() as url, connect(url) as client:
            with pytest.raises(ConnectionFailed, match="gave no whole answer"):
                client.infer("m", {})
            assert client.infer("m", {})["y"].tolist() == [1, 2]
        assert len(canned.connections) == 2


# The memory of a large request and its answer

ARRAY = np.ones(2**22)
SIZE = ARRAY.nbytes
OUTPUT = b'{"name":"y","shape":[%d],"datatype":"FP64","parameters":{"binary_data_size":%d}}' % (ARRAY.size, SIZE)
TEXT = b'{"model_name":"m","outputs":[%b]}' % OUTPUT
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nInference-Header-Content-Length: %d\r\n\r\n" % (len(TEXT) + SIZE, len(TEXT))


@pytest.fixture
def frugal_url() -> Iterator[str]:
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


def test_a_large_request_and_answer_take_the_memory_of_the_answer(connect: Connect, frugal_url: str) -> None:
    assert len(TEXT) % 8  # so that the array would need a copy if its bytes began where the JSON ends
    with connect(frugal_url) as client:  # which imports aiohttp, whose code takes memory too
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            response = client.infer("m", {"x": ARRAY})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert np.array_equal(response["y"], ARRAY)
    assert (response["y"].flags.aligned, response["y"].flags.writeable) == (True, True)
    assert (peak - before) / SIZE < 1.15
