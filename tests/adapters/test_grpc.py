"""gRPC against real servers of grpc and of grpc.aio: every call and form of contents, errors, cancellation, health, reflection."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from oip_asgi import InferenceContext, InferenceError, InferenceRequest, InferenceResponse, InferenceServer, Tensor, TensorSpec
from oip_asgi._core.datatypes import dtype_of
from oip_asgi._core.grpc.messages import TYPED
from oip_asgi.grpc import add_to_server
from tests.support.grpc_ways import SERVICE, SERVINGS, Client, Serving, blocking, made, wire_request
from tests.support.talk import block_until
from tests.table.vectors import VECTORS, Vector

vectors = pytest.mark.parametrize("vector", VECTORS, ids=str)


def demo_server() -> InferenceServer:
    server = InferenceServer("demo", "1.2.3")

    @server.model("echo")
    def echo(**inputs: Any) -> Any:
        return inputs

    @server.model("echo_async")
    async def echo_async(**inputs: Any) -> Any:
        return inputs

    @server.model(
        "declared",
        platform="sklearn",
        inputs=[TensorSpec("x", "FP32", [-1, 2])],
        outputs=[TensorSpec("y", "FP32", [-1, 2]), TensorSpec("half", "FP16", [-1, 2])],
    )
    def declared(x: Any) -> Any:
        return {"half": x.astype("f2"), "y": x}

    @server.model("beside_half")
    def beside_half(x: np.ndarray) -> Any:
        return {"x": x, "half": np.zeros(1, "f2")}

    for version in ("1", "2"):
        server.register("versioned", lambda version=version: np.array([version]), version=version)

    @server.model("surroundings")
    def surroundings(context: InferenceContext) -> Any:
        return {
            "custom": np.array([context.headers["x-custom"], context.headers["x-many"], context.headers["x-some-bin"]]),
            "peer": np.array([context.transport.peer()]),
            "identity": np.array([str(context.id), context.model_name, str(context.model_version)]),
        }

    @server.model("parameters")
    def parameters(request: InferenceRequest) -> InferenceResponse:
        tensors = [Tensor(tensor.name, tensor.array, tensor.parameters) for tensor in request.inputs]
        return InferenceResponse(tensors, request.parameters)

    @server.model("speaks")
    def speaks(status: np.ndarray) -> Any:
        raise InferenceError("the teapot is short and stout", status=int(status[0]))

    @server.model("raises")
    def raises() -> Any:
        raise RuntimeError("a secret")

    @server.model("says")
    def says(text: np.ndarray) -> Any:
        raise InferenceError(text.item().decode("utf-8", "surrogateescape"))

    return server


@pytest.fixture(scope="module", params=SERVINGS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with SERVINGS[request.param](demo_server()) as address:
        yield Client(address)


@pytest.fixture(params=SERVINGS)
def serving(request: pytest.FixtureRequest) -> Serving:
    return SERVINGS[request.param]


def raw_input(vector: Vector, name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": vector.datatype, "shape": vector.shape}


def typed_input(vector: Vector) -> dict[str, Any]:
    return {**raw_input(vector), "contents": {TYPED[vector.datatype]: vector.elements}}


def fp32(name: str = "x", shape: Any = (1, 2), **fields: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "FP32", "shape": shape, **fields}


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was logged, but for what asyncio says where grpc's one poller serves several loops of a process."""
    return [record for record in caplog.records if record.exc_info is None or record.exc_info[0] is not BlockingIOError]


TWO_FLOATS = np.array([1.5, 2.5], "<f4").tobytes()


def health_of(client: Client) -> Any:
    return health_pb2_grpc.HealthStub(client.channel)


def test_live_and_ready(client: Client) -> None:
    assert client.ask("ServerLive").live is True
    assert client.ask("ServerReady").ready is True
    assert client.ask("ModelReady", made("ModelReadyRequest", name="echo")).ready is True
    assert client.ask("ModelReady", made("ModelReadyRequest", name="versioned", version="1")).ready is True


def test_a_server_or_model_that_is_not_ready(serving: Serving) -> None:
    server = InferenceServer()
    server.register("absent", lambda: 1, load=lambda: 1 / 0)
    server.register("busy", lambda: 1, ready=lambda: False)
    with serving(server) as address:
        client = Client(address)
        assert client.ask("ServerLive").live is True
        assert client.ask("ServerReady").ready is False
        assert client.ask("ModelReady", made("ModelReadyRequest", name="absent")).ready is False
        assert client.ask("ModelReady", made("ModelReadyRequest", name="busy")).ready is False
        text = "model 'absent' is not ready: its load failed, see the server's log"
        assert client.refusal("ModelInfer", wire_request("absent")) == ("UNAVAILABLE", text)
        assert health_of(client).Check(health_pb2.HealthCheckRequest()).status == 2


