"""Rows of what is asked by its path, of models that fail, and of the parameter `timeout`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from tests.support.ways import EXTENSIONS, Request
from tests.table.row import ECHOED, GOOD, Row, answer, infer, inputs, tensor
from tests.table.row_classes import OF_PYDANTIC

NAMES: Final = [
    *("echo", "two", "one", "raw-fixed", "raw-bytes", "raw-free", "integers", "words", "org/model", "naïve model", "no inputs"),
    *(
        "optional",
        "whole",
        "speaks",
        "raises",
        "returns none",
        "long and empty",
        "lists text",
        "not utf-8",
        "not finite",
        "scaled",
        "tells its version",
        "gives headers",
        "overridden",
        "fitted",
        "refusing",
        "ranged",
        "flagged",
        "churn",
        "one row",
        "places",
        "wrong score",
        *OF_PYDANTIC,
    ),
]
"""The names of all models, in the order of their registration."""


def metadata_rows() -> Iterator[Row]:
    server = f'{{"name":"table","version":"1.2.3","extensions":{EXTENSIONS}}}'.encode()
    models = json.dumps({"models": NAMES}, ensure_ascii=False, separators=(",", ":")).encode()
    two = (
        b'{"name":"two","platform":"python","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]},{"name":"n","datatype":"INT64","shape":[1]}],'
        b'"outputs":[{"name":"y","datatype":"FP32","shape":[-1,2],"parameters":{"labels":"[\\"cold\\", \\"warm\\"]"}},'
        b'{"name":"m","datatype":"INT64","shape":[1]}]}'
    )
    empty = '{"name":"%s","platform":"python","inputs":[],"outputs":[]%s}'
    of_version, of_x = (f',"parameters":{{"undeclared_inputs":"{name}"}}' for name in ("version", "x"))
    scaled = (
        b'{"name":"scaled","platform":"python","inputs":[{"name":"x","datatype":"FP32","shape":[-1]},{"name":"factor","datatype":"FP64",'
        b'"shape":[1]},{"name":"unit","datatype":"BYTES","shape":[1]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1]}]}'
    )
    integers = (empty % ("integers", ',"versions":["1","10","9"]' + of_version)).encode()
    answers = {
        "": server,
        "/health/live": b'{"live":true}',
        "/health/ready": b'{"ready":true,"live":true}',
        "/models": models,
        "/models/two": two,
        "/models/scaled": scaled,
        "/models/two/ready": b'{"name":"two","ready":true}',
        "/models/integers": integers,
        "/models/integers/versions/9": integers,
        "/models/integers/versions/9/ready": b'{"name":"integers","ready":true}',
        "/models/words": (empty % ("words", ',"versions":["2","beta"]' + of_version)).encode(),
        "/models/org%2Fmodel": (empty % ("org/model", of_x)).encode(),
        "/models/org%2fmodel/ready": b'{"name":"org/model","ready":true}',
        "/models/org/model": (empty % ("org/model", of_x)).encode(),
        "/models/na%C3%AFve%20model": (empty % ("naïve model", of_x)).encode(),
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
    preflight = Request("OPTIONS", "/models/echo/infer", (("origin", "https://a.example"), ("access-control-request-method", "POST")))
    named = ("is not allowed here: expected POST; a browser asks this", "CORSMiddleware", "flask-cors", "django-cors-headers")
    yield Row("a preflight", preflight, 405, text=named, headers=(("allow", "POST"),))
    yield Row("HEAD infer", Request("HEAD", "/models/echo/infer"), 405, b"", headers=(("allow", "POST"),))


def repository_rows() -> Iterator[Row]:
    """The model repository extension, with its control switched off as it is unless the host says otherwise."""
    names = [
        *NAMES[:6],
        *[("integers", version) for version in ("1", "10", "9")],
        *[("words", version) for version in ("2", "beta")],
        *NAMES[8:],
    ]
    entries = [
        {"name": name, "state": "READY"} if isinstance(name, str) else {"name": name[0], "version": name[1], "state": "READY"}
        for name in names
    ]
    index = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    for body in (b"", b"{}", b'{"ready":true}', b'{"ready":false}'):
        yield Row(f"index {body!r}", Request("POST", "/repository/index", (), body), 200, index)
    for body in (b"[]", b'{"ready":"yes"}', b"{"):
        yield Row(f"index {body!r}", Request("POST", "/repository/index", (), body), 400, text=("the body cannot be read",))
    for path in ("/repository/index", "/repository/models/echo/load", "/repository/models/org%2Fmodel/unload"):
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            yield Row(f"{method} {path}", Request(method, path), 405, headers=(("allow", "POST"),))
    forbidden = "this server does not let clients load and unload models: InferenceServer(model_control=True) does"
    for action in ("load", "unload"):
        for name in ("echo", "org%2Fmodel", "org/model"):
            yield Row(f"{action} {name}", Request("POST", f"/repository/models/{name}/{action}"), 403, text=(forbidden,))
        yield Row(f"{action} an unknown model", Request("POST", f"/repository/models/nope/{action}"), 404, text=("unknown model: 'nope'",))
    for path in ("/repository", "/repository/here/index", "/repository/models/echo", "/repository/models/echo/versions/1/load"):
        yield Row(f"unknown path {path}", Request("POST", path), 404, text=("unknown path", path))


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
        "/models/echo//",
        "/../x",
    ):
        yield Row(f"unknown path {path}", Request("GET", path), 404, text=("unknown path", "/models/{name}"))
    for path in ("/models/echo/versions", "/models/echo/predict", "/models/echo/versions/1/ready/x", "/models/a/b/c"):
        yield Row(f"unknown path {path}", Request("GET", path), 404, text=("unknown path", path))
    for path in ("/model/echo/infer", "/echo/infer", "/infer", "/models/echo/predict", "/models/echo/inference", "/models/echo:predict"):
        expected = ("unknown path", path, "/models/{name}", "/infer, ")
        yield Row(f"a path of other servers {path}", Request("POST", path, body=b"{}"), 404, text=expected)
    yield Row("unknown model with a colon", infer("echo:7b", inputs(GOOD)), 404, text=("unknown model: 'echo:7b'", "expected 'echo'"))
    yield Row("a long path of encoded segments", Request("GET", "/%61" * 15_000), 404, text=("unknown path", "30002 characters"))
    for path in ("/models/nope", "/models/nope/ready", "/models/ECHO", "/models/echo%20", "/models/%FF"):
        yield Row(
            f"unknown model {path}",
            Request("GET", path),
            404,
            text=("Request for unknown model: ", " is not found: expected 'echo', 'two'"),
        )
    text = "Request for unknown model: 'nope' is not found: expected 'echo', 'two', "
    yield Row("unknown model infer", infer("nope", inputs(GOOD)), 404, text=(text,))
    text = "Request for unknown model: "
    yield Row("unknown model, long name", Request("GET", "/models/" + "n" * 5000), 404, text=(text, "5002 characters"))
    for version in ("3", "01", "v1", "1.0"):
        yield Row(
            f"unknown version {version}",
            Request("GET", f"/models/integers/versions/{version}"),
            404,
            text=(f"Request for unknown model: 'integers' version {version!r} is not found: expected '1', '10', '9'",),
        )
    text = "Request for unknown model: 'echo' version '2' is not found: it has no versions"
    yield Row("a version of none", Request("GET", "/models/echo/versions/2/ready"), 404, text=(text,))
    text = "Request for unknown model: 'integers' version '3' is not found: expected '1', '10', '9'"
    yield Row("unknown version infer", infer("integers/versions/3", inputs()), 404, text=(text,))


def version_rows() -> Iterator[Row]:
    # what statistics call a model without versions, and Triton's clients write
    yield Row("infer as version 1 of none", infer("echo/versions/1", inputs(GOOD)), 200, answer("echo", ECHOED))
    yield Row("ready as version 1 of none", Request("GET", "/models/echo/versions/1/ready"), 200, b'{"name":"echo","ready":true}')
    text = "Request for unknown model: 'echo' version '2' is not found: it has no versions"
    yield Row("infer as version 2 of none", infer("echo/versions/2", inputs(GOOD)), 404, text=(text,))
    for path, version in (("integers", "10"), ("integers/versions/1", "1"), ("integers/versions/9", "9")):
        output = tensor("INT64", [1], f"[{version}]", "output_0")
        yield Row(f"infer {path}", infer(path, inputs()), 200, answer("integers", output, version=version))
    for path, version in (("words", "beta"), ("words/versions/2", "2"), ("words/versions/beta", "beta")):
        output = tensor("BYTES", [1], f'["{version}"]', "output_0")
        yield Row(f"infer {path}", infer(path, inputs()), 200, answer("words", output, version=version))


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
    """The request parameter `timeout`, in microseconds, which counts only where the model allows it."""
    for value in ("0", "1", "1000000000", "18446744073709551615"):
        body = inputs(GOOD, more=f',"parameters":{{"timeout":{value}}}')
        yield Row(f"timeout {value}", infer("echo", body), 200, answer("echo", ECHOED))
        if value != "1":
            yield Row(f"timeout {value} that counts", infer("overridden", body), 200, answer("overridden", ECHOED))
    late = ("model 'overridden' did not answer within 1e-06 seconds, the shorter of its own timeout and the request's",)
    yield Row("timeout 1 that counts", infer("overridden", inputs(GOOD, more=',"parameters":{"timeout":1}')), 504, text=late)
    for value in ("-1", "1.5", "1e6", '"1"', "true"):
        body = inputs(GOOD, more=f',"parameters":{{"timeout":{value}}}')
        text = ("parameters.timeout is ", ": expected an integer, 0 or more, in microseconds")
        yield Row(f"timeout {value}", infer("echo", body), 400, text=text)
