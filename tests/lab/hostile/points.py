"""Rows where a little cost a lot once: each held the event loop, memory, a slot or another request's answer before it was mended."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from tests.support.inside.rest import MAX_ARRAYS
from tests.support.stressed import MAX_BODY_BYTES

from .rows import GOOD, OF_STRINGS, Hostile, document, head_of, post

GZIP = "Content-Encoding: gzip"
HEADER = "Inference-Header-Content-Length"

SLOW = "2.4703282292062327208e-324"
"""A number that takes decoders eight microseconds."""

BINARY = {"binary_data_output": True}
MISREAD = np.frombuffer(b"\xfd\x43\xae\x15", "<f4")


def array_of(element: str, times: int, *last: str) -> str:
    return f"[{','.join([element] * times + list(last))}]"


def compressed(body: bytes) -> bytes:
    return gzip.compress(body, 9)


def slow_numbers() -> Iterator[Hostile]:
    text = document("[2408]", array_of(SLOW, 2407, "1e999"), datatype="FP64")
    yield Hostile("slow numbers, ten at once", post("echo", compressed(text), GZIP), times=10, sized=len(text))
    text = document("[4]", array_of(SLOW, MAX_BODY_BYTES // 30), datatype="FP64")
    yield Hostile("slow numbers, as many as there may be", post("echo", compressed(text), GZIP), sized=len(text))
    elements = MAX_BODY_BYTES // 30
    text = document(f"[{elements}]", array_of(SLOW, elements), datatype="FP64")
    yield Hostile("slow numbers that are right", post("any", compressed(text), GZIP), (200,), sized=len(text))


def nested_arrays() -> Iterator[Hostile]:
    for what, item, dimensions in (("[[1]]", "[[1]]", "1,1"), ("sixty brackets", "[" * 60 + "1" + "]" * 60, ",".join("1" * 60))):
        elements = MAX_BODY_BYTES // (len(item) + 1) - 20
        text = document(f"[{elements},{dimensions}]", array_of(item, elements))
        status = 200 if text.count(b"[") <= MAX_ARRAYS else 400
        yield Hostile(f"each number in {what}", post("any", compressed(text), GZIP), (status,), sized=len(text))
        text = document(f"[{elements + 1},{dimensions}]", array_of(item, elements))
        yield Hostile(f"each number in {what}, one missing", post("any", compressed(text), GZIP), sized=len(text))


def conversions() -> Iterator[Hostile]:
    elements = MAX_BODY_BYTES // 16
    text = document(f"[{elements}]", array_of("1", elements))
    sent, honest = post("gated", text), post("gated", GOOD)
    yield Hostile("40 large bodies of clients that go", sent, (), goes_on=False, times=40, leaves=True, honest=honest)


def unread() -> Iterator[Hostile]:
    def asked(action: str, n: int) -> tuple[bytes, ...]:
        body = b'{"n":%d}' % n
        return head_of(f"models/unread/{action}", f"Content-Length: {len(body)}"), body

    streams, honest = asked("generate_stream", 10**6), asked("generate", 1)
    yield Hostile("as many streams as slots that nobody reads", streams, (), goes_on=False, times=4, stays=True, honest=honest)


def answers() -> Iterator[Hostile]:
    for number in range(1, 4):
        text = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "INT32", "data": [number]}], "parameters": BINARY})

        def is_own(body: bytes, number: int = number) -> bool:
            content = body[body.index(b"}]}") + 3 :]
            return len(content) > 2**20 and set(np.frombuffer(content, "<f4").tolist()) == {float(number)}

        yield Hostile(f"memory that the model uses again, {number}", post("reused", text.encode()), (200,), times=4, is_right=is_own)


def binary_strings() -> Iterator[Hostile]:
    elements = MAX_BODY_BYTES // 7 - 100
    size, data = f'{{"binary_data_size":{6 * elements}}}', b"\2\0\0\0ab" * elements
    for name, model, datatype, more, is_right in (
        ("under an escaped name", "any", "B\\u0059TES", '"n":1', None),
        ("that come back", "echo", "BYTES", '"binary_data_output":true', lambda answer: answer.endswith(data)),
    ):
        text = document(f"[{elements}]", "", datatype=datatype, parameters=size, more=f',"parameters":{{{more}}}')
        parts = post(model, text + data, f"{HEADER}: {len(text)}")
        yield Hostile(f"binary strings {name}", parts, (200,), grows=OF_STRINGS, is_right=is_right)


def frames() -> Iterator[Hostile]:
    if find_spec("pandas") is None:
        return
    for what, datatype, data, parameters in (
        ("a zone that is a file", "BYTES", '["2020-01-01T00:00:00"]', {"content_type": "datetime", "pd_dtype": _ZONE}),
        ("dates without values as objects", "BYTES", '["NaT"]', {"content_type": "datetime", "pd_dtype": "object"}),
        ("BF16 as a category", "BF16", "[null]", {"pd_dtype": "category", "pd_categories": "[1.0]"}),
        ("categories with a missing value", "FP64", "[null]", {"content_type": "np", "pd_dtype": "category"}),
    ):
        text = document("[1]", data, datatype=datatype, parameters=json.dumps(parameters), more=',"parameters":{"content_type":"pd"}')
        yield Hostile(f"a column: {what}", post("frame", text), (400,) if "zone" in what else (200, 400))
    for what, datatype, data, parameters in (
        ("texts", "BYTES", '["a"]', {}),
        ("dates", "BYTES", '["2020-01-01"]', {"content_type": "datetime"}),
        ("dates with a zone", "BYTES", '["2020-01-01T00Z"]', {"content_type": "datetime", "pd_dtype": "datetime64[ns, Asia/Tokyo]"}),
        ("nullable integers", "INT64", "[1]", {"pd_dtype": "Int64"}),
        ("a category each", "BYTES", '["a"]', {"content_type": "str", "pd_dtype": "category"}),
        ("JSON", "BYTES", '["null"]', {"content_type": "pd_json"}),
    ):
        columns = [document(name=f"{place}", datatype=datatype, data=data, parameters=json.dumps(parameters)) for place in range(50_000)]
        tensors = [column[len(b'{"inputs":[') : -len(b"]}")] for column in columns]
        most = b'{"inputs":[%b]}' % b",".join(tensors[:4_096])
        yield Hostile(f"4,096 columns: {what}", post("frame", most), (200,), sized=2 * len(most), grows=OF_STRINGS)
        yield Hostile(f"50,000 columns: {what}", post("frame", b'{"inputs":[%b]}' % b",".join(tensors)))
    for number, status in ((4_096, 200), (99_000, 400)):
        text = b"{%b}" % b",".join(b'"%d":null' % place for place in range(number))
        parts = (head_of("models/frame/generate", f"Content-Length: {len(text)}"), text)
        yield Hostile(f"{number:,} columns of a flat object", parts, (status,), grows=OF_STRINGS)


_ZONE = "datetime64[ns, dateutil//etc/hostname]"


def digits() -> Iterator[Hostile]:
    text = document("[1000]", array_of(repr(float(MISREAD[0])), 1000))

    def is_same(body: bytes) -> bool:
        data = json.loads(body)["outputs"][0]["data"]
        return np.array(data, np.float64).astype("<f4").tobytes() == MISREAD.tobytes() * 1000

    yield Hostile("an FP32 that its fewest digits do not name", post("echo", text), (200,), is_right=is_same)


def tiny_inputs() -> Iterator[Hostile]:
    many = b",".join(document(name=f"{place}")[len(b'{"inputs":[') : -len(b"]}")] for place in range(49_999))
    text = b'{"inputs":[%s]}' % many
    # an answer has objects of its own, for as many bytes as the request
    yield Hostile("49,999 inputs that come back", post("echo", text), (200,), sized=2 * len(text))
    yield Hostile("49,999 inputs that are taken", post("many", text), (200,), sized=len(text))


def small_items() -> Iterator[Hostile]:
    items = b"{}," * (MAX_BODY_BYTES // 8)
    for what, path, text in (
        ("inputs", "models/any/infer", b'{"inputs":[%b{}]}' % items),
        ("items of a flat object's list", "models/any/generate", b'{"x":[%b{}]}' % items),
        ("members of a flat object", "models/any/generate", b'{"x":1%b}' % (b',"a":1' * (MAX_BODY_BYTES // 16))),
        ("members of a request for the index", "repository/index", b'{"a":1%b}' % (b',"a":1' * (MAX_BODY_BYTES // 16))),
    ):
        body = compressed(text)
        parts = (head_of(path, f"Content-Length: {len(body)}", GZIP), body)
        yield Hostile(f"millions of {what}", parts, sized=len(text))
    # two lists and a number each, of 100,000 values at most
    for what, elements, status in (("the most numbers", 33_000, 200), ("too many numbers", 100_001, 400)):
        text = b'{"x":%b}' % array_of("[[1]]", elements).encode()
        body = compressed(text)
        parts = (head_of("models/any/generate", f"Content-Length: {len(body)}", GZIP), body)
        yield Hostile(f"{what} of a flat object in [[1]]", parts, (status,), sized=len(text))


def empty_tensors() -> Iterator[Hostile]:
    asked = ',"outputs":[{"name":"x","parameters":{"classification":1}}]'
    for shape in ("[100000000,0]", "[2000000000,0]", "[0,2000000000]"):
        yield Hostile(f"classification of {shape}", post("echo", document(shape, "[]", more=asked)))
        yield Hostile(f"the rows of {shape} as JSON", post("records", document(shape, "[]")))
    yield Hostile("classification of the longest empty tensor", post("echo", document("[1000000,0]", "[]", more=asked)), (200,))


def documents() -> Iterator[Hostile]:
    asked = (b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n",)
    yield Hostile("the host's document of 200 models", asked, (200,), times=4, sized=2**20)


def numbers_of_rows() -> Iterator[Hostile]:
    requests = [b"".join(post("rows", document(f"[{rows},0]", "[]"))) for rows in range(10_000, 10_500)]

    def is_bounded(body: bytes) -> bool:
        [stats] = json.loads(body)["model_stats"]
        return stats["inference_count"] >= sum(range(10_000, 10_500)) and len(stats["batch_stats"]) == 1

    asked = b"GET /v2/models/rows/stats HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield Hostile("statistics after 500 numbers of rows", (asked,), (200,), is_right=is_bounded, before=tuple(requests))


def points() -> list[Hostile]:
    """All rows of this file."""
    made = (slow_numbers, nested_arrays, conversions, unread, answers, binary_strings, frames, digits, tiny_inputs, small_items)
    return [row for make in (*made, empty_tensors, documents, numbers_of_rows) for row in make()]
