"""Requests to the models of `triton_models`, good and bad: those of the table, and more that are made from the specification by rule.

What a request deserves is decided here, by the specification and by what the guide promises where that is silent; not by what came out.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from tests.lab.peers.triton_models import DATATYPES, models
from tests.support.grpc_ways import made
from tests.support.inside.values import dtype_of
from tests.support.ways import Request
from tests.table import json_rows
from tests.table.row import ECHOED, GOOD, Row, answer, framed, infer, inputs, tensor
from tests.table.rows import rows
from tests.table.test_grpc import NoCounterpart, fill_parameters, translated
from tests.table.vectors import VECTORS

LENGTH: Final = "inference-header-content-length"

# The table


def table_rows() -> Iterator[Row]:
    """The rows of the table that a server with these models answers as the table says."""
    for row in rows():
        model = re.match(r"/models/([^/?]+)", row.request.path)
        name = None if model is None else model[1]
        # other rows are about models, or what they declare, that are not here
        is_of_repository = row.request.path.startswith("/repository/models/")
        is_unsigned = f'"a":{2**64 - 1}' in row.name  # which `remote` does not pass on
        if row.status >= 500 or is_of_repository or is_unsigned or row.name.startswith(("classification: labels", "raw request echo")):
            continue
        is_here = name in models()
        if name == "echo":
            yield from _name_by_datatype(row)
        elif row.status == 404 or (row.status != 200 and (is_here or name is None)) or (is_here and row.request.path.endswith("/infer")):
            yield row


def _name_by_datatype(row: Row) -> Iterator[Row]:
    """The row with the model for the datatype of its input; nothing if it is good and there is no such model."""
    found = re.search(rb'"datatype": ?"(\w+)"', row.request.body)
    datatype = found[1].decode() if found else "FP32"
    shapes = re.findall(rb'"shape":(\[[^]]*\])', row.request.body)
    if row.status == 200 and (datatype not in DATATYPES or [len(json.loads(shape)) for shape in shapes] != [1]):
        return
    name = f"echo-{datatype if datatype in DATATYPES else 'FP32'}"
    request = replace(row.request, path=row.request.path.replace("/echo", f"/{name}", 1))
    body = row.body.replace(b'"model_name":"echo"', f'"model_name":"{name}"'.encode(), 1)
    longer = len(body) - len(row.body)
    headers = tuple((key, str(int(value) + longer) if key == LENGTH else value) for key, value in row.headers)
    yield replace(row, request=request, body=body, headers=headers)


# Documents: each field with each wrong value


def _document() -> dict[str, Any]:
    return {
        "id": "7",
        "parameters": {"p": 1},
        "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters": {"p": 1}, "data": [1, 2]},
            {"name": "n", "shape": [1], "datatype": "INT64", "parameters": {"p": 1}, "data": [7]},
        ],
        "outputs": [{"name": "y", "parameters": {"p": 1}}, {"name": "m"}],
    }


_LITERALS: Final = ("null true 0 -1 1.5 1e30 1e400 " + "1" * 40 + ' NaN "" "text" [] [null] [[1]] {} {"a":1}').split(" ")
_TEXT, _OBJECT = {"null", '""', '"text"'}, {"null", "{}", '{"a":1}'}
_SCALAR: Final = {"true", "0", "-1", "1.5", "1e30", '""', '"text"'}
_TAKEN: Final[dict[str, set[str]]] = {
    "id": _TEXT,
    "parameters": _OBJECT,
    "parameters/p": _SCALAR,
    "inputs/0/parameters": _OBJECT,
    "inputs/1/parameters": _OBJECT,
    "inputs/0/parameters/p": _SCALAR,
    "inputs/0/data/0": {"null", "0", "-1", "1.5", "1e30", "NaN"},
    "inputs/1/data/0": {"0", "-1"},
    "outputs": {"null", "[]"},
    "outputs/0/parameters": _OBJECT,
    "outputs/0/parameters/p": _SCALAR,
    "inputs": set(),
    **{f"inputs/{place}": set() for place in range(2)},
    **{f"inputs/{place}/{field}": set() for place in range(2) for field in ("name", "shape", "shape/0", "datatype", "data")},
    "inputs/0/shape/1": set(),
    "outputs/0": set(),
    "outputs/0/name": set(),
}
"""What each field may be, of the values above; nothing else is the specification's type of that field, or fits the others."""

