"""The wire vectors of the codecs: a value, and the JSON of its request."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from oip_asgi import InferenceRequest
from oip_asgi.codecs import Base64Codec, DatetimeCodec, NumpyCodec, NumpyRequestCodec, PandasCodec, StringCodec, StringRequestCodec


class Vector(NamedTuple):
    """A value and the JSON of its request."""

    value: Any
    encode: Callable[[Any], InferenceRequest]
    decode: Callable[[InferenceRequest], Any]
    document: Any


def tensor(name: str, datatype: str, shape: list[int], data: list[Any], content_type: str | None = None) -> dict[str, Any]:
    parameters = {"parameters": {"content_type": content_type}} if content_type else {}
    return {"name": name, "shape": shape, "datatype": datatype, **parameters, "data": data}


def column(datatype: str, data: list[Any], content_type: str | None = None, **more: Any) -> dict[str, Any]:
    """A document of one column, with more parameters."""
    document = tensor("x", datatype, more.pop("shape", [len(data)]), data, content_type)
    document["parameters"] = {**document.get("parameters", {}), **more}
    return document


def one(codec: Any) -> dict[str, Any]:
    """Encode and decode through a request that holds one tensor, called `foo`."""
    return {
        "encode": lambda value: InferenceRequest([codec.encode_input("foo", value, use_bytes=False)]),
        "decode": lambda request: codec.decode_input(request.inputs[0]),
    }


def whole(codec: Any) -> dict[str, Any]:
    return {"encode": codec.encode_request, "decode": codec.decode_request}


ABC = pd.DataFrame({name: [f"{name.lower()}{row}" for row in range(1, 5)] for name in "ABC"})
NOON = datetime(2022, 1, 11, 11, 0, 0)
VECTORS = {
    "names and ages": Vector(
        pd.DataFrame({"First Name": ["Joanne", "Michael"], "Age": np.array([34, 22], "i4")}),
        **whole(PandasCodec),
        document={
            "inputs": [tensor("First Name", "BYTES", [2], ["Joanne", "Michael"], "str"), tensor("Age", "INT32", [2], [34, 22])],
            "parameters": {"content_type": "pd"},
        },
    ),
    "A, B and C": Vector(
        ABC,
        **whole(PandasCodec),
        document={
            "inputs": [tensor(name, "BYTES", [4], ABC[name].tolist(), "str") for name in "ABC"],
            "parameters": {"content_type": "pd"},
        },
    ),
    "np": Vector(
        np.array([[1, 2], [3, 4]], "i4"), **one(NumpyCodec), document={"inputs": [tensor("foo", "INT32", [2, 2], [1, 2, 3, 4], "np")]}
    ),
    "np, NaN": Vector(
        np.array([[1.2, 2.3], [np.nan, 4.5]]),
        **one(NumpyCodec),
        document={"inputs": [tensor("foo", "FP64", [2, 2], [1.2, 2.3, None, 4.5], "np")]},
    ),
    "np, the whole": Vector(
        np.array([[1], [2]]),
        **whole(NumpyRequestCodec),
        document={"inputs": [tensor("input-1", "INT64", [2, 1], [1, 2], "np")], "parameters": {"content_type": "np"}},
    ),
    "str": Vector(["bar", "bar2"], **one(StringCodec), document={"inputs": [tensor("foo", "BYTES", [2], ["bar", "bar2"], "str")]}),
    "str, the whole": Vector(
        ["bar", "bar2"],
        **whole(StringRequestCodec),
        document={"inputs": [tensor("input-1", "BYTES", [2], ["bar", "bar2"], "str")], "parameters": {"content_type": "str"}},
    ),
    "base64": Vector(
        [b"Python is fun"],
        **one(Base64Codec),
        document={"inputs": [tensor("foo", "BYTES", [1], ["UHl0aG9uIGlzIGZ1bg=="], "base64")]},
    ),
    "datetime": Vector(
        [NOON], **one(DatetimeCodec), document={"inputs": [tensor("foo", "BYTES", [1], ["2022-01-11T11:00:00"], "datetime")]}
    ),
    "pd, NaN": Vector(
        pd.DataFrame({"x": np.array([1.5, np.nan], "f4")}),
        **whole(PandasCodec),
        document={"inputs": [tensor("x", "FP32", [2], [1.5, None])], "parameters": {"content_type": "pd"}},
    ),
    "pd, missing string": Vector(
        pd.DataFrame({"x": ["a", None]}),
        **whole(PandasCodec),
        document={"inputs": [tensor("x", "BYTES", [2], ['"a"', "null"], "pd_json")], "parameters": {"content_type": "pd"}},
    ),
}


def assert_same(got: Any, expected: Any) -> None:
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(got, expected)
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    else:
        assert got == expected
