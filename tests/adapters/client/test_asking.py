"""What both clients send and return, of our own server: over WSGI, ASGI and sockets."""

from __future__ import annotations

import asyncio
import re
from datetime import date, datetime
from typing import Annotated, Any

import httpx2
import numpy as np
import numpy.typing as npt
import pytest

from oip_asgi import ErrorResponse, InferenceError, InferenceRequest, InferenceResponse, InvalidResponse, RequestOutput, Tensor
from oip_asgi.client import Client
from oip_asgi.codecs import Base64Codec, DatetimeCodec, StringCodec
from tests.support.asked import Asked
from tests.table.row_classes import Customer, Plan, Point, Score


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_an_array_comes_back_with_its_dtype_and_shape(ask: Asked, binary: bool) -> None:
    for array in (np.array([[1, 2], [3, np.nan]], np.float32), np.array([[True]]), np.empty((0, 3), np.uint8), np.empty((0, 2), object)):
        response = ask("infer", "echo", {"x": array}, id="an id", binary=binary)
        assert (response.id, response.model_name) == ("an id", "echo")
        assert (response["x"].dtype, response["x"].shape) == (array.dtype, array.shape)
        assert np.array_equal(response["x"], array, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize("how", ["infer", "stream"])
def test_tensors_of_an_input_that_is_declared_as_encoded_text_are_encoded_already(ask: Asked, how: str) -> None:
    """Lists are encoded: tests/table/values."""

    def ask_one(inputs: Any, **options: Any) -> Any:
        response = ask(how, "encoded", inputs, **options)
        return (response[0] if how == "stream" else response).as_("output_0", list[str])

    assert ask_one({"base64": [b"abcd"], "pd_json": "ab"}) == ["[b'abcd']", "['ab']"]
    encoded = [Tensor("base64", np.array([b"YWJjZA=="], object)), Tensor("pd_json", np.array([b"[1]"], object))]
    assert ask_one(encoded) == ["[b'abcd']", "[[1]]"]
    with pytest.raises(InferenceError, match=r"input 'base64': data\[0\] is 'abcd': expected bytes for BYTES"):
        ask_one({"base64": ["abcd"]})
    with pytest.raises(TypeError, match="vesion"):
        ask_one({}, vesion="1")


def test_a_long_array_comes_back_writable_and_aligned(ask: Asked) -> None:
    for elements in (100, 1000, 16_385, 70_001, 1_000_001):
        array = np.arange(elements, dtype=np.float64)
        got = ask("infer", "echo", {"name of odd length": array[::-1], "b": np.array([1, 2, 3], np.uint8)})
        assert got["b"].tolist() == [1, 2, 3]
        found = got["name of odd length"]
        assert np.array_equal(found, array[::-1])
        assert (found.flags.writeable, found.flags.aligned) == (True, True)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_values_of_python_go_out_as_codecs_write_them(ask: Asked, binary: bool) -> None:
    when, tensor = datetime(2026, 11, 24, 16, 30), Tensor("other", np.array([True]))
    values = {"texts": ["é", ""], "bytes": [b"a", b"b"], "dates": [when], "numbers": [1, 2], "number": 1.5, "tensor": tensor}
    response = ask("infer", "echo", {**values, "missing": [3, None]}, binary=binary)
    assert response.as_("texts", list[str]) == ["é", ""]
    assert response["bytes"].tolist() == [b"a", b"b"]
    assert response.as_("dates", list[datetime]) == [when]
    assert response["numbers"].dtype == np.int64
    assert response.as_("number", float) == 1.5
    assert response["tensor"].tolist() == [True]
    assert np.array_equal(response["missing"], [3, np.nan], equal_nan=True)


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
    no_binary = [RequestOutput("output_0", {"binary_data": False})]
    assert ask("infer", "versions", {}, version="2", outputs=no_binary)["output_0"].tolist() == [2]
    assert ask("infer", "org/a model", {"x": [1]})["output_0"].tolist() == [1]


def test_answers_about_server_and_models(ask: Asked) -> None:
    assert ask("metadata")["name"] == "asked"
    assert (ask("is_live"), ask("is_ready")) == (True, True)
    assert [each["name"] for each in ask("index")][:4] == ["echo", "spoken", "counts", "encoded"]
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


def test_a_refusal_has_its_status_and_text(ask: Asked) -> None:
    refusals: list[tuple[Any, int, str]] = [
        (("infer", "nobody", {}), 404, "unknown model: 'nobody'"),
        (("stream", "nobody", {}), 404, "unknown model"),
        (("model_metadata", "nobody"), 404, "unknown model"),
        (("infer", "spoken", {"names": ["Ada"], "more": [1]}), 400, "^unknown input 'more': expected 'names'$"),
        (("load", "echo", {"config": "[]"}), 400, "expected the text of a JSON object"),
    ]
    for question, status, text in refusals:
        with pytest.raises(ErrorResponse) as caught:
            ask(*question)
        assert (caught.value.response_status, bool(re.search(text, caught.value.text))) == (status, True)
    with pytest.raises(ErrorResponse) as caught:
        ask("infer", "counts", {"n": [1]})
    ways = "use infer_stream, generate_stream or generate over HTTP, ModelStreamInfer over gRPC"
    assert caught.value.text == f"model 'counts' answers with a stream: {ways}"
    assert str(caught.value) == f"the server answered with the status 400: {caught.value.text} (write client.stream(...))"


def test_what_is_no_tensor_is_refused_before_anything_is_sent() -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ("x", {}, "expected values by name"),
        (1, {}, "expected values by name"),
        ({"x": np.array([1])}, {"parameters": {"p": [1]}}, "parameter 'p'"),
        ({"x": np.array([b"\xff"], object)}, {"binary": False}, "not UTF-8"),
    ]
    for inputs, options, text in wrong:
        with pytest.raises(InferenceError, match=text):
            Client("http://127.0.0.1:1/v2").infer("m", inputs, **options)


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


