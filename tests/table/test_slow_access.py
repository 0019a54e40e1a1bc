"""A check of `authorize=` that waits: it ends with its client, with the model's timeout, or after ten seconds; and what its time tells."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from oip_asgi import Access, InferenceServer, OIPApp
from tests.support.grpc_ways import SERVICE, SERVINGS, Client, made, wire_request
from tests.support.talk import Talk
from tests.support.ways import Request, over_asgi, ways_into

INFER = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.0]}}
LATE = "the authorization took too long"


class Check:
    """Waits until it is cancelled."""

    def __init__(self) -> None:
        self.running = self.ended = 0

    async def __call__(self, access: Access) -> bool:
        self.running += 1
        try:
            await asyncio.sleep(60)
        finally:
            self.running -= 1
            self.ended += 1
        return True


def make_server(check: Any, timeout: float | None = 0.05) -> InferenceServer:
    server = InferenceServer(authorize=check)
    server.register("m", lambda x: x, timeout=timeout)
    return server


def test_a_check_ends_with_the_timeout_of_its_model(caplog: pytest.LogCaptureFixture) -> None:
    check = Check()
    server = make_server(check)
    asked = [("POST", "infer", INFER), ("POST", "generate", b'{"x":1}'), ("POST", "infer_stream", INFER), ("GET", "config", b"")]
    for way in ways_into(server).values():
        for method, action, body in asked:
            found = way(Request(method, f"/models/m/{action}", (), body))
            assert (found.status, json.loads(found.body)) == (503, {"error": LATE})
    assert not check.running
    assert "authorize= took more than 0.05 seconds for infer with model 'm', so the request is refused" in caplog.messages
    server.stop()


@pytest.mark.parametrize("serving", SERVINGS)
def test_a_check_over_grpc_ends_too(serving: str) -> None:
    check = Check()
    with SERVINGS[serving](make_server(check)) as address:
        client = Client(address)
        for method, message in (("ModelInfer", wire_request("m", [TENSOR])), ("ModelMetadata", made("ModelMetadata.request", name="m"))):
            assert client.refusal(method, message) == ("UNAVAILABLE", LATE)
        stream: Any = client.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        [data] = stream(iter([wire_request("m", [TENSOR]).SerializeToString()]), timeout=30)
        answer = made("ModelStreamInfer.response")
        answer.ParseFromString(data)
        assert answer.error_message == f"model 'm': {LATE}"
        client.channel.close()
    assert (check.running, check.ended) == (0, 3)


def test_a_check_ends_with_its_client() -> None:
    check = Check()
    server = make_server(check, None)

    async def ask() -> None:
        talk = Talk(server, body=INFER, headers=[(b"content-length", b"%d" % len(INFER))])
        talk.go()
        await talk.task

    async def ask_often() -> None:
        await asyncio.wait_for(asyncio.gather(*(ask() for _ in range(50))), 9)

    asyncio.run(ask_often())
    assert (check.running, check.ended) == (0, 50)


@pytest.mark.slow
def test_a_check_ends_after_ten_seconds_for_a_list_too() -> None:
    """A list asks about each model."""
    check = Check()
    server = make_server(check, None)
    server.register("n", lambda x: x)
    for path in ("/models", "/models/absent"):
        since = time.monotonic()
        found = over_asgi(OIPApp(server), "")(Request("GET", path))
        assert (found.status, json.loads(found.body)) == (503, {"error": LATE})
        assert 9 < time.monotonic() - since < 30
    assert (check.running, check.ended) == (0, 2)


@pytest.mark.parametrize("serving", SERVINGS)
def test_a_check_that_cancels_its_task_ends_a_stream_with_an_error(serving: str) -> None:
    async def check(access: Access) -> bool:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return True

    with SERVINGS[serving](make_server(check)) as address:
        client = Client(address)
        stream: Any = client.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        call = stream(iter([wire_request("m", [TENSOR]).SerializeToString()]), timeout=30)
        with pytest.raises(Exception, match="authorize= failed: it cancelled the task that runs it"):
            list(call)
        assert call.code().name == "INTERNAL"
        client.channel.close()


def calls_of(app: OIPApp, path: str, method: str, body: bytes) -> Iterator[str]:
    """The functions of the package that answer a request, in their order, with those of the check."""
    names: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        name = frame.f_code.co_qualname
        # the event loop is that of the tests before, whose timers may be due
        if event == "call" and "oip_asgi" in frame.f_code.co_filename and name != "Patrol._go_round":
            names.append(name)

    way = over_asgi(app, "")
    sys.setprofile(note)
    try:
        assert way(Request(method, path, (), body)).status == 403
    finally:
        sys.setprofile(None)
    return iter(names)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_way_of_a_refusal_does_not_tell_whether_the_model_exists(*, is_async: bool) -> None:
    def refuse(_: Access) -> bool:
        return False

    async def refuse_later(access: Access) -> bool:
        return refuse(access)

    server = InferenceServer(model_control=True, authorize=refuse_later if is_async else refuse)
    server.register("secret", lambda x: x)
    server.register("numbered", lambda x: x, version="1")
    server.register("loaded", load=lambda: lambda x: x)
    app = OIPApp(server)
    for method, path, body in [
        *[("POST", f"/models/NAME/{action}", INFER) for action in ("infer", "infer/", "versions/1/infer", "infer_stream", "generate")],
        *[("GET", f"/models/{path}", b"") for path in ("NAME", "NAME/versions/1", "NAME/ready", "NAME/config", "NAME/stats")],
        ("POST", "/repository/models/NAME/load", b""),
    ]:
        ways = {name: list(calls_of(app, path.replace("NAME", name), method, body)) for name in ("secret", "numbered", "loaded", "absent")}
        assert ways == dict.fromkeys(ways, ways["absent"])
        assert "Guard.ask" in ways["absent"]
