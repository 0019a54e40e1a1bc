"""The wire vectors in both directions: bytes -> array -> bytes, and JSON -> array -> JSON."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, Tensor, TensorSpec
from tests.support.inside import decode_request
from tests.support.inside.rest import from_json, to_json
from tests.support.inside.values import DTYPES, Array, InvalidRequest, dtype_of, from_bytes, to_bytes
from tests.support.ways import over_asgi
from tests.table.row import answer, framed, infer, inputs, tensor
from tests.table.vectors import VECTORS, Vector

vectors = pytest.mark.parametrize("vector", VECTORS, ids=str)


def expected(vector: Vector) -> Array:
    array = np.empty(len(vector.elements), dtype_of(vector.datatype))
    array[:] = vector.elements
    return array.reshape(vector.shape)


def assert_same(array: Array, vector: Vector) -> None:
    assert array.shape == vector.shape
    assert Tensor("", array).datatype == vector.datatype
    if array.dtype.hasobject:
        assert [type(element) for element in array.ravel().tolist()] == [bytes] * array.size
        assert array.ravel().tolist() == vector.elements
    else:
        wide, wanted = array.astype("f8"), expected(vector).astype("f8")
        np.testing.assert_array_equal(wide, wanted)
        assert np.array_equal(np.signbit(wide), np.signbit(wanted))


def test_every_datatype_has_a_vector() -> None:
    assert {vector.datatype for vector in VECTORS} == {*DTYPES, "BF16"}


@vectors
def test_a_model_gets_the_array_and_a_strided_one_leaves_as_its_elements_in_row_major_order(vector: Vector) -> None:
    """That all forms of a vector become one another is asked by its rows of the table."""
    seen: list[Array] = []

    def model(x: Array) -> Array:
        seen.append(x)
        return np.repeat(x.reshape(1, -1), 2, axis=0).T[:, 0].reshape(x.shape)

    server = InferenceServer()
    server.register("m", model, run="inline")
    way, shape = over_asgi(OIPApp(server), ""), list(vector.shape)
    sized = tensor(vector.datatype, shape, None, parameters=f'{{"binary_data_size":{len(vector.raw_bytes)}}}')
    text = answer("m", tensor(vector.datatype, shape, vector.written, "output_0"))
    assert way(infer("m", inputs(tensor(vector.datatype, shape, vector.written)))).body == text
    in_binary = framed("m", inputs(sized, more=',"parameters":{"binary_data_output":true}'), vector.raw_bytes)
    assert way(in_binary).body == answer("m", sized.replace('"x"', '"output_0"')) + vector.raw_bytes
    for array in seen:
        assert_same(array, vector)
    assert len(seen) == 2


def test_a_stray_element_nested_too_deep_for_python() -> None:
    """How deep is too deep is Python's own to say: 3.13 reads more than 3.11, and finds the stray element."""
    text = b"[1.0," + b"[" * 5_000 + b"]" * 5_000 + b"]"
    with pytest.raises(InvalidRequest, match=r"data is nested too deep|data\[1\] is an array: expected 2"):
        from_json(text, dtype_of("INT8"), (2,))


@pytest.mark.parametrize(("datatype", "raw"), [("FP16", "017c"), ("BF16", "817f"), ("FP32", "0100807f"), ("FP64", "010000000000f07f")])
def test_a_signalling_nan_is_null_and_stays_itself_in_binary(datatype: str, raw: str) -> None:
    array = from_bytes(bytes.fromhex(raw), dtype_of(datatype), (1,))
    assert to_json(array) == b"[null]"
    assert to_bytes(array).hex() == raw


def test_what_is_no_json() -> None:
    with pytest.raises(InvalidRequest, match="the body is not valid JSON: Input data was truncated"):
        decode_request(b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,')


def test_bf16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtype_of.cache_clear()  # another test may have found it
    with pytest.raises(InvalidRequest, match="BF16 needs the package ml_dtypes"):
        dtype_of("BF16")
    with pytest.raises(ValueError, match="BF16 needs the package ml_dtypes"):
        TensorSpec("x", "BF16", [1])
