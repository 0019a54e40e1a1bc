"""A row of the table of streams, and what writes its requests and answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.support.ways import Request

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class StreamRow:
    """A request, and what it is answered.

    Args:
        name: What it is about.
        path: Behind `/models/`, percent-encoded.
        send: The body, as JSON where it is no bytes.
        status: The status.
        answer: The documents of a stream's events, or the one document of any other answer.
        kind: The content type.
        headers: The request's headers.
    """

    name: str
    path: str
    send: Any
    status: int
    answer: Any
    kind: str = JSON
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def request(self) -> Request:
        return Request(
            "POST", f"/models/{self.path}", self.headers, self.send if isinstance(self.send, bytes) else json.dumps(self.send).encode()
        )

    @property
    def body(self) -> bytes:
        if self.kind == JSON:
            return written(self.answer)
        return b"".join(b"data: %b\n\n" % written(document) for document in self.answer)


def written(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def refused(name: str, path: str, send: Any, error: str, status: int = 400, **more: Any) -> StreamRow:
    return StreamRow(name, path, send, status, {"error": error}, **more)


def streamed(name: str, path: str, send: Any, *documents: Any, **more: Any) -> StreamRow:
    return StreamRow(name, path, send, 200, documents, EVENTS, **more)


def flat(model: str, **members: Any) -> dict[str, Any]:
    return {"model_name": model, **members}


def tensor(name: str, data: list[Any], datatype: str, shape: list[int] | None = None) -> dict[str, Any]:
    return {"name": name, "shape": shape or [len(data)], "datatype": datatype, "data": data}


def whole(model: str, *outputs: Any, **more: Any) -> dict[str, Any]:
    return {"model_name": model, "outputs": list(outputs), **more}


WORDS = {"text_input": "to be"}
OIP_WORDS = {"inputs": [tensor("text_input", ["to be"], "BYTES")], "id": "7"}
OIP_COUNT = {"inputs": [tensor("n", [2], "INT64")]}
OIP_PLAIN = {"inputs": [tensor("x", [2], "INT64")]}