def test_server_metadata(client: Client) -> None:
    expected = made("ServerMetadataResponse", name="demo", version="1.2.3", extensions=["binary_tensor_data"])
    assert client.ask("ServerMetadata") == expected


def test_model_metadata(client: Client) -> None:
    expected = made(
        "ModelMetadataResponse",
        name="declared",
        platform="sklearn",
        inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
        outputs=[{"name": "y", "datatype": "FP32", "shape": [-1, 2]}, {"name": "half", "datatype": "FP16", "shape": [-1, 2]}],
    )
    assert client.ask("ModelMetadata", made("ModelMetadataRequest", name="declared")) == expected
    versioned = client.ask("ModelMetadata", made("ModelMetadataRequest", name="versioned", version="1"))
    assert versioned == made("ModelMetadataResponse", name="versioned", platform="python", versions=["1", "2"])


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata"])
def test_an_unknown_model_or_version(client: Client, method: str) -> None:
    name = f"{method}Request"
    code, text = client.refusal(method, made(name, name="nope"))
    assert (code, text[:20]) == ("NOT_FOUND", "unknown model 'nope'")
    text = "unknown version '3' of model 'versioned': expected '1', '2'"
    assert client.refusal(method, made(name, name="versioned", version="3")) == ("NOT_FOUND", text)


@vectors
def test_raw_contents_come_back_as_they_went(client: Client, vector: Vector) -> None:
    response = client.ask("ModelInfer", wire_request("echo", [raw_input(vector)], [vector.raw_bytes]))
    assert response == made("ModelInferResponse", model_name="echo", outputs=[raw_input(vector)], raw_output_contents=[vector.raw_bytes])


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector.datatype in TYPED], ids=str)
def test_typed_contents_come_back_typed(client: Client, vector: Vector) -> None:
    response = client.ask("ModelInfer", wire_request("echo_async", [typed_input(vector)]))
    [output] = response.outputs
    assert (output.name, output.datatype, tuple(output.shape)) == ("x", vector.datatype, vector.shape)
    assert not response.raw_output_contents
    dtype = dtype_of(vector.datatype)
    elements = np.array([*getattr(output.contents, TYPED[vector.datatype])], dtype)
    np.testing.assert_array_equal(elements, np.array(vector.elements, dtype))
    assert [field.name for field, _ in output.contents.ListFields()] == [TYPED[vector.datatype]] * bool(vector.elements)


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector.datatype in TYPED], ids=str)
def test_typed_contents_become_the_array_that_raw_contents_become(client: Client, vector: Vector) -> None:
    response = client.ask("ModelInfer", wire_request("beside_half", [typed_input(vector)]))
    assert list(response.outputs[0].shape) == list(vector.shape)
    assert response.raw_output_contents[0] == vector.raw_bytes


def test_outputs_are_all_raw_where_one_has_no_typed_contents(client: Client) -> None:
    response = client.ask("ModelInfer", wire_request("declared", [fp32(contents={"fp32_contents": [1.5, 2.5]})]))
    assert [output.name for output in response.outputs] == ["y", "half"]
    assert not any(output.HasField("contents") for output in response.outputs)
    assert list(response.raw_output_contents) == [TWO_FLOATS, np.array([1.5, 2.5], "<f2").tobytes()]


def test_requested_outputs(client: Client) -> None:
    request = wire_request("declared", [fp32()], [TWO_FLOATS], outputs=[{"name": "half"}, {"name": "y"}])
    assert [output.name for output in client.ask("ModelInfer", request).outputs] == ["half", "y"]
    typed = wire_request("declared", [fp32(contents={"fp32_contents": [1.5, 2.5]})], outputs=[{"name": "y"}])
    [output] = client.ask("ModelInfer", typed).outputs
    assert list(output.contents.fp32_contents) == [1.5, 2.5]
    unknown = wire_request("declared", [fp32()], [TWO_FLOATS], outputs=[{"name": "z"}])
    assert client.refusal("ModelInfer", unknown) == ("INVALID_ARGUMENT", "unknown output 'z': expected 'y', 'half'")


def test_versions(client: Client) -> None:
    for asked, answered in (("", "2"), ("1", "1"), ("2", "2")):
        response = client.ask("ModelInfer", wire_request("versioned", model_version=asked))
        assert (response.model_name, response.model_version) == ("versioned", answered)
        assert response.raw_output_contents == [b"\x01\0\0\0" + answered.encode()]