_OPTIONAL: Final = {"id", "parameters", "outputs"}


def document_rows() -> Iterator[Row]:
    for path, taken in _TAKEN.items():
        for literal in _LITERALS:
            if literal == "1" * 40 and path.endswith("/p"):
                continue  # a number that no parameter of gRPC holds: see parameter_rows
            body = _write(path, literal)
            name = f"{path} is {literal[:20]}"
            is_taken = literal in taken
            yield Row(name, infer("two", body), 200 if is_taken else 400, _answer_of_two(path, literal) if is_taken else b"")
        field = path.rpartition("/")[2]
        if not field.isdigit() and field != "p":
            status = 200 if field in _OPTIONAL else 400
            body = _answer_of_two(path, "null") if status == 200 else b""
            yield Row(f"{path} is left out", infer("two", _write(path, None)), status, body)


def _write(path: str, literal: str | None) -> bytes:
    document = _document()
    *parents, last = path.split("/")
    place: Any = document
    for name in parents:
        place = place[int(name) if isinstance(place, list) else name]
    if literal is None:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = "\ue000"
    return json.dumps(document, separators=(",", ":")).replace('"\\ue000"', literal or "").encode()


def _answer_of_two(path: str, literal: str) -> bytes:
    x = {"null": "null", "NaN": "null", "0": "0.0", "-1": "-1.0", "1e30": "1.0000000150474662e30"}.get(literal, literal)
    y = tensor("FP32", [1, 2], f"[{x if path == 'inputs/0/data/0' else '1.0'},2.0]", "y")
    m = tensor("INT64", [1], f"[{literal if path == 'inputs/1/data/0' else '7'}]", "m")
    identifier = literal if path == "id" else '"7"'
    return answer("two", y, m, more="" if identifier == "null" else f',"id":{identifier}')


