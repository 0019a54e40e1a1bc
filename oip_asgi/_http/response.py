"""An HTTP response as a value, and its body in messages that servers take. Knows no server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

import msgspec

from .._protocol import schemas
from .._protocol.datatypes import Buffer
from .._protocol.errors import InferenceError, NotFound, client_text, show

JSON: Final = (b"content-type", b"application/json")
BINARY: Final = (b"content-type", b"application/octet-stream")

_MESSAGE: Final = 2**17
"""The most bytes in each message of a body. malloc keeps blocks of this size, so they cost no page faults: those of a copy of 600 KB take
more than the messages cost a server, each as much as a copy of 100 KB."""

encode_json: Final = msgspec.json.Encoder().encode


@final
class Response(msgspec.Struct, frozen=True):
    """A response: its parts are sent one after the other, `size` bytes in all. `Content-Length` is among the headers."""

    status: int
    headers: list[tuple[bytes, bytes]]
    parts: list[Buffer]
    size: int

    def messages(self) -> Iterable[tuple[bytes, bool]]:
        """Return the parts as `bytes`, which servers need, each with True if more of them follow."""
        return [(b"".join(self.parts), False)] if self.size <= _MESSAGE else self._cut()

    def _cut(self) -> Iterator[tuple[bytes, bool]]:
        gathered: list[memoryview] = []
        size, left = 0, self.size
        for part in self.parts:
            rest = memoryview(part)
            while rest:
                piece, rest = rest[: _MESSAGE - size], rest[_MESSAGE - size :]
                gathered.append(piece)
                size += len(piece)
                left -= len(piece)
                if size == _MESSAGE or not left:
                    yield b"".join(gathered), left > 0
                    gathered, size = [], 0


CLIENT_GONE: Final = Response(499, [(b"content-length", b"0")], [b""], 0)
"""Sent if the client has gone: hosts take an application that answers nothing for a broken one, and log that."""


def respond(status: int, described: list[tuple[bytes, bytes]], parts: list[Buffer]) -> Response:
    size = sum(map(len, parts))
    return Response(status, [*described, (b"content-length", b"%d" % size)], parts, size)


def respond_json(status: int, document: msgspec.Struct) -> Response:
    return respond(status, [JSON], [encode_json(document)])


def respond_error(error: InferenceError) -> Response:
    """Make the response for an error: its status, its headers, and its text as `{"error": text}`."""
    response = respond_json(error.status, schemas.Error(client_text(error)))
    extra = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    return Response(response.status, response.headers + extra, response.parts, response.size)


def respond_unknown_path(path: str, root: str, prefix: str, mount: str) -> Response:
    """Make the response for a path outside an application's prefix. Clients write `root` before it, to which a mount has added `mount`."""
    why = f", as OIPApp(server, path={prefix!r}) is mounted at {mount}: path= is for an OIPApp that nothing mounts" if mount else ""
    return respond_error(NotFound(f"unknown path {show(root + path)}: everything is under {root}{prefix}{why}"))