def test_id(client: Client) -> None:
    assert client.ask("ModelInfer", wire_request("versioned", id="é\n42")).id == "é\n42"
    assert client.ask("ModelInfer", wire_request("versioned")).id == ""


def test_parameters_of_every_kind_both_ways(client: Client) -> None:
    sent = {
        "text": {"string_param": "é"},
        "empty": {"string_param": ""},
        "yes": {"bool_param": True},
        "no": {"bool_param": False},
        "low": {"int64_param": -(2**63)},
        "high": {"int64_param": 2**63 - 1},
        "higher": {"uint64_param": 2**64 - 1},
        "half": {"double_param": 0.5},
        "whole": {"double_param": 2.0},
    }
    response = client.ask("ModelInfer", wire_request("parameters", [fp32(parameters=sent)], [TWO_FLOATS], parameters=sent))
    expected = made(
        "ModelInferResponse", model_name="parameters", parameters=sent, outputs=[fp32(parameters=sent)], raw_output_contents=[TWO_FLOATS]
    )
    assert response == expected


def test_a_parameter_without_a_value(client: Client) -> None:
    value = "has no value: expected bool_param, int64_param, string_param, double_param or uint64_param"
    nothing: dict[str, Any] = {"p": {}}
    for place, request in {
        "parameters['p']": wire_request("echo", parameters=nothing),
        "inputs[0] ('x'): parameters['p']": wire_request("echo", [fp32(parameters=nothing)], [TWO_FLOATS]),
        "outputs[0].parameters['p']": wire_request("echo", outputs=[{"name": "y", "parameters": nothing}]),
    }.items():
        assert client.refusal("ModelInfer", request) == ("INVALID_ARGUMENT", f"{place} {value}")


def test_parameters_that_belong_to_rest_do_not_disturb(client: Client) -> None:
    """KServe's client sends `binary_data_size` and `binary_data` over gRPC too."""
    size = {"binary_data_size": {"int64_param": 8}}
    flag = {"binary_data": {"bool_param": False}}
    request = wire_request("parameters", [fp32(parameters=size)], [TWO_FLOATS], outputs=[{"name": "x", "parameters": flag}])
    response = client.ask("ModelInfer", request)
    assert response == made("ModelInferResponse", model_name="parameters", outputs=[fp32()], raw_output_contents=[TWO_FLOATS])


def test_metadata_and_context_reach_the_model(client: Client) -> None:
    metadata = [("x-custom", "a"), ("x-many", "1"), ("x-many", "2"), ("x-some-bin", b"\xff\x00")]
    response = client.ask("ModelInfer", wire_request("surroundings", id="7"), metadata=metadata)
    found = dict(zip((output.name for output in response.outputs), response.raw_output_contents, strict=True))
    assert found["custom"] == b"\1\0\0\0a" + b"\4\0\0\x001, 2" + b"\4\0\0\0/wA="
    assert b"ipv4:127.0.0.1:" in found["peer"].replace(b"%3A", b":")
    assert found["identity"] == b"\1\0\0\x007" + b"\x0c\0\0\0surroundings" + b"\4\0\0\0None"


