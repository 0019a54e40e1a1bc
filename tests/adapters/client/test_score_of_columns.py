"""The command that scores a file: which of its columns are sent, and as what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.adapters.client.conftest import Score
from tests.support.threads import serving

X = TensorSpec("x", "FP64", [-1])


@pytest.fixture(scope="module")
def calls() -> list[str]:
    """The calls of the model `order`."""
    return []


@pytest.fixture(scope="module")
def at(calls: list[str]) -> Iterator[str]:
    def order(code: str, qty: int = 1) -> str:
        calls.append(code)
        return f"{code} {qty}"

    def price(x: npt.NDArray[np.float64], t: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
        return x if t is None else x * t

    server = InferenceServer()
    server.register("order", order)
    server.register("price", price, inputs=[X, TensorSpec("t", "FP64", [1])])
    server.register("width", lambda X: X.sum(axis=1), inputs=[TensorSpec("X", "FP64", [-1, -1])])  # noqa: N803
    server.register("open", lambda df: df, content_type="pd")
    with serving(OIPApp(server, path="/v2")) as port:
        yield f"http://127.0.0.1:{port}/v2"


def test_scalars_are_read_as_they_are_declared(score: Score, at: str, calls: list[str]) -> None:
    assert score("order", "code,qty\n00123,5\nA1,6\n", at=at).values == ["00123 5", "A1 6"]
    assert score("order", "code\n007\n", at=at).values == ["007 1"]
    assert sorted(calls) == ["00123", "007", "A1"]  # each row is asked for alone, and once
    scored = score("order", "code,qty\nA,x\nB,2\nC,3\n", at=at)  # the first row is refused, which tells nothing of the others
    assert (scored.status, scored.values) == (1, ["B 2", "C 3"])
    assert [row["row"] for row in scored.refusals] == [1]


@pytest.mark.parametrize("columns", [[], ["--columns", "x,t"]])
def test_a_scalar_beside_columns_has_no_value_for_each_row(score: Score, at: str, columns: list[str]) -> None:
    refused = score("price", "x,t\n1,10\n2,20\n", *columns, at=at)
    assert (refused.status, refused.told) == (
        2,
        "cannot be scored: ['t']: the model takes one value for a request, not one for each row: name the other columns by --columns\n",
    )
    assert score("price", None, "--columns", "x", at=at).values == [1.0, 2.0]


def test_a_column_with_the_name_of_the_array_is_one_of_its_columns(score: Score, at: str) -> None:
    assert score("width", "X\n1\n2\n", at=at).values == [1.0, 2.0]
    assert score("width", "X,y\n1,2\n3,4\n", at=at).values == [3.0, 7.0]
    assert score("width", '{"X": [1, 2]}\n{"X": [3, 4]}\n', rows="rows.jsonl", at=at).values == [3.0, 7.0]


def test_the_numbers_of_rows_that_pandas_adds_to_parquet_are_no_column(score: Score, at: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    frame[frame["a"] > 1].to_parquet(tmp_path / "rows.parquet")
    assert score("open", None, rows="rows.parquet", at=at).lines == [{"row": 1, "a": 2.0}, {"row": 2, "a": 3.0}]
