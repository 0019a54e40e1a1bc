"""Models of another server, by `remote`: what is checked here, what is asked there, and what the client gets. In this process."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from oip_asgi import InferenceContext, InferenceError, InferenceRequest, InferenceServer, OIPApp, OIPWSGIApp, TensorSpec
from oip_asgi.client import remote
from tests.support.asking import NOT_READY, ask, described, error, get, logged, outputs
from tests.support.ways import Answer, Request, Way, over_asgi, over_wsgi
from tests.table.row import MAX_BODY_BYTES, MAX_JSON_BYTES, Row, table_server
from tests.table.rows import rows

ROWS = [row for row in rows() if row.request.method == "POST" and row.request.path.startswith("/models/")]

Far = Callable[[httpx2.Request], httpx2.Response]


def in_process(far: InferenceServer | Far) -> httpx2.AsyncClient:
    transport: Any = httpx2.ASGITransport(OIPApp(far)) if isinstance(far, InferenceServer) else httpx2.MockTransport(far)
    return httpx2.AsyncClient(transport=transport, base_url="http://far")


def in_front_of(far: InferenceServer | Far, *models: str, **options: Any) -> InferenceServer:
    server, http = InferenceServer(), in_process(far)
    of_remote = {name: options.pop(name) for name in ("forward", "stream", "wait", "version") if name in options}
    for model in models:
        server.register(model, load=remote("/", model, http=http, **{"wait": 0, **of_remote}), **options)
    return server


def answering(status: int, body: Any = None, **headers: str) -> Far:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            metadata = {"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], "outputs": OUTPUTS}
            return httpx2.Response(200, json={**metadata, "extensions": []})
        return httpx2.Response(status, headers=headers, **({"content": body} if isinstance(body, bytes) else {"json": body}))

    return answer


OUTPUTS = [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]
TWO = {"model_name": "m", "outputs": [{**OUTPUTS[0], "shape": [1, 2], "data": [1, 2]}]}
GOOD = np.array([[1, 2]], np.float32)


# The same answers as there


@pytest.fixture(scope="module")
def calls() -> list[str]:
    return []


@pytest.fixture(scope="module")
def ways(calls: list[str]) -> dict[str, Way]:
    far = table_server(calls)
    http, near = in_process(far), InferenceServer(max_body_bytes=MAX_BODY_BYTES, max_json_bytes=MAX_JSON_BYTES)
    for model in far.models():
        near.register(model.name, load=remote("/", model.name, version=model.version, http=http), version=model.version)
    return {"ASGI": over_asgi(OIPApp(near), ""), "WSGI": over_wsgi(OIPWSGIApp(near), "")}


@pytest.mark.parametrize("row", [pytest.param(row, marks=pytest.mark.slow) for row in ROWS], ids=str)
def test_the_table_is_answered_as_it_is_there(row: Row, ways: dict[str, Way], calls: list[str]) -> None:
    before = len(calls)
    for way in ways.values():
        answer = way(row.request)
        if row.name.endswith(", a list"):  # metadata does not tell that rows of a class may be one
            assert error(answer) == (400, "the body: expected object, got array")
            continue
        if row.status == 500:
            assert (answer.status, b"its server answered with the status 500" in answer.body) == (502, True)
            continue
        if f'"a":{2**64 - 1}' in row.name:  # a number that the other server may take for another one is not passed on
            assert (answer.status, b"cannot be passed on" in answer.body) == (400, True)
            continue
        if row.name == "timeout 1 that counts":  # only where `register` allows it
            assert answer.status == 200
            continue
        assert answer.status == row.status, answer.body
        if row.status == 200:
            assert answer.body == row.body
        else:
            assert len(calls) == before, "a bad request reached the model"


# The declaration


def test_what_is_wrong_is_refused_here() -> None:
    asked: list[str] = []

    def far(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        return answering(200, TWO)(request)

    near = in_front_of(far, "m")
    assert outputs(ask(near, "m", x=GOOD)) == {"y": [1.0, 2.0]}
    assert asked.count("POST") == 1
    assert error(ask(near, "m", x=np.array([[1, 2, 3]], np.float32))) == (400, "input 'x' has shape [1, 3]: expected [-1, 2]")
    assert error(ask(near, "m", x=np.array([[1, 2]])))[0] == 400
    assert error(ask(near, "m", z=GOOD))[0] == 400
    assert error(ask(near, "m", {"outputs": [{"name": "z"}]}, x=GOOD)) == (400, "unknown output 'z': expected 'y'")
    assert asked.count("POST") == 1
    assert get(near, "/models/m")[1]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]


def test_an_input_without_a_declared_shape_or_with_a_default_is_taken_as_there() -> None:
    far = InferenceServer()

    @far.model("add")
    def add(x: npt.NDArray[np.float32], bias: npt.NDArray[np.float32] = np.array([1], np.float32)) -> Any:
        return x + bias

    far.register("undeclared", lambda a, b: a + b)
    near = in_front_of(far, "add", "undeclared")
    assert outputs(ask(near, "add", x=GOOD)) == {"output_0": [2.0, 3.0]}
    assert outputs(ask(near, "add", x=GOOD, bias=np.array([2], np.float32))) == {"output_0": [3.0, 4.0]}
    assert outputs(ask(near, "undeclared", a=GOOD, b=GOOD)) == {"output_0": [2.0, 4.0]}


def test_what_register_declares_goes_before_what_the_other_server_says() -> None:
    far = answering(200, {"model_name": "m", "outputs": [{**OUTPUTS[0], "shape": [1, 2], "data": [3, 4]}]})
    near = in_front_of(far, "m", inputs=[TensorSpec("x", "FP32", [1])])
    assert error(ask(near, "m", x=GOOD)) == (400, "input 'x' has shape [1, 2]: expected [1]")
    assert ask(in_front_of(far, "m", outputs=[TensorSpec("y", "FP64", [-1, 2])]), "m", x=GOOD).body == (
        b'{"model_name":"m","outputs":[{"name":"y","shape":[1,2],"datatype":"FP64","data":[3.0,4.0]}]}'
    )
    assert ask(in_front_of(far, "m", outputs=[TensorSpec("z", "FP32", [-1, 2])]), "m", x=GOOD).status == 500


def test_an_input_of_other_datatypes_than_its_own_takes_them_here_too() -> None:
    far = InferenceServer()
    frame = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0], "colour": ["red", "blue", "red", "blue"]})
    far.register("array", LinearRegression().fit(np.arange(4.0)[:, None], np.arange(4.0)).predict)
    steps = make_column_transformer(("passthrough", ["size"]), (OneHotEncoder(), ["colour"]))
    far.register("frame", make_pipeline(steps, LinearRegression()).fit(frame, np.arange(4.0)).predict)
    near = in_front_of(far, "array", "frame")
    ask(near, "array"), ask(near, "frame")  # which loads them
    for name in ("array", "frame"):
        assert get(near, f"/models/{name}")[1]["inputs"] == get(far, f"/models/{name}")[1]["inputs"]
    [declared] = get(near, "/models/array")[1]["inputs"]
    assert declared == {"name": "X", "datatype": "FP64", "shape": [-1, 1], "parameters": {"other_datatypes": "numbers"}}
    assert error(ask(near, "array", X=np.array([[np.nan]]))) == (400, "model 'array' refused the request: Input X contains NaN.")
    for dtype in ("float64", "float32", "int64", "uint8", "bool"):
        one = np.ones((1, 1), dtype)
        assert ask(near, "array", X=one).body == ask(far, "array", X=one).body
    assert error(ask(near, "array", X=np.array([["1"]]))) == (400, "input 'X' has datatype BYTES: expected FP64")
    assert error(ask(near, "array", X=np.ones((1, 2)))) == (400, "input 'X' has shape [1, 2]: expected [-1, 1]")
    for dtype in ("float64", "int64"):
        columns = {"size": np.array([3], dtype), "colour": np.array(["red"])}
        answer = ask(near, "frame", **columns)
        assert (answer.status, answer.body) == (200, ask(far, "frame", **columns).body)


def test_columns_of_a_data_frame_may_miss_values_as_there() -> None:
    far, columns = InferenceServer(), [TensorSpec("n", "INT64", [-1], pd_dtype="Int64"), TensorSpec("s", "BYTES", [-1], content_type="str")]

    @far.model("m", inputs=columns, outputs=columns)
    def same(frame: pd.DataFrame) -> pd.DataFrame:
        assert frame["n"].dtype == "Int64"
        return frame

    near = in_front_of(far, "m")
    numbers = {"name": "n", "shape": [2], "datatype": "BYTES", "data": ["1", "null"], "parameters": {"content_type": "pd_json"}}
    texts = {"name": "s", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}
    assert outputs(ask(near, "m", {"inputs": [numbers, texts]})) == {"n": ["1", "null"], "s": ["a", "b"]}
    wrong = error(ask(near, "m", {"inputs": [{**numbers, "parameters": {}}, texts]}))
    assert wrong == (400, "input 'n' has datatype BYTES: expected INT64")
    assert get(near, "/models/m")[1]["inputs"] == get(far, "/models/m")[1]["inputs"]


def test_parameters_of_metadata_that_mean_nothing_here_are_left_out() -> None:
    for parameters in (
        {"content_type": "of_their_own"},
        {"content_type": 1, "pd_dtype": 2},
        {"content_type": "str", "pd_dtype": "theirs"},
        None,
    ):
        declared = [{"name": "x", "datatype": "FP32", "shape": [-1, 2], "parameters": parameters}]
        metadata = {"name": "m", "inputs": declared, "outputs": declared, "extensions": []}
        answer = {"model_name": "m", "outputs": [{**OUTPUTS[0], "name": "x", "shape": [1, 2], "data": [1, 2]}]}

        def far(request: httpx2.Request, metadata: Any = metadata, answer: Any = answer) -> httpx2.Response:
            return httpx2.Response(200, json=metadata if request.method == "GET" else answer)

        assert outputs(ask(in_front_of(far, "m"), "m", x=GOOD)) == {"x": [1.0, 2.0]}


def test_only_the_outputs_that_are_asked_for_are_asked_for_there() -> None:
    asked: list[Any] = []
    far = InferenceServer()

    @far.model("two", outputs=[TensorSpec("a", "FP32", [-1, 2]), TensorSpec("b", "FP32", [-1, 2])])
    def two(request: InferenceRequest) -> Any:
        asked.append([(output.name, output.parameters) for output in request.outputs])
        return {"a": request["x"], "b": request["x"] + 1}

    near = in_front_of(far, "two")
    assert outputs(ask(near, "two", {"outputs": [{"name": "b", "parameters": {"classification": 1}}]}, x=GOOD)) == {"b": ["3.000000:1"]}
    assert asked == [[("b", {"binary_data": True})]]
    assert list(outputs(ask(near, "two", {"outputs": [{"name": "b"}, {"name": "a"}]}, x=GOOD))) == ["b", "a"]


# What is asked


def test_what_is_no_url_is_refused_at_once() -> None:
    for url in ("far", "http://user:word@far/v2", "ftp://far", "http://far/v2?x=1"):
        with pytest.raises(ValueError, match="the url is"):
            remote(url, "m")
    with pytest.raises(ValueError, match="no url"):
        remote([], "m")


def test_tensors_go_as_json_if_the_other_server_knows_nothing_else() -> None:
    bodies: list[Any] = []

    def far(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            bodies.append(json.loads(request.content))
        return answering(200, {"model_name": "m", "outputs": [{**OUTPUTS[0], "shape": [1, 2], "data": [3, 4]}]})(request)

    assert outputs(ask(in_front_of(far, "m"), "m", x=GOOD)) == {"y": [3.0, 4.0]}
    assert [[*np.ravel(body["inputs"][0]["data"])] for body in bodies] == [[1.0, 2.0]]


# Errors


def test_an_error_of_the_client_keeps_its_status_and_text(caplog: pytest.LogCaptureFixture) -> None:
    for status in (400, 401, 403, 413, 415, 422, 499):
        near = in_front_of(answering(status, {"error": "the image has no face"}, **{"www-authenticate": "Bearer"}), "m")
        assert error(ask(near, "m", x=GOOD)) == (status, "the image has no face")
    near = in_front_of(answering(400, b""), "m")
    assert error(ask(near, "m", x=GOOD)) == (400, "model 'm' failed: its server answered with the status 400")
    assert not logged(caplog)
    # a model that Triton does not have any more is no fault of the client
    near = in_front_of(answering(400, {"error": "Request for unknown model: 'm' has no available versions"}), "m")
    assert error(ask(near, "m", x=GOOD))[0] == 502
    assert len(logged(caplog)) == 1


def test_other_errors_are_those_of_a_gateway(caplog: pytest.LogCaptureFixture) -> None:
    of_gateway = {404: 502, 405: 502, 302: 502, 500: 502, 502: 502, 429: 503, 503: 503, 504: 504}
    for there, status in of_gateway.items():
        caplog.clear()
        near = in_front_of(answering(there, {"error": "a secret"}, **{"retry-after": "7", "location": "http://elsewhere"}), "m")
        answer = ask(near, "m", {"id": "a\nb"}, x=GOOD)
        failed = f"model 'm' failed: its server answered with the status {there}"
        assert error(answer) == (status, failed)
        assert answer.headers.get("retry-after") == ("7" if status == 503 else None)
        [record] = logged(caplog)
        assert record.message.startswith(f"model 'm': a request failed with {status}: {failed} (/ answered with the status {there}: ")
        assert record.message.endswith(f"answered with the status {there}: a secret)") == (there != 302)
        assert (record.exc_info, vars(record)["oip_request_id"], vars(record)["oip_model"]) == (None, "a\\nb", "m")


WHOLE = {**OUTPUTS[0], "shape": [1, 2], "data": [1, 2]}
WRONG: list[Any] = [[{**WHOLE, "shape": [1, 3], "data": [1, 2, 3]}], [{**WHOLE, "datatype": "INT64"}], [{**WHOLE, "name": "z"}]]
WRONG += [[{**WHOLE, "data": ["a", 2]}], [WHOLE] * 2, []]
BROKEN = [b"<html>", {"model_name": "m"}, *({"model_name": "m", "outputs": each} for each in WRONG)]


def test_a_broken_answer_is_502_one_that_is_late_504_and_no_server_503(caplog: pytest.LogCaptureFixture) -> None:
    def raising(raised: Exception) -> Far:
        def far(request: httpx2.Request) -> httpx2.Response:
            if request.method == "POST":
                raise raised
            return answering(200)(request)

        return far

    cases: list[tuple[Far, int, str]] = [(answering(200, body), 502, "gave a broken answer") for body in BROKEN]
    cases += [
        (raising(kind("")), 502, "gave no whole answer") for kind in (httpx2.ReadError, httpx2.RemoteProtocolError, httpx2.DecodingError)
    ]
    cases += [(raising(httpx2.ConnectError("")), 503, "cannot be reached"), (raising(httpx2.ReadTimeout("")), 504, "took too long")]
    for number, (far, status, text) in enumerate(cases, 1):
        assert error(ask(in_front_of(far, "m"), "m", x=GOOD)) == (status, f"model 'm' failed: its server {text}"), number
        assert len(logged(caplog)) == number


# Coming up


def test_a_load_waits_until_the_other_server_is_there(caplog: pytest.LogCaptureFixture) -> None:
    failures: Iterator[Any] = iter([httpx2.ConnectError("refused"), 503, 429])

    def far(request: httpx2.Request) -> httpx2.Response:
        failure = next(failures, None)
        if isinstance(failure, Exception):
            raise failure
        good = answering(200, TWO)
        return httpx2.Response(failure) if failure else good(request)

    assert ask(in_front_of(far, "m", wait=30), "m", x=GOOD).status == 200
    assert [record.message for record in logged(caplog)] == ["waiting for /, which has the model 'm': refused"]


OF_TRITON = {"name": "triton", "extensions": ["model_configuration"], "model_transaction_policy": {"decoupled": True}}


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (None, "cannot ask /, which has the model 'm': .*unknown model"),
        ([], "cannot ask /, which has the model 'm': .*a JSON object"),
        ({"inputs": [{"name": "x"}]}, "the metadata of the model has"),
        ({"inputs": [{"name": "x", "datatype": "FP33", "shape": [1]}]}, "the metadata of the model has"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": ["a"]}]}, "the metadata of the model has"),
        ({"inputs": ["x"]}, "the metadata of the model has"),
        (OF_TRITON, "which Triton sends over gRPC only"),
    ],
)
def test_a_load_from_a_server_without_such_a_model_fails_at_once(metadata: Any, text: str, caplog: pytest.LogCaptureFixture) -> None:
    far = InferenceServer() if metadata is None else lambda _: httpx2.Response(200, json=metadata)
    assert ask(in_front_of(far, "m", wait=30), "m", x=GOOD).status == 503
    [record] = logged(caplog)
    assert re.match(re.escape(f"model 'm': load= raised, so {NOT_READY}: ") + ".*" + text, record.message)
    assert (record.levelno, record.exc_text) == (logging.ERROR, None)


def test_without_the_outputs_there_an_unknown_one_is_400() -> None:
    def far(request: httpx2.Request) -> httpx2.Response:
        outputs = [{**OUTPUTS[0], "shape": [1, 2], "data": [1, 2]}]
        return httpx2.Response(200, json={} if request.method == "GET" else {"outputs": outputs})

    near = in_front_of(far, "m")
    assert error(ask(near, "m", {"outputs": [{"name": "z"}]}, x=GOOD)) == (400, "unknown output 'z': expected 'y'")


def test_one_version_is_asked_for() -> None:
    far = InferenceServer()
    for version in ("1", "2"):
        far.register("v", lambda version=version: np.array([int(version)]), version=version)
    assert outputs(ask(in_front_of(far, "v", version="1"), "v")) == {"output_0": [1]}
    assert outputs(ask(in_front_of(far, "v"), "v")) == {"output_0": [2]}


# Streams


def streamed(server: InferenceServer, n: int, path: str = "infer_stream") -> Answer:
    body = json.dumps({"inputs": described(n=np.array([n]))}).encode()
    return over_asgi(OIPApp(server), "")(Request("POST", f"/models/count/{path}", (), body))


def test_a_stream_is_one_here_too() -> None:
    far = InferenceServer()

    @far.model("count")
    async def count(n: Any) -> AsyncIterator[Any]:
        for number in range(n.item()):
            if number == 3:
                raise InferenceError("no more than three", status=422)
            yield np.array([number])

    near = in_front_of(far, "count")
    assert streamed(near, 2).body == streamed(far, 2).body
    assert streamed(near, 0).body == streamed(far, 0).body
    assert streamed(near, 2, "infer").status == 400
    assert get(near, "/models/count/config")[1]["model_transaction_policy"] == {"decoupled": True}
    events = [json.loads(event.removeprefix(b"data: ")) for event in streamed(near, 9).body.strip().split(b"\n\n")]
    assert len(events) == 4
    assert events[3] == {"error": "no more than three"}
    plain = InferenceServer()  # which may be asked as a stream
    plain.register("count", lambda n: n)
    assert streamed(in_front_of(plain, "count", stream=True), 5).body == streamed(plain, 5).body


# Several addresses


class Fleet(httpx2.AsyncBaseTransport):
    """Servers by the name of their host: how many calls each got, and what it fails with."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures: dict[str, Exception | int] = {}
        self.held: dict[str, asyncio.Event] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        if request.method == "POST":
            self.calls.append(host)
        failure = self.failures.get(host)
        if isinstance(failure, Exception):
            raise failure
        if host in self.held and request.method == "POST":
            await self.held[host].wait()
        answer = TWO
        return answering(failure or 200, answer)(request)


