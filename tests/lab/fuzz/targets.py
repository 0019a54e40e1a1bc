"""What is fuzzed: functions of bytes that raise where the package does what it never may.

That is: an exception that is not its own, an answer that is neither 200 nor 4xx, or more time than the size of the input explains.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceResponse, InferenceServer, TensorSpec
from tests.support.inside import answer_http, decode_request, decode_request_closely, encode_response, read_in_pieces
from tests.support.inside.grpc import encode_bytes_head, split_field
from tests.support.inside.rest import from_json, to_json
from tests.support.inside.values import DTYPES, Array, Body, Coding, from_bytes, read_coding, to_bytes
from tests.table.rows import rows

SECONDS: Final = 1.0
SECONDS_PER_BYTE: Final = 1e-4
"""Of the process's own time. The slowest byte known costs less than a microsecond without the fuzzer's tracing."""

LIMIT: Final = 2**20

FIELD: Final = 7
"""The bytes field that is taken off messages, as `raw_input_contents` is."""


def _server() -> InferenceServer:
    server = InferenceServer("fuzzed", "1", max_body_bytes=LIMIT)
    server.register("echo", lambda **inputs: inputs)
    x, n = TensorSpec("x", "FP32", [-1, 2]), TensorSpec("n", "INT64", [1])
    server.register(
        "two", lambda x, n: {"m": n, "y": x}, inputs=[x, n], outputs=[TensorSpec("y", "FP32", [-1, 2]), TensorSpec("m", "INT64", [1])]
    )
    server.register("one", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])], version="1")
    server.register("raw-bytes", lambda x: x, inputs=[TensorSpec("x", "BYTES", [-1])])
    server.register("org/model", lambda x=np.zeros(1): x)
    return server


SERVER: Final = _server()


def exchange(data: bytes) -> None:
    """A whole request, written as in HTTP: request line, headers, an empty line, body."""
    text, _, body = data.partition(b"\r\n\r\n")
    first, *lines = text.split(b"\r\n")
    method, _, path = first.decode("latin-1").partition(" ")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    response = answer_http(SERVER, method, path, headers, body)
    # a request may ask for a timeout of microseconds, and has its wish
    assert response.status == 200 or 400 <= response.status < 500 or (response.status == 504 and b"timeout" in data), response
    content = b"".join(response.parts)
    assert dict(response.headers)[b"content-length"] == b"%d" % len(content) or method == "HEAD"
    for name, value in response.headers:
        assert not {10, 13, 0} & {*name, *value}, response.headers
    if response.status != 200 and method != "HEAD":
        assert list(json.loads(content)) == ["error"]
        assert b"Traceback" not in content


def document(data: bytes) -> None:
    """A body with its JSON's length in the first two bytes, read quickly and closely; and its own inputs as the answer."""
    length, body = int.from_bytes(data[:2], "big") or None, data[2:]
    request = decode_request(body, length)
    try:
        whole = decode_request_closely(body, length)
    except InferenceError as error:
        raise AssertionError("only the quick way takes it") from error
    assert repr([request.id, request.parameters, [(output.name, output.parameters) for output in request.outputs]]) == repr(
        [whole.id, whole.parameters, [(output.name, output.parameters) for output in whole.outputs]]
    )
    for tensor, other in zip(request.inputs, whole.inputs, strict=True):
        assert (tensor.name, tensor.datatype, tensor.shape) == (other.name, other.datatype, other.shape)
        assert_same(tensor.array, other.array)
    for binary in (True, False):
        request.parameters = {"binary_data_output": binary}
        text, _ = encode_response(InferenceResponse(request.inputs), request)
        json.loads(text, parse_constant=_refuse_constant)


def assert_same(array: Array, other: Array) -> None:
    """Two arrays are equal bit for bit, but for which NaN it is."""
    assert (array.dtype, array.shape) == (other.dtype, other.shape)
    if array.dtype.kind == "f":
        is_nan = np.isnan(array)
        assert np.array_equal(is_nan, np.isnan(other))
        array, other = np.where(is_nan, 0, array), np.where(is_nan, 0, other)
    assert to_bytes(array) == to_bytes(other)


def _refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def _tensor(data: bytes) -> tuple[Any, tuple[int, ...], bytes]:
    """A datatype, a shape of at most six dimensions, and the rest."""
    kind, rank, *_ = [*data[:2], 0, 0]
    rank %= 7
    return list(DTYPES.values())[kind % len(DTYPES)], tuple(data[2 : 2 + rank]), data[2 + rank :]


def json_data(data: bytes) -> None:
    """The text of `data`, as one text and in chunks of a few bytes, against what Python's json makes of it; and the way back.

    What is no JSON is for `document`: here a decoder has found it in one.
    """
    dtype, shape, text = _tensor(data)
    try:
        json.loads(text.decode())
    except (ValueError, RecursionError):
        return
    try:
        expected = by_python(text, dtype, shape)
    except InvalidOperation:  # Python's decimals have no such exponent
        return
    except (ValueError, TypeError, OverflowError, RecursionError):
        expected = None
    for chunk in (8, 50, 2**16):
        with pytest.MonkeyPatch.context() as patch:
            if chunk < 2**16:
                read_in_pieces(patch, chunk)
            if expected is not None:
                array = from_json(text, dtype, shape)
                assert_same(array, expected)
                assert_same(from_json(to_json(array), dtype, shape), array)
                continue
            try:
                from_json(text, dtype, shape)
            except InferenceError:
                continue
            raise AssertionError(f"taken in chunks of {chunk}")


