"""Requests as JSON: read at once and part by part, every text means the same."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oip_asgi import InferenceError
from tests.support.inside import decode_request, decode_request_closely

TEXTS: Final = {
    "as clients write it": b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2.5]}]}',
    "nested": b'{"inputs":[{"name":"x","shape":[2,2],"datatype":"INT8","data":[[1,2],[3,4]]}]}',
    "ragged": b'{"inputs":[{"name":"x","shape":[2,2],"datatype":"INT8","data":[[1,2,3],[4]]}]}',
    "data first": b'{"inputs":[{"data":[1,2],"name":"x","shape":[2],"datatype":"FP32","parameters":{"a":"]"}}]}',
    "parameters after the data": b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1],"parameters":{"a":1}}],"id":"7"}',
    "outputs after the inputs": (
        b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}'
    ),
    "called data": b'{"inputs":[{"name":"data","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "called as the placeholder": b'{"inputs":[{"name":"[7.77e-77]","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id in front": b'{"id": "7\xe2\x98\x83" , "inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id with an escape": b'{"id":"\\u0041\\"","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "an id that is no UTF-8": b'{"id":"\xff","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "two ids": b'{"id":"a","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}],"id":"b"}',
    "an id and null": b'{"id":"a","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}],"id":null}',
    "an id at the end": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}] , "id" : "7\xe2\x98\x83" } \n',
    "data twice, and a short one": b'{"inputs":[{"name":"x","shape":[],"datatype":"FP32","data":[7,8],"data":1}]}',
    "bad number": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,02]}]}',
    "space before the colon": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data" : [1,2]}]}',
    "data twice": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],"data":[2]}]}',
    "two inputs": (
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]},{"name":"z","shape":[1],"datatype":"FP32","data":[2]}]}'
    ),
    "a scalar": b'{"inputs":[{"name":"x","shape":[],"datatype":"FP32","data":5}]}',
    "nothing": b'{"inputs":[{"name":"x","shape":[0],"datatype":"FP32","data":[]}]}',
    "strings": b'{"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","data":["a]","b}"]}]}',
    "a mistake among numbers": b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,300]}]}',
    "literals of Python's": b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[NaN,-Infinity]}]}',
    "no flag": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"parameters":{"binary_data_output":1}}',
    "no UTF-8": b'{"inputs":[{"name":"\xff","shape":[1],"datatype":"FP32","data":[1]}]}',
    "long": b'{"inputs":[{"name":"x","shape":[3000],"datatype":"FP32","data":[%s]}]}' % b",".join([b"0.125"] * 3000),
    "long around": b'{"inputs":[{"name":"%s","shape":[1],"datatype":"FP32","data":[1]}]}' % (b"x" * 3000),
    "two long": b'{"inputs":[{"name":"x","shape":[2000],"datatype":"FP32","data":[%s]},'
    b'{"name":"z","shape":[1000,2],"datatype":"INT8","data":[%s]}]}' % (b",".join([b"0.125"] * 2000), b",".join([b"[1,2]"] * 1000)),
    "long strings": b'{"inputs":[{"name":"x","shape":[2000],"datatype":"BYTES","data":[%s]}]}' % b",".join([b'"a]b"'] * 2000),
    "long strings that look like data": b'{"inputs":[{"name":"x","shape":[2000],"datatype":"BYTES","data":[%s]}]}'
    % b",".join([b'"\\"data\\":["'] * 2000),
    "long data twice": b'{"inputs":[{"name":"x","shape":[2000],"datatype":"FP32","data":[%s],"data":[%s]}]}'
    % ((b",".join([b"0.125"] * 2000),) * 2),
    "long data elsewhere": b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],"more":[{"data":[%s]}]}'
    % b",".join([b"1"] * 5000),
    "long literals": b'{"inputs":[{"name":"x","shape":[2000],"datatype":"FP32","data":[%s]}]}' % b",".join([b"NaN"] * 2000),
    "a long text in a list within": b'{"inputs":[{"name":"x","shape":[3000],"datatype":"FP32","data":[%s]}]}'
    % b",".join([*[b"1"] * 9, b'["%s"]' % (b"a" * 5000), *[b"0.125"] * 2990]),
    "a long array that goes on": b'{"inputs":[{"name":"x","shape":[2000],"datatype":"FP32","data":[%s],3]}]}' % b",".join([b"1.25"] * 2000),
}


def outcome(body: bytes, header_length: int | None, decode: Any = decode_request) -> Any:
    """What a request says, or why it is none. Any NaN is as any other."""
    try:
        request = decode(body, header_length)
    except InferenceError as error:
        text = str(error)
        # nested too deep, or not UTF-8; long data do not say where; of two mistakes, a piece shows the element, and the whole the form
        is_of_form = any(part in text for part in ("data has another form", "data has too many", "is an array: expected"))
        return "refused" if text.startswith("the JSON is ") or is_of_form else text
    tensors = [(each.name, each.datatype, each.shape, each.parameters, repr(each.array.tolist())) for each in request.inputs]
    return request.id, request.parameters, [(each.name, each.parameters) for each in request.outputs], tensors


def assert_no_difference(body: bytes, header_length: int | None) -> None:
    expected, found = outcome(body, header_length, decode_request_closely), outcome(body, header_length)
    assert found == expected or (isinstance(found, str) and isinstance(expected, str) and "refused" in (found, expected))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_means_the_same_to_both_ways(text: bytes) -> None:
    assert_no_difference(text, None)
    assert_no_difference(text, len(text))
    assert_no_difference(text + b"\1\0\2\0", len(text))


PIECES: Final = [
    b'"id":"b",', b'"id"', b'"data":', b'"data"', b"[", b"]", b"[1,2]", b"}", b"{", b",", b'"x"', b":", b"1", b" ", b'\\"',
    b"[7.77e-77]", b"[%s]" % b",".join([b"0.125"] * 1000), b'["%s"]' % (b"a" * 5000),
]  # fmt: skip


@settings(max_examples=50)
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_no_change_of_a_text_makes_a_difference(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.sampled_from([b"", *PIECES])) + text[end:]
    assert_no_difference(text, None)
    assert_no_difference(text + b"\1\0", data.draw(st.integers(1, len(text) + 2)))