@pytest.fixture
def fleet() -> tuple[Fleet, InferenceServer]:
    fleet, server = Fleet(), InferenceServer()
    http = httpx2.AsyncClient(transport=fleet)
    server.register("m", load=remote(["http://a", "http://b"], "m", http=http))
    return fleet, server


async def test_the_address_with_the_fewest_calls_is_taken(fleet: tuple[Fleet, InferenceServer]) -> None:
    transport, server = fleet
    transport.held = {"a": asyncio.Event(), "b": asyncio.Event()}
    begun = []
    for expected in (["a"], ["a", "b"], ["a", "b", "a"]):
        begun.append(asyncio.ensure_future(server.infer("m", {"x": GOOD})))
        while len(transport.calls) < len(expected):
            await asyncio.sleep(0)
        assert transport.calls == expected
    transport.held["a"].set()
    await asyncio.gather(begun[0], begun[2])
    transport.held["b"].set()
    await begun[1]


async def test_one_that_cannot_be_reached_is_passed_over(fleet: tuple[Fleet, InferenceServer], caplog: pytest.LogCaptureFixture) -> None:
    transport, server = fleet
    transport.failures = {"a": httpx2.ConnectError("refused")}
    for _ in range(3):
        await server.infer("m", {"x": GOOD})
    assert (transport.calls, len(logged(caplog))) == (["a", "b", "b", "b"], 1)
    transport.failures["b"] = httpx2.ConnectError("refused")  # then the last one says so
    with pytest.raises(InferenceError, match="cannot be reached"):
        await server.infer("m", {"x": GOOD})
    assert transport.calls[4:] == ["b", "a"]


