"""A client of HTTP/2 that reads what its test tells it to read, and no more: it grants no window by itself."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, StreamEnded, StreamReset


class Connection:
    """A connection in the clear.

    Args:
        port: Of a server on the loopback.
    """

    def __init__(self, port: int) -> None:
        self.protocol = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.protocol.initiate_connection()
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()

    def call(self, path: str, body: bytes, *, is_last: bool = True, fields: Sequence[tuple[str, str]] = ()) -> int:
        """Begin a call of gRPC with a short body, and more header fields. Returns the number of its stream."""
        stream = self.protocol.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
        self.protocol.send_headers(stream, [*head, ("content-type", "application/grpc"), ("te", "trailers"), *fields])
        self.protocol.send_data(stream, body, end_stream=is_last)
        self._flush()
        return stream

    def reset(self, stream: int) -> None:
        """Send RST_STREAM, as a client that cancels its call does."""
        self.protocol.reset_stream(stream, ErrorCodes.CANCEL)
        self._flush()

    def read(self, stream: int, most: int) -> int:
        """Read the response of a stream up to its end, or until at least `most` bytes have come. Returns how many came."""
        size = 0
        while size < most:
            data = self.socket.recv(2**16)
            assert data, "the server closed the connection"
            for event in self.protocol.receive_data(data):
                assert not isinstance(event, ConnectionTerminated | StreamReset), event
                if isinstance(event, DataReceived):
                    assert event.flow_controlled_length is not None
                    size += len(event.data) if event.stream_id == stream else 0
                    self.protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if isinstance(event, StreamEnded) and event.stream_id == stream:
                    self._flush()
                    return size
            self._flush()
        return size

    def _flush(self) -> None:
        self.socket.sendall(self.protocol.data_to_send())
