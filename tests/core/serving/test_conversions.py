"""Where content types are read: with a long request they are off the event loop, whatever the model."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from oip_asgi import InferenceServer
from oip_asgi.codecs import DatetimeCodec
from tests.support.talk import Talk

DATE = "2020-01-01T00:00:00"


def body_of(dates: int) -> bytes:
    item = {"name": "dates", "shape": [dates], "datatype": "BYTES", "data": [DATE] * dates}
    return json.dumps({"inputs": [item]}).encode()


def ask(server: InferenceServer, model: str, body: bytes, action: str = "infer") -> tuple[int, Any]:
    async def talk() -> tuple[int, Any]:
        return await Talk(server, model, body, action=action).answer()

    return asyncio.run(talk())


@pytest.fixture
def read_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which dates are read."""
    threads: list[str] = []
    decode = DatetimeCodec.decode_input

    def spied(tensor: Any) -> Any:
        threads.append(threading.current_thread().name)
        return decode(tensor)

    monkeypatch.setattr(DatetimeCodec, "decode_input", spied)
    return threads


def make_server() -> InferenceServer:
    server = InferenceServer()

    @server.model("async")
    async def count(dates: list[datetime]) -> int:
        return len(dates)

    @server.model("inline", run="inline")
    def count_inline(dates: list[datetime]) -> int:
        return len(dates)

    @server.model("stream")
    async def count_one(dates: list[datetime]) -> AsyncIterator[int]:
        yield len(dates)

    return server


@pytest.mark.parametrize(("dates", "thread"), [(10, "MainThread"), (10_000, "oip_asgi worker")])
@pytest.mark.parametrize("model", ["async", "inline", "stream"])
def test_content_types_of_a_long_request_are_read_in_a_worker_thread(model: str, dates: int, thread: str, read_in: list[str]) -> None:
    server = make_server()
    status, answer = ask(server, model, body_of(dates), "generate" if model == "stream" else "infer")
    assert (status, answer["outputs"][0]["data"]) == (200, [dates])
    assert read_in == [thread]
    server.stop()


def test_a_long_request_whose_dates_are_wrong_is_refused() -> None:
    server = make_server()
    body = body_of(10_000).replace(DATE.encode(), b"2020-13-01T00:00:00")
    status, answer = ask(server, "async", body)
    assert status == 400
    assert "element 0 is b'2020-13-01T00:00:00'" in answer["error"]
    server.stop()


def test_what_a_codec_raises_is_the_models_failure(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(tensor: Any) -> Any:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(DatetimeCodec, "decode_input", fail)
    server = make_server()
    status, answer = ask(server, "async", body_of(10_000))
    assert (status, answer) == (500, {"error": "model 'async' failed: see the server's log"})
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)
    server.stop()
