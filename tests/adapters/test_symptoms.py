"""The guide's page of what does not work: each answer and each line of the log that it quotes is a real one."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from oip_asgi import Access, InferenceServer, OIPApp, TensorSpec
from tests.support.processes import ROOT
from tests.support.talk import Talk

PAGE = (ROOT / "examples/guide/does-not-work.md").read_text()
ROWS = re.findall(r"^\| (\d{3}) `([^`]+)` \| [^|]* \| (.*) \|$", PAGE, re.MULTILINE)
ONE_ROW = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,4],"data":[1,2,3,4]}]}'


def make_server(**options: Any) -> InferenceServer:
    server = InferenceServer(**options)

    @server.model("iris", inputs=[TensorSpec("x", "FP64", [-1, 4])])
    def iris(x: Any) -> Any:
        raise RuntimeError("a secret")

    server.register("half", lambda x: x / 2, inputs=[TensorSpec("x", "FP32", [-1, 4])])

    @server.model("slow", timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(30)

    @server.model("busy", max_concurrency=1, max_queue=0)
    async def busy() -> None:
        await asyncio.sleep(0.2)

    def load() -> Any:
        raise OSError("a secret")

    server.register("broken", load=load)
    return server


def is_allowed(access: Access) -> bool:
    return access.model != "iris"


async def ask_all() -> set[tuple[int, str]]:
    """The statuses and texts of all that goes wrong."""
    from fastapi import FastAPI

    server, guarded, small = make_server(), make_server(authorize=is_allowed), make_server(max_body_bytes=1000)
    app = FastAPI()
    OIPApp(server).install(app, "/v2")
    flat = ONE_ROW.replace(b"[1,4]", b"[4]")
    running = Talk(server, "busy")
    await asyncio.sleep(0.05)
    talks = [
        running,
        Talk(server, "iris", flat),
        Talk(server, "half", ONE_ROW),
        Talk(server, "iris", ONE_ROW.replace(b'"x"', b'"y"')),
        Talk(server, "iris", b""),
        Talk(guarded, "iris", ONE_ROW),
        Talk(server, path="/v2/v2/models/iris", app=app),
        Talk(server, path="/models/iris", app=app),
        Talk(server, "irsi", ONE_ROW),
        Talk(server, path="/models/iris/infer"),
        Talk(small, "iris", b" " * 2000),
        Talk(server, "iris", ONE_ROW, headers=[(b"content-encoding", b"br")]),
        Talk(server, "iris", ONE_ROW),
        Talk(server, "broken"),
        Talk(server, "busy"),
        Talk(server, "slow"),
    ]
    await asyncio.gather(*(talk.task for talk in talks))
    server.drain()
    draining = Talk(server, path="/health/ready")
    await draining.task
    for each in (server, guarded, small):
        each.stop()
    return {(talk.status, talk.body.decode()) for talk in [*talks, draining]}


def test_each_answer_and_each_line_of_the_log_is_a_real_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        answers = asyncio.run(ask_all())
    assert len(ROWS) >= 16
    assert [row for row in ROWS if not any(status == int(row[0]) and row[1] in text for status, text in answers)] == []
    lines = [line for _, _, do in ROWS for line in re.findall(r"the log has `([^`]+)`", do)]
    assert len(lines) == 3
    assert [line for line in lines if line not in caplog.text] == []