def broken_rows() -> Iterator[Row]:
    """A good body cut anywhere, without any one of its marks, or with a byte that cannot be there."""
    body = inputs(GOOD, more=',"id":"7","outputs":[{"name":"y"}]')
    for place in range(0, len(body), 3):
        yield Row(f"cut behind {place}", infer("one", body[:place]), 400)
    for place, mark in enumerate(body):
        if chr(mark) in '{}[],:"':
            yield Row(f"without the mark at {place}", infer("one", body[:place] + body[place + 1 :]), 400)
    for place in range(1, len(body), 7):
        for byte in (b"\0", b"\x1f", b"\x80", b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"):
            yield Row(f"with {byte!r} at {place}", infer("one", body[:place] + byte + body[place:]), 400)
    for depth in (101, 500, 10_000 // 2):
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            nested = (opening * depth + "1" + closing * depth)[:18_000]
            for field in ("id", "parameters", "outputs", "unknown"):
                yield Row(f"{field} of {opening} {depth} deep", infer("one", inputs(GOOD, more=f',"{field}":{nested}')), 400)
            yield Row(f"data of {opening} {depth} deep", infer("one", inputs(tensor("FP32", [1], nested))), 400)


# Parameters that mean something

_INTEGERS: Final = ("0", "1", str(2**31), str(2**53 + 1), str(2**63 - 1))
_UNSIGNED: Final = (str(2**63), str(2**64 - 1))
_NO_INTEGERS: Final = ("-1", "1.5", "1e3", "true", '"1"', "[1]", "{}")
_FLAGS: Final = ("true", "false")
_NO_FLAGS: Final = ("1", "0", '"true"', "1.5", "[]", "{}")


def parameter_rows() -> Iterator[Row]:
    """Parameters with a meaning, and those without one."""

    def of_request(name: str, value: str) -> bytes:
        return inputs(GOOD, more=f',"parameters":{{{json.dumps(name)}:{value}}}')

    def of_input(name: str, value: str) -> bytes:
        return inputs(tensor("FP32", [2], "[1,2]", parameters=f"{{{json.dumps(name)}:{value}}}"))

    def of_output(name: str, value: str) -> bytes:
        return inputs(GOOD, more=f',"outputs":[{{"name":"y","parameters":{{{json.dumps(name)}:{value}}}}}]')

    good = answer("one", tensor("FP32", [2], "[1.0,2.0]", "y"))
    large = tuple(str(10**power) for power in (20, 30))
    for name, write, taken, refused in (
        ("timeout", of_request, ("0", str(10**9), *_INTEGERS[2:], *_UNSIGNED), (*_NO_INTEGERS, *large)),
        ("priority", of_request, (*_INTEGERS, *_UNSIGNED), (*_NO_INTEGERS, *large)),
        ("sequence_id", of_request, (*_INTEGERS, *_UNSIGNED, '"a"'), ("-1", "1.5", "true", "[1]", *large)),
        ("sequence_start", of_request, _FLAGS, _NO_FLAGS),
        ("sequence_end", of_request, _FLAGS, _NO_FLAGS),
        ("triton_enable_empty_final_response", of_request, _FLAGS, _NO_FLAGS),
        ("triton_unknown", of_request, (), ("1", '"a"')),
        ("shared_memory_region", of_request, (), ('"r"', "1")),
        ("binary_data_output", of_request, ("false",), _NO_FLAGS),
        ("binary_data", of_output, ("false",), _NO_FLAGS),
        ("classification", of_output, ("0",), _NO_INTEGERS),
        ("shared_memory_region", of_output, (), ('"r"', "1")),
        ("shared_memory_byte_size", of_output, (), ("8",)),
        ("shared_memory_region", of_input, (), ('"r"', "1")),
        ("shared_memory_offset", of_input, (), ("8",)),
        ("classification", of_input, (), ("1",)),
        ("content_type", of_input, (), ("1", '"none such"', "true")),
        ("content_type", of_output, (), ("1", '"none such"', "true")),
        ("content_type", of_request, (), ("1", '"none such"', "true")),
        ("binary_data_size", of_input, (), ("0", "8", "-1", "1.5", '"8"', "true", *large)),  # beside data
    ):
        for value in taken:
            yield Row(f"{write.__name__} {name} is {value}", infer("one", write(name, value)), 200, good)
        for value in refused:
            yield Row(f"{write.__name__} {name} is not {value}", infer("one", write(name, value)), 400)
    for write in (of_request, of_input, of_output):
        for value in ("0", "-1", str(2**63 - 1), str(-(2**63)), "1.5", "-0.0", "1e300", '"é\\n\\""', '""', "false"):
            yield Row(f"{write.__name__} any parameter is {value}", infer("one", write("p", value)), 200, good)
        for name in ("", "é", '"', "\n", "x" * 5000, "binary", "headers", "id"):
            yield Row(f"{write.__name__} a parameter is called {name!r:.20}", infer("one", write(name, "1")), 200, good)
        # right by the specification, but Triton's model would get something else; an output's parameters do not go there
        status, body = (200, good) if write is of_output else (400, b"")
        for value in (*_UNSIGNED, '"a\\u0000b"'):
            yield Row(f"{write.__name__} any parameter is {value}", infer("one", write("p", value)), status, body)
        for value in (*large, str(-(2**63) - 1), str(-(10**30))):  # more than 64 bits
            yield Row(f"{write.__name__} any parameter is {value}", infer("one", write("p", value)), 400)
        yield Row(f"{write.__name__} a parameter is called a NUL b", infer("one", write("a\0b", "1")), status, body)


# Binary data, compression, headers


def make_zeros_row(model: str) -> Row:
    """A good request to a model, which is answered as long as the model's process lives."""
    written: dict[int, list[str]] = {1: [], 2: []}
    data = {1: b"", 2: b""}
    for place in written:  # of the inputs and of the outputs
        for each in models()[model][place].split(";"):
            name, datatype, dims, *_ = each.split(" ")
            shape = [max(1, int(size)) for size in dims.split(",")]
            content = bytes(math.prod(shape) * (4 if datatype == "BYTES" else dtype_of(datatype).itemsize))
            written[place].append(tensor(datatype, shape, None, name, f'{{"binary_data_size":{len(content)}}}'))
            data[place] += content
    text = answer(model, *written[2])
    request = framed(model, inputs(*written[1], more=',"parameters":{"binary_data_output":true}'), data[1])
    return Row(f"zeros to {model}", request, 200, text + data[2], headers=((LENGTH, str(len(text))),))


def binary_rows() -> Iterator[Row]:
    text, data = inputs(tensor("FP32", [2], None, parameters='{"binary_data_size":8}')), np.array([1, 2], "<f4").tobytes()
    good = answer("echo-FP32", ECHOED)
    yield Row("binary data", framed("echo-FP32", text, data), 200, good)
    for size in range(8):
        yield Row(f"binary data cut behind {size}", framed("echo-FP32", text, data[:size]), 400)
    for more in (1, 4, 8, 100):
        yield Row(f"{more} bytes behind binary data", framed("echo-FP32", text, data + bytes(more)), 400)
    for size in (*range(8), *range(9, 13), 2**31, 2**32 + 8, 2**63 - 1, 2**64 + 8, -8):
        for sent in (data, bytes(max(0, min(size, 16)))):
            wrong = text.replace(b":8}", b":%d}" % size)
            yield Row(f"binary_data_size {size} with {len(sent)} bytes", framed("echo-FP32", wrong, sent), 400)
    for off in (-50, -2, -1, 1, 2, 7):
        header = (LENGTH, str(len(text) + off))
        yield Row(f"header off by {off}", infer("echo-FP32", text + data, header), 400)
    yield Row("no header", infer("echo-FP32", text + data), 400)
    raw = (LENGTH, "0")
    for size in (1, 2, 3, 5, 7, 9):
        yield Row(f"raw request of {size} bytes", infer("echo-FP32", bytes(size), raw), 400)
    elements = b"\1\0\0\0a" + b"\2\0\0\0bc"
    strings = inputs(tensor("BYTES", [2], None, parameters=f'{{"binary_data_size":{len(elements)}}}'))
    yield Row("binary BYTES", framed("echo-BYTES", strings, elements), 200, answer("echo-BYTES", tensor("BYTES", [2], '["a","bc"]')))
    for place in (*range(4), *range(5, 9)):
        for value in {0, 1, 2, 3, 6, 127, 255} - {elements[place]}:
            broken = elements[:place] + bytes([value]) + elements[place + 1 :]
            yield Row(f"binary BYTES with {value} at {place}", framed("echo-BYTES", strings, broken), 400)
    not_utf8 = elements[:-2] + b"\xff\xfe"
    yield Row("BYTES that are not UTF-8, out as JSON", framed("echo-BYTES", strings, not_utf8), 400)
    asked = strings[:-1] + b',"parameters":{"binary_data_output":true}}'
    head = answer("echo-BYTES", tensor("BYTES", [2], None, parameters='{"binary_data_size":11}'))
    yield Row("BYTES that are not UTF-8, out as binary", framed("echo-BYTES", asked, not_utf8), 200, head + not_utf8)


def shape_rows() -> Iterator[Row]:
    """Shapes that are negative, huge, or overflow when they are multiplied, with each form of data."""
    for shape in (
        *([size] for size in (-1, -2, -(2**31), -(2**63), -(2**63) - 1, -(10**30), 0, 1, 3, 2**31 - 1, 2**31, 2**32, 2**32 + 2, 2**40)),
        *([size] for size in (2**61, 2**62, 2**62 + 2, 2**63 - 1, 2**63, 2**64 - 3, 2**64, 2**64 + 2, 10**30)),
        *([2**31, 2**31], [2**32, 2**32], [2**33, 2**31], [-1, -2], [-2, -1], [0, 2**62], [2**62, 0], [1, 2, 1], [2] * 40, [1] * 70),
    ):
        for datatype, data in (("FP32", "[1,2]"), ("INT8", "[1,2]"), ("BYTES", '["a","b"]')):
            model = f"echo-{datatype}"
            if shape != [1, 2, 1]:
                yield Row(f"shape {shape!s:.60} {datatype}", infer(model, inputs(tensor(datatype, shape, data))), 400)
            if math.prod(shape):
                yield Row(f"shape {shape!s:.60} {datatype}, no elements", infer(model, inputs(tensor(datatype, shape, "[]"))), 400)
            raw = {"FP32": bytes(8), "INT8": bytes(2), "BYTES": bytes(8)}[datatype]
            sized = tensor(datatype, shape, None, parameters=f'{{"binary_data_size":{len(raw)}}}')
            yield Row(f"shape {shape!s:.60} {datatype}, binary", framed(model, inputs(sized), raw), 400)
    empty = inputs(tensor("FP32", [0], "[]"))
    yield Row("an empty tensor", infer("one", empty), 200, answer("one", tensor("FP32", [0], "[]", "y")))


def compressed_rows() -> Iterator[Row]:
    body = inputs(GOOD)
    packed = gzip.compress(body, mtime=0)
    coding = ("content-encoding", "gzip")
    for place in range(10, len(packed), 2):
        yield Row(f"gzip with a flipped byte at {place}", infer("one", _flip(packed, place), coding), 400)
    for place in range(0, len(packed), 4):
        yield Row(f"gzip cut behind {place}", infer("one", packed[:place], coding), 400)


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


def http_rows() -> Iterator[Row]:
    good = answer("one", tensor("FP32", [2], "[1.0,2.0]", "y"))
    body = inputs(GOOD)
    for name, value in (
        ("accept-encoding", "gzip;q=1e999"),
        ("accept-encoding", "gzip;q=abc"),
        ("accept", "text/html"),
        ("authorization", "Bearer " + "a" * 4000),
        ("traceparent", "no trace"),
        ("content-type", "application/json; charset=utf-16"),
        ("x-anything", '"\\,;='),
        ("expect", "nothing"),
    ):
        yield Row(f"header {name}: {value[:20]}", infer("one", body, (name, value)), 200, good)
    for name in ("authorization", "traceparent"):
        for size in (7000, 9000, 20_000):
            yield Row(f"header {name} of {size} bytes", infer("one", body, (name, "a" * size)), 400)
    for path in ("%", "%zz", "%C0%AF", "..", "..%2Fone", "one%00", "one%20", "%20one", "%2e%2e", "one%2Finfer", "x" * 4000, "*", "one;v=1"):
        yield Row(f"model {path[:20]}", infer(path, body), 404)
    for version in ("2", "0", "-1", "01", "1.0", "v1", "%31%00", str(2**64 + 1), "latest", "x" * 4000):
        yield Row(f"version {version[:20]}", infer(f"one/versions/{version}", body), 404)
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "infer"):
        yield Row(f"{method} of infer", Request(method, "/models/one/infer", (), body if method in ("PUT", "PATCH") else b""), 405)
    for path in ("/models/one/INFER", "/models/one/infer/x", "/models//infer", "/models/one//infer", "/repository/models/one/infer"):
        yield Row(f"POST {path}", Request("POST", path, (), body), 404)


@cache
def http_corpus() -> list[Row]:
    """All requests over HTTP, each once."""
    parts = (document_rows, broken_rows, parameter_rows, binary_rows, shape_rows, compressed_rows, http_rows)
    made_ = [*table_rows(), *map(make_zeros_row, models()), *chain.from_iterable(part() for part in parts)]
    # what a body's length is said to be is up to the HTTP server
    sent = [row for row in made_ if "content-length" not in dict(row.request.headers)]
    by_request = {(row.request.method, row.request.path, tuple(row.request.headers), row.request.body): row for row in reversed(sent)}
    return list(by_request.values())


# gRPC


class Call(NamedTuple):
    """A call of gRPC: `code` is what it deserves; `answer` are the bytes of the outputs by name, if it is good."""

    name: str
    method: str
    content: bytes
    code: str = "OK"
    answer: Mapping[str, bytes] = MappingProxyType({})


_REFUSED: Final = "INVALID_ARGUMENT"
_CONTENTS: Final = {
    **{f"INT{bits}": "int_contents" for bits in (8, 16, 32)},
    **{f"UINT{bits}": "uint_contents" for bits in (8, 16, 32)},
    **{name: f"{name.lower()}_contents" for name in ("INT64", "UINT64", "BOOL", "FP32", "FP64", "BYTES")},
}
_ELEMENT: Final = {"bool_contents": True, "bytes_contents": b"a"}


def _message(datatype: str, shape: list[int], contents: dict[str, Any] | None = None, raw: Any = (), **fields: Any) -> Any:
    item: dict[str, Any] = {"name": "x", "datatype": datatype, "shape": shape, **fields}
    if contents is not None:
        item["contents"] = contents
    return made("ModelInferRequest", model_name=f"echo-{datatype}", inputs=[item], raw_input_contents=list(raw))


def table_calls() -> Iterator[Call]:
    """The bad rows of the table and of the documents that a message can say. Translated, some are good, as JSON's types are gone."""
    of_json = {row.name for row in json_rows.document_rows()}
    for row in (*table_rows(), *document_rows()):
        if row.name in of_json or row.name.startswith(("id is", "outputs is", "outputs/0/parameters/p is NaN")):
            continue
        try:
            method, message = translated(row.request)
        except NoCounterpart:
            continue
        code = {400: _REFUSED, 404: "NOT_FOUND"}.get(row.status)
        is_of_rest = "binary_data" in row.name or "path" in row.name
        if code and method == "ModelInfer" and not is_of_rest:
            yield Call(row.name, method, message.SerializeToString(), code)


def infer_calls() -> Iterator[Call]:
    def call(name: str, message: Any, code: str = _REFUSED, answer: Mapping[str, bytes] = MappingProxyType({})) -> Call:
        return Call(name, "ModelInfer", message.SerializeToString(), code, answer)

    for vector in VECTORS:
        if len(vector.shape) == 1 and vector.datatype in DATATYPES:
            shape, raw = list(vector.shape), vector.raw_bytes
            yield call(f"{vector} raw", _message(vector.datatype, shape, raw=[raw]), "OK", {"x": raw})
            if vector.datatype in _CONTENTS:
                contents = {_CONTENTS[vector.datatype]: vector.elements}
                yield call(f"{vector} as contents", _message(vector.datatype, shape, contents), "OK", {"x": raw})
                yield call(f"{vector} both", _message(vector.datatype, shape, contents, [raw]))
            for change in (raw[:-1], raw + b"\0", raw[:1]) if raw else (b"\0",):
                if change != raw:
                    yield call(f"{vector} raw of {len(change)}", _message(vector.datatype, shape, raw=[change]))
            yield call(f"{vector} raw twice", _message(vector.datatype, shape, raw=[raw, raw]))
            yield call(f"{vector} nothing", _message(vector.datatype, shape), _REFUSED if vector.elements else "OK", {"x": raw})
    for datatype, own in _CONTENTS.items():
        for field in dict.fromkeys(_CONTENTS.values()):
            if field != own:
                contents = {field: [_ELEMENT.get(field, 1)]}
                yield call(f"{datatype} in {field}", _message(datatype, [1], contents))
                both = {**contents, own: [_ELEMENT.get(own, 1)]}
                yield call(f"{datatype} in {field} too", _message(datatype, [1], both))
        for count in (0, 1, 3):
            yield call(f"{count} {datatype} for 2", _message(datatype, [2], {own: [_ELEMENT.get(own, 1)] * count}))
        if datatype[-2:] in ("T8", "16"):
            low, high = np.iinfo(datatype.lower()).min, np.iinfo(datatype.lower()).max
            for value in (high + 1, -high - 2, 2**31 - 1):
                if value >= 0 or low < 0:
                    yield call(f"{datatype} of {value}", _message(datatype, [1], {own: [value]}))
    for datatype in ("fp32", "FP", "", "FP128", "TYPE_FP32", "INT4", "FP64", "é"):
        item = {"name": "x", "datatype": datatype, "shape": [1], "contents": {"fp32_contents": [1]}}
        yield call(f"datatype {datatype!r}", made("ModelInferRequest", model_name="echo-FP32", inputs=[item]))
    sizes = [[size] for size in (-1, 0, 2, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1, -(2**63))]
    for shape in (*sizes, [2**32, 2**32], [-1, -1], [1] * 70, [0, 2**62]):
        forms: dict[str, Any] = {"contents": {"contents": {"fp32_contents": [1]}}, "raw": {"raw": [bytes(4)]}, "empty raw": {"raw": [b""]}}
        for name, fields in forms.items():
            if (shape, name) != ([0], "empty raw"):
                yield call(f"shape {shape!s:.40} {name}", _message("FP32", shape, **fields))
    yield from (call(name, message) for name, message in _other_messages())
    good = _message("FP32", [2], raw=[bytes(8)])
    for name in ("nobody", "", "echo-FP32/", "é\0"):
        good.model_name = name
        yield call(f"model {name!r}", good, "NOT_FOUND")
    good.model_name = "echo-FP32"
    for version in ("2", "01", "-1", "x", str(2**64 + 1)):
        good.model_version = version
        yield call(f"version {version}", good, "NOT_FOUND")


def _other_messages() -> Iterator[tuple[str, Any]]:
    message = _message("FP32", [1], raw=[bytes(4)])
    for name, value in (
        *(("timeout", value) for value in (-1, 1.5, True, "1")),
        *(("priority", value) for value in (-1, 1.5, True, "1")),
        *(("sequence_id", value) for value in (-1, 1.5, True)),
        *((flag, value) for flag in ("sequence_start", "sequence_end", "triton_enable_empty_final_response") for value in (1, "true", 0.5)),
        *(("p", value) for value in (math.nan, math.inf, "a\0b")),
        *(("triton_x", 1), ("a\0b", 1), ("shared_memory_region", "r"), ("content_type", "none such"), ("content_type", 1)),
    ):
        changed = made("ModelInferRequest")
        changed.CopyFrom(message)
        fill_parameters(changed.parameters, {name: value})
        yield f"parameter {name} is {value!r}", changed
    for where in ("request", "inputs", "outputs"):
        changed = made("ModelInferRequest")
        changed.CopyFrom(message)
        changed.outputs.add(name="x")
        (changed if where == "request" else getattr(changed, where)[0]).parameters["p"].SetInParent()
        yield f"a parameter of {where} without a value", changed
    asked: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
        ("unknown", [("z", {})]),
        ("empty", [("", {})]),
        ("twice", [("x", {}), ("x", {})]),
        *((f"classification {value!r}", [("x", {"classification": value})]) for value in (-1, 1.5, "1", True)),
        ("in a region", [("x", {"shared_memory_region": "r"})]),
    ]
    for name, outputs in asked:
        changed = made("ModelInferRequest")
        changed.CopyFrom(message)
        for output, parameters in outputs:
            fill_parameters(changed.outputs.add(name=output).parameters, parameters)
        yield f"outputs: {name}", changed
    x = {"name": "x", "datatype": "FP32", "shape": [1]}
    z, unnamed = {**x, "name": "z"}, {**x, "name": ""}
    for name, items in {"none": [], "twice": [x, x], "unknown": [z], "one too many": [x, z], "no name": [unnamed]}.items():
        yield f"inputs: {name}", made("ModelInferRequest", model_name="echo-FP32", inputs=items, raw_input_contents=[bytes(4)] * len(items))


