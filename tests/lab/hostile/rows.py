"""Hostile requests, as rows for real servers. Each is answered 4xx, and the next request on its connection works where HTTP lets it.

What they cost is measured in `measure`.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.support.stressed import MAX_BODY_BYTES

MEGABYTE = 10**6
DEEP = 200_000
MOST_SECONDS = 10.0
"""Of CPU time, for any row; what they took is in the README."""

GROWS, OF_STRINGS = 12, 24
"""How many times its size a body may take, and one of strings or nested arrays, as the guide promises."""

CONSTANT = 32 * 2**20
"""What any row may cost beside: buffers of sockets, and what malloc keeps."""


@dataclass(frozen=True)
class Hostile:
    """A request as it goes over the wire.

    Args:
        name: What is hostile about it.
        parts: The bytes, in the pieces they are sent in.
        statuses: What it may be answered. Where none is given the connection may be closed without an answer.
        goes_on: Whether the next request on the same connection must be answered too.
        ends: Whether the client says behind it that it sends no more.
        sized: How many bytes it makes the server hold, for the bound of its memory; those that are sent where it is 0.
        grows: How many times as many the server may take.
        times: How often it is sent at once, on connections of its own.
        leaves: Whether its client goes as soon as it is sent, and hears no answer.
        stays: Whether its client stays, and reads nothing.
        honest: A good request that must be answered soon after it, while clients that stay are there; empty for none.
        is_right: Whether the body of an answer is; None where only its status matters.
        before: Requests that are sent before, one after the other.
        read_only: The same body for a function of the host, which only reads it. Where gunicorn's own reading makes health wait, that is no
            doing of ours, and does not count.
    """

    name: str
    parts: tuple[bytes, ...]
    statuses: tuple[int, ...] = (400,)
    goes_on: bool = True
    ends: bool = False
    sized: int = 0
    grows: int = GROWS
    times: int = 1
    leaves: bool = False
    stays: bool = False
    honest: tuple[bytes, ...] = ()
    is_right: Callable[[bytes], bool] | None = None
    before: tuple[bytes, ...] = ()
    read_only: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def sent(self) -> int:
        """How many bytes go over the wire."""
        return self.times * sum(map(len, self.parts)) + sum(map(len, self.before))

    @property
    def most_memory(self) -> int:
        """How many bytes the server's memory may grow by."""
        return self.grows * (self.times * self.sized or self.sent) + CONSTANT


def head(model: str, *headers: str) -> bytes:
    return head_of(f"models/{model}/infer", *headers)


def head_of(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"POST /v2/{path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode("latin-1")


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
    sizes = ("1099511627776", "4611686018427387904", "18446744073709551613", "0,4611686018427387904", "4294967296,4294967296")
    for shape in (f"[{each}]" for each in sizes):
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
    yield Hostile("a million numbers for another model", post("one", document(f"[1,{MEGABYTE}]", f"[{ones}]")))
    yield Hostile("a million arrays of one number, of another shape", post("one", document(f"[{MEGABYTE - 1},1]", f"[{lists}]")))
    yield Hostile("a million arrays of one number for another model", post("one", document(f"[{MEGABYTE},1]", f"[{lists}]")))
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
    compress = zlib.compressobj(9, wbits=31, strategy=zlib.Z_RLE)  # as small as any for zeros, in half the time
    return b"".join([*(compress.compress(bytes(MEGABYTE)) for _ in range(megabytes)), compress.flush()])


def framing_rows() -> Iterator[Hostile]:
    size = len(GOOD)
    repeated = ("Inference-Header-Content-Length: 1", "Inference-Header-Content-Length: 2")
    yield Hostile("Inference-Header-Content-Length twice", post("one", GOOD, *repeated))
    for value in ("-1", "0x10", "1e3", "9" * 5000, "18446744073709551617", "٣".encode().decode("latin-1")):
        name = value if len(value) < 30 else f"of {len(value):,} digits"
        yield Hostile(f"Inference-Header-Content-Length {name}", post("one", GOOD, f"Inference-Header-Content-Length: {value}"))
    twice = head("one", f"Content-Length: {size}", f"Content-Length: {size + 1}")
    yield Hostile("Content-Length twice", (twice, GOOD), (400,), goes_on=False, ends=True)
    yield Hostile("Content-Length that is too long", (head("one", f"Content-Length: {size + 9}"), GOOD), (), goes_on=False, ends=True)
    yield Hostile("Content-Length that is too short", (head("one", f"Content-Length: {size - 9}"), GOOD), (400,), goes_on=False, ends=True)
    early = (head("one", "Transfer-Encoding: chunked"), b"ff\r\n{")
    yield Hostile("a body that ends early, in chunks", early, (), goes_on=False, ends=True)
    chunked = (head("one", "Transfer-Encoding: chunked"), b"%x\r\n%b\r\n0\r\n\r\n" % (size, GOOD), b"garbage\r\n\r\n")
    yield Hostile("chunks with garbage behind their end", chunked, (200, 400), goes_on=False)
    yield Hostile("a chunk that is longer than it says", (chunked[0], b"5\r\n%b\r\n0\r\n\r\n" % GOOD), (400,), goes_on=False)
    yield Hostile("a body of one byte at a time", (head("one", "Content-Length: 200"), *[b"["] * 200))
    both = head("one", f"Content-Length: {size}", "Transfer-Encoding: chunked")
    yield Hostile("Content-Length and chunks", (both, b"%x\r\n%b\r\n0\r\n\r\n" % (size, GOOD)), (200, 400), goes_on=False)
    yield Hostile("no body", post("one", b""))
    yield Hostile("NUL bytes", post("one", bytes(MEGABYTE)))
    yield Hostile("an id that would be a header", post("one", document(more=',"id":"a\\r\\nSet-Cookie: b"')), (200,))


def all_rows() -> list[Hostile]:
    """The rows of this file that the server's limit lets in."""
    rows = [*shape_rows(), *nesting_rows(), *size_rows(), *coding_rows(), *framing_rows()]
    return [row for row in rows if 413 in row.statuses or row.sent <= MAX_BODY_BYTES]
