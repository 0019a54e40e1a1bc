"""Bodies that no answer needs are taken off the connection: many servers close it on a client that is still sending."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import pytest

from oip_asgi import InferenceServer, OIPWSGIApp
from tests.support.talk import Talk

LIMIT = 1000


def make_server() -> InferenceServer:
    server = InferenceServer(max_body_bytes=LIMIT)
    server.register("echo", lambda x: x)
    return server


def over_asgi(method: str, path: str, headers: Sequence[tuple[bytes, bytes]], chunks: int, size: int = 100) -> tuple[int, str, int]:
    """The status, the error, and how many chunks were received."""

    async def ask() -> tuple[int, str, int]:
        talk = Talk(make_server(), body=None, path=path, method=method, headers=headers)
        for left in reversed(range(chunks)):
            talk.say(b" " * size, ends=not left)
        await asyncio.wait_for(talk.task, 20)  # it would wait for more than there is
        return talk.status, json.loads(talk.body).get("error", "") if talk.body else "", talk.asked

    return asyncio.run(ask())


ANNOUNCED, CHUNKED = (b"content-length", b"500"), (b"transfer-encoding", b"chunked")


@pytest.mark.parametrize("header", [ANNOUNCED, CHUNKED])
def test_an_unread_body_is_received(header: tuple[bytes, bytes]) -> None:
    asked: list[tuple[str, str, list[tuple[bytes, bytes]], int]] = [
        ("POST", "/models/nope/infer", [], 404),
        ("POST", "/nowhere", [], 404),
        ("POST", "/models", [], 405),
        ("DELETE", "/models/echo/infer", [], 405),
        ("GET", "/health/live", [], 200),
        ("POST", "/models/echo/infer", [(b"content-encoding", b"br")], 415),
        ("POST", "/models/echo/infer", [(b"inference-header-content-length", b"x")], 400),
    ]
    for method, path, more, status in asked:
        assert over_asgi(method, path, [header, *more], 5)[::2] == (status, 5), (method, path)


@pytest.mark.parametrize(
    ("headers", "chunks", "received"),
    [
        ([], 1, 0),  # there is no body
        ([(b"content-length", b"0")], 1, 0),
        ([ANNOUNCED, (b"expect", b"100-continue")], 5, 0),  # nor will there be one before it is read
        ([(b"content-length", b"1001")], 11, 0),  # too large to be worth it
        ([(b"content-length", b"x")], 5, 0),
        ([CHUNKED], 50, 11),  # grown too large
    ],
)
def test_what_is_not_received(headers: list[tuple[bytes, bytes]], chunks: int, received: int) -> None:
    status, error, found = over_asgi("POST", "/models/nope/infer", headers, chunks)
    assert (status, found) == (404, received)
    assert error.startswith("Request for unknown model: 'nope' is not found")


def test_a_body_is_received_once_and_not_after_all_if_it_was_refused() -> None:
    for headers, chunks, expected, text in (
        ([ANNOUNCED], 5, (400, 5), "not valid JSON"),
        ([CHUNKED], 50, (413, 11), f"larger than {LIMIT} bytes"),
        ([(b"content-length", b"1001")], 50, (413, 0), f"larger than {LIMIT} bytes"),
    ):
        status, error, received = over_asgi("POST", "/models/echo/infer", headers, chunks)
        assert (status, received) == expected
        assert text in error


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({"CONTENT_LENGTH": "500"}, 100),
        ({"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}, 0),
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, 600),  # nobody can tell where it ends
        ({}, 600),
    ],
)
def test_under_wsgi_too(more: dict[str, Any], left: int) -> None:
    stream = BytesIO(b" " * 600)
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/models/nope/infer", "wsgi.input": stream, **more}
    started: list[str] = []

    def start_response(status: str, headers: object, exc_info: object = None) -> Callable[[bytes], object]:
        started.append(status)
        return lambda data: None

    b"".join(OIPWSGIApp(make_server())(environ, start_response))
    assert started == ["404 Not Found"]
    assert len(stream.read()) == left
