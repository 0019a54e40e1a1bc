"""The ways in: each is a function from a kind and a list of values to what the model has received, as text, or to the refusal.

None where the way has no form for these values: no tensor of binary data holds a text among numbers.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from types import NoneType
from typing import Any, Final, Self, TypeAlias

import httpx2
import numpy as np

from oip_asgi import InferenceError, InferenceRequest, InferenceServer, OIPWSGIApp, Tensor
from oip_asgi.client import Client
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import ASGIClient
from tests.support.grpc_ways import wire_request
from tests.support.ways import Answer, Request, over_wsgi
from tests.table.values.cells import REFUSED
from tests.table.values.kinds import Kind, describe, make_server

NONE_SUCH: Final = None
"""There is no such form of these values."""

Outcome: TypeAlias = str | None

_DTYPES: Final = {"FP64": "f8", "FP32": "f4", "INT64": "i8", "INT8": "i1", "UINT8": "u1", "UINT64": "u8", "BOOL": "?", "BYTES": "O"}
_TYPES: Final = {"f": {float, int, NoneType}, "i": {int}, "u": {int}, "?": {bool}, "O": {str}}
"""What may be written as elements of these dtypes, and of the fields of a message."""
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
        app = OIPWSGIApp(self._server)
        self._send = over_wsgi(app, "")
        self._grpc = ASGIClient(OIPGRPCApp(self._server))
        transport = httpx2.WSGITransport(_mounted(app), raise_app_exceptions=False)
        self._http = httpx2.Client(transport=transport)
        self._client = Client("http://test/v2", http=self._http)
        self.ways: Final[dict[str, Callable[[Kind, list[Any]], Outcome]]] = {
            "infer": self.infer,
            "binary": self.binary,
            "gRPC": self.grpc,
            "generate": self.generate,
            "Python": self.python,
            "Client": self.client,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._http.close()
        self._server.stop()

    def ask(self, kind: Kind, values: list[Any]) -> dict[str, Outcome]:
        """What becomes of the values by each way that has a form for them."""
        outcomes = {name: self._ask(way, kind, values) for name, way in self.ways.items()}
        return {name: outcome for name, outcome in outcomes.items() if outcome is not NONE_SUCH}

    def _ask(self, way: Callable[[Kind, list[Any]], Outcome], kind: Kind, values: list[Any]) -> Outcome:
        self._received.clear()
        outcome = way(kind, values)
        if outcome == "200":
            [value] = self._received
            return describe(value, kind)
        return outcome

    def infer(self, kind: Kind, values: list[Any]) -> Outcome:
        """JSON of the request `infer`, as somebody writes it by hand."""
        tensor = _make_tensor(kind, values)
        if tensor is None:
            return NONE_SUCH
        return _read(self._send(Request("POST", f"/models/{kind.model}/infer", (), json.dumps({"inputs": [tensor]}).encode())))

    def binary(self, kind: Kind, values: list[Any]) -> Outcome:
        """The same with binary tensor data."""
        tensor = _make_tensor(kind, values)
        array = None if tensor is None else _make_array(tensor)
        if tensor is None or array is None:
            return NONE_SUCH
        request = InferenceRequest([Tensor("x", array, tensor.get("parameters", {}))])
        headers, body = request.to_http(binary=True)
        return _read(self._send(Request("POST", f"/models/{kind.model}/infer", tuple(headers.items()), body)))

    def grpc(self, kind: Kind, values: list[Any]) -> Outcome:
        """`ModelInfer` with typed contents."""
        tensor = _make_tensor(kind, values)
        if tensor is None:
            return NONE_SUCH
        data, types = _flatten(tensor["data"]), set(map(type, _flatten(tensor["data"])))
        if not types <= _TYPES[_DTYPES[tensor["datatype"]][0]]:
            return NONE_SUCH
        data = [each.encode() if isinstance(each, str) else math.nan if each is None else each for each in data]
        parameters = {name: {"string_param": value} for name, value in tensor.get("parameters", {}).items()}
        described = {"name": "x", "datatype": tensor["datatype"], "shape": tensor["shape"], "parameters": parameters}
        try:
            message = wire_request(kind.model, [{**described, "contents": {_CONTENTS[tensor["datatype"]]: data}}])
        except (TypeError, ValueError, OverflowError):
            return NONE_SUCH
        code, text = self._grpc.got("ModelInfer", message).refusal
        return {"OK": "200", "INVALID_ARGUMENT": REFUSED}.get(code, f"{code} {text}")

    def generate(self, kind: Kind, values: list[Any]) -> Outcome:
        """The plain object of `generate`."""
        types = set(map(type, _flatten(values)))
        if not _is_json(kind, values) or (datetime in types and "date" not in kind.family):
            return NONE_SUCH
        body = json.dumps({"x": [_to_json(each) for each in values]}).encode()
        return _read(self._send(Request("POST", f"/models/{kind.model}/generate", (), body)))

    def python(self, kind: Kind, values: list[Any]) -> Outcome:
        """A list that another part of the application hands to `server.infer_sync`."""
        return _call(lambda: self._server.infer_sync(kind.model, {"x": values}))

    def client(self, kind: Kind, values: list[Any]) -> Outcome:
        """A list that another process hands to `Client`."""
        return _call(lambda: self._client.infer(kind.model, {"x": values}))


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


def _make_tensor(kind: Kind, values: list[Any]) -> dict[str, Any] | None:
    """The values as an input of `infer`; None if no datatype that the model takes has these values."""
    datatype, content_type = _choose_datatype(kind, values)
    if datatype is None or not _is_json(kind, values):
        return None
    data = [_to_json(each) for each in values]
    is_written_as_json = None in values and kind.missing is not None and kind.gap == "pd_json" and datatype not in ("FP32", "FP64")
    if content_type == "pd_json" or is_written_as_json:
        datatype, content_type, data = "BYTES", "pd_json", [json.dumps(each) for each in data]
        shape = [len(data)]
    else:
        if kind.missing is not None and kind.gap == "NaT":
            data = ["NaT" if each is None else each for each in data]
        shape = _find_shape(data)
    if kind.spec is not None and len(kind.spec.shape) > len(shape):
        shape.append(1)
    more = {} if content_type is None else {"parameters": {"content_type": content_type}}
    return {"name": "x", "datatype": datatype, "shape": shape, "data": data, **more}


def _is_json(kind: Kind, values: list[Any]) -> bool:
    """Whether they are values of JSON, or the kind says which texts are dates or bytes."""
    types = set(map(type, _flatten(values)))
    if kind.spec is None and kind.annotation_of is None:
        return bytes not in types
    return (bytes not in types or kind.family == "bytes") and (datetime not in types or "date" in kind.family)


_OF_LISTS: Final = {
    float: ("FP64", None),
    int: ("INT64", None),
    bool: ("BOOL", None),
    str: ("BYTES", "str"),
    bytes: ("BYTES", None),
    datetime: ("BYTES", "datetime"),
}


def _choose_datatype(kind: Kind, values: list[Any]) -> tuple[str | None, str | None]:
    """The datatype and the content type: as declared, else by the values."""
    if kind.spec is not None:
        return kind.spec.datatype, kind.spec.content_type
    leaves = [each for each in _flatten(values) if each is not None]
    types, largest = set(map(type, leaves)), max((abs(each) for each in leaves if type(each) is int), default=0)
    if kind.annotation_of is not None:
        is_large = kind.annotation_of is int and types == {int} and largest >= 2**63
        return ("UINT64", None) if is_large and min(leaves) >= 0 else _OF_LISTS[kind.annotation_of]
    if types == {int} and None not in values:
        return ("INT64" if largest <= 2**63 else "UINT64" if largest < 2**64 else None), None
    if not values or (types and types <= {int, float}):
        return (None if largest > 2**53 else "FP64"), None  # which would round it
    if types == {datetime}:
        return "BYTES", "datetime"
    return {frozenset({bool}): "BOOL", frozenset({str}): "BYTES"}.get(frozenset(types), "BYTES" if values and not types else None), None


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
    if not types <= _TYPES[kind]:
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
    return value.isoformat() if isinstance(value, datetime) else value