@pytest.mark.parametrize("failure", [httpx2.ReadError("reset"), 503])
async def test_a_call_that_failed_is_not_repeated(fleet: tuple[Fleet, InferenceServer], failure: Any) -> None:
    transport, server = fleet
    await server.infer("m", {"x": GOOD})
    transport.failures = {"a": failure}
    with pytest.raises(InferenceError):
        await server.infer("m", {"x": GOOD})
    await server.infer("m", {"x": GOOD})
    assert transport.calls == ["a", "a", "b"]


# What is passed on of a request: headers, parameters and the time that is left


@pytest.fixture
def far() -> tuple[InferenceServer, list[InferenceContext]]:
    """A server with a model, and what its model was asked."""
    server, seen = InferenceServer(), list[InferenceContext]()

    @server.model("look", allow_timeout_override=True)
    def look(x: Any, context: InferenceContext) -> Any:
        seen.append(context)
        return x

    return server, seen


def test_headers_parameters_and_the_time_that_is_left_are_passed_on(far: tuple[InferenceServer, list[InferenceContext]]) -> None:
    server, seen = far
    near = in_front_of(server, "look", timeout=30)
    text = json.dumps({"id": "7", "parameters": {"binary_data_output": False, "priority": 1, "mine": "a"}, "inputs": described(x=GOOD)})
    sent = [("authorization", "Bearer x"), ("traceparent", "00-1"), ("cookie", "a=b"), ("x-forwarded-for", "1.2.3.4")]
    assert over_asgi(OIPApp(near), "")(Request("POST", "/models/look/infer", sent, text.encode())).status == 200
    [context] = seen
    assert {name: value for name, value in context.headers.items() if name in dict(sent)} == dict(sent[:2])
    left = context.parameters["timeout"]
    assert isinstance(left, int)
    assert 20_000_000 < left <= 30_000_000
    assert context.deadline < time.monotonic() + 30
    assert context.parameters == {"binary_data_output": True, "priority": 1, "mine": "a", "timeout": left}
    assert context.id == "7"

    assert outputs(ask(in_front_of(server, "look", forward=["X-Mine"]), "look", x=GOOD))
    assert "timeout" not in seen[-1].parameters
    assert seen[-1].deadline == math.inf