def broken_calls() -> Iterator[Call]:
    good = _message("FP32", [2], raw=[bytes(8)])
    content = good.SerializeToString()
    for place in range(len(content)):
        code = "NOT_FOUND" if place == 0 else _REFUSED
        yield Call(f"a message cut behind {place}", "ModelInfer", content[:place], code)
    for name, wrong in (
        ("no protobuf", b"\xff" * 20),
        ("a group that never ends", b"\x0b"),
        ("a name that is not UTF-8", content.replace(b"echo-FP32", b"echo-FP\xff2")),
        ("a length beyond its end", b"\x0a\xff\xff\xff\xff\x0f"),
        ("a varint of eleven bytes", b"\xff" * 11),
        ("JSON", inputs(GOOD)),
    ):
        yield Call(name, "ModelInfer", wrong, _REFUSED)
    for method in ("ModelInfers", "Predict", ""):
        yield Call(f"method {method!r}", method, content, "UNIMPLEMENTED")
    for method in ("ModelMetadata", "ModelReady"):
        yield Call(f"{method} of nobody", method, made(f"{method}Request", name="nobody").SerializeToString(), "NOT_FOUND")


@cache
def grpc_corpus() -> list[Call]:
    """All calls, each once."""
    calls = [*table_calls(), *infer_calls(), *broken_calls()]
    return list({(call.method, call.content): call for call in reversed(calls)}.values())
