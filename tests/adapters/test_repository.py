"""The model repository extension: the index, load and unload over REST through every adapter."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from oip_asgi import InferenceServer, LoadParameters, OIPApp
from tests.support.loading import register_made
from tests.support.ways import Answer, Request, Way, over_asgi, ways_into


def post(path: str, document: Any = None) -> Request:
    return Request("POST", path, (), b"" if document is None else json.dumps(document).encode())


def make_server(got: list[LoadParameters], *, model_control: bool = True) -> InferenceServer:
    server = InferenceServer("here", "1", model_control=model_control)
    register_made(server, got)
    server.register("plain", lambda: 1)
    server.register("org/many", lambda: 1, version="1")
    server.register("org/many", lambda: 1, version="2", load=lambda: None)
    return server


@pytest.fixture
def got() -> list[LoadParameters]:
    return []


@pytest.fixture
def way(got: list[LoadParameters]) -> Way:
    return over_asgi(OIPApp(make_server(got)), "")


def index(way: Way, document: Any = None) -> dict[str, tuple[str, str]]:
    """The state and the reason of each model, the last version counting."""
    answer = way(post("/repository/index", document))
    assert answer.status == 200
    return {entry["name"]: (entry["state"], entry.get("reason", "")) for entry in json.loads(answer.body)}


def told(answer: Answer) -> tuple[int, Any]:
    return answer.status, json.loads(answer.body)["error"] if answer.body else ""


def test_every_adapter_indexes_loads_and_unloads(got: list[LoadParameters]) -> None:
    """What is refused, and where the control is off, are rows of the table."""
    server = make_server(got)
    indexed = (
        b'[{"name":"made","state":"UNAVAILABLE","reason":"not loaded yet"},{"name":"plain","state":"READY"},'
        b'{"name":"org/many","version":"1","state":"READY"},'
        b'{"name":"org/many","version":"2","state":"UNAVAILABLE","reason":"not loaded yet"}]'
    )
    ready = b'[{"name":"plain","state":"READY"},{"name":"org/many","version":"1","state":"READY"}]'
    ways = ways_into(server)
    for name, way in ways.items():
        for body in (b"", b'{"ready":false}', b'{"ready":null,"other":1}'):
            answer = way(Request("POST", "/repository/index", (), body))
            assert (name, answer.status, answer.body, answer.headers["content-type"]) == (name, 200, indexed, "application/json")
        assert way(Request("POST", "/repository/index/", (), b'{"ready":true}')).body == ready
    assert got == []
    for name, way in ways.items():
        for model in ("plain", "org%2Fmany"):
            unloaded = way(post(f"/repository/models/{model}/unload", {"parameters": {"unload_dependents": False}}))
            assert (name, unloaded.status, unloaded.body, unloaded.headers["content-length"]) == (name, 200, b"", "0")
            assert way(Request("GET", f"/models/{model}/ready")).status == 503
            assert way(post(f"/repository/models/{model}/load", {})).status == 200
            assert way(Request("GET", f"/models/{model}/ready")).status == 200
    assert [status.state for status in server.models()] == ["registered", "ready", "ready", "ready"]
    server.stop()


def test_the_states_of_a_life(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    path, failing = "/repository/models/made", {"parameters": {"config": '{"fail": true}'}}
    assert told(way(post(f"{path}/load", failing))) == (500, "failed to load 'made': see the server's log")
    assert index(way)["made"] == ("UNAVAILABLE", "load failed, see the server's log")
    assert way(Request("GET", "/health/ready")).status == 503
    assert way(post(f"{path}/load")).status == 200
    assert index(way, {"ready": True})["made"] == ("READY", "")
    assert way(Request("GET", "/health/ready")).status == 200
    assert told(way(post(f"{path}/load", failing))) == (500, "failed to load 'made': see the server's log")
    assert index(way)["made"] == ("READY", "load failed, see the server's log: what was loaded before still serves")
    assert way(Request("GET", "/health/ready")).status == 200
    assert way(post(f"{path}/unload")).status == 200
    assert index(way)["made"] == ("UNAVAILABLE", "unloaded")
    assert "made" not in index(way, {"ready": True})
    assert way(Request("GET", "/models/made")).status == 200
    assert way(Request("GET", "/health/ready")).status == 200
    assert "a secret" in caplog.text


def test_a_load_gets_its_parameters_and_files(way: Way, got: list[LoadParameters]) -> None:
    content = b"\0weights"
    parameters = {"config": '{"backend": "onnx"}', "file:1/model.onnx": base64.b64encode(content).decode(), "file:labels.txt": "", "n": 3}
    for sent in ({"parameters": parameters}, None, {"parameters": {"config": "{}", "file:1/a": LARGE}}):
        assert way(post("/repository/models/made/load", sent)).status == 200
    assert [(each.config, each.files, each.parameters) for each in got] == [
        ({"backend": "onnx"}, {"1/model.onnx": content, "labels.txt": b""}, {"n": 3}),
        ({}, {}, {}),
        ({}, {"1/a": bytes(200_000)}, {}),
    ]


LARGE = base64.b64encode(bytes(200_000)).decode()


@pytest.mark.parametrize(
    ("model", "document", "text"),
    [
        ("made", {"parameters": {"config": {"backend": "onnx"}}}, "the body cannot be read"),
        ("made", {"parameters": {"config": 1}}, "parameters.config: expected the text of a JSON object, but got 1"),
        ("made", {"parameters": {"config": "[]"}}, "parameters.config: expected the text of a JSON object: "),
        ("made", {"parameters": {"config": "{"}}, "parameters.config: expected the text of a JSON object: "),
        ("made", {"parameters": {"config": "[" * 100_000}}, "parameters.config: expected the text of a JSON object: "),
        ("made", {"parameters": {"file:1/a": ""}}, "parameters have files but no config"),
        ("made", {"parameters": {"config": "{}", "file:1/a": "%"}}, "parameters['file:1/a']: expected base64"),
        ("made", {"parameters": {"config": "{}", "file:1/a": LARGE + "%"}}, "parameters['file:1/a']: expected base64"),
        ("made", {"parameters": {"config": "{}", "file:1/a": True}}, "parameters['file:1/a']: expected base64, but got True"),
        *(
            ("made", {"parameters": {"config": "{}", f"file:{path}": ""}}, f"parameters['file:{path}']: expected a relative path")
            for path in ("/etc/x", "../x", "1/../../x", "", "1//x", "1/.", "C:/x", "C:x", "1/..")
        ),
        ("made", {"parameters": {"config": "{}", "file:..\\x": ""}}, "parameters['file:..\\\\x']: expected a relative path"),
        ("made", [], "the body cannot be read"),
        ("made", {"parameters": []}, "the body cannot be read"),
        ("plain", {"parameters": {"config": "{}", "x": 1}}, "model 'plain' takes no parameters"),
        ("plain", {"parameters": {"x": 1}}, "model 'plain' takes no parameters"),
    ],
)
def test_a_wrong_load_is_refused(way: Way, got: list[LoadParameters], model: str, document: Any, text: str) -> None:
    status, error = told(way(post(f"/repository/models/{model}/load", document)))
    assert status == 400
    assert error.startswith(text)
    assert got == []


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"unload_dependents": "yes"}, "parameters.unload_dependents: expected a boolean, but got 'yes'"),
        ({"unload_dependents": 1}, "parameters.unload_dependents: expected a boolean, but got 1"),
        ({"force": True}, "unknown parameter 'force': expected unload_dependents, or none"),
    ],
)
def test_a_wrong_unload_is_refused(way: Way, parameters: Any, text: str) -> None:
    assert told(way(post("/repository/models/plain/unload", {"parameters": parameters}))) == (400, text)
    assert index(way)["plain"] == ("READY", "")
    assert way(post("/repository/models/plain/unload", {"parameters": {"unload_dependents": True}})).status == 200


@pytest.mark.parametrize("action", ["index", "models/plain/load", "models/plain/unload"])
def test_what_is_too_large_or_not_json(action: str) -> None:
    server = InferenceServer(max_body_bytes=100, model_control=True)
    server.register("plain", lambda: 1)
    way = over_asgi(OIPApp(server), "")
    assert "model_repository" in json.loads(way(Request("GET", "")).body)["extensions"]
    for body, status in ((b" " * 101, 413), (b"{", 400)):
        assert way(Request("POST", f"/repository/{action}", (), body)).status == status
    if action != "index":
        status, text = told(way(post(f"/repository/{action}".replace("plain", "nope"))))
        assert (status, text.partition(":")[0]) == (404, "Request for unknown model")
