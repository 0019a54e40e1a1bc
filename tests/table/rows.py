"""The table of requests: each goes through every way in and must be answered alike, byte for byte.

A good row holds the exact body of its answer; a bad one its status and what the text must name.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oip_asgi import InferenceError, InferenceRequest, InferenceResponse, InferenceServer, Tensor, TensorSpec
from tests.support.ways import Request
from tests.table.vectors import VECTORS

MAX_BODY_BYTES = 20_000


@dataclass(frozen=True)
class Row:
    """A request, and what it is answered."""

    name: str
    request: Request
    status: int
    body: bytes = b""
    """The exact body, for rows that succeed."""
    text: tuple[str, ...] = ()
    """What the error's text must hold, for rows that do not."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers the answer must have beside its content type and length."""

    def __str__(self) -> str:
        return self.name


def table_server(calls: list[str]) -> InferenceServer:
    """The server that the table is asked of; every call of a model is noted in `calls`."""
    server = InferenceServer("table", "1.2.3", max_body_bytes=MAX_BODY_BYTES)

    @server.model("echo")
    def echo(**inputs: Any) -> Any:
        calls.append("echo")
        return inputs

    @server.model(
        "two",
        platform="sklearn",
        inputs=[TensorSpec("x", "FP32", [-1, 2]), TensorSpec("n", "INT64", [1])],
        outputs=[TensorSpec("y", "FP32", [-1, 2]), TensorSpec("m", "INT64", [1])],
    )
    async def two(x: Any, n: Any) -> Any:
        calls.append("two")
        return {"m": n, "y": x}

    @server.model("one", inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])], run="inline")
    def one(x: Any) -> Any:
        calls.append("one")
        return x

    server.register("raw-fixed", lambda x: x, inputs=[TensorSpec("x", "INT16", [2, 2])], outputs=[TensorSpec("y", "INT16", [2, 2])])
    server.register("raw-bytes", lambda x: x, inputs=[TensorSpec("x", "BYTES", [-1])], outputs=[TensorSpec("y", "BYTES", [-1])])
    server.register("raw-free", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, -1])])

    for version in ("1", "10", "9"):
        server.register("integers", lambda version=version: np.array([int(version)]), version=version)
    for version in ("2", "beta"):
        server.register("words", lambda version=version: np.array([version]), version=version)

    server.register("org/model", lambda x: x)
    server.register("naïve model", lambda x: x)
    server.register("no inputs", lambda: 1.5)
    server.register("optional", lambda x, bias=np.float32(0): x + bias)

    @server.model("whole")
    def whole(request: InferenceRequest) -> InferenceResponse:
        calls.append("whole")
        return InferenceResponse([Tensor("names", np.array([tensor.name for tensor in request.inputs]))], {"seen": True})

    @server.model("speaks")
    def speaks(x: Any) -> Any:
        raise InferenceError("the teapot is short and stout", status=418)

    @server.model("raises")
    def raises(x: Any) -> Any:
        raise RuntimeError("a secret")

    server.register("returns none", lambda x: None)
    server.register("not utf-8", lambda: np.array([b"\xff\xfe"], dtype=object))
    server.register("not finite", lambda: np.array([np.nan, np.inf, -np.inf, 1]))
    return server


def tensor(datatype: str, shape: Any, data: str | None, name: str = "x", parameters: str | None = None) -> str:
    """The JSON text of an input tensor."""
    fields = [f'"name":{json.dumps(name)},"shape":{json.dumps(shape, separators=(",", ":"))},"datatype":{json.dumps(datatype)}']
    if parameters is not None:
        fields.append(f'"parameters":{parameters}')
    if data is not None:
        fields.append(f'"data":{data}')
    return "{" + ",".join(fields) + "}"


def inputs(*tensors: str, more: str = "") -> bytes:
    """The JSON of a request."""
    return f'{{"inputs":[{",".join(tensors)}]{more}}}'.encode()


def infer(model: str, body: bytes, *headers: tuple[str, str]) -> Request:
    return Request("POST", f"/models/{model}/infer", headers, body)


def framed(model: str, text: bytes, data: bytes) -> Request:
    """A request with binary data behind its JSON."""
    return infer(model, text + data, ("inference-header-content-length", str(len(text))))


def answer(model: str, *outputs: str, more: str = "", version: str = "") -> bytes:
    """The exact JSON of an answer."""
    described = f',"model_version":"{version}"' if version else ""
    return f'{{"model_name":{json.dumps(model, ensure_ascii=False)},"outputs":[{",".join(outputs)}]{described}{more}}}'.encode()


FLOATS = ("FP16", "BF16", "FP32", "FP64")
INTEGERS = {f"{sign}INT{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 64)}
GOOD = tensor("FP32", [2], "[1,2]")
ECHOED = tensor("FP32", [2], "[1.0,2.0]")


def metadata_rows() -> Iterator[Row]:
    server = b'{"name":"table","version":"1.2.3","extensions":["binary_tensor_data"]}'
    names = ["echo", "two", "one", "raw-fixed", "raw-bytes", "raw-free", "integers", "words", "org/model", "naïve model", "no inputs"]
    names += ["optional", "whole", "speaks", "raises", "returns none", "not utf-8", "not finite"]
    models = json.dumps({"models": names}, ensure_ascii=False, separators=(",", ":")).encode()
    two = (
        b'{"name":"two","platform":"sklearn","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]},{"name":"n","datatype":"INT64","shape":[1]}],'
        b'"outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]},{"name":"m","datatype":"INT64","shape":[1]}]}'
    )
    empty = '{"name":"%s","platform":"python","inputs":[],"outputs":[]%s}'
    integers = (empty % ("integers", ',"versions":["1","10","9"]')).encode()
    answers = {
        "": server,
        "/health/live": b'{"live":true}',
        "/health/ready": b'{"ready":true,"live":true}',
        "/models": models,
        "/models/two": two,
        "/models/two/ready": b'{"name":"two","ready":true}',
        "/models/integers": integers,
        "/models/integers/versions/9": integers,
        "/models/integers/versions/9/ready": b'{"name":"integers","ready":true}',
        "/models/words": (empty % ("words", ',"versions":["2","beta"]')).encode(),
        "/models/org%2Fmodel": (empty % ("org/model", "")).encode(),
        "/models/org%2fmodel/ready": b'{"name":"org/model","ready":true}',
        "/models/org/model": (empty % ("org/model", "")).encode(),
        "/models/na%C3%AFve%20model": (empty % ("naïve model", "")).encode(),
        "/models/%65cho": (empty % ("echo", "")).encode(),
        "/models/echo?any=query": (empty % ("echo", "")).encode(),
    }
    for path, body in answers.items():
        yield Row(f"GET {path}", Request("GET", path), 200, body)
        if "?" not in path:
            yield Row(f"GET {path}/", Request("GET", path + "/"), 200, body)
        yield Row(f"HEAD {path}", Request("HEAD", path), 200, b"", headers=(("content-length", str(len(body))),))
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            yield Row(f"{method} {path}", Request(method, path), 405, text=(repr(method), "GET, HEAD"), headers=(("allow", "GET, HEAD"),))
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "GE"):
        yield Row(f"{method} infer", Request(method, "/models/echo/infer"), 405, text=(repr(method), "POST"), headers=(("allow", "POST"),))
    yield Row("HEAD infer", Request("HEAD", "/models/echo/infer"), 405, b"", headers=(("allow", "POST"),))


