"""The codecs on their own: the examples of the text as wire vectors in both directions, and what is refused.

"Both directions" is: the value is encoded to exactly this JSON, and this JSON is decoded to the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceError, InferenceRequest, InferenceResponse, InferenceServer, Tensor, TensorSpec
from oip_asgi.codecs import Base64Codec, DatetimeCodec, NumpyCodec, NumpyRequestCodec, PandasCodec, StringCodec, StringRequestCodec
from tests.support.asking import ask, get, outputs
from tests.support.inside.codecs import PandasJSONCodec
from tests.support.wire import received, sent, through_http
from tests.table.codec_vectors import ABC, NOON, VECTORS, Vector, assert_same

OF_THE_TEXT = {
    "names and ages": """{
        "parameters": {"content_type": "pd"},
        "inputs": [
            {"name": "First Name", "datatype": "BYTES", "parameters": {"content_type": "str"}, "shape": [2], "data": ["Joanne", "Michael"]},
            {"name": "Age", "datatype": "INT32", "shape": [2], "data": [34, 22]}
        ]
    }""",
    "A, B and C": """{
        "parameters": {"content_type": "pd"},
        "inputs": [
            {"name": "A", "data": ["a1", "a2", "a3", "a4"], "datatype": "BYTES", "shape": [4]},
            {"name": "B", "data": ["b1", "b2", "b3", "b4"], "datatype": "BYTES", "shape": [4]},
            {"name": "C", "data": ["c1", "c2", "c3", "c4"], "datatype": "BYTES", "shape": [4]}
        ]
    }""",
    "np": """{
        "inputs": [{"name": "foo", "parameters": {"content_type": "np"}, "data": [1, 2, 3, 4], "datatype": "INT32", "shape": [2, 2]}]
    }""",
    "np, NaN": """{
        "inputs": [
            {"name": "foo", "parameters": {"content_type": "np"}, "data": [1.2, 2.3, null, 4.5], "datatype": "FP64", "shape": [2, 2]}
        ]
    }""",
    "str, the whole": """{
        "parameters": {"content_type": "str"},
        "inputs": [{"name": "foo", "data": ["bar", "bar2"], "datatype": "BYTES", "shape": [2]}]
    }""",
    "base64": """{
        "inputs": [
            {"name": "foo", "parameters": {"content_type": "base64"}, "data": ["UHl0aG9uIGlzIGZ1bg=="], "datatype": "BYTES", "shape": [1]}
        ]
    }""",
    "datetime": """{
        "inputs": [
            {"name": "foo", "parameters": {"content_type": "datetime"}, "data": ["2022-01-11T11:00:00"], "datatype": "BYTES", "shape": [1]}
        ]
    }""",
}
"""The JSON of the text's examples as it stands there, but for commas that JSON wants or refuses."""


@pytest.mark.parametrize("name", OF_THE_TEXT)
def test_an_example_of_the_text_in_both_directions(name: str) -> None:
    """A server's model receives the value. What is written differs from the text in two points, as MLServer's own does: each tensor that
    is not numbers says its content type, and a codec of the whole chooses the name."""
    vector, document = VECTORS[name], json.loads(OF_THE_TEXT[name])
    assert_same(vector.decode(received(document)), vector.value)
    seen: list[Any] = []

    def model(foo):  # type: ignore[no-untyped-def]
        seen.append(foo)
        return 1

    server = InferenceServer()
    server.register("m", model)
    outputs(ask(server, "m", document))
    assert_same(seen[0], vector.value)

    written = sent(vector.encode(vector.value))
    assert written.get("parameters") == document.get("parameters")
    for ours, theirs in zip(written["inputs"], document["inputs"], strict=True):
        assert (ours["datatype"], ours["data"]) == (theirs["datatype"], theirs["data"])
        assert ours["name"] == (theirs["name"] if theirs["name"] != "foo" or "parameters" not in document else "input-1")
        assert ours["shape"] == theirs["shape"]
        said = ours.get("parameters", {}).get("content_type")
        assert said == theirs.get("parameters", {}).get("content_type", said)
        assert said is not None or ours["datatype"] != "BYTES"


