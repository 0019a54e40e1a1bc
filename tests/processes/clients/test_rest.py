"""tritonclient and kserve's client against a real uvicorn process, through each way in that serves a bare `/v2`."""

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
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.support.inside.values import DTYPES, Array
from tests.support.processes import serving_module


@pytest.fixture(scope="module", params=["install", "middleware"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """ "127.0.0.1:port" of a server process."""
    with serving_module("tests.support.served", request.param) as (_, address):
        yield address


ARRAYS: list[Array] = [
    np.array([[True, False], [False, True]]),
    *[np.array([[0, 1], [100, 127]], dtype) for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")],
    *[np.array([[0.5, -1], [2, 65504]], dtype) for dtype in ("f2", "f4", "f8")],
    np.array([["a", "é"], ["", "long " * 50]], object),
    np.zeros((0, 2), "f4"),
    np.zeros((2, 1, 0, 3), "i8"),
]
NOT_FINITE = np.array([np.nan, np.inf, -np.inf, 1], "f4")

arrays = pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{list(array.shape)}")
flags = pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])


def expected(array: Array) -> list[Any]:
    return [element.encode() for element in array.ravel()] if array.dtype.hasobject else array.ravel().tolist()


def test_every_datatype_is_sent() -> None:
    assert {np_to_triton_dtype(array.dtype) for array in ARRAYS} == set(DTYPES)


# tritonclient


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as client:
        yield client


def triton_input(array: Array, *, binary: bool, name: str = "x") -> Any:
    tensor = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def test_triton_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("org/model")
    assert client.is_model_ready("versioned", "2")
    assert not client.is_model_ready("nope")
    assert not client.is_model_ready("versioned", "3")
    assert client.get_server_metadata() == {
        "name": "served",
        "version": "7",
        "extensions": ["binary_tensor_data", "classification", "model_configuration", "parameters", "statistics"],
    }
    assert client.get_model_metadata("declared")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert client.get_model_metadata("versioned")["versions"] == ["1", "2"]


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
    assert output.shape == array.shape
    elements = [e.encode() if isinstance(e, str) else e for e in output.ravel().tolist()]
    assert elements == expected(array)
    assert answer.get_response()["id"] == "42"


@flags
def test_triton_not_finite(client: Any, binary: bool) -> None:
    outputs = [triton.InferRequestedOutput("x", binary_data=binary)]
    answer = client.infer("echo", [triton_input(NOT_FINITE, binary=binary)], outputs=outputs)
    np.testing.assert_array_equal(answer.as_numpy("x"), NOT_FINITE)


def test_triton_several_inputs_mixed(client: Any) -> None:
    a, b, c = np.arange(3, dtype="i4"), np.arange(4, dtype="f2"), np.array([b"\0\xff"], object)
    tensors = [triton_input(a, binary=True, name="a"), triton_input(b, binary=False, name="b"), triton_input(c, binary=True, name="c")]
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name, binary in (("c", True), ("b", True), ("a", False))]
    answer = client.infer("echo", tensors, outputs=outputs)
    assert [output["name"] for output in answer.get_response()["outputs"]] == ["c", "b", "a"]
    np.testing.assert_array_equal(answer.as_numpy("a"), a)
    np.testing.assert_array_equal(answer.as_numpy("b"), b)
    assert answer.as_numpy("c").tolist() == [b"\0\xff"]


def test_triton_bf16(client: Any) -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    tensor = triton.InferInput("x", [2], "BF16")
    tensor.set_data_from_numpy(array)
    answer = client.infer("echo", [tensor])
    assert answer.get_output("x")["datatype"] == "BF16"
    assert answer.as_numpy("x").astype("f4").tolist() == [1.5, -2]


def test_triton_versions_parameters_and_threads(client: Any) -> None:
    x = triton_input(np.ones(1, "f4"), binary=True)
    assert client.infer("versioned", [x], model_version="1").get_response()["model_version"] == "1"
    assert client.infer("versioned", [x]).get_response()["model_version"] == "2"
    assert client.infer("versioned", [x], parameters={"mine": 1}).as_numpy("output_0") == 2
    pending = [client.async_infer("echo", [x]) for _ in range(5)]
    assert [request.get_result().as_numpy("x").tolist() for request in pending] == [[1.0]] * 5


def test_triton_asyncio(address: str) -> None:
    import tritonclient.http.aio as aio

    async def main() -> Any:
        async with aio.InferenceServerClient(address) as client:
            assert await client.is_server_ready()
            tensor = aio.InferInput("x", [2], "FP32")
            tensor.set_data_from_numpy(np.array([1, 2], "f4"))
            return (await client.infer("echo", [tensor])).as_numpy("x").tolist()

    assert asyncio.run(main()) == [1.0, 2.0]