def test_a_parameter_that_would_be_another_one_there_is_refused(far: tuple[InferenceServer, list[InferenceContext]]) -> None:
    server, seen = far
    near = in_front_of(server, "look")
    good = {"a": -(2**63), "b": 2**63 - 1, "sequence_id": 2**64 - 1, "priority": 2**63, "c": -1.5, "d": True, "é": '\n"', "": 1e300}
    assert outputs(ask(near, "look", {"parameters": good}, x=GOOD))
    assert good.items() <= seen.pop().parameters.items()
    for number in (-1, 2**64):  # those of the request itself are checked before
        document = {"inputs": [{**item, "parameters": {"priority": number}} for item in described(x=GOOD)]}
        assert error(ask(near, "look", document))[0] == 400
    for name, value in (("a", 2**63), ("a", "b\0"), ("a\0b", 1), ("a\0b", "c")):
        answer = ask(near, "look", {"parameters": {name: value}}, x=GOOD)
        assert error(answer)[0] == 400
        assert "cannot be passed on: expected text without NUL" in error(answer)[1]
        document = {"inputs": [{**item, "parameters": {name: value}} for item in described(x=GOOD)]}
        assert error(ask(near, "look", document))[0] == 400
    with pytest.raises(InferenceError, match="'a' = nan cannot be passed on"):
        near.infer_sync("look", {"x": np.ones(1)}, parameters={"a": math.nan})
    assert not seen


