"""Hostile requests, as rows for real servers: `python -m tests.hostile` prints what each costs, in time and memory.

Each is answered 4xx, in time and memory bounded by its size, and the next request on its connection works where HTTP lets it.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import ROOT, ready_url
from tests.support.stressed import MAX_BODY_BYTES

MEGABYTE = 10**6
DEEP = 200_000
MOST_SECONDS = 10.0
"""For any row, on a machine that does other things beside; what they took is in the README."""


@dataclass(frozen=True)
class Hostile:
    """A request as it goes over the wire.

    Args:
        name: What is hostile about it.
        parts: The bytes, in the pieces they are sent in.
        statuses: What it may be answered. Where none is given the connection may be closed without an answer.
        goes_on: Whether the next request on the same connection must be answered too.
        ends: Whether the client says behind it that it sends no more.
        sized: How many bytes it makes the server hold, for the bound of its memory.
        grows: How many times as many it may, for what is many small values: the smallest of inputs, 54 bytes of JSON, becomes objects
            of fifteen times that, a list of one digit, in text that turns out to be wrong, forty.
    """

    name: str
    parts: tuple[bytes, ...]
    statuses: tuple[int, ...] = (400,)
    goes_on: bool = True
    ends: bool = False
    sized: int = 0
    grows: int = 20

    def __str__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        return self.sized or sum(map(len, self.parts))


def head(model: str, *headers: str) -> bytes:
    return "\r\n".join([f"POST /v2/models/{model}/infer HTTP/1.1", "Host: localhost", *headers, "", ""]).encode("latin-1")


def post(model: str, body: bytes, *headers: str) -> tuple[bytes, ...]:
    return (head(model, f"Content-Length: {len(body)}", *headers), body)


def document(
    shape: str = "[1]", data: str = "[1]", *, name: str = "x", datatype: str = "FP32", more: str = "", parameters: str = ""
) -> bytes:
    parameters = f',"parameters":{parameters}' if parameters else ""
    data = f',"data":{data}' if data else ""
    return f'{{"inputs":[{{"name":"{name}","shape":{shape},"datatype":"{datatype}"{parameters}{data}}}]{more}}}'.encode()


GOOD = document()
DIGITS = "9" * MEGABYTE
LONG = "n" * MEGABYTE


def shape_rows() -> Iterator[Hostile]:
    for shape in (
        "[1099511627776]",
        "[4611686018427387904]",
        "[18446744073709551613]",
        "[0,4611686018427387904]",
        "[4294967296,4294967296]",
    ):
        for datatype in ("FP32", "BYTES"):
            data = '["a"]' if datatype == "BYTES" else "[1]"
            yield Hostile(f"shape {shape} {datatype}", post("echo", document(shape, data, datatype=datatype)))
        text = document(shape, "", parameters='{"binary_data_size":4}')
        yield Hostile(f"shape {shape} binary", post("echo", text + bytes(4), f"Inference-Header-Content-Length: {len(text)}"))
    yield Hostile("shape of 100,000 dimensions", post("echo", document(json.dumps([1] * 100_000))))
    yield Hostile("shape with a number of a million digits", post("echo", document(f"[{DIGITS}]")))


def nesting_rows() -> Iterator[Hostile]:
    for name, opening, closing in (("arrays", "[", "]"), ("objects", '{"a":', "}")):
        nested = opening * DEEP + "1" + closing * DEEP
        yield Hostile(f"{name} {DEEP:,} deep in data", post("echo", document(data=nested)))
        yield Hostile(f"{name} {DEEP:,} deep in parameters", post("echo", document(more=f',"parameters":{{"p":{nested}}}')))
        yield Hostile(f"{name} {DEEP:,} deep in an unknown field", post("echo", document(more=f',"unknown":{nested}')))
        yield Hostile(f"{name} {DEEP:,} deep and never closed", post("echo", (opening * DEEP).encode()))


def size_rows() -> Iterator[Hostile]:
    one = document()[len('{"inputs":[') : -len("]}")]
    yield Hostile("100,000 inputs of one name", post("one", b'{"inputs":[%s]}' % b",".join([one] * 100_000)))
    many = b",".join(one.replace(b'"x"', b'"x%d"' % place) for place in range(100_000))
    yield Hostile("100,000 inputs", post("one", b'{"inputs":[%s]}' % many))
    yield Hostile("300,000 inputs", post("echo", b'{"inputs":[%s]}' % b",".join([one] * 300_000)))
    yield Hostile("100,000 outputs", post("one", document(more=f',"outputs":[{",".join(["{}"] * 100_000)}]')))
    outputs = ",".join(f'{{"name":"{place}"}}' for place in range(100_000))
    yield Hostile("100,000 unknown outputs", post("one", document(more=f',"outputs":[{outputs}]')))
    yield Hostile("an input's name of a megabyte", post("one", document(name=LONG)))
    yield Hostile("an output's name of a megabyte", post("one", document(more=f',"outputs":[{{"name":"{LONG}"}}]')))
    yield Hostile("a datatype of a megabyte", post("one", document(datatype=LONG)))
    yield Hostile("a parameter's name of a megabyte", post("one", document(more=f',"parameters":{{"{LONG}":[]}}')))
    yield Hostile("a model's name of 3,000 characters", post("m" * 3000, GOOD), (404,))
    yield Hostile("a model's name of a megabyte", post(LONG, GOOD), (), goes_on=False)  # refused by servers
    yield Hostile("an integer of a million digits in data", post("one", document(data=f"[{DIGITS}]")))
    yield Hostile("an INT64 of a million digits", post("echo", document(data=f"[{DIGITS}]", datatype="INT64")))
    yield Hostile("an exponent of a million digits", post("echo", document(data=f"[1e{DIGITS}]", datatype="INT64")))
    yield Hostile("a million digits as binary_data_size", post("echo", document(data="", parameters=f'{{"binary_data_size":{DIGITS}}}')))
    yield Hostile("a million digits as timeout", post("one", document(more=f',"parameters":{{"timeout":-{DIGITS}}}')))
    yield Hostile("a million strings for numbers", post("one", document("[1000000]", json.dumps(["1"] * MEGABYTE))))
    ones, lists = ",".join("1" * MEGABYTE), ",".join(["[1]"] * MEGABYTE)
    yield Hostile("a million numbers, one more than the shape", post("one", document(f"[{MEGABYTE - 1}]", f"[{ones}]")))
    yield Hostile("a million numbers for another model", post("one", document(f"[1,{MEGABYTE}]", f"[{ones}]")), grows=45)
    yield Hostile("a million arrays of one number, of another shape", post("one", document(f"[{MEGABYTE - 1},1]", f"[{lists}]")), grows=45)
    yield Hostile("a million arrays of one number for another model", post("one", document(f"[{MEGABYTE},1]", f"[{lists}]")), grows=45)
    parameters = ",".join(f'"{place}":1' for place in range(MEGABYTE))
    yield Hostile("a million parameters, the last an array", post("one", document(more=f',"parameters":{{{parameters},"x":[]}}')))
    length = MAX_BODY_BYTES + 1
    yield Hostile("a body above the limit, announced", (head("one", f"Content-Length: {length}"),), (413,), goes_on=False)
    chunks = tuple(b"100000\r\n" + bytes(2**20) + b"\r\n" for _ in range(MAX_BODY_BYTES // 2**20 + 1))
    yield Hostile("a body above the limit, in chunks", (head("one", "Transfer-Encoding: chunked"), *chunks), (413,), goes_on=False)


def coding_rows() -> Iterator[Hostile]:
    for members, coding, bomb in (
        ("a gzip bomb of 1 GB", "gzip", gzip_bomb(1000)),
        ("a deflate bomb of 300 MB", "deflate", zlib.compress(bytes(300 * MEGABYTE), 9)),
        ("a gzip bomb of 2,000 members", "gzip", gzip.compress(bytes(MEGABYTE)) * 2000),
    ):
        yield Hostile(members, post("one", bomb, f"Content-Encoding: {coding}"), (413,), goes_on=False, sized=MAX_BODY_BYTES)
    empty = gzip.compress(b"") * 500_000
    yield Hostile("500,000 empty gzip members", post("one", empty, "Content-Encoding: gzip"), goes_on=False)
    yield Hostile("a corrupt gzip body", post("one", gzip.compress(GOOD)[:-5] + b"12345", "Content-Encoding: gzip"))
    yield Hostile("Content-Encoding of 1,000 gzips", post("one", GOOD, "Content-Encoding: " + "gzip," * 1000), (415,))
    yield Hostile("Accept-Encoding gzip;q=1e999", post("one", GOOD, "Accept-Encoding: gzip;q=1e999"), (200,))


def gzip_bomb(megabytes: int) -> bytes:
    compress = zlib.compressobj(9, wbits=31)
    return b"".join([*(compress.compress(bytes(MEGABYTE)) for _ in range(megabytes)), compress.flush()])


def framing_rows() -> Iterator[Hostile]:
    size = len(GOOD)
    repeated = ("Inference-Header-Content-Length: 1", "Inference-Header-Content-Length: 2")
    yield Hostile("Inference-Header-Content-Length twice", post("one", GOOD, *repeated))
    for value in ("-1", "0x10", "1e3", "9" * 5000, "18446744073709551617", "٣".encode().decode("latin-1")):
        name = value if len(value) < 30 else f"of {len(value):,} digits"
        yield Hostile(f"Inference-Header-Content-Length {name}", post("one", GOOD, f"Inference-Header-Content-Length: {value}"))
    yield Hostile(
        "Content-Length twice",
        (head("one", f"Content-Length: {size}", f"Content-Length: {size + 1}"), GOOD),
        (400,),
        goes_on=False,
        ends=True,
    )
    yield Hostile("Content-Length that is too long", (head("one", f"Content-Length: {size + 9}"), GOOD), (), goes_on=False, ends=True)
    yield Hostile("Content-Length that is too short", (head("one", f"Content-Length: {size - 9}"), GOOD), (400,), goes_on=False, ends=True)
    yield Hostile(
        "a body that ends early, in chunks", (head("one", "Transfer-Encoding: chunked"), b"ff\r\n{"), (), goes_on=False, ends=True
    )
    chunked = (head("one", "Transfer-Encoding: chunked"), b"%x\r\n%b\r\n0\r\n\r\n" % (size, GOOD), b"garbage\r\n\r\n")
    yield Hostile("chunks with garbage behind their end", chunked, (200, 400), goes_on=False)
    yield Hostile("a chunk that is longer than it says", (chunked[0], b"5\r\n%b\r\n0\r\n\r\n" % GOOD), (400,), goes_on=False)
    yield Hostile("a body of one byte at a time", (head("one", "Content-Length: 200"), *[b"["] * 200))
    both = head("one", f"Content-Length: {size}", "Transfer-Encoding: chunked")
    yield Hostile("Content-Length and chunks", (both, b"%x\r\n%b\r\n0\r\n\r\n" % (size, GOOD)), (200, 400), goes_on=False)
    yield Hostile("no body", post("one", b""))
    yield Hostile("NUL bytes", post("one", bytes(MEGABYTE)))
    yield Hostile("an id that would be a header", post("one", document(more=',"id":"a\\r\\nSet-Cookie: b"')), (200,))


def rows() -> list[Hostile]:
    """All rows."""
    return [*shape_rows(), *nesting_rows(), *size_rows(), *coding_rows(), *framing_rows()]


@dataclass(frozen=True)
class Outcome:
    """What came of a row."""

    status: int | None
    """None where the connection was closed without an answer."""
    headers: dict[str, str]
    body: bytes
    next_status: int | None
    """What the next request on the same connection was answered; None where that was closed."""
    seconds: float


def send(address: str, row: Hostile) -> Outcome:
    """Send a row, and a good request behind it."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=MOST_SECONDS * 3) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        try:
            for part in row.parts:
                connection.sendall(part)
            if row.ends:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server has said all that it wants to, and closed
        status, headers, body = answer(connection)
        seconds = time.monotonic() - began
        next_status = None
        if row.goes_on and status is not None:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            next_status = answer(connection)[0]
    return Outcome(status, headers, body, next_status, seconds)


