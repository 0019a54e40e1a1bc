"""Lists that go to a column of a data frame or of rows, from Python: None in them as null goes there in `generate`."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from oip_asgi.specs import specs_of

pd = pytest.importorskip("pandas")

COLUMNS = [
    TensorSpec("text", "BYTES", [-1]),
    TensorSpec("whole", "INT64", [-1], pd_dtype="Int64"),
    TensorSpec("plain", "INT64", [-1]),
    TensorSpec("number", "FP64", [-1]),
    TensorSpec("date", "BYTES", [-1], content_type="datetime"),
]
GOOD: dict[str, Any] = {name: [1, 2] for name in ("whole", "plain", "number")}
GOOD |= {"text": ["x", "y"], "date": [datetime(2026, 1, 1), datetime(2026, 1, 2)]}


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
    ("name", "value", "dtype"), [
        ("text", ["x", None], "object"), ("text", [None, None], "object"), ("whole", [1, None], "Int64"),
        ("number", [1.5, None], "float64"), ("date", [datetime(2026, 1, 1), None], "datetime64"),
    ],
)  # fmt: skip
def test_none_in_a_declared_column_is_a_missing_value(name: str, value: list[Any], dtype: str) -> None:
    column = infer({**GOOD, name: value}, inputs=COLUMNS)[name]
    assert column.isna().tolist() == [each is None for each in value]
    assert str(column.dtype).startswith((dtype, "str"))
    assert [each for each in column.tolist() if not pd.isna(each)] == [each for each in value if each is not None]


@pytest.mark.parametrize("dtype", ["str", "string", "object", "object[NaN]"])
def test_none_beside_texts_of_a_declared_dtype(dtype: str) -> None:
    spec = TensorSpec("text", "BYTES", [-1], "str", pd_dtype=dtype)
    column = infer({"text": ["x", None]}, inputs=[spec])["text"]
    assert (column[0], column.isna().tolist()) == ("x", [False, True])
    for other in (5, True):
        assert refusal([other, None], spec) == refusal([other], spec)


def refusal(values: list[Any], spec: TensorSpec) -> str:
    with pytest.raises(InferenceError) as refused:
        infer({spec.name: values}, inputs=[spec])
    assert refused.value.status == 400
    return str(refused.value).split("; for a missing value")[0].split("; for dates")[0]


DATE = TensorSpec("x", "BYTES", [-1], "datetime", pd_dtype="datetime64[ns]")
ZONED = TensorSpec("x", "BYTES", [-1], "datetime", pd_dtype="datetime64[ns, UTC]")


WHOLE, FLAG = TensorSpec("x", "INT64", [-1], pd_dtype="Int64"), TensorSpec("x", "BOOL", [-1], pd_dtype="boolean")
WRONG: list[tuple[TensorSpec, Any]] = [
    *((DATE, wrong) for wrong in (1, 1.5, True, "today", date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC))),
    *((ZONED, wrong) for wrong in ("2026-01-01", datetime(2026, 1, 1))),
    *((WHOLE, wrong) for wrong in (True, 1.0, "1")),
    (TensorSpec("x", "INT8", [-1], pd_dtype="Int8"), 128),
    *((FLAG, wrong) for wrong in (1, "yes")),
    (specs_of(pd.DataFrame({"x": pd.Categorical(["a", "b"])}))[0], 1),
]


@pytest.mark.parametrize(("spec", "wrong"), WRONG, ids=str)
def test_what_is_refused_without_none_is_refused_beside_it(spec: TensorSpec, wrong: Any) -> None:
    alone = refusal([wrong], spec)
    assert refusal([wrong, None], spec) == alone
    assert refusal([None, wrong], spec) == alone


@pytest.mark.parametrize("wrong", [True, "1.5", datetime(2026, 1, 1)])
def test_none_beside_what_is_no_number_is_refused_in_a_column_of_numbers(wrong: Any) -> None:
    assert refusal([wrong, None], TensorSpec("x", "FP64", [-1])).startswith("input 'x'")


def test_none_beside_values_of_several_kinds_in_a_column_that_is_not_declared() -> None:
    several = ["a", 1], [True, 1], [datetime(2026, 1, 1), "x"]
    for wrong in (*several, [date(2026, 1, 1)], [["a", "b"]], [[1, 2], [3, 4]], [b"\xff"]):
        with pytest.raises(InferenceError, match="'x'"):
            infer({"x": [*wrong, None]})


def test_none_in_a_column_that_is_not_declared() -> None:
    values = {"date": [datetime(2026, 1, 1), None], "flag": [True, None], "text": ["x", None], "number": [1, None], "none": [None, None]}
    frame = infer(values)
    assert frame.isna().to_numpy().tolist() == [[False] * 4 + [True], [True] * 5]
    assert (frame["date"][0], frame["flag"][0]) == (pd.Timestamp("2026-01-01"), True)


def test_none_where_the_dtype_has_nothing_missing_is_refused() -> None:
    with pytest.raises(InferenceError, match=r"input 'plain': .* for a missing value in a column of a data frame, write"):
        infer({**GOOD, "plain": [1, None]}, inputs=COLUMNS)


def test_an_empty_array_of_objects_is_bytes() -> None:
    server = InferenceServer()
    server.register("echo", lambda x: x)
    for shape in ((0,), (0, 3)):
        [output] = server.infer_sync("echo", {"x": np.empty(shape, object)}).outputs
        assert (output.datatype, output.array.shape) == ("BYTES", shape)


@dataclasses.dataclass
class Lists:
    counts: list[int]
    flags: list[bool]
    shares: list[float]
    names: list[str]
    share: float | None = None
    day: date | None = None


def _show_lists(rows: list[Lists]) -> list[str]:
    return [repr(dataclasses.astuple(row)) for row in rows]


FITTING: dict[str, Any] = {"counts": [[1]], "flags": [[True]], "shares": [[0.5]], "names": [["a"]]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("counts", [each]) for each in ([1.5], [True], ["3"], [None], [2**63])),
        *(("flags", [each]) for each in (["false"], [0], [1.0], [None])),
        *(("shares", [each]) for each in (["1.5"], [True], [None])),
        *(("names", [each]) for each in ([1], [None])),
        *(("share", [each, None]) for each in (True, "1.5")),
        ("counts", [[1], [1, 2]]),
    ],
)
def test_a_list_for_a_field_of_rows_is_not_converted(name: str, value: list[Any]) -> None:
    """As by the other ways in: neither lists of lists nor a None make texts, booleans and fractions something else."""
    server = InferenceServer()
    server.register("m", _show_lists)
    with pytest.raises(InferenceError) as refused:
        server.infer_sync("m", {**{each: there * len(value) for each, there in FITTING.items()}, name: value})
    assert (refused.value.status, name in str(refused.value)) == (400, True)


def test_what_fits_a_field_of_rows_is_taken_beside_none() -> None:
    server = InferenceServer()
    server.register("m", _show_lists)
    inputs = {**{each: there * 2 for each, there in FITTING.items()}, "share": [1.5, None], "day": ["2026-01-31", None]}
    rows = ["([1], [True], [0.5], ['a'], 1.5, datetime.date(2026, 1, 31))", "([1], [True], [0.5], ['a'], None, None)"]
    assert server.infer_sync("m", inputs)["output_0"].tolist() == [row.encode() for row in rows]
