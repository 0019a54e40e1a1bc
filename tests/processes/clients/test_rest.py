"""tritonclient and kserve's client against a real uvicorn process, through each way in that serves a bare `/v2`.

`alone/triton_methods` calls all methods of tritonclient.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx  # which KServe's client is built on
import httpx2
import kserve
import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from kserve.errors import InvalidInput
from kserve.inference_client import InferenceRESTClient, RESTConfig
from kserve.protocol.infer_type import RequestedOutput
from tritonclient.utils import np_to_triton_dtype

from tests.support.processes import serving_module

from .alone.arrays import IN_JSON, NOT_FINITE, Array, assert_same, named


@pytest.fixture(scope="module", params=["install", "middleware"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """ "127.0.0.1:port" of a server process."""
    with serving_module("tests.support.served", request.param) as (_, address):
        yield address


arrays = pytest.mark.parametrize("array", IN_JSON, ids=named)
flags = pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as client:
        yield client


def triton_input(array: Array, *, binary: bool, name: str = "x") -> Any:
    tensor = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    return tensor.set_data_from_numpy(array, binary_data=binary)


@arrays
@flags
@pytest.mark.parametrize("binary_output", [None, False, True])
def test_triton_infers(client: Any, array: Array, binary: bool, binary_output: bool | None) -> None:
    outputs = None if binary_output is None else [triton.InferRequestedOutput("x", binary_data=binary_output)]
    answer = client.infer("echo", [triton_input(array, binary=binary)], outputs=outputs, request_id="42")
    output = answer.as_numpy("x")
    if output is None:  # tritonclient gives None for an empty tensor that came as JSON
        assert not array.size
        output = np.zeros(answer.get_output("x")["shape"], array.dtype)
    assert_same(output, array)
    assert answer.get_response()["id"] == "42"


def test_triton_several_inputs_mixed(client: Any) -> None:
    a, b, c = np.arange(3, dtype="i4"), np.arange(4, dtype="f2"), np.array([b"\0\xff"], object)
    tensors = [triton_input(a, binary=True, name="a"), triton_input(b, binary=False, name="b"), triton_input(c, binary=True, name="c")]
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name, binary in (("c", True), ("b", True), ("a", False))]
    answer = client.infer("echo", tensors, outputs=outputs)
    assert [output["name"] for output in answer.get_response()["outputs"]] == ["c", "b", "a"]
    for name, array in (("a", a), ("b", b), ("c", c)):
        assert_same(answer.as_numpy(name), array)


def test_triton_bf16(client: Any) -> None:
    answer = client.infer("echo", [triton_input(np.array([1.5, -2], ml_dtypes.bfloat16), binary=True)])
    assert answer.get_output("x")["datatype"] == "BF16"
    assert answer.as_numpy("x").astype("f4").tolist() == [1.5, -2]


def test_triton_raw_binary_request(address: str) -> None:
    data, headers = np.array([[1, 2], [3, 4]], "f4"), {"Inference-Header-Content-Length": "0"}
    answer = httpx2.post(f"http://{address}/v2/models/declared/infer", content=data.tobytes(), headers=headers).raise_for_status()
    result = triton.InferResult.from_response_body(answer.content, header_length=int(answer.headers["inference-header-content-length"]))
    assert_same(result.as_numpy("y"), data)


async def with_kserve(address: str, ask: Any) -> Any:
    # certificates that nothing here needs take longer to load than a request
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0, verify=False))
    try:
        return await ask(client, f"http://{address}")
    finally:
        await client.close()


def infer_with_kserve(address: str, array: Array, model: str, *, binary: bool, outputs: Any = None) -> Any:
    tensor = kserve.InferInput("x", list(array.shape), np_to_triton_dtype(array.dtype))

    async def ask(client: Any, url: str) -> Any:
        tensor.set_data_from_numpy(array, binary_data=binary)
        request = kserve.InferRequest(model_name=model, infer_inputs=[tensor], request_outputs=outputs)
        return await client.infer(url, request, model_name=model)

    return asyncio.run(with_kserve(address, ask))


def test_kserve_health(address: str) -> None:
    async def ask(client: Any, url: str) -> list[bool]:
        return [await client.is_server_live(url), await client.is_server_ready(url), await client.is_model_ready(url, "echo")]

    assert asyncio.run(with_kserve(address, ask)) == [True] * 3


@pytest.mark.parametrize("array", [array for array in IN_JSON if array is not NOT_FINITE], ids=named)
@flags
@pytest.mark.parametrize("binary_output", [False, True])
def test_kserve_infers(address: str, array: Array, binary: bool, binary_output: bool) -> None:
    outputs = [RequestedOutput("x", parameters={"binary_data": binary_output})]
    if array.dtype == "f2" and not binary:
        with pytest.raises(InvalidInput, match="Sending FP16 data via JSON is not supported"):
            infer_with_kserve(address, array, "echo", binary=binary)
        return
    [tensor] = infer_with_kserve(address, array, "echo", binary=binary, outputs=outputs).outputs
    assert tensor.shape == list(array.shape)
    assert_same(tensor.as_numpy().reshape(array.shape), array)


@pytest.mark.parametrize(
    ("model", "shape", "text"),
    [
        ("nope", (1,), "Request for unknown model: 'nope' is not found"),
        ("declared", (1, 3), "expected"),
        ("fails", (1,), "model 'fails' failed"),
    ],
)
def test_kserve_shows_our_errors(address: str, model: str, shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(httpx.HTTPStatusError, match=text):
        infer_with_kserve(address, np.ones(shape, "f4"), model, binary=True)
