"""What no table thinks of: random tensors there and back over gRPC, random nonsense refused, and the wire format against protobuf's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oip_asgi import InferenceServer, Tensor
from tests.support.grpc_ways import MESSAGES, SERVINGS, Client, made, wire_request
from tests.support.inside.grpc import TYPED, encode_bytes_head, split_field
from tests.support.inside.values import DTYPES, Array, dtype_of, from_bytes, object_array, to_bytes

pytestmark = pytest.mark.ci  # as no machine breaks it

examples = settings(max_examples=40)

RAW_INPUT_CONTENTS, RAW_OUTPUT_CONTENTS = 7, 6


@pytest.fixture(scope="module", params=SERVINGS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    server = InferenceServer()
    server.register("echo", lambda **inputs: inputs)
    server.register("add", lambda x, y: x + y)
    with SERVINGS[request.param](server) as address:
        yield Client(address)


shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def tensors(draw: st.DrawFn, datatypes: Any) -> Array:
    datatype, shape = draw(st.sampled_from([*datatypes])), draw(shapes)
    if datatype == "BYTES":
        size = int(np.prod(shape))
        return object_array(draw(st.lists(st.binary(max_size=9), min_size=size, max_size=size)), shape)
    if datatype == "BF16":
        bits = draw(hnp.arrays(np.uint16, shape))
        return bits.view(dtype_of("BF16"))
    return draw(hnp.arrays(dtype_of(datatype), shape))


def described(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "datatype": Tensor("", array).datatype, "shape": array.shape}


@pytest.mark.slow
@examples
@given(arrays=st.lists(tensors([*DTYPES, "BF16"]), min_size=1, max_size=3), request_id=st.text(max_size=20), padding=st.booleans())
def test_tensors_come_back(client: Client, arrays: list[Array], request_id: str, padding: bool) -> None:
    if padding:  # beyond the size from which on requests are split
        arrays = [*arrays, np.zeros(70_000, "u1")]
    inputs = [described(f"tensor {place}", array) for place, array in enumerate(arrays)]
    raw = [to_bytes(array) for array in arrays]
    expected = made("ModelInferResponse", model_name="echo", id=request_id, outputs=inputs, raw_output_contents=raw)
    assert client.ask("ModelInfer", wire_request("echo", inputs, raw, id=request_id)) == expected
    if all(each["datatype"] in TYPED for each in inputs):
        for each, array in zip(inputs, arrays, strict=True):
            each["contents"] = {TYPED[each["datatype"]]: array.ravel().tolist()}
        response = client.ask("ModelInfer", wire_request("echo", inputs, id=request_id))
        for found, array in zip(response.raw_output_contents, arrays, strict=True):  # a NaN may come back with other bits
            np.testing.assert_array_equal(from_bytes(found, array.dtype, array.shape), array)


def test_many_strings_come_back(client: Client) -> None:
    for odd in (b"", b"\xff", b"\xff\0\0\0", b"x" * 300, "é".encode()):
        for shape in ((2000,), (2000, 1), (2, 1000)):
            array = object_array([*(b"element %d" % number for number in range(1999)), odd], shape)
            raw = b"".join(len(element).to_bytes(4, "little") + element for element in array.ravel())
            response = client.ask("ModelInfer", wire_request("echo", [described("x", array)], [raw]))
            assert response == made("ModelInferResponse", model_name="echo", outputs=[described("x", array)], raw_output_contents=[raw])


names = st.sampled_from(["x", "y", "z", ""])
datatypes = st.sampled_from([*DTYPES, "BF16", "fp32", ""])
dimensions = st.integers(-2, 4) | st.sampled_from([2**31, 2**62, 2**63 - 1, -(2**63)])
elements = {
    "bool": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "fp32": st.floats(width=32),
    "fp64": st.floats(),
    "bytes": st.binary(max_size=4),
}
contents = st.fixed_dictionaries({}, optional={f"{name}_contents": st.lists(each, max_size=4) for name, each in elements.items()})
parameters = st.dictionaries(
    st.sampled_from(["a", "content_type", "binary_data_size", "classification"]),
    st.sampled_from([{}, {"bool_param": True}, {"int64_param": 1}, {"string_param": "np"}, {"double_param": 0.5}]),
    max_size=2,
)
inputs = st.fixed_dictionaries(
    {"name": names, "datatype": datatypes, "shape": st.lists(dimensions, max_size=4)},
    optional={"contents": contents, "parameters": parameters},
)
requests = st.builds(
    wire_request,
    st.sampled_from(["echo", "add", "nope"]),
    st.lists(inputs, max_size=3),
    st.lists(st.binary(max_size=20), max_size=3),
    id=st.text(max_size=5),
    model_version=st.sampled_from(["", "1"]),
    parameters=parameters,
    outputs=st.lists(st.fixed_dictionaries({"name": names}), max_size=2),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(requests).SerializeToString())
    for place in draw(st.lists(st.integers(0, max(0, len(data) - 1)), max_size=3)):
        data[place : place + 1] = draw(st.binary(max_size=2))
    return bytes(data)


LONG_UNKNOWN_FIELD = encode_bytes_head(99, 70_000) + bytes(70_000)
"""What makes a request so large that it is split."""


@pytest.mark.slow
@settings(examples, max_examples=200)
@given(
    data=requests.map(lambda request: request.SerializeToString()) | damaged() | st.binary(max_size=50),
    filler=st.sampled_from([b"", LONG_UNKNOWN_FIELD]),
)
def test_nonsense_is_never_the_servers_fault(client: Client, data: bytes, filler: bytes) -> None:
    refused = client.begin("ModelInfer", filler + data).exception()
    assert (
        refused is None
        or refused.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
        or (
            # adding up tensors that do not fit is what the model got wrong
            refused.code() is grpc.StatusCode.INTERNAL and refused.details().startswith("model 'add' failed")
        )
    )


@pytest.mark.slow
@settings(examples, max_examples=150)
@given(data=damaged() | requests.map(lambda request: request.SerializeToString()) | st.binary(max_size=30))
def test_a_split_request_says_what_the_whole_says(data: bytes) -> None:
    parse = MESSAGES["ModelInferRequest"].FromString
    rest, taken = split_field(data, RAW_INPUT_CONTENTS)
    try:
        whole = parse(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            parse(rest)
        return
    parsed = parse(rest)
    assert [*taken, *parsed.raw_input_contents] == whole.raw_input_contents
    parsed.ClearField("raw_input_contents")
    whole.ClearField("raw_input_contents")
    assert parsed.SerializeToString(deterministic=True) == whole.SerializeToString(deterministic=True)
