"""Content types of requests and responses: what decides, what a model receives, what is answered.

Each over every way in, as JSON and as binary data.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, OIPApp, RequestOutput, Tensor, TensorSpec
from oip_asgi.codecs import Base64Codec, NumpyCodec, PandasCodec, StringCodec
from tests.support.asking import ask, error, get
from tests.support.content_types import (
    COLOURS,
    DATED,
    FLOATS,
    NAMES,
    NOON,
    ONE,
    PEOPLE,
    RED,
    ColourCodec,
    assert_same,
    bytes_column,
    described,
    http,
    make_tensor,
    request_of,
    response_of,
    send,
    with_type,
)
from tests.support.ways import Request, over_asgi, ways_into
from tests.table.content_types import BAD, CASES, Bad, Case


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_model_receives_over_every_way_in(case: Case, server: InferenceServer, seen: list[Any]) -> None:
    ways = ways_into(server)
    answers = {(binary, name): way(http(case.model, case.request, binary=binary)) for binary in (False, True) for name, way in ways.items()}
    assert {answer.status for answer in answers.values()} == {200}, answers
    assert len({answer.body for answer in answers.values()}) == 1
    assert len(seen) == len(answers)
    for value in seen:
        assert_same(value, case.value)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_refused_over_every_way_in(bad: Bad, server: InferenceServer, seen: list[Any]) -> None:
    ways = ways_into(server)
    for binary in (False, True):
        if not binary and any(
            b"\xff" in element for tensor in bad.request.inputs if tensor.datatype == "BYTES" for element in tensor.array.ravel()
        ):
            continue  # no JSON string can hold it
        for name, way in ways.items():
            answer = way(http(bad.model, bad.request, binary=binary))
            status, text = error(answer)
            assert (name, status) == (name, 400), text
            for part in bad.text:
                assert part in text, (name, text)
    assert bool(seen) is bad.is_called


ODD_DATA: dict[str, list[list[Any]]] = {
    "BYTES": [["a"], [""], ["\u0000"], ["NaT"], ["null"], ["2022-01-11"], ["1"], ["é" * 50], ["YQ=="], ["a", "b"], []],
    "FP64": [[1.5], [None], [1.0, 2.0], []],
    "INT8": [[1], []],
    "BOOL": [[True]],
}
CONTENT_TYPES = [None, "np", "str", "base64", "datetime", "pd_json", "pd", "pair", "nope", 1, True, ""]
ODD_DTYPES = [None, "Int64", "category", "string", "datetime64[ns]", "datetime64[us, UTC]", "boolean", "object[NaN]", 5]


def odd_requests() -> Iterator[tuple[str, bytes]]:
    """Some thousands of combinations of models, content types, datatypes, shapes and elements, most of them wrong."""
    models = ["frame", "array", "free", "strings", "bytes", "datetimes", "series", "colours", "pair", "free%20str", "model%20str", "whole"]
    for datatype, datas in ODD_DATA.items():
        for data in datas:
            for shape in ([len(data)], [len(data), 1], [1, len(data)]):
                for place, content_type in enumerate(CONTENT_TYPES):
                    parameters = {} if content_type is None else {"content_type": content_type}
                    hint = ODD_DTYPES[(place + len(shape) + len(data)) % len(ODD_DTYPES)]
                    of_tensor = parameters if hint is None else {**parameters, "pd_dtype": hint}
                    item = {"name": "x", "shape": shape, "datatype": datatype, "data": data}
                    for document in ({"inputs": [{**item, "parameters": of_tensor}]}, {"inputs": [item], "parameters": parameters}):
                        model = models[place * 5 % len(models)]
                        yield models[(place + len(shape)) % len(models)], json.dumps(document).encode()
                        yield model, json.dumps(document).encode()
                        yield "frame", json.dumps(document).encode()


def test_no_odd_request_is_the_servers_fault(server: InferenceServer, seen: list[Any]) -> None:
    """What is taken reaches its model, and nothing else does. What it means is asked by CASES, and in test_precedence.py."""
    send_to = over_asgi(OIPApp(server), "")
    statuses: list[int] = []
    for model, body in odd_requests():
        answer = send_to(Request("POST", f"/models/{model}/infer", (), body))
        assert answer.status in (200, 400), (model, body, answer.body)
        statuses.append(answer.status)
        is_bytes_out = b"ask for this output by" in answer.body  # decoded bytes that no JSON can hold reached the model all the same
        assert len(seen) == (answer.status == 200 or is_bytes_out), (model, body, answer.body)
        seen.clear()
    assert statuses.count(200) > 100
    assert statuses.count(400) > 1000


def test_what_results_become(server: InferenceServer) -> None:
    def named() -> Annotated[np.ndarray, NumpyCodec]:
        return np.array([1, 2])

    server.register("by name", named)
    server.register("dates", lambda: [NOON, NOON])
    server.register("text", lambda: ["a", "b"])
    date, red = "2022-01-11T11:00:00", ("output_0", [1], "colour", ["#ff0001"])
    results: list[tuple[str, InferenceRequest, list[Any]]] = [
        # by their annotation
        ("strings", request_of(NAMES), [("output_0", [2], "str", ["Joanne", "Michaël"])]),
        ("datetimes", request_of(DATED), [("output_0", [1], "datetime", [date])]),
        ("datetimes", request_of(), [("output_0", [0], "datetime", [])]),
        ("bytes", request_of(make_tensor("x", [b"YQ=="])), [("output_0", [1], None, ["YQ=="])]),
        ("rest", request_of(make_tensor("y", [b"b"])), [("y", [1], "str", ["b"])]),
        ("two", request_of(FLOATS, make_tensor("names", [b"b"])), [("output_0", [2], None, [1.5, 2.5]), ("output_1", [1], "str", ["b"])]),
        ("named codec", request_of(COLOURS), [red]),
        ("by name", request_of(), [("output_0", [2, 1], "np", [1, 2])]),  # where one dimension is two
        ("array", request_of(FLOATS), [("output_0", [2], None, [1.5, 2.5])]),
        # by their value
        ("colours", request_of(COLOURS), [red]),
        ("series", request_of(DATED), [("output_0", [1], "datetime", [date])]),
        ("dates", request_of(), [("output_0", [2], "datetime", [date] * 2)]),
        ("text", request_of(), [("output_0", [2], None, ["a", "b"])]),
        # by their declaration
        ("declared", request_of(FLOATS), [("y", [2], "np", [1.5, 2.5])]),
    ]
    for model, request, expected in results:
        assert (model, described(send(server, model, request))) == (model, expected)
    response = response_of(send(server, "frame", PandasCodec.encode_request(PEOPLE)))
    assert response.parameters == {"content_type": "pd"}
    pd.testing.assert_frame_equal(PandasCodec.decode_response(response), PEOPLE)
    response = response_of(send(server, "pair", request_of(FLOATS, Tensor("y", np.array([1])))))
    assert ([tensor.name for tensor in response.outputs], response.parameters) == (["first", "second"], {"content_type": "pair"})
    assert response.model_name == "pair"


@pytest.mark.parametrize(("datatype", "hint"), [("INT8", "Int8"), ("FP64", None)])
def test_a_column_that_is_cast_to_its_declaration_is_no_longer_of_its_dtype(datatype: str, hint: str | None) -> None:
    server = InferenceServer()
    frame = pd.DataFrame({"y": pd.array([1, 2], "Int8")})
    server.register("m", lambda: frame, outputs=[TensorSpec("y", datatype, [-1])])  # type: ignore[arg-type]
    response = response_of(ask(server, "m"))
    assert (response.outputs[0].datatype, response.outputs[0].parameters.get("pd_dtype")) == (datatype, hint)
    assert PandasCodec.decode_response(response)["y"].dtype == (hint or "float64")


@pytest.mark.parametrize(
    ("content_type", "value", "expected"),
    [
        ("np", np.array([1, 2]), ([2, 1], [1, 2])),
        ("np", [1, 2], ([2, 1], [1, 2])),
        ("np", np.ones((1, 2)), ([1, 2], [1.0, 1.0])),
        ("str", np.array(["a"]), ([1], ["a"])),
        ("str", np.array([["a"]]), ([1, 1], ["a"])),
        ("str", ["a"], ([1], ["a"])),
        ("str", pd.Series(["a"]), ([1], ["a"])),
        ("base64", [b"\xff"], ([1], ["/w=="])),
        ("datetime", [NOON], ([1], ["2022-01-11T11:00:00"])),
        ("datetime", pd.Series([NOON]), ([1], ["2022-01-11T11:00:00"])),
        ("datetime", pd.Series([pd.Timestamp(1, unit="ns")]), ([1], ["1970-01-01T00:00:00.000000001"])),
        ("datetime", pd.Series([NOON]).dt.tz_localize("Asia/Tokyo"), ([1], ["2022-01-11T02:00:00+00:00"])),
        ("datetime", np.array([[NOON]], "M8[ns]"), ([1, 1], ["2022-01-11T11:00:00"])),
        ("datetime", np.array(["2022-01-11"], "M8[D]"), ([1], ["2022-01-11T00:00:00"])),
        ("colour", RED, ([1], ["#ff0001"])),
    ],
)
def test_a_content_type_that_the_client_asks_for(content_type: str, value: Any, expected: Any) -> None:
    server = InferenceServer(codecs=[ColourCodec])
    server.register("m", lambda: {"output_0": value})
    if content_type in ("np", "str"):
        server.register("whole", lambda: InferenceResponse([Tensor("output_0", np.asarray(value))]))
    request = request_of(outputs=[RequestOutput("output_0", {"content_type": content_type})])
    for model in ("m", "whole") if content_type in ("np", "str") else ("m",):
        assert described(send(server, model, request)) == [("output_0", expected[0], content_type, expected[1])]


def test_columns_can_be_asked_for_too(server: InferenceServer) -> None:
    asked = [RequestOutput("Age", {"content_type": "np"}), RequestOutput("First Name")]
    request = InferenceRequest(PandasCodec.encode_request(PEOPLE).inputs, outputs=asked)
    assert described(send(server, "frame", request)) == [("Age", [2, 1], "np", [34, 22]), ("First Name", [2], "str", ["Joanne", "Michael"])]


def test_outputs_of_a_users_request_codec_can_be_asked_for_too(server: InferenceServer) -> None:
    for content_type, shape, data in ((None, [2], [1.5, 2.5]), ("np", [2, 1], [1.5, 2.5]), ("pd_json", [2], ["1.5", "2.5"])):
        asked = RequestOutput("first", {} if content_type is None else {"content_type": content_type})
        assert described(send(server, "pair", request_of(FLOATS, ONE, outputs=[asked]))) == [("first", shape, content_type, data)]


def test_an_output_of_a_content_type_is_asked_for_with_another() -> None:
    """What the tensor stands for is written anew: bytes that went out as base64 are bytes again."""
    server = InferenceServer()
    server.register("bytes", lambda: InferenceResponse([Base64Codec.encode_output("y", [b"a"])]))
    server.register("broken", lambda: InferenceResponse([make_tensor("y", [b"no base64"], content_type="base64")]))
    request = request_of(outputs=[RequestOutput("y", {"content_type": "np"})])
    assert described(send(server, "bytes", request)) == [("y", [1, 1], "np", ["a"])]
    status, text = error(send(server, "broken", request))
    assert (status, "output 'y' cannot have the content_type 'np'" in text) == (400, True)


DATES_OUT = TensorSpec("y", "BYTES", [-1], content_type="datetime")


def test_points_in_time_of_pandas_and_numpy_are_declared_dates() -> None:
    server, texts = InferenceServer(), ["2022-01-11T11:00:00"] * 2
    values: list[Any] = [pd.Series([NOON, NOON]), np.array([NOON, NOON], "M8[s]"), np.array([[NOON], [NOON]], "M8[ns]")]

    def annotated(place: np.ndarray) -> list[datetime]:
        return values[place[0]]  # type: ignore[no-any-return]

    server.register("declared", lambda place: values[place[0]], outputs=[DATES_OUT])
    server.register("annotated", annotated)
    for place, shape in enumerate(([2], [2], [2, 1])):  # an array keeps its shape where none is declared
        assert described(ask(server, "declared", place=[place])) == [("y", [2], "datetime", texts)]
        assert described(ask(server, "annotated", place=[place])) == [("output_0", shape, "datetime", texts)]


def returns_numbers() -> list[str]:
    return [1]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("function", "outputs", "message"),
    [
        (lambda: [1], [TensorSpec("y", "BYTES", [-1], content_type="str")], "element 0 is 1: expected a string"),
        (returns_numbers, [], "element 0 is 1: expected a string"),
        (lambda: pd.Series([1j]), [], "complex128"),
        (lambda: np.array([-(2**40)], "M8[s]"), [DATES_OUT], "has a date outside of the years 1 to 9999"),
        (lambda: [NOON, pd.NaT], [DATES_OUT], "element 1 is NaT: a missing value"),
    ],
)
def test_results_that_are_the_models_fault(function: Any, outputs: list[TensorSpec], message: str) -> None:
    server = InferenceServer(debug=True)
    server.register("m", function, outputs=outputs)
    status, text = error(ask(server, "m"))
    assert (status, "ModelFault" in text, message in text) == (500, True, True)


def test_metadata_shows_what_is_declared(server: InferenceServer) -> None:
    status, metadata = get(server, "/models/declared%20frame")
    assert status == 200
    assert metadata["parameters"] == {"content_type": "pd"}
    assert metadata["inputs"] == [
        {"name": "First Name", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "str"}},
        {"name": "Born", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "datetime"}},
    ]
    assert get(server, "/models/declared")[1]["outputs"] == [
        {"name": "y", "datatype": "FP64", "shape": [-1], "parameters": {"content_type": "np"}}
    ]
    assert get(server, "/models/array")[1]["parameters"] == {"undeclared_inputs": "x"}


OF_TENSORS = ["np", "str", "base64", "datetime", "pd_json"]
SAID = [(None, None), (None, "pd"), *((one, None) for one in OF_TENSORS), *((None, one) for one in OF_TENSORS[:2])]
SAID += [("str", "pd"), ("pd_json", "pd"), ("np", "str"), ("datetime", "np")]
ELEMENTS: dict[str, list[Any]] = {"BYTES": [b"YQ==", b"20220111", b'"a"', b"1", b"{}", b"NaT", b"\xff"], "FP64": [1.5], "INT64": [7]}


@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (-1, -1)], ids=str)
@pytest.mark.parametrize("datatype", ELEMENTS)
def test_no_content_type_makes_a_declared_model_fail(datatype: str, shape: Any) -> None:
    """An identity without annotations gives back what a client's content type makes; a 500 would blame the model for it."""
    server = InferenceServer()
    spec = TensorSpec("x", datatype, shape)  # type: ignore[arg-type]
    server.register("m", lambda x: x, inputs=[spec], outputs=[TensorSpec("y", datatype, shape)])  # type: ignore[arg-type]
    for of_tensor, of_request in SAID:
        taken = 0
        for element, sent in itertools.product(ELEMENTS[datatype], ((2,), (2, 1))):
            array = make_tensor("x", [element] * 2).array if datatype == "BYTES" else np.array([element] * 2)
            request = request_of(Tensor("x", array.reshape(sent), {} if of_tensor is None else {"content_type": of_tensor}))
            request.parameters.update({} if of_request is None else {"content_type": of_request})
            answer = send(server, "m", request, binary=True)
            assert answer.status in (200, 400), answer.body
            taken += answer.status == 200
            if answer.status == 200:
                [output] = response_of(answer).outputs
                assert (output.name, output.datatype, len(output.shape)) == ("y", datatype, len(shape))
        is_plain = (of_tensor or of_request) in ("np", None) or (datatype == "BYTES" and (of_tensor or of_request) != "pd_json")
        assert taken > 0 or of_request == "pd" or not is_plain, (of_tensor, of_request)


