"""Requests that say nothing but arrays: the same bytes as if all of their objects had been made, which an observer asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.grpc_asgi import ASGI_CLIENTS
from tests.support.grpc_ways import wire_request
from tests.support.ways import Answer, Request, over_asgi

X: Final = {"name": "x", "shape": [2, 2], "datatype": "FP32"}
N: Final = {"name": "n", "shape": [1], "datatype": "INT64"}
ROWS: Final = [[0.5, -1], [1e30, 3]]
TWO: Final = [{**X, "data": ROWS}, {**N, "data": [7]}]
AS_JSON: Final = {"parameters": {"binary_data": False}}


def document(inputs: Any, **more: Any) -> Request:
    return Request("POST", "/models/m/infer", (), json.dumps({"inputs": inputs, **more}).encode())


def framed(inputs: Any, data: bytes, **more: Any) -> Request:
    text = json.dumps({"inputs": inputs, **more}).encode()
    return Request("POST", "/models/m/infer", (("inference-header-content-length", str(len(text))),), text + data)


def as_bytes(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "parameters": {"binary_data": True, **more}}


EACH_AS_BYTES: Final = [as_bytes("y"), as_bytes("m")]


def sized(tensor: dict[str, Any], size: int) -> dict[str, Any]:
    return {**tensor, "parameters": {"binary_data_size": size}}


BYTES: Final = np.array(ROWS, np.float32).tobytes() + np.array([7], np.int64).tobytes()
BINARY: Final = [sized(X, 16), sized(N, 8)]
REQUESTS: Final[dict[str, Request]] = {
    "JSON": document(TWO),
    "with an id": document(TWO, id="a"),
    "an empty id": document(TWO, id=""),
    "flat": document([{**X, "data": [1, 2, 3, 4]}, TWO[1]]),
    "missing numbers": document([{**X, "data": [[None, "NaN"], ["Infinity", 1]]}, TWO[1]]),
    "in another order": document(TWO[::-1]),
    "no rows": document([{**X, "shape": [0, 2], "data": []}, TWO[1]]),
    "binary": framed(BINARY, BYTES),
    "binary and JSON": framed([TWO[0], BINARY[1]], BYTES[16:]),
    "binary, all outputs too": framed(BINARY, BYTES, parameters={"binary_data_output": True}),
    "JSON, all outputs binary": document(TWO, parameters={"binary_data_output": True}),
    "all outputs as JSON": framed(BINARY, BYTES, parameters={"binary_data_output": False}),
    "each output as bytes": document(TWO, outputs=EACH_AS_BYTES),
    "each output by the flag of all": document(TWO, parameters={"binary_data_output": True}, outputs=[{"name": "y"}, {"name": "m"}]),
    "one as bytes and one not": document(TWO, outputs=[as_bytes("y"), {"name": "m", **AS_JSON}]),
    "outputs in another order": document(TWO, outputs=[{"name": "m"}, {"name": "y"}]),
    "one output": document(TWO, outputs=[{"name": "y"}]),
    "an unknown output": document(TWO, outputs=[{"name": "y"}, {"name": "z"}]),
    "a content type is asked for": document(TWO, outputs=[{"name": "y", "parameters": {"content_type": "np"}}, {"name": "m"}]),
    "a class is asked for": document(TWO, outputs=[{"name": "y"}, {"name": "m", "parameters": {"classification": 1}}]),
    "an output as bytes, of a class": document(
        TWO, outputs=[{"name": "y"}, {"name": "m", "parameters": {"binary_data": True, "classification": 1}}]
    ),
    "an output as bytes, of a content type": document(
        TWO, outputs=[{"name": "y"}, {"name": "m", "parameters": {"binary_data": True, "content_type": "np"}}]
    ),
    "a second flag that is none": document(TWO, outputs=[EACH_AS_BYTES[0], {"name": "m", "parameters": {"binary_data": 1}}]),
    "a content type": document([{**TWO[0], "parameters": {"content_type": "np"}}, TWO[1]]),
    "a content type of all": document(TWO, parameters={"content_type": "np"}),
    "a timeout": document(TWO, parameters={"timeout": 10**8}),
    "each output as bytes, a content type of all": document(TWO, parameters={"content_type": "none"}, outputs=EACH_AS_BYTES),
    "each output as bytes, a timeout that is none": document(TWO, parameters={"timeout": "a"}, outputs=EACH_AS_BYTES),
    "each output as bytes, a flag that is none": document(TWO, parameters={"binary_data_output": 1}, outputs=EACH_AS_BYTES),
    "a flag that is none": document(TWO, parameters={"binary_data_output": 1}),
    "an output's flag that is none": document(TWO, outputs=[{"name": "y", "parameters": {"binary_data": 1}}, {"name": "m"}]),
    "an input less": document(TWO[:1]),
    "an input twice": document([TWO[0], TWO[0]]),
    "an input more": document([*TWO, {**N, "name": "o", "data": [1]}]),
    "another name": document([{**TWO[0], "name": "z"}, TWO[1]]),
    "another datatype": document([{**TWO[0], "datatype": "FP64"}, TWO[1]]),
    "another shape": document([{**TWO[0], "shape": [4]}, TWO[1]]),
    "too few elements": document([{**X, "data": [1, 2, 3]}, TWO[1]]),
    "a fraction": document([TWO[0], {**N, "data": [1.5]}]),
    "a whole float": document([TWO[0], {**N, "data": [2.0]}]),
    "out of range": document([{**X, "data": [1e40, 0, 0, 0]}, TWO[1]]),
    "no data": document([X, TWO[1]]),
    "data and bytes": framed([sized(TWO[0], 16), BINARY[1]], BYTES),
    "bytes missing": framed(BINARY, BYTES[:-1]),
    "bytes left": framed(BINARY, BYTES + b"\0"),
    "bytes without the header": document(BINARY),
    "a size that is none": framed([sized(X, -1), BINARY[1]], BYTES),
    "long": document([{**X, "shape": [3000, 2], "data": [0.25] * 6000}, TWO[1]]),
    "long bytes": framed([sized({**X, "shape": [3000, 2]}, 24000), BINARY[1]], np.ones(6000, np.float32).tobytes() + BYTES[16:]),
}

RESULTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "arrays by name": lambda x, n: {"y": x * 2, "m": n},
    "a tuple": lambda x, n: (x, n),
    "lists": lambda x, n: {"y": x.tolist(), "m": [1]},
    "another dtype": lambda x, n: {"y": x.astype(np.float64), "m": n},
    "another shape": lambda x, n: {"y": x.ravel(), "m": n},
    "big-endian": lambda x, n: {"y": x.astype(">f4"), "m": n},
    "columns first": lambda x, n: {"y": np.asfortranarray(x), "m": n},
    "not finite": lambda x, n: {"y": np.array([[np.nan, np.inf], [-np.inf, 1]], np.float32), "m": n},
    "an output less": lambda x, n: {"y": x},
    "an output more": lambda x, n: {"y": x, "m": n, "z": n},
    "another name": lambda x, n: {"y": x, "k": n},
    "one array": lambda x, n: x,
    "None": lambda x, n: None,
    "long": lambda x, n: {"y": np.ones((3000, 2), np.float32), "m": n},
    "nothing": lambda x, n: {"y": np.empty((0, 2), np.float32), "m": n},
    "a subclass": lambda x, n: {"y": np.ma.masked_array(x), "m": n},
    "an error": lambda x, n: {"y": x.reshape(7), "m": n},
    "it reshapes its inputs": lambda x, n: x.__setattr__("shape", (-1, 1)) or {"y": [[1.0, 2.0]], "m": n},
    "it reshapes its inputs, and raises": lambda x, n: x.__setattr__("shape", (-1, 1)) or x.reshape(7),
    "it writes": lambda x, n: {"y": x.__iadd__(1), "m": n},
}

NOT_AS_DECLARED: Final = ("an output less", "an output more", "another name", "one array", "another shape")


def make_server(function: Callable[[Any, Any], Any], run: str, *, is_declared: bool, is_observed: bool) -> InferenceServer:
    server = InferenceServer()
    model: Any = function

    async def awaited(x: Any, n: Any) -> Any:
        return function(x, n)

    if run == "async":
        model = awaited
    inputs = [TensorSpec("x", "FP32", [-1, 2]), TensorSpec("n", "INT64", [1])] if is_declared else []
    outputs = [TensorSpec("y", "FP32", [-1, 2]), TensorSpec("m", "INT64", [1])] if is_declared else []
    where: Any = "inline" if run == "inline" else "thread"
    server.register("m", model, inputs=inputs, outputs=outputs, run=where, version="3" if run == "async" else None)
    if is_observed:
        server.observe(lambda _: None)
    return server


def ask(function: Callable[[Any, Any], Any], run: str, requests: dict[str, Request], *, is_declared: bool) -> dict[str, Answer]:
    """The answers of a server, which are those of an observed one."""
    found: list[dict[str, Answer]] = []
    for is_observed in (False, True):
        server = make_server(function, run, is_declared=is_declared, is_observed=is_observed)
        way = over_asgi(OIPApp(server), "")
        found.append({name: way(request) for name, request in requests.items()})
        server.stop()
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("run", ["inline", "async", "thread"])
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "undeclared"])
def test_requests_are_answered_alike(run: str, is_declared: bool) -> None:
    answers = ask(RESULTS["arrays by name"], run, REQUESTS, is_declared=is_declared)
    assert json.loads(answers["JSON"].body)["outputs"][1]["data"] == [7]
    assert {answers[name].status for name in ("JSON", "binary", "no rows", "long bytes")} == {200}
    assert b'"content_type":"np"' in answers["an output as bytes, of a content type"].body
    assert b'"BYTES"' in answers["an output as bytes, of a class"].body
    wrong = ["a second flag that is none"]
    wrong += [name for name in REQUESTS if name.startswith("each output as bytes, ")]
    assert {answers[name].status for name in ("an input less", "too few elements", "bytes left", "no data", *wrong)} == {400}


@pytest.mark.parametrize("run", ["inline", "async", "thread"])
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "undeclared"])
def test_results_are_answered_alike(run: str, name: str, is_declared: bool) -> None:
    requests = {each: REQUESTS[each] for each in ("JSON", "binary, all outputs too", "with an id")}
    answers = ask(RESULTS[name], run, requests, is_declared=is_declared)
    is_wrong = name in ("an error", "it reshapes its inputs, and raises", "it writes", "None") or (is_declared and name in NOT_AS_DECLARED)
    assert {answer.status for answer in answers.values()} == {500 if is_wrong else 200}


def test_bf16_is_named() -> None:
    server = InferenceServer()
    inputs, outputs = [TensorSpec("x", "BF16", [-1])], [TensorSpec("y", "BF16", [-1])]
    server.register("m", lambda x: x, inputs=inputs, outputs=outputs, run="inline")
    way, sent = over_asgi(OIPApp(server), ""), {"name": "x", "shape": [1], "datatype": "BF16"}
    for request in (document([{**sent, "data": [1.5]}]), framed([sized(sent, 2)], b"\xc0?")):
        assert json.loads(way(request).body)["outputs"] == [{"name": "y", "shape": [1], "datatype": "BF16", "data": [1.5]}]
    answer = ASGI_CLIENTS["ASGI"](server).ask("ModelInfer", wire_request("m", [sent], [b"\xc0?"]))
    assert answer.outputs[0].datatype == "BF16"
    server.stop()


@pytest.mark.parametrize("make_client", ASGI_CLIENTS.values(), ids=ASGI_CLIENTS)
def test_messages_of_grpc_are_answered_alike(make_client: Any) -> None:
    raw = [BYTES[:16], BYTES[16:]]
    inputs = [{**X}, {**N}]
    requests = {
        "raw": wire_request("m", inputs, raw),
        "with an id": wire_request("m", inputs, raw, id="a"),
        "short": wire_request("m", inputs, [raw[0][1:], raw[1]]),
        "a negative shape": wire_request("m", [{**X, "shape": [-2, -2]}, {**N}], raw),
        "another order": wire_request("m", inputs[::-1], raw[::-1]),
        "one raw content": wire_request("m", inputs, raw[:1]),
        "a parameter": wire_request("m", inputs, raw, parameters={"priority": {"int64_param": 1}}),
        "an output": wire_request("m", inputs, raw, outputs=[{"name": "m"}]),
        "typed": wire_request("m", [{**X, "contents": {"fp32_contents": [1, 2, 3, 4]}}, {**N, "contents": {"int64_contents": [7]}}]),
        "both": wire_request("m", [{**X, "contents": {"fp32_contents": [1, 2, 3, 4]}}, {**N}], raw),
    }
    found = []
    for is_observed in (False, True):
        client = make_client(make_server(RESULTS["arrays by name"], "inline", is_declared=True, is_observed=is_observed))
        found.append({name: client.got("ModelInfer", message) for name, message in requests.items()})
    assert str(found[0]) == str(found[1])
