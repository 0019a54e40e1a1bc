"""gRPC against real servers of grpc and of grpc.aio: every call and form of contents, large tensors, health, reflection, interceptors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from oip_asgi import InferenceServer
from oip_asgi.grpc import add_to_server
from tests.support.grpc_demo import TWO_FLOATS, demo_server, fp32, health_of, raw_input, typed_input
from tests.support.grpc_ways import SERVICE, SERVINGS, Client, Serving, blocking, made, wire_request
from tests.support.inside.grpc import TYPED
from tests.table.vectors import VECTORS, Vector

vectors = pytest.mark.parametrize("vector", VECTORS, ids=str)


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
    expected = made(
        "ServerMetadataResponse",
        name="demo",
        version="1.2.3",
        extensions=["binary_tensor_data", "classification", "model_configuration", "parameters", "statistics"],
    )
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
    undeclared = {"undeclared_inputs": {"string_param": "version"}}
    assert versioned == made("ModelMetadataResponse", name="versioned", platform="python", versions=["1", "2"], parameters=undeclared)


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata"])
def test_an_unknown_model_or_version(client: Client, method: str) -> None:
    name = f"{method}Request"
    code, text = client.refusal(method, made(name, name="nope"))
    assert code == "NOT_FOUND"
    assert text.startswith("Request for unknown model: 'nope' is not found: expected 'echo', ")
    text = "Request for unknown model: 'versioned' version '3' is not found: expected '1', '2'"
    assert client.refusal(method, made(name, name="versioned", version="3")) == ("NOT_FOUND", text)
    # Triton numbers all versions, and one of its examples looks for these words
    text = "Request for unknown model: 'versioned' version 'wrong' is not found: expected '1', '2'; "
    text += "failed to get model version from specified version string 'wrong'"
    assert client.refusal(method, made(name, name="versioned", version="wrong")) == ("NOT_FOUND", text)


@vectors
def test_raw_contents_come_back_as_they_went(client: Client, vector: Vector) -> None:
    response = client.ask("ModelInfer", wire_request("echo", [raw_input(vector)], [vector.raw_bytes]))
    assert response == made("ModelInferResponse", model_name="echo", outputs=[raw_input(vector)], raw_output_contents=[vector.raw_bytes])


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector.datatype in TYPED], ids=str)
def test_typed_contents_come_back_raw(client: Client, vector: Vector) -> None:
    """As Triton answers: its own clients read nothing else, and those of KServe and MLServer read raw contents too."""
    response = client.ask("ModelInfer", wire_request("echo_async", [typed_input(vector)]))
    expected = made("ModelInferResponse", model_name="echo_async", outputs=[raw_input(vector)], raw_output_contents=[vector.raw_bytes])
    assert response == expected


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector.datatype in TYPED], ids=str)
def test_typed_contents_become_the_array_that_raw_contents_become(client: Client, vector: Vector) -> None:
    response = client.ask("ModelInfer", wire_request("beside_half", [typed_input(vector)]))
    assert list(response.outputs[0].shape) == list(vector.shape)
    assert response.raw_output_contents[0] == vector.raw_bytes


def test_every_output_of_a_typed_request_is_raw(client: Client) -> None:
    response = client.ask("ModelInfer", wire_request("declared", [fp32(contents={"fp32_contents": [1.5, 2.5]})]))
    assert [output.name for output in response.outputs] == ["y", "half"]
    assert not any(output.HasField("contents") for output in response.outputs)
    assert list(response.raw_output_contents) == [TWO_FLOATS, np.array([1.5, 2.5], "<f2").tobytes()]


def test_requested_outputs(client: Client) -> None:
    request = wire_request("declared", [fp32()], [TWO_FLOATS], outputs=[{"name": "half"}, {"name": "y"}])
    assert [output.name for output in client.ask("ModelInfer", request).outputs] == ["half", "y"]
    typed = wire_request("declared", [fp32(contents={"fp32_contents": [1.5, 2.5]})], outputs=[{"name": "y"}])
    response = client.ask("ModelInfer", typed)
    assert [output.name for output in response.outputs] == ["y"]
    assert list(response.raw_output_contents) == [TWO_FLOATS]
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


def test_a_large_tensor(client: Client) -> None:
    data = np.arange(4_000_000, dtype="<f4").tobytes()
    assert client.ask("ModelInfer", wire_request("echo", [fp32(shape=[4_000_000])], [data])).raw_output_contents == [data]


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
            assert [list(answer.raw_output_contents) for answer in answers] == [[b"\0"], [b"\1"]]


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
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
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