@pytest.mark.parametrize("content_type", ["np", "str", "base64", "datetime", "pd_json", "colour"])
@pytest.mark.parametrize("datatype", ["FP64", "BYTES"])
def test_no_content_type_of_an_output_makes_a_declared_model_fail(datatype: str, content_type: str) -> None:
    server = InferenceServer(codecs=[ColourCodec])
    array: Any = np.ones((2, 2)) if datatype == "FP64" else np.full((2, 2), b"20220111", object)
    for value, shape in ((array, [-1, -1]), (array[0], [-1]), (array[:, :1], [2, 1]), (array[0].tolist(), [-1])):
        for model in (lambda value=value: value, lambda value=value: InferenceResponse([Tensor("y", np.asarray(value, array.dtype))])):
            server.register("m", model, outputs=[TensorSpec("y", datatype, shape)], replace=True)  # type: ignore[arg-type]
            answer = send(server, "m", request_of(outputs=[RequestOutput("y", {"content_type": content_type})]))
            is_possible = content_type == "np" or (datatype == "BYTES" and content_type not in ("colour", "pd_json"))
            assert answer.status == 200 if is_possible and shape != [-1, -1] and content_type != "datetime" else answer.status in (200, 400)


def test_a_model_that_breaks_its_declaration_is_at_fault_whatever_is_asked() -> None:
    server = InferenceServer()
    server.register("m", lambda: np.ones(3), outputs=[TensorSpec("y", "FP64", [2])])
    server.register("n", lambda x: x.missing, inputs=[TensorSpec("x", "BYTES", [-1])])
    assert error(send(server, "m", request_of(outputs=[RequestOutput("y", {"content_type": "pd_json"})])))[0] == 500
    assert error(send(server, "n", request_of(with_type(NAMES, "np"))))[0] == 500
    status, text = error(send(server, "n", request_of(with_type(NAMES, "str"))))
    assert (status, text) == (400, "model 'n' failed with the content_type 'str', which is not what it declares: leave it out")


