"""None in lists that go to a column of a data frame, from Python: as null goes there in `generate`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, TensorSpec

pd = pytest.importorskip("pandas")

COLUMNS = [
    TensorSpec("text", "BYTES", [-1]),
    TensorSpec("whole", "INT64", [-1], pd_dtype="Int64"),
    TensorSpec("plain", "INT64", [-1]),
    TensorSpec("number", "FP64", [-1]),
    TensorSpec("date", "BYTES", [-1], content_type="datetime"),
]
GOOD = {
    "text": ["x", "y"],
    "whole": [1, 2],
    "plain": [1, 2],
    "number": [1.5, 2],
    "date": [datetime(2026, 1, 1), datetime(2026, 1, 2)],
}


def infer(values: dict[str, Any], **options: Any) -> Any:
    """The frame that the model got."""
    server, seen = InferenceServer(), list[Any]()

    def keep(frame: Any) -> int:
        seen.append(frame)
        return 1

    server.register("m", keep, content_type="pd", **options)
    server.infer_sync("m", values)
    return seen[0]


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [
        ("text", ["x", None], "object"),
        ("text", [None, None], "object"),
        ("whole", [1, None], "Int64"),
        ("number", [1.5, None], "float64"),
        ("date", [datetime(2026, 1, 1), None], "datetime64"),
    ],
)
def test_none_in_a_declared_column_is_a_missing_value(name: str, value: list[Any], dtype: str) -> None:
    column = infer({**GOOD, name: value}, inputs=COLUMNS)[name]
    assert column.isna().tolist() == [each is None for each in value]
    assert str(column.dtype).startswith((dtype, "str"))
    whole = [each for each in column.tolist() if not pd.isna(each)]
    assert whole == [each for each in value if each is not None]


@pytest.mark.parametrize("dtype", ["str", "string", "object", "object[NaN]"])
def test_none_beside_texts_of_a_declared_dtype(dtype: str) -> None:
    spec = TensorSpec("text", "BYTES", [-1], "str", pd_dtype=dtype)
    column = infer({"text": ["x", None]}, inputs=[spec])["text"]
    assert (column[0], column.isna().tolist()) == ("x", [False, True])
    for other in (5, True):
        with pytest.raises(InferenceError, match=f"element 0 is b.{str(other).lower()}.: expected the JSON text of a string"):
            infer({"text": [other, None]}, inputs=[spec])


def test_none_in_a_column_that_is_not_declared() -> None:
    frame = infer({"text": ["x", None], "number": [1, None]})
    assert frame.isna().to_numpy().tolist() == [[False, False], [True, True]]


def test_none_where_the_dtype_has_nothing_missing_is_refused() -> None:
    with pytest.raises(InferenceError, match=r"input 'plain': .* for a missing value in a column of a data frame, write"):
        infer({**GOOD, "plain": [1, None]}, inputs=COLUMNS)


def test_an_empty_array_of_objects_is_bytes() -> None:
    server = InferenceServer()
    server.register("echo", lambda x: x)
    for shape in ((0,), (0, 3)):
        [output] = server.infer_sync("echo", {"x": np.empty(shape, object)}).outputs
        assert (output.datatype, output.array.shape) == ("BYTES", shape)