def answer(connection: socket.socket) -> tuple[int | None, dict[str, str], bytes]:
    """The next answer on a connection."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    except (OSError, http.client.HTTPException):
        return None, {}, b""
    finally:
        response.close()


def peak_bytes(pid: int) -> int:
    """The most memory that a process has held since `forget_peak`, on Linux."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> int:
    """Begin to measure anew, and say what it holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_bytes(pid)


def measured(address: str, pid: int, row: Hostile) -> tuple[Outcome, int]:
    """What came of a row, and how many bytes the server's memory grew by at most."""
    before = forget_peak(pid)
    outcome = send(address, row)
    return outcome, peak_bytes(pid) - before


def bound_of_memory(row: Hostile) -> int:
    """What a row may cost."""
    return row.grows * row.size + 32 * 2**20


def serving(command: list[str]) -> tuple[subprocess.Popen[str], str]:
    """A server process and its address."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return process, ready_url(process)


def shown(outcome: Outcome) -> str:
    return "closed" if outcome.status is None else str(outcome.status)


def main(emit: Callable[[str], object] = print) -> None:
    process, address = serving([sys.executable, "-m", "tests.support.stressed"])
    try:
        emit("| request | size | answer | time | memory |\n|---|---|---|---|---|")
        for row in rows():
            outcome, grown = measured(address, process.pid, row)
            size = sum(map(len, row.parts))
            emit(f"| {row} | {size / 1000:,.1f} kB | {shown(outcome)} | {outcome.seconds * 1000:,.0f} ms | {grown / MEGABYTE:,.1f} MB |")
    finally:
        process.terminate()
        process.wait(30)
