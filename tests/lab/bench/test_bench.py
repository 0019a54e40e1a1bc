"""The benchmark measures what it says: rows are asked and checked rightly, clients see failures, and a short run prints its tables."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oip_asgi import OIPApp
from tests.lab.bench import costs, h2load, instructions
from tests.lab.bench.load import Load, Target, ask, by_calls, by_h2load, by_sockets, by_wrk, has_h2load, has_wrk
from tests.lab.bench.measure import Cell, Measurement, verify
from tests.lab.bench.models import make_server
from tests.lab.bench.plan import chosen, parse
from tests.lab.bench.report import summary, table
from tests.lab.bench.rows import HTTP, Answer, LoadFailed, Row, WrongAnswer, names, rows
from tests.lab.bench.servers import OURS
from tests.support.processes import ROOT
from tests.support.ways import Request, over_asgi

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")

SMALL = ["health/live", "JSON 1x*", "binary 1x*", "BYTES*", "frame 1x39"]


def answer_of(row: Row) -> Answer:
    """What our own server answers, without a socket."""
    way = over_asgi(OIPApp(make_server("inline")), "")
    answer = way(Request(row.method, row.path, list(row.headers.items()), row.body))
    return Answer(answer.status, answer.headers, answer.body)


@pytest.mark.parametrize("row", rows(SMALL), ids=lambda row: row.name)
def test_a_right_answer_is_taken_and_a_wrong_one_is_not(row: Row) -> None:
    answer = answer_of(row)
    row.check(answer)
    with pytest.raises(WrongAnswer, match="500 broken"):
        row.check(Answer(500, {}, b"broken"))
    if row.name != "health/live":
        changed = bytearray(answer.body)
        changed[_place_in_data(answer.body, is_binary="binary" in row.name)] ^= 1
        with pytest.raises(WrongAnswer, match="came back"):
            row.check(replace(answer, body=bytes(changed)))


def _place_in_data(body: bytes, *, is_binary: bool) -> int:
    """Where a byte differs by one: the last of the tensor, or the first digit or letter that counts."""
    if is_binary:
        return len(body) - 1
    found = re.search(rb'"data":\["?[0.]*([1-9a-z])', body)
    assert found is not None
    return found.start(1)


def test_rows_are_found_by_patterns() -> None:
    assert [row.name for row in rows(["json 1X4", "health*"])] == ["health/live", "JSON 1x4"]
    assert {row.name: len(row.body) for row in rows(["binary 1x*"])} == {"binary 1x4": 148 + 16, "binary 1x150528": 157 + 602_112}
    assert len(names()) == len(set(names()))


@contextmanager
def answering(*answers: bytes) -> Iterator[Target]:
    """A server that gives these bytes to one request after the other, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                for answer in answers:
                    while not connection.recv(65536).endswith(b"}"):
                        pass
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
    with answering(answer, answer, answer, answer) as target:
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
    with answering(*answers) as target, pytest.raises(LoadFailed, match=text):
        by_sockets(target, row, 1, 0)


@pytest.mark.slow
@pytest.mark.skipif(not has_wrk(), reason="wrk is not installed")
def test_wrk_sends_what_the_row_says_and_tells_of_refusals(tmp_path: Path) -> None:
    [row] = rows(["binary 1x4"])
    [inline] = [server for server in OURS if server.name == "inline"]
    with inline.started(max(os.sched_getaffinity(0)), tmp_path / "log") as running:
        verify(running, row)
        assert by_wrk(running.target, row, 2, 1).requests > 0
        with pytest.raises(LoadFailed, match="not answered with 2xx"):
            by_wrk(running.target, replace(row, path="/models/nobody/infer"), 1, 1)


@pytest.mark.skipif(not has_h2load(), reason="h2load is not installed")
@pytest.mark.slow
def test_calls_are_sent_over_grpc_and_failures_seen(tmp_path: Path) -> None:
    [row] = rows(["gRPC 1x4"])
    [server] = [server for server in OURS if server.name == "gRPC"]
    with server.started(max(os.sched_getaffinity(0)), tmp_path / "log") as running:
        verify(running, row)
        assert by_h2load(running.target, row, 2, 1).requests > 0
        assert by_calls(running.target, row, 2, 0).requests >= 3
        with pytest.raises(LoadFailed, match="not every call"):
            h2load.latencies(running.target.grpc_port, replace(row, body=b""), 1, 1, 40)
        with pytest.raises(WrongAnswer, match=r"INVALID_ARGUMENT|NOT_FOUND"):
            verify(running, replace(row, body=b""))


def test_a_floor_sends_back_what_came(tmp_path: Path) -> None:
    [live, row] = rows(["health/live", "binary 1x4"])
    [echo] = [server for server in OURS if server.name == "echo"]
    with echo.started(max(os.sched_getaffinity(0)), tmp_path / "log") as running:
        verify(running, row)
        # as many bytes as the protocol's own answer
        assert len(ask(running.target, live).body) == len(answer_of(live).body)
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
    shown = summary([cell], [server for server in OURS if server.name in ("echo", "inline")])
    assert shown.splitlines()[2].split() == ["|", "JSON", "1x4", "|", "8", "|", "100", "|", "0.80", "|"]


def test_what_is_asked_for_brings_its_floor_and_no_more() -> None:
    cut = chosen(parse(["--ways", "gunicorn", "gRPC", "--rows", "json 1x4", "--connections", "3"]))
    assert [server.name for server in cut.servers] == ["gunicorn echo", "gunicorn"]
    assert [(row.name, cut.connections(row)) for row in cut.rows] == [("JSON 1x4", [3])]
    quick = chosen(parse(["--quick"]))
    assert {row.name: count for row in quick.rows for count in quick.connections(row)} == {
        "JSON 1x4": 8,
        "JSON 1x784": 8,
        "JSON 1000x1000": 1,
        "binary 1x4": 8,
        "binary 1x150528": 8,
        "binary 64 MiB": 1,
    }
    with pytest.raises(SystemExit, match="no way is called nobody"):
        chosen(parse(["--ways", "nobody"]))
    with pytest.raises(SystemExit, match="no row is called so"):
        chosen(parse(["--rows", "JSON 5x5"]))


def test_tables_are_markdown() -> None:
    assert table(["a", "long"], [["1", "2"]]) == "| a | long |\n|---|------|\n| 1 | 2    |"


@pytest.mark.slow
def test_a_short_run_prints_its_tables() -> None:
    command = [sys.executable, "-m", "tests.lab.bench", "--quick", "--rows", "JSON 1x4", "health/live", "--ways", "inline"]
    ran = subprocess.run(
        [*command, "--rounds", "1", "--seconds", "0", "--connections", "1"],
        cwd=ROOT,
        env={**os.environ, "PATH": ""},  # where there is no wrk
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "wrk is not installed" in ran.stderr
    assert "| row         | connections | floor, per second | inline |" in ran.stdout
    for row in ("health/live", "JSON 1x4"):
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
