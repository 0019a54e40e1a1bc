"""The connections of clients: in threads, forked processes and event loops, kept and closed, and how much of an answer is read."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import multiprocessing
import socket
import ssl
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient

from oip_asgi import InferenceServer, InvalidResponse, OIPApp
from oip_asgi.client import AsyncClient, Client, ConnectionFailed, remote
from tests.support.inside.http import client_questions
from tests.support.peer import CHUNKED, CLOSE, GOOD, METADATA, Peer, make_canned, with_length
from tests.support.threads import serving

EVENT = b"data: " + GOOD + b"\n\n"


def test_a_thread_has_one_connection_which_it_closes_at_its_end() -> None:
    peer = Peer()
    with peer.listening() as url, Client(url) as client:
        with ThreadPoolExecutor(3) as threads:
            gate = threading.Barrier(3)

            def ask(_: int) -> None:
                gate.wait(10)
                for _ in range(3):
                    client.infer("m", {})

            list(threads.map(ask, range(3)))
            assert (len(peer.connections), peer.open) == (3, 3)
        peer.wait_for_open(0)


def test_a_client_that_is_closed_closes_the_connections_of_all_threads_and_says_so() -> None:
    peer, gate = Peer(), threading.Event()
    with peer.listening() as url:
        client = Client(url)

        def ask_and_stay() -> None:
            client.infer("m", {})
            gate.wait(10)

        thread = threading.Thread(target=ask_and_stay)
        thread.start()
        client.infer("m", {})
        peer.wait_for_open(2)
        client.close()
        peer.wait_for_open(0)
        client.close()
        for ask in (client.is_ready, lambda: client.infer("m", {}), lambda: client.stream("m", {})):
            with pytest.raises(RuntimeError, match="this client is closed"):
                ask()
        gate.set()
        thread.join(10)

        async def ask_late() -> None:
            late = AsyncClient(url)
            await late.infer("m", {})
            await late.close()
            await late.close()
            with pytest.raises(RuntimeError, match="this client is closed"):
                await late.infer("m", {})

        asyncio.run(ask_late())
        peer.wait_for_open(0)


def test_what_is_asked_within_a_stream_has_another_connection() -> None:
    def answer(request: bytes) -> bytes:
        if b"infer_stream" not in request:
            return with_length(GOOD)
        return with_length(EVENT * 3, b"Content-Type: text/event-stream\r\n")

    peer = Peer(answer)
    with peer.listening() as url, Client(url) as client:
        for response in client.stream("m", {}):
            assert response["y"].tolist() == client.infer("m", {})["y"].tolist() == [1, 2]
        assert len(peer.connections) == 2
        assert client.infer("m", {})["y"].tolist() == [1, 2]
        assert len(peer.connections) == 2
        peer.wait_for_open(1)


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
        gate.wait(10)
        own = client.infer("double", {"x": np.array([7], np.float32)})["output_0"].tolist()
        found = sorted(answers.get(timeout=10) for _ in children)
        for child in children:
            child.join(10)
    assert (found, own) == ([(number, [2.0 * number]) for number in range(3)], [14])


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


def test_remote_keeps_nothing_of_loops_that_have_ended() -> None:
    def answer(request: bytes) -> bytes:
        return with_length(METADATA) if request.startswith(b"GET") else with_length(GOOD)

    peer, loops = Peer(answer), []
    with peer.listening() as url:
        server = InferenceServer()
        server.register("m", load=remote(url, "m", wait=0))

        async def ask() -> Any:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            return (await server.infer("m", {"x": np.zeros(1)}))["y"].tolist()

        for _ in range(4):
            assert asyncio.run(ask()) == [1, 2]
        gc.collect()
        assert sum(loop() is not None for loop in loops) <= 1
        peer.wait_for_open(0)


@pytest.mark.slow
def test_an_idle_connection_is_not_used_for_longer_than_servers_keep_one() -> None:
    peer = Peer()
    with peer.listening() as url, Client(url) as client:

        async def ask_twice() -> None:
            async with AsyncClient(url) as awaited:
                for _ in range(2):
                    await awaited.infer("m", {})
                    await awaited.infer("m", {})
                    await asyncio.sleep(1.6)

        for _ in range(2):
            client.infer("m", {})
            client.infer("m", {})
            time.sleep(1.6)
        assert len(peer.connections) == 2
        asyncio.run(ask_twice())
        assert len(peer.connections) == 4


def test_a_connection_that_the_server_has_closed_is_not_used() -> None:
    peer = Peer()

    async def ask(url: str) -> None:
        async with AsyncClient(url) as awaited:
            await awaited.infer("m", {})
            peer.connections[-1].shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(0.05)
            await awaited.infer("m", {})

    with peer.listening() as url, Client(url) as client:
        client.infer("m", {})
        peer.connections[-1].shutdown(socket.SHUT_RDWR)
        client.infer("m", {})
        asyncio.run(ask(url))
    assert len(peer.connections) == 4
    assert len(peer.requests) == 4


def test_a_request_that_was_read_is_not_sent_again() -> None:
    peer = Peer(lambda request: with_length(GOOD) if len(peer.requests) % 2 else CLOSE)

    async def ask(url: str) -> None:
        async with AsyncClient(url) as awaited:
            await awaited.infer("m", {})
            with pytest.raises(ConnectionFailed, match="gave no whole answer"):
                await awaited.infer("m", {})

    with peer.listening() as url, Client(url) as client:
        client.infer("m", {})
        with pytest.raises(ConnectionFailed, match="gave no whole answer"):
            client.infer("m", {})
        asyncio.run(ask(url))
    assert len(peer.requests) == 4


def test_a_request_that_was_read_is_not_sent_again_after_a_reset() -> None:
    def answer(request: bytes) -> bytes:
        if len(peer.requests) % 2:
            return with_length(GOOD)
        peer.connections[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return CLOSE

    async def ask(url: str) -> None:
        async with AsyncClient(url) as awaited:
            await awaited.infer("m", {})
            with pytest.raises(ConnectionFailed, match="gave no whole answer"):
                await awaited.infer("m", {})

    peer = Peer(answer)
    with peer.listening() as url, Client(url) as client:
        client.infer("m", {})
        with pytest.raises(ConnectionFailed, match="gave no whole answer"):
            client.infer("m", {})
        asyncio.run(ask(url))
    assert len(peer.requests) == 4


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
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
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


LARGE = b'{"outputs":[{"name":"y","datatype":"FP32","shape":[50000],"data":[' + b"1," * 49_999 + b"1]}]}"


@pytest.mark.parametrize("more", [b"Content-Length: %d\r\n" % len(LARGE), b"Connection: close\r\n"], ids=["length", "no length"])
def test_an_answer_above_the_limit_is_not_read(more: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + more + b"\r\n" + LARGE

    def close_after(request: bytes) -> bytes:
        if b"close" in more:
            connection = peer.connections[-1]  # the last one for now: the client opens the next as soon as it has read enough
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            return b""
        return answer

    peer = Peer(close_after)
    text = "the response is larger than 1000 bytes, the most that is read of it"

    async def ask(url: str) -> None:
        async with AsyncClient(url, max_body_bytes=1000) as client:
            with pytest.raises(InvalidResponse, match=text):
                await client.infer("m", {})
        async with AsyncClient(url, max_body_bytes=None) as client:
            assert len((await client.infer("m", {}))["y"]) == 50_000

    with peer.listening() as url:
        with Client(url, max_body_bytes=1000) as client:
            for read in (lambda: client.infer("m", {}), lambda: list(client.stream("m", {})), client.metadata):
                with pytest.raises(InvalidResponse, match=text):
                    read()
            peer.wait_for_open(0)
        with Client(url, max_body_bytes=len(LARGE)) as client:
            assert len(client.infer("m", {})["y"]) == 50_000
        asyncio.run(ask(url))


def test_an_event_above_the_limit_is_not_read_and_a_long_stream_is() -> None:
    body = b"data: " + GOOD + b"\n\n"
    peer = Peer(lambda _: with_length(body * 20 + b"data: " + b"x" * 5000, b"Content-Type: text/event-stream\r\n"))
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
    far = {"name": "m", "extensions": [], "inputs": [], "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]}
    metadata = with_length(json.dumps(far).encode())
    peer = Peer(lambda request: metadata if request.startswith(b"GET") else with_length(LARGE))

    async def ask(server: InferenceServer) -> Any:
        async with server.lifespan():
            return await server.infer("m", {"x": np.zeros(1)})

    with peer.listening() as url:
        small, large = InferenceServer(max_body_bytes=1000), InferenceServer(max_body_bytes=None)
        for server in (small, large):
            server.register("m", load=remote(url, "m", wait=0))
        assert len(asyncio.run(ask(large))["y"]) == 50_000
        with pytest.raises(Exception, match="model 'm' failed: its server gave a broken answer") as caught:
            asyncio.run(ask(small))
        assert caught.value.status == 502  # type: ignore[attr-defined]
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

    async def ask(inputs: dict[str, Any], binary: bool) -> None:
        async with AsyncClient(f"http://127.0.0.1:{port}/v2") as client:
            await client.infer("echo", inputs, binary=binary)

    with serving(OIPApp(server, path="/v2")) as port:
        asyncio.run(ask(inputs, binary))
        assert seen["write_inference"] is False
        assert seen["read_inference"] is ("not contiguous" in str(inputs) or inputs["x"].dtype == np.float64)
        asyncio.run(ask({"x": np.ones(400_000, np.float32)}, True))
        assert seen == {"write_inference": True, "read_inference": True}


def test_cancelled_calls_leave_no_connection_and_no_task() -> None:
    peer = Peer()

    async def storm(url: str) -> None:
        async with AsyncClient(url, timeout=10) as client:
            tasks = asyncio.all_tasks()
            for number in range(600):
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


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v2", "grpc://127.0.0.1:1"])
def test_a_timeout_that_is_none_is_refused_at_once(url: str, timeout: float) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match=r"the timeout is .*: expected seconds above 0, or math.inf for no limit"):
            kind(url, timeout=timeout)
    with Client(url) as client, pytest.raises(ValueError, match="the timeout is"):
        client.infer("m", {}, timeout=timeout)


@pytest.mark.parametrize("timeout", [2.0**31, 1e12, float("inf")])
def test_a_long_timeout_is_one(timeout: float) -> None:
    async def ask(url: str) -> Any:
        async with AsyncClient(url, timeout=timeout) as client:
            return (await client.infer("m", {"x": np.zeros(100_000)}))["y"].tolist()

    with Peer().listening() as url:
        assert asyncio.run(ask(url)) == [1, 2]
        with Client(url, timeout=timeout) as client:
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


def test_an_application_is_asked_through_the_test_client() -> None:
    server = InferenceServer()
    server.register("double", lambda x: x * 2)
    with TestClient(OIPApp(server, path="/v2")) as http:
        client = Client("/v2", http=http)
        assert client.infer("double", {"x": [1, 2]})["output_0"].tolist() == [2, 4]
        assert client.is_ready()


def test_both_clients_have_the_same_methods() -> None:
    names = {name for name in vars(Client) if not name.startswith("_")}
    assert names == {name for name in vars(AsyncClient) if not name.startswith("_")}
    for name in names:
        ours, theirs = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters, name
        assert ours.__doc__, name
        assert ours.__doc__ == theirs.__doc__, name
    made, awaited = (dict(inspect.signature(kind).parameters) for kind in (Client, AsyncClient))
    assert [(name, each.kind, each.default) for name, each in made.items()] == [
        (name, each.kind, each.default) for name, each in awaited.items()
    ]


@pytest.mark.parametrize(
    ("answer", "is_used_again"),
    [
        ([with_length(GOOD)], True),
        ([with_length(GOOD)[:30], with_length(GOOD)[30:50], with_length(GOOD)[50:]], True),
        ([bytes([byte]) for byte in with_length(GOOD)], True),
        ([with_length(GOOD).replace(b"\r\n", b"\n")], True),
        ([b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" + with_length(GOOD)], True),
        ([CHUNKED], True),
        ([CHUNKED[:70], CHUNKED[70:]], True),
        ([with_length(GOOD, b"Connection: Close\r\n"), CLOSE], False),
        ([with_length(GOOD).replace(b"1.1", b"1.0"), CLOSE], False),
        ([with_length(GOOD, b"Connection: Keep-Alive\r\n").replace(b"1.1", b"1.0")], True),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + GOOD, CLOSE], False),
        ([b"HTTP/1.1 200\r\n\r\n" + GOOD, CLOSE], False),
    ],
)
def test_an_answer_is_read_to_its_end(answer: list[bytes], is_used_again: bool) -> None:
    canned = make_canned(answer, answer)
    with canned.listening() as url, Client(url) as client:
        for _ in range(2):
            assert client.infer("m", {})["y"].tolist() == [1, 2]
    assert len(canned.connections) == (1 if is_used_again else 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 200 OK\r\nx: y",
        with_length(GOOD)[:-1],
        CHUNKED[:-20],
        b"",
    ],
)
def test_a_broken_answer_is_an_error_and_the_next_request_has_another_connection(answer: bytes) -> None:
    canned = make_canned([answer, CLOSE], [with_length(GOOD)])
    with canned.listening() as url, Client(url) as client:
        with pytest.raises(ConnectionFailed, match="gave no whole answer"):
            client.infer("m", {})
        assert client.infer("m", {})["y"].tolist() == [1, 2]
    assert len(canned.connections) == 2