def by_python(text: bytes, dtype: Any, shape: tuple[int, ...]) -> Array:
    """What `data` means, by Python's json and nothing clever. Raises something of Python's where it means nothing."""
    value = json.loads(text.decode(), parse_float=Decimal)
    if type(value) is not list:
        if shape:
            raise ValueError("no array")
        flat = [value]
    elif value and type(value[0]) is list:
        flat = _flat(value, shape)
    else:
        flat = value
    if len(flat) != math.prod(shape):
        raise ValueError("another number of elements")
    array = np.empty(len(flat), dtype)
    for place, element in enumerate(flat):
        array[place] = _element(element, dtype)
    return array.reshape(shape)


def _flat(value: Any, shape: tuple[int, ...]) -> list[Any]:
    if not shape:
        return [value]
    if type(value) is not list or len(value) != shape[0]:
        raise ValueError("another form")
    return [element for item in value for element in _flat(item, shape[1:])]


def _element(element: Any, dtype: Any) -> Any:
    if type(element) is list or type(element) is dict:
        raise TypeError
    if dtype.kind == "O":
        return str.encode(element)
    if dtype.kind == "b":
        if type(element) is bool or (type(element) is int and element in (0, 1)):
            return bool(element)
        raise TypeError
    if dtype.kind == "f":
        return _float(element, dtype)
    if type(element) is Decimal and (float(element) % 1 or abs(element) >= 2**53):
        raise TypeError
    if type(element) not in (int, Decimal):
        raise TypeError
    limits = np.iinfo(dtype)
    if not limits.min <= element <= limits.max:
        raise OverflowError
    return int(element)


def _float(element: Any, dtype: Any) -> Any:
    if element is None or element in ("NaN", "Infinity", "-Infinity"):
        return float(element or "nan")
    if type(element) is float:  # one of Python's literals
        return element
    if type(element) not in (int, Decimal):
        raise TypeError
    with np.errstate(all="ignore"):
        number = np.float64(float(element)).astype(dtype)
    if np.isinf(number):
        raise OverflowError
    return number


def raw(data: bytes) -> None:
    """Binary data, and the way back."""
    dtype, shape, text = _tensor(data)
    assert to_bytes(from_bytes(text, dtype, shape)) == text


def coding(data: bytes) -> None:
    """A compressed body, and the headers that name codings."""
    names: tuple[Coding, ...] = ("gzip", "deflate")
    for name in names:
        try:
            body = Body(None, LIMIT, name)
            for start in range(0, len(data), 100):
                body.feed(data[start : start + 100])
            body.finish()
        except InferenceError:
            continue
    read_coding(data.decode("latin-1"))


def message(data: bytes) -> None:
    """A serialized protobuf message, and what is left of it without a bytes field."""
    kept, taken = split_field(data, FIELD)
    if not taken:
        return  # it comes back whole, or there was none
    again = b"".join([kept, *(part for value in taken for part in (encode_bytes_head(FIELD, len(value)), value))])
    assert split_field(again, FIELD) == (kept, taken)


TARGETS: Final = MappingProxyType(
    {"exchange": exchange, "document": document, "json_data": json_data, "raw": raw, "coding": coding, "message": message},
)


def checked(target: Callable[[bytes], None], data: bytes) -> None:
    """Run a target, with the package's own errors allowed, and look at the clock."""
    began = time.process_time()
    try:
        target(data)
    except InferenceError as error:
        if error.status >= 500:
            raise
    seconds = time.process_time() - began
    assert seconds < SECONDS + SECONDS_PER_BYTE * len(data), f"{seconds:.2f} seconds for {len(data)} bytes"


def seeds(name: str) -> Iterator[bytes]:
    """Inputs to begin with, from the table of requests."""
    for row in rows():
        request = row.request
        if name == "exchange":
            lines = [f"{request.method} {request.path}", *(f"{key}: {value}" for key, value in request.all_headers())]
            yield "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + request.body
        elif name == "document" and request.body:
            length = dict(request.headers).get("inference-header-content-length", "0")
            yield (int(length) if length.isascii() and length.isdigit() and int(length) < 2**16 else 0).to_bytes(2, "big") + request.body
        elif name == "coding" and "content-encoding" in dict(request.headers):
            yield request.body
    if name == "message":
        for fields in ([b"\x0a\x01m"], [b"\x0a\x01m", b"\x3a\x04abcd"], [b"\x3a\x00"] * 3, [b"\x08\x96\x01", b"\x3a\x02ab", b"\x0d1234"]):
            for more in ([], [b"\x3a\x80\x01" + bytes(128)], [b"\x11" + bytes(8)]):
                yield b"".join([*fields, *more])
    if name in ("json_data", "raw"):
        for kind in range(len(DTYPES)):
            for text in (b"[1,2]", b"[[1],[2]]", b'["a","b"]', b"[true,0]", b"[null,1e3]", b'["NaN","-Infinity"]', bytes(16), b"\1\0\0\0a"):
                yield bytes([kind, 1, 2]) + text
                yield bytes([kind, 2, 2, 1]) + text
            for text in (b"[[[1]],[[0]]]", b'[ [["a"] ],[ ["\\"]" ]]]', b"[[[1,0]],[[0,1]]]", b"[[],[]]", b"[1e300,NaN]", b"[1.0,1e18]"):
                yield bytes([kind, 3, 2, 1, 1]) + text
                yield bytes([kind, 3, 2, 1, 2]) + text
                yield bytes([kind, 2, 2, 0]) + text
