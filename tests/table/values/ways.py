"""The ways in: each is a function from a kind and a list of values to what the model has received, as text, or to the refusal.

None where the way has no form for these values: no tensor of binary data holds a text among numbers.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stderr
from datetime import date, datetime
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote

import httpx2
import msgspec
import numpy as np

from oip_asgi import InferenceError, InferenceRequest, InferenceServer, OIPApp, OIPWSGIApp, Tensor, TensorSpec
from oip_asgi.client import Client
from oip_asgi.client.__main__ import main as run
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import ASGIClient
from tests.support.grpc_ways import wire_request
from tests.support.threads import serving
from tests.support.ways import Answer, Request, over_wsgi
from tests.table.values.cells import REFUSED
from tests.table.values.kinds import KINDS, Kind, describe, make_server

NONE_SUCH: Final = None
"""There is no such form of these values."""

SCORED: Final = {"right", "edge", "one missing", "all missing", "a whole float"}
"""The values that are written to files: a run of `score` takes as long as 100 requests."""

Outcome: TypeAlias = str | None

_DTYPES: Final = {
    "FP64": "f8",
    "FP32": "f4",
    "FP16": "f2",
    "INT64": "i8",
    "INT8": "i1",
    "UINT8": "u1",
    "UINT64": "u8",
    "BOOL": "?",
    "BYTES": "O",
}
_TYPES: Final[Mapping[str, set[type]]] = {"f": {float, int, NoneType}, "i": {int}, "u": {int}, "?": {bool}, "O": {str}}
"""What may be written as elements of these dtypes, and of the fields of a message."""
_DATES: Final = {datetime, date}

_CONTENTS: Final = {
    "FP64": "fp64_contents",
    "FP32": "fp32_contents",
    "INT64": "int64_contents",
    "INT8": "int_contents",
    "UINT8": "uint_contents",
    "UINT64": "uint64_contents",
    "BOOL": "bool_contents",
    "BYTES": "bytes_contents",
}


class Ways:
    """One server, asked by each way."""

    def __init__(self) -> None:
        self._received: list[Any] = []
        self._server: InferenceServer = make_server(self._received)
        self._stack = ExitStack()
        app = OIPWSGIApp(self._server)
        self._send = over_wsgi(app, "")
        self._declared = {name: spec for name in KINDS if (spec := self._read_declaration(name)) is not None}
        self._grpc = ASGIClient(OIPGRPCApp(self._server))
        transport = httpx2.WSGITransport(_mounted(app), raise_app_exceptions=False)
        self._http = httpx2.Client(transport=transport)
        self._client = Client("http://test/v2", http=self._http)
        self.ways: Final[dict[str, Callable[[Kind, Any], Outcome]]] = {
            "infer": self.infer,
            "binary": self.binary,
            "gRPC": self.grpc,
            "generate": self.generate,
            "Python": self.python,
            "Client": self.client,
            "score": self.score,
            "rows": self.rows,
            "Client, rows": self.client_rows,
        }

    def __enter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(TemporaryDirectory()))
        self._url = f"http://127.0.0.1:{self._stack.enter_context(serving(OIPApp(self._server, path='/v2')))}/v2"
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._client.close()
        self._http.close()
        self._server.stop()

    def ask(self, kind: Kind, name: str, values: Any) -> dict[str, str]:
        """What becomes of the values of this name by each way that has a form for them."""
        left_out = set() if name in SCORED else {"score"}
        if msgspec.__version__.startswith("0.19") and kind.row is not None and _largest(values) >= 2**1024:
            left_out |= {"generate", "rows", "Client, rows"}  # it raises SystemError for a whole number that no float holds
        ways = {each: way for each, way in self.ways.items() if each not in left_out}
        outcomes = {each: self._ask(way, kind, values) for each, way in ways.items()}
        return {each: outcome for each, outcome in outcomes.items() if outcome is not NONE_SUCH}

    def _ask(self, way: Callable[[Kind, Any], Outcome], kind: Kind, values: Any) -> Outcome:
        self._received.clear()
        outcome = way(kind, values)
        if outcome == "200":
            [value] = self._received
            return describe(value, kind)
        return outcome

    def _read_declaration(self, name: str) -> TensorSpec | None:
        metadata = json.loads(self._send(Request("GET", f"/models/{quote(name)}")).body)
        for each in metadata["inputs"]:
            return TensorSpec("x", each["datatype"], each["shape"], each.get("parameters", {}).get("content_type"))
        return None

    def infer(self, kind: Kind, values: Any) -> Outcome:
        """JSON of the request `infer`, as somebody writes it by hand."""
        tensor = _make_tensor(kind, self._declared.get(kind.name), values)
        if tensor is None:
            return NONE_SUCH
        return _read(self._send(Request("POST", f"/models/{kind.name}/infer", (), json.dumps({"inputs": [tensor]}).encode())))

    def binary(self, kind: Kind, values: Any) -> Outcome:
        """The same with binary tensor data."""
        tensor = _make_tensor(kind, self._declared.get(kind.name), values)
        array = None if tensor is None else _make_array(tensor)
        if tensor is None or array is None:
            return NONE_SUCH
        request = InferenceRequest([Tensor("x", array, tensor.get("parameters", {}))])
        headers, body = request.to_http(binary=True)
        return _read(self._send(Request("POST", f"/models/{kind.name}/infer", tuple(headers.items()), body)))

    def grpc(self, kind: Kind, values: Any) -> Outcome:
        """`ModelInfer` with typed contents."""
        tensor = _make_tensor(kind, self._declared.get(kind.name), values)
        if tensor is None:
            return NONE_SUCH
        data, types = _flatten(tensor["data"]), _types(tensor["data"])
        if not types <= _TYPES[_DTYPES[tensor["datatype"]][0]] or tensor["datatype"] not in _CONTENTS or _is_cut(data):
            return NONE_SUCH
        data = [each.encode() if isinstance(each, str) else math.nan if each is None else each for each in data]
        parameters = {name: {"string_param": value} for name, value in tensor.get("parameters", {}).items()}
        described = {"name": "x", "datatype": tensor["datatype"], "shape": tensor["shape"], "parameters": parameters}
        if tensor["datatype"] == "FP32" and any(type(each) is float and 3.5e38 < each < math.inf for each in data):
            return NONE_SUCH  # protobuf makes infinity of it
        try:
            message = wire_request(kind.name, [{**described, "contents": {_CONTENTS[tensor["datatype"]]: data}}])
        except (TypeError, ValueError, OverflowError):
            return NONE_SUCH
        code, text = self._grpc.got("ModelInfer", message).refusal
        return {"OK": "200", "INVALID_ARGUMENT": REFUSED}.get(code, f"{code} {text}")

    def generate(self, kind: Kind, values: Any) -> Outcome:
        """The plain object of `generate`."""
        if not _is_json(kind, values) or (_DATES & _types(values) and "date" not in kind.family):
            return NONE_SUCH
        written = _to_json(values)
        if kind.row is None:
            body = json.dumps({"x": written}).encode()
        else:
            body = json.dumps([{"x": each} for each in written] if isinstance(values, list) else {"x": written}).encode()
        return _read(self._send(Request("POST", f"/models/{kind.name}/generate", (), body)))

    def python(self, kind: Kind, values: Any) -> Outcome:
        """A list that another part of the application hands to `server.infer_sync`."""
        return _call(lambda: self._server.infer_sync(kind.name, {"x": values}))

    def client(self, kind: Kind, values: Any) -> Outcome:
        """A list that another process hands to `Client`."""
        return _call(lambda: self._client.infer(kind.name, {"x": values}))

    def score(self, kind: Kind, values: Any) -> Outcome:
        """A column of a CSV file, by the command `score`."""
        cells = _to_csv(kind, values)
        if cells is None:
            return NONE_SUCH
        file = self._folder / "rows.csv"
        file.write_text("".join(["id,x\n", *(f"{number},{cell}\n" for number, cell in enumerate(cells))]))
        asked = ["score", self._url, kind.name, str(file), "--out", str(self._folder / "scores.csv"), "--columns", "x"]
        with redirect_stderr(StringIO()) as told:
            ended = run([*asked, "--connections", "1"])
        if "see the server's log" in told.getvalue():
            return f"500 {told.getvalue()}"
        return "200" if ended == 0 and len(self._received) == 1 else REFUSED  # else it has asked for each row

    def rows(self, kind: Kind, values: Any) -> Outcome:
        """Instances of the class of rows from Python."""
        if kind.row is None or not isinstance(values, list):
            return NONE_SUCH
        return _call(lambda: self._server.infer_sync(kind.name, [kind.row(each) for each in values]))

    def client_rows(self, kind: Kind, values: Any) -> Outcome:
        """The same by `Client`."""
        if kind.row is None or not isinstance(values, list):
            return NONE_SUCH
        return _call(lambda: self._client.infer(kind.name, [kind.row(each) for each in values]))


def _mounted(app: Any) -> Any:
    def serve(environ: Any, start_response: Any) -> Any:
        return app({**environ, "SCRIPT_NAME": "/v2", "PATH_INFO": environ["PATH_INFO"].removeprefix("/v2")}, start_response)

    return serve


def _read(answer: Answer) -> Outcome:
    return str(answer.status) if answer.status in (200, 400) else f"{answer.status} {answer.body.decode()}"


def _call(ask: Callable[[], Any]) -> Outcome:
    try:
        ask()
    except InferenceError as error:
        status = getattr(error, "response_status", error.status)
        return REFUSED if status == 400 else f"{status} {error}"
    except Exception as error:
        return f"{type(error).__name__} {error}"
    return "200"


def _make_tensor(kind: Kind, declared: TensorSpec | None, values: Any) -> dict[str, Any] | None:
    """The values as an input of `infer`; None if no datatype that the model takes has these values.

    Args:
        kind: The kind.
        declared: What the metadata of the model says of its input.
        values: The values.
    """
    if not isinstance(values, list) or not _is_json(kind, values):
        return None
    datatype, content_type = _choose_datatype(kind, values) if declared is None else (declared.datatype, declared.content_type)
    if datatype is None:
        return None
    data = [_to_json(each) for each in values]
    if _largest(values) >= 2**63 and kind.family == "any integer" and _types(values) == {int}:
        datatype = "UINT64"
    gap = "NaT" if content_type == "datetime" else kind.gap
    is_written_as_json = None in values and kind.missing is not None and gap == "pd_json" and not datatype.startswith("FP")
    if content_type == "pd_json" or is_written_as_json:
        datatype, content_type, data = "BYTES", "pd_json", [json.dumps(each) for each in data]
        shape = [len(data)]
    else:
        if kind.missing is not None and gap == "NaT":
            data = ["NaT" if each is None else each for each in data]
        shape = _find_shape(data)
    if declared is not None and len(declared.shape) > len(shape):
        shape.append(1)
    more = {} if content_type is None else {"parameters": {"content_type": content_type}}
    return {"name": "x", "datatype": datatype, "shape": shape, "data": data, **more}


def _is_json(kind: Kind, values: Any) -> bool:
    """Whether they are values of JSON, or the kind says which texts are dates or bytes."""
    types = _types(values)
    if not kind.is_declared:
        return bytes not in types
    return (bytes not in types or kind.family == "bytes") and (not _DATES & types or "date" in kind.family)


def _choose_datatype(kind: Kind, values: list[Any]) -> tuple[str | None, str | None]:
    """The datatype and the content type that the values show, where nothing is declared."""
    types, largest = _types(values) - {NoneType}, _largest(values)
    if types == {int} and None not in values:
        return ("INT64" if largest <= 2**63 else "UINT64" if largest < 2**64 else None), None
    if not values or (types and types <= {int, float}):
        return (None if largest > 2**53 else "FP64"), None  # which would round it
    if types and types <= _DATES:
        return "BYTES", "datetime"
    return {frozenset({bool}): "BOOL", frozenset({str}): "BYTES"}.get(frozenset(types), "BYTES" if not types else None), None


_OF_FAMILIES: Final[Mapping[str, set[type]]] = {
    "date": {datetime, date, str},
    "number": {float, int},
    "matrix": {float, int},
    "integer": {float, int},
    "boolean": {bool, int},
    "text": {str},
    "category": {str},
    "bytes": {bytes},
    "any": {float, int, bool},
}
"""What a cell of CSV may be, by the first word that a family has: a file has no types, so 12 cannot be the wrong one for a text there."""


def _to_csv(kind: Kind, values: Any) -> list[str] | None:
    """The cells of a column."""
    allowed = next((types for word, types in _OF_FAMILIES.items() if word in kind.family), set[type]())
    if not isinstance(values, list) or not values or not _types(values) <= {*allowed, NoneType} or _find_shape(values) != [len(values)]:
        return None
    return ["" if each is None else str(_to_json(each)).replace("True", "true").replace("False", "false") for each in values]


def _types(values: Any) -> set[type]:
    return set(map(type, _flatten(values)))


def _is_cut(leaves: list[Any]) -> bool:
    """Whether a text has half a character, which only JSON can write."""
    return any("\ud800" in each for each in leaves if isinstance(each, str))


def _largest(values: Any) -> int:
    return max((abs(each) for each in _flatten(values) if type(each) is int), default=0)


def _find_shape(data: Any) -> list[int]:
    shape = []
    while isinstance(data, list):
        shape.append(len(data))
        data = data[0] if data else None
    return shape


def _make_array(tensor: dict[str, Any]) -> Any:
    """The data as numpy has it, if it has exactly these values."""
    leaves, datatype = _flatten(tensor["data"]), tensor["datatype"]
    types, kind = set(map(type, leaves)), _DTYPES[datatype][0]
    if kind == "f":
        leaves = [math.nan if each is None else each for each in leaves]
    if not types <= _TYPES[kind] or _is_cut(leaves) or len(leaves) != math.prod(tensor["shape"]):
        return None
    if kind == "O":
        leaves = [each.encode() for each in leaves]
    try:
        with np.errstate(over="ignore"):
            array = np.array(leaves, _DTYPES[datatype])
    except OverflowError:
        return None
    if kind == "f" and any(math.isinf(got) and not math.isinf(each) for got, each in zip(array.tolist(), leaves, strict=True)):
        return None
    return array.reshape(tensor["shape"])


def _flatten(data: Any) -> list[Any]:
    return [leaf for each in data for leaf in _flatten(each)] if isinstance(data, list) else [data]


def _to_json(value: Any) -> Any:
    """Values of Python that JSON has as texts."""
    if isinstance(value, list):
        return [_to_json(each) for each in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.isoformat() if isinstance(value, date) else value