def test_the_metadata_of_the_text() -> None:
    """The model that its settings describe: a client sends the tensors alone, and metadata says the rest."""
    document = json.loads(OF_THE_TEXT["names and ages"])
    seen: list[Any] = []
    server = InferenceServer()
    specs = [TensorSpec("First Name", "BYTES", [-1], content_type="str"), TensorSpec("Age", "INT32", [-1])]

    def model(table):  # type: ignore[no-untyped-def]
        seen.append(table)
        return 1

    server.register("m", model, content_type="pd", inputs=specs)
    status, metadata = get(server, "/models/m")
    assert (status, metadata["parameters"], metadata["inputs"]) == (
        200,
        {"content_type": "pd"},
        [
            {"name": "First Name", "datatype": "BYTES", "parameters": {"content_type": "str"}, "shape": [-1]},
            {"name": "Age", "datatype": "INT32", "shape": [-1]},
        ],
    )
    bare = [{key: value for key, value in item.items() if key != "parameters"} for item in document["inputs"]]
    outputs(ask(server, "m", {"inputs": bare}))
    assert_same(seen[0], VECTORS["names and ages"].value)


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_a_vector_in_both_directions(vector: Vector) -> None:
    request = vector.encode(vector.value)
    assert sent(request) == vector.document
    assert_same(vector.decode(received(vector.document)), vector.value)
    assert_same(vector.decode(through_http(request, binary=True)), vector.value)


MLSERVER_FRAME = (
    '{"parameters":{"content_type":"pd"},"inputs":[{"name":"First Name","shape":[2,1],"datatype":"BYTES",'
    '"parameters":{"content_type":"str"},"data":["Joanne","Michael"]},{"name":"Age","shape":[2,1],"datatype":"INT64","data":[34,22]},{"name":"Weight","shape":[2,1],'
    '"datatype":"FP64","data":[60.5,null]},{"name":"Tags","shape":[2,1],"datatype":"BYTES","parameters":{"content_type":"pd_json"},'
    '"data":["[\\"a\\"]","2"]}]}'
)
MLSERVER_LISTS = (
    '{"inputs":[{"name":"foo","shape":[1,1],"datatype":"BYTES","parameters":{"content_type":"base64"},"data":["UHl0aG9uIGlzIGZ1bg=="]},'
    '{"name":"bar","shape":[1,1],"datatype":"BYTES","parameters":{"content_type":"datetime"},"data":["2022-01-11T11:00:00"]}]}'
)
MLSERVER_STRINGS = (
    '{"parameters":{"content_type":"str"},"inputs":[{"name":"input-1","shape":[2,1],"datatype":"BYTES",'
    '"parameters":{"content_type":"str"},"data":["bar","é"]}]}'
)
MLSERVER_ARRAY = (
    '{"parameters":{"content_type":"np"},"inputs":[{"name":"input-1","shape":[2,1],"datatype":"FP64",'
    '"parameters":{"content_type":"np"},"data":[1.5,null]}]}'
)
MLSERVER_RESPONSE = (
    '{"model_name":"m","parameters":{"content_type":"pd"},"outputs":[{"name":"First Name","shape":[2,1],"datatype":"BYTES",'
    '"parameters":{"content_type":"str"},"data":["Joanne","Michael"]},{"name":"Weight","shape":[2,1],"datatype":"FP64","data":[60.5,null]}]}'
)


