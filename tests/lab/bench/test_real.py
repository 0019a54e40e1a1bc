"""The benchmark of real models asks what it says, of services that answer rightly, and reads what strace writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from oip_asgi import OIPApp
from tests.lab.bench.load import Load
from tests.lab.bench.measure import Cell, Measurement
from tests.lab.bench.models import make_server
from tests.lab.bench.real import onnx_file, report
from tests.lab.bench.real.__main__ import chosen, parse
from tests.lab.bench.real.counts import Counts, parsed
from tests.lab.bench.real.functions import ONNX_FILE
from tests.lab.bench.real.hand import make_app
from tests.lab.bench.real.models import make_real_server
from tests.lab.bench.real.rows import IN_THREADS, by_hand, rows
from tests.lab.bench.real.servers import FLOORS, real_servers
from tests.lab.bench.rows import Answer, Row, WrongAnswer, frame_row
from tests.support.ways import Request, Way, over_asgi

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")


@pytest.fixture(scope="module")
def is_with_onnx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bool]:
    """Whether the services made behind this have the ONNX model, too."""
    if not onnx_file.can_convert():
        yield False
        return
    file = tmp_path_factory.mktemp("onnx") / "digits.onnx"
    onnx_file.write(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ONNX_FILE, str(file))
        yield True


def answer_of(way: Way, row: Row) -> Answer:
    answer = way(Request(row.method, row.path, list(row.headers.items()), row.body))
    return Answer(answer.status, answer.headers, answer.body)


def check(way: Way, row: Row) -> None:
    """The answer is taken, and one with another digit is not."""
    answer = answer_of(way, row)
    row.check(answer)
    with pytest.raises(WrongAnswer, match="500 broken"):
        row.check(Answer(500, {}, b"broken"))
    if row.name in ("digits", "ONNX", "clicks 1x39"):
        wrong = answer.body.replace(b"[4]", b"[5]").replace(b"[0.", b"[0.9")
        assert wrong != answer.body
        with pytest.raises(WrongAnswer, match="came back"):
            row.check(Answer(200, answer.headers, wrong))


@pytest.mark.slow
def test_each_way_of_this_package_answers_every_row(is_with_onnx: bool) -> None:
    for run in ("thread", "inline", "async"):
        way = over_asgi(OIPApp(make_real_server(run)), "")
        for row in rows(["*"]):
            if (row.name != "ONNX" or is_with_onnx) and (row.name not in IN_THREADS or run == "thread"):
                check(way, row)


@pytest.mark.slow
def test_the_service_written_by_hand_answers_what_it_is_asked(is_with_onnx: bool) -> None:
    way = over_asgi(make_app(), "")
    asked = by_hand()
    assert set(asked) == {row.name for row in rows(["*"])} - {"BYTES 1000, binary"}
    for name, row in asked.items():
        assert row.name == name
        if name != "ONNX" or is_with_onnx:
            check(way, row)


def test_a_service_with_json_of_its_own_is_asked_in_it() -> None:
    fastapi = {server.name: server for server in real_servers()}["FastAPI"]
    [digits, binary] = rows(["digits", "BYTES*binary"])
    assert (fastapi.asked(digits).path, fastapi.serves(digits), fastapi.serves(binary)) == ("/digits", True, False)


def test_what_is_asked_for_is_measured_beside_the_echo() -> None:
    cut = chosen(parse(["--rows", "DIGITS", "--ways", "def", "FastAPI", "--quick"]))
    assert [server.name for server in cut.servers] == ["echo", "def", "FastAPI"]
    assert [(row.name, cut.connections(row)) for row in cut.rows] == [("digits", [8])]
    hosts = chosen(parse(["--hosts", "--connections", "2"]))
    assert [server.name for server in hosts.servers][:3] == ["echo", "uvicorn", "uvicorn, async"]
    assert {count for row in hosts.rows for count in hosts.connections(row)} == {2}
    with pytest.raises(SystemExit, match="no way is called nobody"):
        chosen(parse(["--ways", "nobody"]))
    with pytest.raises(SystemExit, match="no row is called so"):
        chosen(parse(["--rows", "nothing"]))


def cell(name: str, rates: dict[str, tuple[int, float]]) -> Cell:
    [row] = rows([name])
    return Cell(row, 8, {server: [Measurement(Load(rate, 1.0, 1.0, 1.0), cpu)] for server, (rate, cpu) in rates.items()})


def test_goals_are_shown_beside_what_was_measured() -> None:
    shown = report.goals([cell("digits", {"def": (150, 0.004), "FastAPI": (100, 0.008), "inline": (200, 0.003)})])
    assert [line.split("|")[2:7] for line in shown.replace(" ", "").splitlines()[2:]] == [
        ["`def`toFastAPI", "1.35", "1.50", "yes", "2.00"],
        ["`def`toinline", "0.90", "0.75", "no", "0.75"],
    ]


STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.060000          30      2000           sendto
 40.00    0.040000          20      2000       999 futex
------ ----------- ----------- --------- --------- ----------------
100.00    0.100000          25      4000       999 total
"""


def test_the_summary_of_strace_is_read() -> None:
    assert parsed(STRACE) == {"sendto": 2000, "futex": 2000}
    shown = report.counted({("digits", "def"): Counts(1.5, 0.25, {"sendto": 1.0, "futex": 2.0})}, 8)
    assert shown.replace(" ", "").splitlines()[2] == "|digits|def|1.50|0.25|3.00|futex2.00,sendto1.00|"
    assert "no strace" in report.counted({("digits", "def"): Counts(1.5, 0.25, None)}, 8)


def test_the_rates_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from tests.lab.bench.real import plot

    file = tmp_path / "plot.png"
    plot.draw([cell("digits", {"def": (150, 0.004), "FastAPI": (100, 0.008)})], ["def", "FastAPI", "Triton"], file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_frame_costs_no_more_for_each_column_than_a_narrower_one() -> None:
    way = over_asgi(OIPApp(make_server("inline")), "")
    calls = [calls_of(way, count) for count in (20, 40, 80)]
    assert calls[2] - calls[1] < 2.3 * (calls[1] - calls[0]), calls


def calls_of(way: Way, columns: int) -> int:
    """How many Python functions are called for a frame of one row of strings, once it is known."""
    row = frame_row("frame", {f"category_{place}": ["a value"] for place in range(columns)}, [1])
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


def test_all_are_compared_with_the_echo() -> None:
    assert {server.floors["HTTP"] for server in real_servers()} == set(FLOORS.values())
