"""tritonclient.grpc, blocking and asyncio, against a real server process; it shares its own process with our server's messages."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from oip_asgi import InferenceServer
from tests.support.grpc_ways import blocking, fields_of, own_fields
from tests.support.inside.values import DTYPES, Array

from .arrays import ARRAYS, assert_same, named

arrays = pytest.mark.parametrize("array", ARRAYS, ids=named)


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as client:
        yield client


def run(address: str, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    async def with_client() -> Any:
        async with triton_aio.InferenceServerClient(address) as client:
            return await ask(client)

    return asyncio.run(with_client())


def tensor(array: Array, name: str = "x") -> Any:
    tensor = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    return tensor.set_data_from_numpy(array)


ONE = np.ones(1, "f4")


def test_every_datatype_is_sent() -> None:
    assert {np_to_triton_dtype(array.dtype) for array in ARRAYS} == {*DTYPES, "BF16"}


def test_every_field_is_numbered_as_in_the_clients_messages() -> None:
    own = own_fields()
    theirs = fields_of(triton.service_pb2.DESCRIPTOR.message_types_by_name.values())
    assert len(own) > 50
    of_kserve = {
        f"inference.RepositoryModel{field}"
        for field in ("LoadResponse.model_name", "LoadResponse.is_loaded", "UnloadResponse.model_name", "UnloadResponse.is_unloaded")
    }
    of_mlserver = {name for name in own if "ModelMetadataResponse." in name and "arameters" in name}
    assert len(of_mlserver) == 6
    assert own.keys() - theirs.keys() == of_kserve | of_mlserver
    assert {name: own[name] for name in own.keys() & theirs.keys()} == {name: theirs[name] for name in own.keys() & theirs.keys()}


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("org/model")
    assert client.is_model_ready("versioned", "2")
    metadata = client.get_server_metadata(as_json=True)
    assert metadata == {
        "name": "served",
        "version": "7",
        "extensions": ["binary_tensor_data", "classification", "model_configuration", "parameters", "statistics"],
    }
    declared = client.get_model_metadata("declared", as_json=True)
    assert declared["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "2"]}]
    assert client.get_model_metadata("versioned").versions == ["1", "2"]
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nope' is not found"):
        client.is_model_ready("nope")


def test_asyncio_health_and_metadata(address: str) -> None:
    async def ask(client: Any) -> Any:
        answers = [await client.is_server_live(), await client.is_server_ready(), await client.is_model_ready("versioned", "1")]
        return answers, await client.get_server_metadata(), await client.get_model_metadata("declared")

    answers, server, model = run(address, ask)
    assert answers == [True, True, True]
    assert (server.name, server.version) == ("served", "7")
    assert [(tensor.name, [*tensor.shape]) for tensor in model.outputs] == [("y", [-1, 2])]


@arrays
def test_infers(client: Any, array: Array) -> None:
    answer = client.infer("echo", [tensor(array)], request_id="42")
    assert_same(answer.as_numpy("x"), array)
    assert answer.get_response().id == "42"


@arrays
def test_infers_with_asyncio(address: str, array: Array) -> None:
    answer = run(address, lambda client: client.infer("echo", [tensor(array)], request_id="42"))
    assert_same(answer.as_numpy("x"), array)
    assert answer.get_response().id == "42"


def test_several_tensors_outputs_and_parameters(client: Any) -> None:
    a, b = np.arange(3, dtype="i4"), np.array([b"\0\xff", b""], object)
    outputs = [triton.InferRequestedOutput("b"), triton.InferRequestedOutput("a")]
    answer = client.infer("echo", [tensor(a, "a"), tensor(b, "b")], outputs=outputs, parameters={"s": "t", "n": 1, "f": 0.5, "b": True})
    assert [output.name for output in answer.get_response().outputs] == ["b", "a"]
    assert_same(answer.as_numpy("a"), a)
    assert_same(answer.as_numpy("b"), b)


def test_typed_contents_of_the_clients_own_messages(client: Any) -> None:
    """tritonclient's messages with `contents`, sent by hand: it has no call for them."""
    request = triton.service_pb2.ModelInferRequest(model_name="echo")
    request.inputs.add(name="x", datatype="INT8", shape=[2]).contents.int_contents.extend([-128, 127])
    response = client._client_stub.ModelInfer(request)
    assert [*response.raw_output_contents] == [b"\x80\x7f"]  # as it reads them


def test_versions(client: Any) -> None:
    assert client.infer("versioned", [tensor(ONE)], model_version="1").as_numpy("output_0").tolist() == [1]
    assert client.infer("versioned", [tensor(ONE)]).get_response().model_version == "2"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(client: Any, algorithm: str) -> None:
    array = np.zeros(100_000, "f4")
    assert_same(client.infer("echo", [tensor(array)], compression_algorithm=algorithm).as_numpy("x"), array)


def test_callbacks(client: Any) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    for place in range(5):
        client.async_infer("echo", [tensor(ONE * place)], callback=lambda result, error: answers.put((result, error)))
    received = [answers.get(timeout=30) for _ in range(5)]
    assert [error for _, error in received] == [None] * 5
    assert sorted(result.as_numpy("x").item() for result, _ in received) == [0, 1, 2, 3, 4]


ERRORS = pytest.mark.parametrize(
    ("model", "array", "arguments", "code", "text"),
    [
        ("nope", ONE, {}, "NOT_FOUND", "Request for unknown model: 'nope' is not found"),
        ("versioned", ONE, {"model_version": "3"}, "NOT_FOUND", "Request for unknown model: 'versioned' version '3' is not found"),
        ("declared", np.ones((1, 3), "f4"), {}, "INVALID_ARGUMENT", r"input 'x' has shape \[1, 3\]: expected \[-1, 2\]"),
        ("declared", np.ones((1, 2), "f8"), {}, "INVALID_ARGUMENT", "input 'x' has datatype FP64: expected FP32"),
        ("echo", ONE, {"outputs": [triton.InferRequestedOutput("z")]}, "INVALID_ARGUMENT", "unknown output 'z'"),
        ("fails", ONE, {}, "INTERNAL", "model 'fails' failed"),
    ],
)


@ERRORS
def test_shows_our_errors(client: Any, model: str, array: Array, arguments: Any, code: str, text: str) -> None:
    with pytest.raises(InferenceServerException, match=text) as caught:
        client.infer(model, [tensor(array)], **arguments)
    assert caught.value.status() == f"StatusCode.{code}"
    assert client.infer("echo", [tensor(ONE)]).as_numpy("x").tolist() == [1.0]


@ERRORS
def test_shows_our_errors_with_asyncio(address: str, model: str, array: Array, arguments: Any, code: str, text: str) -> None:
    with pytest.raises(InferenceServerException, match=text) as caught:
        run(address, lambda client: client.infer(model, [tensor(array)], **arguments))
    assert caught.value.status() == f"StatusCode.{code}"


def test_shared_memory_is_refused(client: Any) -> None:
    shared = triton.InferInput("x", [1], "FP32").set_shared_memory("region", 4)
    with pytest.raises(InferenceServerException) as caught:
        client.infer("echo", [shared])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_what_the_protocol_does_not_have_is_unimplemented(client: Any) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.get_trace_settings()
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


def test_the_server_may_be_in_the_clients_process() -> None:
    server = InferenceServer("near")
    server.register("echo", lambda x: x)
    with blocking(server) as address, triton.InferenceServerClient(address) as client:
        assert client.get_server_metadata().name == "near"
        assert client.infer("echo", [tensor(ONE)]).as_numpy("output_0").tolist() == [1.0]
