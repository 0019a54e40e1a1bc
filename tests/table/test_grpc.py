"""The table of requests over gRPC: what a message can say of a row is answered with the same arrays and the same texts as over REST.

JSON `data` becomes `contents`, and binary data raw contents. Rows that speak of HTTP or of JSON itself have no counterpart.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceRequest, InferenceResponse, InferenceServer, OIPApp, Tensor
from tests.support.grpc_asgi import ASGI_CLIENTS, ASGIClient
from tests.support.grpc_ways import SERVINGS, Client, made, wire_request
from tests.support.inside.grpc import TYPED
from tests.support.inside.rest import from_json
from tests.support.inside.values import dtype_of, from_bytes, to_bytes
from tests.support.ways import Answer, Request, over_asgi
from tests.table.body_rows import limit_rows, raw_request_rows
from tests.table.json_rows import document_rows
from tests.table.page_rows import browser_rows
from tests.table.row import MAX_BODY_BYTES, Row, table_server
from tests.table.rows import rows

PATH: Final = re.compile(r"/models/(?P<name>.+?)(/versions/(?P<version>[^/]+))?(?P<action>/ready|/infer)?")
LENGTH: Final = "inference-header-content-length"
CODES: Final = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 418: "INVALID_ARGUMENT", 500: "INTERNAL", 504: "DEADLINE_EXCEEDED"}
OTHERWISE_OVER_GRPC: Final = {
    "bytes that are not UTF-8": "BYTES travel as they are",
    "binary_data no boolean": "the flag chooses a form of REST's",
    "binary_data_output no boolean": "the flag chooses a form of REST's",
}


class NoCounterpart(Exception):
    """No message can say what the row says."""


class Asked(NamedTuple):
    method: str
    message: Any


def translated(request: Request) -> Asked:
    """A row's request as a call.

    Raises:
        NoCounterpart: There is none.
    """
    simple = {"": "ServerMetadata", "/health/live": "ServerLive", "/health/ready": "ServerReady"}
    path = request.path.partition("?")[0].removesuffix("/")
    if request.method == "GET" and path in simple:
        return Asked(simple[path], made(simple[path] + "Request"))
    found = PATH.fullmatch(unquote(path))
    if found is None:
        raise NoCounterpart("not the path of a method")
    name, version, action = found["name"], found["version"] or "", found["action"] or ""
    if request.method == "GET" and action != "/infer":
        method = "ModelReady" if action == "/ready" else "ModelMetadata"
        return Asked(method, made(f"{method}Request", name=name, version=version))
    if request.method != "POST" or action != "/infer":
        raise NoCounterpart("no such method")
    try:
        message = infer_request(request)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise NoCounterpart("no such message") from error
    message.model_name, message.model_version = name, version
    return Asked("ModelInfer", message)


def infer_request(request: Request) -> Any:
    headers = dict(request.headers)
    if set(headers) - {LENGTH, "content-type"} or headers.get(LENGTH) == "0":
        raise ValueError("speaks of HTTP")
    length = int(headers.get(LENGTH, len(request.body)))
    document, data = json.loads(request.body[:length], parse_float=exact_float), request.body[length:]
    message = made("ModelInferRequest", id=document.get("id") or "")
    fill_parameters(message.parameters, document.get("parameters"))
    for item in document["inputs"]:
        if any(item[field] is None for field in ("name", "datatype", "shape")) or any(size is True for size in item["shape"]):
            raise ValueError("speaks of JSON's types")
        tensor = message.inputs.add(name=item["name"], datatype=item["datatype"], shape=item["shape"])
        parameters = item.get("parameters")
        size = parameters.pop("binary_data_size", None) if parameters else None
        fill_parameters(tensor.parameters, parameters)
        if size is not None:
            if type(size) is not int or not 0 <= size <= len(data) or item.get("data") is not None:
                raise ValueError("speaks of framing")
            message.raw_input_contents.append(data[:size])
            data = data[size:]
        elif item["datatype"] in TYPED:
            elements = as_contents(item["data"], item["shape"], item["datatype"])
            getattr(tensor.contents, TYPED[item["datatype"]]).extend(elements)
        else:
            message.raw_input_contents.append(as_raw(item))
    if data:
        raise ValueError("speaks of framing")
    if isinstance(document.get("outputs"), dict):
        raise ValueError("speaks of JSON's types")
    for output in document.get("outputs") or []:
        fill_parameters(message.outputs.add(name=output["name"]).parameters, output.get("parameters"))
    if message.raw_input_contents and len(message.raw_input_contents) != len(message.inputs):
        raise ValueError("mixes the forms")
    return message


def exact_float(text: str) -> float:
    value = float(text)
    if math.isinf(value) or (value == 0) != (Decimal(text) == 0):
        raise ValueError("speaks of JSON's numbers")
    return value


def fill_parameters(parameters: Any, values: Any) -> None:
    fields = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for name, value in ({} if values is None else values).items():
        setattr(parameters[name], fields[type(value)], value)


def as_contents(data: Any, shape: Any, datatype: str) -> list[Any]:
    """Flat elements of the right Python type, where they can be had without changing what the row says."""
    if not isinstance(data, list) and shape:
        raise ValueError("speaks of nesting")
    if isinstance(data, list) and any(isinstance(item, list) for item in data) and list(np.shape(data)) != shape:
        raise ValueError("speaks of nesting")
    flat = np.array(data, object).ravel().tolist()
    kind = dtype_of(datatype).kind
    if kind == "f" and not any(isinstance(element, bool) for element in flat):
        names = {None: np.nan, "NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
        floats = [element if isinstance(element, (int, float)) else names[element] for element in flat]
        if datatype == "FP32" and any(math.isfinite(element) and abs(element) > float(np.finfo("f4").max) for element in floats):
            raise ValueError("beyond what contents can hold")
        return floats
    if kind in "ui" and all(type(element) in (int, float) for element in flat) and all(element == int(element) for element in flat):
        if any(type(element) is float and element >= 2**53 for element in flat):
            raise ValueError("speaks of digits")
        return [int(element) for element in flat]
    if kind == "b" and all(element in (True, False) and type(element) is not float for element in flat):
        return [bool(element) for element in flat]
    if kind == "O" and all(isinstance(element, str) for element in flat):
        return [element.encode() for element in flat]
    raise ValueError("elements of another type")


def as_raw(item: Any) -> bytes:
    """FP16 and BF16, which have no typed contents."""
    text = re.sub('(?<!")(NaN|-?Infinity)(?!")', r'"\1"', json.dumps(item["data"]))
    try:
        return to_bytes(from_json(text.encode(), dtype_of(item["datatype"]), tuple(item["shape"])))
    except InferenceError as error:
        raise ValueError("speaks of JSON's elements") from error


def asked_rows() -> Iterator[tuple[Row, Asked]]:
    of_json_or_http = {row.name for row in (*document_rows(), *limit_rows(), *raw_request_rows(), *browser_rows())}
    for row in rows():
        of_rest_alone = ("/trace/setting", "/openapi.json", "/docs/dataplane.json")
        is_of_paths = "unknown path" in row.text or row.request.path.removesuffix("/").endswith(of_rest_alone)
        if row.name in of_json_or_http or row.name in OTHERWISE_OVER_GRPC or is_of_paths:
            continue
        try:
            yield row, translated(row.request)
        except NoCounterpart:
            continue


ASKED: Final = list(asked_rows())


def named(value: Any) -> str:
    return str(value) if isinstance(value, Row) else value.method


@pytest.fixture(scope="module")
def calls() -> list[str]:
    return []


@pytest.fixture(scope="module")
def server(calls: list[str]) -> InferenceServer:
    return table_server(calls)


@pytest.fixture(scope="module")
def clients(server: InferenceServer) -> Iterator[dict[str, Client | ASGIClient]]:
    """A client for each way in."""
    with ExitStack() as stack:
        over_sockets = {name: Client(stack.enter_context(serve(server))) for name, serve in SERVINGS.items()}
        yield {**over_sockets, **{name: make(server) for name, make in ASGI_CLIENTS.items()}}


def test_much_of_the_table_has_a_counterpart() -> None:
    assert sum(row.status == 200 for row, _ in ASKED) >= 150
    assert sum(row.status != 200 for row, _ in ASKED) >= 80


@pytest.mark.parametrize(("row", "asked"), [pair for pair in ASKED if pair[0].status == 200], ids=named)
def test_a_good_row_is_answered_as_over_rest(
    row: Row, asked: Asked, clients: dict[str, Client | ASGIClient], server: InferenceServer
) -> None:
    over_rest = over_asgi(OIPApp(server), "")(row.request)
    for client in clients.values():
        response = client.ask(asked.method, asked.message)
        if asked.method == "ModelInfer":
            assert_same_inference(over_rest, response)
        else:
            document = json.loads(over_rest.body)
            for field in response.DESCRIPTOR.fields:
                found = as_json(getattr(response, field.name))
                assert found == document.get(field.name, type(found)())


def as_json(value: Any) -> Any:
    if isinstance(value, (str, bool)):
        return value
    if hasattr(value, "items"):
        return {name: getattr(parameter, parameter.WhichOneof("parameter_choice")) for name, parameter in value.items()}
    return [item if isinstance(item, str) else describe(item) for item in value]


def describe(tensor: Any) -> dict[str, Any]:
    parameters = {"parameters": as_json(tensor.parameters)} if tensor.parameters else {}
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": [*tensor.shape], **parameters}


def assert_same_inference(over_rest: Answer, response: Any) -> None:
    length = int(over_rest.headers.get(LENGTH, len(over_rest.body)))
    document, data = json.loads(over_rest.body[:length]), over_rest.body[length:]
    assert response.model_name == document["model_name"]
    assert response.model_version == document.get("model_version", "")
    assert response.id == document.get("id", "")
    expected = made("ModelInferResponse")
    fill_parameters(expected.parameters, document.get("parameters"))
    assert response.parameters == expected.parameters
    for output, described, raw in zip(response.outputs, document["outputs"], response.raw_output_contents, strict=True):
        assert (output.name, output.datatype, [*output.shape]) == (described["name"], described["datatype"], described["shape"])
        dtype, shape = dtype_of(output.datatype), tuple(output.shape)
        size = described.get("parameters", {}).get("binary_data_size")
        if size is None:
            wanted = from_json(json.dumps(described["data"]).encode(), dtype, shape)
        else:
            wanted, data = from_bytes(data[:size], dtype, shape), data[size:]
        comparable = "f8" if output.datatype in ("FP16", "BF16") else dtype
        received = from_bytes(raw, dtype, shape)
        np.testing.assert_array_equal(received.astype(comparable), wanted.astype(comparable))


@pytest.mark.parametrize(("row", "asked"), [pair for pair in ASKED if pair[0].status != 200], ids=named)
def test_a_bad_row_is_refused_as_over_rest(
    row: Row, asked: Asked, clients: dict[str, Client | ASGIClient], server: InferenceServer, calls: list[str]
) -> None:
    over_rest = over_asgi(OIPApp(server), "")(row.request)
    for name, client in clients.items():
        before = len(calls)
        code, text = client.refusal(asked.method, asked.message)
        if isinstance(client, ASGIClient) and asked.message.ByteSize() > MAX_BODY_BYTES:
            assert code == "RESOURCE_EXHAUSTED", name
            assert text == f"the body is larger than {MAX_BODY_BYTES} bytes, the most that this server takes (max_body_bytes)", name
            continue
        assert code == CODES[over_rest.status], name
        assert text == with_contents(json.loads(over_rest.body)["error"], asked.message), name
        assert len(calls) == before, f"{name}: a bad request reached the model"


def with_contents(text: str, message: Any) -> str:
    """REST's text with the field of a message in place of JSON's `data`."""
    if re.search(r"data has|data: element", text):
        [first, *_] = message.inputs
        field = TYPED[first.datatype]
        text = re.sub(r"\bdata(?= has|: element)", f"contents.{field}", text).replace(" in a flat array", "")
    return text


def message_of(model: str, request: InferenceRequest, form: str) -> Any:
    """A request as a message."""
    message = wire_request(model)
    fill_parameters(message.parameters, request.parameters)
    for tensor in request.inputs:
        item = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        fill_parameters(item.parameters, tensor.parameters)
        if form == "typed":
            item.contents.SetInParent()
            getattr(item.contents, TYPED[tensor.datatype]).extend(tensor.array.ravel().tolist())
        else:
            message.raw_input_contents.append(to_bytes(tensor.array))
    for output in request.outputs:
        fill_parameters(message.outputs.add(name=output.name).parameters, output.parameters)
    return message


def response_of(message: Any) -> InferenceResponse:
    """A message as a response."""
    outputs = [
        Tensor(item.name, from_bytes(raw, dtype_of(item.datatype), tuple(item.shape)), parameters_of(item))
        for item, raw in zip(message.outputs, message.raw_output_contents, strict=True)
    ]
    return InferenceResponse(outputs, parameters_of(message))


def parameters_of(message: Any) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in message.parameters.items()}
