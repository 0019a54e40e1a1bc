"""The table of content types: requests, what their models must receive, and what is refused. It is run over REST and over gRPC."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from oip_asgi import InferenceRequest, RequestOutput, Tensor
from oip_asgi.codecs import DatetimeCodec, NumpyCodec, NumpyRequestCodec, PandasCodec, StringRequestCodec
from tests.support.content_types import (
    BASE64,
    COLOURS,
    DATED,
    FLOATS,
    NAMES,
    NOON,
    ONE,
    PEOPLE,
    RED,
    bytes_column,
    make_tensor,
    request_of,
    with_type,
)


class Case(NamedTuple):
    """A request, and the Python value that the model must receive."""

    model: str
    request: InferenceRequest
    value: Any


CASES = {
    "frame, by its annotation": Case("frame", InferenceRequest(PandasCodec.encode_request(PEOPLE).inputs), PEOPLE),
    "frame, by the request": Case("frame", PandasCodec.encode_request(PEOPLE), PEOPLE),
    "frame, as [N, 1]": Case("frame", request_of(Tensor("a", np.array([[1], [2]])), content_type="pd"), pd.DataFrame({"a": [1, 2]})),
    "frame, stacked": Case(
        "frame",
        request_of(with_type(NAMES, "str"), Tensor("y", DATED.array.repeat(2), DATED.parameters), content_type="pd"),
        pd.DataFrame({"x": ["Joanne", "Michaël"], "y": pd.Series([NOON] * 2)}),
    ),
    "frame and more": Case(
        "frame and more",
        request_of(Tensor("limit", np.array([7])), Tensor("a", np.array([1, 2])), make_tensor("names", [b"n"]), content_type="pd"),
        (pd.DataFrame({"a": [1, 2]}), np.array([7]), "frame and more", ["n"]),
    ),
    "declared frame": Case(
        "declared frame",
        request_of(make_tensor("First Name", [b"Joanne"]), make_tensor("Born", [b"2022-01-11T11:00:00"])),
        pd.DataFrame({"First Name": ["Joanne"], "Born": [NOON]}),
    ),
    "array": Case("array", request_of(FLOATS), FLOATS.array),
    "array, np": Case("array", request_of(with_type(FLOATS, "np"), content_type="np"), FLOATS.array),
    "array, input-1": Case("array", NumpyRequestCodec.encode_request(FLOATS.array), FLOATS.array.reshape(2, 1)),
    "nothing said": Case("free", request_of(NAMES), NAMES.array),
    "said by the tensor": Case("free", request_of(BASE64), [b"a", b"\xff"]),
    "said by the request for the whole": Case("free", PandasCodec.encode_request(PEOPLE), PEOPLE),
    "declared in an annotation": Case("annotated str", request_of(NAMES), ["Joanne", "Michaël"]),
    "declared, [N, 1] said": Case("free str", request_of(bytes_column("x", [b"a"], content_type="str")), ["a"]),
    "strings, input-1": Case("strings", StringRequestCodec.encode_request(["a", "b"]), ["a", "b"]),
    "bytes as they are": Case("bytes", request_of(make_tensor("x", [b"YQ=="])), [b"YQ=="]),
    "bytes, base64": Case("bytes", request_of(make_tensor("x", [b"YQ=="], content_type="base64")), [b"a"]),
    "datetimes, by annotation": Case("datetimes", request_of(make_tensor("x", [b"2022-01-11T11:00:00"])), [NOON]),
    "datetimes, said": Case("datetimes", request_of(DatetimeCodec.encode_input("x", [NOON])), [NOON]),
    "datetimes, left out": Case("datetimes", request_of(), None),
    "series": Case("series", request_of(FLOATS), pd.Series([1.5, 2.5], name="x")),
    "series, said": Case("series", request_of(DATED), pd.Series([NOON], name="x")),
    "[N, 1] for a declared [-1]": Case("declared", request_of(NumpyCodec.encode_input("x", FLOATS.array)), FLOATS.array),
    "[N, 1] of the whole": Case("declared", NumpyRequestCodec.encode_request(FLOATS.array), FLOATS.array),
    "columns, one by one": Case(
        "two", request_of(FLOATS, bytes_column("names", [b"b"], content_type="str"), content_type="pd"), (FLOATS.array, ["b"])
    ),
    "a column for the only parameter": Case("array", request_of(FLOATS, content_type="pd"), FLOATS.array),
    "a column, [N, 1] for a declared [-1]": Case(
        "declared", request_of(Tensor("x", FLOATS.array.reshape(2, 1)), content_type="pd"), FLOATS.array
    ),
    "columns for the rest": Case(
        "rest",
        request_of(NAMES, bytes_column("y", [b"b"], content_type="str"), content_type="pd"),
        {"x": ["Joanne", "Michaël"], "y": ["b"]},
    ),
    "rest": Case("rest", request_of(NAMES, make_tensor("y", [b"b"])), {"x": ["Joanne", "Michaël"], "y": ["b"]}),
    "two": Case("two", request_of(FLOATS, make_tensor("names", [b"b"])), (FLOATS.array, ["b"])),
    "a user's codec, by annotation": Case("colours", request_of(make_tensor("x", [b"#ff0001"])), RED),
    "a user's codec, said": Case("free", request_of(COLOURS), RED),
    "a user's codec, named": Case("named codec", request_of(make_tensor("x", [b"#ff0001"])), RED),
    "a user's request codec": Case("pair", request_of(FLOATS, ONE), (FLOATS.array, ONE.array)),
    "a user's request codec, said": Case("pair", request_of(FLOATS, ONE, content_type="pair"), (FLOATS.array, ONE.array)),
    "a user's codec, named, a column": Case("named codec", request_of(make_tensor("x", [b"#ff0001"]), content_type="pd"), RED),
    "declared for the tensor, a frame said": Case(
        "free str", request_of(NAMES, content_type="pd"), pd.DataFrame({"x": ["Joanne", "Michaël"]})
    ),
    "a frame for the model, input-1": Case("model frame", NumpyRequestCodec.encode_request(FLOATS.array), FLOATS.array.reshape(2, 1)),
}


class Bad(NamedTuple):
    """A request, what the text of its 400 must hold, and whether that shows only in what the model returned."""

    model: str
    request: InferenceRequest
    text: tuple[str, ...]
    is_called: bool = False


KNOWN = "np, str, base64, datetime, pd_json, colour"
BAD = {
    "unknown, of the tensor": Bad("array", request_of(with_type(FLOATS, "nope")), ("input 'x'", "'nope'", KNOWN)),
    "unknown, of the request": Bad("array", request_of(FLOATS, content_type="nope"), ("the request", "'nope'", f"{KNOWN}, pd, pair")),
    "unknown, of an output": Bad(
        "array",
        request_of(FLOATS, outputs=[RequestOutput("output_0", {"content_type": "nope"})]),
        ("requested output 'output_0'", "'nope'", KNOWN),
    ),
    "unknown, though the model takes the whole": Bad("whole", request_of(with_type(FLOATS, "nope")), ("'nope'",)),
    "no string": Bad("array", request_of(Tensor("x", FLOATS.array, {"content_type": 5})), ("unknown content_type 5",)),
    "another than a column declares": Bad(
        "declared frame",
        request_of(make_tensor("First Name", [b"a"]), make_tensor("Born", [b"a"], content_type="str")),
        ("input 'Born'", "the content_type 'str'", "the model declares 'datetime': expected datetime, or none"),
    ),
    "another of two": Bad(
        "declared frame",
        request_of(make_tensor("First Name", [b"YQ=="], content_type="base64"), make_tensor("Born", [b"NaT"])),
        ("input 'First Name'", "the content_type 'base64'", "the model declares 'str': expected str or pd_json, or none"),
    ),
    "in other letters": Bad("array", request_of(with_type(FLOATS, "NP")), ("'NP'",)),
    "pd on a tensor": Bad("array", request_of(with_type(FLOATS, "pd")), ("'pd'", "whole request")),
    "str for an array": Bad("array", request_of(with_type(NAMES, "str")), ("'str'", "ndarray")),
    "pd of other columns for an array": Bad("array", request_of(ONE, content_type="pd"), ("unknown input 'y'", "'pd'", "x: numpy.ndarray")),
    "a user's whole for an array": Bad("array", request_of(FLOATS, content_type="pair"), ("'pair'", "x: numpy.ndarray")),
    "a column that is no array": Bad("strings", request_of(FLOATS, content_type="pd"), ("'x'", "FP64", "BYTES")),
    "numbers for a user's codec": Bad("colours", request_of(FLOATS), ("'x'", "FP64", "BYTES", "'colour'")),
    "str for numbers": Bad("free", request_of(with_type(FLOATS, "str")), ("tensor 'x' has datatype FP64: expected BYTES for 'str'",)),
    "numbers for strings": Bad("strings", request_of(FLOATS), ("'x'", "FP64", "BYTES")),
    "not UTF-8": Bad("strings", request_of(make_tensor("x", [b"a", b"\xff"])), (r"tensor 'x': element 1 is b'\xff', which is not UTF-8",)),
    "not UTF-8 in a frame": Bad("frame", request_of(make_tensor("x", [b"a", b"\xff"])), ("'x'", "element 1", "UTF-8")),
    "not base64": Bad(
        "bytes", request_of(make_tensor("x", [b"a"], content_type="base64")), ("tensor 'x': element 0 is b'a', which is not base64",)
    ),
    "no letters of base64": Bad("bytes", request_of(make_tensor("x", [b"not base64!"], content_type="base64")), ("which is not base64",)),
    "no date": Bad(
        "datetimes",
        request_of(make_tensor("x", [b"2022-01-11", b"soon"])),
        ("'x': element 1 is b'soon', which is not an ISO 8601 date and time",),
    ),
    "a missing date": Bad("datetimes", request_of(make_tensor("x", [b"NaT"])), ("element 0 is b'NaT'",)),
    "a finer date": Bad("datetimes", request_of(make_tensor("x", [b"20220111T110000.000000001"])), ("'x'", "element 0", "pandas.Series")),
    "three dimensions of strings": Bad(
        "strings", request_of(Tensor("x", NAMES.array.reshape(1, 2, 1))), ("[1, 2, 1]: expected [N] or [N, 1]",)
    ),
    "a row of strings": Bad("strings", request_of(Tensor("x", NAMES.array.reshape(1, 2))), ("tensor 'x' has shape [1, 2]",)),
    "rows that differ": Bad("frame", request_of(FLOATS, Tensor("y", np.array([1]))), ("'y'", "1 rows", "2")),
    "two for the whole": Bad("array", request_of(FLOATS, Tensor("y", np.array([1])), content_type="np"), ("'y'",)),
    "another name, nothing said": Bad("array", request_of(Tensor("input-1", FLOATS.array)), ("unknown input 'input-1'", "'x'")),
    "[N, 1] for a declared [-1], nothing said": Bad("declared", request_of(Tensor("x", FLOATS.array.reshape(2, 1))), ("[2, 1]", "[-1]")),
    "[1, N] for a declared [-1]": Bad("declared", request_of(Tensor("x", FLOATS.array.reshape(1, 2), {"content_type": "np"})), ("[1, 2]",)),
    "declared frame, a column too many": Bad("declared frame", request_of(FLOATS), ("unknown input 'x'",)),
    "what a user's codec refuses": Bad("colours", request_of(make_tensor("x", [b"red"])), ("input 'x'", "fromhex()")),
    "what a user's request codec refuses": Bad("pair", request_of(FLOATS), ("a pair has 2 tensors, not 1",)),
    "a column too many, a frame said": Bad("free str", request_of(NAMES, ONE, content_type="pd"), ("unknown input 'y': expected 'x'",)),
    "several columns as one array": Bad(
        "declared frame",
        request_of(make_tensor("First Name", [b"a"]), make_tensor("Born", [b"NaT"]), content_type="np"),
        ("the request has the content_type 'np',",),
    ),
    "an output that cannot be so": Bad(
        "array", request_of(FLOATS, outputs=[RequestOutput("output_0", {"content_type": "str"})]), ("'output_0'", "'str'", "1.5"), True
    ),
}
