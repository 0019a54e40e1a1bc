"""gRPC over ASGI: calls by ASGI's messages alone, without a server."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from oip_asgi import InferenceServer
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_ways import CODES, MESSAGES, SERVICE
from tests.support.loops import Loops

GRPC: Final = "application/grpc"
WEB: Final = "application/grpc-web+proto"
WEB_TEXT: Final = "application/grpc-web-text"

INFER: Final = f"/{SERVICE}/ModelInfer"
STREAM: Final = f"/{SERVICE}/ModelStreamInfer"
REFLECTION: Final = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
"""A method of a stream that every application of ours has."""


def frame(message: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def frames_of(body: bytes) -> list[tuple[int, bytes]]:
    """The frames of a body: flag and message."""
    found = []
    while body:
        end = 5 + int.from_bytes(body[1:5], "big")
        assert len(body) >= end
        found.append((body[0], body[5:end]))
        body = body[end:]
    return found


@dataclass
class Got:
    """What came back, as ASGI's messages, and what they say in gRPC's words."""

    sent: list[Any]

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent if message["type"] == "http.response.body")

    @property
    def frames(self) -> list[tuple[int, bytes]]:
        if not self.headers["content-type"].startswith(WEB_TEXT):
            return frames_of(self.body)
        # each piece is padded
        pieces = [message["body"] for message in self.sent if message["type"] == "http.response.body"]
        return frames_of(b"".join(b64decode(piece, validate=True) for piece in pieces))

    @property
    def messages(self) -> list[bytes]:
        return [message for flag, message in self.frames if flag == 0]

    @property
    def trailers(self) -> dict[str, str]:
        """What ends the response: trailers of HTTP, or of gRPC-Web in the body."""
        if self.headers["content-type"].startswith("application/grpc-web"):
            flag, text = self.frames[-1]
            assert flag == 0x80
            return dict(line.split(":", 1) for line in text.decode().split("\r\n") if line)
        last = self.sent[-1]
        assert last["type"] == "http.response.trailers"
        assert self.sent[0]["trailers"] is True
        return {name.decode(): value.decode() for name, value in last["headers"]}

    @property
    def refusal(self) -> tuple[str, str]:
        """The code and the text."""
        trailers = self.trailers
        return CODES[int(trailers["grpc-status"])], unquote(trailers.get("grpc-message", ""))


async def call(
    app: Any,
    path: str,
    body: bytes | Sequence[bytes],
    content_type: str | None = GRPC,
    headers: Sequence[tuple[str, str]] = (),
    *,
    method: str = "POST",
    has_trailers: bool = True,
    gone: asyncio.Event | None = None,
    ends: int = 1,
    root_path: str = "",
) -> Got:
    """One request to an ASGI application; the body in one message or in several.

    The client goes when `gone` is set, else at the end. Asked what comes behind the body, a server waits until then; one that does not wait
    says `ends` times in all that the body has ended.
    """
    chunks = [body] if isinstance(body, bytes) else list(body)
    given = [*headers] if content_type is None else [("content-type", content_type), ("te", "trailers"), *headers]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "2",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": root_path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "extensions": {"http.response.trailers": {}} if has_trailers else {},
    }
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in chunks]
    messages += [{"type": "http.request", "body": b"", "more_body": False}] * ends
    sent: list[Any] = []
    leaves = gone or asyncio.Event()

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        is_end = message["type"] == "http.response.trailers" or not (message.get("more_body", True) or sent[0].get("trailers"))
        if is_end:
            leaves.set()

    await app(scope, receive, send)
    bodies = [message for message in sent if message["type"] == "http.response.body"]
    assert [message.get("more_body", False) for message in bodies] == [True] * (len(bodies) - 1) + [False]
    return Got(sent)


class ASGIClient:
    """Asks an application as `grpc_ways.Client` asks a server, by ASGI's messages alone."""

    def __init__(self, app: Any, content_type: str = GRPC, chunk: int | None = None, prefix: str = "") -> None:
        self._app = app
        self._content_type = content_type
        self._chunk = chunk
        self._prefix = prefix
        self._loops = Loops()

    def got(self, method: str, message: Any = None, headers: Sequence[tuple[str, str]] = ()) -> Got:
        if not isinstance(message, bytes):
            message = (MESSAGES[f"{method}.request"]() if message is None else message).SerializeToString()
        body = frame(message)
        if self._content_type == WEB_TEXT:
            body = b64encode(body)
        size = self._chunk or len(body)
        chunks = [body[start : start + size] for start in range(0, len(body), size)]
        path = f"{self._prefix}/{SERVICE}/{method}"
        return self._loops.run(call(self._app, path, chunks, self._content_type, headers))

    def ask(self, method: str, message: Any = None, **options: Any) -> Any:
        """The response message."""
        got = self.got(method, message, **options)
        assert got.refusal == ("OK", "")
        [answer] = got.messages
        return MESSAGES[f"{method}.response"].FromString(answer)

    def refusal(self, method: str, message: Any = None, **options: Any) -> tuple[str, str]:
        """The code and the text of the error that the server answers."""
        got = self.got(method, message, **options)
        assert (got.status, got.messages) == (200, [])
        assert got.refusal[0] != "OK"
        return got.refusal


ASGI_CLIENTS: Final[dict[str, Callable[[InferenceServer], ASGIClient]]] = {
    "ASGI": lambda server: ASGIClient(OIPGRPCApp(server)),
    "ASGI, chunked": lambda server: ASGIClient(OIPGRPCApp(server), chunk=7),
    "gRPC-Web": lambda server: ASGIClient(OIPGRPCApp(server), WEB),
    "gRPC-Web text, chunked": lambda server: ASGIClient(OIPGRPCApp(server), WEB_TEXT, chunk=11),
}