def test_strings_as_mlservers_clients_send_them_to_a_declared_column() -> None:
    """Its StringCodec writes [N, 1], ours [N]; both are taken for what is declared, and so is the list that comes back."""
    server = InferenceServer()
    for name, shape in (("any", [-1, -1]), ("one", [-1, 1]), ("list", [-1])):
        server.register(name, lambda x: x, inputs=[TensorSpec("x", "BYTES", shape)], outputs=[TensorSpec("y", "BYTES", shape)])
        for tensor in (bytes_column("x", [b"a", b"b"], content_type="str"), StringCodec.encode_input("x", ["a", "b"])):
            assert described(send(server, name, request_of(tensor))) == [("y", [2] if name == "list" else [2, 1], None, ["a", "b"])]


@pytest.mark.parametrize("shape", [[-1, 1], [-1, -1]], ids=str)
def test_a_list_of_elements_is_declared_as_a_column(shape: list[int]) -> None:
    def strings() -> list[str]:
        return ["a", "b"]

    server = InferenceServer(debug=True)
    cases: list[tuple[Any, str | None, str | None, list[str]]] = [
        (strings, None, "str", ["a", "b"]),
        (lambda: [b"a", b"b"], None, None, ["a", "b"]),
        (lambda: [NOON] * 2, None, "datetime", ["2022-01-11T11:00:00"] * 2),
        (lambda: {"y": ["a", "b"]}, "str", "str", ["a", "b"]),
    ]
    for function, declared, said, data in cases:
        server.register("m", function, outputs=[TensorSpec("y", "BYTES", shape, content_type=declared)], replace=True)
        assert described(ask(server, "m")) == [("y", [2, 1], said, data)]
    server.register("array", lambda: np.array(["a", "b"]), outputs=[TensorSpec("y", "BYTES", shape)])
    assert "has shape [2]" in error(ask(server, "array"))[1]  # an array has the shape it has
