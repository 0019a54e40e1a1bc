"""A server of the protocol made of sockets, which answers what a test says: whole, in pieces, broken, or by closing the connection."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

METADATA = b'{"name":"m","extensions":["binary_tensor_data"],"inputs":[],"outputs":[{"name":"y","datatype":"FP32","shape":[-1]}]}'
GOOD = b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[1,2]}]}'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%x;a=b\r\n%b\r\n0\r\nX: y\r\n\r\n" % (
    9, GOOD[:9], len(GOOD) - 9, GOOD[9:],
)  # fmt: skip

CLOSE = b"close"


def with_length(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), more, body)


def _has_ended(request: bytes) -> bool:
    """Whether all of a request is there: with a part of it unread, the kernel would reset a connection that is closed."""
    head, found, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return bool(found) and len(body) >= (int(length[1]) if length else 0)


class Peer:
    """A server that answers each request of any connection at once, as `answer` says: with bytes, or pieces of them; at CLOSE it closes
    the connection.

    Args:
        is_early: Whether it answers as soon as it has the head of a request.
    """

    def __init__(
        self, answer: Callable[[bytes], bytes | Sequence[bytes]] | Sequence[bytes] | bytes = with_length(GOOD), *, is_early: bool = False
    ) -> None:
        self.answer = answer if callable(answer) else lambda _: answer
        self.is_early = is_early
        self.connections: list[socket.socket] = []
        self.requests: list[bytes] = []

    @contextmanager
    def listening(self) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            accepting = threading.Thread(target=self._accept, args=[listening])
            accepting.start()
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}/v2"
            finally:  # a test that fails ends too
                listening.shutdown(socket.SHUT_RDWR)
                accepting.join(10)
        for connection in self.connections:
            connection.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        request = b""
        with connection, suppress(OSError):
            while received := connection.recv(65536):
                request += received
                if _has_ended(request) or (self.is_early and b"\r\n\r\n" in request):
                    self.requests.append(request)
                    answer = self.answer(request)
                    for piece in [answer] if isinstance(answer, bytes) else answer:
                        if piece == CLOSE:
                            return
                        connection.sendall(piece)
                    request = b""

    @property
    def open(self) -> int:
        """How many connections no side has closed."""
        return sum(connection.fileno() >= 0 for connection in self.connections)

    def wait_for_open(self, count: int) -> None:
        end = time.monotonic() + 10
        while self.open != count and time.monotonic() < end:
            time.sleep(0.01)
        assert self.open == count


def make_canned(*answers: Sequence[bytes], is_early: bool = False) -> Peer:
    """A server that answers each inference with the next of some answers, in their pieces, and anything else with its metadata."""
    left = iter(answers)
    return Peer(lambda request: with_length(METADATA) if request.startswith(b"GET") else next(left), is_early=is_early)


RESET = b"\1\0\0\0\0\0\0\0"
"""The value of SO_LINGER with which a connection that is closed is reset."""

WHOLE: dict[str, list[bytes]] = {
    "whole": [with_length(GOOD)],
    "pieces": [with_length(GOOD)[:30], with_length(GOOD)[30:50], with_length(GOOD)[50:]],
    "bytes": [bytes([byte]) for byte in with_length(GOOD)],
    "100": [b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" + with_length(GOOD)],
    "103": [b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + with_length(GOOD)],
    "chunked": [CHUNKED],
    "chunks in pieces": [CHUNKED[:70], CHUNKED[70:]],
    "close": [with_length(GOOD, b"Connection: Close\r\n"), CLOSE],
    "HTTP/1.0": [with_length(GOOD).replace(b"1.1", b"1.0"), CLOSE],
    "HTTP/1.0 that stays": [with_length(GOOD, b"Connection: Keep-Alive\r\n").replace(b"1.1", b"1.0")],
    "until the end": [b"HTTP/1.1 200 OK\r\n\r\n" + GOOD, CLOSE],
    "no reason": [b"HTTP/1.1 200\r\n\r\n" + GOOD, CLOSE],
}
"""Answers that are read to their end, in their pieces; behind those that end with CLOSE, a client needs another connection."""

BROKEN: list[list[bytes]] = [
    [b"HTTP/2 200 OK\r\n\r\n"],
    [b"SSH-2.0-x\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}"],
    [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"],
    [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000],
    [b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000],
    [b"HTTP/1.1 200 OK\r\nx: y"],
    [with_length(GOOD)[:-1]],
    [with_length(bytes(200_000))[:-1]],
    [with_length(GOOD)[:20]],
    [CHUNKED[:-20]],
    [],
]
"""Answers of which a client says that they are not whole."""