def test_triton_raw_binary_request(client: Any, address: str) -> None:
    data = np.array([[1, 2], [3, 4]], "f4").tobytes()
    answer = httpx2.post(
        f"http://{address}/v2/models/declared/infer", content=data, headers={"Inference-Header-Content-Length": "0"}
    ).raise_for_status()
    result = triton.InferResult.from_response_body(answer.content, header_length=int(answer.headers["inference-header-content-length"]))
    np.testing.assert_array_equal(result.as_numpy("y"), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("model", "array", "arguments", "status", "text"),
    [
        ("nope", np.ones(1, "f4"), {}, "404", "Request for unknown model: 'nope' is not found"),
        ("declared", np.ones((1, 3), "f4"), {}, "400", r"input 'x' has shape \[1, 3\]: expected \[-1, 2\]"),
        ("declared", np.ones((1, 2), "f8"), {}, "400", "input 'x' has datatype FP64: expected FP32"),
        ("echo", np.ones(1, "f4"), {"outputs": [triton.InferRequestedOutput("z")]}, "400", "unknown output 'z'"),
        ("fails", np.ones(1, "f4"), {}, "500", "model 'fails' failed"),
    ],
)
def test_triton_shows_our_errors(client: Any, model: str, array: Array, arguments: Any, status: str, text: str) -> None:
    with pytest.raises(InferenceServerException, match=text) as caught:
        client.infer(model, [triton_input(array, binary=True)], **arguments)
    assert caught.value.status() == status


def test_triton_stays_connected_after_an_error(client: Any) -> None:
    for model in ("fails", "nope", "echo", "fails", "echo"):
        x = triton_input(np.ones(1, "f4"), binary=True)
        if model == "echo":
            assert client.infer(model, [x]).as_numpy("x").tolist() == [1.0]
        else:
            with pytest.raises(InferenceServerException):
                client.infer(model, [x])


# kserve


async def with_kserve(address: str, ask: Any) -> Any:
    # certificates that nothing here needs take longer to load than a request
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0, verify=False))
    try:
        return await ask(client, f"http://{address}")
    finally:
        await client.close()


def kserve_request(array: Array, model: str, *, binary: bool, output: Any = None) -> Any:
    tensor = kserve.InferInput("x", list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array, binary_data=binary)
    return kserve.InferRequest(model_name=model, infer_inputs=[tensor], request_outputs=output)


def test_kserve_health(address: str) -> None:
    async def ask(client: Any, url: str) -> None:
        assert await client.is_server_live(url)
        assert await client.is_server_ready(url)
        assert await client.is_model_ready(url, "echo")

    asyncio.run(with_kserve(address, ask))


def test_kserve_itself_refuses_to_send_fp16_as_json() -> None:
    with pytest.raises(InvalidInput, match="Sending FP16 data via JSON is not supported"):
        asyncio.run(
            with_kserve("127.0.0.1:1", lambda client, url: client.infer(url, kserve_request(ARRAYS[9], "m", binary=False), model_name="m"))
        )


@pytest.mark.parametrize(
    ("array", "binary"),
    [(array, binary) for array in ARRAYS for binary in (False, True) if binary or array.dtype != "f2"],
    ids=lambda value: f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else f"binary={value}",
)
@pytest.mark.parametrize("binary_output", [False, True])
def test_kserve_infers(address: str, array: Array, binary: bool, binary_output: bool) -> None:
    output = [RequestedOutput("x", parameters={"binary_data": binary_output})]

    async def ask(client: Any, url: str) -> Any:
        return await client.infer(url, kserve_request(array, "echo", binary=binary, output=output), model_name="echo")

    answer = asyncio.run(with_kserve(address, ask))
    [tensor] = answer.outputs
    assert tensor.shape == list(array.shape)
    elements = [e.encode() if isinstance(e, str) else e for e in tensor.as_numpy().ravel().tolist()]
    assert elements == expected(array)


@pytest.mark.parametrize(
    ("model", "shape", "text"),
    [
        ("nope", (1,), "Request for unknown model: 'nope' is not found"),
        ("declared", (1, 3), "expected"),
        ("fails", (1,), "model 'fails' failed"),
    ],
)
def test_kserve_shows_our_errors(address: str, model: str, shape: tuple[int, ...], text: str) -> None:
    async def ask(client: Any, url: str) -> Any:
        return await client.infer(url, kserve_request(np.ones(shape, "f4"), model, binary=True), model_name=model)

    with pytest.raises(httpx.HTTPStatusError, match=text):
        asyncio.run(with_kserve(address, ask))