def test_what_mlserver_wrote_is_read() -> None:
    """Recorded from its codecs, 1.7.1; tests/lab/peers asks them themselves."""
    tags = pd.Series([["a"], 2], dtype=object)
    people = pd.DataFrame({"First Name": ["Joanne", "Michael"], "Age": [34, 22], "Weight": [60.5, np.nan], "Tags": tags})
    assert_same(PandasCodec.decode_request(received(json.loads(MLSERVER_FRAME))), people)
    assert_same(NumpyRequestCodec.decode_request(received(json.loads(MLSERVER_ARRAY))), np.array([[1.5], [np.nan]]))
    assert StringRequestCodec.decode_request(received(json.loads(MLSERVER_STRINGS))) == ["bar", "é"]
    foo, bar = received(json.loads(MLSERVER_LISTS)).inputs
    assert (Base64Codec.decode_input(foo), DatetimeCodec.decode_input(bar)) == ([b"Python is fun"], [NOON])
    response = InferenceResponse.from_http({}, MLSERVER_RESPONSE.encode())
    assert_same(PandasCodec.decode_response(response), people[["First Name", "Weight"]])


@pytest.mark.parametrize("name", ["str", "base64", "datetime"])
def test_lists_are_read_from_two_dimensions_too(name: str) -> None:
    vector = VECTORS[name]
    [item] = vector.document["inputs"]
    of_mlserver = {"inputs": [{**item, "shape": [*item["shape"], 1]}]}
    assert vector.decode(received(of_mlserver)) == vector.value


@pytest.mark.parametrize(
    "decode",
    [
        StringCodec.decode_output,
        lambda tensor: StringRequestCodec.decode_response(InferenceResponse([tensor])),
        lambda tensor: PandasCodec.decode_response(InferenceResponse([Tensor("a", tensor.array, {"content_type": "str"})])),
    ],
    ids=["output", "response", "frame"],
)
def test_a_bad_answer_of_another_server_is_not_the_clients_fault(decode: Callable[[Tensor], Any]) -> None:
    with pytest.raises(InferenceError) as raised:
        decode(Tensor("a", np.array([b"\xff"], object)))
    assert raised.value.status == 502


def test_outputs_and_responses_are_as_inputs_and_requests() -> None:
    assert StringCodec.decode_output(StringCodec.encode_output("foo", ["é"])) == ["é"]
    response = StringRequestCodec.encode_response("m", ["a"], "2")
    assert (response.model_name, response.model_version, response.outputs[0].name) == ("m", "2", "output-1")
    assert StringRequestCodec.decode_response(response) == ["a"]
    frames = PandasCodec.encode_response("m", ABC)
    assert frames.parameters == {"content_type": "pd"}
    assert_same(PandasCodec.decode_response(frames), ABC)
    assert NumpyRequestCodec.can_encode(np.ones(1))
    assert not NumpyRequestCodec.can_encode([1])
    assert Base64Codec.can_encode([b"a"])
    assert not Base64Codec.can_encode(["a"])


def test_an_array_keeps_its_shape_but_for_one_dimension() -> None:
    shapes = {shape: NumpyCodec.encode_input("x", np.zeros(shape)).shape for shape in [(), (3,), (3, 1), (2, 3), (0,)]}
    assert shapes == {(): (), (3,): (3, 1), (3, 1): (3, 1), (2, 3): (2, 3), (0,): (0, 1)}


def test_strings_of_numpy_are_bytes_on_every_transport() -> None:
    array = NumpyCodec.decode_input(NumpyCodec.encode_input("x", np.array(["a", "é"])))
    assert array.tolist() == [[b"a"], ["é".encode()]]


def test_a_single_value_is_a_list_of_one_where_the_text_writes_it_so() -> None:
    assert Base64Codec.decode_input(Base64Codec.encode_input("foo", b"Python is fun")) == [b"Python is fun"]
    assert DatetimeCodec.decode_input(DatetimeCodec.encode_input("foo", NOON)) == [NOON]


@given(st.lists(st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-5, minutes=-30))]))))
def test_datetimes_come_back(values: list[datetime]) -> None:
    assert DatetimeCodec.decode_input(DatetimeCodec.encode_input("x", values)) == values


