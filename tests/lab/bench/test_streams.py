"""The benchmark of streams sees what is missing, prints its tables, and an item of a stream takes few steps."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from oip_asgi import InferenceServer, OIPApp
from tests.support.processes import ROOT
from tests.support.streaming import both_kinds
from tests.support.ways import Request, over_asgi

from . import h2load, streams, streams_served
from . import streams_clients as clients
from .load import has_h2load
from .rows import LoadFailed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")

H2LOAD = """
finished in 23.85ms, 335.39 req/s, 1.81MB/s
requests: 8 total, 8 started, 8 done, 8 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 8 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 43.25KB (44288) total, 160B (160) headers (space savings 95.29%), 41.02KB (42000) data
"""


def test_what_h2load_prints_is_read() -> None:
    assert h2load.seconds_of(H2LOAD, 5_250, 8) == pytest.approx(0.02385)
    assert h2load.seconds_of(H2LOAD.replace("23.85ms", "1.50s"), 5_250) == 1.5


@pytest.mark.parametrize(
    ("printed", "size", "calls", "text"),
    [
        (H2LOAD, 5_251, 8, "expected 42008 bytes of 8 calls, got 42000 of 8"),
        (H2LOAD, 5_251, None, "got 42000 of 8"),
        (H2LOAD, 10, 9, "of 9 calls, got 42000 of 8"),
        (H2LOAD.replace("8 succeeded", "7 succeeded"), 10, None, "of 8 calls, got 42000 of 7"),
        ("no address", 10, 8, "h2load failed: no address"),
    ],
)
def test_streams_that_fail_are_not_measured(printed: str, size: int, calls: int | None, text: str) -> None:
    with pytest.raises(LoadFailed, match=text):
        h2load.seconds_of(printed, size, calls)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\n", "IncompleteReadError"),
        (b"HTTP/1.1 503 Busy\r\n\r\ndata: x", "503"),
        (b"HTTP/1.1 200 OK\r\n\r\n9\r\ndata: x\n\n\r\n", "closed the connection after 1 events"),
        (b"HTTP/1.1 200 OK\r\n\r\n9\r\ndata: x\n\n\r\n0\r\n\r\n", "1 events came, not 2"),
    ],
)
def test_events_that_are_missing_are_seen(answer: bytes, text: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer)
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            with pytest.raises(LoadFailed, match=text):
                await clients.all_events(server.sockets[0].getsockname()[1], "/", b'{"n":[2]}', 1, 2)

    asyncio.run(main())


def test_a_way_is_compared_with_the_bare_stream_of_its_transport_round_by_round() -> None:
    found = {
        ("bare SSE", 8): streams.Measured([0.001, 0.002], [100.0, 1000.0], [1e-6, 1e-6]),
        ("async def", 8): streams.Measured([0.002, 0.004], [50.0, 700.0], [2e-6, 4e-6]),
        ("Triton, gRPC", 8): streams.Measured([0.003], [10.0], [1e-5]),
        ("def", 8): streams.Measured(),
    }
    assert streams.lines(found) == [
        ["8", "bare SSE", "1.50", "1.00", "550", "1.00", "1.0"],
        ["8", "async def", "3.00", "2.00", "375", "0.60", "3.0"],
        ["8", "Triton, gRPC", "3.00", "", "10", "", "10.0"],
    ]


def test_what_is_asked_for_brings_the_bare_stream_and_no_more() -> None:
    assert [way.name for way in streams.chosen(["def"], ["uvicorn", "grpc.aio"])] == ["bare SSE", "def"]
    with pytest.raises(SystemExit, match="no way is called nobody"):
        streams.chosen(["nobody"], ["uvicorn"])


@pytest.mark.parametrize("way", [way for way in streams.WAYS if way.server == "uvicorn"], ids=lambda way: way.name)
def test_each_way_streams_the_items_that_it_is_asked_for(way: streams.Way) -> None:
    answer = over_asgi(streams_served.make_app(), "")(Request("POST", way.target, (), streams.body_of(4)))
    found = answer.body.split(b"\n\n")
    assert (answer.status, len(found), found[-1]) == (200, 5, b"")
    assert all(event.startswith(b"data: {") for event in found[:-1])
    assert b"3" in found[3] or b"word" in found[3]


def entered(app: OIPApp, item: int) -> list[str]:
    """The Python functions that are entered for one item of a stream, each time, beside the model and this module."""
    found: list[str] = []
    messages = [{"type": "http.request", "body": b'{"n": 1}'}]

    async def receive() -> Any:
        return messages.pop() if messages else await asyncio.Event().wait()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and ROOT / "tests" not in Path(code.co_filename).parents:
            found.append(f"{Path(code.co_filename).stem}.{code.co_qualname}")

    sent = 0

    async def send(message: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == item:
            sys.setprofile(note)
        elif sent == item + 1:
            sys.setprofile(None)

    before = sys.getprofile()
    try:
        asyncio.run(app({"type": "http", "method": "POST", "path": "/models/m/generate_stream", "headers": []}, receive, send))
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("items", [["word"] * 50, [1.5] * 50], ids=["texts", "no arrays"])
def test_an_item_enters_few_functions(items: list[Any]) -> None:
    """On a small item, entering functions is most of the time."""
    server = InferenceServer()
    server.register("m", both_kinds(lambda: items)["async def"])
    found = min((entered(OIPApp(server), item) for item in (5, 10, 20, 30, 40)), key=len)  # on a busy machine, timers come between
    assert "stream._Generator.await_next" in found
    assert len(found) <= 70, found
    server.stop()


@pytest.mark.slow
@pytest.mark.skipif(not has_h2load(), reason="h2load is not installed")
def test_a_short_run_prints_its_table() -> None:
    command = [sys.executable, "-m", "tests.lab.bench.streams", "--rounds", "1", "--share", "0.01", "--streams", "1", "3"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "fails" not in ran.stderr
    rows = [line.split("|")[1:3] for line in ran.stdout.splitlines()[2:]]
    expected = [way.name for way in streams.WAYS if way.server in ("uvicorn", "bare gRPC", "grpc.aio")]
    for number in ("1", "3"):
        assert [name.strip() for count, name in rows if count.strip() == number and name.strip() in expected] == expected


def test_items_in_this_process_are_compared_with_bare_ones(capsys: pytest.CaptureFixture[str]) -> None:
    streams.main(["--called", "--rounds", "1", "--share", "0.05"])
    lines = [[cell.strip() for cell in line.split("|")[1:4]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [name for name, *_ in lines] == [way.name for way in streams.WAYS if way.server == "uvicorn"]
    assert lines[0][2] == "1.00"
