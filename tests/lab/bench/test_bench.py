"""The benchmark measures what it says: rows are asked and checked rightly, clients see failures, and a short run prints its tables."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from oip_asgi import OIPApp
from tests.lab.bench import costs, functions, h2load, instructions
from tests.lab.bench.__main__ import CPU_ROWS, REAL_ROWS, chosen, parse
from tests.lab.bench.hand import make_app
from tests.lab.bench.load import Load, Target, by_h2load, by_sockets, by_wrk, has_h2load, has_wrk
from tests.lab.bench.measure import Cell, Measurement, verify
from tests.lab.bench.models import Run, make_identity_server, make_server
from tests.lab.bench.report import shares, table
from tests.lab.bench.rows import GRPC, HTTP, IN_THREADS, Answer, LoadFailed, Row, WrongAnswer, by_hand, frame_row, rows
from tests.lab.bench.servers import Running, all_servers
from tests.support.processes import ROOT
from tests.support.ways import Request, Way, over_asgi

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")

SMALL = ["JSON 1x*", "binary 1x*", "BYTES*", "frame 1x39"]


def answer_of(way: Way, row: Row) -> Answer:
    """What an application answers, without a socket."""
    answer = way(Request(row.method, row.path, list(row.headers.items()), row.body))
    return Answer(answer.status, answer.headers, answer.body)


def check(way: Way, row: Row) -> None:
    """The right answer is taken; another status, and a body that differs in one place, are not."""
    answer = answer_of(way, row)
    row.check(answer)
    with pytest.raises(WrongAnswer, match="500 broken"):
        row.check(Answer(500, {}, b"broken"))
    changed = bytearray(answer.body)
    changed[_place_in_data(answer.body, is_binary="binary" in row.name)] ^= 1
    with pytest.raises(WrongAnswer, match="came back"):
        row.check(replace(answer, body=bytes(changed)))


def _place_in_data(body: bytes, *, is_binary: bool) -> int:
    """Where a byte differs by one: the last of the tensor, or the first digit or letter that counts."""
    if is_binary:
        return len(body) - 1
    start = max(body.find(b'"data"'), 0)
    found = re.search(rb'"\w+":\[*(?:\{"\w+":)?"?[0.]*([1-9a-z])', body[start:])
    assert found is not None
    return start + found.start(1)


@pytest.mark.parametrize("row", rows(SMALL), ids=lambda row: row.name)
def test_a_right_answer_is_taken_and_a_wrong_one_is_not(row: Row) -> None:
    check(over_asgi(OIPApp(make_identity_server("inline")), ""), row)


@pytest.fixture(scope="module")
def is_with_onnx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bool]:
    """Whether the services made from here on have the ONNX model, too."""
    if not functions.can_convert():
        yield False
        return
    file = tmp_path_factory.mktemp("onnx") / "digits.onnx"
    functions.write_onnx(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(functions.ONNX_FILE, str(file))
        yield True


@pytest.mark.slow
@pytest.mark.parametrize("run", ["thread", "inline", "async"])
def test_each_way_of_this_package_answers_every_row(run: Run, is_with_onnx: bool) -> None:
    way = over_asgi(OIPApp(make_server(run)), "")
    for row in rows(REAL_ROWS):
        is_served = (row.name != "ONNX" or is_with_onnx) and (row.name not in IN_THREADS or run == "thread")
        if is_served:
            row.check(answer_of(way, row))


@pytest.mark.slow
def test_the_service_written_by_hand_answers_what_it_is_asked(is_with_onnx: bool) -> None:
    way = over_asgi(make_app(), "")
    for name, row in by_hand().items():
        assert row.name == name
        if name != "ONNX" or is_with_onnx:
            check(way, row)


def test_rows_are_found_by_patterns() -> None:
    assert [row.name for row in rows(["json 1X4", "frame*"])] == ["JSON 1x4", "frame 1x39"]
    sizes = {"binary 1x4": 148 + 16, "binary 1x5120": 154 + 20_480, "binary 1x150528": 157 + 602_112}
    assert {row.name: len(row.body) for row in rows(["binary 1x*"])} == sizes


def test_a_service_with_json_of_its_own_is_asked_in_it() -> None:
    fastapi = {server.name: server for server in all_servers()}["FastAPI"]
    [digits, binary] = rows(["digits", "BYTES*binary"])
    assert (fastapi.asked(digits).path, fastapi.serves(digits), fastapi.serves(binary)) == ("/digits", True, False)
    assert {row.name for row in rows([*REAL_ROWS, *CPU_ROWS]) if fastapi.serves(row)} == set(by_hand())


def test_what_is_asked_for_is_measured_beside_its_floor() -> None:
    cut = chosen(parse(["--rows", "DIGITS", "--ways", "def", "FastAPI", "add_to_server"]))
    assert [server.name for server in cut.servers] == ["echo", "def", "FastAPI"]
    assert [(row.name, cut.connections(row)) for row in cut.rows] == [("digits", [8])]
    if has_h2load():
        cut = chosen(parse(["--rows", "gRPC 1x4", "--ways", "def", "add_to_server"]))
        assert [server.name for server in cut.servers] == ["gRPC echo", "add_to_server"]
    hosts = chosen(parse(["--hosts", "--connections", "2"]))
    assert [server.name for server in hosts.servers][:3] == ["echo", "uvicorn", "uvicorn, async"]
    assert {count for row in hosts.rows for count in hosts.connections(row)} == {2}
    with pytest.raises(SystemExit, match="no way is called nobody"):
        chosen(parse(["--ways", "nobody"]))
    with pytest.raises(SystemExit, match="no row is called so"):
        chosen(parse(["--rows", "nothing"]))


@contextmanager
def answering(answers: Sequence[bytes]) -> Iterator[Target]:
    """A server that gives these bytes to one request after the other, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                for answer in answers:
                    while (received := connection.recv(65536)) and not received.endswith(b"}"):
                        pass
                    if received:  # else the client has what it wants, and has gone
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Target(listening.getsockname()[1], 0, "")
        thread.join(30)


SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"


@pytest.mark.parametrize("answer", [SIZED, CHUNKED], ids=["sized", "chunked"])
def test_the_client_knows_where_an_answer_ends(answer: bytes) -> None:
    [row] = rows(["JSON 1x4"])
    with answering([answer] * 4) as target:
        assert by_sockets(target, row, 1, 0).requests == 3


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([SIZED, b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"], "expected 200, got HTTP/1.1 503"),
        ([SIZED], "closed the connection"),
    ],
)
def test_a_client_does_not_measure_failures(answers: list[bytes], text: str) -> None:
    [row] = rows(["JSON 1x4"])
    with answering(answers) as target, pytest.raises(LoadFailed, match=text):
        by_sockets(target, row, 1, 0)


@contextmanager
def started(name: str, folder: Path) -> Iterator[Running]:
    [server] = [server for server in all_servers() if server.name == name]
    with server.started(max(os.sched_getaffinity(0)), folder / "log") as running:
        yield running


@pytest.mark.slow
@pytest.mark.skipif(not has_wrk(), reason="wrk is not installed")
def test_wrk_sends_what_the_row_says_and_tells_of_refusals(tmp_path: Path) -> None:
    [row] = rows(["binary 1x4"])
    with started("inline", tmp_path) as running:
        verify(running, row)
        assert by_wrk(running.target, row, 2, 1).requests > 0
        with pytest.raises(LoadFailed, match="not answered with 2xx"):
            by_wrk(running.target, replace(row, path="/models/nobody/infer"), 1, 1)


@pytest.mark.skipif(not has_h2load(), reason="h2load is not installed")
@pytest.mark.slow
def test_calls_are_sent_over_grpc_and_failures_seen(tmp_path: Path) -> None:
    [row] = rows(["gRPC 1x4"])
    assert row.transport == GRPC
    with started("add_to_server", tmp_path) as running:
        verify(running, row)
        assert by_h2load(running.target, row, 2, 1).requests > 0
        with pytest.raises(LoadFailed, match="expected"):
            h2load.latencies(running.target.grpc_port, replace(row, body=b""), 1, 1, 40)
        with pytest.raises(WrongAnswer, match=r"INVALID_ARGUMENT|NOT_FOUND"):
            verify(running, replace(row, body=b""))


