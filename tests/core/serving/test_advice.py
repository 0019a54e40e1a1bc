"""Common mistakes of models, and what the log says to mend them; also of models that hold their event loop, by a clock of the tests."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from oip_asgi import InferenceServer, OIPApp, OIPWSGIApp, TensorSpec
from tests.support.asking import ask, error
from tests.support.inside import set_clock
from tests.support.ways import Request, over_asgi, over_wsgi
from tests.table.row import GOOD, infer, inputs

FAILED = (500, "model 'm' failed: see the server's log")
WRONG = ": if the request was wrong, declare what the model takes, and it is answered 400"
START, END = f"{WRONG}. This request had inputs=[", "]: write what it should have had"
DECLARE = f'{START}TensorSpec("x", "FP64", [-1]){END}'
OF_A_FRAME = "inputs=specs_of(X), with a frame X as the model takes it"
READ_ONLY = ": inputs are read-only; in the function, change a copy: x = x.copy()"


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


FRAME = pd.DataFrame({"Height": [1.0, 2.0], "Age": [1.0, 0.0], "x": [1.0, 2.0]})
SCALER = StandardScaler().fit(FRAME)


def predicts(df: pd.DataFrame) -> Any:
    return SCALER.transform(df)


@pytest.mark.parametrize("function", [gets, predicts])
def test_a_column_that_nothing_declares_is_the_models_and_the_log_says_what_to_declare(
    server: InferenceServer, function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    server.register("m", function)
    assert error(ask(server, "m", x=[1.0])) == FAILED
    assert messages(caplog) == [(logging.ERROR, f"model 'm' failed on a request{WRONG}: {OF_A_FRAME}")]


def test_a_column_that_may_be_anything_is_declared_of_a_frame(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    days = pd.DataFrame({"day": pd.to_datetime(["2024-01-31", "2024-02-01"]), "size": [1.0, 2.0]})
    month = FunctionTransformer(lambda frame: frame.apply(lambda column: column.dt.month))
    numbers = make_column_transformer((month, ["day"]), remainder="passthrough")
    server.register("m", make_pipeline(numbers, LinearRegression()).fit(days, [1.0, 2.0]).predict)
    unchecked = (
        "model 'm': the datatypes of the columns 'day', 'size' are not checked: to check them, write inputs=specs_of(X), with the frame of "
        "the training"
    )
    assert error(ask(server, "m", day=["2024-01-31"], size=[1.0])) == FAILED
    assert messages(caplog) == [(logging.WARNING, unchecked), (logging.ERROR, f"model 'm' failed on a request{WRONG}: {OF_A_FRAME}")]


def test_a_column_that_is_declared_is_the_clients(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    server.register("declared", gets, inputs=[TensorSpec("Age", "FP64", [-1])])
    server.register("fitted", SCALER.transform, content_type="pd")
    assert error(ask(server, "declared", x=[1.0])) == (400, "unknown input 'x': expected 'Age'")
    assert error(ask(server, "fitted", x=[1.0])) == (
        400,
        "missing input 'Age', 'Height': expected 'Age', 'Height', 'x', but got 'x'",
    )
    assert messages(caplog) == []


MENDS = {
    "async": "write a def, which runs in a worker thread, or await asyncio.to_thread(...) for the part that blocks",
    "async stream": "write a def with yield, which runs in a worker thread, or await asyncio.to_thread(...) for the part that blocks",
    "inline": 'leave run="inline" out, so that it runs in a worker thread',
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def block(self, seconds: float) -> None:
        """What takes this long, and lets nothing else run."""
        self.now += seconds

    async def wait(self, seconds: float) -> None:
        """What takes this long, while other tasks run."""

        async def pass_by() -> None:
            self.now += seconds

        await asyncio.create_task(pass_by())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed_server(clock: Clock) -> InferenceServer:
    server = InferenceServer()
    set_clock(server, clock)
    return server


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "oip_asgi"]


def warning(function: Any, milliseconds: int, kind: str) -> str:
    place = f'File "{__file__}", line {function.__code__.co_firstlineno}, in {function.__name__}'
    held = f"model 'm' held the event loop for {milliseconds} ms, in which nothing else ran on it, health probes neither"
    return f"{held} ({place}): {MENDS[kind]}"


@pytest.mark.parametrize("options", [{}, {"max_batch_size": 4}], ids=["alone", "in a batch"])
@pytest.mark.parametrize("kind", ["async", "inline"])
def test_it_is_warned_of_once(
    kind: str, options: dict[str, Any], timed_server: InferenceServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def holds(x: Any) -> Any:
        await clock.wait(5)
        clock.block(0.25)
        await clock.wait(5)
        return x

    def holds_inline(x: Any) -> Any:
        clock.block(0.25)
        return x

    function = holds if kind == "async" else holds_inline
    timed_server.register("m", function, run="thread" if kind == "async" else "inline", **options)
    for _ in range(3):
        assert ask(timed_server, "m", x=[[1.0]]).status == 200
    assert told(caplog) == [warning(function, 250, kind)]


@pytest.mark.parametrize("held", [0, 1, 7, None])
def test_a_stream_is_warned_of_once(
    held: int | None, timed_server: InferenceServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    @timed_server.model("m")
    async def m(x: Any) -> Any:
        for place in range(9):
            await clock.wait(5)
            if held is not None and place >= held:
                clock.block(0.25)
            yield x

    for _ in range(2):
        answer = over_asgi(OIPApp(timed_server), "")(Request("POST", "/models/m/infer_stream", (), inputs(GOOD)))
        assert (answer.status, answer.body.count(b"data: {")) == (200, 9)
    assert told(caplog) == ([] if held is None else [warning(m, 250, "async stream")])


def test_one_that_begins_to_hold_it_is_found_at_its_next_long_call(
    timed_server: InferenceServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    held = [0.0, 0.09, 0.3, 0.3]

    @timed_server.model("m")
    async def holds(x: Any) -> Any:
        clock.block(held.pop(0))
        return x

    @timed_server.model("waits")
    async def waits(x: Any) -> Any:
        await clock.wait(5)
        return x

    @timed_server.model("def")
    def holds_no_loop(x: Any) -> Any:
        clock.block(5)
        return x

    for model, expected in (("m", 0), ("def", 0), ("waits", 0), ("waits", 0), ("m", 0), ("m", 0), ("m", 1)):
        assert ask(timed_server, model, x=[1.0]).status == 200
        assert len(told(caplog)) == expected


def test_inline_under_wsgi_holds_no_event_loop(timed_server: InferenceServer, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    @timed_server.model("m", run="inline")
    def m(x: Any) -> Any:
        clock.block(5)
        return x

    assert over_wsgi(OIPWSGIApp(timed_server), "")(infer("m", inputs(GOOD))).status == 200
    assert told(caplog) == []
    assert over_asgi(OIPApp(timed_server), "")(infer("m", inputs(GOOD))).status == 200
    assert len(told(caplog)) == 1
