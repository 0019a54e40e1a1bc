"""gRPC against real servers of grpc and of grpc.aio: what the table does not ask of them."""

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
from tests.support.grpc_demo import TWO_FLOATS, demo_server, fp32, health_of
from tests.support.grpc_ways import SERVICE, SERVINGS, Client, Serving, made, wire_request


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


def test_a_version_that_is_no_number_is_told_in_the_words_of_triton(client: Client) -> None:
    """One of its examples looks for them."""
    text = "Request for unknown model: 'versioned' version 'wrong' is not found: expected '1', '2'; "
    text += "failed to get model version from specified version string 'wrong'"
    for method in ("ModelReady", "ModelMetadata"):
        assert client.refusal(method, made(f"{method}Request", name="versioned", version="wrong")) == ("NOT_FOUND", text)


def test_every_output_of_a_typed_request_is_raw(client: Client) -> None:
    """As Triton answers: its own clients read nothing else, and those of KServe and MLServer read raw contents too."""
    half = np.array([1.5, 2.5], "<f2").tobytes()
    for names, raw in (([], [TWO_FLOATS, half]), (["half", "y"], [half, TWO_FLOATS]), (["y"], [TWO_FLOATS])):
        asked = [{"name": name} for name in names]
        response = client.ask("ModelInfer", wire_request("declared", [fp32(contents={"fp32_contents": [1.5, 2.5]})], outputs=asked))
        assert [output.name for output in response.outputs] == (names or ["y", "half"])
        assert not any(output.HasField("contents") for output in response.outputs)
        assert list(response.raw_output_contents) == raw


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


def test_inputs_are_aligned_wherever_they_stand_and_read_only_or_writable_as_over_rest(serving: Serving) -> None:
    server = InferenceServer()
    for name in ("plain", "writable"):
        server.register(name, lambda x: np.array([x.flags.aligned, x.flags.writeable]), writable=name == "writable")
    data = np.full(20_000, 7, "<f8")
    large = [{"name": "x", "datatype": "FP64", "shape": data.shape}], [data.tobytes()]
    with serving(server) as address:
        client = Client(address)
        forms = [([fp32()], [TWO_FLOATS]), ([fp32(contents={"fp32_contents": [1, 2]})], []), *[large] * 9]
        for offset, (tensors, raw) in enumerate(forms):
            for name, found in (("plain", b"\1\0"), ("writable", b"\1\1")):
                asked = wire_request(name, tensors, raw, id="i" * offset)
                assert list(client.ask("ModelInfer", asked).raw_output_contents) == [found]


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
