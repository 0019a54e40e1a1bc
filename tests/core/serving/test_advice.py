"""Common mistakes of models: what the log says to mend them, and when the client is told of a column that it left out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceServer, TensorSpec
from tests.support.asking import ask, error, outputs

FAILED = (500, "model 'm' failed: see the server's log")
READ_ONLY = ": inputs are read-only; register the model with writable=True, so that it gets copies which it may change"


@pytest.fixture
def server() -> InferenceServer:
    return InferenceServer()


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "oip_asgi"]


def adds(x: Any) -> Any:
    x += 1
    return x


def sorts(x: Any) -> Any:
    x.sort()
    return x


@pytest.mark.parametrize("function", [adds, sorts])
def test_inputs_that_are_changed_in_place(server: InferenceServer, function: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    server.register("m", function)
    assert error(ask(server, "m", x=[2.0, 1.0])) == FAILED
    assert messages(caplog) == [(logging.ERROR, f"model 'm' failed on the request with id None{READ_ONLY}")]


def test_a_writable_model_is_not_told_to_be_one(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    def fails(x: Any) -> Any:
        raise ValueError("the disk is read-only")

    server.register("m", fails, writable=True)
    server.register("adds", adds, writable=True)
    assert error(ask(server, "m", x=[2.0])) == FAILED
    assert messages(caplog) == [(logging.ERROR, "model 'm' failed on the request with id None")]
    assert outputs(ask(server, "adds", x=[1.0])) == {"output_0": [2.0]}


def test_a_model_that_returns_nothing(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    server.register("m", lambda x: None)
    server.register("one of two", lambda x: {"a": x, "b": None})
    assert error(ask(server, "m", x=[1.0])) == FAILED
    assert "ModelFault: the model returned None: did you forget `return`?" in caplog.text
    ask(server, "one%20of%20two", x=[1.0])
    assert "ModelFault: output 'b' is None" in caplog.text


# Columns of data frames


def gets(df: pd.DataFrame) -> Any:
    return df["Age"] * 2


def gets_two(df: pd.DataFrame) -> Any:
    return df[["Age", "x", "Height"]]


def gets_only_others(df: pd.DataFrame) -> Any:
    return df[["Age"]]


def pops(df: pd.DataFrame) -> Any:
    df = df.copy()
    return df.pop("Age")


def drops(df: pd.DataFrame) -> Any:
    return df.drop(columns=["Age"])


def sorts_by(df: pd.DataFrame) -> Any:
    return df.assign(more=1).sort_values("Age")


@pytest.mark.parametrize(
    ("function", "column"),
    [
        (gets, "'Age'"),
        (gets_two, "['Age', 'Height']"),
        (gets_only_others, "'Age'"),
        (pops, "'Age'"),
        (drops, "['Age']"),
        (sorts_by, "'Age'"),
    ],
)
def test_a_missing_column_is_the_clients(
    server: InferenceServer, function: Callable[..., Any], column: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.register("m", function)
    status, text = error(ask(server, "m", x=[1.0], y=[2.0]))
    assert status == 400
    assert text.startswith("model 'm' needs the column ")
    assert column in text
    assert text.endswith(", which the request does not have: its inputs are 'x', 'y'")
    assert messages(caplog) == [(logging.WARNING, f"the request with id None: {text}")]


def of_a_frame_of_its_own(df: pd.DataFrame) -> Any:
    return pd.DataFrame({"price": [1]})["Age"]


def of_a_dict(df: pd.DataFrame) -> Any:
    return dict[str, int]()["Age"]


def of_a_row(df: pd.DataFrame) -> Any:
    return df.loc["Age"]


def of_a_series(df: pd.DataFrame) -> Any:
    return pd.Series({"a": 1})["Age"]


def of_a_number(df: pd.DataFrame) -> Any:
    return df[7]


def raises_itself(df: pd.DataFrame) -> Any:
    raise KeyError("Age")


def of_an_array(x: Any) -> Any:
    return pd.DataFrame({"x": x})["Age"]


@pytest.mark.parametrize(
    "function", [of_a_frame_of_its_own, of_a_dict, of_a_row, of_a_series, of_a_number, raises_itself, of_an_array], ids=lambda f: f.__name__
)
def test_other_key_errors_are_the_models(server: InferenceServer, function: Callable[..., Any]) -> None:
    server.register("m", function)
    assert error(ask(server, "m", x=[1.0])) == FAILED


def test_where_columns_are_declared_a_missing_one_is_the_models(server: InferenceServer) -> None:
    server.register("m", gets, inputs=[TensorSpec("x", "FP64", [-1])])
    assert error(ask(server, "m", x=[1.0])) == FAILED
    server.register("declared", gets, inputs=[TensorSpec("Age", "FP64", [-1])])
    assert error(ask(server, "declared", x=[1.0])) == (400, "unknown input 'x': expected 'Age'")


def test_a_long_name_is_cut(server: InferenceServer) -> None:
    def gets_long(df: pd.DataFrame, y: Annotated[np.ndarray, "FP64", [-1]]) -> Any:
        return df["A" * 5000]

    server.register("m", gets_long)
    status, text = error(ask(server, "m", x=[1.0], y=[2.0]))
    assert (status, len(text) < 300) == (400, True)
    assert text.endswith("(5002 characters), which the request does not have: its inputs are 'x'")
