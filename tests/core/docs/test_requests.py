"""What the page's scripts make of a request: its body from tensors, and what stands besides them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.node import Scripts, needs_node

pytestmark = needs_node

X = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
Y = {"name": "y", "shape": [1], "datatype": "FP32", "data": [3]}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize(
    ("body", "action", "names"),
    [
        ({"inputs": [X, Y]}, "infer", ["x", "y"]),
        ({"id": "a"}, "infer", []),
        ({"x": [[1, 2]], "y": 3}, "generate", ["x", "y"]),
        ([{"x": 1}, {"y": 2}], "generate", ["x", "y"]),
        (None, "infer", None),
        (5, "generate", None),
        ([], "infer_stream", None),
        ({"inputs": [None]}, "infer", None),
        ({"inputs": [{"name": 5}]}, "infer", None),
    ],
)
def test_a_body_has_tensors_or_is_no_request(scripts: Scripts, body: Any, action: str, names: list[str] | None) -> None:
    found = scripts.value_of("request.tensorsOf(body, action)?.map(({ name }) => name) ?? null", body=json.dumps(body), action=action)
    assert found == names


@pytest.mark.parametrize(
    ("body", "action", "written"),
    [
        ({"id": "a", "inputs": [X, Y], "outputs": []}, "infer", {"id": "a", "inputs": [{**X, "data": [5, 6]}, Y], "outputs": []}),
        ({"id": "a", "x": [[1, 2]], "y": 3}, "generate", {"id": "a", "x": [5, 6], "y": 3}),
    ],
)
def test_what_stands_besides_the_tensors_of_the_fields_stays(scripts: Scripts, body: Any, action: str, written: Any) -> None:
    asked = "request.bodyOf([tensor], action, request.besides(body, action, ['x']))"
    assert json.loads(scripts.value_of(asked, tensor={**X, "data": [5, 6]}, body=json.dumps(body), action=action)) == written


@pytest.mark.parametrize(
    "more", [{"outputs": {}}, {"outputs": [None]}, {"inputs": [{**X, "shape": {}}]}, {"inputs": [{**X, "datatype": 'FP32"); print("'}]}]
)
def test_code_of_clients_is_made_of_requests_of_the_protocol_alone(scripts: Scripts, more: Any) -> None:
    asked = """Object.entries(snippets.LANGUAGES).filter(([, { make }]) => make(
        { name: "m", action: "infer", url: "http://h/v2/models/m/infer", headers: {}, body, parts: [], sources: [], streams: false }
    )).map(([name]) => name)"""
    assert scripts.value_of(asked, body=json.dumps({"inputs": [X]})) == ["curl", "oip_asgi", "httpx2", "tritonclient", "fetch", "gRPC"]
    assert scripts.value_of(asked, body=json.dumps({"inputs": [X], **more})) == ["curl", "httpx2", "fetch"]