def path_rows() -> Iterator[Row]:
    for path in (
        "/health",
        "/health/",
        "/health/alive",
        "/health/live/now",
        "/model/echo",
        "/v2",
        "/x",
        "/Models",
        "/health/live//",
        "/../x",
    ):
        yield Row(f"unknown path {path}", Request("GET", path), 404, text=("unknown path", "/models/{name}"))
    for path in ("/models/echo/versions", "/models/echo/predict", "/models/echo/versions/1/ready/x", "/models/a/b/c"):
        yield Row(f"unknown path {path}", Request("GET", path), 404, text=("unknown path", path))
    yield Row("a long path of encoded segments", Request("GET", "/%61" * 15_000), 404, text=("unknown path", "30002 characters"))
    for path in ("/models/nope", "/models/nope/ready", "/models/ECHO", "/models/echo%20", "/models/%FF"):
        yield Row(f"unknown model {path}", Request("GET", path), 404, text=("unknown model",))
    yield Row("unknown model infer", infer("nope", inputs(GOOD)), 404, text=("unknown model 'nope'",))
    yield Row("unknown model, long name", Request("GET", "/models/" + "n" * 5000), 404, text=("unknown model", "5002 characters"))
    for version in ("3", "01", "v1", "1.0"):
        yield Row(
            f"unknown version {version}",
            Request("GET", f"/models/integers/versions/{version}"),
            404,
            text=(repr(version), "'1', '10', '9'"),
        )
    yield Row("a version of none", Request("GET", "/models/echo/versions/1/ready"), 404, text=("unknown version '1'", "it has none"))
    yield Row("unknown version infer", infer("integers/versions/3", inputs()), 404, text=("unknown version '3'",))


def version_rows() -> Iterator[Row]:
    for path, version in (("integers", "10"), ("integers/versions/1", "1"), ("integers/versions/9", "9")):
        output = tensor("INT64", [1], f"[{version}]", "output_0")
        yield Row(f"infer {path}", infer(path, inputs()), 200, answer("integers", output, version=version))
    for path, version in (("words", "beta"), ("words/versions/2", "2"), ("words/versions/beta", "beta")):
        output = tensor("BYTES", [1], f'["{version}"]', "output_0")
        yield Row(f"infer {path}", infer(path, inputs()), 200, answer("words", output, version=version))


def vector_rows() -> Iterator[Row]:
    """Every wire vector, as each JSON and as binary, answered as JSON and as binary."""
    for vector in VECTORS:
        shape = list(vector.shape)
        written = answer("echo", tensor(vector.datatype, shape, vector.written))
        for sent in (vector.written, *vector.sent, *filter(None, [vector.literal])):
            yield Row(f"{vector} sent as {sent}", infer("echo", inputs(tensor(vector.datatype, shape, sent))), 200, written)
        sized = tensor(vector.datatype, shape, None, parameters=f'{{"binary_data_size":{len(vector.raw_bytes)}}}')
        yield Row(f"{vector} binary in", framed("echo", inputs(sized), vector.raw_bytes), 200, written)
        text = answer("echo", sized)
        header = (("inference-header-content-length", str(len(text))), ("content-type", "application/octet-stream"))
        asked = inputs(tensor(vector.datatype, shape, vector.written), more=',"parameters":{"binary_data_output":true}')
        yield Row(f"{vector} binary out", infer("echo", asked), 200, text + vector.raw_bytes, headers=header)
        both = framed("echo", inputs(sized, more=',"outputs":[{"name":"x","parameters":{"binary_data":true}}]'), vector.raw_bytes)
        yield Row(f"{vector} binary in and out", both, 200, text + vector.raw_bytes, headers=header)