def test_bytes_for_a_server_that_takes_json_only_are_refused_with_what_the_client_may_write() -> None:
    def far(request: httpx2.Request) -> httpx2.Response:
        declared = [{"name": "x", "datatype": "BYTES", "shape": [-1]}]
        return httpx2.Response(200, json={"name": "m", "inputs": declared, "outputs": declared, "extensions": []})

    with pytest.raises(InferenceError) as raised:
        in_front_of(far, "m").infer_sync("m", {"x": np.array([b"\xff"], object)})
    remedy = 'the other server has no binary data: send base64 text, with the content type "base64"'
    assert str(raised.value) == f"input 'x': BYTES element 0 is b'\\xff', which is not UTF-8 and cannot be a JSON string: {remedy}"


def test_a_header_arrives_as_it_was_sent_or_is_refused(far: tuple[InferenceServer, list[InferenceContext]]) -> None:
    server, seen = far
    way, body = over_asgi(OIPApp(in_front_of(server, "look")), ""), json.dumps({"inputs": described(x=GOOD)}).encode()
    token = "".join(map(chr, range(32, 127))).strip()
    for value, trace, status in (
        (token, "00-1", 200),
        ("René".encode().decode("latin-1"), "00-1", 400),  # which libraries would send in different ways
        ("a\r\nb: c", "00-1", 400),  # it could be two
        ("a" * 6900, "00-1", 200),
        ("a" * 7000, "00-1", 400),
        ("a" * 6900, "b" * 100, 400),
    ):
        headers = [("authorization", value), ("traceparent", trace), ("x-not-passed-on", "c" * 9000)]
        answer = way(Request("POST", "/models/look/infer", headers, body))
        assert answer.status == status
    assert seen[0].headers["authorization"] == token
    assert error(answer)[1] == (
        "the forwarded headers ('authorization', 'traceparent') have more than 7000 bytes together: send shorter ones"
    )


def test_a_header_of_one_connection_is_not_one_to_forward() -> None:
    for name in ("Host", "content-length", "Transfer-Encoding", "connection", "inference-header-content-length"):
        with pytest.raises(ValueError, match="a header of one connection"):
            remote("http://far/v2", "m", forward=[name])
