"""gRPC against real servers of grpc and of grpc.aio: what the table does not ask of them; and what only gRPC can get wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from oip_asgi import InferenceServer, LoadParameters
from oip_asgi.grpc import add_to_server
from tests.support.grpc_demo import TWO_FLOATS, demo_server, fp32, health_of, logged
from tests.support.grpc_ways import SERVICE, Client, Serving, made, wire_request
from tests.support.loading import register_made


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


def test_inputs_are_aligned_wherever_they_stand_and_read_only_as_over_rest(serving: Serving) -> None:
    server = InferenceServer()
    server.register("m", lambda x: np.array([x.flags.aligned, x.flags.writeable]))
    data = np.full(20_000, 7, "<f8")
    large = [{"name": "x", "datatype": "FP64", "shape": data.shape}], [data.tobytes()]
    with serving(server) as address:
        client = Client(address)
        forms = [([fp32()], [TWO_FLOATS]), ([fp32(contents={"fp32_contents": [1, 2]})], []), *[large] * 9]
        for offset, (tensors, raw) in enumerate(forms):
            asked = wire_request("m", tensors, raw, id="i" * offset)
            assert list(client.ask("ModelInfer", asked).raw_output_contents) == [b"\1\0"]


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


BOTH = "contents field must not be specified when using raw_input_contents for '{}' for model 'echo'"
CONTENTS = {"fp32_contents": [1, 2]}
LARGE_BYTES = bytes(100_000)

BAD: dict[str, tuple[list[Any], list[bytes], str]] = {
    "raw for one of two": ([fp32(), fp32("y")], [TWO_FLOATS], "has 1 items: expected one for each of 2 inputs, or none"),
    "raw for none": ([], [b""], "raw_input_contents has 1 items: expected one for each of 0 inputs"),
    "more raw than inputs": ([fp32()], [TWO_FLOATS] * 2, "raw_input_contents has 2 items"),
    "contents and raw": ([fp32(contents=CONTENTS)], [TWO_FLOATS], BOTH.format("x")),
    "contents of the second and raw": ([fp32(), fp32("y", contents=CONTENTS)], [TWO_FLOATS] * 2, BOTH.format("y")),
    "contents without elements and raw": ([fp32(contents={})], [TWO_FLOATS], BOTH.format("x")),
    # as Triton's grpc_explicit_int_content_client sends it
    "contents and raw for one of two": ([fp32(contents=CONTENTS), fp32("y", contents=CONTENTS)], [TWO_FLOATS], BOTH.format("x")),
    "neither": ([fp32()], [], "inputs[0] ('x'): contents.fp32_contents has 0 elements: expected 2 for shape [1, 2]"),
    "two fields": (
        [fp32(contents={**CONTENTS, "int_contents": [1]})],
        [],
        "contents.int_contents is given: expected contents.fp32_contents",
    ),
    "unknown datatype": ([{**fp32(), "datatype": "fp32"}], [TWO_FLOATS], "inputs[0] ('x'): unknown datatype 'fp32'"),
    "no datatype": ([{"name": "x", "shape": [2]}], [TWO_FLOATS], "unknown datatype ''"),
    "negative dimensions": ([fp32(shape=[-1, -2])], [TWO_FLOATS], "inputs[0].shape[0]: expected int >= 0"),
    "shared memory, and no data": (
        [fp32(parameters={"shared_memory_region": {"string_param": "r"}})],
        [],
        "inputs[0] ('x'): it has the parameter shared_memory_region, which this server does not support",
    ),
    "large: too long": ([fp32()], [LARGE_BYTES], "inputs[0] ('x'): 100000 bytes of binary data, but shape [1, 2] needs 8"),
    "large: more raw than inputs": ([fp32(shape=[25_000])], [LARGE_BYTES, b""], "has 2 items: expected one for each of 1 inputs"),
    "large: the second": ([fp32(shape=[25_000]), fp32("y")], [LARGE_BYTES, b"1"], "inputs[1] ('y'): 1 bytes of binary data"),
    "large: contents": ([fp32(shape=[25_000], contents={"int_contents": [1]})], [LARGE_BYTES], BOTH.format("x")),
    "large: BYTES": (
        [{"name": "x", "datatype": "BYTES", "shape": [2]}],
        [LARGE_BYTES],
        "99992 bytes are left over after the last of 2 BYTES elements",
    ),
}


def test_what_is_wrong_is_an_invalid_argument(client: Client) -> None:
    for name, (tensors, raw, expected) in BAD.items():
        code, text = client.refusal("ModelInfer", wire_request("echo", tensors, raw))
        assert (name, code, expected in text) == (name, "INVALID_ARGUMENT", True), text


GOOD_BYTES = wire_request("echo", [fp32()], [TWO_FLOATS]).SerializeToString()
GOOD_LARGE = wire_request("echo", [fp32(shape=[25_000])], [LARGE_BYTES]).SerializeToString()
NO_MESSAGES = {
    "no tag": b"\xff",
    "cut off": b"\x0a\x05ab",
    "cut off raw": GOOD_BYTES[:-1],
    "text not UTF-8": GOOD_BYTES + b"\x0a\x02\xff\xfe",
    "name not UTF-8": b"\x0a\x01\xff",
    "wire type 7": b"\x07",
    "nested nonsense": b"\x2a\x7f" + b"\x2a" * 126,
    "large, no tag": GOOD_LARGE + b"\xff",
    "large, cut off raw": GOOD_LARGE + b"\x3a\x7f",
    "large, text not UTF-8": GOOD_LARGE + b"\x0a\x01\xff",
    "large, wire type 7": GOOD_LARGE + b"\x07",
}


def test_bytes_that_are_no_message(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    text = "the request cannot be parsed: expected the bytes of inference.ModelInferRequest"
    for name, data in NO_MESSAGES.items():
        assert client.refusal("ModelInfer", data) == ("INVALID_ARGUMENT", text), name
    assert client.ask("ModelInfer", GOOD_LARGE).raw_output_contents == [LARGE_BYTES]
    client.refusal("ModelInfer", wire_request("nope"))
    assert not logged(caplog)


CODES = {
    "INVALID_ARGUMENT": (400, 409, 422),
    "UNAUTHENTICATED": (401,),
    "PERMISSION_DENIED": (403,),
    "NOT_FOUND": (404,),
    "RESOURCE_EXHAUSTED": (413, 429),
    "INTERNAL": (500, 502),
    "UNIMPLEMENTED": (501,),
    "UNAVAILABLE": (503,),
    "DEADLINE_EXCEEDED": (504,),
}


def test_a_model_speaks_by_its_status(client: Client) -> None:
    for code, statuses in CODES.items():
        for status in statuses:
            tensor = {"name": "status", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [status]}}
            assert client.refusal("ModelInfer", wire_request("speaks", [tensor])) == (code, "the teapot is short and stout")


class Panic(BaseException):
    """What libraries raise that are written in Rust."""


def failing(raised: BaseException) -> dict[str, Callable[[], Any]]:
    def fails() -> None:
        raise raised

    async def fails_async() -> None:
        await asyncio.sleep(0)
        raise raised

    async def fails_at_once() -> None:
        raise raised

    return {"thread": fails, "timeout": fails, "inline": fails, "async": fails_async, "at once": fails_at_once}


@pytest.mark.parametrize("raised", [Panic("a secret"), CancelledError("a secret")], ids=["a panic", "a future that was cancelled"])
def test_a_model_that_raises_what_is_no_exception_of_a_common_kind(
    serving: Serving, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    server = InferenceServer()
    models = failing(raised)
    for name, model in models.items():
        run = {"run": name} if name in ("inline", "thread") else {}
        server.register(name, model, timeout=60 if name == "timeout" else None, **run)  # type: ignore[arg-type]
    server.register("n", lambda: 1)
    with serving(server) as address:
        client = Client(address)
        for name in models:
            failed = ("INTERNAL", f"model '{name}' failed: see the server's log")
            assert client.refusal("ModelInfer", wire_request(name)) == failed
            assert client.ask("ModelInfer", wire_request("n")).outputs[0].name == "output_0"
    for record in logged(caplog):
        assert record.exc_info is not None
        assert "a secret" in repr((record.exc_info[1], getattr(record.exc_info[1], "__cause__", None)))


def test_any_text_of_an_error_arrives(client: Client) -> None:
    not_ascii, long, lone_surrogate = "é\n\t% ☃".encode(), b"x" * 100_000, b"\xff"
    for said, heard in ((not_ascii, "é\n\t% ☃"), (long, "x" * 2000), ("☃".encode() * 100_000, "☃" * 666), (lone_surrogate, "?")):
        tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [said]}}
        assert client.refusal("ModelInfer", wire_request("says", [tensor])) == ("INVALID_ARGUMENT", heard)


def test_an_unknown_method(client: Client) -> None:
    call: Any = client.channel.unary_unary(f"/{SERVICE}/TraceSetting")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def make_server(got: list[LoadParameters], *, model_control: bool = True) -> InferenceServer:
    server = InferenceServer(model_control=model_control)
    register_made(server, got)
    server.register("plain", lambda: 1, version="3")
    return server


def index(client: Client, **fields: Any) -> list[tuple[str, str, str, str]]:
    models = client.ask("RepositoryIndex", made("RepositoryIndexRequest", **fields)).models
    return [(model.name, model.version, model.state, model.reason) for model in models]


def test_index_load_and_unload(serving: Serving) -> None:
    got: list[LoadParameters] = []
    with serving(make_server(got)) as address:
        client = Client(address)
        name = b"\x0a\x04made"  # field 1: what KServe's ModelRepository messages call model_name
        for method in ("RepositoryModelUnload", "RepositoryModelLoad", "RepositoryModelUnload"):
            assert client.ask(method, name).SerializeToString() == b"\x0a\x04made\x10\x01"  # field 1, and field 2 that is true
        assert len(got) == 1
    got.clear()
    with serving(make_server(got)) as address:
        client = Client(address)
        assert index(client) == [("made", "", "UNAVAILABLE", "not loaded yet"), ("plain", "3", "READY", "")]
        assert index(client, ready=True) == [("plain", "3", "READY", "")]
        parameters = {"config": {"string_param": '{"a": 1}'}, "file:1/a": {"bytes_param": b"\0\xff"}, "n": {"int64_param": 5}}
        answer = client.ask("RepositoryModelLoad", made("RepositoryModelLoadRequest", model_name="made", parameters=parameters))
        assert (answer.model_name, answer.is_loaded) == ("made", True)
        assert (got[0].config, got[0].files, got[0].parameters) == ({"a": 1}, {"1/a": b"\0\xff"}, {"n": 5})
        assert client.ask("ModelReady", made("ModelReadyRequest", name="made")).ready
        failing = made("RepositoryModelLoadRequest", model_name="made", parameters={"config": {"string_param": '{"fail": 1}'}})
        assert client.refusal("RepositoryModelLoad", failing) == ("INTERNAL", "failed to load 'made': see the server's log")
        assert index(client)[0] == ("made", "", "READY", "load failed, see the server's log: what was loaded before still serves")
        unload = made("RepositoryModelUnloadRequest", model_name="made", parameters={"unload_dependents": {"bool_param": False}})
        answer = client.ask("RepositoryModelUnload", unload)
        assert (answer.model_name, answer.is_unloaded) == ("made", True)
        assert not client.ask("ModelReady", made("ModelReadyRequest", name="made")).ready
        assert client.ask("ServerReady").ready
        assert client.refusal("ModelInfer", made("ModelInferRequest", model_name="made")) == (
            "UNAVAILABLE",
            "model 'made' is not ready: it was unloaded",
        )


def test_what_is_refused(serving: Serving) -> None:
    got: list[LoadParameters] = []
    with serving(make_server(got)) as address:
        client = Client(address)
        both = {"repository_name": "elsewhere", "model_name": "made"}
        assert client.refusal("RepositoryIndex", made("RepositoryIndexRequest", repository_name="elsewhere"))[0] == "NOT_FOUND"
        for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
            assert client.refusal(method, made(f"{method}Request", **both))[0] == "NOT_FOUND"
            assert client.refusal(method, made(f"{method}Request", model_name="nope"))[0] == "NOT_FOUND"
            assert client.refusal(method, made(f"{method}Request"))[0] == "NOT_FOUND"
            empty = made(f"{method}Request", model_name="made", parameters={"config": {}})
            assert client.refusal(method, empty)[0] == "INVALID_ARGUMENT"
        for parameters in (
            {"config": {"bytes_param": b"{}"}},
            {"file:1/a": {"bytes_param": b""}},
            {"config": {"string_param": "{}"}, "file:1/a": {"string_param": "text"}},
            {"config": {"string_param": "{}"}, "file:../a": {"bytes_param": b""}},
        ):
            message = made("RepositoryModelLoadRequest", model_name="made", parameters=parameters)
            assert client.refusal("RepositoryModelLoad", message)[0] == "INVALID_ARGUMENT"
        message = made("RepositoryModelUnloadRequest", model_name="made", parameters={"unload_dependents": {"string_param": "no"}})
        assert client.refusal("RepositoryModelUnload", message)[0] == "INVALID_ARGUMENT"
    assert got == []


def test_clients_control_nothing_unless_the_host_says_so(serving: Serving) -> None:
    with serving(make_server([], model_control=False)) as address:
        client = Client(address)
        for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
            assert client.refusal(method, made(f"{method}Request", model_name="plain"))[0] == "PERMISSION_DENIED"
        assert len(index(client)) == 2
        assert "model_repository" not in client.ask("ServerMetadata").extensions