def good_rows() -> Iterator[Row]:
    echoed = answer("echo", ECHOED)
    yield Row("trailing slash", Request("POST", "/models/echo/infer/", (), inputs(GOOD)), 200, echoed)
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense"):
        yield Row(f"Content-Type {content_type}", infer("echo", inputs(GOOD), ("content-type", content_type)), 200, echoed)
    yield Row("Content-Encoding identity", infer("echo", inputs(GOOD), ("content-encoding", "identity")), 200, echoed)
    for value in ('"42"', '"\\"NaN,\\\\"', '""', '"é\\u0000\\n"', '"h\\u00e9\\u20ac"', '"\\ud83d\\ude00"'):
        more = f',"id":{value}'
        shown = json.dumps(json.loads(value), ensure_ascii=False)
        yield Row(f"id {value}", infer("echo", inputs(GOOD, more=more)), 200, answer("echo", ECHOED, more=f',"id":{shown}'))
    for more in (
        ',"id":null',
        ',"parameters":null',
        ',"outputs":null',
        ',"outputs":[]',
        ',"parameters":{}',
        ',"model_name":"other","model_version":"7"',
        ',"model_name":7',
        ',"unknown":{"a":[1,{"b":null}]}',
        ',"unknown":"[[{"',
        ',"unknown":"\\\\"',
        ',"parameters":{"a":"s","b":1,"c":1.5,"d":true}',
        ',"parameters":{"binary_data_output":false}',
        ',"unknown":' + "[" * 99 + "]" * 99,
        ',"unknown":["NaN",{"x":"-Infinity"}]',
        ',"unknown":"' + "[" * 200 + '"',
        ',"unknown":"\\"' + "[" * 200 + '"',
    ):
        yield Row(f"ignored {more[:40]}", infer("echo", inputs(GOOD, more=more)), 200, echoed)
    yield Row(
        "null data and parameters",
        infer("echo", inputs(tensor("FP32", [0], "null", parameters='{"binary_data_size":0}'))),
        200,
        answer("echo", tensor("FP32", [0], "[]")),
    )
    yield Row("unknown fields of a tensor", infer("echo", inputs(GOOD[:-1] + ',"unit":"m"}')), 200, echoed)
    yield Row("spaces around", infer("echo", b" \r\n\t" + inputs(GOOD) + b"\n "), 200, echoed)
    yield Row(
        "many brackets",
        infer("echo", inputs(tensor("INT8", [300, 1], json.dumps([[1]] * 300)), more=',"unknown":[]')),
        200,
        answer("echo", tensor("INT8", [300, 1], json.dumps([1] * 300, separators=(",", ":")))),
    )
    yield Row("no inputs", infer("no%20inputs", inputs()), 200, answer("no inputs", tensor("FP64", [1], "[1.5]", "output_0")))
    yield Row("encoded slash", infer("org%2Fmodel", inputs(GOOD)), 200, answer("org/model", tensor("FP32", [2], "[1.0,2.0]", "output_0")))
    yield Row(
        "optional input left out", infer("optional", inputs(GOOD)), 200, answer("optional", tensor("FP32", [2], "[1.0,2.0]", "output_0"))
    )
    biased = inputs(GOOD, tensor("FP32", [1], "[1]", "bias"))
    yield Row("optional input given", infer("optional", biased), 200, answer("optional", tensor("FP32", [2], "[2.0,3.0]", "output_0")))
    yield Row(
        "tensor parameters",
        infer("whole", inputs(tensor("FP32", [2], "[1,2]", parameters='{"unit":"m"}'))),
        200,
        answer("whole", tensor("BYTES", [1], '["x"]', "names"), more=',"parameters":{"seen":true}'),
    )
    yield Row(
        "header that counts all JSON", infer("echo", inputs(GOOD), ("inference-header-content-length", str(len(inputs(GOOD))))), 200, echoed
    )
    repeated = [("inference-header-content-length", str(len(inputs(GOOD))))] * 2
    yield Row("header repeated alike", infer("echo", inputs(GOOD), *repeated), 200, echoed)
    nonfinite = answer("not finite", tensor("FP64", [4], '[null,"Infinity","-Infinity",1.0]', "output_0"))
    yield Row("not finite", infer("not%20finite", inputs()), 200, nonfinite)
    yield Row("largest body", infer("echo", inputs(GOOD).ljust(MAX_BODY_BYTES)), 200, echoed)


X2, N1 = tensor("FP32", [1, 2], "[1,2]"), tensor("INT64", [1], "[7]", "n")
Y_OUT, M_OUT = tensor("FP32", [1, 2], "[1.0,2.0]", "y"), tensor("INT64", [1], "[7]", "m")


def output_rows() -> Iterator[Row]:
    def asked(*outputs: str, more: str = "") -> bytes:
        return inputs(X2, N1, more=f',"outputs":[{",".join(outputs)}]{more}')

    yield Row("outputs as declared", infer("two", inputs(N1, X2)), 200, answer("two", Y_OUT, M_OUT))
    yield Row("outputs in the order asked for", infer("two", asked('{"name":"m"}', '{"name":"y"}')), 200, answer("two", M_OUT, Y_OUT))
    yield Row("one output", infer("two", asked('{"name":"m","parameters":null}')), 200, answer("two", M_OUT))
    y_raw, m_raw = bytes.fromhex("0000803f00000040"), bytes.fromhex("0700000000000000")
    y_binary = tensor("FP32", [1, 2], None, "y", '{"binary_data_size":8}')
    m_binary = tensor("INT64", [1], None, "m", '{"binary_data_size":8}')
    every = ',"parameters":{"binary_data_output":true}'
    y_yes, m_no = '{"name":"y","parameters":{"binary_data":true}}', '{"name":"m","parameters":{"binary_data":false}}'
    for name, body, text, data in (
        ("all binary", inputs(X2, N1, more=every), answer("two", y_binary, m_binary), y_raw + m_raw),
        (
            "binary in the order asked for",
            asked('{"name":"m"}', '{"name":"y"}', more=every),
            answer("two", m_binary, y_binary),
            m_raw + y_raw,
        ),
        ("one of two binary", asked(y_yes, '{"name":"m"}'), answer("two", y_binary, M_OUT), y_raw),
        ("overridden", asked('{"name":"y"}', m_no, more=every), answer("two", y_binary, M_OUT), y_raw),
    ):
        yield Row(name, infer("two", body), 200, text + data, headers=(("inference-header-content-length", str(len(text))),))
    none = asked(m_no, more=every)
    yield Row("overridden for all", infer("two", none), 200, answer("two", M_OUT), headers=(("content-type", "application/json"),))
    mixed = inputs(tensor("FP32", [1, 2], None, parameters='{"binary_data_size":8}'), N1)
    yield Row("binary before JSON", framed("two", mixed, y_raw), 200, answer("two", Y_OUT, M_OUT))
    mixed = inputs(X2, tensor("INT64", [1], None, "n", '{"binary_data_size":8}'))
    yield Row("JSON before binary", framed("two", mixed, m_raw), 200, answer("two", Y_OUT, M_OUT))
    mixed = inputs(
        tensor("INT64", [1], None, "n", '{"binary_data_size":8}'), tensor("FP32", [1, 2], None, parameters='{"binary_data_size":8}')
    )
    yield Row("binary twice", framed("two", mixed, m_raw + y_raw), 200, answer("two", Y_OUT, M_OUT))
    bad = {
        "unknown output": (asked('{"name":"z"}'), "unknown output 'z': expected 'y', 'm'"),
        "output twice": (asked('{"name":"y"}', '{"name":"y"}'), "output 'y' is asked for twice"),
        "classification": (
            asked('{"name":"y","parameters":{"classification":3}}'),
            "requested output 'y' has the parameter classification",
        ),
        "output in shared memory": (asked('{"name":"y","parameters":{"shared_memory_region":"r"}}'), "shared_memory_region"),
        "binary_data no boolean": (
            asked('{"name":"y","parameters":{"binary_data":1}}'),
            "outputs[0].parameters.binary_data is 1: expected true or false",
        ),
        "binary_data_output no boolean": (
            inputs(X2, N1, more=',"parameters":{"binary_data_output":"true"}'),
            "parameters.binary_data_output is 'true'",
        ),
        "output without name": (asked("{}"), "outputs[0]: object missing required field name"),
        "output no object": (asked('"y"'), "outputs[0]: expected object, got str"),
        "outputs no array": (inputs(X2, N1, more=',"outputs":{}'), "outputs: expected array | null, got object"),
        "output parameters no object": (asked('{"name":"y","parameters":[]}'), "outputs[0].parameters"),
    }
    for name, (body, message) in bad.items():
        yield Row(name, infer("two", body), 400, text=(message,))
    yield Row(
        "unknown output of an undeclared model",
        infer("no%20inputs", inputs(more=',"outputs":[{"name":"z"}]')),
        400,
        text=("unknown output 'z': expected 'output_0'",),
    )