BAD = {
    "raw too short": (wire_request("echo", [fp32()], [b"1234567"]), "inputs[0] ('x'): 7 bytes of binary data, but shape [1, 2] needs 8"),
    "raw too long": (wire_request("echo", [fp32()], [b"123456789"]), "inputs[0] ('x'): 9 bytes of binary data, but shape"),
    "raw for one of two": (
        wire_request("echo", [fp32(), fp32("y")], [TWO_FLOATS]),
        "raw_input_contents has 1 items: expected one for each of 2 inputs, or none",
    ),
    "raw for none": (wire_request("echo", [], [b""]), "raw_input_contents has 1 items: expected one for each of 0 inputs"),
    "more raw than inputs": (wire_request("echo", [fp32()], [TWO_FLOATS] * 2), "raw_input_contents has 2 items"),
    "contents and raw": (
        wire_request("echo", [fp32(contents={"fp32_contents": [1, 2]})], [TWO_FLOATS]),
        "inputs[0] ('x'): both contents and raw_input_contents are given: expected one of them",
    ),
    "contents of the second and raw": (
        wire_request("echo", [fp32(), fp32("y", contents={"fp32_contents": [1, 2]})], [TWO_FLOATS, TWO_FLOATS]),
        "inputs[1] ('y'): both contents and raw_input_contents are given",
    ),
    "contents without elements and raw": (
        wire_request("echo", [fp32(contents={})], [TWO_FLOATS]),
        "inputs[0] ('x'): both contents and raw_input_contents are given",
    ),
    "neither": (wire_request("echo", [fp32()]), "inputs[0] ('x'): contents.fp32_contents has 0 elements: expected 2 for shape [1, 2]"),
    "too few elements": (
        wire_request("echo", [fp32(contents={"fp32_contents": [1]})]),
        "contents.fp32_contents has 1 elements: expected 2",
    ),
    "elements for none": (
        wire_request("echo", [fp32(shape=[0], contents={"fp32_contents": [1]})]),
        "contents.fp32_contents has 1 elements: expected 0 for shape [0]",
    ),
    "field of another datatype": (
        wire_request("echo", [fp32(contents={"fp64_contents": [1, 2]})]),
        "inputs[0] ('x'): contents.fp64_contents is given: expected contents.fp32_contents for FP32",
    ),
    "two fields": (
        wire_request("echo", [fp32(contents={"fp32_contents": [1, 2], "int_contents": [1]})]),
        "contents.int_contents is given: expected contents.fp32_contents",
    ),
    "unknown datatype": (wire_request("echo", [{**fp32(), "datatype": "fp32"}], [TWO_FLOATS]), "inputs[0] ('x'): unknown datatype 'fp32'"),
    "no datatype": (wire_request("echo", [{"name": "x", "shape": [2]}], [TWO_FLOATS]), "unknown datatype ''"),
    "negative dimension": (wire_request("echo", [fp32(shape=[1, -2])], [TWO_FLOATS]), "inputs[0].shape[1]: expected int >= 0"),
    "negative dimensions": (wire_request("echo", [fp32(shape=[-1, -2])], [TWO_FLOATS]), "inputs[0].shape[0]: expected int >= 0"),
    "shape 2^62": (wire_request("echo", [fp32(shape=[2**62])], [TWO_FLOATS]), "shape is too large"),
    "shape [0, 2^62]": (wire_request("echo", [fp32(shape=[0, 2**62])], [b""]), "shape is too large"),
    "shape [2^32, 2^32]": (wire_request("echo", [fp32(shape=[2**32, 2**32])]), "shape is too large"),
    "shape of 65 dimensions": (wire_request("echo", [fp32(shape=[1] * 65)], [b"1234"]), "65 dimensions: at most 64"),
    "input twice": (wire_request("echo", [fp32(), fp32()], [TWO_FLOATS] * 2), "input 'x' is there twice"),
    "missing input": (wire_request("declared"), "missing input 'x'"),
    "unknown input": (wire_request("declared", [fp32("z")], [TWO_FLOATS]), "unknown input 'z': expected 'x'"),
    "wrong shape": (wire_request("declared", [fp32(shape=[2])], [TWO_FLOATS]), "input 'x' has shape [2]: expected [-1, 2]"),
    "unknown content type": (
        wire_request("echo", [fp32(parameters={"content_type": {"string_param": "nope"}})], [TWO_FLOATS]),
        "'nope'",
    ),
    "shared memory": (
        wire_request("echo", [fp32(parameters={"shared_memory_region": {"string_param": "r"}})], [TWO_FLOATS]),
        "input 'x' has the parameter shared_memory_region",
    ),
    "shared memory, and no data": (
        wire_request("echo", [fp32(parameters={"shared_memory_region": {"string_param": "r"}})]),
        "inputs[0] ('x'): it has the parameter shared_memory_region, which this server does not support",
    ),
    "BYTES length cut off": (
        wire_request("echo", [{"name": "x", "datatype": "BYTES", "shape": [1]}], [b"\1\0\0"]),
        "BYTES element 0: its 4-byte length is cut off",
    ),
    "BYTES overlong": (wire_request("echo", [{"name": "x", "datatype": "BYTES", "shape": [1]}], [b"\1\0\0\0ab"]), "1 bytes are left over"),
    "BYTES too few": (wire_request("echo", [{"name": "x", "datatype": "BYTES", "shape": [2]}], [b"\1\0\0\0a"]), "1 BYTES elements"),
    "BYTES length 2^32-1": (
        wire_request("echo", [{"name": "x", "datatype": "BYTES", "shape": [1]}], [b"\xff" * 4]),
        "claims 4294967295 bytes",
    ),
    "BOOL 2": (wire_request("echo", [{"name": "x", "datatype": "BOOL", "shape": [1]}], [b"\2"]), "BOOL element 0 is the byte 2"),
    **{
        f"{datatype} has no field": (
            wire_request("echo", [{"name": "x", "datatype": datatype, "shape": [1], "contents": {"fp32_contents": [1]}}]),
            f"datatype {datatype} has no field in contents: send it as raw_input_contents",
        )
        for datatype in ("FP16", "BF16")
    },
    **{
        f"{datatype} {element}": (
            wire_request("echo", [{"name": "x", "datatype": datatype, "shape": [2], "contents": {TYPED[datatype]: [0, element]}}]),
            f"inputs[0] ('x'): contents.{TYPED[datatype]}: element 1 is out of range for {datatype}: expected ",
        )
        for datatype, element in (("INT8", 128), ("INT8", -129), ("INT16", 2**15), ("UINT8", 256), ("UINT16", 2**16))
    },
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_an_invalid_argument(client: Client, name: str) -> None:
    request, expected = BAD[name]
    code, text = client.refusal("ModelInfer", request)
    assert code == "INVALID_ARGUMENT"
    assert expected in text


GOOD_BYTES = wire_request("echo", [fp32()], [TWO_FLOATS]).SerializeToString()


@pytest.mark.parametrize(
    "data",
    [b"\xff", b"\x0a\x05ab", GOOD_BYTES[:-1], GOOD_BYTES + b"\x0a\x02\xff\xfe", b"\x0a\x01\xff", b"\x07", b"\x2a\x7f" + b"\x2a" * 126],
    ids=["no tag", "cut off", "cut off raw", "text not UTF-8", "name not UTF-8", "wire type 7", "nested nonsense"],
)
def test_bytes_that_are_no_message(client: Client, data: bytes) -> None:
    text = "the request cannot be parsed: expected the bytes of inference.ModelInferRequest"
    assert client.refusal("ModelInfer", data) == ("INVALID_ARGUMENT", text)


def test_unknown_fields_are_ignored(client: Client) -> None:
    later = bytes([15 << 3 | 2, 3]) + b"abc"
    assert client.ask("ModelInfer", GOOD_BYTES + later).raw_output_contents == [TWO_FLOATS]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (409, "INVALID_ARGUMENT"),
        (413, "RESOURCE_EXHAUSTED"),
        (422, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (501, "UNIMPLEMENTED"),
        (502, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_a_model_speaks_by_its_status(client: Client, status: int, code: str) -> None:
    tensor = {"name": "status", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [status]}}
    assert client.refusal("ModelInfer", wire_request("speaks", [tensor])) == (code, "the teapot is short and stout")


def test_a_model_that_raises(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    text = "model 'raises' failed: see the server's log"
    assert client.refusal("ModelInfer", wire_request("raises", id="7")) == ("INTERNAL", text)
    [record] = logged(caplog)
    assert record.getMessage() == "model 'raises' failed on the request with id '7'"
    assert record.exc_info is not None
    assert "a secret" in str(record.exc_info[1])


class Panic(BaseException):
    """What libraries raise that are written in Rust."""


@pytest.mark.parametrize("raised", [Panic("a secret"), CancelledError("a secret")], ids=["a panic", "a future that was cancelled"])
@pytest.mark.parametrize("run", ["async", "inline", "thread", "timeout"])
def test_a_model_that_raises_what_is_no_exception_of_a_common_kind(
    serving: Serving, run: str, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    server = InferenceServer()

    def fails() -> None:
        raise raised

    async def fails_async() -> None:
        await asyncio.sleep(0)
        raise raised

    async def fails_at_once() -> None:
        raise raised

    if run == "async":
        server.register("m", fails_async)
        server.register("n", fails_at_once)
    else:
        server.register("m", fails, run="inline" if run == "inline" else "thread", timeout=60 if run == "timeout" else None)
        server.register("n", lambda: 1)
    with serving(server) as address:
        client = Client(address)
        assert client.refusal("ModelInfer", wire_request("m")) == ("INTERNAL", "model 'm' failed: see the server's log")
        if run == "async":
            assert client.refusal("ModelInfer", wire_request("n")) == ("INTERNAL", "model 'n' failed: see the server's log")
        else:
            assert client.ask("ModelInfer", wire_request("n")).outputs[0].name == "output_0"
    for record in logged(caplog):
        assert record.exc_info is not None
        assert "a secret" in repr((record.exc_info[1], getattr(record.exc_info[1], "__cause__", None)))


def test_what_the_package_itself_gets_wrong_is_logged_and_answered(
    serving: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oip_asgi._core.grpc.exchange._encode", None)
    server = InferenceServer()
    server.register("m", lambda: 1)
    with serving(server) as address:
        refusal = Client(address).refusal("ModelInfer", wire_request("m"))
    assert refusal == ("INTERNAL", "internal error: see the server's log")
    assert [record.getMessage() for record in logged(caplog)] == ["an error of oip_asgi itself, please report it"]


def test_refusals_leave_the_log_alone(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.refusal("ModelInfer", wire_request("nope"))
    client.refusal("ModelInfer", b"\xff")
    assert not logged(caplog)


@pytest.mark.parametrize(
    ("said", "heard"),
    [("é\n\t% ☃", "é\n\t% ☃"), ("x" * 100_000, "x" * 2000), ("☃" * 100_000, "☃" * 666), (b"\xff", "?")],
    ids=["not ASCII", "long", "long, not ASCII", "lone surrogate"],
)
def test_any_text_of_an_error_arrives(client: Client, said: str | bytes, heard: str) -> None:
    element = said if isinstance(said, bytes) else said.encode()
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [element]}}
    assert client.refusal("ModelInfer", wire_request("says", [tensor])) == ("INVALID_ARGUMENT", heard)


def test_an_unknown_method(client: Client) -> None:
    call: Any = client.channel.unary_unary(f"/{SERVICE}/ModelStreamInfer")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_large_tensor(client: Client) -> None:
    data = np.arange(4_000_000, dtype="<f4").tobytes()
    assert client.ask("ModelInfer", wire_request("echo", [fp32(shape=[4_000_000])], [data])).raw_output_contents == [data]


LARGE_BYTES = bytes(100_000)


@pytest.mark.parametrize(
    ("tensors", "raw", "expected"),
    [
        ([fp32()], [LARGE_BYTES], "inputs[0] ('x'): 100000 bytes of binary data, but shape [1, 2] needs 8"),
        ([fp32(shape=[25_000])], [LARGE_BYTES, b""], "raw_input_contents has 2 items: expected one for each of 1 inputs"),
        ([fp32(shape=[25_000]), fp32("y")], [LARGE_BYTES, b"1"], "inputs[1] ('y'): 1 bytes of binary data"),
        ([fp32(shape=[25_000], contents={"int_contents": [1]})], [LARGE_BYTES], "both contents and raw_input_contents are given"),
        (
            [{"name": "x", "datatype": "BYTES", "shape": [2]}],
            [LARGE_BYTES],
            "99992 bytes are left over behind the last of 2 BYTES elements",
        ),
    ],
)
def test_what_is_wrong_about_a_large_request(client: Client, tensors: Any, raw: Any, expected: str) -> None:
    code, text = client.refusal("ModelInfer", wire_request("echo", tensors, raw))
    assert code == "INVALID_ARGUMENT"
    assert expected in text


@pytest.mark.parametrize(
    "tail", [b"\xff", b"\x3a\x7f", b"\x0a\x01\xff", b"\x07"], ids=["no tag", "cut off raw", "text not UTF-8", "wire type 7"]
)
def test_large_bytes_that_are_no_message(client: Client, tail: bytes) -> None:
    data = wire_request("echo", [fp32(shape=[25_000])], [LARGE_BYTES]).SerializeToString()
    assert client.ask("ModelInfer", data).raw_output_contents == [LARGE_BYTES]
    text = "the request cannot be parsed: expected the bytes of inference.ModelInferRequest"
    assert client.refusal("ModelInfer", data + tail) == ("INVALID_ARGUMENT", text)


@pytest.mark.parametrize("offset", range(9))
def test_a_large_tensor_is_aligned_wherever_it_stands_in_the_message(offset: int, serving: Serving) -> None:
    server = InferenceServer()
    server.register("aligned", lambda x: np.array([x.flags.aligned, not x.flags.writeable, x[-1] == 7]))
    data = np.full(20_000, 7, "<f8")
    tensor = {"name": "x", "datatype": "FP64", "shape": data.shape}
    with serving(server) as address:
        response = Client(address).ask("ModelInfer", wire_request("aligned", [tensor], [data.tobytes()], id="i" * offset))
    assert list(response.raw_output_contents) == [b"\1\1\1"]


def test_inputs_are_read_only_or_writable_as_over_rest(serving: Serving) -> None:
    server = InferenceServer()
    server.register("plain", lambda x: np.array([x.flags.writeable]))
    server.register("writable", lambda x: np.array([x.flags.writeable]), writable=True)
    with serving(server) as address:
        client = Client(address)
        for tensors, raw in (([fp32()], [TWO_FLOATS]), ([fp32(contents={"fp32_contents": [1, 2]})], [])):
            answers = [client.ask("ModelInfer", wire_request(name, tensors, raw)) for name in ("plain", "writable")]
            found = [
                [*answer.raw_output_contents, *(bytes(output.contents.bool_contents) for output in answer.outputs)] for answer in answers
            ]
            assert [b"".join(parts) for parts in found] == [b"\0", b"\1"]


class Held:
    """An async model that says when it has begun, waits for ever, and says when it is cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_a_cancelled_call_cancels_an_async_model(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    server, held = InferenceServer(), Held()
    server.register("held", held)
    with serving(server) as address:
        call = Client(address).begin("ModelInfer", wire_request("held"))
        assert held.begun.wait(30)
        assert not held.cancelled.is_set()
        call.cancel()
        assert held.cancelled.wait(30)
    assert not logged(caplog)


def test_a_deadline_cancels_an_async_model(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    server, held = InferenceServer(), Held()
    server.register("held", held)
    with serving(server) as address:
        code, _ = Client(address).refusal("ModelInfer", wire_request("held"), timeout=2)
        assert code == "DEADLINE_EXCEEDED"
        assert held.begun.is_set()
        assert held.cancelled.wait(30)
    assert not logged(caplog)


class Blocked:
    """A model that holds its thread until it is let go, and counts how often it has begun."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.release = threading.Event()
        self.times = 0

    def __call__(self) -> Any:
        self.times += 1
        self.begun.release()
        assert self.release.wait(30)
        return np.array([1])


@pytest.mark.parametrize("way_out", ["cancelled", "deadline"])
def test_a_queued_call_whose_client_has_gone_never_starts(serving: Serving, way_out: str, caplog: pytest.LogCaptureFixture) -> None:
    server, blocked = InferenceServer(), Blocked()
    server.register("blocked", blocked, max_concurrency=1)
    gate = server.core.models.find("blocked", None).gate
    with serving(server) as address:
        client = Client(address)
        first = client.begin("ModelInfer", wire_request("blocked"))
        assert blocked.begun.acquire(timeout=30)
        second = client.begin("ModelInfer", wire_request("blocked"), timeout=1 if way_out == "deadline" else 30)
        block_until(lambda: gate.waiting() == 1)
        if way_out == "cancelled":
            second.cancel()
        block_until(lambda: gate.waiting() == 0)
        blocked.release.set()
        assert first.result().outputs[0].name == "output_0"
        assert client.ask("ModelInfer", wire_request("blocked")).outputs[0].name == "output_0"
    assert blocked.times == 2
    assert not logged(caplog)


def test_a_call_that_is_cancelled_while_its_model_loads_never_starts(serving: Serving) -> None:
    server, load, model = InferenceServer(), Blocked(), Blocked()
    server.register("blocked", model, load=load)
    with serving(server) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("blocked"))
        assert load.begun.acquire(timeout=30)
        call.cancel()
        assert client.ask("ServerLive").live is True  # the server has heard of what was before
        load.release.set()
        block_until(lambda: client.ask("ModelReady", made("ModelReadyRequest", name="blocked")).ready)
        model.release.set()
        assert client.ask("ModelInfer", wire_request("blocked")).outputs[0].name == "output_0"
    assert (load.times, model.times) == (1, 1)


@pytest.mark.parametrize("way_out", ["cancelled", "deadline"])
def test_a_blocking_server_leaves_a_model_with_a_timeout_to_itself_once_its_client_has_gone(way_out: str) -> None:
    """Or all its threads would be held by models that nobody waits for."""
    server, blocked = InferenceServer(), Blocked()
    server.register("blocked", blocked, timeout=60)
    gate = server.core.models.find("blocked", None).gate
    with blocking(server, executor=ThreadPoolExecutor(1)) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("blocked"), timeout=1 if way_out == "deadline" else 30)
        assert blocked.begun.acquire(timeout=30)
        if way_out == "cancelled":
            call.cancel()
        assert client.ask("ServerLive", timeout=10).live is True
        blocked.release.set()
        assert gate.empty().result(timeout=30) is None


def test_a_cancelled_call_leaves_a_model_in_its_thread_to_end(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()
    server = InferenceServer()

    @server.model("slow")
    def slow() -> Any:
        begun.set()
        assert release.wait(30)
        ended.set()
        return np.array([1])

    with serving(server) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("slow"))
        assert begun.wait(30)
        call.cancel()
        assert client.ask("ServerLive").live is True
        release.set()
        assert ended.wait(30)
        assert client.ask("ModelInfer", wire_request("slow")).outputs[0].name == "output_0"
    assert not logged(caplog)


def test_a_blocking_model_does_not_hold_up_health(serving: Serving) -> None:
    begun, release = threading.Event(), threading.Event()
    server = InferenceServer()

    @server.model("slow")
    def slow() -> Any:
        begun.set()
        assert release.wait(30)
        return np.array([1])

    with serving(server) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("slow"))
        assert begun.wait(30)
        assert client.ask("ServerReady").ready is True
        assert not call.done()
        release.set()
        assert call.result().outputs[0].name == "output_0"


@pytest.mark.parametrize("names", [["m"], ["m", "n"]])
def test_probes_that_give_up_let_a_model_load_all_the_same(serving: Serving, names: list[str]) -> None:
    loaded: list[str] = []
    release = threading.Event()
    server = InferenceServer()
    for name in names:

        async def load(name: str = name) -> None:
            loaded.append(name)
            while not release.is_set():
                await asyncio.sleep(0.001)

        server.register(name, lambda: 1, load=load)
    with serving(server) as address:
        client = Client(address)
        health = health_of(client)
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as passed:
                health.Check(health_pb2.HealthCheckRequest(), timeout=0.2)
            assert passed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        waiting = client.begin("ModelInfer", wire_request("m"))
        release.set()
        assert waiting.result().outputs[0].name == "output_0"
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
    assert sorted(loaded) == names


def test_models_load_before_the_first_call_that_needs_one(serving: Serving) -> None:
    loaded: list[int] = []
    server = InferenceServer()
    server.register("lazy", lambda: len(loaded), load=lambda: loaded.append(1))
    with serving(server) as address:
        client = Client(address)
        assert client.ask("ServerLive").live is True
        assert loaded == []
        for _ in range(2):
            assert client.ask("ModelInfer", wire_request("lazy")).outputs[0].shape == [1]
        assert loaded == [1]


def test_health(client: Client) -> None:
    health = health_of(client)
    for service in ("", SERVICE):
        assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as refused:
        health.Check(health_pb2.HealthCheckRequest(service="nope"))
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert refused.value.details() == f"unknown service 'nope': expected {SERVICE}, or nothing for the server"
    with pytest.raises(grpc.RpcError) as refused:
        next(health.Watch(health_pb2.HealthCheckRequest()))
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def reflected(client: Client, **question: Any) -> Any:
    requests = iter([reflection_pb2.ServerReflectionRequest(**question)])
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    [answer] = stub.ServerReflectionInfo(requests)
    return answer


def test_reflection(client: Client) -> None:
    listed = reflected(client, list_services="").list_services_response
    names = {service.name for service in listed.service}
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    for name in (*names, "inference.ModelInferRequest.InferInputTensor"):
        [data] = reflected(client, file_containing_symbol=name).file_descriptor_response.file_descriptor_proto
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
        assert name.startswith(file.package)
    assert reflected(client, file_containing_symbol="nope").error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_health_and_reflection_can_be_left_to_the_host() -> None:
    server, other = demo_server(), grpc.server(ThreadPoolExecutor(1))
    add_to_server(server, other, health=False, reflection=False)
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    client = Client(f"127.0.0.1:{port}")
    assert client.ask("ServerLive").live is True
    with pytest.raises(grpc.RpcError) as refused:
        health_of(client).Check(health_pb2.HealthCheckRequest())
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    other.stop(0).wait()


PASSWORD = ("authorization", "please")


class Guard(grpc.ServerInterceptor):
    def intercept_service(self, continuation: Any, details: Any) -> Any:
        def refuse(request: bytes, context: Any) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "say please")

        return continuation(details) if PASSWORD in details.invocation_metadata else grpc.unary_unary_rpc_method_handler(refuse)


class AwaitingGuard(grpc.aio.ServerInterceptor):
    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        async def refuse(request: bytes, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "say please")

        return await continuation(details) if PASSWORD in details.invocation_metadata else grpc.unary_unary_rpc_method_handler(refuse)


@pytest.mark.parametrize(("kind", "guard"), [("grpc", Guard()), ("grpc.aio", AwaitingGuard())])
def test_the_hosts_interceptors_guard_every_call(kind: str, guard: Any) -> None:
    with SERVINGS[kind](demo_server(), guard) as address:
        client = Client(address)
        for method in ("ServerLive", "ServerMetadata", "ModelInfer"):
            assert client.refusal(method) == ("UNAUTHENTICATED", "say please")
        response = client.ask("ModelInfer", wire_request("echo", [fp32()], [TWO_FLOATS]), metadata=[PASSWORD])
        assert list(response.raw_output_contents) == [TWO_FLOATS]


def test_two_servers_in_one_process() -> None:
    first, second = InferenceServer("first"), InferenceServer("second")
    with blocking(first) as one, blocking(second) as two:
        assert [Client(address).ask("ServerMetadata").name for address in (one, two)] == ["first", "second"]
