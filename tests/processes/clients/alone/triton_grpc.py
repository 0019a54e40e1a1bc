"""tritonclient.grpc, blocking and asyncio: every datatype, and what its own messages say; `triton_methods` calls all its methods."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.support.grpc_ways import fields_of, own_fields

from .arrays import ARRAYS, Array, assert_same, named

arrays = pytest.mark.parametrize("array", ARRAYS, ids=named)


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as client:
        yield client


def tensor(array: Array, name: str = "x") -> Any:
    return triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)).set_data_from_numpy(array)


def test_every_datatype_is_sent() -> None:
    bits = {f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
    assert {np_to_triton_dtype(array.dtype) for array in ARRAYS} == {*bits, "BOOL", "FP16", "FP32", "FP64", "BYTES", "BF16"}


def test_every_field_is_numbered_as_in_the_clients_messages() -> None:
    own, theirs = own_fields(), fields_of(triton.service_pb2.DESCRIPTOR.message_types_by_name.values())
    assert len(own) > 50
    of_kserve = {
        f"inference.RepositoryModel{field}"
        for field in ("LoadResponse.model_name", "LoadResponse.is_loaded", "UnloadResponse.model_name", "UnloadResponse.is_unloaded")
    }
    of_mlserver = {name for name in own if "ModelMetadataResponse." in name and "arameters" in name}
    assert len(of_mlserver) == 6
    assert own.keys() - theirs.keys() == of_kserve | of_mlserver
    assert {name: own[name] for name in own.keys() & theirs.keys()} == {name: theirs[name] for name in own.keys() & theirs.keys()}


@arrays
def test_infers(client: Any, array: Array) -> None:
    answer = client.infer("echo", [tensor(array)], request_id="42")
    assert_same(answer.as_numpy("x"), array)
    assert answer.get_response().id == "42"


@arrays
def test_infers_with_asyncio(address: str, array: Array) -> None:
    async def ask() -> Any:
        async with triton_aio.InferenceServerClient(address) as client:
            return await client.infer("echo", [tensor(array)])

    assert_same(asyncio.run(ask()).as_numpy("x"), array)


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


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(client: Any, algorithm: str) -> None:
    array = np.zeros(100_000, "f4")
    assert_same(client.infer("echo", [tensor(array)], compression_algorithm=algorithm).as_numpy("x"), array)


def test_shared_memory_that_the_server_has_not_is_refused(client: Any) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer("echo", [triton.InferInput("x", [1], "FP32").set_shared_memory("region", 4)])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