def raw_request_rows() -> Iterator[Row]:
    def raw(model: str, body: bytes) -> Request:
        return infer(model, body, ("inference-header-content-length", "0"))

    def binary(model: str, datatype: str, shape: list[int], data: bytes) -> bytes:
        return answer(model, tensor(datatype, shape, None, "y", f'{{"binary_data_size":{len(data)}}}')) + data

    floats = bytes.fromhex("0000803f 00000040 00004040")
    yield Row("raw request", raw("one", floats), 200, binary("one", "FP32", [3], floats))
    yield Row("raw request, empty", raw("one", b""), 200, binary("one", "FP32", [0], b""))
    shorts = bytes(range(8))
    yield Row("raw request, fixed shape", raw("raw-fixed", shorts), 200, binary("raw-fixed", "INT16", [2, 2], shorts))
    text = bytes.fromhex("02000000 6162")
    yield Row("raw request, BYTES", raw("raw-bytes", text), 200, binary("raw-bytes", "BYTES", [1], text))
    bad = {
        ("one", b"12345"): "5 bytes do not fill rows of 4 bytes",
        ("raw-fixed", b"1234567"): "7 bytes of binary data, but shape [2, 2] needs 8",
        ("raw-bytes", b"\x09\0\0\0ab"): "BYTES element 0 claims 9 bytes, but 2 are left",
        ("raw-free", b"1234"): "more than one -1",
        ("two", b"1234"): "does not declare exactly one input",
        ("echo", b"1234"): "does not declare exactly one input",
        ("no%20inputs", b"1234"): "does not declare exactly one input",
    }
    for (model, body), message in bad.items():
        yield Row(f"raw request {model}, {len(body)} bytes", raw(model, body), 400, text=(message,))