@given(st.lists(st.binary()))
def test_bytes_come_back(values: list[bytes]) -> None:
    request = InferenceRequest([Base64Codec.encode_input("x", values)])
    assert Base64Codec.decode_input(through_http(request, binary=False).inputs[0]) == values


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings_come_back(values: list[str]) -> None:
    request = InferenceRequest([StringCodec.encode_input("x", values)])
    assert StringCodec.decode_input(through_http(request, binary=False).inputs[0]) == values


@given(st.lists(st.one_of(st.sampled_from(["1", '"a"', "null", "-1.5", ""]), st.text('"\\,1 \n[]{}n', max_size=4)), max_size=5))
def test_texts_together_are_what_each_is_alone(texts: list[str]) -> None:
    elements = [text.encode() for text in texts]
    try:
        alone = [PandasJSONCodec.decode_input(make_tensor(element))[0] for element in elements]
    except InferenceError:
        with pytest.raises(InferenceError, match="which is not JSON"):
            PandasJSONCodec.decode_input(make_tensor(*elements))
    else:
        assert PandasJSONCodec.decode_input(make_tensor(*elements)) == alone


def make_tensor(*elements: bytes, shape: tuple[int, ...] | None = None) -> Tensor:
    array = np.empty(len(elements), object)
    array[:] = elements
    return Tensor("foo", array.reshape(shape or -1))


@pytest.mark.parametrize(
    ("codec", "tensor", "message"),
    [
        (StringCodec, make_tensor(b"a", b"\xff"), r"tensor 'foo': element 1 is b'\\xff', which is not UTF-8"),
        (StringCodec, Tensor("foo", np.ones(2)), "tensor 'foo' has datatype FP64: expected BYTES for 'str'"),
        (StringCodec, make_tensor(b"a", shape=(1, 1, 1)), r"tensor 'foo' has shape \[1, 1, 1\]: expected \[N\] or \[N, 1\]"),
        (StringCodec, make_tensor(b"a", b"b", shape=(1, 2)), r"has shape \[1, 2\]"),
        (Base64Codec, make_tensor(b"YQ==", b"YQ"), "element 1 is b'YQ', which is not base64"),
        (Base64Codec, make_tensor(b"not base64!"), "element 0 is b'not base64!', which is not base64"),
        (DatetimeCodec, make_tensor(b"2022-01-11", b"11/1/2022"), "element 1 is b'11/1/2022', which is not an ISO 8601 date and time"),
        (DatetimeCodec, make_tensor(b"NaT"), "element 0 is b'NaT'"),
    ],
)
def test_what_a_tensor_may_not_hold(codec: Any, tensor: Tensor, message: str) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        codec.decode_input(tensor)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("codec", "value", "error", "message"),
    [
        (StringCodec, ["a", 5], TypeError, "tensor 'foo': element 1 is 5: expected a string"),
        (StringCodec, "text", TypeError, "is for a list, but this is 'text'"),
        (StringCodec, [b"\xff"], ValueError, "element 0 is"),
        (Base64Codec, ["text"], TypeError, "element 0 is 'text'"),
        (DatetimeCodec, [NOON, pd.NaT], ValueError, "element 1 is NaT: a missing value"),
        (DatetimeCodec, ["tomorrow"], ValueError, "element 0 is 'tomorrow'"),
        (DatetimeCodec, [5], TypeError, r"expected a datetime.datetime"),
        (NumpyCodec, np.array([1j]), TypeError, "no datatype for numpy dtype complex128"),
    ],
)
def test_what_a_codec_does_not_encode(codec: Any, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        codec.encode_input("foo", value)


def test_a_whole_that_is_not_one_tensor() -> None:
    two = InferenceRequest([make_tensor(b"a"), make_tensor(b"b")])
    with pytest.raises(InferenceError, match="'str' is for a request or response of one tensor, but there are 2"):
        StringRequestCodec.decode_request(two)
    with pytest.raises(InferenceError, match="there are 0"):
        NumpyRequestCodec.decode_response(InferenceResponse([]))
