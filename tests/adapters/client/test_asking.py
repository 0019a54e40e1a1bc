"""What both clients send and return, of our own server: over WSGI, ASGI and sockets."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

import httpx2
import numpy as np
import numpy.typing as npt
import pytest

from oip_asgi import ErrorResponse, InferenceError, InferenceRequest, InferenceResponse, InvalidResponse, RequestOutput, Tensor
from oip_asgi.client import Client
from oip_asgi.codecs import Base64Codec, DatetimeCodec, StringCodec
from tests.support.asked import Asked


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_an_array_comes_back_with_its_dtype_and_shape(ask: Asked, binary: bool) -> None:
    for array in (np.array([[1, 2], [3, np.nan]], np.float32), np.array([[True]]), np.empty((0, 3), np.uint8)):
        response = ask("infer", "echo", {"x": array}, id="an id", binary=binary)
        assert response.id == "an id"
        assert response.model_name == "echo"
        assert response["x"].dtype == array.dtype
        assert response["x"].shape == array.shape
        assert np.array_equal(response["x"], array, equal_nan=array.dtype.kind == "f")


def test_a_column_of_a_frame_is_a_value_too() -> None:
    pd = pytest.importorskip("pandas")
    from oip_asgi.codecs import PandasCodec

    response = PandasCodec.encode_response("m", pd.DataFrame({"n": [1, 2], "text": ["a", "b"]}))
    assert (response.as_("n", list[int]), response.as_("n", np.ndarray).tolist(), response.as_("text", list[str])) == (
        [1, 2],
        [1, 2],
        ["a", "b"],
    )
    assert response.as_("n", pd.Series).tolist() == [1, 2]


@pytest.mark.parametrize("how", ["infer", "stream"])
def test_values_of_an_input_that_is_declared_as_encoded_text_are_encoded(ask: Asked, how: str) -> None:
    values = {"base64": [b"abcd"], "pd_json": ["1", {"a": [None]}, "Bonn"]}
    response = ask(how, "encoded", values)
    [response] = response if how == "stream" else [response]
    assert response.as_("output_0", list[str]) == ["[b'abcd']", "['1', {'a': [None]}, 'Bonn']"]
    encoded = [Tensor("base64", np.array([b"YWJjZA=="], object)), Tensor("pd_json", np.array([b"[1]"], object))]
    response = ask(how, "encoded", encoded)
    [response] = response if how == "stream" else [response]
    assert response.as_("output_0", list[str]) == ["[b'abcd']", "[[1]]"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"base64": ["abcd"]}, "input 'base64': element 0 is 'abcd': a bytes-like object is required"),
        ({"pd_json": [b"1"]}, "input 'pd_json': column 'pd_json', row 0 is b'1', which has no JSON form"),
        ({"pd_json": "ab"}, "input 'pd_json': the content_type 'pd_json' is for a list, but this is 'ab'"),
    ],
)
def test_values_that_cannot_be_encoded_as_the_model_declares_are_refused(ask: Asked, values: dict[str, Any], text: str) -> None:
    with pytest.raises(InferenceError, match=text):
        ask("infer", "encoded", values)


@pytest.mark.parametrize("how", ["infer", "stream"])
def test_an_unknown_keyword_is_refused(ask: Asked, how: str) -> None:
    with pytest.raises(TypeError, match="vesion"):
        ask(how, "echo", {"x": [1]}, vesion="1")


@pytest.mark.parametrize("elements", [100, 1000, 16_385, 70_001, 1_000_001])
def test_a_long_array_comes_back_writable_and_aligned(ask: Asked, elements: int) -> None:
    array = np.arange(elements, dtype=np.float64)
    got = ask("infer", "echo", {"name of odd length": array[::-1], "b": np.array([1, 2, 3], np.uint8)})
    assert np.array_equal(got["name of odd length"], array[::-1])
    assert got["b"].tolist() == [1, 2, 3]
    assert got["name of odd length"].flags.writeable
    assert got["name of odd length"].flags.aligned


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_values_of_python_go_out_as_codecs_write_them(ask: Asked, binary: bool) -> None:
    when = datetime(2026, 11, 24, 16, 30)
    values = {
        "texts": ["é", ""],
        "bytes": [b"a", b"b"],
        "dates": [when],
        "numbers": [1, 2],
        "number": 1.5,
        "tensor": Tensor("other", np.array([True])),
    }
    response = ask("infer", "echo", values, binary=binary)
    assert response.as_("texts", list[str]) == ["é", ""]
    assert response["bytes"].tolist() == [b"a", b"b"]
    assert response.as_("dates", list[datetime]) == [when]
    assert response["numbers"].dtype == np.int64
    assert response.as_("number", float) == 1.5
    assert response["tensor"].tolist() == [True]


def test_missing_values_go_out_as_from_a_server_itself(ask: Asked) -> None:
    assert np.array_equal(ask("infer", "echo", {"x": [3, None]})["x"], [3, np.nan], equal_nan=True)
    mend = r'but holds None; for a missing value in a column of a data frame, write pandas.Series\(\["a", None\]\)'
    with pytest.raises(InferenceError, match=mend):
        ask("infer", "echo", {"x": ["a", None]})


def test_an_empty_array_of_objects_goes_out_as_bytes(ask: Asked) -> None:
    response = ask("infer", "echo", {"x": np.empty((0, 2), object)})
    assert (response["x"].dtype, response["x"].shape) == (np.dtype(object), (0, 2))


def test_requests_and_tensors_go_out_as_they_are(ask: Asked) -> None:
    request = InferenceRequest([Tensor("x", np.array([1])), Tensor("y", np.array([2]))], "own id", outputs=[RequestOutput("y")])
    response = ask("infer", "echo", request)
    assert (response.id, [tensor.name for tensor in response.outputs]) == ("own id", ["y"])
    assert request.parameters == {}
    assert ask("infer", "echo", request, id="other", outputs=["x"])["x"].tolist() == [1]
    tensors = [StringCodec.encode_input("names", ["Ada"])]
    assert ask("infer", "spoken", tensors).as_("greetings", list[str]) == ["good day, Ada"]


def test_a_data_frame_is_all_inputs(ask: Asked) -> None:
    pd = pytest.importorskip("pandas")
    from oip_asgi.codecs import PandasCodec

    frame = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    response = ask("infer", "echo", frame)
    assert response["a"].tolist() == [1.5, 2.5]
    assert PandasCodec.decode_response(response)["a"].tolist() == [1.5, 2.5]


def test_versions_outputs_and_parameters(ask: Asked) -> None:
    assert ask("infer", "versions", {}).model_version == "2"
    assert ask("infer", "versions", {}, version=1)["output_0"].tolist() == [1]
    assert ask("infer", "versions", {}, version="2", outputs=[RequestOutput("output_0", {"binary_data": False})])["output_0"].tolist() == [
        2
    ]
    assert ask("infer", "org/a model", {"x": [1]})["output_0"].tolist() == [1]


def test_answers_about_server_and_models(ask: Asked) -> None:
    assert ask("metadata")["name"] == "asked"
    assert (ask("is_live"), ask("is_ready")) == (True, True)
    assert ask("models") == ["echo", "spoken", "counts", "encoded", "versions", "org/a model"]
    assert ask("model_metadata", "spoken")["outputs"] == [{"name": "greetings", "datatype": "BYTES", "shape": [-1]}]
    assert ask("model_metadata", "versions", version=1)["versions"] == ["1", "2"]
    assert ask("is_model_ready", "org/a model") is True
    assert ask("is_model_ready", "versions", 3) is False
    assert ask("is_model_ready", "nobody") is False
    assert {"name": "versions", "version": "2", "state": "READY"} in ask("index", ready=True)
    assert ask("config", "echo")["name"] == "echo"
    assert [each["version"] for each in ask("statistics", "versions")] == ["1", "2"]
    assert ask("statistics", "versions", 2)[0]["name"] == "versions"
    assert "echo" in [each["name"] for each in ask("statistics")]


def test_models_come_and_go(ask: Asked) -> None:
    assert ask("unload", "echo") is None
    assert ask("is_model_ready", "echo") is False
    assert "echo" not in [entry["name"] for entry in ask("index", ready=True)]
    assert ask("load", "echo") is None
    assert ask("is_model_ready", "echo") is True
    with pytest.raises(ErrorResponse, match="expected the text of a JSON object") as caught:
        ask("load", "echo", {"config": "[]"})
    assert caught.value.response_status == 400


def test_a_refusal_has_its_status_and_text(ask: Asked) -> None:
    with pytest.raises(ErrorResponse, match="unknown model: 'nobody'") as caught:
        ask("infer", "nobody", {})
    assert caught.value.response_status == 404
    with pytest.raises(ErrorResponse) as caught:
        ask("infer", "spoken", {"names": ["Ada"], "more": [1]})
    assert (caught.value.response_status, caught.value.text) == (400, "unknown input 'more': expected 'names'")
    with pytest.raises(ErrorResponse, match="unknown model"):
        ask("model_metadata", "nobody")


def test_what_is_no_tensor_is_refused_before_anything_is_sent() -> None:
    client = Client("http://127.0.0.1:1/v2")
    for inputs, text in {
        "x": "expected values by name",
        1: "expected values by name",
    }.items():
        with pytest.raises(InferenceError, match=text):
            client.infer("m", inputs)
    with pytest.raises(InferenceError, match="input 'x': an array of Python objects"):
        client.infer("m", {"x": object()})
    with pytest.raises(InferenceError, match="parameter 'p'"):
        client.infer("m", {"x": [1]}, parameters={"p": [1]})
    with pytest.raises(InferenceError, match="not UTF-8"):
        client.infer("m", {"x": np.array([b"\xff"], object)}, binary=False)


def test_lists_of_different_lengths_are_no_tensor() -> None:
    with pytest.raises(InferenceError) as raised:
        Client("http://127.0.0.1:1").infer("echo", {"x": [[1, 2], [3]]})
    assert str(raised.value) == "input 'x': its lists have different lengths: expected as many elements in each"


def test_the_repr_of_a_response_cuts_what_is_long() -> None:
    response = InferenceResponse(
        [Tensor("file", np.array([b"\x89PNG" * 500, b"short"], object)), Tensor("n", np.array([1, 2], np.float32))]
    )
    shown = " ".join(repr(response).split())
    assert shown.startswith("InferenceResponse(outputs=[Tensor(name='file', array=array([b'\\x89PNG\\x89PNG")
    assert "... (3503 characters), b'short'], dtype=object), parameters={}), Tensor(name='n', array=array([1., 2.], dtype=float32)" in shown
    assert len(shown) < 500


def test_streams(ask: Asked) -> None:
    for binary in (True, False):
        responses = ask("stream", "counts", {"n": [3]}, id="7", binary=binary)
        assert [(response.id, response["output_0"].tolist()) for response in responses] == [("7", [0]), ("7", [1]), ("7", [2])]
    assert ask("stream", "counts", {"n": [0]}) == []
    assert len(ask("stream", "echo", {"x": np.ones(50_000)})[0]["x"]) == 50_000
    with pytest.raises(ErrorResponse, match="unknown model") as caught:
        ask("stream", "nobody", {})
    assert caught.value.response_status == 404


def test_a_stream_that_is_asked_for_one_response_is_told_which_method_to_write(ask: Asked) -> None:
    with pytest.raises(ErrorResponse) as raised:
        ask("infer", "counts", {"n": [1]})
    ways = "use infer_stream, generate_stream or generate over HTTP, ModelStreamInfer over gRPC"
    assert raised.value.text == f"model 'counts' answers with a stream: {ways}"
    assert str(raised.value) == f"the server answered with the status 400: {raised.value.text} (write client.stream(...))"


def test_a_blocking_stream_where_an_event_loop_runs_as_in_a_notebook(url: str) -> None:
    async def cell() -> list[Any]:
        with Client(url) as client:
            broken_off = client.stream("counts", {"n": [3]})
            assert next(broken_off)["output_0"].tolist() == [0]
            broken_off.close()
            return [response["output_0"].tolist() for response in client.stream("counts", {"n": [3]})]

    assert asyncio.run(cell()) == [[0], [1], [2]]


def test_a_blocking_stream_outlives_the_event_loop_in_which_it_began(url: str) -> None:
    async def begin(client: Client) -> Any:
        responses = client.stream("counts", {"n": [3]})
        assert next(responses)["output_0"].tolist() == [0]
        return responses

    with Client(url) as client:
        assert [response["output_0"].tolist() for response in asyncio.run(begin(client))] == [[1], [2]]


def test_outputs_as_values() -> None:
    tensors = [
        Tensor("names", np.array(["Ada", "Grace"])),
        Base64Codec.encode_output("base64", [b"\xff"]),
        DatetimeCodec.encode_output("dates", [datetime(2026, 1, 2)]),
        Tensor("numbers", np.array([[1, 2]], np.float32)),
        Tensor("one", np.array([3])),
        Tensor("bytes", np.array([b"\xff"])),
    ]
    response = InferenceResponse(tensors)
    assert response.as_("names", list[str]) == ["Ada", "Grace"]
    assert response.as_("base64", list[bytes]) == [b"\xff"]
    assert response.as_("bytes", list[bytes]) == [b"\xff"]
    assert response.as_("dates", list[datetime]) == [datetime(2026, 1, 2)]
    assert response.as_("numbers", npt.NDArray[np.float32]) is response["numbers"]
    assert response.as_("numbers", np.ndarray) is response["numbers"]
    assert response.as_("one", int) == 3
    assert response.as_("names", Annotated[Any, StringCodec]) == ["Ada", "Grace"]
    assert InferenceResponse([Tensor("y", np.array(["Ada"]))], {"content_type": "str"}).as_("y", list[str]) == ["Ada"]


@pytest.mark.parametrize(
    ("name", "annotation", "error", "text"),
    [
        ("numbers", list[str], InvalidResponse, "output 'numbers' has datatype FP32: expected BYTES for 'str'"),
        ("numbers", npt.NDArray[np.float64], InvalidResponse, "output 'numbers' has datatype FP32: expected FP64 for "),
        ("numbers", float, InvalidResponse, r"output 'numbers' has shape \[2\]: expected \[1\] or \[\] for float"),
        ("bytes", str, InvalidResponse, "output 'bytes' is b'.xff', which is not UTF-8"),
        ("nobody", str, KeyError, "no output 'nobody'"),
        ("numbers", dict, TypeError, "no output becomes this"),
    ],
)
def test_an_output_that_is_no_such_value(name: str, annotation: Any, error: type[Exception], text: str) -> None:
    response = InferenceResponse([Tensor("numbers", np.array([1, 2], np.float32)), Tensor("bytes", np.array([b"\xff"]))])
    with pytest.raises(error, match=text):
        response.as_(name, annotation)


def test_a_client_of_httpx_stays_open() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"name": request.headers["x-team"], "version": "", "extensions": []})

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        with Client("http://test/v2", http=http, headers={"x-team": "blue"}) as client:
            assert client.metadata()["name"] == "blue"
        assert http.get("http://test", headers={"x-team": "red"}).json()["name"] == "red"