def document_rows() -> Iterator[Row]:
    bad = {
        "empty body": (b"", "the body is empty"),
        "blanks": (b"  \n ", "not valid JSON"),
        "no JSON": (b"hello", "not valid JSON"),
        "cut off": (inputs(GOOD)[:-5], "not valid JSON"),
        "trailing bytes": (inputs(GOOD) + b"x", "trailing characters"),
        "two documents": (inputs(GOOD) + inputs(GOOD), "trailing characters"),
        "byte order mark": (b"\xef\xbb\xbf" + inputs(GOOD), "not valid JSON"),
        "UTF-16": (inputs(GOOD).decode().encode("utf-16"), "not valid UTF-8"),
        "invalid UTF-8": (inputs(GOOD, more=',"id":"\xff"').replace("\xff".encode(), b"\xff"), "not valid UTF-8"),
        "invalid UTF-8 in an unknown field": (inputs(GOOD, more=',"zz":"\xff"').replace("\xff".encode(), b"\xff"), "not valid UTF-8"),
        "lone surrogate": (inputs(GOOD, more=',"id":"\\ud800"'), "not valid JSON"),
        "comment": (inputs(GOOD, more="/* */"), "not valid JSON"),
        "trailing comma": (inputs(GOOD, more=","), "not valid JSON"),
        "single quotes": (inputs(GOOD).replace(b'"', b"'"), "not valid JSON"),
        "garbage in an unknown field": (inputs(GOOD, more=',"zz":[01.0.0]'), "not valid JSON"),
        "array": (b"[]", "the body: expected object, got array"),
        "string": (b'"inputs"', "the body: expected object, got str"),
        "null": (b"null", "the body: expected object, got null"),
        "number": (b"5", "the body: expected object, got int"),
        "no inputs field": (b"{}", "the body: object missing required field inputs"),
        "inputs null": (b'{"inputs":null}', "inputs: expected array, got null"),
        "inputs an object": (b'{"inputs":{}}', "inputs: expected array, got object"),
        "input a string": (inputs('"x"'), "inputs[0]: expected object, got str"),
        "second input null": (inputs(GOOD, "null"), "inputs[1]: expected object, got null"),
        "id a number": (inputs(GOOD, more=',"id":1'), "id: expected str | null, got int"),
        "id an array": (inputs(GOOD, more=',"id":["a"]'), "id: expected str | null, got array"),
        "parameters an array": (inputs(GOOD, more=',"parameters":[]'), "parameters: expected object | null, got array"),
        "parameters a string": (inputs(GOOD, more=',"parameters":"a"'), "parameters: expected object | null, got str"),
        "parameter null": (inputs(GOOD, more=',"parameters":{"a":null}'), "parameters[...]: expected"),
        "parameter an array": (inputs(GOOD, more=',"parameters":{"a":[1]}'), "parameters[...]: expected"),
        "parameter an object": (inputs(GOOD, more=',"parameters":{"a":{}}'), "parameters[...]: expected"),
        "NaN id": (inputs(GOOD, more=',"id":NaN'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN parameter": (inputs(GOOD, more=',"parameters":{"a":NaN}'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN parameters": (inputs(GOOD, more=',"parameters":NaN'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN outputs": (inputs(GOOD, more=',"outputs":NaN'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN inputs": (b'{"inputs":NaN}', "NaN, Infinity and -Infinity are no JSON"),
        "NaN dimension": (inputs(tensor("FP32", [2], "[1,2]").replace("[2]", "[NaN]")), "inputs[0].shape[0]"),
        "NaN unknown": (inputs(GOOD, more=',"zz":[NaN,{"a":-Infinity}]'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN id, and its escaped spelling": (
            inputs(tensor("FP32", [1], '["\\u004eaN"]'), more=',"id":NaN'),
            "NaN, Infinity and -Infinity are no JSON",
        ),
        "nested 101 deep": (inputs(GOOD, more=',"zz":' + "[" * 100 + "]" * 100), "nested more than 100 deep"),
        "nested 101 deep in objects": (inputs(GOOD, more=',"zz":' + '{"a":' * 100 + "1" + "}" * 100), "nested more than 100 deep"),
        "data nested 101 deep": (inputs(tensor("FP32", [1], "[" * 100 + "1" + "]" * 100)), "data"),
        "data nested 600 deep": (inputs(tensor("FP32", [1], "[" * 600 + "1" + "]" * 600)), "data"),
        "nested 5000 deep": (b"[" * 5000 + b"]" * 5000, "nested more than 100 deep"),
        "nested 5000 deep, cut off": (b'{"a":' * 3000, "nested more than 100 deep"),
    }
    for name, (body, text) in bad.items():
        yield Row(name, infer("echo", body), 400, text=(text,))


def tensor_rows() -> Iterator[Row]:
    """What may be wrong about an input."""
    size = '{"binary_data_size":%s}'
    missing = {field: GOOD.replace(f'"{field}"', '"other"') for field in ("name", "shape", "datatype")}
    bad = {
        **{f"no {field}": (text, f"inputs[0]: object missing required field {field}") for field, text in missing.items()},
        "no data": (tensor("FP32", [2], None), "inputs[0] ('x'): data is missing"),
        "data null": (tensor("FP32", [2], "null"), "inputs[0] ('x'): data is missing"),
        "name a number": (GOOD.replace('"x"', "1"), "inputs[0].name: expected str, got int"),
        "name null": (GOOD.replace('"x"', "null"), "inputs[0].name: expected str, got null"),
        "datatype null": (GOOD.replace('"FP32"', "null"), "inputs[0].datatype: expected str, got null"),
        "shape a number": (GOOD.replace("[2]", "2"), "inputs[0].shape: expected array, got int"),
        "shape null": (GOOD.replace("[2]", "null"), "inputs[0].shape: expected array, got null"),
        "shape of strings": (tensor("FP32", ["2"], "[1,2]"), "inputs[0].shape[0]: expected int"),
        "shape with a fraction": (tensor("FP32", [2.5], "[1,2]"), "inputs[0].shape[0]: expected int"),
        "shape with true": (tensor("FP32", [True], "[1]"), "inputs[0].shape[0]: expected int, got bool"),
        "shape with null": (tensor("FP32", [None], "[1]"), "inputs[0].shape[0]: expected int, got null"),
        "shape nested": (tensor("FP32", [[2]], "[1,2]"), "inputs[0].shape[0]: expected int, got array"),
        "shape -1": (tensor("FP32", [-1], "[1,2]"), "inputs[0].shape[0]: expected int >= 0"),
        "shape 2^40": (tensor("FP32", [2**40], "[1]"), "data has 1 elements: expected 1099511627776"),
        "shape 2^62": (tensor("FP32", [2**62], "[1]"), "shape is too large"),
        "shape 2^64-3": (tensor("FP32", [2**64 - 3], "[1]"), "shape is too large"),
        "shape 2^64": (tensor("FP32", [2**64], "[]"), "shape is too large"),
        "shape [0, 2^60]": (tensor("FP64", [0, 2**60], "[]"), "shape is too large"),
        "shape [0, 2^60] of BYTES": (tensor("BYTES", [0, 2**60], "[]"), "shape is too large"),
        "shape of 64 long dimensions": (tensor("BYTES", [10**99] * 64, "[]"), "shape is too large"),
        "shape [0, 2^62]": (tensor("FP32", [0, 2**62], "[]"), "shape is too large"),
        "shape [2^32, 2^32]": (tensor("UINT8", [2**32, 2**32], "[]"), "shape is too large"),
        "shape of 65 dimensions": (tensor("FP32", [1] * 65, "[1]"), "65 dimensions: at most 64"),
        "shape of 10^30": (tensor("FP32", [10**30], "[1]"), "shape is too large"),
        "too few": (tensor("FP32", [3], "[1,2]"), "data has 2 elements: expected 3"),
        "too many": (tensor("FP32", [1], "[1,2]"), "data has 2 elements: expected 1"),
        "far too many": (tensor("FP32", [1], f"[{','.join('1' * 9_000)}]"), "data has too many elements: expected 1"),
        "too many for none": (tensor("FP32", [0], "[1]"), "data has 1 elements: expected 0"),
        "ragged": (tensor("FP32", [2, 2], "[[1,2],[3]]"), "array 1 of dimension 1 has 1 items, not 2"),
        "ragged to the right sum": (tensor("FP32", [2, 2], "[[1,2,3],[4]]"), "array 0 of dimension 1 has 3 items, not 2"),
        "transposed": (tensor("FP32", [2, 3], "[[1,2],[3,4],[5,6]]"), "has 3 items, not 2"),
        "mixed depth": (tensor("FP32", [2, 2], "[[1,2],3]"), "data[1]"),
        "nested too deep": (tensor("FP32", [2], "[[1],[2]]"), "data[0] is an array"),
        "nested too little": (tensor("FP32", [1, 1, 2], "[[1,2]]"), "data[0][0] is an integer"),
        "data an object": (tensor("FP32", [2], '{"a":1}'), "data is an object"),
        "data a string": (tensor("FP32", [2], '"12"'), "data is a string"),
        "data a number": (tensor("FP32", [1], "1"), "data is an integer"),
        "data true for a scalar": (tensor("FP32", [], "true"), "data is true or false"),
        "empty nested wrongly": (tensor("FP32", [0, 2], "[[]]"), "array 0 of dimension 0 has 1 items, not 0"),
        "shared memory": (
            tensor("FP32", [2], "[1,2]", parameters='{"shared_memory_region":"r"}'),
            "input 'x' has the parameter shared_memory_region",
        ),
        "shared memory, and no data": (
            '{"name":"x","datatype":"FP32","shape":[2],"parameters":{"shared_memory_region":"r"}}',
            "inputs[0] ('x'): it has the parameter shared_memory_region, which this server does not support",
        ),
        "tensor parameters an array": (
            tensor("FP32", [2], "[1,2]", parameters="[]"),
            "inputs[0].parameters: expected object | null, got array",
        ),
        "tensor parameter an object": (tensor("FP32", [2], "[1,2]", parameters='{"a":{}}'), "inputs[0].parameters[...]"),
        "binary size without header": (tensor("FP32", [2], None, parameters=size % 8), "Inference-Header-Content-Length"),
        "data and binary size": (tensor("FP32", [2], "[1,2]", parameters=size % 8), "both data and binary_data_size"),
        "content type unknown": (tensor("FP32", [2], "[1,2]", parameters='{"content_type":"nope"}'), "'nope'"),
        **{
            f"datatype {name}": (tensor(name, [2], "[1,2]"), f"unknown datatype {name!r}: expected one of BOOL")
            for name in ("fp32", "FLOAT", "", "FP8", "TYPE_FP32", "STRING", "INT")
        },
    }
    for value in ("-1", "8.0", '"8"', "true", "1e1"):
        bad[f"binary_data_size {value}"] = (tensor("FP32", [2], None, parameters=size % value), "binary_data_size is")
    for number in ("01", "1.0.0", "1.", ".5", "+1", "0x1", "1e", "tru", "nan", "-", "1_0"):
        bad[f"data [{number}]"] = (tensor("FP32", [1], f"[{number}]"), "JSON is malformed" if number != "1e" else "")
    for name, (text, message) in bad.items():
        yield Row(name, infer("echo", inputs(text)), 400, text=(message,))
    not_utf8 = inputs(tensor("BYTES", [1], '["?"]')).replace(b"?", b"\xff")
    yield Row("data that is not UTF-8", infer("echo", not_utf8), 400, text=("inputs[0] ('x'): data is not valid UTF-8",))


def element_rows() -> Iterator[Row]:
    """What may be wrong about an element, datatype by datatype."""

    def bad(datatype: str, element: str, message: str, place: str = "data[1]") -> Iterator[Row]:
        fill = {"BOOL": "true", "BYTES": '"a"'}.get(datatype, "0")
        for shape, text in (([2], f"[{fill},{element}]"), ([2, 1], f"[[{fill}],[{element}]]")):
            where = place if len(shape) == 1 or place != "data[1]" else "data[1][0]"
            name = f"{datatype} {element} in {shape}"
            yield Row(
                name, infer("echo", inputs(tensor(datatype, shape, text))), 400, text=("inputs[0] ('x')" if where else "", where, message)
            )

    for datatype, bits in INTEGERS.items():
        low, high = (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for element in (str(low - 1), str(high + 1), str(10**30), f"{high + 1}.0", "1e400", "-1e30"):
            yield from bad(datatype, element, f"out of range for {datatype}: expected {low} to {high}", "element 1")
        for element in ("1.5", "1e-1", "1e-999999999999", "1e99999999999999999999"):
            yield from bad(datatype, element, f"expected an integer for {datatype}")
        for element in ("true", '"5"', "null", "{}", '"NaN"'):
            yield from bad(datatype, element, f"expected an integer for {datatype}")
        yield from bad(datatype, "NaN", "floating-point data only", "")
    for datatype in FLOATS:
        for element in ("true", '"1.5"', '""', '"nan"', "{}", '"inf"'):
            yield from bad(datatype, element, f"for {datatype}")
        if datatype != "FP64":
            over = {"FP16": "65520", "BF16": "3.4e38", "FP32": "1e39"}[datatype]
            for element in (over, f"-{over}"):
                yield from bad(datatype, element, f"out of range for {datatype}", "element 1")
        yield from bad(datatype, "1e400", "out of range")
    for element in ("2", "-1", "0.5", "1.0", "null", '"true"', '""'):
        yield from bad("BOOL", element, "expected true, false, 0 or 1 for BOOL")
    for element in ("1", "1.5", "true", "null", "{}"):
        yield from bad("BYTES", element, "expected a string for BYTES")
    yield from bad("BYTES", "NaN", "floating-point data only", "")


def binary_rows() -> Iterator[Row]:
    """What may be wrong about binary data and its framing."""

    def sized(size: int, datatype: str = "FP32", shape: Any = (2,)) -> str:
        return tensor(datatype, list(shape), None, parameters=f'{{"binary_data_size":{size}}}')

    for name, item, data, message in (
        ("binary too short", sized(8), b"1234567", "binary_data_size is 8, but 7 bytes of binary data are left"),
        ("binary too long", sized(8), b"123456789", "1 bytes are left over"),
        ("binary absent", sized(8), b"", "binary_data_size is 8, but 0 bytes"),
        ("binary size below shape", sized(7), b"1234567", "7 bytes of binary data, but shape [2] needs 8"),
        ("binary size above shape", sized(9), b"123456789", "9 bytes of binary data, but shape [2] needs 8"),
        ("binary size huge", sized(2**63), b"12345678", "binary_data_size is 9223372036854775808, but 8"),
        ("binary for none", sized(4, shape=[0]), b"1234", "4 bytes of binary data, but shape [0] needs 0"),
        ("binary shape 2^62", sized(8, shape=[2**62]), b"12345678", "shape is too large"),
        ("binary left over without binary input", GOOD, b"1234", "4 bytes are left over"),
        ("BOOL 2", sized(2, "BOOL"), b"\x01\x02", "BOOL element 1 is the byte 2"),
        ("BOOL 255", sized(2, "BOOL"), b"\xff\x00", "BOOL element 0 is the byte 255"),
        ("BYTES length cut off", sized(3, "BYTES", [1]), b"\1\0\0", "its 4-byte length is cut off"),
        ("BYTES cut off", sized(6, "BYTES", [1]), b"\3\0\0\0ab", "BYTES element 0 claims 3 bytes, but 2 are left"),
        ("BYTES overlong", sized(6, "BYTES", [1]), b"\1\0\0\0ab", "1 bytes are left over behind the last of 1 BYTES elements"),
        ("BYTES too few", sized(5, "BYTES", [2]), b"\1\0\0\0a", "1 BYTES elements in the binary data, but the shape needs 2"),
        ("BYTES too many", sized(8, "BYTES", [1]), b"\0\0\0\0\0\0\0\0", "4 bytes are left over behind"),
        ("BYTES length 2^32-1", sized(5, "BYTES", [1]), b"\xff\xff\xff\xffa", "claims 4294967295 bytes"),
        ("BYTES none, some there", sized(4, "BYTES", [0]), b"\0\0\0\0", "4 bytes are left over behind"),
        ("BYTES shape 2^40", sized(4, "BYTES", [2**40]), b"\0\0\0\0", "1 BYTES elements in the binary data"),
    ):
        yield Row(name, framed("echo", inputs(item), data), 400, text=(message,))
    text = inputs(sized(8))
    good, length = text + b"12345678", len(text)
    for value in (
        "-1",
        "+5",
        "abc",
        "",
        " ",
        "0x10",
        "97.0",
        "9_7",
        f"{length}abc",
        "1e2",
        "٣".encode().decode("latin-1"),
        f"{length}, {length + 1}",
    ):
        header = ("inference-header-content-length", value)
        yield Row(f"header {value!r}", infer("echo", good, header), 400, text=("Inference-Header-Content-Length",))
    for number, message in (
        (length - 1, "not valid JSON"),
        (length + 1, "not valid"),
        (len(good) + 1, f"but the body has {len(good)} bytes only"),
        (10**17, "bytes only"),
        (2**32 + length, "bytes only"),
        (10**40, "no body is that long"),
    ):
        yield Row(
            f"header {number - length} off", infer("echo", good, ("inference-header-content-length", str(number))), 400, text=(message,)
        )
    twice = [("inference-header-content-length", str(length)), ("inference-header-content-length", str(length + 1))]
    yield Row("header twice", infer("echo", good, *twice), 400, text=("Inference-Header-Content-Length is repeated with different values",))


def declared_rows() -> Iterator[Row]:
    """What may be wrong against a declaration."""
    for name, body, message in (
        ("missing input", inputs(X2), "missing input 'n': expected 'n', 'x', but got 'x'"),
        ("no input at all", inputs(), "missing input 'n', 'x': expected 'n', 'x', but got no inputs"),
        ("unknown input", inputs(X2, N1, tensor("FP32", [1], "[1]", "z")), "unknown input 'z': expected 'n', 'x'"),
        ("input twice", inputs(X2, N1, X2), "input 'x' is there twice"),
        ("wrong case", inputs(tensor("FP32", [1, 2], "[1,2]", "X"), N1), "unknown input 'X'"),
        ("wrong datatype", inputs(tensor("FP64", [1, 2], "[1,2]"), N1), "input 'x' has datatype FP64: expected FP32"),
        ("wrong integer datatype", inputs(X2, tensor("INT32", [1], "[1]", "n")), "input 'n' has datatype INT32: expected INT64"),
        ("wrong rank", inputs(tensor("FP32", [2], "[1,2]"), N1), "input 'x' has shape [2]: expected [-1, 2]"),
        ("wrong dimension", inputs(tensor("FP32", [2, 1], "[1,2]"), N1), "input 'x' has shape [2, 1]: expected [-1, 2]"),
        ("scalar", inputs(X2, tensor("INT64", [], "1", "n")), "input 'n' has shape []: expected [1]"),
        ("empty where fixed", inputs(X2, tensor("INT64", [0], "[]", "n")), "input 'n' has shape [0]: expected [1]"),
        (
            "request in shared memory",
            inputs(X2, N1, more=',"parameters":{"shared_memory_region":"r"}'),
            "the request has the parameter shared_memory_region",
        ),
        ("long unknown name", inputs(X2, N1, tensor("FP32", [1], "[1]", "z" * 1000)), "1002 characters"),
    ):
        yield Row(name, infer("two", body), 400, text=(message,))
    yield Row("undeclared model, missing", infer("optional", inputs()), 400, text=("missing input 'x'",))
    yield Row(
        "undeclared model, unknown", infer("optional", inputs(GOOD, tensor("FP32", [1], "[1]", "z"))), 400, text=("unknown input 'z'",)
    )
    yield Row("undeclared model, twice", infer("echo", inputs(GOOD, GOOD)), 400, text=("input 'x' is there twice",))
    yield Row("inputs for none", infer("no%20inputs", inputs(GOOD)), 400, text=("unknown input 'x': expected no inputs",))


def limit_rows() -> Iterator[Row]:
    body = inputs(GOOD)
    limit = f"larger than {MAX_BODY_BYTES} bytes"
    yield Row("above the limit", infer("echo", body.ljust(MAX_BODY_BYTES + 1)), 413, text=(limit,))
    yield Row("announced above the limit", infer("echo", body, ("content-length", str(10**15))), 413, text=(limit,))
    yield Row("announced far above the limit", infer("echo", body, ("content-length", "9" * 30)), 400, text=("Content-Length",))
    yield Row(
        "ends early", infer("echo", body, ("content-length", str(len(body) + 1))), 400, text=(f"the body ended after {len(body)} bytes",)
    )
    yield Row("ends at once", infer("echo", b"", ("content-length", "10")), 400, text=("the body ended after 0 bytes: expected 10",))
    for value in ("-1", "abc", "1 2"):
        yield Row(f"Content-Length {value}", infer("echo", body, ("content-length", value)), 400, text=("Content-Length",))
    encoded = (("accept-encoding", "gzip, deflate"),)
    for value in ("br", "zstd", "compress", "gzip, gzip", "gzip;q=1", "identity, br"):
        yield Row(f"Content-Encoding {value}", infer("echo", body, ("content-encoding", value)), 415, text=(value,), headers=encoded)


def bare_deflate(data: bytes) -> bytes:
    """Deflate without zlib's frame, as some clients send it."""
    compress = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compress.compress(data) + compress.flush()


def compressed_rows() -> Iterator[Row]:
    """Compressed bodies, whole and broken."""
    body, data = inputs(GOOD), np.array([1, 2], "<f4").tobytes()
    text = inputs(tensor("FP32", [2], None, parameters='{"binary_data_size":8}'))
    packed = gzip.compress(body)
    ok = 200, answer("echo", ECHOED)

    def sent(coding: str, data: bytes, *headers: tuple[str, str]) -> Request:
        return infer("echo", data, ("content-encoding", coding), *headers)

    for coding in ("gzip", "x-gzip", "GZIP", " gzip ", "identity, gzip"):
        yield Row(f"compressed by {coding}", sent(coding, packed), *ok)
    yield Row("compressed by deflate", sent("deflate", zlib.compress(body)), *ok)
    yield Row("compressed by bare deflate", sent("deflate", bare_deflate(body)), *ok)
    yield Row(
        "several gzip members", sent("gzip", b"".join(gzip.compress(body[start : start + 9]) for start in range(0, len(body), 9))), *ok
    )
    yield Row("an empty gzip member behind", sent("gzip", packed + gzip.compress(b"")), *ok)
    length = ("inference-header-content-length", str(len(text)))
    yield Row("the header counts decoded bytes", sent("gzip", gzip.compress(text + data), length), *ok)
    yield Row("as large as the limit", sent("gzip", gzip.compress(body.ljust(MAX_BODY_BYTES))), *ok)

    corrupt = "body is corrupt"
    wrong_sum, wrong_size = bytes([packed[-8] ^ 1]), bytes([packed[-1] ^ 1])
    for name, coding, broken, problem in (
        ("plain JSON", "gzip", body, corrupt),
        ("zlib said to be gzip", "gzip", zlib.compress(body), corrupt),
        ("gzip said to be deflate", "deflate", packed, corrupt),
        ("plain JSON said to be deflate", "deflate", body, corrupt),
        ("a corrupt middle", "gzip", packed[:20] + bytes([packed[20] ^ 255]) + packed[21:], corrupt),
        ("a wrong checksum", "gzip", packed[:-8] + wrong_sum + packed[-7:], corrupt),
        ("a wrong size", "gzip", packed[:-1] + wrong_size, corrupt),
        ("a wrong checksum of zlib's", "deflate", zlib.compress(body)[:-1] + b"\0", corrupt),
        ("garbage behind gzip", "gzip", packed + b"garbage", corrupt),
        ("one byte behind gzip", "gzip", packed + b"\0", "ends too early"),
        ("garbage behind deflate", "deflate", zlib.compress(body) + b"garbage", "goes on behind its end"),
        ("garbage behind bare deflate", "deflate", bare_deflate(body) + b"garbage", "goes on behind its end"),
        ("cut in its data", "gzip", packed[:30], "ends too early"),
        ("cut in its checksum", "gzip", packed[:-1], "ends too early"),
        ("cut in its header", "gzip", packed[:3], "ends too early"),
        ("one byte of deflate", "deflate", zlib.compress(body)[:1], "ends too early"),
        ("deflate cut", "deflate", zlib.compress(body)[:-1], "ends too early"),
        ("many members", "gzip", gzip.compress(b"") * 900, "the body is empty"),
        ("nothing", "gzip", b"", "the body is empty"),
    ):
        yield Row(f"compressed: {name}", sent(coding, broken), 400, text=(problem,))
    for name, coding, bomb in (
        ("gzip", "gzip", gzip.compress(bytes(MAX_BODY_BYTES + 1))),
        ("deflate", "deflate", zlib.compress(bytes(15_000_000), 9)),
        ("members", "gzip", gzip.compress(bytes(1000)) * 21),
    ):
        yield Row(f"a bomb of {name}", sent(coding, bomb), 413, text=("larger than 20000 bytes",))
    yield Row("a header beyond the decoded bytes", sent("gzip", packed, (length[0], str(len(body) + 1))), 400, text=("but the body has",))


def model_rows() -> Iterator[Row]:
    """Models that speak to the client, or fail."""
    yield Row("a model's own error", infer("speaks", inputs(GOOD)), 418, text=("the teapot is short and stout",))
    yield Row("a model raises", infer("raises", inputs(GOOD)), 500, text=("model 'raises' failed",))
    yield Row("a model returns None", infer("returns%20none", inputs(GOOD)), 500, text=("model 'returns none' failed",))
    yield Row(
        "bytes that are not UTF-8",
        infer("not%20utf-8", inputs()),
        400,
        text=("output 'output_0'", '"binary_data": true', '"content_type": "base64"'),
    )
    text = answer("not utf-8", tensor("BYTES", [1], None, "output_0", '{"binary_data_size":6}'))
    asked = inputs(more=',"parameters":{"binary_data_output":true}')
    yield Row("bytes that are not UTF-8, binary", infer("not%20utf-8", asked), 200, text + b"\2\0\0\0\xff\xfe")


def timeout_rows() -> Iterator[Row]:
    """The request parameter `timeout`, in microseconds."""
    for value in ("1000000000", "10000000000000000000000000000"):
        yield Row(f"timeout {value}", infer("echo", inputs(GOOD, more=f',"parameters":{{"timeout":{value}}}')), 200, answer("echo", ECHOED))
    for value in ("0", "-1", "1.5", "1e6", '"1"', "true"):
        body = inputs(GOOD, more=f',"parameters":{{"timeout":{value}}}')
        yield Row(f"timeout {value}", infer("echo", body), 400, text=("parameters.timeout", "positive integer, in microseconds"))


def rows() -> list[Row]:
    """All rows."""
    made = [
        *metadata_rows(),
        *path_rows(),
        *version_rows(),
        *vector_rows(),
        *good_rows(),
        *output_rows(),
        *raw_request_rows(),
        *document_rows(),
        *tensor_rows(),
        *element_rows(),
        *binary_rows(),
        *declared_rows(),
        *limit_rows(),
        *compressed_rows(),
        *timeout_rows(),
        *model_rows(),
    ]
    assert len({row.name for row in made}) == len(made), "two rows have the same name"
    return made