def test_a_floor_sends_back_what_came(tmp_path: Path) -> None:
    [row] = rows(["binary 1x4"])
    with started("echo", tmp_path) as running:
        verify(running, row)
        no_floor = replace(running, server=replace(running.server, floors={HTTP: "another"}))
        with pytest.raises(WrongAnswer, match="0 outputs came back"):
            verify(no_floor, replace(row, body=b'{"outputs": []}', headers={}))


def test_a_ratio_is_taken_round_by_round() -> None:
    [row] = rows(["JSON 1x4"])

    def turns(*rates: int) -> list[Measurement]:
        return [Measurement(Load(rate, 1.0, 1.0, 1.0), 0.001) for rate in rates]

    cell = Cell(row, 8, {"echo": turns(100, 10, 1000), "inline": turns(80, 9, 500), "Triton": "fails: 500"})
    assert cell.ratio("inline", "echo") == 0.8
    assert cell.ratio("Triton", "echo") is None
    assert shares([cell], "echo", ["inline"]).splitlines()[2].split() == ["|", "JSON", "1x4", "|", "8", "|", "0.80", "|"]


def test_tables_are_markdown() -> None:
    assert table(["a", "long"], [["1", "2"]]) == "| a | long |\n|---|------|\n| 1 | 2    |"


@pytest.mark.slow
def test_a_short_run_prints_its_tables() -> None:
    command = [sys.executable, "-m", "tests.lab.bench", "--rows", "JSON 1x4", "BYTES*", "--ways", "inline", "--rounds", "1"]
    ran = subprocess.run(
        [*command, "--seconds", "0", "--connections", "1"],
        cwd=ROOT,
        env={**os.environ, "PATH": ""},  # where there is no wrk
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "wrk is not installed" in ran.stderr
    assert re.search(r"\| `inline`, times +\| connections \| echo \|", ran.stdout), ran.stdout
    for row in ("BYTES 1000, binary", "JSON 1x4"):
        for server in ("echo", "inline"):
            assert any(row in line and server in line for line in ran.stdout.splitlines()), ran.stdout


def test_instructions_that_have_grown_are_named() -> None:
    kept = {"small": 100_000, "large": 400_000}
    assert instructions.compare({"small": 103_000, "large": 300_000}, kept) == []
    [text] = instructions.compare({"small": 103_001, "large": 300_000}, kept)
    assert text == "small: 103,001 instructions, +3.0% of the 100,000 in instructions.json"


def test_instructions_of_other_versions_are_not_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert instructions.differences(instructions.versions()) == []
    [text] = instructions.differences({**instructions.versions(), "msgspec": "0.1"})
    assert text.endswith(", and was 0.1")
    monkeypatch.setenv("PATH", "")  # without valgrind
    instructions.main(["--check"])
    assert "valgrind is not installed" in capsys.readouterr().out


@pytest.mark.parametrize("name", instructions.ROWS)
def test_the_loops_of_instructions_run(name: str) -> None:
    """Without valgrind: that each row is answered with success."""
    instructions.run_row(name)


@pytest.mark.slow
def test_what_the_import_costs_is_a_row_for_each_measure_and_a_column_for_each_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    costs.main([sys.executable, sys.executable, "--imports", "--rounds", "1"])
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.count(f"Python {platform.python_version()}") == 2
    assert [re.findall(r"\| ([0-9.]+) +(?=\|)", line) != [] for line in lines] == [True] * 3


def test_a_frame_costs_no_more_for_each_column_than_a_narrower_one() -> None:
    way = over_asgi(OIPApp(make_identity_server("inline")), "")
    calls = [calls_of(way, count) for count in (20, 40, 80)]
    assert calls[2] - calls[1] < 2.3 * (calls[1] - calls[0]), calls


def calls_of(way: Way, columns: int) -> int:
    """How many Python functions are called for a frame of one row of strings, once it is known."""
    row = frame_row({f"category_{place}": ["a value"] for place in range(columns)})
    answer_of(way, row)
    calls = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        answer_of(way, row)
    finally:
        sys.setprofile(before)
    return calls