def test_a_blocking_stream_where_an_event_loop_runs_as_in_a_notebook(url: str) -> None:
    async def cell(client: Client) -> Any:
        broken_off, other = (client.stream("counts", {"n": [3]}) for _ in range(2))
        assert next(broken_off)["output_0"].tolist() == next(other)["output_0"].tolist() == [0]
        broken_off.close()
        assert [response["output_0"].tolist() for response in client.stream("counts", {"n": [3]})] == [[0], [1], [2]]
        return other

    with Client(url) as client:  # and a stream outlives the event loop in which it began
        assert [response["output_0"].tolist() for response in asyncio.run(cell(client))] == [[1], [2]]


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
    pd = pytest.importorskip("pandas")
    from oip_asgi.codecs import PandasCodec

    response = PandasCodec.encode_response("m", pd.DataFrame({"n": [1, 2], "text": ["a", "b"]}))
    assert (response.as_("n", list[int]), response.as_("text", list[str])) == ([1, 2], ["a", "b"])
    assert response.as_("n", np.ndarray).tolist() == response.as_("n", pd.Series).tolist() == [1, 2]


def test_an_output_that_is_no_such_value() -> None:
    response = InferenceResponse([Tensor("numbers", np.array([1, 2], np.float32)), Tensor("bytes", np.array([b"\xff"]))])
    wrong: list[tuple[str, Any, type[Exception], str]] = [
        ("numbers", list[str], InvalidResponse, "output 'numbers' has datatype FP32: expected BYTES for 'str'"),
        ("numbers", npt.NDArray[np.float64], InvalidResponse, "output 'numbers' has datatype FP32: expected FP64 for "),
        ("numbers", float, InvalidResponse, r"output 'numbers' has shape \[2\]: expected \[1\] or \[\] for float"),
        ("bytes", str, InvalidResponse, "output 'bytes' is b'.xff', which is not UTF-8"),
        ("nobody", str, KeyError, "no output 'nobody'"),
        ("numbers", dict, TypeError, "no output becomes this"),
    ]
    for name, annotation, error, text in wrong:
        with pytest.raises(error, match=text):
            response.as_(name, annotation)


def test_a_client_of_httpx_stays_open() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"name": request.headers["x-team"], "version": "", "extensions": []})

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        with Client("http://test/v2", http=http, headers={"x-team": "blue"}) as client:
            assert client.metadata()["name"] == "blue"
        assert http.get("http://test", headers={"x-team": "red"}).json()["name"] == "red"


# Rows of a class

ADA = Customer(3, Plan.FREE, True)
BOB = Customer(70, Plan.PAID, False, monthly_fee=9.5, city="Köln", since=date(2024, 2, 29))
SCORES = [Score("leaves", 0.3), Score("stays", 9.5)]


def test_rows_are_sent_and_read(ask: Asked) -> None:
    assert ask("infer", "churn", [ADA, BOB]).rows(Score) == SCORES
    assert ask("infer", "churn", ADA).rows(Score) == SCORES[:1]
    assert ask("infer", "one row", Point(2.0), parameters={"scale": 2.0}).rows(Point) == [Point(4.0, 1.0)]
    streamed = [response.rows(Point) for response in ask("stream", "points", [Point(1.0), Point(2.0, 1.0)])]
    assert streamed == [[Point(1.0), Point(2.0, 1.0)], [Point(2.0, 1.0), Point(4.0, 2.0)]]


def test_a_row_that_does_not_fit_is_named_and_not_sent(ask: Asked) -> None:
    with pytest.raises(InferenceError, match=r"^rows\[1\].age: expected int >= 0, got -1$"):
        ask("infer", "churn", [ADA, Customer(-1, Plan.PAID, False)])
    columns = {"age": [3, -1], "plan": ["free", "paid"], "isNew": [True, False]}  # which are sent
    with pytest.raises(InferenceError, match=r"rows\[1\].age: expected int >= 0, got -1"):
        ask("infer", "churn", columns)
