"""Invariants: any tensor survives the trip bit for bit, and no change of a valid body is answered with a 5xx."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, OIPApp, RequestOutput, Tensor
from tests.support.inside import decode_request, encode_response
from tests.support.inside.rest import MAX_DEPTH, from_json, to_json
from tests.support.inside.values import DTYPES, Array, dtype_of, from_bytes, object_array, to_bytes
from tests.support.ways import Answer, Request, over_asgi

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def arrays(draw: st.DrawFn, *, text_only: bool = False) -> Array:
    """An array of any datatype and shape, any bit pattern included."""
    datatype = draw(st.sampled_from([*DTYPES, "BF16"]))
    shape = draw(SHAPES)
    if datatype == "BYTES":
        elements = st.text(max_size=5).map(str.encode) if text_only else st.binary(max_size=5)
        count = math.prod(shape)
        return object_array(draw(st.lists(elements, min_size=count, max_size=count)), shape)
    if datatype == "BF16":
        return draw(hnp.arrays(np.uint16, shape)).view(dtype_of("BF16"))
    if datatype == "BOOL":
        return draw(hnp.arrays(bool, shape))
    dtype = dtype_of(datatype)
    return draw(hnp.arrays(np.dtype(f"u{dtype.itemsize}"), shape)).view(dtype)


def assert_equal(left: Array, right: Array) -> None:
    """Equal to the last bit, but that any NaN equals any other: JSON does not tell them apart."""
    assert (left.dtype, left.shape) == (right.dtype, right.shape)
    if left.dtype.hasobject or left.dtype.kind in "biu":
        assert left.tolist() == right.tolist()
        return
    bits = np.dtype(f"u{left.dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # isnan of a signalling BF16 NaN says so
        either = np.isnan(left) & np.isnan(right)
    assert np.all(
        either | (np.ascontiguousarray(left).view(bits).reshape(left.shape) == np.ascontiguousarray(right).view(bits).reshape(left.shape))
    )


@given(arrays())
def test_raw_bytes_round_trip_bit_for_bit(array: Array) -> None:
    raw = to_bytes(array)
    assert to_bytes(from_bytes(raw, array.dtype, array.shape)) == raw


@given(arrays(text_only=True))
def test_flat_json_round_trips(array: Array) -> None:
    text = to_json(array)
    json.loads(text, parse_constant=lambda literal: math.nan / 0)
    assert_equal(from_json(text, array.dtype, array.shape), array)


@given(arrays(text_only=True))
def test_nested_json_round_trips(array: Array) -> None:
    nested: Any = json.loads(to_json(array))
    if math.prod(array.shape):
        for size in reversed(array.shape[1:]):
            nested = [nested[start : start + size] for start in range(0, len(nested), size)]
        if not array.shape:
            nested = nested[0]
    assert_equal(from_json(json.dumps(nested).encode(), array.dtype, array.shape), array)


def to_request(tensors: list[Tensor], binary: list[bool]) -> tuple[bytes, int]:
    """A request that sends each tensor in the form asked for; written by hand, as a client would."""
    inputs, data = [], b""
    for tensor, raw in zip(tensors, binary, strict=True):
        item: dict[str, Any] = {"name": tensor.name, "shape": list(tensor.shape), "datatype": tensor.datatype}
        if raw:
            data += to_bytes(tensor.array)
            item["parameters"] = {"binary_data_size": len(to_bytes(tensor.array))}
        else:
            item["data"] = json.loads(to_json(tensor.array))
        inputs.append(item)
    text = json.dumps({"inputs": inputs}).encode()
    return text + data, len(text)


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[Tensor], list[bool]]:
    tensors = [Tensor(f"t{place}", array) for place, array in enumerate(draw(st.lists(arrays(text_only=True), max_size=4)))]
    return tensors, draw(st.lists(st.booleans(), min_size=len(tensors), max_size=len(tensors)))


@given(mixtures(), st.data())
def test_mixtures_of_json_and_binary_round_trip(mixture: tuple[list[Tensor], list[bool]], data: st.DataObject) -> None:
    tensors, binary = mixture
    body, length = to_request(tensors, binary)
    request = decode_request(body, length)
    for tensor, sent in zip(request.inputs, tensors, strict=True):
        assert tensor.name == sent.name
        assert_equal(tensor.array, sent.array)
        assert not tensor.array.size or tensor.array.flags.aligned
    asked = [RequestOutput(tensor.name, {"binary_data": data.draw(st.booleans())}) for tensor in tensors]
    text, parts = encode_response(InferenceResponse(request.inputs), InferenceRequest([], outputs=asked))
    # an answer has the form of a request but for the names of its lists
    back = decode_request(text.replace(b'"outputs"', b'"inputs"', 1) + b"".join(parts), len(text) - 1)
    for tensor, sent in zip(back.inputs, tensors, strict=True):
        assert_equal(tensor.array, sent.array)


def identity_server() -> InferenceServer:
    server = InferenceServer()
    server.register("m", lambda **inputs: inputs)
    return server


SEND = over_asgi(OIPApp(identity_server()), "")


def ask(body: bytes, length: object) -> Answer:
    return SEND(Request("POST", "/models/m/infer", (("inference-header-content-length", str(length)),), body))


def assert_answered(answer: Answer) -> None:
    assert answer.status == 200 or 400 <= answer.status < 500
    if answer.status != 200:
        assert list(json.loads(answer.body)) == ["error"]


@given(mixtures(), st.data())
def test_any_prefix_or_changed_byte_is_answered(mixture: tuple[list[Tensor], list[bool]], data: st.DataObject) -> None:
    body, length = to_request(*mixture)
    assert ask(body, length).status == 200
    end = data.draw(st.integers(0, len(body)))
    assert_answered(ask(body[:end], length))
    place = data.draw(st.integers(0, len(body) - 1))
    changed = body[:place] + bytes([data.draw(st.integers(0, 255))]) + body[place + 1 :]
    assert_answered(ask(changed, length))
    assert_answered(ask(body, data.draw(st.integers(-1, len(body) + 1))))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(["FP32", "INT8", "BYTES", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "id", "binary_data_size", "zz"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_answered(document: Any) -> None:
    body = json.dumps(document).encode()
    assert_answered(ask(body, len(body)))


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_answered(body: bytes, length: int) -> None:
    assert_answered(ask(body, length))


@given(
    st.integers(1, 300),
    st.sampled_from([("[", "]"), ('{"a":', "}"), ('{"\\"[]{\\\\":', "}"), ('["]",', "]")]),
    st.text(alphabet='[]{}\\"a'),
)
def test_nesting_outside_strings_is_counted_exactly(times: int, brackets: tuple[str, str], text: str) -> None:
    opening, closing = brackets
    body = f'{{"inputs":[],"zz":{opening * times}{json.dumps(text)}{closing * times}}}'.encode()
    assert ask(body, len(body)).status == (400 if 1 + times > MAX_DEPTH else 200)


def test_nesting_is_counted_over_many_chunks() -> None:
    for deep in (False, True):
        filler = '"[[[\\\\\\"",' * 300_000
        body = f'{{"inputs":[],"zz":[{filler}{"[" * (98 + deep)}{"]" * (98 + deep)}]}}'.encode()
        assert ask(body, len(body)).status == (400 if deep else 200)
