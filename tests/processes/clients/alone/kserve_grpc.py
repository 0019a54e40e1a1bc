"""kserve's InferenceGRPCClient against a real server process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import kserve
import numpy as np
import pytest
from kserve.inference_client import InferenceGRPCClient
from kserve.protocol.grpc import grpc_predict_v2_pb2
from kserve.protocol.infer_type import RequestedOutput

from oip_asgi import Tensor
from tests.support.grpc_ways import fields_of, own_fields

from .arrays import ARRAYS, Array, assert_same, named

# its client has no BF16, and no list form of FP16 either
SENT = [(array, raw) for array in ARRAYS for raw in (True, False) if array.dtype.name not in ("bfloat16", "" if raw else "float16")]
OF_THE_PROTOCOL = ("Server", "ModelReady", "ModelMetadata", "ModelInfer", "InferParameter", "InferTensorContents")
"""How the messages begin that are no extension: those of Triton's extensions are unknown to KServe, or numbered in another way."""


def run(address: str, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    async def with_client() -> Any:
        async with InferenceGRPCClient(address, retries=0) as client:
            return await ask(client)

    return asyncio.run(with_client())


def request(model: str, array: Array, *, raw: bool = True, **fields: Any) -> Any:
    tensor = kserve.InferInput("x", list(array.shape), Tensor("", array).datatype)
    if raw:
        tensor.set_data_from_numpy(array, binary_data=True)
    else:
        tensor.data = array.ravel().tolist()
    return kserve.InferRequest(model_name=model, infer_inputs=[tensor], **fields)


def test_every_field_is_numbered_as_in_the_clients_messages() -> None:
    own = {name: field for name, field in own_fields().items() if name.removeprefix("inference.").startswith(OF_THE_PROTOCOL)}
    theirs = fields_of(grpc_predict_v2_pb2.DESCRIPTOR.message_types_by_name.values())
    assert len(own) > 50
    missing = {"inference.InferParameter.double_param", "inference.InferParameter.uint64_param"}  # Triton's
    missing |= {name for name in own if "ModelMetadataResponse." in name and "arameters" in name}  # MLServer's
    assert len(missing) == 8
    assert {name: own[name] for name in own.keys() - missing} == {name: theirs[name] for name in own.keys() - missing}


def test_health(address: str) -> None:
    assert run(address, lambda client: client.is_server_live()) is True
    assert run(address, lambda client: client.is_server_ready()) is True
    assert run(address, lambda client: client.is_model_ready("echo")) is True
    with pytest.raises(grpc.RpcError, match="Request for unknown model: 'nope' is not found"):
        run(address, lambda client: client.is_model_ready("nope"))


@pytest.mark.parametrize(("array", "raw"), SENT, ids=lambda value: named(value) if isinstance(value, np.ndarray) else f"raw={value}")
def test_infers_raw_and_typed_inputs_which_come_back_raw(address: str, array: Array, raw: bool) -> None:
    answer = run(address, lambda client: client.infer(request("echo", array, raw=raw, request_id="42")))
    [output] = answer.outputs
    assert (answer.id, answer.model_name) == ("42", "echo")
    assert (output.shape, output.datatype) == (list(array.shape), Tensor("", array).datatype)
    assert_same(output.as_numpy(), array)


def test_requested_outputs_and_parameters(address: str) -> None:
    wanted = [RequestedOutput("x", parameters={"binary_data": False})]
    sent = request("echo", np.ones(2, "f4"), request_outputs=wanted, parameters={"a": "b", "n": 1, "t": True})
    assert run(address, lambda client: client.infer(sent)).outputs[0].as_numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("model", "shape", "code", "text"),
    [
        ("nope", (1,), grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'nope' is not found"),
        ("declared", (1, 3), grpc.StatusCode.INVALID_ARGUMENT, "input 'x' has shape [1, 3]: expected [-1, 2]"),
        ("fails", (1,), grpc.StatusCode.INTERNAL, "model 'fails' failed: see the server's log"),
    ],
)
def test_shows_our_errors(address: str, model: str, shape: tuple[int, ...], code: grpc.StatusCode, text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        run(address, lambda client: client.infer(request(model, np.ones(shape, "f4"))))
    error: Any = caught.value
    assert (error.code(), error.details()[: len(text)]) == (code, text)
