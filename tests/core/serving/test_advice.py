"""Common mistakes of models: what the log says to mend them, and when the client is told of a column that it left out."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oip_asgi import InferenceServer, TensorSpec
from tests.support.asking import ask, error, outputs

FAILED = (500, "model 'm' failed: see the server's log")
START = ": if the request was wrong, declare what the model takes, and it is answered 400: inputs=["
END = "]; check the datatype and the shape, which may be those of this request"
DECLARE = f'{START}TensorSpec("x", "FP64", [-1]){END}'
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
    assert messages(caplog) == [(logging.ERROR, f"model 'm' failed on a request{READ_ONLY}")]


def test_a_writable_model_is_not_told_to_be_one(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    def fails(x: Any) -> Any:
        raise ValueError("the disk is read-only")

    server.register("m", fails, writable=True)
    server.register("adds", adds, writable=True)
    assert error(ask(server, "m", x=[2.0])) == FAILED
    assert messages(caplog) == [(logging.ERROR, f"model 'm' failed on a request{DECLARE}")]
    assert outputs(ask(server, "adds", x=[1.0])) == {"output_0": [2.0]}


def test_a_model_that_returns_nothing_or_a_generator(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    server.register("m", lambda x: None)
    server.register("one of two", lambda x: {"a": x, "b": None})
    server.register("words", lambda x: (word for word in x))
    assert error(ask(server, "m", x=[1.0])) == FAILED
    ask(server, "one%20of%20two", x=[1.0])
    ask(server, "words", x=[1.0])
    line = test_a_model_that_returns_nothing_or_a_generator.__code__.co_firstlineno
    places = [f'(File "{__file__}", line {line + number}, in <lambda>)' for number in (1, 2, 3)]
    assert messages(caplog) == [
        (logging.ERROR, f"model 'm' failed on a request {places[0]}: the model gave None: did you forget `return` or `yield x`?"),
        (logging.ERROR, f"model 'one of two' failed on a request {places[1]}: output 'b' is None"),
        (
            logging.ERROR,
            f"model 'words' failed on a request {places[2]}: the model returned a generator: to answer with each item, write yield in the "
            "function itself",
        ),
    ]


def test_a_declaration_that_would_have_refused_the_request_is_written(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    declared = TensorSpec("a", "FP64", [-1])

    def needs_four_columns(x: Any) -> Any:
        return x @ np.zeros((4, 1))

    @server.model("part", inputs=[declared, TensorSpec("b", "FP64", [-1])])
    @server.model("all")
    def fails(**inputs: Any) -> Any:
        raise LookupError

    @server.model("of the host")
    def fails_for_another_reason(x: Any) -> Any:
        raise OSError

    server.register("m", needs_four_columns)
    ask(server, "m", x=np.zeros((2, 3)))
    ask(server, "part", a=[1.0], b=[1.0])
    ask(server, "of%20the%20host", x=[1.0])
    ask(server, "all", **{'q"\n': [1.0]}, **{f"x{number}": np.array(1.0) for number in range(9)})
    ask(server, "all", **{"long" * 200: [1.0]})
    first = ", ".join(['TensorSpec("q\\"\\n", "FP64", [-1])', *(f'TensorSpec("x{number}", "FP64", [])' for number in range(4)), "..."])
    assert [text for _, text in messages(caplog)] == [
        f'model \'m\' failed on a request{START}TensorSpec("x", "FP64", [-1, 3]){END}',
        "model 'part' failed on a request",
        "model 'of the host' failed on a request",
        f"model 'all' failed on a request{START}{first}{END}",
        "model 'all' failed on a request",
    ]


def test_a_traceback_begins_with_the_models_own_frame(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    def inner() -> Any:
        raise RuntimeError("inner")

    @server.model("def")
    def fails() -> Any:
        try:
            inner()
        except RuntimeError as error:
            raise OSError("outer") from error

    @server.model("async")
    async def fails_async() -> Any:
        fails()

    for name in ("def", "async"):
        caplog.clear()
        ask(server, name)
        [record] = caplog.records
        files = re.findall(r'File "(.*?)", line \d+, in (\w+)', str(record.exc_text))
        assert files == [(__file__, "fails"), (__file__, "inner")] + [(__file__, "fails_async")] * (name == "async") + [(__file__, "fails")]
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], OSError)


# Columns of data frames


def gets(df: pd.DataFrame) -> Any:
    return df["Age"] * 2


def gets_two(df: pd.DataFrame) -> Any:
    return df[["Age", "x", "Height"]]


def gets_only_others(df: pd.DataFrame) -> Any:
    return df[["Age", "Height"]]


def gets_a_quote(df: pd.DataFrame) -> Any:
    return df[["Age", "it's [here]"]]


def locates(df: pd.DataFrame) -> Any:
    return df.loc[:, ["x", "Age"]]


def locates_one(df: pd.DataFrame) -> Any:
    return df.loc[:, "Age"]


def locates_two(df: pd.DataFrame) -> Any:
    return df.loc[:, ["Age", "Height"]]


def indexes(df: pd.DataFrame) -> Any:
    return df.set_index(["Age"])


FRAME = pd.DataFrame({"Height": [1.0, 2.0], "Age": [1.0, 0.0], "x": [1.0, 2.0]})
SCALER = StandardScaler().fit(FRAME)
COLUMNS = make_pipeline(make_column_transformer((StandardScaler(), ["Height", "Age"]))).fit(FRAME)


def predicts(df: pd.DataFrame) -> Any:
    return SCALER.transform(df)


def transforms(df: pd.DataFrame) -> Any:
    return COLUMNS.transform(df)


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
        (gets, " 'Age'"),
        (gets_two, "s 'Age', 'Height'"),
        (gets_only_others, "s 'Age', 'Height'"),
        (gets_a_quote, " \"['Age', 'it's [here]']\""),  # as pandas writes it
        (locates, " 'Age'"),
        (locates_one, " 'Age'"),
        (locates_two, "s 'Age', 'Height'"),
        (indexes, " 'Age'"),
        (pops, " 'Age'"),
        (drops, " 'Age'"),
        (sorts_by, " 'Age'"),
        (predicts, "s 'Age', 'Height'"),
        (transforms, "s 'Age', 'Height'"),
    ],
)
def test_a_missing_column_is_the_clients(
    server: InferenceServer, function: Callable[..., Any], column: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.register("m", function)
    status, text = error(ask(server, "m", x=[1.0], y=[2.0]))
    assert status == 400
    assert text == f"model 'm' needs the column{column}, which the request does not have: its inputs are 'x', 'y'"
    assert messages(caplog) == [(logging.WARNING, f"a request: {text}")]


def of_a_frame_of_its_own(df: pd.DataFrame) -> Any:
    return pd.DataFrame({"price": [1]})["Age"]


def of_a_dict(df: pd.DataFrame) -> Any:
    return dict[str, int]()["Age"]


def of_a_row(df: pd.DataFrame) -> Any:
    return df.loc["Age"]


def of_a_located_row(df: pd.DataFrame) -> Any:
    return df.loc["Age", "x"]


def of_rows(df: pd.DataFrame) -> Any:
    return df.loc[["Age"]]


def of_an_attribute(df: pd.DataFrame) -> Any:
    return df.fillnaa()  # type: ignore[operator]  # a method that there is not, and not a column


def of_an_order(df: pd.DataFrame) -> Any:
    return SCALER.transform(FRAME[["x", "Age", "Height"]])


def of_a_series(df: pd.DataFrame) -> Any:
    return pd.Series({"a": 1})["Age"]


def of_a_number(df: pd.DataFrame) -> Any:
    return df[7]


def raises_itself(df: pd.DataFrame) -> Any:
    raise KeyError("Age")


def of_an_array(x: Any) -> Any:
    return pd.DataFrame({"x": x})["Age"]


@pytest.mark.parametrize(
    "function",
    [
        of_a_frame_of_its_own,
        of_a_dict,
        of_a_row,
        of_a_located_row,
        of_rows,
        of_an_attribute,
        of_an_order,
        of_a_series,
        of_a_number,
        raises_itself,
        of_an_array,
    ],
    ids=lambda function: function.__name__,
)
def test_other_errors_are_the_models(server: InferenceServer, function: Callable[..., Any]) -> None:
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
